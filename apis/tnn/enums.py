"""Enumerations of TNN's headers with their values (Tencent/TNN f0cb0812, include/tnn/core)."""

from __future__ import annotations

from enum import IntEnum

import numpy as np


class DataType(IntEnum):
    """Types of the elements of a blob."""

    DATA_TYPE_AUTO = -1
    DATA_TYPE_FLOAT = 0
    DATA_TYPE_HALF = 1
    DATA_TYPE_INT8 = 2
    DATA_TYPE_INT32 = 3
    DATA_TYPE_BFP16 = 4
    DATA_TYPE_INT64 = 5
    DATA_TYPE_UINT32 = 6

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """The same type of numpy; AUTO is float32, and bfp16 has no such type."""
        names = {-1: "f4", 0: "f4", 1: "f2", 2: "i1", 3: "i4", 5: "i8", 6: "u4"}
        return np.dtype(names[self.value])


class DataFormat(IntEnum):
    """Orders of the elements of a blob; devices here have NCHW."""

    DATA_FORMAT_AUTO = -1
    DATA_FORMAT_NCHW = 0
    DATA_FORMAT_NHWC = 1
    DATA_FORMAT_NHWC4 = 2
    DATA_FORMAT_NC2HW2 = 3
    DATA_FORMAT_NC4HW4 = 4
    DATA_FORMAT_NC8HW8 = 5
    DATA_FORMAT_NC16HW16 = 6
    DATA_FORMAT_NCDHW = 7
    DATA_FORMAT_NHC4W4 = 8
    DATA_FORMAT_CNH4 = 1000


class Precision(IntEnum):
    """Wanted precision."""

    PRECISION_AUTO = -1
    PRECISION_NORMAL = 0
    PRECISION_HIGH = 1
    PRECISION_LOW = 2


class DeviceType(IntEnum):
    """Devices.  DEVICE_RK3588 is the value that TNN calls DEVICE_RK_NPU: its name for Rockchip's NPUs."""

    DEVICE_NAIVE = 0x0000
    DEVICE_X86 = 0x0010
    DEVICE_ARM = 0x0020
    DEVICE_OPENCL = 0x1000
    DEVICE_METAL = 0x1010
    DEVICE_CUDA = 0x1020
    DEVICE_DSP = 0x1030
    DEVICE_ATLAS = 0x1040
    DEVICE_HUAWEI_NPU = 0x1050
    DEVICE_RK3588 = 0x1060
    DEVICE_RK_NPU = 0x1060
    DEVICE_APPLE_NPU = 0x1070


class NetworkType(IntEnum):
    """Kinds of networks: DEFAULT runs layer by layer, RK_NPU the whole network as one plan."""

    NETWORK_TYPE_AUTO = -1
    NETWORK_TYPE_DEFAULT = 0
    NETWORK_TYPE_OPENVINO = 0x1000
    NETWORK_TYPE_COREML = 0x2000
    NETWORK_TYPE_SNPE = 0x3000
    NETWORK_TYPE_HIAI = 0x4000
    NETWORK_TYPE_ATLAS = 0x5000
    NETWORK_TYPE_HUAWEI_NPU = 0x6000
    NETWORK_TYPE_RK_NPU = 0x7000
    NETWORK_TYPE_TENSORRT = 0x8000


class ModelType(IntEnum):
    """Kinds of models."""

    MODEL_TYPE_TNN = 0x0001
    MODEL_TYPE_NCNN = 0x0100
    MODEL_TYPE_OPENVINO = 0x1000
    MODEL_TYPE_COREML = 0x2000
    MODEL_TYPE_SNPE = 0x3000
    MODEL_TYPE_HIAI = 0x4000
    MODEL_TYPE_ATLAS = 0x5000
    MODEL_TYPE_RKCACHE = 0x6000


class ShareMemoryMode(IntEnum):
    """How instances share the memory of their blobs."""

    SHARE_MEMORY_MODE_DEFAULT = 0
    SHARE_MEMORY_MODE_SHARE_ONE_THREAD = 1
    SHARE_MEMORY_MODE_SET_FROM_EXTERNAL = 2


class MatType(IntEnum):
    """Kinds of matrices of the caller: pictures of bytes, and arrays."""

    INVALID = -1
    N8UC3 = 0x00
    N8UC4 = 0x01
    NGRAY = 0x10
    NNV21 = 0x11
    NNV12 = 0x12
    NCHW_FLOAT = 0x20
    NC_INT32 = 0x21
