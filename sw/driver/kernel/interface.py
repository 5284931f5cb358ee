"""What a way in (socket server, hooks of a Python process) and the kernel ask of each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from sw.driver.kernel.errors import KernelError

__all__ = ["Credentials", "FdTable", "KernelError", "KernelFile", "UserMemory"]


@dataclass(frozen=True)
class Credentials:
    """Who calls: process, user and group."""

    pid: int
    uid: int = 0
    gid: int = 0


class UserMemory(Protocol):
    """The memory of the calling process; never called with the kernel's lock held."""

    def read(self, address: int, size: int) -> bytes:
        """Exactly `size` bytes, or KernelError(EFAULT)."""
        ...

    def write(self, address: int, data: bytes) -> None:
        """Write all of `data`, or raise KernelError(EFAULT)."""
        ...


class KernelFile:
    """An object behind a file descriptor of a program.

    `install` of the program's table takes a reference for the descriptor that it makes; the way in calls
    `close` once when the last duplicate of that descriptor is gone.
    """

    def fileno(self) -> int:
        """The descriptor on the kernel's side: a memfd (mapped and fstat-ed), or one that polls."""
        raise NotImplementedError

    def ioctl(self, request: int, argument: int, user: UserMemory, fds: FdTable) -> int:
        """0, or KernelError."""
        raise NotImplementedError

    def hold(self) -> None:
        """One descriptor more."""

    def close(self) -> None:
        """One descriptor less."""


class FdTable(Protocol):
    """The descriptors of the calling process; never called with the kernel's lock held."""

    def install(self, obj: KernelFile, cloexec: bool) -> int:
        """A new descriptor of the program for `obj`; KernelError(EMFILE) if there is none."""
        ...

    def lookup(self, fd: int) -> KernelFile | None:
        """What is behind a descriptor; None if it is nothing of ours; KernelError(EBADF)."""
        ...
