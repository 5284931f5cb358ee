"""Buffers that the driver allocates: NNAPI's memory domains.

The rules are those of Android's sample driver: packages/modules/NeuralNetworks (mirror
timocapa/android_packages_modules_NeuralNetworks, commit 19f042d), common/BufferTracker.cpp,
driver/sample/CanonicalBuffer.cpp and CanonicalDevice.cpp.  Buffers of unknown dimensions are allowed, which
that driver does not support: such a buffer takes the dimensions of what is written into it.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.apis.nnapi.hal_types import Role
from rkcosim.apis.nnapi.memory import MemoryPool
from rkcosim.apis.nnapi.model import Operand
from rkcosim.apis.nnapi.native import NativeTensor
from rkcosim.apis.nnapi.status import HalError, failure, invalid

Content = NativeTensor | npt.NDArray[Any]

MOST_BUFFERS = 1 << 16


def combined(first: Sequence[int], second: Sequence[int]) -> tuple[int, ...] | None:
    """Combine two descriptions of dimensions; None if they contradict each other.

    0 stands for an unknown dimension, and no dimensions for an unknown rank.
    """
    if not first or not second:
        return tuple(first) or tuple(second)
    if len(first) != len(second):
        return None
    if any(a and b and a != b for a, b in zip(first, second, strict=True)):
        return None
    return tuple(a or b for a, b in zip(first, second, strict=True))


def byte_size(operand: Operand, dimensions: Sequence[int]) -> int:
    """Return the bytes of a value; 0 if a dimension is unknown."""
    if operand.type.scalar:
        return operand.type.dtype.itemsize
    return math.prod(dimensions) * operand.type.dtype.itemsize if dimensions else 0


class Roles:
    """The roles of a buffer, checked one by one.

    Parameters
    ----------
    dimensions : those of the descriptor; 0 for unknown ones, () if it has none.

    Members
    -------
    roles : in the order in which they came.
    operand : operand of the first role, None before there is one.
    dimensions : those of the descriptor and of all roles together.
    """

    def __init__(self, dimensions: Sequence[int] = ()) -> None:
        self.roles: list[Role] = []
        self.operand: Operand | None = None
        self.dimensions = tuple(dimensions)
        if any(size < 0 for size in self.dimensions):
            raise invalid(f"a descriptor has the dimensions {list(dimensions)}")

    def add(self, role: Role, operands: Sequence[Operand], probability: float) -> None:
        """Add a role.

        Parameters
        ----------
        role : the role.
        operands : the inputs of its model, or its outputs.
        probability : how likely this use is.

        Raises
        ------
        HalError
            INVALID_ARGUMENT if the index or the probability is out of range, the role is there already, or
            its operand contradicts those of the other roles or the dimensions.
        """
        name = f"the role of {'output' if role.output else 'input'} {role.index}"
        if not 0 <= role.index < len(operands):
            raise invalid(
                f"a role names {'output' if role.output else 'input'} {role.index} of {len(operands)}"
            )
        if not 0.0 < probability <= 1.0:
            raise invalid(f"the probability of a role is {probability}, not in (0, 1]")
        operand = operands[role.index]
        if role in self.roles:
            raise invalid(f"{name} is given twice")
        if self.operand is not None and _kind(operand) != _kind(self.operand):
            raise invalid(f"{name} has another type or quantisation than the first role")
        self.combine(operand.dimensions, name)
        self.roles.append(role)
        self.operand = self.operand or operand

    def combine(self, dimensions: Sequence[int], name: str) -> None:
        """Add dimensions, of `name`; raises INVALID_ARGUMENT if they contradict those that are there."""
        together = combined(self.dimensions, dimensions)
        if together is None:
            raise invalid(
                f"{name} has the dimensions {list(dimensions)}, which contradict "
                f"{list(self.dimensions)} of the descriptor and the other roles"
            )
        self.dimensions = together


def _kind(operand: Operand) -> tuple[object, ...]:
    return operand.type, np.float32(operand.scale), operand.zero_point, operand.extra_params


class IBuffer:
    """A buffer of the driver for one operand in certain roles; made by `IDevice.allocate`.

    Any number of executions and copies may read it at a time.  One that writes while another one reads or
    writes fails at once with GENERAL_FAILURE, so that nothing waits and no content is mixed.

    Members
    -------
    token : number by which requests name it, above 0.
    operand : type and quantisation of the content.
    roles : uses that were declared.
    initial_dimensions : those of descriptor and roles; 0 for unknown ones.
    """

    def __init__(
        self,
        tracker: BufferTracker,
        device_lock: threading.RLock,
        operand: Operand,
        dimensions: tuple[int, ...],
        roles: frozenset[Role],
    ) -> None:
        self.operand, self.initial_dimensions, self.roles = operand, dimensions, roles
        self._tracker, self._device_lock = tracker, device_lock
        self._dimensions = dimensions
        self._content: Content | None = None
        self._lock = threading.Lock()
        self._readers, self._written, self._closed = 0, False, False
        self.token = tracker.add(self)

    @property
    def dimensions(self) -> tuple[int, ...]:
        """The dimensions of the content, or the initial ones if there is none."""
        return self._dimensions

    @property
    def initialized(self) -> bool:
        """Whether it has a content."""
        return self._content is not None

    def content(self) -> Content:
        """Return what it holds, within `reading`.

        Raises
        ------
        HalError
            GENERAL_FAILURE if nothing was written, or the last write failed.
        """
        if self._content is None:
            raise failure(f"the buffer {self.token} is not initialised")
        return self._content

    def copy_to(self, memory: MemoryPool) -> None:
        """Copy the content into shared memory of the same size.

        Raises
        ------
        HalError
            INVALID_ARGUMENT if the memory has another size; GENERAL_FAILURE if the buffer is not initialised
            or is being written, or the memory cannot be mapped.
        """
        with self.reading():
            content = self.content()
            size = byte_size(self.operand, self._dimensions)
            if memory.size != size:
                raise invalid(
                    f"the buffer {self.token} has {size} bytes, the memory '{memory.name}' {memory.size}"
                )
            array = content.to_numpy() if isinstance(content, NativeTensor) else content
            memory.write(0, array)

    def copy_from(self, memory: MemoryPool, dimensions: Sequence[int] = ()) -> None:
        """Copy shared memory of the same size into the buffer, which is uninitialised after an error.

        Parameters
        ----------
        memory : the memory.
        dimensions : known dimensions of the content; () if those of the buffer are known.

        Raises
        ------
        HalError
            INVALID_ARGUMENT if the dimensions are not known or contradict those of the buffer, or the memory
            has another size; GENERAL_FAILURE if the buffer is in use, or the memory cannot be mapped.
        """
        with self.writing() as written:
            if not self.operand.type.scalar:
                if not dimensions and not (self.initial_dimensions and all(self.initial_dimensions)):
                    raise invalid(
                        f"the dimensions {list(self.initial_dimensions)} of the buffer {self.token} are not "
                        "known, so a copy into it needs dimensions"
                    )
                if any(size <= 0 for size in dimensions):
                    raise invalid(f"a copy needs known dimensions, not {list(dimensions)}")
            elif dimensions:
                raise invalid("a scalar has no dimensions")
            known = combined(self.initial_dimensions, dimensions)
            if known is None:
                raise invalid(
                    f"the dimensions {list(dimensions)} contradict {list(self.initial_dimensions)} of the "
                    f"buffer {self.token}"
                )
            size = byte_size(self.operand, known)
            if memory.size != size:
                raise invalid(f"dimensions {list(known)} have {size} bytes, the memory {memory.size}")
            data = np.frombuffer(memory.read(0, size), self.operand.type.dtype).reshape(known)
            written.append(data)

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Keep others from writing; raises GENERAL_FAILURE if it is being written or is freed."""
        with self._lock:
            self._usable()
            if self._written:
                raise failure(f"the buffer {self.token} is being written")
            self._readers += 1
        try:
            yield
        finally:
            with self._lock:
                self._readers -= 1
            self._end_of_use()

    @contextlib.contextmanager
    def writing(self) -> Iterator[list[Content]]:
        """Keep others from reading and writing, and give the buffer a new content.

        The block appends the content to the list.  Without one, or after an exception, the buffer is
        uninitialised.  Raises GENERAL_FAILURE if it is in use or freed.
        """
        with self._lock:
            self._usable()
            if self._written or self._readers:
                raise failure(f"the buffer {self.token} is in use")
            self._written = True
        made: list[Content] = []
        try:
            yield made
        except BaseException:
            self._replace(None)
            raise
        else:
            self._replace(made[0] if made else None)
        finally:
            with self._lock:
                self._written = False
            self._end_of_use()

    def clear(self) -> None:
        """Give up the content, unless the buffer is in use."""
        with contextlib.suppress(HalError), self.writing():
            pass

    def _replace(self, content: Content | None) -> None:
        old, self._content = self._content, content
        if isinstance(old, NativeTensor):
            with self._device_lock:
                old.free()
        self._dimensions = self.initial_dimensions if content is None else tuple(content.shape)

    def _usable(self) -> None:
        if self._closed:
            raise failure(f"the buffer {self.token} is freed")

    def _end_of_use(self) -> None:
        """Free the memory if the buffer was freed while it was in use."""
        with self._lock:
            idle = self._closed and not self._readers and not self._written
        if idle:
            self._replace(None)

    def close(self) -> None:
        """Free the buffer and its token; what uses it at the moment ends first.  May be called repeatedly."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._tracker.remove(self.token)
        self._end_of_use()

    def __enter__(self) -> IBuffer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class BufferTracker:
    """The buffers of a device by their tokens; entry 0 is never used, and freed tokens are used again."""

    def __init__(self) -> None:
        self._table: list[IBuffer | None] = [None]
        self._free: list[int] = []
        self._lock = threading.Lock()

    def add(self, buffer: IBuffer) -> int:
        """Return the token of a new buffer.

        Raises
        ------
        HalError
            GENERAL_FAILURE if there are too many buffers.
        """
        with self._lock:
            if self._free:
                token = self._free.pop()
                self._table[token] = buffer
                return token
            if len(self._table) > MOST_BUFFERS:
                raise failure(f"there are {MOST_BUFFERS} buffers already")
            self._table.append(buffer)
            return len(self._table) - 1

    def get(self, token: int) -> IBuffer:
        """Return the buffer of a token; raises INVALID_ARGUMENT if there is none."""
        with self._lock:
            found = self._table[token] if 0 < token < len(self._table) else None
        if found is None:
            raise invalid(f"there is no buffer with the token {token}")
        return found

    def remove(self, token: int) -> None:
        """Free a token."""
        with self._lock:
            self._table[token] = None
            self._free.append(token)

    def close(self) -> None:
        """Free all buffers."""
        for buffer in [item for item in self._table if item is not None]:
            buffer.close()
