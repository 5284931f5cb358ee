"""Numpy arrays in device memory: what the memories of all engines have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from math import prod
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, overload

import numpy as np
import numpy.typing as npt

from rkcosim.engines.protocol import MemoryAccessError

SPACE = 1 << 32
"""Size of one IOVA space in bytes ([HW 11]: address registers carry 32 bits)."""

PAGE = 4096
"""Granularity of a mapping in bytes, as in the IOMMU [HW 11]."""

FIRST = 0x4000_0000
"""Address from which on `alloc` looks for free memory; drivers and streams usually use lower ones."""

T = TypeVar("T", bound=np.generic)


class Allocation(Generic[T]):
    """An array in device memory, from `ArrayMemory.alloc` or `ArrayMemory.place`.

    It is a context manager that frees the memory, and numpy functions take it as the array.

    Members
    -------
    address : address of its first byte, a multiple of 4 KiB if it was chosen by `alloc`.
    array : the bytes themselves as an array, shared with the cores.
    """

    def __init__(self, memory: ArrayMemory, address: int, array: npt.NDArray[T]) -> None:
        self.address, self.array = address, array
        self._memory: ArrayMemory | None = memory

    def free(self) -> None:
        """Unmap the memory; a second call does nothing. The array must not be used any more."""
        memory, self._memory = self._memory, None
        if memory is not None:
            memory.unmap(self.address)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        return np.array(self.array, dtype=dtype, copy=True if copy is None else copy)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.free()

    def __repr__(self) -> str:
        state = "" if self._memory is not None else ", freed"
        return f"<{self.array.dtype} {list(self.array.shape)} at 0x{self.address:08X}{state}>"


class ArrayMemory(ABC):
    """Memory that host and cores share, as numpy arrays; only mapped ranges may be accessed."""

    @property
    @abstractmethod
    def ranges(self) -> dict[int, int]:
        """Mapped ranges, from first address to size in bytes."""

    @abstractmethod
    def map(self, iova: int, size: int, fd: int | None = None) -> object:
        """Map `size` bytes, rounded up to pages, at `iova`."""

    @abstractmethod
    def unmap(self, iova: int) -> None:
        """Remove the range that starts at `iova`."""

    @abstractmethod
    def _bytes(self, iova: int, size: int) -> npt.NDArray[np.uint8]:
        """Return the bytes themselves, uint8 of shape (size,); raises MemoryAccessError."""

    @overload
    def view(self, iova: int, shape: int, /) -> npt.NDArray[np.uint8]: ...

    @overload
    def view(self, iova: int, shape: Sequence[int], /) -> npt.NDArray[np.uint8]: ...

    @overload
    def view(
        self, iova: int, shape: int | Sequence[int], dtype: type[T] | np.dtype[T], /
    ) -> npt.NDArray[T]: ...

    @overload
    def view(self, iova: int, shape: int | Sequence[int], dtype: npt.DTypeLike, /) -> npt.NDArray[Any]: ...

    def view(
        self, iova: int, shape: int | Sequence[int], dtype: npt.DTypeLike = np.uint8, /
    ) -> npt.NDArray[Any]:
        """Return an array of the bytes themselves, shared with the cores, in C order.

        Parameters
        ----------
        iova : address of its first byte.
        shape : number of elements, or the shape.
        dtype : type of the elements, in the byte order of this machine (little endian, as the NPU's).

        Raises
        ------
        MemoryAccessError
            if its bytes are not all inside one mapped range (the message has the ranges), or the engine is
            closed.
        ValueError
            for a negative dimension, or a type without a fixed size.
        """
        if dtype is np.uint8 and type(shape) is int and shape >= 0:
            return self._bytes(iova, shape)
        dims, kind = checked(shape, dtype)
        return self._bytes(iova, prod(dims) * kind.itemsize).view(kind).reshape(dims)

    @overload
    def alloc(
        self, shape: int | Sequence[int], dtype: type[T] | np.dtype[T], *, at: int | None = None
    ) -> Allocation[T]: ...

    @overload
    def alloc(
        self, shape: int | Sequence[int], dtype: npt.DTypeLike = np.uint8, *, at: int | None = None
    ) -> Allocation[Any]: ...

    def alloc(
        self, shape: int | Sequence[int], dtype: npt.DTypeLike = np.uint8, *, at: int | None = None
    ) -> Allocation[Any]:
        """Map memory for an array of zeros.

        Parameters
        ----------
        shape, dtype : as for `view`.
        at : its address, a multiple of 4 KiB; None: the first free one from `FIRST` on, with a free page
            between it and its neighbours, so that an access beyond its last page is reported.

        Raises
        ------
        MemoryAccessError
            for an address that is not free or not a multiple of 4 KiB, and if there is no room.
        ValueError
            as `view`, and for an array without elements.
        """
        dims, kind = checked(shape, dtype)
        size = prod(dims) * kind.itemsize
        if not size:
            raise ValueError(f"an array of shape {list(dims)} has no elements")
        address = self.free_address(size) if at is None else at
        self.map(address, size)
        return Allocation(self, address, self.view(address, dims, kind))

    def place(self, array: npt.ArrayLike, *, at: int | None = None) -> Allocation[Any]:
        """Map memory for an array and copy the array into it, in C order; see `alloc`."""
        source = np.asarray(array)
        placed = self.alloc(source.shape, source.dtype, at=at)
        placed.array[...] = source
        return placed

    def free_address(self, size: int, first: int = FIRST) -> int:
        """Return the first address from `first` on with `size` free bytes and a free page around them.

        Raises
        ------
        MemoryAccessError
            if there is none in the 4 GiB space.
        """
        address = first
        for start, length in sorted(self.ranges.items()):
            if address + size + PAGE <= start:
                break
            address = max(address, -(-(start + length) // PAGE) * PAGE + PAGE)
        if address + size + PAGE > SPACE:
            raise MemoryAccessError(f"no {size:#x} free bytes from {first:#x} on in the 4 GiB space")
        return address


def checked(shape: int | Sequence[int], dtype: npt.DTypeLike) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return a shape and a type; raises ValueError for those that no array in memory can have."""
    dims = (int(shape),) if isinstance(shape, int | np.integer) else tuple(int(size) for size in shape)
    kind = np.dtype(dtype)
    if any(size < 0 for size in dims):
        raise ValueError(f"the shape {list(dims)} has a negative dimension")
    if kind.hasobject or not kind.itemsize:
        raise ValueError(f"elements in device memory need a type of fixed size, not {kind}")
    return dims, kind


def mapped_size(iova: int, size: int, ranges: dict[int, int]) -> int:
    """Return the size of a new mapping in bytes, rounded up to whole pages.

    Raises
    ------
    MemoryAccessError
        for an unaligned address, an empty or too long range, or an overlap with one of `ranges`.
    """
    if iova % PAGE or iova < 0:
        raise MemoryAccessError(f"map: address {iova:#x} is not a multiple of {PAGE:#x}")
    size = (size + PAGE - 1) // PAGE * PAGE
    if size <= 0 or iova + size > SPACE:
        raise MemoryAccessError(f"map: {size:#x} bytes from {iova:#x} do not fit the 4 GiB space")
    for start, length in ranges.items():
        if iova < start + length and start < iova + size:
            raise MemoryAccessError(
                f"map: {iova:#x}..{iova + size:#x} overlaps the range {start:#x}..{start + length:#x}"
            )
    return size


def unmapped(iova: int, size: int, ranges: dict[int, int]) -> MemoryAccessError:
    """Return the error for an access that is not inside one of the ranges, which it names."""
    known = ", ".join(f"{start:#x}..{start + length:#x}" for start, length in sorted(ranges.items()))
    return MemoryAccessError(f"{size:#x} bytes at {iova:#x} are not in one mapped range ({known or 'none'})")
