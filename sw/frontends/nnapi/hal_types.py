"""Data of NNAPI's hardware abstraction layer (HAL) beside the model: requests, roles, descriptors, errors.

Names are those of the AIDL types `android.hardware.neuralnetworks.*`; the rules that belong to them are in
`rkcosim.frontends.nnapi.device` and `rkcosim.frontends.nnapi.buffers`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, TypeAlias

from rkcosim.frontends.nnapi.model import DataLocation

if TYPE_CHECKING:
    from rkcosim.frontends.nnapi.device import IPreparedModel
    from rkcosim.frontends.nnapi.memory import MemoryPool


class ErrorStatus(IntEnum):
    """What a call of the HAL answers."""

    NONE = 0
    DEVICE_UNAVAILABLE = 1
    GENERAL_FAILURE = 2
    OUTPUT_INSUFFICIENT_SIZE = 3
    INVALID_ARGUMENT = 4
    MISSED_DEADLINE_TRANSIENT = 5
    MISSED_DEADLINE_PERSISTENT = 6
    RESOURCE_EXHAUSTED_TRANSIENT = 7
    RESOURCE_EXHAUSTED_PERSISTENT = 8


class HalError(Exception):
    """A call of the HAL failed.

    Members
    -------
    status : the error; never NONE.
    output_shapes : dimensions of the outputs, for OUTPUT_INSUFFICIENT_SIZE.
    """

    def __init__(
        self, status: ErrorStatus, message: str, output_shapes: tuple[OutputShape, ...] = ()
    ) -> None:
        super().__init__(message)
        self.status, self.output_shapes = status, output_shapes


def invalid(message: str) -> HalError:
    """Return the error for an argument that breaks a rule."""
    return HalError(ErrorStatus.INVALID_ARGUMENT, message)


def failure(message: str) -> HalError:
    """Return the error for something that cannot be done here, or not in this state."""
    return HalError(ErrorStatus.GENERAL_FAILURE, message)


@dataclass(frozen=True)
class OutputShape:
    """Dimensions of an output after an execution, and whether the memory was large enough for it."""

    dimensions: tuple[int, ...]
    is_sufficient: bool = True


@dataclass(frozen=True)
class Timing:
    """Nanoseconds of an execution: the NPU's cycles at 1 GHz, and the time in the driver; -1 if unknown."""

    time_on_device_ns: int = -1
    time_in_driver_ns: int = -1


NOWHERE = DataLocation()
"""Location of a value that is a whole buffer, or is omitted."""


@dataclass(frozen=True)
class RequestArgument:
    """An input or output of a request.

    Members
    -------
    has_no_value : an optional input is omitted; the rest has no meaning then.
    location : bytes in a pool of the request; offset and length are 0 for a token.
    dimensions : () for those of the model; otherwise 0 stands for an unknown one (of outputs only).
    """

    has_no_value: bool = False
    location: DataLocation = NOWHERE
    dimensions: tuple[int, ...] = ()


RequestMemoryPool: TypeAlias = "MemoryPool | int"
"""Shared memory, or the token of a buffer that the driver allocated."""


@dataclass(frozen=True)
class Request:
    """Inputs and outputs of an execution, and the pools in which they lie."""

    inputs: tuple[RequestArgument, ...]
    outputs: tuple[RequestArgument, ...]
    pools: tuple[RequestMemoryPool, ...]


@dataclass(frozen=True)
class BufferDesc:
    """Descriptor of a buffer of the driver: dimensions, 0 for unknown ones, () for those of the roles."""

    dimensions: tuple[int, ...] = ()


@dataclass(frozen=True)
class BufferRole:
    """A use of a buffer: as input or output `io_index` of one of the prepared models of `allocate`.

    `probability` in (0, 1] is how likely this use is; it has no effect here.
    """

    model_index: int
    io_index: int
    probability: float = 1.0


@dataclass(frozen=True)
class Role:
    """A role with its prepared model: the key of `Buffer.roles`."""

    model: IPreparedModel
    output: bool
    index: int
