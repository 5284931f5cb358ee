"""Fences of jobs, and the descriptors programs get: sync files and dma-bufs."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from ctypes import sizeof
from errno import EBADF, EINVAL, ENOTTY

from sw.driver.kernel import structs as s
from sw.driver.kernel.errors import KernelError
from sw.driver.kernel.interface import FdTable, KernelFile, UserMemory
from sw.driver.kernel.memory import GemObject


class Fence:
    """Signals once, when its job has ended: `error` is 0 or an errno, `time` in ns of device time.

    `queued` says that a job is going to signal it.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.signalled = self.queued = False
        self.error = 0
        self.time = 0
        self._then: list[Callable[[], None]] = []

    def signal(self, time: int, error: int = 0) -> None:
        """The job has ended; a second call does nothing."""
        if not self.signalled:
            self.signalled, self.error, self.time = True, error, time
            for call in self._then:
                call()
            self._then.clear()

    def then(self, call: Callable[[], None]) -> None:
        """Call back at the signal, or now if it has come."""
        if self.signalled:
            call()
        else:
            self._then.append(call)


class SyncFile(KernelFile):
    """A descriptor that becomes readable when all its fences have signalled, and stays so.

    Parameters
    ----------
    fences
        what it waits for.
    name
        as SYNC_IOC_FILE_INFO shows it.
    lock
        the kernel's.
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
        """An eventfd that nobody reads: `poll` on it says whether the fences have signalled."""
        return self._fd

    def poll(self) -> bool:
        """Whether all fences have signalled."""
        return all(fence.signalled for fence in self.fences)

    def hold(self) -> None:
        """One descriptor more."""
        with self._lock:
            self._users += 1

    def close(self) -> None:
        """One descriptor less; the last one frees it."""
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
            ENOTTY for others; EFAULT, EINVAL, ENOENT as the kernel.
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
            raise KernelError(EBADF, f"sync merge: {data.fd2} is no sync file")
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


class DmaBuf(KernelFile):
    """A buffer as a descriptor: map its memfd, pass it on, import it again."""

    def __init__(self, item: GemObject, driver: object, lock: threading.RLock) -> None:
        self.item, self.driver, self._lock = item, driver, lock

    @property
    def size(self) -> int:
        """Bytes, as fstat and lseek(SEEK_END) report them."""
        return self.item.size

    def fileno(self) -> int:
        """The memfd with the buffer's pages."""
        return self.item.backing.fd

    def hold(self) -> None:
        """One descriptor more."""
        with self._lock:
            self.item.hold()

    def close(self) -> None:
        """One descriptor less."""
        with self._lock:
            self.item.drop()

    def ioctl(self, request: int, argument: int, user: UserMemory, fds: FdTable) -> int:
        """DMA_BUF_IOCTL_SYNC, which has nothing to do but to check its flags.

        Raises
        ------
        KernelError
            ENOTTY for others, EINVAL for unknown flags, EFAULT.
        """
        if request != s.DMA_BUF_SYNC:
            raise KernelError(ENOTTY, f"dma-buf: no ioctl {request:#x}")
        flags = s.DmaBufSync.of(user.read(argument, sizeof(s.DmaBufSync))).flags
        if flags & ~7 or not flags & 3:
            raise KernelError(EINVAL, f"dma-buf sync: flags {flags:#x}")
        return 0


def install(fds: FdTable, obj: KernelFile, cloexec: bool) -> int:
    """A new descriptor of the program, which holds the object."""
    obj.hold()
    try:
        return fds.install(obj, cloexec)
    except BaseException:
        obj.close()
        raise
