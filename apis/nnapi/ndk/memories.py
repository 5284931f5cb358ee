"""Memory of NNAPI's C interface (`ANeuralNetworksMemory`, `ANeuralNetworksMemoryDesc`).

The rules are those of AOSP packages/modules/NeuralNetworks (mirror
timocapa/android_packages_modules_NeuralNetworks, commit 19f042d), runtime/Memory.cpp.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from rkcosim.apis.nnapi.buffers import IBuffer, Roles, byte_size, combined
from rkcosim.apis.nnapi.hal_types import BufferDesc, BufferRole, RequestMemoryPool, Role
from rkcosim.apis.nnapi.memory import PROT_READ, PROT_WRITE, MemoryPool, ashmem, mmap_fd
from rkcosim.apis.nnapi.model import Operand
from rkcosim.apis.nnapi.ndk.result_codes import NdkError, ResultCode, as_results, bad_data, bad_state

if TYPE_CHECKING:
    from rkcosim.apis.nnapi.device import IDevice, IPreparedModel


class Compiled(Protocol):
    """What memory must know of a compilation."""

    @property
    def prepared(self) -> IPreparedModel:
        """The model on the device; raises BAD_DATA if the compilation is not finished."""

    @property
    def inputs(self) -> Sequence[Operand]:
        """Operands of the inputs."""

    @property
    def outputs(self) -> Sequence[Operand]:
        """Operands of the outputs."""


class Memory(Protocol):
    """Memory of a program."""

    def check_constant(self, offset: int, length: int) -> None:
        """Check the use for a constant; raises BAD_DATA."""

    def check_use(
        self,
        compilation: Compiled,
        output: bool,
        index: int,
        dimensions: Sequence[int],
        place: tuple[int, int],
    ) -> None:
        """Check the use for an input or output, with `place` as offset and length; raises BAD_DATA."""

    def pool(self) -> MemoryPool:
        """Return the shared memory; raises BAD_DATA if it is memory of the driver."""

    def request(self) -> RequestMemoryPool:
        """Return what requests have for it."""

    def free(self) -> None:
        """Give the memory up."""


class SharedMemory:
    """Memory that the program has made.

    Parameters
    ----------
    pool : the memory as the driver sees it.
    """

    def __init__(self, pool: MemoryPool) -> None:
        self._pool = pool

    def check_constant(self, offset: int, length: int) -> None:
        """Check the use for a constant; raises BAD_DATA."""
        if not self._pool.mappable:
            raise bad_data(f"memory of the kind '{self._pool.name}' cannot have constants")
        self._check(offset, length)
        if offset + length > self._pool.there:
            raise bad_data(f"bytes {offset} to {offset + length} lie behind the end of the memory's file")

    def check_use(
        self,
        compilation: Compiled,
        output: bool,
        index: int,
        dimensions: Sequence[int],
        place: tuple[int, int],
    ) -> None:
        """Check the use for an input or output, with `place` as offset and length; raises BAD_DATA."""
        if self._pool.mappable:
            self._check(*place)
        elif place != (0, 0):
            raise bad_data(f"memory of the kind '{self._pool.name}' is used whole, with offset and length 0")

    def _check(self, offset: int, length: int) -> None:
        if not offset and not length:
            raise bad_data("offset and length are 0, which only memory of the driver may have")
        if offset + length > self._pool.size:
            raise bad_data(
                f"bytes {offset} to {offset + length} lie outside a memory of {self._pool.size} bytes"
            )

    def pool(self) -> MemoryPool:
        """Return the memory as the driver sees it."""
        return self._pool

    def request(self) -> RequestMemoryPool:
        """Return what requests have for it."""
        return self._pool

    def free(self) -> None:
        """Give the memory up."""
        self._pool.close()


class DriverMemory:
    """Memory that the driver has allocated for some inputs and outputs.

    Parameters
    ----------
    buffer : the buffer of the driver.
    """

    def __init__(self, buffer: IBuffer) -> None:
        self.buffer = buffer

    def check_constant(self, offset: int, length: int) -> None:
        """Raise BAD_DATA: constants lie in shared memory."""
        raise bad_data("memory of the driver cannot have constants")

    def check_use(
        self,
        compilation: Compiled,
        output: bool,
        index: int,
        dimensions: Sequence[int],
        place: tuple[int, int],
    ) -> None:
        """Check the use for an input or output, with `place` as offset and length; raises BAD_DATA."""
        what = f"{'output' if output else 'input'} {index}"
        if Role(compilation.prepared, output, index) not in self.buffer.roles:
            raise bad_data(f"the memory was not allocated for {what} of this compilation")
        if place != (0, 0):
            raise bad_data("memory of the driver is used whole, with offset and length 0")
        if combined(dimensions, self.buffer.initial_dimensions) is None:
            raise bad_data(
                f"{what} has the dimensions {list(dimensions)}, the memory "
                f"{list(self.buffer.initial_dimensions)}"
            )

    def pool(self) -> MemoryPool:
        """Raise BAD_DATA: it is no shared memory."""
        raise bad_data("memory of the driver is no shared memory")

    def request(self) -> RequestMemoryPool:
        """Return its token."""
        return self.buffer.token

    def free(self) -> None:
        """Give the memory up."""
        self.buffer.close()


class PointerMemory(MemoryPool):
    """Bytes behind a pointer of the program, as the pool of one input or output.

    Parameters
    ----------
    data : the bytes; an output is written into them.
    """

    def __init__(self, data: bytearray) -> None:
        super().__init__("pointer", len(data), -1, PROT_READ | PROT_WRITE, 0)
        self.data = data

    def read(self, offset: int, length: int) -> bytes:
        """Return bytes."""
        return bytes(self.data[offset : offset + length])

    def write(self, offset: int, data: object) -> None:
        """Write bytes."""
        view = memoryview(data).cast("B")  # type: ignore[arg-type]
        self.data[offset : offset + len(view)] = view

    @property
    def mappable(self) -> bool:
        """True: the bytes are here."""
        return True


class MemoryDesc:
    """Description of memory that the driver is to allocate."""

    def __init__(self) -> None:
        self._roles = Roles()
        self._models: list[IPreparedModel] = []
        self._given: tuple[list[BufferRole], list[BufferRole]] = ([], [])
        self._finished = False

    def add_role(self, compilation: Compiled, output: bool, index: int, frequency: float) -> None:
        """Add an input or output of a finished compilation for which the memory is used."""
        self._change()
        model = compilation.prepared
        with as_results():
            operands = compilation.outputs if output else compilation.inputs
            self._roles.add(Role(model, output, index), operands, frequency)
            self._check_scalar()
        if model not in self._models:
            self._models.append(model)
        self._given[output].append(BufferRole(self._models.index(model), index, frequency))

    def set_dimensions(self, dimensions: Sequence[int]) -> None:
        """Set dimensions, 0 for unknown ones."""
        self._change()
        with as_results():
            self._roles.combine(dimensions, "the descriptor")
            self._check_scalar()

    def _check_scalar(self) -> None:
        operand = self._roles.operand
        if operand is not None and operand.type.scalar and self._roles.dimensions:
            raise bad_data("a scalar has no dimensions")

    def finish(self) -> None:
        """Complete the description."""
        self._change()
        if not self._roles.roles:
            raise bad_data("a memory needs a role")
        self._finished = True

    def allocate(self, device: IDevice) -> DriverMemory:
        """Return memory as described."""
        if not self._finished:
            raise bad_state("the description is not finished")
        with as_results():
            desc = BufferDesc(self._roles.dimensions)
            return DriverMemory(device.allocate(desc, self._models, *self._given))

    def _change(self) -> None:
        if self._finished:
            raise bad_state("the description is finished")


def from_descriptor(pid: int, fd: int, prot: int, size: int, offset: int) -> SharedMemory:
    """Return memory behind a file descriptor of the program.

    Parameters
    ----------
    pid, fd : the process and its descriptor.
    prot : `PROT_READ` and `PROT_WRITE`, added.
    size, offset : bytes of the file.

    Raises
    ------
    NdkError
        BAD_DATA for an argument out of range; UNMAPPABLE if the file cannot be opened.
    """
    mode = {PROT_READ: os.O_RDONLY, PROT_WRITE: os.O_WRONLY}.get(prot, os.O_RDWR)
    try:
        opened = os.open(f"/proc/{pid}/fd/{fd}", mode | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise NdkError(ResultCode.UNMAPPABLE, f"the descriptor {fd} cannot be opened: {error}") from error
    try:
        with as_results():
            return SharedMemory(mmap_fd(size, prot, opened, offset))
    finally:
        os.close(opened)


def copy(source: Memory, target: Memory) -> None:
    """Copy whole memories; a target of the driver has no content after an error.

    Raises
    ------
    NdkError
        BAD_DATA if the source has no content, or size, type or dimensions differ; UNMAPPABLE if one of two
        shared memories cannot be mapped; OP_FAILED if memory is in use or cannot be accessed.
    """
    if source is target:
        return
    try:
        with as_results():
            _copy(source, target)
    except NdkError:
        if isinstance(target, DriverMemory):
            target.buffer.clear()
        raise


def _copy(source: Memory, target: Memory) -> None:
    if isinstance(source, DriverMemory):
        buffer = source.buffer
        if not buffer.initialized:
            raise bad_data("the memory that is to be copied has no content")
        if isinstance(target, DriverMemory):
            with ashmem(byte_size(buffer.operand, buffer.dimensions)) as between:
                buffer.copy_to(between)
                target.buffer.copy_from(between, buffer.dimensions)
        else:
            buffer.copy_to(target.pool())
        return
    pool = source.pool()
    if isinstance(target, DriverMemory):
        target.buffer.copy_from(pool)
        return
    other = target.pool()
    if not pool.mappable or not other.mappable:
        raise NdkError(ResultCode.UNMAPPABLE, "memory that cannot be mapped is not copied")
    if pool.size != other.size:
        raise bad_data(f"a memory of {pool.size} bytes is copied into one of {other.size}")
    other.write(0, pool.read(0, pool.size))
