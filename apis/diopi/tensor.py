"""Tensors: shape, strides and type of elements in a block of memory."""

from __future__ import annotations

import ctypes
import math
import weakref
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.apis.diopi.enums import ITEM_SIZES, NUMPY, Device, Dtype, Error, Layout
from rkcosim.apis.diopi.memory import Memory, host_bytes, not_null
from rkcosim.apis.diopi.runtime import MEMORY, REGISTERED, Context, checked, device_malloc, registered
from rkcosim.apis.diopi.values import DiopiError, diopiSize

Array = npt.NDArray[Any]

HOST = Memory()
"""Memory of tensors on the host."""


def pointer(capsule: Any) -> int:
    """Return the address that a caller gives: an integer, or a PyCapsule without a name."""
    if isinstance(capsule, int):
        return capsule
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    return int(get(capsule, None) or 0)


class diopiTensor:
    """A tensor.

    Parameters
    ----------
    shape : its shape; without one the tensor is empty and has no memory.
    stride : elements from one index to the next, for each axis; None for a dense tensor in C order.
    dtype : type of its elements.
    device : where it lies.
    context : its context.
    src : address, or PyCapsule with the address, of bytes that are copied into it; None leaves zeros.
    layout : kept.
    requires_grad : kept.

    Raises
    ------
    DiopiError
        for a wrong shape or stride, and if there is no memory or no function for it is registered.
    """

    def __init__(
        self,
        shape: diopiSize | None = None,
        stride: diopiSize | None = None,
        dtype: Dtype = Dtype.float32,
        device: Device = Device.AIChip,
        context: Context | None = None,
        src: Any = None,
        layout: Layout = Layout.Strided,
        requires_grad: bool = False,
    ) -> None:
        self._dims: tuple[int, ...] = ()
        self._strides: tuple[int, ...] = ()
        self._type, self._place, self._context = Dtype(dtype), Device(device), context
        self._layout, self._grad = Layout(layout), bool(requires_grad)
        self._address, self._bytes = 0, 0
        if shape is None:
            return
        self._dims = tuple(shape.data)
        self._strides = dense(self._dims)
        if stride is not None and stride.len:
            self._strides = tuple(stride.data)
        if len(self._strides) != len(self._dims) or any(size < 0 for size in self._dims):
            raise DiopiError(f"shape {self._dims} with strides {self._strides}")
        if any(step < 0 for step in self._strides):
            raise DiopiError(f"a negative stride: {self._strides}")
        last = sum((size - 1) * step for size, step in zip(self._dims, self._strides, strict=True))
        self._bytes = (last + 1) * ITEM_SIZES[self._type] if self._count() else 0
        self._reserve()
        if src is not None:
            self._fill(pointer(src))

    def _count(self) -> int:
        return math.prod(self._dims)

    def _reserve(self) -> None:
        if self._place is Device.Host:
            self._address, free = HOST.allocate(self._bytes), HOST.free
        else:
            self._address = registered("DeviceMalloc")(self._bytes)
            if not self._address:
                raise DiopiError(f"no device memory for {self._bytes} bytes")
            free = _free_on_device
        weakref.finalize(self, free, self._address)

    def _fill(self, source: int) -> None:
        not_null(source, self._bytes)
        if self._place is Device.Host:
            ctypes.memmove(self.raw().ctypes.data, source, self._bytes)
            return
        context = self._needed_context()
        copy = registered("MemcpyH2DAsync")
        checked(copy(context.stream, self._address, source, self._bytes), "copy to the device")
        context.synchronize()

    def _needed_context(self) -> Context:
        if self._context is None:
            raise DiopiError("the tensor has no context")
        return self._context

    def raw(self) -> npt.NDArray[np.uint8]:
        """Return the tensor's bytes, as a view."""
        if self._place is Device.Host:
            return HOST.view(self._address, self._bytes)
        if registered("DeviceMalloc") is device_malloc:
            return MEMORY.view(self._address, self._bytes)
        return np.frombuffer(host_bytes(self._address, self._bytes), np.uint8)

    def array(self) -> Array:
        """Return the tensor's elements in its shape, as a view.

        Raises
        ------
        DiopiError
            for a type that numpy has not (`diopi_dtype_not_supported`), and for a tensor without memory.
        """
        if self._type not in NUMPY:
            raise DiopiError(f"the type {self._type.name} is not supported", Error.diopi_dtype_not_supported)
        if not self._address:
            raise DiopiError("the tensor has no memory")
        dtype = NUMPY[self._type]
        strides = tuple(step * dtype.itemsize for step in self._strides)
        flat = self.raw().view(dtype)
        return np.lib.stride_tricks.as_strided(flat, self._dims, strides)

    def read(self, target: Any) -> None:
        """Copy the tensor's bytes to an address of the host; raises DiopiError for a null one."""
        not_null(pointer(target), self._bytes)
        if self._place is Device.Host:
            ctypes.memmove(pointer(target), self.raw().ctypes.data, self._bytes)
            return
        context = self._needed_context()
        copy = registered("MemcpyD2HAsync")
        checked(copy(context.stream, pointer(target), self._address, self._bytes), "copy from the device")
        context.synchronize()

    def shape(self) -> diopiSize:
        """Return the shape."""
        return diopiSize(self._dims, len(self._dims))

    def get_stride(self) -> diopiSize:
        """Return the strides in elements."""
        return diopiSize(self._strides, len(self._strides))

    def get_dtype(self) -> Dtype:
        """Return the type of the elements."""
        return self._type

    def get_device(self) -> Device:
        """Return where the tensor lies."""
        return self._place

    def numel(self) -> int:
        """Return the number of elements."""
        return self._count()

    def itemsize(self) -> int:
        """Return the bytes of an element."""
        return ITEM_SIZES[self._type]

    def context(self) -> Context | None:
        """Return the context."""
        return self._context

    def reset_shape(self, size: diopiSize) -> bool:
        """Set the shape and dense strides.

        Returns
        -------
        Whether that was done: the number of elements must be the same, and the tensor must have the memory of
        a dense one, which a repeated tensor (with a stride of 0) has not.
        """
        if min(size.data, default=0) < 0 or math.prod(size.data) != self._count():
            return False
        if self._count() * ITEM_SIZES[self._type] > self._bytes:
            return False
        self._dims = tuple(size.data)
        self._strides = dense(self._dims)
        return True

    @property
    def is_sparse(self) -> bool:
        """Whether the tensor is sparse."""
        return self._layout is not Layout.Strided

    @property
    def requires_grad(self) -> bool:
        """What the constructor was given."""
        return self._grad


