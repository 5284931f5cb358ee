"""Memory of the zero-copy calls: rknn_create_mem and related functions, rknn_destroy_mem, rknn_mem_sync.

Memory that the library allocates is device memory, which program and NPU share.  For memory that the
program provides (a file descriptor or an address) there is a copy on the device: the two are synchronised by
`rknn_mem_sync` and at every run, as caches would be cleaned on a board.
"""

from __future__ import annotations

import contextlib
import ctypes as ct
import itertools
import mmap
import os
import stat
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.base.files import said_of_mode
from rkcosim.driver import DriverError
from rkcosim.rknn_api import types as t
from rkcosim.rknn_api.state import Refusal, Verbatim, api, handle_value, is_address, log, runtime, target_of

MAX_BYTES = 1 << 32
"""Size of the device's address space."""


@dataclass
class _Allocation:
    """Device memory that several `Memory` objects may use."""

    buffer: Any
    fd: int
    users: int = 1

    def is_behind(self, fd: int) -> bool:
        """Whether a descriptor stands for this memory: the one that was given out, or a copy of it."""
        if fd < 0 or self.fd < 0 or self.buffer.fd is None:
            return fd >= 0 and fd == self.fd
        with contextlib.suppress(OSError):
            return os.path.sameopenfile(fd, self.fd)
        return False

    def release(self) -> None:
        self.users -= 1
        if self.users == 0:
            with runtime.lock:
                self.buffer.free()
            if self.fd >= 0:
                os.close(self.fd)


class _FileBytes:
    """Bytes of a file of the program, which are copied by system calls.

    The program may shorten its file at any time. Whoever touched a mapping then would end with SIGBUS, and
    this process may serve other programs as well, so its mapping is only for the program.

    Parameters
    ----------
    fd : descriptor of the file, which is duplicated.
    """

    def __init__(self, fd: int, offset: int, size: int) -> None:
        self._fd, self._offset, self._size = os.dup(fd), offset, size
        self._lock = threading.Lock()  # its number must not become another file's while it is used

    def read_into(self, target: npt.NDArray[np.uint8]) -> None:
        """Copy the bytes to an array; raises Refusal if the file has become shorter."""
        with self._open():
            self._all(os.preadv, target)

    def write_from(self, source: npt.NDArray[np.uint8]) -> None:
        """Copy an array to the file; raises Refusal if the file has become shorter."""
        with self._open():
            length = os.fstat(self._fd).st_size
            if length < self._offset + self._size:  # it would grow again
                raise self._shorter(length)
            self._all(os.pwritev, source)

    @contextlib.contextmanager
    def _open(self) -> Iterator[None]:
        """Use the descriptor without the device's lock: the program may let its file system wait for ever."""
        with runtime.lock.given_up(), self._lock:
            if self._fd < 0:
                raise Refusal(t.RKNN_ERR_FAIL, "the memory of a descriptor was destroyed")
            yield

    def _all(self, move: Callable[[int, list[memoryview], int], int], array: npt.NDArray[np.uint8]) -> None:
        rest, at = array.data, self._offset
        while rest:
            with Refusal.instead_of(t.RKNN_ERR_FAIL, OSError, text="the memory of a descriptor: "):
                done = move(self._fd, [rest], at)
            if not done:
                raise self._shorter(os.fstat(self._fd).st_size)
            rest, at = rest[done:], at + done

    def _shorter(self, length: int) -> Refusal:
        what = f"{self._size} bytes from {self._offset}"
        return Refusal(t.RKNN_ERR_FAIL, f"the memory of a descriptor now has {length} bytes, not {what}")

    def close(self) -> None:
        """Give the descriptor back."""
        with self._lock:
            os.close(self._fd)
            self._fd = -1


