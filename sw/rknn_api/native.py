"""What lies in device memory behind an input or output: the native attributes (vendor guide 5.2).

This is the one place that knows how a compiled model keeps its tensors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from sw.rknn_api import types as t
from sw.rknn_api.convert import ATOM_CHANNELS, quantisation, tensor_type

NHWC, NCHW = t.RKNN_TENSOR_NHWC, t.RKNN_TENSOR_NCHW
BLOCKED, FLAT = t.RKNN_TENSOR_NC1HWC2, t.RKNN_TENSOR_UNDEFINED


@dataclass(frozen=True)
class Native:
    """Layout of a tensor in device memory.

    `tensor` is its name in the compiled model, None for numbers that the host computes; `dims` are in
    the order of `fmt`; `size` counts padded channels, `bytes` also padded rows.
    """

    tensor: str | None
    fmt: int
    dims: tuple[int, ...]
    dtype: np.dtype[Any]
    scale: float
    zero_point: int
    elements: int
    bytes: int
    w_stride: int

    @property
    def size(self) -> int:
        """Bytes of the elements."""
        return self.elements * self.dtype.itemsize


def native_input(model: Any, index: int) -> Native:
    """Layout of an input."""
    graph = model.graph
    return _of_tensor(model, graph.inputs[index].tensor, model.inputs[index])


def native_output(model: Any, index: int) -> Native:
    """Layout of an output; what the host computes is a dense array."""
    item, info = model.graph.outputs[index], model.outputs[index]
    if item.real:
        shape = tuple(int(n) for n in info.shape)
        dtype = np.dtype(info.dtype)
        elements = math.prod(shape)
        fmt = NCHW if len(shape) == 4 else FLAT
        return Native(None, fmt, shape, dtype, 1.0, 0, elements, elements * dtype.itemsize, 0)
    return _of_tensor(model, item.value, info)


def _of_tensor(model: Any, name: str, info: Any) -> Native:
    place = model.plan.place(name)
    channels, height, width = (int(n) for n in place.cube)
    dtype, zero_point = np.dtype(info.dtype), int(info.zero_point)
    shape = tuple(int(n) for n in info.shape)
    if place.argb:
        pixels = (1, height, width, channels)
        if dtype == np.uint8 and not place.unsigned_pixels:
            dtype, zero_point = np.dtype(np.int8), zero_point - 128
        elements = math.prod(pixels)
        stride = int(place.pitch)
        return Native(
            name,
            NHWC,
            pixels,
            dtype,
            info.scale,
            zero_point,
            elements,
            height * stride * channels * dtype.itemsize,
            stride,
        )
    if dtype == np.uint8:  # outside packed pixels the NPU knows signed bytes only
        dtype, zero_point = np.dtype(np.int8), zero_point - 128
    step = ATOM_CHANNELS // dtype.itemsize
    blocks = max(int(place.surface_count), -(-channels // step))
    stored = blocks * step * height * width
    if height * width == 1 and len(shape) != 4:
        elements = math.prod(shape)
        return Native(name, FLAT, shape, dtype, info.scale, zero_point, elements, stored * dtype.itemsize, 0)
    dims = (1, blocks, height, width, step)
    size = stored * dtype.itemsize
    return Native(name, BLOCKED, dims, dtype, info.scale, zero_point, stored, size, 0)


def fill_native(attr: t.rknn_tensor_attr, info: Any, native: Native) -> None:
    """Fill everything but `index` with the native attributes."""
    _fill(attr, info, native.dims, native.fmt, native)
    attr.n_elems = native.elements
    attr.size = native.size
    attr.size_with_stride = native.bytes
    attr.w_stride = native.w_stride


def fill_native_nhwc(attr: t.rknn_tensor_attr, info: Any, native: Native) -> None:
    """Fill everything but `index` with the NHWC view of a native tensor."""
    shape = tuple(int(n) for n in info.shape)
    if len(shape) != 4 or native.fmt == NHWC:
        fill_native(attr, info, native)
        return
    n, c, h, w = shape
    _fill(attr, info, (n, h, w, c), NHWC, native)
    attr.n_elems = n * c * h * w
    attr.size = attr.size_with_stride = attr.n_elems * native.dtype.itemsize
    attr.w_stride = w


def _fill(attr: t.rknn_tensor_attr, info: Any, dims: tuple[int, ...], fmt: int, native: Native) -> None:
    attr.n_dims = len(dims)
    attr.dims[:] = [*dims, *[0] * (t.RKNN_MAX_DIMS - len(dims))]
    attr.name = info.name.encode()[: t.RKNN_MAX_NAME_LEN - 1]
    attr.fmt = fmt
    attr.type = tensor_type(native.dtype)
    attr.qnt_type = quantisation(native.dtype)
    attr.fl = 0
    attr.zp = native.zero_point
    attr.scale = float(native.scale)
    attr.pass_through = 0
    attr.h_stride = 0