class diopiSparseCsrTensor(diopiTensor):
    """A sparse matrix by rows (CSR): a shape and three tensors; no operator takes one."""

    def __init__(
        self,
        shape: diopiSize | None = None,
        stride: diopiSize | None = None,
        dtype: Dtype = Dtype.float32,
        device: Device = Device.AIChip,
        context: Context | None = None,
        crow_indices: diopiTensor | None = None,
        col_indices: diopiTensor | None = None,
        values: diopiTensor | None = None,
    ) -> None:
        super().__init__(None, None, dtype, device, context, None, Layout.SparseCsr)
        self._dims = tuple(shape.data) if shape is not None else ()
        self._parts = (crow_indices, col_indices, values)


class TensorP:
    """A pointer to a tensor, for functions with lists of tensors."""

    def __init__(self, tensor: Any = None) -> None:
        self._tensor = tensor

    def data(self) -> diopiTensor:
        """Return the tensor."""
        made: diopiTensor = self._tensor
        return made


class diopiGenerator:
    """A generator of random numbers; no operator takes one."""

    def __init__(self, state: diopiTensor | None = None) -> None:
        self._state = state

    def state(self) -> diopiTensor | None:
        """Return the state."""
        return self._state

    def set_state(self, state: diopiTensor) -> None:
        """Set the state."""
        self._state = state


def dense(dims: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of a dense tensor in C order, in elements."""
    strides, step = [], 1
    for size in reversed(dims):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def _free_on_device(address: int) -> None:
    if free := REGISTERED.get("DevMemFree"):  # after the end of the library everything is free
        free(address)


def diopi_tensor_copy_to_buffer(context: Context, tensor: diopiTensor, target: Any) -> None:
    """Copy a tensor's bytes to an address of the host; raises DiopiError."""
    tensor.read(target)


def build_generator_state(context: Context) -> diopiTensor:
    """Return the state of a new generator: eight bytes of seed and eight of offset, all zero."""
    return diopiTensor(diopiSize([16], 1), None, Dtype.uint8, Device.AIChip, context)