@dataclass
class Memory:
    """Memory behind a `rknn_tensor_mem`: `size` bytes of device memory from `offset` on."""

    struct: t.rknn_tensor_mem
    context: int
    allocation: _Allocation
    offset: int
    size: int
    host: npt.NDArray[np.uint8] | _FileBytes | None = None
    """Bytes of the program, if it provided the memory."""
    mapping: Any = None
    pins: list[Any] = field(default_factory=list)

    @property
    def iova(self) -> int:
        """Device address."""
        return int(self.allocation.buffer.iova) + self.offset

    def view(self, offset: int = 0, size: int | None = None) -> npt.NDArray[np.uint8]:
        """Device bytes."""
        size = self.size - offset if size is None else size
        data: npt.NDArray[np.uint8] = self.allocation.buffer.view(self.offset + offset, size)
        return data

    def free(self) -> None:
        """Do nothing: models that use this memory do not own it."""

    def to_device(self) -> None:
        """Copy the program's bytes to the device, if they are separate; raises Refusal without them."""
        if isinstance(self.host, _FileBytes):
            self.host.read_into(self.view())
        elif self.host is not None:
            self.view()[:] = self.host

    def from_device(self) -> None:
        """Copy the device's bytes to the program, if they are separate; raises Refusal without them."""
        if isinstance(self.host, _FileBytes):
            self.host.write_from(self.view())
        elif self.host is not None:
            self.host[:] = self.view()

    def release(self) -> None:
        """Release the memory."""
        if isinstance(self.host, _FileBytes):
            self.host.close()
        self.host = None
        self.allocation.release()
        self.mapping = None


_numbers = itertools.count(1)


def _owner(ctx: Any, needed: bool = True) -> int:
    handle = handle_value(ctx)
    if handle in runtime.contexts or (handle == 0 and not needed):
        return handle
    raise Refusal(t.RKNN_ERR_CTX_INVALID, "invalid context")


def _allocate(size: int) -> _Allocation:
    if runtime.driver is None:
        raise Refusal(t.RKNN_ERR_DEVICE_UNAVAILABLE, "no device")
    if not 0 < size < MAX_BYTES:
        raise Refusal.invalid(f"{size} bytes cannot be allocated")
    with Refusal.instead_of(t.RKNN_ERR_MALLOC_FAIL, DriverError), runtime.lock:
        buffer = runtime.driver.alloc(size, "rknn_create_mem")
    return _Allocation(buffer, -1)


def _give_out(
    ctx: int, allocation: _Allocation, offset: int, size: int, flags: int, host: Any = None, virt: int = 0
) -> Any:
    struct = t.rknn_tensor_mem()
    number = next(_numbers)
    memory = Memory(struct, ctx, allocation, offset, size, host)
    struct.virt_addr = virt or memory.view().ctypes.data
    struct.phys_addr = memory.iova
    struct.fd = allocation.fd
    struct.offset = offset
    struct.size = size
    struct.flags = int(flags)
    struct.priv_data = number
    runtime.memories[number] = memory
    return ct.pointer(struct)


def _with_fd(allocation: _Allocation) -> _Allocation:
    """Give device memory a descriptor for `rknn_create_mem_from_fd`.

    It can be mapped where the memory of the driver is shared; otherwise it is only a number.
    """
    pages = allocation.buffer.fd
    try:
        allocation.fd = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC) if pages is None else os.dup(pages)
    except OSError as error:
        allocation.release()
        raise no_descriptor(int(allocation.buffer.iova), error) from error
    return allocation


def no_descriptor(handle: int, error: OSError) -> Refusal:
    """Return the refusal for memory that gets no descriptor.

    Its text is that of librknnrt (airockchip/rknn-llm, issues 26, 43 and 47); the handle of the NPU's driver
    is a number without meaning here.
    """
    what = f"ret: -1, errno: {error.errno}, errstr: {error.strerror}"
    return Verbatim(t.RKNN_ERR_MALLOC_FAIL, f"failed to convert handle({handle}) to fd, {what}", error)


@api
def rknn_create_mem(ctx: Any, size: int) -> Any:
    """Allocate device memory; returns a pointer to its `rknn_tensor_mem`, null on failure."""
    owner = _owner(ctx)
    allocation = _with_fd(_allocate(size))
    return _give_out(owner, allocation, 0, size, t.RKNN_TENSOR_MEMORY_FLAGS_ALLOC_INSIDE)


