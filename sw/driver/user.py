"""Memory and descriptors of this process, in the form that the kernel's model uses for a caller."""

from __future__ import annotations

import ctypes as ct
import os
from errno import EBADF, EFAULT, EMFILE, ENOMEM
from typing import Any

from rkcosim.driver.kernel import KernelError
from rkcosim.driver.server.calls import Machine

MOST_BYTES = 64 << 20
"""Maximum size of the memory of one access."""


class _IoVec(ct.Structure):
    _fields_ = [("base", ct.c_void_p), ("length", ct.c_size_t)]


_libc = ct.CDLL(None, use_errno=True)
for _name in ("process_vm_readv", "process_vm_writev"):
    _function = getattr(_libc, _name)
    _function.restype = ct.c_ssize_t
    _function.argtypes = (
        *(ct.c_int, ct.POINTER(_IoVec), ct.c_ulong),
        *(ct.POINTER(_IoVec), ct.c_ulong, ct.c_ulong),
    )


class OwnMemory:
    """Memory of this process; a bad address raises EFAULT instead of crashing the process.

    Parameters
    ----------
    machine : receives descriptors that calls create.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def read(self, address: int, size: int) -> bytes:
        """Return bytes at an address, or raise KernelError(EFAULT)."""
        _check(address, size)
        data = ct.create_string_buffer(size)
        self._move(_libc.process_vm_readv, data, address, size)
        return data.raw

    def write(self, address: int, data: bytes) -> None:
        """Change bytes at an address, or raise KernelError(EFAULT)."""
        _check(address, len(data))
        self._move(
            _libc.process_vm_writev, (ct.c_char * len(data)).from_buffer_copy(data), address, len(data)
        )

    def _move(self, function: Any, local: Any, address: int, size: int) -> None:
        if not size:
            return
        here, there = _IoVec(ct.addressof(local), size), _IoVec(address, size)
        moved = function(os.getpid(), ct.byref(here), 1, ct.byref(there), 1, 0)
        if moved != size:
            code = ct.get_errno()
            reason = "no such memory" if moved >= 0 or code == EFAULT else os.strerror(code)
            raise KernelError(EFAULT, f"{size} bytes at 0x{address:X}: {reason}")

    def install(self, obj: Any, cloexec: bool) -> int:
        """Install a new descriptor, or raise KernelError(EMFILE)."""
        try:
            fd = self._machine.install(obj)
        except OSError as error:
            raise KernelError(EMFILE) from error
        os.set_inheritable(fd, not cloexec)
        return fd

    def lookup(self, fd: int) -> Any:
        """The object of a descriptor; None if it does not belong to the machine; KernelError(EBADF)."""
        try:
            os.fstat(fd)
        except (OSError, OverflowError):
            raise KernelError(EBADF) from None
        return self._machine.descriptors.find_fd(fd)


def _check(address: int, size: int) -> None:
    if size < 0 or not 0 <= address <= (1 << 64) - size:
        raise KernelError(EFAULT, f"0x{address:X} is not an address")
    if size > MOST_BYTES:
        raise KernelError(ENOMEM, f"{size} bytes at once")
