"""TNN's programming interface in Python, with the names of its C++ headers, on the host and on the RTL.

Calls return a `Status`; those with a result return a tuple of `Status` and result.  Source of the interface:
Tencent/TNN f0cb0812, include/tnn.
"""

from __future__ import annotations

from rkcosim.apis.tnn.api import TNN
from rkcosim.apis.tnn.blob import Blob, BlobDesc, BlobHandle, BlobMemorySizeInfo
from rkcosim.apis.tnn.config import ModelConfig, NetworkConfig
from rkcosim.apis.tnn.device import AbstractDevice, AbstractLayerAcc, get_device, register_device
from rkcosim.apis.tnn.enums import (
    DataFormat,
    DataType,
    DeviceType,
    MatType,
    ModelType,
    NetworkType,
    Precision,
    ShareMemoryMode,
)
from rkcosim.apis.tnn.instance import Instance
from rkcosim.apis.tnn.mat import BlobConverter, Mat, MatConvertParam
from rkcosim.apis.tnn.network import MemoryUse
from rkcosim.apis.tnn.status import TNN_OK, Status, StatusCode

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
