"""Conversion between the buffers of a program and the arrays of a compiled model.

The arrays of a compiled model have the model's shape; four dimensions are N, C, H, W.  Programs
see four-dimensional inputs as NHWC and outputs as NCHW, as in the vendor's library.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.hostops.quantise import quantize
from rkcosim.rknn_api.types import (
    RKNN_MAX_DIMS,
    RKNN_MAX_NAME_LEN,
    get_type_string,
    rknn_tensor_attr,
    rknn_tensor_format,
    rknn_tensor_qnt_type,
    rknn_tensor_type,
)

Array = npt.NDArray[Any]

ATOM_CHANNELS = 16
"""Channels of an int8 atom: the last dimension of NC1HWC2 [HW 3.1]."""

TENSOR_TYPES = {
    name: rknn_tensor_type[f"RKNN_TENSOR_{name.upper()}"]
    for name in "float32 float16 int8 uint8 int16 uint16 int32 uint32 int64 bool".split()
}
"""The header's codes of element types, by their numpy names."""

INTEGERS = tuple(name for name in TENSOR_TYPES if "int" in name)
"""Types in which a program may give an input of integers."""

INPUT_DTYPES: dict[int, Any] = {
    rknn_tensor_type.RKNN_TENSOR_FLOAT32: np.float32,
    rknn_tensor_type.RKNN_TENSOR_FLOAT16: np.float16,
    rknn_tensor_type.RKNN_TENSOR_INT8: np.int8,
    rknn_tensor_type.RKNN_TENSOR_UINT8: np.uint8,
    rknn_tensor_type.RKNN_TENSOR_INT16: np.int16,
}
"""Types that `rknn_inputs_set` accepts for every input; see `input_dtypes`."""


class ConversionError(ValueError):
    """A buffer cannot be converted to the model's input; the message has the reason."""


def tensor_type(dtype: npt.DTypeLike) -> rknn_tensor_type:
    """The header's code of a model's element type.

    Raises
    ------
    KeyError
        For a type without a code.
    """
    return TENSOR_TYPES[np.dtype(dtype).name]


def shown_dtype(info: Any) -> np.dtype[Any]:
    """The element type by which programs see an input or output (`TensorInfo`).

    Floats that only the host keeps are float16, as those of the NPU: the vendor's converter makes float16 of
    all floats of a model that is not quantised (`float_dtype`).
    """
    return np.dtype(np.float16) if info.half else np.dtype(info.dtype)


def quantisation(dtype: npt.DTypeLike) -> int:
    """Kind of quantisation of an element type; float16 is affine (scale 1), as in the vendor's library.

    Types that only the host computes with have none.
    """
    if np.dtype(dtype).name in ("float32", "float64", "int32", "uint32", "int64", "bool"):
        return int(rknn_tensor_qnt_type.RKNN_TENSOR_QNT_NONE)
    return int(rknn_tensor_qnt_type.RKNN_TENSOR_QNT_AFFINE_ASYMMETRIC)


def input_dtypes(info: Any) -> dict[int, Any]:
    """Types that a program may give for an input.

    They are those of all inputs, its own, and all integers for integers that are no codes.
    """
    own = shown_dtype(info)
    integers = INTEGERS if own.kind in "iub" and not info.quantised else ()
    more = {int(TENSOR_TYPES[name]): np.dtype(name) for name in integers}
    return {**INPUT_DTYPES, **more, int(tensor_type(own)): own}


