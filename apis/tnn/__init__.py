"""TNN's programming interface in Python, with the names of its C++ headers, on the host and on the RTL.

Calls return a `Status`; those with a result return a tuple of `Status` and result.  Source of the interface:
Tencent/TNN f0cb0812, include/tnn.
"""

from __future__ import annotations

from rkcosim.frontends.tnn.api import TNN
from rkcosim.frontends.tnn.blob import Blob, BlobDesc, BlobHandle, BlobMemorySizeInfo
from rkcosim.frontends.tnn.config import ModelConfig, NetworkConfig
from rkcosim.frontends.tnn.device import AbstractDevice, AbstractLayerAcc, get_device, register_device
from rkcosim.frontends.tnn.enums import (
    DataFormat,
    DataType,
    DeviceType,
    MatType,
    ModelType,
    NetworkType,
    Precision,
    ShareMemoryMode,
)
from rkcosim.frontends.tnn.instance import Instance
from rkcosim.frontends.tnn.mat import BlobConverter, Mat, MatConvertParam
from rkcosim.frontends.tnn.network import MemoryUse
from rkcosim.frontends.tnn.status import TNN_OK, Status, StatusCode

__all__ = [
    "TNN",
    "TNN_OK",
    "AbstractDevice",
    "AbstractLayerAcc",
    "Blob",
    "BlobConverter",
    "BlobDesc",
    "BlobHandle",
    "BlobMemorySizeInfo",
    "DataFormat",
    "DataType",
    "DeviceType",
    "Instance",
    "Mat",
    "MatConvertParam",
    "MatType",
    "MemoryUse",
    "ModelConfig",
    "ModelType",
    "NetworkConfig",
    "NetworkType",
    "Precision",
    "ShareMemoryMode",
    "Status",
    "StatusCode",
    "get_device",
    "register_device",
]
