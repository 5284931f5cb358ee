"""Executions of NNAPI's C interface (`ANeuralNetworksExecution`, `ANeuralNetworksBurst`).

The rules are those of AOSP packages/modules/NeuralNetworks (mirror
timocapa/android_packages_modules_NeuralNetworks, commit 19f042d), runtime/ExecutionBuilder.cpp.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from rkcosim.apis.nnapi.buffers import byte_size
from rkcosim.apis.nnapi.hal_types import Request, RequestArgument, RequestMemoryPool, Timing
from rkcosim.apis.nnapi.model import DataLocation, Operand
from rkcosim.apis.nnapi.ndk.compilations import ALIGNMENT, Compilation
from rkcosim.apis.nnapi.ndk.memories import Memory, PointerMemory
from rkcosim.apis.nnapi.ndk.result_codes import NdkError, as_results, bad_data, bad_state
from rkcosim.apis.nnapi.status import ErrorStatus, HalError, OutputShape

LONGEST_LOOP = 15 * 10**9
"""Longest time of a WHILE in nanoseconds; longer ones are cut to it."""

UNKNOWN = 2**64 - 1
"""A duration that is not known."""

DURATIONS = range(4)


class State(Enum):
    """State of an execution."""

    PREPARED = auto()
    COMPUTING = auto()
    DONE = auto()
    TOO_SMALL = auto()
    FAILED = auto()


@dataclass(frozen=True)
class NewType:
    """The type that a program gives with an input or output; its dimensions complete those of the model."""

    type: int
    dimensions: tuple[int, ...]


@dataclass(frozen=True)
class Argument:
    """An input or output: omitted, behind a pointer, or in a memory.

    Members
    -------
    dimensions : () for those of the model.
    length : bytes behind the pointer or in the memory.
    """

    dimensions: tuple[int, ...] = ()
    omitted: bool = False
    memory: Memory | None = None
    offset: int = 0
    length: int = 0


class Burst:
    """A row of executions of one compilation."""

    def __init__(self, compilation: Compilation) -> None:
        compilation.need_ready()
        self.compilation = compilation
        self.busy = False


class Execution:
    """An execution.

    Parameters
    ----------
    compilation : what is executed.

    Raises
    ------
    NdkError
        BAD_STATE if the compilation cannot be executed.
    """

    def __init__(self, compilation: Compilation) -> None:
        compilation.need_ready()
        self.compilation = compilation
        self._inputs: list[Argument | None] = [None] * len(compilation.inputs)
        self._outputs: list[Argument | None] = [None] * len(compilation.outputs)
        self._shapes: tuple[OutputShape, ...] = ()
        self._state = State.PREPARED
        self._reusable = self._padding = self._measured = False
        self._timeout: int | None = None
        self._loop_timeout: int | None = None
        self._timing = Timing()
        self._deadline: float | None = None
        self._burst: Burst | None = None

    def set_argument(self, output: bool, index: int, new: NewType | None, given: Argument) -> None:
        """Set an input or output.

        Parameters
        ----------
        output : whether it is an output.
        index : its index.
        new : the type that the program gives, None for that of the model.
        given : where it is; its dimensions have no meaning.

        Raises
        ------
        NdkError
            BAD_STATE if the execution has begun, or it is set already; BAD_DATA if type, dimensions, length
            or memory do not fit.
        """
        self._change()
        what = f"{'output' if output else 'input'} {index}"
        operands = self.compilation.outputs if output else self.compilation.inputs
        if not 0 <= index < len(operands):
            raise bad_data(f"there is no {what}, only {len(operands)}")
        operand = operands[index]
        unknown_allowed = output or given.omitted
        dimensions = _dimensions(what, operand, new, unknown_allowed)
        if given.memory is not None:
            place = given.offset, given.length
            given.memory.check_use(self.compilation, output, index, new.dimensions if new else (), place)
        elif given.omitted and given.length:
            raise bad_data(f"{what} is omitted, but has {given.length} bytes")
        elif not given.omitted and not given.length:
            raise bad_data(f"{what} has no bytes")
        arguments = self._outputs if output else self._inputs
        if arguments[index] is not None:
            raise bad_state(f"{what} is set already")
        whole = given.memory is not None and not given.offset and not given.length
        if not given.omitted and not whole:
            self._check_length(what, operand, dimensions, given.length)
        arguments[index] = Argument(dimensions, given.omitted, given.memory, given.offset, given.length)

    def _check_length(self, what: str, operand: Operand, dimensions: tuple[int, ...], length: int) -> None:
        size = byte_size(operand, dimensions)
        largest = -(-size // ALIGNMENT) * ALIGNMENT if self._padding else size
        if size and not size <= length <= largest:
            raise bad_data(f"{what} has {size} bytes, not {length}")

    def set_timeout(self, nanoseconds: int) -> None:
        """Set the time within which the execution must begin, 0 for none."""
        self.compilation.need_explicit()
        self._change()
        self._timeout = nanoseconds or None

    def set_loop_timeout(self, nanoseconds: int) -> None:
        """Set the longest time of a WHILE."""
        self._change()
        self._loop_timeout = min(nanoseconds, LONGEST_LOOP)

    def set_measured(self, measured: bool) -> None:
        """Say whether durations are wanted."""
        self.compilation.need_explicit()
        self._change()
        self._measured = measured

    def set_reusable(self, reusable: bool) -> None:
        """Say whether it may be computed repeatedly."""
        self._change()
        self._reusable = reusable

    def enable_padding(self, enabled: bool) -> None:
        """Allow inputs and outputs to be longer than they need to be."""
        self._change()
        if any(self._inputs) or any(self._outputs):
            raise bad_state("an input or output is set already")
        self._padding = enabled

    def begin(self, burst: Burst | None = None) -> None:
        """Begin a computation, which `compute` ends.

        Raises
        ------
        NdkError
            BAD_STATE if one is running, or it is not reusable and was computed; BAD_DATA if an input or
            output is missing or the burst belongs to another compilation.
        """
        if burst is not None and burst.compilation is not self.compilation:
            raise bad_data("the burst belongs to another compilation")
        if self._state is State.COMPUTING:
            raise bad_state("the execution is being computed")
        if self._state is not State.PREPARED and not self._reusable:
            raise bad_state("the execution was computed already, and is not reusable")
        if burst is not None and burst.busy:
            raise bad_state("another execution of the burst is being computed")
        for name, arguments in (("input", self._inputs), ("output", self._outputs)):
            for index, one in enumerate(arguments):
                if one is None:
                    self._state = State.FAILED
                    raise bad_data(f"{name} {index} is not set")
        self._state = State.COMPUTING
        self._deadline = _after(self._timeout)
        self._burst = burst
        if burst is not None:
            burst.busy = True

    def compute(self, inputs: Sequence[bytes], duration: int | None = None) -> list[bytes]:
        """Compute.

        Parameters
        ----------
        inputs : bytes of the inputs behind pointers, in their order.
        duration : nanoseconds within which it must begin, for executions with dependencies.

        Returns
        -------
        Bytes of the outputs behind pointers, in their order.

        Raises
        ------
        NdkError
            What the driver answers.
        """
        if self._state is not State.COMPUTING:
            raise bad_state("the execution has not begun")
        deadlines = [one for one in (self._deadline, _after(duration)) if one is not None]
        state = State.FAILED
        try:
            with as_results():
                request, made = self._request(list(inputs))
                result = self.compilation.prepared.execute_synchronously(
                    request,
                    measure=self._measured,
                    deadline=min(deadlines, default=None),
                    loop_timeout=None if self._loop_timeout is None else self._loop_timeout / 1e9,
                )
            self._shapes, self._timing = result.output_shapes, result.timing
            state = State.DONE
        except NdkError as error:
            cause = error.__cause__
            if isinstance(cause, HalError) and cause.status is ErrorStatus.OUTPUT_INSUFFICIENT_SIZE:
                self._shapes, state = cause.output_shapes, State.TOO_SMALL
            raise
        finally:
            self._state = state
            if self._burst is not None:
                self._burst.busy = False
        sizes = [
            byte_size(operand, shape.dimensions)
            for operand, shape in zip(self.compilation.outputs, self._shapes, strict=True)
        ]
        return [bytes(pool.data[:size]) for pool, size in zip(made, sizes, strict=True) if pool is not None]

    def give_up(self) -> None:
        """End a computation that has begun and cannot be done."""
        if self._state is State.COMPUTING:
            self._state = State.FAILED
            if self._burst is not None:
                self._burst.busy = False

    def _request(self, given: list[bytes]) -> tuple[Request, list[PointerMemory | None]]:
        pools: list[RequestMemoryPool] = []
        made: list[PointerMemory | None] = []
        sides: list[list[RequestArgument]] = []
        for output, arguments in ((False, self._inputs), (True, self._outputs)):
            side = []
            for one in arguments:
                assert one is not None
                pointer = None
                if one.omitted:
                    side.append(RequestArgument(has_no_value=True))
                elif one.memory is not None:
                    side.append(_argument(one, len(pools), self._used(one, output, len(side))))
                    pools.append(one.memory.request())
                else:
                    if not output and (not given or len(given[0]) != one.length):
                        raise bad_data(f"the bytes of input {len(side)} are missing")
                    pointer = PointerMemory(bytearray(one.length) if output else bytearray(given.pop(0)))
                    side.append(_argument(one, len(pools), self._used(one, output, len(side))))
                    pools.append(pointer)
                if output:
                    made.append(pointer)
            sides.append(side)
        return Request(tuple(sides[0]), tuple(sides[1]), tuple(pools)), made

    def _used(self, one: Argument, output: bool, index: int) -> int:
        """Return the bytes of an argument without its padding; outputs of unknown size use all."""
        operand = (self.compilation.outputs if output else self.compilation.inputs)[index]
        size = byte_size(operand, one.dimensions)
        return min(size, one.length) if size and self._padding else one.length

    def rank(self, index: int) -> int:
        """Return the rank of an output; raises OUTPUT_INSUFFICIENT_SIZE by `shape`."""
        return len(self._shape(index).dimensions)

    def dimensions(self, index: int) -> tuple[int, ...]:
        """Return the dimensions of an output."""
        found = self._shape(index).dimensions
        if not found:
            raise bad_data(f"output {index} is a scalar")
        return found

    def sufficient(self, index: int) -> bool:
        """Whether the memory of an output was large enough."""
        return self._shape(index).is_sufficient

    def _shape(self, index: int) -> OutputShape:
        if self._state not in (State.DONE, State.TOO_SMALL):
            raise bad_state("the execution has not ended, or has failed")
        if not 0 <= index < len(self._shapes):
            raise bad_data(f"there is no output {index}, only {len(self._shapes)}")
        return self._shapes[index]

    def duration(self, code: int) -> int:
        """Return a duration in nanoseconds: the NPU's cycles at 1 GHz, or the time in the driver."""
        if code not in DURATIONS:
            raise bad_data(f"there is no duration {code}")
        if self._state is not State.DONE or not self._measured:
            raise bad_state("the execution has not ended, has failed, or was not measured")
        found = self._timing.time_in_driver_ns if code % 2 else self._timing.time_on_device_ns
        return UNKNOWN if found < 0 else found

    def _change(self) -> None:
        if self._state is not State.PREPARED:
            raise bad_state("the execution has begun")


