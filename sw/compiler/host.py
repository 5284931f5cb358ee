"""Operations that the host computes on real numbers after the NPU's part."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import numpy.typing as npt

from rkcosim.compiler.graph import HostOp
from rkcosim.hostops.quantise import dequantize, quantize
from rkcosim.hostops.softmax import softmax

Real = npt.NDArray[np.float32]


def evaluate(op: HostOp, value: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Compute one host operation.

    Parameters
    ----------
    op
        The operation with its attributes.
    value
        Its input: real numbers, or codes for Dequantize.
    """
    attributes = cast(dict[str, Any], op.attributes)
    if op.kind == "Softmax":
        return softmax(value.reshape(attributes["shape"]), attributes["axis"]).astype(np.float32)
    if op.kind == "ArgMax":  # the first of equal values; float32 holds every index
        axis = attributes["axis"]
        return np.expand_dims(value.reshape(attributes["shape"]).argmax(axis), axis).astype(np.float32)
    if op.kind == "Quantize":
        dtype = np.uint8 if attributes["unsigned"] else np.int8
        return quantize(value, attributes["scale"], attributes["zero_point"], dtype)
    if op.kind == "Dequantize":
        return dequantize(value, attributes["scale"], attributes["zero_point"])
    return value.reshape(attributes["shape"])
