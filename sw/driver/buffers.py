"""Buffers in the device's IOVA space: whole pages, a guard page between any two."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator

import numpy as np

from sw.driver.device import Memory
from sw.driver.errors import DriverError

PAGE_BYTES = 4096
"""Granule of a mapping (H 8)."""

IOVA_FIRST = 0x0010_0000
"""Lowest address handed out, so that a null address is never valid."""

IOVA_END = 1 << 32
"""Address registers carry 32 bits (H 8)."""


class Buffer:
    """A range of device memory.

    `iova` is its first byte's device address, `size` the bytes asked for; the mapping is rounded up
    to whole pages.
    """

    def __init__(self, space: BufferSpace, name: str, iova: int, size: int) -> None:
        self.name = name
        self.iova = iova
        self.size = size
        self.freed = False
        self._space = space

    @property
    def mapped_size(self) -> int:
        """Bytes of the mapping."""
        return -(-self.size // PAGE_BYTES) * PAGE_BYTES

    def view(self, offset: int = 0, size: int | None = None) -> np.ndarray:
        """Bytes shared with the device: uint8 of shape (size,), by default all from `offset`.

        Raises
        ------
        DriverError
            if the range leaves the buffer or the buffer is freed.
        """
        size = self.size - offset if size is None else size
        if self.freed:
            raise DriverError(f"buffer {self.name!r} has been freed")
        if offset < 0 or size < 0 or offset + size > self.size:
            raise DriverError(f"buffer {self.name!r} has {self.size} bytes; not {size} from {offset}")
        return self._space.memory.view(self.iova + offset, size)

    def read(self, offset: int = 0, size: int | None = None) -> bytes:
        """A copy of some bytes; raises as `view`."""
        return self.view(offset, size).tobytes()

    def write(self, data: bytes | bytearray | memoryview | np.ndarray, offset: int = 0) -> None:
        """Write bytes, or an array in C order; raises as `view`."""
        if isinstance(data, np.ndarray):
            data = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        source = np.frombuffer(data, np.uint8)
        self.view(offset, source.size)[:] = source

    def free(self) -> None:
        """Give the memory back; a second call does nothing."""
        self._space.free(self)

    def __repr__(self) -> str:
        return f"Buffer({self.name!r}, iova=0x{self.iova:X}, size={self.size})"


class BufferSpace:
    """Hands out buffers, lowest free address first."""

    def __init__(self, memory: Memory, first: int = IOVA_FIRST, end: int = IOVA_END) -> None:
        self.memory = memory
        self.first = first
        self.end = end
        self._buffers: list[tuple[int, Buffer]] = []

    def __iter__(self) -> Iterator[Buffer]:
        return (buffer for _, buffer in self._buffers)

    def alloc(self, size: int, name: str) -> Buffer:
        """A zeroed buffer of at least `size` bytes.

        Raises
        ------
        DriverError
            if the size is not positive or no room is left.
        """
        if size <= 0:
            raise DriverError(f"buffer {name!r}: size must be positive, not {size}")
        pages = -(-size // PAGE_BYTES) * PAGE_BYTES
        place = self.first + PAGE_BYTES
        for iova, buffer in self._buffers:
            if place + pages + PAGE_BYTES <= iova:
                break
            place = iova + buffer.mapped_size + PAGE_BYTES
        if place + pages + PAGE_BYTES > self.end:
            raise DriverError(f"buffer {name!r}: no room for {size} bytes in the 32-bit IOVA space")
        self.memory.map(place, pages)
        buffer = Buffer(self, name, place, size)
        insort(self._buffers, (place, buffer), key=lambda item: item[0])
        return buffer

    def free(self, buffer: Buffer) -> None:
        """Unmap a buffer; a second call does nothing."""
        if buffer.freed:
            return
        buffer.freed = True
        self._buffers = [(iova, other) for iova, other in self._buffers if other is not buffer]
        self.memory.unmap(buffer.iova)

    def free_all(self) -> None:
        """Unmap every buffer."""
        for _, buffer in list(self._buffers):
            self.free(buffer)

    def find(self, iova: int, size: int = 1) -> Buffer | None:
        """The buffer that holds all of a range, or None."""
        for start, buffer in self._buffers:
            if start <= iova and iova + size <= start + buffer.mapped_size:
                return buffer
        return None

    def describe(self) -> str:
        """All buffers in words, for messages."""
        parts = [f"{b.name} 0x{b.iova:X}..0x{b.iova + b.size:X}" for b in self]
        return ", ".join(parts) or "none"