@api
def rknn_create_mem2(ctx: Any, size: int, alloc_flags: int) -> Any:
    """As `rknn_create_mem`; the flags of caches and SRAM have no effect.

    With RKNN_MEM_FLAG_ALLOC_NO_CONTEXT the context may be 0.
    """
    known = t.RKNN_FLAG_MEMORY_CACHEABLE | t.RKNN_FLAG_MEMORY_NON_CACHEABLE
    known |= t.RKNN_FLAG_MEMORY_TRY_ALLOC_SRAM | t.RKNN_MEM_FLAG_ALLOC_NO_CONTEXT
    if alloc_flags & ~known:
        raise Refusal.invalid(f"unknown flags 0x{alloc_flags:X}")
    free = bool(alloc_flags & t.RKNN_MEM_FLAG_ALLOC_NO_CONTEXT)
    owner = _owner(ctx, needed=not free)
    allocation = _with_fd(_allocate(size))
    return _give_out(0 if free else owner, allocation, 0, size, t.RKNN_TENSOR_MEMORY_FLAGS_ALLOC_INSIDE)


@api
def rknn_create_mem_from_fd(ctx: Any, fd: int, virt_addr: Any, size: int, offset: int) -> Any:
    """Use memory behind a descriptor: one of `rknn_create_mem`, or any that can be mapped.

    `virt_addr` is the address at which the program has mapped its start (null: the library maps it).
    """
    owner = _owner(ctx)
    flags = t.RKNN_TENSOR_MEMORY_FLAGS_FROM_FD
    if offset < 0 or not 0 < size < MAX_BYTES:
        raise Refusal.invalid(f"{size} bytes from {offset} are not a valid range")
    for memory in list(runtime.memories.values()):
        if memory.allocation.is_behind(fd):
            return _alias(owner, memory, offset, size, flags)
    pages = runtime.backing_of(fd) if runtime.backing_of is not None and fd >= 0 else None
    if pages is not None:
        return _adopted(owner, pages, fd, offset, size)
    with Refusal.instead_of(
        t.RKNN_ERR_MALLOC_FAIL, OSError, ValueError, text=f"failed to convert fd({fd}) to handle: "
    ):
        found = os.fstat(fd)
        if found.st_size < offset + size:
            raise Refusal.invalid(f"fd {fd} has {found.st_size} bytes, not {size} from {offset}")
        if not stat.S_ISREG(found.st_mode):
            raise Refusal.invalid(f"fd {fd} is no memory, but {said_of_mode(found.st_mode)}")
        mapping = mmap.mmap(fd, offset + size)
        host = _FileBytes(fd, offset, size)
    start = address_of(virt_addr) or ct.addressof(ct.c_char.from_buffer(mapping))
    try:
        allocation = _allocate(size)
    except Refusal:
        host.close()
        raise
    pointer = _give_out(owner, allocation, 0, size, flags, host, start + offset)
    pointer.contents.fd, pointer.contents.offset = fd, offset
    memory = memory_of(pointer)
    memory.mapping = mapping
    try:
        memory.to_device()
    except Refusal:
        forget(memory)
        raise
    return pointer


def _adopted(owner: int, pages: Any, fd: int, offset: int, size: int) -> Any:
    """Use the pages of a dma-buf of the simulated kernel, which program and NPU share."""
    if offset + size > pages.size:
        raise Refusal.invalid(f"fd {fd} has {pages.size} bytes, not {size} from {offset}")
    if runtime.driver is None:
        raise Refusal(t.RKNN_ERR_DEVICE_UNAVAILABLE, "no device")
    with Refusal.instead_of(t.RKNN_ERR_MALLOC_FAIL, DriverError), runtime.lock:
        allocation = _Allocation(runtime.driver.adopt(pages), -1)
    return _give_out(owner, allocation, offset, size, t.RKNN_TENSOR_MEMORY_FLAGS_FROM_FD)


@api
def rknn_create_mem_from_phys(ctx: Any, phys_addr: int, virt_addr: Any, size: int) -> Any:
    """Use memory at a device address, or (for an unknown address) the program's bytes at `virt_addr`."""
    owner = _owner(ctx)
    flags = t.RKNN_TENSOR_MEMORY_FLAGS_FROM_PHYS
    if not 0 < size < MAX_BYTES:
        raise Refusal.invalid(f"{size} bytes are not a valid size")
    for memory in list(runtime.memories.values()):
        if memory.iova <= phys_addr and phys_addr + size <= memory.iova + memory.size:
            return _alias(owner, memory, memory.offset + phys_addr - memory.iova, size, flags)
    start = address_of(virt_addr)
    if not start:
        raise Refusal.invalid(f"0x{phys_addr:X} is not memory of the device, and virt_addr is null")
    host = np.ctypeslib.as_array((ct.c_uint8 * size).from_address(start))
    pointer = _give_out(owner, _allocate(size), 0, size, flags, host, start)
    memory_of(pointer).to_device()
    return pointer


