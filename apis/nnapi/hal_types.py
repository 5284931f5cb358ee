"""Data of NNAPI's hardware abstraction layer (HAL) beside the model: requests, roles and descriptors.

Names are those of the AIDL types `android.hardware.neuralnetworks.*`; the rules that belong to them are in
`rkcosim.apis.nnapi.device` and `rkcosim.apis.nnapi.buffers`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from rkcosim.apis.nnapi.memory import MemoryPool
from rkcosim.apis.nnapi.model import DataLocation


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


RequestMemoryPool: TypeAlias = MemoryPool | int
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
    """A role with its prepared model (`IPreparedModel`), as `IBuffer.roles` has it."""

    model: object
    output: bool
    index: int
