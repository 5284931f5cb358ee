"""Matrices of the caller, and their conversion to and from blobs with scale and bias."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rkcosim.apis.tnn.blob import Array, Blob, dequantised, quantised
from rkcosim.apis.tnn.device import AbstractDevice, elements_of, get_device, is_int8
from rkcosim.apis.tnn.enums import DeviceType, MatType
from rkcosim.apis.tnn.status import TNN_OK, Status, StatusCode

CHANNELS = {MatType.N8UC3: 3, MatType.N8UC4: 4, MatType.NGRAY: 1}
"""Channels of pictures of bytes, which have the shape (N, H, W, C)."""


class Mat:
    """A matrix of the caller.

    Parameters
    ----------
    device_type
        Where its memory is; the host's, DEVICE_NAIVE or DEVICE_ARM.
    mat_type
        N8UC3, N8UC4 or NGRAY for pictures of bytes (N, H, W, C), NCHW_FLOAT for float32 (N, C, H, W),
        NC_INT32 for int32.
    dims
        Shape in NCHW, also of pictures.
    data
        Elements; by default zeros.

    Raises
    ------
    ValueError
        If type, shape and data do not fit.
    """

    def __init__(
        self, device_type: DeviceType, mat_type: MatType, dims: Sequence[int], data: Array | None = None
    ) -> None:
        self.device_type, self.mat_type, self.dims = device_type, mat_type, tuple(dims)
        if mat_type not in (*CHANNELS, MatType.NCHW_FLOAT, MatType.NC_INT32):
            raise ValueError(f"matrices of the type {mat_type.name} are not supported")
        if mat_type in CHANNELS and (len(self.dims) != 4 or self.dims[1] != CHANNELS[mat_type]):
            raise ValueError(f"a matrix {mat_type.name} has not the shape {self.dims} (N, C, H, W)")
        dtype = np.uint8 if mat_type in CHANNELS else np.int32 if mat_type == MatType.NC_INT32 else np.float32
        count = math.prod(self.dims)
        given = np.zeros(count, dtype) if data is None else np.asarray(data)
        if given.size != count or given.dtype != dtype:
            raise ValueError(
                f"{given.size} elements of {given.dtype} for a matrix {mat_type.name} {self.dims}"
            )
        self.data = np.ascontiguousarray(given).reshape(-1)

    def GetDims(self) -> tuple[int, ...]:
        """Return the shape in NCHW."""
        return self.dims

    def GetData(self) -> Array:
        """Return the elements in memory order, one dimension."""
        return self.data

    def GetMatType(self) -> MatType:
        """Return the type."""
        return self.mat_type

    @property
    def array(self) -> Array:
        """The elements in NCHW, sharing memory; channels of pictures are in their order in memory."""
        if self.mat_type not in CHANNELS:
            return self.data.reshape(self.dims)
        n, c, h, w = self.dims
        return self.data.reshape(n, h, w, c).transpose(0, 3, 1, 2)


@dataclass
class MatConvertParam:
    """Conversion between matrix and blob: blob = matrix * scale + bias, for one or each channel.

    Members
    -------
    scale, bias
        One value, or one for each channel; empty for 1 and 0.
    reverse_channel
        Whether the first three channels change their order (BGR to RGB).
    """

    scale: Sequence[float] = ()
    bias: Sequence[float] = ()
    reverse_channel: bool = False


class BlobConverter:
    """Converts between matrices and one blob.

    Parameters
    ----------
    blob
        The blob.
    device
        Its device; by default the one in its description.
    """

    def __init__(self, blob: Blob, device: AbstractDevice | None = None) -> None:
        self.blob, self.device = blob, device or get_device(blob.desc.device_type)

    def ConvertFromMat(self, mat: Mat, param: MatConvertParam | None = None) -> Status:
        """Set the blob to a matrix times scale plus bias.

        A picture N8UC4 for a blob of three channels loses its fourth channel.
        """
        param, dims = param or MatConvertParam(), self.blob.desc.dims
        values = mat.array.astype(np.float32)
        if mat.mat_type == MatType.N8UC4 and len(dims) == 4 and dims[1] == 3:
            values = values[:, :3]
        if values.size != math.prod(dims) or (values.ndim == len(dims) and values.shape != dims):
            text = f"a matrix {values.shape} does not fit blob '{self.blob.desc.name}' {dims}"
            return Status(StatusCode.TNNERR_INVALID_INPUT, text)
        if param.reverse_channel:
            values = _reversed(values)
        values = values.reshape(dims)
        factors = _channels(param, dims)
        if isinstance(factors, Status):
            return factors
        values = values * factors[0] + factors[1]
        if is_int8(self.blob):
            assert self.blob.scale is not None
            self.device.CopyToDevice(self.blob.handle, quantised(values, self.blob.scale), self.blob.desc)
        else:
            self.device.CopyToDevice(self.blob.handle, values, self.blob.desc)
        return TNN_OK

    def ConvertToMat(self, mat: Mat, param: MatConvertParam | None = None) -> Status:
        """Set a matrix to the blob times scale plus bias; bytes are limited to 0 .. 255 and rounded."""
        param, dims = param or MatConvertParam(), self.blob.desc.dims
        values = elements_of(self.device, self.blob)
        if is_int8(self.blob):
            assert self.blob.scale is not None
            values = dequantised(values, self.blob.scale)
        factors = _channels(param, dims)
        if isinstance(factors, Status):
            return factors
        if values.size != mat.data.size:
            text = f"blob '{self.blob.desc.name}' {dims} does not fit a matrix {mat.dims}"
            return Status(StatusCode.TNNERR_INVALID_INPUT, text)
        values = (values.astype(np.float32) * factors[0] + factors[1]).reshape(mat.dims)
        if param.reverse_channel:
            values = _reversed(values)
        if mat.data.dtype != np.float32:
            limits = np.iinfo(mat.data.dtype)
            values = np.clip(np.trunc(values + np.where(values >= 0, 0.5, -0.5)), limits.min, limits.max)
        mat.array[...] = values.astype(mat.data.dtype)
        return TNN_OK


def _reversed(values: Array) -> Array:
    if values.ndim < 2 or values.shape[1] < 3:
        return values
    order = [2, 1, 0, *range(3, values.shape[1])]
    return values[:, order]


def _channels(param: MatConvertParam, dims: tuple[int, ...]) -> tuple[Array, Array] | Status:
    """Return factor and offset in shapes that broadcast to a blob."""
    made = []
    for name, values, default in (("scale", param.scale, 1.0), ("bias", param.bias, 0.0)):
        given = np.asarray(values if len(values) else [default], np.float32)
        channels = dims[1] if len(dims) > 1 else 1
        if given.size > 1 and given.size != channels and not (given.size == 4 and channels == 3):
            text = f"{given.size} values of {name} for {channels} channels"
            return Status(StatusCode.TNNERR_PARAM_ERR, text)
        given = given[:channels] if given.size > 1 else given
        made.append(given.reshape((1, -1) + (1,) * (len(dims) - 2)) if given.size > 1 else given)
    return made[0], made[1]
