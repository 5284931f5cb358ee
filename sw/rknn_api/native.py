"""Contents of device memory for inputs and outputs: the native attributes (vendor guide 5.2).

Only this module depends on the form in which a compiled model stores its tensors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rkcosim.rknn_api import types as t
from rkcosim.rknn_api.convert import ATOM_CHANNELS, fill, shown_dtype

NHWC, NCHW = t.RKNN_TENSOR_NHWC, t.RKNN_TENSOR_NCHW
BLOCKED, FLAT = t.RKNN_TENSOR_NC1HWC2, t.RKNN_TENSOR_UNDEFINED


@dataclass(frozen=True)
class Native:
    """Layout of a tensor in device memory.

    Members
    -------
    tensor : its name in the compiled model; None for numbers that the host computes.
    dims : dimensions in the order of `fmt`.
    size : bytes, including padded channels.
    bytes : bytes, including padded channels and rows.
    kept : type in which the host keeps the numbers, if it is not `dtype`; they are converted then.
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
    kept: np.dtype[Any] | None = None

    @property
    def stored(self) -> int:
        """Bytes of the tensor as it is kept."""
        return self.bytes if self.kept is None else self.elements * self.kept.itemsize

    @property
    def size(self) -> int:
        """Size of the elements in bytes."""
        return self.elements * self.dtype.itemsize


def native_input(model: Any, index: int) -> Native:
    """Layout of an input."""
    if (batch := getattr(model, "batch", 1)) > 1:
        return _wide(native_input(model.one, index), batch)
    graph = model.graph
    return _of_tensor(model, graph.inputs[index].tensor, model.inputs[index])


def native_output(model: Any, index: int) -> Native:
    """Layout of an output; outputs that the host computes are dense arrays."""
    if (batch := getattr(model, "batch", 1)) > 1:
        return _wide(native_output(model.one, index), batch)
    item, info = model.graph.outputs[index], model.outputs[index]
    if item.real:
        return _dense(None, tuple(int(n) for n in info.shape), replace(info, scale=1.0, zero_point=0))
    return _of_tensor(model, item.value, info)


def _wide(one: Native, batch: int) -> Native:
    """The layout of a batch: one sample after the other.

    A vector whose channels are padded stays flat in a model of one sample, whose padding is at the end. In a
    batch it lies between the samples, so its layout is NC1HWC2 there.
    """
    if one.fmt == FLAT and one.bytes > one.size:
        step = ATOM_CHANNELS // one.dtype.itemsize
        blocks = one.bytes // ATOM_CHANNELS
        one = replace(one, fmt=BLOCKED, dims=(1, blocks, 1, 1, step), elements=blocks * step)
    dims = (batch, *one.dims[1:])
    return replace(one, dims=dims, elements=one.elements * batch, bytes=one.bytes * batch)


def _dense(name: str | None, shape: tuple[int, ...], info: Any) -> Native:
    """The layout of an array that only the host has."""
    dtype, kept, elements = shown_dtype(info), np.dtype(info.dtype), math.prod(shape)
    fmt = NCHW if len(shape) == 4 else FLAT
    size = elements * dtype.itemsize
    other = None if dtype == kept else kept
    return Native(name, fmt, shape, dtype, info.scale, info.zero_point, elements, size, 0, other)


def _of_tensor(model: Any, name: str, info: Any) -> Native:
    tensor = model.graph.tensors.get(name)
    if getattr(tensor, "host", ""):  # a dense array that only the host keeps
        return _dense(name, tensor.shape, info)
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
        size = height * stride * channels * dtype.itemsize
        return Native(name, NHWC, pixels, dtype, info.scale, zero_point, elements, size, stride)
    if dtype == np.uint8:  # except for packed pixels, the NPU only supports signed bytes
        dtype, zero_point = np.dtype(np.int8), zero_point - 128
    if place.plain:
        elements = math.prod(shape)
        fmt = NCHW if len(shape) == 4 else FLAT
        return Native(name, fmt, shape, dtype, info.scale, zero_point, elements, elements * dtype.itemsize, 0)
    step = ATOM_CHANNELS // dtype.itemsize
    blocks = max(int(place.surface_count), -(-channels // step))
    stored = blocks * step * height * width
    if height * width == 1 and len(shape) != 4:
        elements = math.prod(shape)
        return Native(name, FLAT, shape, dtype, info.scale, zero_point, elements, stored * dtype.itemsize, 0)
    dims = (1, blocks, height, width, step)
    size = max(stored * dtype.itemsize, int(place.size))
    return Native(name, BLOCKED, dims, dtype, info.scale, zero_point, stored, size, 0)


def fill_native(attr: t.rknn_tensor_attr, info: Any, native: Native) -> None:
    """Fill all members except `index` with the native attributes."""
    fill(attr, info.name, native.dims, native.fmt, native.dtype, native.scale, native.zero_point)
    attr.n_elems = native.elements
    attr.size = native.size
    attr.size_with_stride = native.bytes
    attr.w_stride = native.w_stride


def fill_native_nhwc(attr: t.rknn_tensor_attr, info: Any, native: Native) -> None:
    """Fill all members except `index` with the NHWC view of a native tensor."""
    shape = tuple(int(n) for n in info.shape)
    if len(shape) != 4 or native.fmt == NHWC:
        fill_native(attr, info, native)
        return
    n, c, h, w = shape
    fill(attr, info.name, (n, h, w, c), NHWC, native.dtype, native.scale, native.zero_point)
    attr.n_elems = n * c * h * w
    attr.size = attr.size_with_stride = attr.n_elems * native.dtype.itemsize
    attr.w_stride = w
