"""Fences of jobs, and the descriptors that programs receive: sync files and dma-bufs."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from ctypes import sizeof
from errno import EBADF, EINVAL, ENOTTY
from typing import Any, Protocol

from rkcosim.driver.kernel import structs as s
from rkcosim.driver.kernel.interface import FdTable, KernelError, KernelFile, UserMemory
from rkcosim.driver.kernel.memory import Backing

NAME_BYTES = 32
"""Bytes of a dma-buf's name with its final zero (DMA_BUF_NAME_LEN of the kernel)."""


class Fence:
    """A fence that signals once, when its job has ended: `error` is 0 or an errno, `time` in ns.

    `queued` is set if a job is going to signal it.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.signalled = self.queued = False
        self.error = 0
        self.time = 0
        self._then: list[Callable[[], None]] = []

    def signal(self, time: int, error: int = 0) -> None:
        """Signal the end of the job; a second call does nothing."""
        if not self.signalled:
            self.signalled, self.error, self.time = True, error, time
            for call in self._then:
                call()
            self._then.clear()

    def then(self, call: Callable[[], None]) -> None:
        """Call `call` at the signal, or now if the fence has signalled."""
        if self.signalled:
            call()
        else:
            self._then.append(call)


class SyncFile(KernelFile):
    """A descriptor that becomes and stays readable when all of its fences have signalled.

    Parameters
    ----------
    fences
        Fences that it waits for.
    name
        Name in SYNC_IOC_FILE_INFO.
    lock
        Lock of the kernel.
    """

    def __init__(self, fences: Sequence[Fence], name: str, lock: threading.RLock) -> None:
        self.fences, self.name, self._lock, self._users = list(fences), name, lock, 0
        self._fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        with lock:
            for fence in self.fences:
                fence.then(self._check)

    def _check(self) -> None:
        if self._fd >= 0 and self.poll():
            os.eventfd_write(self._fd, 1)

    def fileno(self) -> int:
        """An eventfd that is never read: `poll` on it tells whether the fences have signalled."""
        return self._fd

    def poll(self) -> bool:
        """Whether all fences have signalled."""
        return all(fence.signalled for fence in self.fences)

    def hold(self) -> None:
        """Add a reference of a descriptor."""
        with self._lock:
            self._users += 1

    def close(self) -> None:
        """Drop a reference of a descriptor; the last one frees it."""
        with self._lock:
            self._users -= 1
            if self._users <= 0 and self._fd >= 0:
                os.close(self._fd)
                self._fd = -1

    def ioctl(self, request: int, argument: int, user: UserMemory, fds: FdTable) -> int:
        """SYNC_IOC_MERGE and SYNC_IOC_FILE_INFO.

        Raises
        ------
        KernelError
            ENOTTY for other requests; EFAULT, EINVAL, ENOENT as the kernel.
        """
        if request == s.SYNC_MERGE:
            return self._merge(argument, user, fds)
        if request == s.SYNC_FILE_INFO:
            return self._info(argument, user)
        raise KernelError(ENOTTY, f"sync file: no ioctl {request:#x}")

    def _merge(self, argument: int, user: UserMemory, fds: FdTable) -> int:
        data = s.SyncMerge.of(user.read(argument, sizeof(s.SyncMerge)))
        if data.flags or data.pad:
            raise KernelError(EINVAL, "sync merge: flags and pad must be 0")
        other = fds.lookup(data.fd2)
        if not isinstance(other, SyncFile):
            raise KernelError(EBADF, f"sync merge: {data.fd2} is not a sync file")
        merged = SyncFile([*self.fences, *other.fences], data.name.decode(errors="replace"), self._lock)
        data.fence = install(fds, merged, cloexec=True)
        user.write(argument, bytes(data))
        return 0

    def _info(self, argument: int, user: UserMemory) -> int:
        data = s.SyncFileInfo.of(user.read(argument, sizeof(s.SyncFileInfo)))
        if data.flags or data.pad:
            raise KernelError(EINVAL, "sync file info: flags and pad must be 0")
        with self._lock:
            infos = [_fence_info(fence) for fence in self.fences]
        states = [info.status for info in infos]
        if data.num_fences:
            if data.num_fences < len(infos):
                raise KernelError(
                    EINVAL, f"sync file info: room for {data.num_fences} of {len(infos)} fences"
                )
            user.write(data.sync_fence_info, b"".join(bytes(info) for info in infos))
        data.name = self.name.encode()[:31]
        data.status = min(states, default=1)
        data.num_fences = len(infos)
        user.write(argument, bytes(data))
        return 0


def _fence_info(fence: Fence) -> s.Struct:
    status = -fence.error if fence.error else int(fence.signalled)
    return s.SyncFenceInfo(
        obj_name=fence.name.encode()[:31], driver_name=b"rknpu", status=status, timestamp_ns=fence.time
    )


class SharedBuffer(Protocol):
    """A buffer of a driver or a heap; call with the kernel's lock held."""

    backing: Backing
    size: int

    @property
    def alive(self) -> bool:
        """Whether anything refers to it."""
        ...

    def hold(self) -> Any:
        """Add a reference."""
        ...

    def drop(self) -> None:
        """Drop a reference."""
        ...


class DmaBuf(KernelFile):
    """A buffer as a descriptor, which can be mapped, passed on and imported again.

    Parameters
    ----------
    item : the buffer.
    driver : its driver or heap.
    lock : lock of the kernel.
    access : access mode of the descriptors; the first export of a buffer determines it.
    """

    def __init__(self, item: SharedBuffer, driver: object, lock: threading.RLock, access: int) -> None:
        self.item, self.driver, self._lock, self.access = item, driver, lock, access

    @property
    def size(self) -> int:
        """Size in bytes, as fstat and lseek(SEEK_END) report it."""
        return self.item.size

    def fileno(self) -> int:
        """The memfd with the buffer's pages."""
        return self.item.backing.file

    def hold(self) -> None:
        """Add a reference of a descriptor."""
        with self._lock:
            self.item.hold()

    def close(self) -> None:
        """Drop a reference of a descriptor."""
        with self._lock:
            self.item.drop()

    def ioctl(self, request: int, argument: int, user: UserMemory, fds: FdTable) -> int:
        """DMA_BUF_IOCTL_SYNC, which only checks its flags, and DMA_BUF_SET_NAME.

        Raises
        ------
        KernelError
            ENOTTY for other requests, EINVAL for unknown flags or a name that is too long, EFAULT.
        """
        if request in s.DMA_BUF_NAME:
            return self._rename(argument, user)
        if request != s.DMA_BUF_SYNC:
            raise KernelError(ENOTTY, f"dma-buf: no ioctl {request:#x}")
        flags = s.DmaBufSync.of(user.read(argument, sizeof(s.DmaBufSync))).flags
        if flags & ~7 or not flags & 3:
            raise KernelError(EINVAL, f"dma-buf sync: flags {flags:#x}")
        return 0

    def _rename(self, argument: int, user: UserMemory) -> int:
        name = b""
        while (letter := user.read(argument + len(name), 1)) != b"\0":
            name += letter
            if len(name) == NAME_BYTES:
                raise KernelError(EINVAL, f"dma-buf: a name of more than {NAME_BYTES - 1} bytes")
        return 0


def install(fds: FdTable, obj: KernelFile, cloexec: bool) -> int:
    """Install a new descriptor in the program, which holds a reference to the object."""
    obj.hold()
    try:
        return fds.install(obj, cloexec)
    except BaseException:
        obj.close()
        raise
