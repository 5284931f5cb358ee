"""Errors and protocols that the kernel and its entries (socket server, hooks of a Python process) share."""

from __future__ import annotations

import errno as codes
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from rkcosim.driver.kernel import structs as s

Arguments = TypeVar("Arguments", bound=s.Struct)


class CallerError(Exception):
    """The program did not answer a question during a call: it has ended or violates the protocol.

    The call ends without a result, and the entry that communicates with the program handles the error.
    """


class KernelError(OSError):
    """A call ends with an errno.

    Parameters
    ----------
    errno
        The (positive) number, `errno.EINVAL` and so on.
    why
        The reason as text, for the driver's log; programs only see the number.
    """

    def __init__(self, errno: int, why: str = "") -> None:
        super().__init__(errno, os.strerror(errno))
        self.why = why

    @property
    def code(self) -> int:
        """The errno, never None."""
        return self.errno if self.errno is not None else codes.EIO

    @property
    def name(self) -> str:
        """`EINVAL` and so on."""
        return codes.errorcode.get(self.code, str(self.code))

    def __str__(self) -> str:
        return f"{self.name}: {self.why}" if self.why else self.name


@dataclass(frozen=True)
class Credentials:
    """Caller of a function: process, user and group."""

    pid: int
    uid: int = 0
    gid: int = 0


class UserMemory(Protocol):
    """Memory of the calling process; never accessed with the kernel's lock held."""

    def read(self, address: int, size: int) -> bytes:
        """Return exactly `size` bytes, or raise KernelError(EFAULT)."""
        ...

    def write(self, address: int, data: bytes) -> None:
        """Write all of `data`, or raise KernelError(EFAULT)."""
        ...


def copied(
    kind: type[Arguments],
    direction: int,
    request: int,
    argument: int,
    user: UserMemory,
    work: Callable[[Arguments], int],
) -> int:
    """Execute an ioctl on a copy of its structure, as `drm_ioctl` and `dma_heap_ioctl` do.

    Parameters
    ----------
    kind, direction : structure and direction in the kernel's ioctl number.
    request, argument : number and address that the program gave; its structure may have another size.
    user : memory of the program.
    work : the command; it changes the structure, which is also copied back after an error.

    Raises
    ------
    KernelError
        That of `work`; EFAULT if the structure cannot be read or written.
    """
    both, size = s.ioc_direction(request) & direction, s.ioc_size(request)
    given = user.read(argument, size) if both & s.IOC_WRITE and size else b""
    arguments = kind.of(given)
    result: int | KernelError
    try:
        result = work(arguments)
    except KernelError as error:
        result = error
    if both & s.IOC_READ and size:
        own = bytes(arguments)
        back = own[:size] + given[len(own) :].ljust(max(0, size - len(own)), b"\0")
        try:
            user.write(argument, back[:size])
        except KernelError:
            raise KernelError(codes.EFAULT, "cannot copy the structure back") from None
    if isinstance(result, KernelError):
        raise result
    return result


class KernelFile:
    """An object that a file descriptor of a program refers to.

    `install` of the program's table takes a reference for the descriptor that it makes; the entry calls
    `close` once when the last duplicate of that descriptor has been closed.

    Members
    -------
    access : access mode of its descriptors, O_RDONLY, O_WRONLY or O_RDWR.
    """

    access = os.O_RDONLY

    def fileno(self) -> int:
        """The descriptor in the kernel's process: a memfd (mapped and fstat-ed), or one that is polled."""
        raise NotImplementedError

    def ioctl(self, request: int, argument: int, user: UserMemory, fds: FdTable) -> int:
        """Return 0, or raise KernelError."""
        raise NotImplementedError

    def hold(self) -> None:
        """Add a reference of a descriptor."""

    def close(self) -> None:
        """Drop a reference of a descriptor."""


class FdTable(Protocol):
    """Descriptors of the calling process; never accessed with the kernel's lock held."""

    def install(self, obj: KernelFile, cloexec: bool) -> int:
        """Install a new descriptor of the program for `obj`; KernelError(EMFILE) if there is no free one."""
        ...

    def lookup(self, fd: int) -> KernelFile | None:
        """Object of a descriptor; None if it does not belong to the kernel; KernelError(EBADF)."""
        ...
