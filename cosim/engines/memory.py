"""Device memory: a 4 GiB address space shared by host and cores, in which only mapped ranges may be used."""

from __future__ import annotations

import ctypes as ct
import mmap
import os
import sys
from bisect import bisect_right
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from rkcosim.engines.arrays import PAGE, SPACE, ArrayMemory, mapped_size, unmapped
from rkcosim.engines.protocol import EngineError, MemoryAccessError

_NORESERVE = 0x4000 if sys.platform == "linux" else 0x40
_FIXED = 0x10
_FAILED = ct.c_void_p(-1).value


class DeviceMemory(ArrayMemory):
    """Memory seen by cores and host as one array; only mapped ranges may be accessed.

    Parameters
    ----------
    on_change : called with (first page, number of pages, mapped) whenever a range changes.

    Raises
    ------
    EngineError
        if the address space cannot be reserved (no memory is used until it is written).
    """

    def __init__(self, on_change: Callable[[int, int, bool], None]) -> None:
        try:
            flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE
            self._map: mmap.mmap | None = mmap.mmap(-1, SPACE, flags=flags)
        except (OSError, ValueError) as error:
            raise EngineError(
                f"cannot reserve 4 GiB of address space for the device's memory: {error} "
                "(see ulimit -v, and vm.overcommit_memory, which must not be 2)"
            ) from error
        self.array: np.ndarray = np.frombuffer(self._map, dtype=np.uint8)
        self._ranges: dict[int, int] = {}
        self._starts: list[int] = []
        self._shared: set[int] = set()
        self._on_change = on_change

    def close(self) -> None:
        """Release the address space; afterwards only `unmap` may be called.

        Arrays returned by `view` stay valid with their contents. As long as one of them exists, the whole
        reservation is kept. The memory must not be used in any other way.
        """
        self.array = np.zeros(0, np.uint8)
        self._map = None

    def _opened(self) -> mmap.mmap:
        if self._map is None:
            raise MemoryAccessError("the device's memory is released: its engine is closed")
        return self._map

    @property
    def address(self) -> int:
        """Address of the array in this process."""
        return self.array.ctypes.data

    @property
    def ranges(self) -> dict[int, int]:
        """Mapped ranges, from first address to size in bytes (a multiple of 4 KiB)."""
        return dict(self._ranges)

    def map(self, iova: int, size: int, fd: int | None = None) -> None:
        """Map `size` bytes (rounded up to pages) from `iova` on; they read as zero.

        Parameters
        ----------
        fd : a file whose first `size` bytes are mapped instead, shared with all other mappings of the file.
            It may be closed afterwards, but must not shrink.

        Raises
        ------
        MemoryAccessError
            for an unaligned address, an empty or too long range, an overlap, a file that cannot be mapped, or
            if the engine is closed.
        """
        self._opened()
        at = bisect_right(self._starts, iova)
        near = self._starts[max(0, at - 1) : at + 1]  # only these can overlap
        size = mapped_size(iova, size, {start: self._ranges[start] for start in near})
        if fd is not None:
            if os.fstat(fd).st_size < size:
                raise MemoryAccessError(f"map: the file has fewer than {size:#x} bytes")
            self._place(iova, size, mmap.MAP_SHARED, fd)
            self._shared.add(iova)
        self._ranges[iova] = size
        self._starts = [
            *self._starts[:at],
            iova,
            *self._starts[at:],
        ]  # a new list: other threads have this one
        self._on_change(iova // PAGE, size // PAGE, True)

    def unmap(self, iova: int) -> None:
        """Remove the range that starts at `iova`; its contents are lost.

        Raises
        ------
        MemoryAccessError
            if no range starts there.
        """
        size = self._ranges.get(iova)
        if size is None:
            raise MemoryAccessError(f"unmap: no range starts at {iova:#x}")
        self._starts = [start for start in self._starts if start != iova]
        del self._ranges[iova]
        if self._map is None:
            return
        self._on_change(iova // PAGE, size // PAGE, False)
        if iova in self._shared:
            self._shared.remove(iova)
            self._place(iova, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE, -1)
        elif hasattr(mmap, "MADV_DONTNEED") and sys.platform == "linux":
            self._map.madvise(mmap.MADV_DONTNEED, iova, size)  # releases the pages, which then read as zero
        else:
            self.array[iova : iova + size] = 0

    def _place(self, iova: int, size: int, flags: int, fd: int) -> None:
        """Replace pages of a part of the array, by `mmap(2)` with MAP_FIXED."""
        call = ct.CDLL(None, use_errno=True).mmap
        call.argtypes = [ct.c_void_p, ct.c_size_t, ct.c_int, ct.c_int, ct.c_int, ct.c_long]
        call.restype = ct.c_void_p
        protection = mmap.PROT_READ | mmap.PROT_WRITE
        if call(self.address + iova, size, protection, flags | _FIXED, fd, 0) == _FAILED:
            raise MemoryAccessError(f"map: {size:#x} bytes at {iova:#x}: {os.strerror(ct.get_errno())}")

    def _bytes(self, iova: int, size: int) -> npt.NDArray[np.uint8]:
        self._opened()
        starts = self._starts
        at = bisect_right(starts, iova)
        if at and size >= 0 and iova + size <= starts[at - 1] + self._ranges.get(starts[at - 1], 0):
            return self.array[iova : iova + size]
        raise unmapped(iova, size, self._ranges)

    def read(self, iova: int, size: int) -> bytes:
        """Return a copy of `size` bytes; raises as `view`."""
        return self.view(iova, size).tobytes()

    def write(self, iova: int, data: bytes | bytearray | memoryview | np.ndarray) -> None:
        """Write bytes, or an array's bytes in C order; raises as `view`."""
        if isinstance(data, np.ndarray):
            source = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        else:
            source = np.frombuffer(data, dtype=np.uint8)
        self.view(iova, source.size)[:] = source
