"""What calls of NNAPI's HAL answer instead of a result."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


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


@dataclass(frozen=True)
class OutputShape:
    """Dimensions of an output after an execution, and whether the memory was large enough for it."""

    dimensions: tuple[int, ...]
    is_sufficient: bool = True


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
