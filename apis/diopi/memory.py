"""The device's memory and its streams.

The NPU of the RK3588 has no memory of its own: it works on the machine's DRAM.  An address of the device is
therefore an address of the process, of a block that `Memory` has given out.
"""

from __future__ import annotations

import bisect
import ctypes
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.apis.diopi.values import DiopiError

Bytes = npt.NDArray[np.uint8]

LARGEST = 1 << 40
"""Largest block in bytes: what DRAM cannot hold by far."""


class Memory:
    """Blocks of memory by their addresses."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._blocks: dict[int, Bytes] = {}
        self._starts: list[int] = []

    def allocate(self, size: int) -> int:
        """Return the address of a new block of zeros.

        Raises
        ------
        DiopiError
            for a negative size, and if there is no memory.
        """
        if not 0 <= size < LARGEST:
            raise DiopiError(f"{size} bytes of device memory cannot be allocated")
        try:
            block = np.zeros(max(size, 1), np.uint8)
        except MemoryError as error:
            raise DiopiError(f"no memory for {size} bytes on the device") from error
        start = int(block.ctypes.data)
        with self._lock:
            self._blocks[start] = block
            bisect.insort(self._starts, start)
        return start

    def free(self, address: int) -> None:
        """Free a block; raises DiopiError if there is none at this address."""
        with self._lock:
            if self._blocks.pop(address, None) is None:
                raise DiopiError(f"0x{address:X} is not the address of a block of device memory")
            self._starts.pop(bisect.bisect_left(self._starts, address))

    def clear(self) -> None:
        """Free every block."""
        with self._lock:
            self._blocks.clear()
            self._starts.clear()

    def view(self, address: int, size: int) -> Bytes:
        """Return bytes of a block, as a view; raises DiopiError if they are not all within one."""
        with self._lock:
            place = bisect.bisect_right(self._starts, address) - 1
            start = self._starts[place] if place >= 0 else 0
            block = self._blocks.get(start)
        if block is None or size < 0 or address + size > start + block.size:
            raise DiopiError(f"{size} bytes at 0x{address:X} are not within a block of device memory")
        return block[address - start : address - start + size]


class Stream:
    """Work that is done in its order: copies wait here until someone waits for the stream."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._waiting: list[Callable[[], None]] = []
        self.destroyed = False

    def add(self, work: Callable[[], None]) -> None:
        """Add work; raises DiopiError if the stream was destroyed."""
        with self._lock:
            if self.destroyed:
                raise DiopiError("the stream was destroyed")
            self._waiting.append(work)

    def synchronize(self) -> None:
        """Do all work; the first error is raised after the rest was dropped.

        Raises
        ------
        DiopiError
            also if the stream was destroyed.
        """
        with self._lock:
            if self.destroyed:
                raise DiopiError("the stream was destroyed")
            waiting, self._waiting = self._waiting, []
            for work in waiting:
                work()

    def destroy(self) -> None:
        """Do all work, and take no more; raises DiopiError if that was done before."""
        self.synchronize()
        self.destroyed = True


def not_null(address: int, size: int) -> None:
    """Raise DiopiError for bytes of the host at address 0."""
    if size and not address:
        raise DiopiError(f"{size} bytes at a null address of the host")


def host_bytes(address: int, size: int) -> Any:
    """Return the bytes of the process at an address; the caller answers for them, as in C."""
    return (ctypes.c_uint8 * size).from_address(address)
