"""Operations that the host computes on real numbers after the NPU's part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from rkcosim.compiler.graph import HostOp
from rkcosim.hostops.softmax import softmax

Real = npt.NDArray[np.float32]

PART = 1 << 15
"""Elements that are converted at a time."""


def quantize(values: npt.NDArray[Any], scale: float, zero_point: int, dtype: type) -> npt.NDArray[Any]:
    """`sat(round(values / scale) + zero_point)`, ties to even, as ONNX's QuantizeLinear."""
    info = np.iinfo(dtype)

    def convert(given: npt.NDArray[Any], taken: npt.NDArray[Any], work: npt.NDArray[Any]) -> None:
        np.divide(given.astype(np.float32, copy=False), np.float32(scale), out=work)
        np.rint(work, out=work)
        np.add(work, np.float32(zero_point), out=work)
        np.clip(work, info.min, info.max, out=work)
        np.copyto(taken, work, casting="unsafe")

    return _in_parts(convert, values, dtype)


def dequantize(codes: npt.NDArray[Any], scale: float, zero_point: int) -> Real:
    """`(codes - zero_point) * scale` in float32, as ONNX's DequantizeLinear."""
    if codes.dtype.itemsize > 2:  # float32 does not hold every code
        return ((codes.astype(np.int32) - zero_point).astype(np.float32) * np.float32(scale)).astype(
            np.float32
        )

    def convert(given: npt.NDArray[Any], taken: npt.NDArray[Any], work: npt.NDArray[Any]) -> None:
        np.subtract(given, np.float32(zero_point), out=taken, dtype=np.float32)
        np.multiply(taken, np.float32(scale), out=taken)

    return _in_parts(convert, codes, np.float32)


def _in_parts(
    convert: Callable[[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]], None],
    values: npt.NDArray[Any],
    dtype: npt.DTypeLike,
) -> npt.NDArray[Any]:
    """Convert elements in parts that caches hold, in the order of memory; `convert` gets a float32 buffer."""
    given = values.ravel(order="K")
    if not np.may_share_memory(given, values):  # there are gaps between elements
        values = np.array(values)
        given = values.ravel(order="K")
    result = np.empty_like(values, dtype=dtype)
    taken = result.ravel(order="K")
    work = np.empty(min(given.size, PART), np.float32)
    for first in range(0, given.size, PART):
        part = given[first : first + PART]
        convert(part, taken[first : first + PART], work[: part.size])
    return result


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
