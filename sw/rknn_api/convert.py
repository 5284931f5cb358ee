"""Between the buffers of a program and the arrays of a compiled model.

A compiled model's arrays have the model's own shape; four dimensions are N, C, H, W there.  Programs
see four-dimensional inputs as NHWC and outputs as NCHW, as the vendor's library shows them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from sw.rknn_api.types import (
    RKNN_MAX_DIMS,
    RKNN_MAX_NAME_LEN,
    rknn_tensor_attr,
    rknn_tensor_format,
    rknn_tensor_qnt_type,
    rknn_tensor_type,
)

Array = npt.NDArray[Any]

ATOM_CHANNELS = 16
"""Channels of an int8 atom: the last dimension of NC1HWC2 (H 3.1)."""

INPUT_DTYPES: dict[int, Any] = {
    rknn_tensor_type.RKNN_TENSOR_FLOAT32: np.float32,
    rknn_tensor_type.RKNN_TENSOR_FLOAT16: np.float16,
    rknn_tensor_type.RKNN_TENSOR_INT8: np.int8,
    rknn_tensor_type.RKNN_TENSOR_UINT8: np.uint8,
    rknn_tensor_type.RKNN_TENSOR_INT16: np.int16,
}
"""Types that `rknn_inputs_set` takes."""


class ConversionError(ValueError):
    """A buffer that cannot be turned into the model's input; the message says why."""


def tensor_type(dtype: npt.DTypeLike) -> rknn_tensor_type:
    """The header's code of a model's element type.

    Raises
    ------
    KeyError
        for a type that has none here.
    """
    return {
        np.dtype(np.int16): rknn_tensor_type.RKNN_TENSOR_INT16,
        np.dtype(np.int32): rknn_tensor_type.RKNN_TENSOR_INT32,
        np.dtype(np.float32): rknn_tensor_type.RKNN_TENSOR_FLOAT32,
        np.dtype(np.float16): rknn_tensor_type.RKNN_TENSOR_FLOAT16,
        np.dtype(np.int8): rknn_tensor_type.RKNN_TENSOR_INT8,
        np.dtype(np.uint8): rknn_tensor_type.RKNN_TENSOR_UINT8,
    }[np.dtype(dtype)]


def quantisation(dtype: npt.DTypeLike) -> int:
    """Kind of quantisation of an element type: the vendor's library calls float16 affine too (scale 1)."""
    if np.dtype(dtype) == np.float32:
        return int(rknn_tensor_qnt_type.RKNN_TENSOR_QNT_NONE)
    return int(rknn_tensor_qnt_type.RKNN_TENSOR_QNT_AFFINE_ASYMMETRIC)


def fill_attr(attr: rknn_tensor_attr, info: Any, *, is_input: bool, pitch: int = 0, stored: int = 0) -> None:
    """Fill everything but `index` from a `TensorInfo`.

    `pitch` is the row pitch of packed pixels (0: dense rows), `stored` the bytes that the NPU touches.
    """
    shape = tuple(int(n) for n in info.shape)
    fmt = rknn_tensor_format.RKNN_TENSOR_UNDEFINED
    w_stride = 0
    if len(shape) == 4 and is_input:
        fmt = rknn_tensor_format.RKNN_TENSOR_NHWC
        shape = (shape[0], shape[2], shape[3], shape[1])
        w_stride = pitch or shape[2]
    elif len(shape) == 4:
        fmt = rknn_tensor_format.RKNN_TENSOR_NCHW
    dtype = np.dtype(info.dtype)
    elements = int(np.prod(shape, dtype=np.int64))
    attr.n_dims = len(shape)
    attr.dims[:] = [*shape, *[0] * (RKNN_MAX_DIMS - len(shape))]
    attr.name = info.name.encode()[: RKNN_MAX_NAME_LEN - 1]
    attr.n_elems = elements
    attr.size = elements * dtype.itemsize
    attr.size_with_stride = max(stored, attr.size)
    attr.fmt = fmt
    attr.type = tensor_type(dtype)
    attr.qnt_type = quantisation(dtype)
    attr.fl = 0
    attr.zp = int(info.zero_point)
    attr.scale = float(info.scale)
    attr.w_stride = w_stride
    attr.pass_through = 0
    attr.h_stride = 0


def input_bytes(info: Any, kind: int, pass_through: bool, native: Any = None) -> int:
    """Bytes that a buffer of type `kind` must hold for an input; `native` is its layout on the device.

    Raises
    ------
    ConversionError
        for a type that inputs cannot have.
    """
    if kind not in INPUT_DTYPES:
        raise ConversionError(f"input '{info.name}': type {kind} is not supported")
    elements = math.prod(info.shape)
    if pass_through and native is not None:
        elements = native.bytes // native.dtype.itemsize
    return int(elements) * np.dtype(INPUT_DTYPES[kind]).itemsize