@api
def rknn_create_mem_from_mb_blk(ctx: Any, mb_blk: Any, offset: int) -> Any:
    """Not supported on any platform of the vendor and not here: always returns null."""
    _owner(ctx)
    raise Refusal(t.RKNN_ERR_FAIL, "not supported on this platform")


@api
def rknn_destroy_mem(ctx: Any, mem: Any) -> int:
    """Free memory of the create functions, but not the program's bytes."""
    _owner(ctx, needed=False)
    memory = memory_of(mem)
    with _not_in_use(memory) as users:
        for state in users:
            for place, binding in list(state.io.items()):
                if binding.memory is memory:
                    log.warning("rknn_destroy_mem: the memory was still set as an input or output")
                    del state.io[place]
        _free(memory)
    return t.RKNN_SUCC


@api
def rknn_mem_sync(context: Any, mem: Any, mode: int) -> int:
    """Synchronise device and program memory; the context may be null."""
    _owner(context, needed=False)
    memory = memory_of(mem)
    if mode not in list(t.rknn_mem_sync_mode):
        raise Refusal.invalid(f"mode {mode} is unknown")
    if mode & t.RKNN_MEMORY_SYNC_TO_DEVICE:
        memory.to_device()
    if mode == t.RKNN_MEMORY_SYNC_FROM_DEVICE:
        memory.from_device()
    return t.RKNN_SUCC


def memory_of(mem: Any) -> Memory:
    """Memory behind a `rknn_tensor_mem` (or a copy of one).

    Raises
    ------
    Refusal
        RKNN_ERR_PARAM_INVALID if it was not made by a create function, or was destroyed.
    """
    struct = target_of(mem, t.rknn_tensor_mem)
    memory = runtime.memories.get(struct.priv_data or 0) if struct is not None else None
    if memory is None:
        raise Refusal.invalid("mem is not memory of a rknn_create_mem call")
    return memory


@contextlib.contextmanager
def _not_in_use(memory: Memory) -> Iterator[list[Any]]:
    """Wait for the runs that read or write a memory, also of other threads; yield their contexts.

    Contexts that do not use it are not waited for: they may be those of other programs.
    """
    with contextlib.ExitStack() as waited:
        users = [state for state in list(runtime.contexts.values()) if state.uses(memory)]
        for state in users:
            state.finish()
            waited.enter_context(state.running)
        yield users


def forget(memory: Memory) -> None:
    """Free a memory and its number when no run uses it."""
    with _not_in_use(memory):
        _free(memory)


def _free(memory: Memory) -> None:
    runtime.memories.pop(memory.struct.priv_data or 0, None)
    memory.release()


def forget_all_of(handle: int) -> None:
    """Free the memory that a context still holds."""
    for memory in [m for m in runtime.memories.values() if m.context == handle]:
        log.warning("memory of %d bytes was not destroyed before its context", memory.size)
        forget(memory)


def allocated_bytes(handle: int) -> int:
    """Device memory allocated by a context's create calls."""
    seen = {id(m.allocation): m.allocation for m in runtime.memories.values() if m.context == handle}
    return sum(int(allocation.buffer.size) for allocation in seen.values())


def _alias(owner: int, memory: Memory, offset: int, size: int, flags: int) -> Any:
    allocation = memory.allocation
    if offset + size > allocation.buffer.size:
        raise Refusal.invalid(f"the memory has {allocation.buffer.size} bytes, not {size} from {offset}")
    allocation.users += 1
    return _give_out(owner, allocation, offset, size, flags)


def address_of(pointer: Any) -> int:
    """The address in an argument of type `void *`: a number, a pointer or an array; 0 for null."""
    if pointer is None or isinstance(pointer, int):
        return pointer if is_address(pointer) else 0
    if isinstance(pointer, ct.c_void_p):
        return pointer.value or 0
    if isinstance(pointer, np.ndarray):
        return int(pointer.ctypes.data)
    return ct.cast(pointer, ct.c_void_p).value or 0
