"""Devices behind an abstract interface, and layer accelerators registered by device and layer type."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import numpy as np

from rkcosim.apis.tnn.blob import Array, Blob, BlobDesc, BlobHandle, BlobMemorySizeInfo
from rkcosim.apis.tnn.enums import DataType, DeviceType, NetworkType
from rkcosim.apis.tnn.loader.bound import Bound
from rkcosim.apis.tnn.status import StatusCode, TnnError


class Context:
    """What the layers of one instance share on a device."""

    def close(self) -> None:
        """Release it; a second call does nothing."""


class AbstractLayerAcc(ABC):
    """One layer on one device.

    Members
    -------
    bound
        The layer with parameters, arrays and shapes.
    device, context
        Where it runs.
    """

    bound: Bound
    device: AbstractDevice
    context: Context

    def Init(
        self,
        device: AbstractDevice,
        context: Context,
        bound: Bound,
        inputs: Sequence[Blob],
        outputs: Sequence[Blob],
    ) -> None:
        """Prepare the layer; the blobs have their shapes, but no memory yet."""
        self.device, self.context, self.bound = device, context, bound

    @abstractmethod
    def Forward(self, inputs: Sequence[Blob], outputs: Sequence[Blob]) -> None:
        """Compute the outputs from the inputs."""

    def DeInit(self) -> None:  # noqa: B027 - most layers have nothing to release
        """Release what `Init` took."""


class AbstractDevice(ABC):
    """Memory, copies, contexts and layer accelerators of a device."""

    device_type: DeviceType
    accelerators: dict[str, Callable[[], AbstractLayerAcc]]

    def Calculate(self, desc: BlobDesc) -> BlobMemorySizeInfo:
        """Return the memory that a blob needs: its elements in one dimension."""
        return BlobMemorySizeInfo(desc.data_type, (int(np.prod(desc.dims, dtype=np.int64)),))

    @abstractmethod
    def Allocate(self, size: int, context: Context) -> Any:
        """Return zeroed memory of `size` bytes, the `base` of handles."""

    @abstractmethod
    def Free(self, base: Any) -> None:
        """Release memory."""

    @abstractmethod
    def view(self, handle: BlobHandle, size: int) -> Array:
        """Return bytes of memory, uint8 (size,), which the host reads and writes."""

    def CopyToDevice(self, dst: BlobHandle, src: Array, desc: BlobDesc, queue: Any = None) -> None:
        """Copy an array of the host in the shape of a blob to the blob's place."""
        self.array(dst, desc)[...] = np.asarray(src).reshape(desc.dims)

    def CopyFromDevice(self, dst: Array, src: BlobHandle, desc: BlobDesc, queue: Any = None) -> None:
        """Copy a blob from its place to an array of the host with its shape."""
        np.copyto(dst, self.array(src, desc))

    def array(self, handle: BlobHandle, desc: BlobDesc) -> Array:
        """Return the elements of a blob as an array in its shape, which shares the memory.

        Raises
        ------
        TnnError
            If the blob has no memory.
        """
        if handle.base is None:
            raise TnnError(StatusCode.TNNERR_FORWARD_MEM_NOT_SET, f"blob '{desc.name}' has no memory")
        return self.view(handle, desc.size).view(desc.data_type.dtype).reshape(desc.dims)

    def CreateLayerAcc(self, layer_type: str) -> AbstractLayerAcc | None:
        """Return a new accelerator of a layer type; None if the device has none."""
        made = self.accelerators.get(layer_type)
        return None if made is None else made()

    @abstractmethod
    def CreateContext(self, device_id: int, engine: str | None = None) -> Context:
        """Return a context on one of the devices of this type."""

    def guard(self, device_id: int, engine: str | None = None) -> AbstractContextManager[Any]:
        """Return what a thread holds while it uses one of the devices; a device may need nothing."""
        return nullcontext()

    @abstractmethod
    def ConvertAutoNetworkType(self) -> NetworkType:
        """Return the network type that NETWORK_TYPE_AUTO means here."""


_DEVICES: dict[DeviceType, AbstractDevice] = {}

_Acc = TypeVar("_Acc", bound=AbstractLayerAcc)


def register_device(device: AbstractDevice) -> None:
    """Make a device known by its type: TNN's TypeDeviceRegister."""
    _DEVICES[device.device_type] = device


def get_device(device_type: DeviceType) -> AbstractDevice:
    """Return a device.

    Raises
    ------
    TnnError
        If there is none of this type.
    """
    if device_type not in _DEVICES:
        known = ", ".join(one.name for one in _DEVICES)
        raise TnnError(
            StatusCode.TNNERR_DEVICE_NOT_SUPPORT,
            f"{device_type.name} is not a device here; there are {known}",
        )
    return _DEVICES[device_type]


def elements_of(device: AbstractDevice, blob: Blob) -> Array:
    """Return a copy of a blob's elements in its own type."""
    return device.array(blob.handle, blob.desc).copy()


def is_int8(blob: Blob) -> bool:
    """Whether a blob has codes."""
    return blob.desc.data_type == DataType.DATA_TYPE_INT8
