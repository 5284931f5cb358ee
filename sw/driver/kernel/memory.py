"""Pages, addresses and buffers: memfd, IOVA spaces, IOMMU domains, GEM objects."""

from __future__ import annotations

import fcntl
import os
import resource
from bisect import bisect_left, insort
from collections.abc import Callable
from errno import EINVAL, ENOMEM, ENOSPC

from rkcosim.driver.device import SharedMemory
from rkcosim.driver.kernel.interface import KernelError

PAGE = 4096
"""Granule of buffers and mappings."""

OFFSET_FIRST, OFFSET_END = 0x1_0000_0000, 1 << 44
"""Fake mmap offsets of a DRM device."""

SEALS = fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


RESERVED = 64
"""Number of descriptors of this process that are kept free for calls in progress."""


def leaves_room(fd: int) -> bool:
    """Whether enough descriptors are left after a new one, which has the lowest free number."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return most == resource.RLIM_INFINITY or fd < most - RESERVED


def round_up(size: int, unit: int = PAGE) -> int:
    """The next multiple of `unit`."""
    return -(-size // unit) * unit


class Ram:
    """Memory of the machine: limit and current size of all buffers, in bytes."""

    def __init__(self, limit: int) -> None:
        self.limit, self.used = limit, 0


class Backing:
    """Pages of a buffer.

    Parameters
    ----------
    ram, size, name
        Memory of the machine, bytes in whole pages, and a name for lists of descriptors.
    shared
        True for a sealed memfd that clients, kernel and NPU map. False for pages of the device's memory that
        exist while they are mapped there: `fd` is None, and only the device's memory can access them.

    Raises
    ------
    KernelError
        ENOMEM if the machine's memory or the process's descriptors are used up.
    """

    def __init__(self, ram: Ram, size: int, name: str, shared: bool = True) -> None:
        if ram.used + size > ram.limit:
            raise KernelError(ENOMEM, f"{size} more bytes exceed the machine's {ram.limit} bytes of memory")
        self.fd: int | None = self._file(size, name) if shared else None
        self.size = size
        self._ram, self._users = ram, 1
        ram.used += size

    @staticmethod
    def _file(size: int, name: str) -> int:
        try:
            fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        except OSError as error:
            raise KernelError(ENOMEM, f"no memfd: {error}") from None
        if not leaves_room(fd):
            os.close(fd)
            raise KernelError(ENOMEM, "no memfd: the simulator has no descriptors left")
        try:
            os.ftruncate(fd, size)
            fcntl.fcntl(fd, *SEALS)  # truncating the file would crash every process that maps it
        except OSError as error:
            os.close(fd)
            raise KernelError(ENOMEM, f"no pages: {error}") from None
        return fd

    @property
    def file(self) -> int:
        """The memfd of shared pages."""
        if self.fd is None:
            raise KernelError(EINVAL, "the buffer has no shared pages")
        return self.fd

    def hold(self) -> Backing:
        """Add a user."""
        self._users += 1
        return self

    def drop(self) -> None:
        """Remove a user; the last one frees the pages."""
        self._users -= 1
        if not self._users:
            if self.fd is not None:
                os.close(self.fd)
            self._ram.used -= self.size

    def read(self, offset: int, size: int) -> bytes:
        """Bytes of the buffer, which the program and the NPU share."""
        return os.pread(self.file, size, offset)

    def write(self, offset: int, data: bytes) -> None:
        """Change bytes of the buffer; the range must lie inside the buffer."""
        if offset + len(data) <= self.size:
            os.pwrite(self.file, data, offset)


class RangeSpace:
    """Allocator of address ranges between low and high.

    Parameters
    ----------
    top_down
        Allocate the highest address first; otherwise the smallest hole that fits, the lowest first.
    guard
        Bytes kept free next to each range, on the side that is filled next.
    """

    def __init__(self, low: int, high: int, *, top_down: bool = False, guard: int = 0) -> None:
        self.low, self.high, self.top_down, self.guard = low, high, top_down, guard
        self._used: list[tuple[int, int]] = []
        self._ends: dict[int, tuple[int, int]] = {}

    def take(self, size: int, align: int = PAGE, at: int | None = None) -> int | None:
        """Allocate `size` bytes at a multiple of `align`, or at `at`; returns the start, or None."""
        best: tuple[int, int] | None = None
        edges = [(self.low, self.low), *self._used, (self.high, self.high)]
        holes = [(edges[i][1], edges[i + 1][0]) for i in range(len(edges) - 1)]
        if at is not None:
            free = any(start <= at and at + size <= end for start, end in holes)
            return self._keep(at, at, at + size) if free else None
        for start, end in reversed(holes) if self.top_down else holes:
            if self.top_down:
                place = (end - size) // align * align
                if place - self.guard >= start:
                    return self._keep(place, place - self.guard, place + size)
            else:
                place = round_up(start, align)
                if place + size + self.guard <= end and (best is None or end - start < best[1]):
                    best = place, end - start
        return None if best is None else self._keep(best[0], best[0], best[0] + size + self.guard)

    def _keep(self, place: int, start: int, end: int) -> int:
        insort(self._used, (start, end))
        self._ends[place] = start, end
        return place

    def give(self, place: int) -> None:
        """Free the range that starts at `place`."""
        item = self._ends.pop(place)
        del self._used[bisect_left(self._used, item)]


class Domain:
    """An IOMMU domain: an address space with the buffers in it.

    `version` changes with every mapping.
    """

    def __init__(self, name: str, space: RangeSpace) -> None:
        self.name, self.space, self.version = name, space, 0
        self.mappings: dict[int, Backing] = {}

    def map(self, backing: Backing, align: int = PAGE, at: int | None = None) -> int:
        """Map a buffer at a multiple of `align`, or at `at`, and return the address.

        Raises
        ------
        KernelError
            ENOSPC if there is no room.
        """
        iova = self.space.take(backing.size, align, at)
        if iova is None:
            raise KernelError(ENOSPC, f"no room for {backing.size} bytes in IOMMU domain {self.name}")
        self.mappings[iova] = backing
        self.version += 1
        return iova

    def unmap(self, iova: int) -> None:
        """Unmap a buffer."""
        del self.mappings[iova]
        self.space.give(iova)
        self.version += 1


class Mmu:
    """Map one domain at a time into the device's memory."""

    def __init__(self, memory: SharedMemory) -> None:
        self._memory = memory
        self.domain: Domain | None = None
        self._version = -1
        self._mapped: dict[int, Backing] = {}

    def use(self, domain: Domain) -> None:
        """Map exactly the buffers of a domain in the device's memory; only between two of its steps."""
        if domain is self.domain and domain.version == self._version:
            return
        for iova, backing in list(self._mapped.items()):
            if domain.mappings.get(iova) is not backing:
                self._memory.unmap(iova)
                del self._mapped[iova]
        for iova, backing in domain.mappings.items():
            if iova not in self._mapped:
                shown = () if backing.fd is None else (backing.fd,)
                self._memory.map(iova, backing.size, *shown)
                self._mapped[iova] = backing
        self.domain, self._version = domain, domain.version

    def refresh(self) -> None:
        """Apply the changes of the current domain."""
        if self.domain is not None:
            self.use(self.domain)