def _after(nanoseconds: int | None) -> float | None:
    return None if nanoseconds is None else time.monotonic() + nanoseconds / 1e9


def _argument(one: Argument, pool: int, length: int) -> RequestArgument:
    return RequestArgument(False, DataLocation(pool, one.offset, length), one.dimensions)


def _dimensions(what: str, operand: Operand, new: NewType | None, unknown_allowed: bool) -> tuple[int, ...]:
    """Return the dimensions of an input or output; raises BAD_DATA if the new type does not fit."""
    known = operand.dimensions
    if new is not None:
        if new.type != operand.type:
            raise bad_data(f"{what} is {operand.type.name}, not type {new.type}")
        if operand.type.scalar and new.dimensions:
            raise bad_data(f"{what} is a scalar and has no dimensions")
        if known and len(new.dimensions) != len(known):
            raise bad_data(f"{what} has rank {len(known)}, not {len(new.dimensions)}")
        if any(old not in (0, size) for old, size in zip(known, new.dimensions, strict=False)):
            raise bad_data(f"{what} has the dimensions {list(known)}, not {list(new.dimensions)}")
        known = new.dimensions
    if not unknown_allowed and not operand.type.scalar and (not known or 0 in known):
        raise bad_data(f"the dimensions {list(known)} of {what} are not known")
    return known
