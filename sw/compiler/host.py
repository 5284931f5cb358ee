"""Operations that the host computes on real numbers behind the NPU."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import numpy.typing as npt

from sw.compiler.graph import HostOp

Real = npt.NDArray[np.float32]


def softmax(values: Real, axis: int) -> Real:
    """Softmax along an axis, in float32."""
    powers = np.exp(values - values.max(axis=axis, keepdims=True))
    return (powers / powers.sum(axis=axis, keepdims=True)).astype(np.float32)


def quantize(values: npt.NDArray[Any], scale: float, zero_point: int, dtype: type) -> npt.NDArray[Any]:
    """`sat(round(values / scale) + zero_point)`, ties to even, as ONNX's QuantizeLinear."""
    info = np.iinfo(dtype)
    codes = np.rint(values.astype(np.float32) / np.float32(scale)) + zero_point
    return np.clip(codes, info.min, info.max).astype(dtype)


def dequantize(codes: npt.NDArray[Any], scale: float, zero_point: int) -> Real:
    """`(codes - zero_point) * scale` in float32, as ONNX's DequantizeLinear."""
    return ((codes.astype(np.int32) - zero_point).astype(np.float32) * np.float32(scale)).astype(np.float32)


def evaluate(op: HostOp, value: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Compute one host operation.

    Parameters
    ----------
    op
        the operation with its attributes.
    value
        its input: real numbers, or codes for Dequantize.
    """
    attributes = cast(dict[str, Any], op.attributes)
    if op.kind == "Softmax":
        return softmax(value.reshape(attributes["shape"]), attributes["axis"])
    if op.kind == "Quantize":
        dtype = np.uint8 if attributes["unsigned"] else np.int8
        return quantize(value, attributes["scale"], attributes["zero_point"], dtype)
    if op.kind == "Dequantize":
        return dequantize(value, attributes["scale"], attributes["zero_point"])
    return value.reshape(attributes["shape"])
