"""What the functions of NNAPI's C interface return."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from enum import IntEnum

from rkcosim.apis.nnapi.status import ErrorStatus, HalError
from rkcosim.apis.nnapi.validation import ModelInvalid


class ResultCode(IntEnum):
    """Values that the functions return (NeuralNetworksTypes.h, `ResultCode`)."""

    NO_ERROR = 0
    OUT_OF_MEMORY = 1
    INCOMPLETE = 2
    UNEXPECTED_NULL = 3
    BAD_DATA = 4
    OP_FAILED = 5
    BAD_STATE = 6
    UNMAPPABLE = 7
    OUTPUT_INSUFFICIENT_SIZE = 8
    UNAVAILABLE_DEVICE = 9
    MISSED_DEADLINE_TRANSIENT = 10
    MISSED_DEADLINE_PERSISTENT = 11
    RESOURCE_EXHAUSTED_TRANSIENT = 12
    RESOURCE_EXHAUSTED_PERSISTENT = 13
    DEAD_OBJECT = 14


OF_STATUS = {
    ErrorStatus.NONE: ResultCode.NO_ERROR,
    ErrorStatus.DEVICE_UNAVAILABLE: ResultCode.UNAVAILABLE_DEVICE,
    ErrorStatus.GENERAL_FAILURE: ResultCode.OP_FAILED,
    ErrorStatus.OUTPUT_INSUFFICIENT_SIZE: ResultCode.OUTPUT_INSUFFICIENT_SIZE,
    ErrorStatus.INVALID_ARGUMENT: ResultCode.BAD_DATA,
    ErrorStatus.MISSED_DEADLINE_TRANSIENT: ResultCode.MISSED_DEADLINE_TRANSIENT,
    ErrorStatus.MISSED_DEADLINE_PERSISTENT: ResultCode.MISSED_DEADLINE_PERSISTENT,
    ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT: ResultCode.RESOURCE_EXHAUSTED_TRANSIENT,
    ErrorStatus.RESOURCE_EXHAUSTED_PERSISTENT: ResultCode.RESOURCE_EXHAUSTED_PERSISTENT,
}
"""The value for each status of the driver (AOSP, runtime/ `convertErrorStatusToResultCode`)."""


class NdkError(Exception):
    """A function returns something else than NO_ERROR.

    Members
    -------
    code : the value.
    """

    def __init__(self, code: ResultCode, message: str) -> None:
        super().__init__(message)
        self.code = code


def bad_data(message: str) -> NdkError:
    """Return the error for an argument that breaks a rule."""
    return NdkError(ResultCode.BAD_DATA, message)


def bad_state(message: str) -> NdkError:
    """Return the error for a call at the wrong time."""
    return NdkError(ResultCode.BAD_STATE, message)


@contextlib.contextmanager
def as_results() -> Iterator[None]:
    """Turn errors of the driver and of models into those of the C interface."""
    try:
        yield
    except HalError as error:
        raise NdkError(OF_STATUS[error.status], str(error)) from error
    except ModelInvalid as error:
        raise bad_data(str(error)) from error