class GemObject:
    """A buffer, which exists until its last handle, mapping, dma-buf or job releases it.

    Members
    -------
    size : bytes, whole pages.
    flags, sram_size : flags of MEM_CREATE; bytes of SRAM.
    domain, iova : IOMMU domain and address for the NPU.
    address : the kernel address that the vendor's interface shows (`obj_addr`).
    offset : the fake mmap offset; None until requested.
    imported : whether the pages belong to another driver.
    flink : its global name, 0 for none.
    writers : unfinished rocket jobs that list it as output.
    """

    def __init__(
        self,
        backing: Backing,
        domain: Domain,
        iova: int,
        *,
        flags: int = 0,
        address: int = 0,
        sram_size: int = 0,
        imported: bool = False,
        on_release: Callable[[GemObject], None] = lambda item: None,
    ) -> None:
        self.backing, self.domain, self.iova = backing, domain, iova
        self.flags, self.address, self.sram_size, self.imported = flags, address, sram_size, imported
        self.size = backing.size
        self.offset: int | None = None
        self.flink = 0
        self.writers: set[object] = set()
        self._references, self._on_release = 0, on_release

    @property
    def alive(self) -> bool:
        """Whether anything refers to it."""
        return self._references > 0

    def hold(self) -> GemObject:
        """Add a reference."""
        self._references += 1
        return self

    def drop(self) -> None:
        """Drop a reference; the last one frees address and pages."""
        self._references -= 1
        if not self._references:
            self._on_release(self)
            self.domain.unmap(self.iova)
            self.backing.drop()


class HandleTable:
    """Handles of one open file for objects: numbers from 1, the lowest free one first."""

    def __init__(self) -> None:
        self._objects: dict[int, GemObject] = {}
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self._objects)

    def add(self, item: GemObject) -> int:
        """Create a handle, which holds the object."""
        handle = self._free.pop(0) if self._free else len(self._objects) + 1
        self._objects[handle] = item.hold()
        return handle

    def get(self, handle: int) -> GemObject | None:
        """The object of a handle."""
        return self._objects.get(handle)

    def items(self) -> list[GemObject]:
        """All objects, by handle."""
        return [self._objects[handle] for handle in sorted(self._objects)]

    def of(self, item: GemObject) -> int:
        """The lowest handle of an object, 0 if it has none."""
        return min((handle for handle, known in self._objects.items() if known is item), default=0)

    def remove(self, handle: int) -> bool:
        """Close a handle; False if there is none."""
        item = self._objects.pop(handle, None)
        if item is None:
            return False
        insort(self._free, handle)
        item.drop()
        return True

    def clear(self) -> None:
        """Close all handles."""
        for handle in sorted(self._objects):
            self.remove(handle)
