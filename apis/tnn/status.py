"""Results of calls: codes of TNN (Tencent/TNN f0cb0812, include/tnn/core/status.h) with a text."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class StatusCode(IntEnum):
    """Codes of results; everything but TNN_OK is an error."""

    TNN_OK = 0x0000
    TNNERR_PARAM_ERR = 0x1000
    TNNERR_INVALID_NETCFG = 0x1002
    TNNERR_INVALID_LAYERCFG = 0x1003
    TNNERR_NULL_PARAM = 0x1004
    TNNERR_NET_ERR = 0x2000
    TNNERR_LAYER_ERR = 0x3000
    TNNERR_UNKNOWN_LAYER = 0x3001
    TNNERR_CREATE_LAYER = 0x3002
    TNNERR_INIT_LAYER = 0x3003
    TNNERR_INVALID_DATA = 0x3004
    TNNERR_MODEL_ERR = 0x4000
    TNNERR_INVALID_MODEL = 0x4001
    TNNERR_FIND_MODEL = 0x4002
    TNNERR_INST_ERR = 0x5000
    TNNERR_COMMON_ERROR = 0x6000
    TNNERR_OUTOFMEMORY = 0x6001
    TNNERR_INVALID_INPUT = 0x6002
    TNNERR_FORWARD_MEM_NOT_SUPPORT = 0x8000
    TNNERR_FORWARD_MEM_NOT_SET = 0x8001
    TNNERR_SHARED_THREAD = 0x8003
    TNNERR_SHARED_MODE = 0x8004
    TNNERR_DEVICE_NOT_SUPPORT = 0x9000
    TNNERR_DATA_FORMAT = 0x9004


@dataclass(frozen=True)
class Status:
    """The result of a call.

    Members
    -------
    code
        TNN_OK, or the class of the error.
    text
        What is wrong and where.
    """

    code: StatusCode = StatusCode.TNN_OK
    text: str = ""

    def __bool__(self) -> bool:
        """Whether the call succeeded."""
        return self.code == StatusCode.TNN_OK

    def description(self) -> str:
        """Return code, name and text, as TNN prints them."""
        return f"code: 0x{self.code:04X} msg: {self.text or self.code.name}"


TNN_OK = Status()
"""The status of a call without an error."""


class TnnError(ValueError):
    """An error inside of this package; the calls of TNN's interface return it as a `Status`."""

    def __init__(self, code: StatusCode, text: str) -> None:
        super().__init__(text)
        self.status = Status(code, text)
