"""Blobs: the tensors between layers, with a description and a place in memory."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.apis.tnn.enums import DataFormat, DataType, DeviceType
from rkcosim.apis.tnn.loader.network import BlobScale
from rkcosim.hostops.quantise import coded
from rkcosim.hostops.rounding import Halves

Array = npt.NDArray[Any]


@dataclass
class BlobDesc:
    """What a blob is.

    Members
    -------
    device_type
        Device whose memory it is in.
    data_type
        Type of its elements.
    data_format
        Order of its elements; NCHW.
    dims
        Shape.
    name
        Name in the network.
    """

    device_type: DeviceType = DeviceType.DEVICE_NAIVE
    data_type: DataType = DataType.DATA_TYPE_FLOAT
    data_format: DataFormat = DataFormat.DATA_FORMAT_NCHW
    dims: tuple[int, ...] = ()
    name: str = ""

    @property
    def size(self) -> int:
        """Bytes of all elements."""
        return math.prod(self.dims) * self.data_type.dtype.itemsize


@dataclass
class BlobHandle:
    """Where a blob is: `base` is the device's object for a block of memory, then an offset in bytes."""

    base: Any = None
    bytes_offset: int = 0


@dataclass
class Blob:
    """A tensor between layers.

    Members
    -------
    desc
        What it is.
    handle
        Where it is.
    scale
        Quantisation of an int8 blob, TNN's IntScaleResource; None for other blobs.
    """

    desc: BlobDesc
    handle: BlobHandle = field(default_factory=BlobHandle)
    scale: BlobScale | None = None

    def GetBlobDesc(self) -> BlobDesc:
        """Return the description."""
        return self.desc

    def SetBlobDesc(self, desc: BlobDesc) -> None:
        """Replace the description."""
        self.desc = desc

    def GetHandle(self) -> BlobHandle:
        """Return the place."""
        return self.handle

    def SetHandle(self, handle: BlobHandle) -> None:
        """Replace the place."""
        self.handle = handle


@dataclass(frozen=True)
class BlobMemorySizeInfo:
    """Memory that a blob needs: type and number of its elements, in one dimension."""

    data_type: DataType
    dims: tuple[int, ...]

    @property
    def size(self) -> int:
        """Bytes."""
        return math.prod(self.dims) * self.data_type.dtype.itemsize


def quantised(values: Array, scale: BlobScale) -> npt.NDArray[np.int8]:
    """Return codes of real numbers (N, C, ...): half away from zero, as TNN's float2int8 rounds."""
    spread = _spread(scale, values.ndim)
    scaled = values.astype(np.float64) / spread + scale.zero
    return to_int8(scaled)


def dequantised(codes: Array, scale: BlobScale) -> npt.NDArray[np.float32]:
    """Return the real numbers of codes (N, C, ...)."""
    return ((codes.astype(np.float64) - scale.zero) * _spread(scale, codes.ndim)).astype(np.float32)


def to_int8(values: Array) -> npt.NDArray[np.int8]:
    """Round half away from zero and limit to -128 .. 127: TNN's float2int8 (utils/naive_compute.cc)."""
    return coded(values, 0, np.int8, Halves.AWAY)


def _spread(scale: BlobScale, rank: int) -> Array:
    factors = scale.scale.astype(np.float64)
    return factors if factors.size == 1 else factors.reshape((1, -1) + (1,) * (rank - 2))
