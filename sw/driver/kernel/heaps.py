"""Heaps of dma-bufs, /dev/dma_heap/system and others: memory that programs share with several drivers.

The names, and the order of their minor numbers, are those of Rockchip's kernel
(drivers/dma-buf/heaps/rk_system_heap.c in armbian/linux-rockchip @1f5d7a3, rk_cma_heap.c in
nyanmisaka/linux-rockchip @bdc0f32; a listing of a board with the major number 251: rockchip-linux/mpp, issue
626).  Checks and errors are those of torvalds/linux, drivers/dma-buf/dma-heap.c.
"""

from __future__ import annotations

import threading
from errno import EBADF, EINVAL, ENODEV

from rkcosim.driver.kernel import structs as s
from rkcosim.driver.kernel.fences import DmaBuf, install
from rkcosim.driver.kernel.interface import Credentials, FdTable, KernelError, UserMemory, copied
from rkcosim.driver.kernel.log import Log
from rkcosim.driver.kernel.memory import Backing, Ram, round_up

FOLDER, MAJOR = "/dev/dma_heap", 251
HEAPS = ("system", "system-dma32", "system-uncached", "system-uncached-dma32", "cma", "cma-uncached")
"""Names of the heaps, by minor number.

They differ in caches and in the place of the pages, which have no effect here: all take pages from the
machine's memory.
"""

O_ACCMODE, O_CLOEXEC = 0x3, 0x80000
COMMANDS = 1
_BOTH = s.IOC_READ | s.IOC_WRITE


class HeapBuffer:
    """Pages from a heap, which exist until the last descriptor and the last import are gone.

    Parameters
    ----------
    backing : the pages.
    """

    def __init__(self, backing: Backing) -> None:
        self.backing, self.size = backing, backing.size
        self._references = 0

    @property
    def alive(self) -> bool:
        """Whether a descriptor refers to it."""
        return self._references > 0

    def hold(self) -> HeapBuffer:
        """Add a reference."""
        self._references += 1
        return self

    def drop(self) -> None:
        """Drop a reference; the last one frees the pages, unless a driver has imported them."""
        self._references -= 1
        if not self._references:
            self.backing.drop()


class DmaHeaps:
    """All heaps of a machine.

    Parameters
    ----------
    ram : memory of the machine.
    log : log of the kernel.
    lock : lock of the kernel.
    """

    def __init__(self, ram: Ram, log: Log, lock: threading.RLock) -> None:
        self.ram, self.log, self.lock = ram, log, lock
        self.paths = {f"{FOLDER}/{name}": name for name in HEAPS}
        """Name of the heap of each device node."""

    def open(self, path: str, credentials: Credentials) -> HeapFile:
        """Open a node; the access mode has no effect on what the file can do."""
        return HeapFile(self, self.paths[path], credentials)


class HeapFile:
    """An open heap; any thread may call its methods."""

    def __init__(self, heaps: DmaHeaps, name: str, credentials: Credentials) -> None:
        self.heaps, self.name, self.credentials = heaps, name, credentials
        self.closed = False

    def ioctl(self, request: int, argument: int, user: UserMemory, fds: FdTable) -> int:
        """DMA_HEAP_IOCTL_ALLOC.

        Raises
        ------
        KernelError
            EINVAL for other commands and for values that the kernel refuses, ENOMEM, EMFILE, EFAULT.
        """
        try:
            if self.closed:
                raise KernelError(EBADF, "the file is closed")
            if s.ioc_number(request) >= COMMANDS:
                raise KernelError(EINVAL, f"there is no command {s.ioc_number(request)}")
            kind = s.HeapAllocation
            return copied(kind, _BOTH, request, argument, user, lambda args: self._allocate(args, fds))
        except KernelError as error:
            self.heaps.log.info(f"dma_heap: {self.name}, process {self.credentials.pid}: -{error}")
            raise

    def _allocate(self, args: s.HeapAllocation, fds: FdTable) -> int:
        if args.fd:
            raise KernelError(EINVAL, f"fd is {args.fd}, not 0")
        if args.fd_flags & ~(O_CLOEXEC | O_ACCMODE):
            raise KernelError(EINVAL, f"fd_flags {args.fd_flags:#x}")
        if args.heap_flags:
            raise KernelError(EINVAL, f"heap_flags {args.heap_flags:#x}")
        size = round_up(args.len) % (1 << 64)
        if not size:
            raise KernelError(EINVAL, f"len {args.len}")
        with self.heaps.lock:
            buffer = HeapBuffer(Backing(self.heaps.ram, size, self.name)).hold()
        try:
            made = DmaBuf(buffer, self.heaps, self.heaps.lock, args.fd_flags & O_ACCMODE)
            args.fd = install(fds, made, bool(args.fd_flags & O_CLOEXEC))
        finally:
            with self.heaps.lock:
                buffer.drop()
        return 0

    def mmap(self, offset: int, length: int, prot: int, flags: int) -> tuple[int, int]:
        """Raise KernelError: only the descriptors of buffers can be mapped."""
        raise KernelError(ENODEV, f"{self.name} cannot be mapped")

    def close(self) -> None:
        """The last descriptor is closed; the buffers remain."""
        self.closed = True
