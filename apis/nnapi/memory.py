"""Memory pools of NNAPI's HAL, by the names that Android gives them.

Names and rules: https://source.android.com/docs/core/interaction/neural-networks/memory-pools and
.../ahardwarebuffer.  A pool is read and written by position, never by an address: a file that another process
shortens gives an error instead of a signal.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.apis.nnapi.status import failure, invalid

PROT_READ, PROT_WRITE = 1, 2


class MemoryPool:
    """Shared memory; see the functions below for the kinds.

    Members
    -------
    name : "ashmem", "mmap_fd", "hardware_buffer_blob" or "hardware_buffer".
    size : bytes.
    """

    def __init__(self, name: str, size: int, fd: int, prot: int, offset: int) -> None:
        self.name, self.size = name, size
        self._fd, self._prot, self._offset = fd, prot, offset

    def read(self, offset: int, length: int) -> bytes:
        """Return bytes of the pool.

        Raises
        ------
        HalError
            INVALID_ARGUMENT if they lie outside the pool, GENERAL_FAILURE if the memory cannot be read.
        """
        self._check(offset, length, PROT_READ, "read")
        self._check_file(offset + length)  # before there is memory for the bytes
        data = b""
        while len(data) < length:
            try:
                more = os.pread(self._fd, length - len(data), self._offset + offset + len(data))
            except OSError as error:
                raise failure(f"the memory '{self.name}' cannot be read: {error}") from error
            if not more:
                raise failure(f"the file of the memory '{self.name}' ends before byte {offset + length}")
            data += more
        return data

    def write(self, offset: int, data: bytes | memoryview | npt.NDArray[Any]) -> None:
        """Write bytes into the pool; raises HalError like `read`."""
        view = memoryview(data.tobytes() if isinstance(data, np.ndarray) else data).cast("B")
        self._check(offset, len(view), PROT_WRITE, "written")
        self._check_file(offset + len(view))
        done = 0
        while done < len(view):
            try:
                done += os.pwrite(self._fd, view[done:], self._offset + offset + done)
            except OSError as error:
                raise failure(f"the memory '{self.name}' cannot be written: {error}") from error

    def _check_file(self, end: int) -> None:
        size = os.fstat(self._fd).st_size
        if self._offset + end > size:
            raise failure(
                f"the file of the memory '{self.name}' ends before byte {end}, it has only {size} bytes"
            )

    def _check(self, offset: int, length: int, prot: int, verb: str) -> None:
        if self._fd < 0:
            raise failure(f"memory of the kind '{self.name}' is not supported, it cannot be mapped")
        if offset < 0 or length < 0 or offset + length > self.size:
            raise invalid(f"bytes {offset} to {offset + length} lie outside a memory of {self.size} bytes")
        if not self._prot & prot:
            raise failure(f"the memory '{self.name}' may not be {verb} (prot is {self._prot})")

    @property
    def there(self) -> int:
        """Bytes that the file has now; fewer than `size` if it is too short."""
        return min(self.size, max(os.fstat(self._fd).st_size - self._offset, 0)) if self._fd >= 0 else 0

    @property
    def mappable(self) -> bool:
        """Whether the bytes can be accessed."""
        return self._fd >= 0

    def close(self) -> None:
        """Give up the memory; later accesses fail.  A second call does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> MemoryPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


def ashmem(size: int) -> MemoryPool:
    """Return new shared memory of `size` zeros, as memfd in the place of Android's ashmem."""
    return _memfd("ashmem", size)


def hardware_buffer_blob(size: int) -> MemoryPool:
    """Return memory in the place of an AHardwareBuffer of the format BLOB."""
    return _memfd("hardware_buffer_blob", size)


def hardware_buffer(size: int) -> MemoryPool:
    """Return a stand-in of an AHardwareBuffer of another format, which this driver refuses.

    Preparation of a model with constants in it, and executions with inputs or outputs in it, answer
    GENERAL_FAILURE, as Android recommends.
    """
    return MemoryPool("hardware_buffer", size, -1, 0, 0)


def mmap_fd(size: int, prot: int, fd: int, offset: int = 0) -> MemoryPool:
    """Return memory behind an open file.

    Parameters
    ----------
    size, offset : bytes of the file that the memory covers.
    prot : `PROT_READ` and `PROT_WRITE`, added.
    fd : the file's descriptor, which is duplicated.

    Raises
    ------
    HalError
        INVALID_ARGUMENT for a size of 0, a negative offset, another `prot`, or a descriptor that is not open.
    """
    if size <= 0 or offset < 0:
        raise invalid(f"memory of {size} bytes at offset {offset} of a file")
    if not prot or prot & ~(PROT_READ | PROT_WRITE):
        raise invalid(f"the protection of a memory is {prot}, not PROT_READ, PROT_WRITE or both")
    try:
        own = os.dup(fd)
    except OSError as error:
        raise invalid(f"the file descriptor {fd} is not open: {error}") from error
    return MemoryPool("mmap_fd", size, own, prot, offset)


def _memfd(name: str, size: int) -> MemoryPool:
    if size <= 0:
        raise invalid(f"memory of {size} bytes")
    fd = os.memfd_create(f"rkcosim-{name}", os.MFD_CLOEXEC)
    try:
        os.ftruncate(fd, size)
    except OSError as error:
        os.close(fd)
        raise failure(f"there is no memory of {size} bytes: {error}") from error
    return MemoryPool(name, size, fd, PROT_READ | PROT_WRITE, 0)
