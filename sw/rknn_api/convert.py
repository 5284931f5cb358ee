"""Between the buffers of a program and the arrays of a compiled model.

A compiled model's arrays have the model's own shape; four dimensions are N, C, H, W there.  Programs
see four-dimensional inputs as NHWC and outputs as NCHW, as the vendor's library shows them.
"""

from __future__ import annotations

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

INTERLEAVED_CHANNELS = (1, 3, 4)
"""Channel counts whose native input layout is NHWC (vendor guide, native attributes)."""

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
        np.dtype(np.float32): rknn_tensor_type.RKNN_TENSOR_FLOAT32,
        np.dtype(np.float16): rknn_tensor_type.RKNN_TENSOR_FLOAT16,
        np.dtype(np.int8): rknn_tensor_type.RKNN_TENSOR_INT8,
        np.dtype(np.uint8): rknn_tensor_type.RKNN_TENSOR_UINT8,
    }[np.dtype(dtype)]


def fill_attr(attr: rknn_tensor_attr, info: Any, *, is_input: bool) -> None:
    """Fill everything but `index` from a `TensorInfo`."""
    shape = tuple(int(n) for n in info.shape)
    fmt = rknn_tensor_format.RKNN_TENSOR_UNDEFINED
    w_stride = 0
    if len(shape) == 4 and is_input:
        fmt = rknn_tensor_format.RKNN_TENSOR_NHWC
        shape = (shape[0], shape[2], shape[3], shape[1])
        w_stride = shape[2]
    elif len(shape) == 4:
        fmt = rknn_tensor_format.RKNN_TENSOR_NCHW
    dtype = np.dtype(info.dtype)
    quantised = dtype.kind in "iu"
    elements = int(np.prod(shape, dtype=np.int64))
    attr.n_dims = len(shape)
    attr.dims[:] = [*shape, *[0] * (RKNN_MAX_DIMS - len(shape))]
    attr.name = info.name.encode()[: RKNN_MAX_NAME_LEN - 1]
    attr.n_elems = elements
    attr.size = attr.size_with_stride = elements * dtype.itemsize
    attr.fmt = fmt
    attr.type = tensor_type(dtype)
    kinds = rknn_tensor_qnt_type
    attr.qnt_type = kinds.RKNN_TENSOR_QNT_AFFINE_ASYMMETRIC if quantised else kinds.RKNN_TENSOR_QNT_NONE
    attr.fl = 0
    attr.zp = int(info.zero_point)
    attr.scale = float(info.scale)
    attr.w_stride = w_stride
    attr.pass_through = 0
    attr.h_stride = 0


def input_bytes(info: Any, kind: int, pass_through: bool) -> int:
    """Bytes that a buffer of type `kind` must hold for an input.

    Raises
    ------
    ConversionError
        for a type that inputs cannot have.
    """
    if kind not in INPUT_DTYPES:
        raise ConversionError(f"input '{info.name}': type {kind} is not supported")
    elements = int(np.prod(info.shape, dtype=np.int64))
    if pass_through and _native_is_blocked(info):
        n, c, h, w = info.shape
        elements = n * -(-c // ATOM_CHANNELS) * ATOM_CHANNELS * h * w
    return elements * np.dtype(INPUT_DTYPES[kind]).itemsize


def input_array(info: Any, data: bytes, kind: int, fmt: int, pass_through: bool) -> Array:
    """The model's codes (or reals, for a model that is not quantised) out of a program's buffer.

    Parameters
    ----------
    info
        `TensorInfo` of the input.
    data
        exactly `input_bytes` bytes.
    kind, fmt
        type and order of the buffer.
    pass_through
        the buffer holds the model's codes in the native layout: NHWC for 1, 3 or 4 channels, else
        NC1HWC2.  Otherwise its numbers are real values, whatever their type, and are quantised.

    Raises
    ------
    ConversionError
        for an order that does not fit the tensor, a wrong pass-through type, or numbers not finite.
    """
    dtype = np.dtype(INPUT_DTYPES[kind])
    values = np.frombuffer(data, dtype)
    if pass_through:
        if dtype != np.dtype(info.dtype):
            raise ConversionError(f"input '{info.name}': pass_through wants {info.dtype}, not {dtype}")
        return _from_native(info, values)
    values = _in_model_order(info, values, fmt)
    if np.dtype(info.dtype).kind not in "iu":
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


def _native_is_blocked(info: Any) -> bool:
    return len(info.shape) == 4 and info.shape[1] not in INTERLEAVED_CHANNELS


def _from_native(info: Any, values: Array) -> Array:
    shape = tuple(info.shape)
    if len(shape) != 4:
        return values.reshape(shape)
    n, c, h, w = shape
    if not _native_is_blocked(info):
        return np.ascontiguousarray(values.reshape(n, h, w, c).transpose(0, 3, 1, 2))
    blocks = values.reshape(n, -1, h, w, ATOM_CHANNELS).transpose(0, 1, 4, 2, 3)
    return np.ascontiguousarray(blocks.reshape(n, -1, h, w)[:, :c])


def _in_model_order(info: Any, values: Array, fmt: int) -> Array:
    shape = tuple(info.shape)
    formats = rknn_tensor_format
    if len(shape) != 4:
        if fmt == formats.RKNN_TENSOR_NC1HWC2:
            raise ConversionError(f"input '{info.name}': NC1HWC2 does not fit {len(shape)} dimensions")
        return values.reshape(shape)
    n, c, h, w = shape
    if fmt == formats.RKNN_TENSOR_NCHW:
        return values.reshape(shape)
    if fmt in (formats.RKNN_TENSOR_NHWC, formats.RKNN_TENSOR_UNDEFINED):
        return np.ascontiguousarray(values.reshape(n, h, w, c).transpose(0, 3, 1, 2))
    raise ConversionError(f"input '{info.name}': format {fmt} needs NHWC or NCHW (NC1HWC2 with pass_through)")