def fill_attr(attr: rknn_tensor_attr, info: Any, *, is_input: bool, pitch: int = 0, stored: int = 0) -> None:
    """Fill all members except `index` from a `TensorInfo`.

    `pitch` is the row pitch of packed pixels (0: dense rows), `stored` the number of bytes that the NPU
    accesses.
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
    dtype = shown_dtype(info)
    fill(attr, info.name, shape, fmt, dtype, info.scale, info.zero_point)
    attr.n_elems = math.prod(shape)
    attr.size = attr.n_elems * dtype.itemsize
    attr.size_with_stride = max(stored, attr.size)
    attr.w_stride = w_stride


def fill(
    attr: rknn_tensor_attr,
    name: str,
    dims: tuple[int, ...],
    fmt: int,
    dtype: np.dtype[Any],
    scale: float,
    zero_point: int,
) -> None:
    """Fill the members that all kinds of attributes have: all except `index`, sizes and strides."""
    attr.n_dims = len(dims)
    attr.dims[:] = [*dims, *[0] * (RKNN_MAX_DIMS - len(dims))]
    attr.name = name.encode()[: RKNN_MAX_NAME_LEN - 1]
    attr.fmt = fmt
    attr.type = tensor_type(dtype)
    attr.qnt_type = quantisation(dtype)
    attr.fl = 0
    attr.zp = int(zero_point)
    attr.scale = float(scale)
    attr.pass_through = 0
    attr.h_stride = 0


def input_bytes(info: Any, kind: int, pass_through: bool, native: Any = None) -> int:
    """Number of bytes of a buffer of type `kind` for an input; `native` is its layout on the device.

    Raises
    ------
    ConversionError
        For a type that inputs cannot have.
    """
    dtypes = input_dtypes(info)
    if kind not in dtypes:
        own, *taken = (get_type_string(item) for item in (tensor_type(shown_dtype(info)), *dtypes))
        raise ConversionError(
            f"input '{info.name}' is {own} and cannot be given as {get_type_string(kind)} (type {kind}), "
            f"only as {', '.join(taken)}"
        )
    elements = math.prod(info.shape)
    if pass_through and native is not None:
        elements = native.bytes // native.dtype.itemsize
    return int(elements) * np.dtype(dtypes[kind]).itemsize


def input_array(
    info: Any,
    data: Any,
    kind: int,
    fmt: int,
    *,
    codes: bool = False,
    pitch: int = 0,
    blocks: tuple[int, int] | None = None,
) -> Array:
    """The model's codes (or real values, for a model that is not quantised) from a program's buffer.

    Parameters
    ----------
    info
        `TensorInfo` of the input.
    data
        At least as many bytes as the tensor takes in this form; the result shares none of them.
    kind, fmt
        Type and order of the buffer.
    codes
        Whether numbers of the model's element type are codes; otherwise numbers are real values, whatever
        their type, and are quantised. An input with preprocessing (of a `.rknn` file) takes int8 as codes
        in any case, and preprocesses all other numbers that are not codes.
    pitch
        Pixels from row to row of NHWC (0: dense).
    blocks
        C1 and C2 of NC1HWC2, which is rejected without them.

    Raises
    ------
    ConversionError
        For an order that does not fit the tensor, a type that no model has, numbers that are not finite,
        integers that the model's type does not have, or int8 for an input of floats with preprocessing.
    """
    dtype = np.dtype(input_dtypes(info)[kind])
    values = _in_model_order(info, np.frombuffer(data, dtype), fmt, pitch, blocks)
    if info.preprocessing is not None:
        own = dtype == np.dtype(info.dtype)
        codes = codes or (own and dtype == np.int8)
        if not (codes and own):
            values = _preprocessed(info, values)
            dtype = values.dtype
    same = dtype == np.dtype(info.dtype) and (codes or not info.quantised)
    if np.dtype(info.dtype).kind not in "iu" or same:
        return values.astype(info.dtype)
    if not info.quantised:
        return _integers(info, values)
    reals = values.astype(np.float32, copy=False)
    if dtype.kind == "f" and not np.isfinite(reals).all():
        raise ConversionError(f"input '{info.name}': values are not all finite")
    return quantize(reals, info.scale, info.zero_point, info.dtype)


def _integers(info: Any, values: Array) -> Array:
    """Return numbers in the type of an input of integers, rounded if they are floats.

    Raises
    ------
    ConversionError
        For numbers that the type does not have.
    """
    with np.errstate(invalid="ignore"):
        whole = np.rint(values) if values.dtype.kind == "f" else values
        made: Array = whole.astype(info.dtype)
        kept = made == whole if values.dtype.kind == "f" else (made == whole) & ((made < 0) == (whole < 0))
    if not kept.all():
        first = values[~kept].flat[0]
        raise ConversionError(f"input '{info.name}': {first} is no {np.dtype(info.dtype)}")
    return made


def _preprocessed(info: Any, values: Array) -> Array:
    """Return the network's numbers; unchanged if the input's preprocessing changes none."""
    if info.preprocessing.neutral:
        return values
    if values.dtype == np.int8:
        raise ConversionError(
            f"input '{info.name}': int8 numbers of an input of {np.dtype(info.dtype)} with mean and std have "
            "no known meaning; give uint8 or float32"
        )
    result: Array = info.preprocessing.apply(values)
    return result


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
        return rows.transpose(0, 3, 1, 2)  # pixels stay together in memory, as packed pixels want them
    if fmt == formats.RKNN_TENSOR_NC1HWC2 and blocks:
        count, step = blocks
        atoms = values[: n * count * h * w * step].reshape(n, count, h, w, step)
        return np.ascontiguousarray(atoms.transpose(0, 1, 4, 2, 3).reshape(n, -1, h, w)[:, :c])
    raise ConversionError(f"input '{info.name}': format {fmt} needs NHWC or NCHW (NC1HWC2 with pass_through)")


def output_bytes(info: Any, values: Array, fmt: int, blocks: tuple[int, int] | None = None) -> bytes:
    """An output array (in the model's shape) in another order; `blocks` is C1 and C2 of NC1HWC2.

    Raises
    ------
    ConversionError
        For an order that does not fit the tensor.
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