def input_array(
    info: Any,
    data: bytes,
    kind: int,
    fmt: int,
    *,
    codes: bool = False,
    pitch: int = 0,
    blocks: tuple[int, int] | None = None,
) -> Array:
    """The model's codes (or reals, for a model that is not quantised) out of a program's buffer.

    Parameters
    ----------
    info
        `TensorInfo` of the input.
    data
        at least as many bytes as the tensor takes in this form.
    kind, fmt
        type and order of the buffer.
    codes
        numbers of the model's own type are codes; without it numbers are real values, whatever their
        type, and are quantised.
    pitch
        pixels from row to row of NHWC (0: dense).
    blocks
        C1 and C2 of NC1HWC2, which is refused without them.

    Raises
    ------
    ConversionError
        for an order that does not fit the tensor, a type that is none of a model's, or numbers not
        finite.
    """
    dtype = np.dtype(INPUT_DTYPES[kind])
    values = _in_model_order(info, np.frombuffer(data, dtype), fmt, pitch, blocks)
    if np.dtype(info.dtype).kind not in "iu" or (codes and dtype == np.dtype(info.dtype)):
        return values.astype(info.dtype)
    reals = values.astype(np.float32)
    if not np.isfinite(reals).all():
        raise ConversionError(f"input '{info.name}': values are not all finite")
    return quantise(reals, info.scale, info.zero_point, np.dtype(info.dtype))


def quantise(values: Array, scale: float, zero_point: int, dtype: np.dtype[Any]) -> Array:
    """Codes of real numbers: `saturate(round_half_even(x / scale) + zero_point)` in single precision."""
    limits = np.iinfo(dtype)
    steps = np.rint(values.astype(np.float32) / np.float32(scale)) + np.float32(zero_point)
    return np.clip(steps, limits.min, limits.max).astype(dtype)


def dequantise(codes: Array, scale: float, zero_point: int) -> npt.NDArray[np.float32]:
    """Real numbers of codes: `(q - zero_point) * scale` in single precision."""
    return (codes.astype(np.int32) - zero_point).astype(np.float32) * np.float32(scale)


def _in_model_order(info: Any, values: Array, fmt: int, pitch: int, blocks: tuple[int, int] | None) -> Array:
    shape = tuple(int(n) for n in info.shape)
    formats = rknn_tensor_format
    if len(shape) != 4:
        if fmt == formats.RKNN_TENSOR_NC1HWC2:
            raise ConversionError(f"input '{info.name}': NC1HWC2 does not fit {len(shape)} dimensions")
        return values[: math.prod(shape)].reshape(shape)
    n, c, h, w = shape
    if fmt == formats.RKNN_TENSOR_NCHW:
        return values[: n * c * h * w].reshape(shape)
    if fmt in (formats.RKNN_TENSOR_NHWC, formats.RKNN_TENSOR_UNDEFINED):
        line = max(pitch, w)
        rows = values[: n * h * line * c].reshape(n, h, line, c)[:, :, :w]
        return np.ascontiguousarray(rows.transpose(0, 3, 1, 2))
    if fmt == formats.RKNN_TENSOR_NC1HWC2 and blocks:
        count, step = blocks
        atoms = values[: n * count * h * w * step].reshape(n, count, h, w, step)
        return np.ascontiguousarray(atoms.transpose(0, 1, 4, 2, 3).reshape(n, -1, h, w)[:, :c])
    raise ConversionError(f"input '{info.name}': format {fmt} needs NHWC or NCHW (NC1HWC2 with pass_through)")


def output_bytes(info: Any, values: Array, fmt: int, blocks: tuple[int, int] | None = None) -> bytes:
    """An output array (the model's shape) in another order; `blocks` is C1 and C2 of NC1HWC2.

    Raises
    ------
    ConversionError
        for an order that does not fit the tensor.
    """
    formats = rknn_tensor_format
    if fmt in (formats.RKNN_TENSOR_NCHW, formats.RKNN_TENSOR_UNDEFINED) or values.ndim != 4:
        if fmt == formats.RKNN_TENSOR_NC1HWC2:
            raise ConversionError(f"output '{info.name}': NC1HWC2 does not fit {values.ndim} dimensions")
        return np.ascontiguousarray(values).tobytes()
    if fmt == formats.RKNN_TENSOR_NHWC:
        return np.ascontiguousarray(values.transpose(0, 2, 3, 1)).tobytes()
    if fmt != formats.RKNN_TENSOR_NC1HWC2 or blocks is None:
        raise ConversionError(f"output '{info.name}': format {fmt} is not possible")
    n, c, h, w = values.shape
    count, step = blocks
    full = np.zeros((n, count * step, h, w), values.dtype)
    full[:, :c] = values
    return np.ascontiguousarray(full.reshape(n, count, step, h, w).transpose(0, 1, 3, 4, 2)).tobytes()
