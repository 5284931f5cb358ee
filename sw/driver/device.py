"""Interface of a device for the driver; engines of `cosim` and tests implement it."""

from __future__ import annotations

from typing import Protocol

import numpy as np


class Memory(Protocol):
    """Memory that host and cores share, addressed by IOVA; only mapped ranges may be accessed."""

    def map(self, iova: int, size: int) -> object:
        """Map `size` zero bytes at `iova` (both multiples of 4 KiB)."""
        ...

    def unmap(self, iova: int) -> None:
        """Remove the range that starts at `iova`."""
        ...

    def read(self, iova: int, n: int, /) -> bytes:
        """Return a copy of `n` bytes."""
        ...

    def write(self, iova: int, data: bytes) -> None:
        """Write bytes."""
        ...

    def view(self, iova: int, n: int, /) -> np.ndarray:
        """Return the bytes in place: uint8 of shape (n,), writable and shared."""
        ...


class SharedMemory(Memory, Protocol):
    """Memory that can map the pages of a file; the kernel model needs it (`rkcosim.driver.kernel`)."""

    def map(self, iova: int, size: int, fd: int | None = None) -> object:
        """Map `size` bytes at `iova`: zero bytes, or those of the file `fd`, shared."""
        ...


class Device(Protocol):
    """One NPU: up to three cores, each with a register window and an interrupt line."""

    @property
    def cores(self) -> int:
        """Number of cores."""
        ...

    @property
    def cycle(self) -> int:
        """Clock cycles since the device was opened."""
        ...

    @property
    def memory(self) -> Memory:
        """The IOVA space of the device."""
        ...

    def read32(self, core: int, offset: int) -> int:
        """Read a register over the bus."""
        ...

    def write32(self, core: int, offset: int, value: int) -> None:
        """Write a register over the bus."""
        ...

    def run_until_irq(self, core_mask: int, max_cycles: int) -> int:
        """Run until a line of `core_mask` is high; returns the mask of high lines, 0 at the limit."""
        ...

    def reset(self, core_mask: int) -> None:
        """Assert and release the resets of the cores in `core_mask`; the memory keeps its contents."""
        ...

    def block_state(self, core: int) -> str:
        """What each block of a core waits for, as text for messages."""
        ...
