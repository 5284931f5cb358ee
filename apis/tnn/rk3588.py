"""The device RK3588: the RTL, through the compiler and the driver."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np

from rkcosim.apis.tnn.blob import Array, Blob, BlobHandle, dequantised, quantised
from rkcosim.apis.tnn.device import AbstractDevice, AbstractLayerAcc, Context, is_int8, register_device
from rkcosim.apis.tnn.enums import DeviceType, NetworkType
from rkcosim.apis.tnn.loader.bound import Bound
from rkcosim.apis.tnn.loader.convert import to_onnx
from rkcosim.apis.tnn.loader.emit import EMITTERS
from rkcosim.apis.tnn.loader.network import TnnNetwork
from rkcosim.apis.tnn.loader.proto import VERSION_2, NetInput, NetStructure
from rkcosim.apis.tnn.loader.resources import SCALE_SUFFIX
from rkcosim.apis.tnn.naive import NaiveLayerAcc
from rkcosim.apis.tnn.status import StatusCode, TnnError
from rkcosim.compiler import CompiledModel, LoadedModel, compile_model
from rkcosim.compiler.graph import ModelError
from rkcosim.driver import Driver
from rkcosim.running.machine import Machine
from rkcosim.running.settings import Settings

LEAST = 64
"""Smallest allocation in bytes."""


@dataclass
class _Npu:
    """An open device with the number of contexts on it."""

    machine: Machine
    users: int = 0


_OPEN: dict[tuple[str, int], _Npu] = {}

_LOCKS: defaultdict[tuple[str, int], threading.RLock] = defaultdict(threading.RLock)
"""By device; its driver serves one caller at a time."""


class Rk3588Context(Context):
    """A context on a device; the device is opened by its first context and closed by its last.

    Parameters
    ----------
    device_id
        Number of the device; each number is a device of its own.
    engine
        Engine by name (`rkcosim.running.settings.Settings`); None for the default.

    Members
    -------
    cycles
        Cycles of all jobs since the context was created.

    Raises
    ------
    TnnError
        If the engine does not exist or cannot be built.
    """

    def __init__(self, device_id: int, engine: str | None) -> None:
        self._key: tuple[str, int] | None = (engine or "", device_id)
        with _LOCKS[self._key]:
            npu = _OPEN.get(self._key)
            if npu is None:
                try:
                    npu = _OPEN[self._key] = _Npu(Machine(Settings(engine=engine), ()))
                except (ValueError, RuntimeError, OSError) as error:
                    self._key = None
                    raise TnnError(StatusCode.TNNERR_DEVICE_NOT_SUPPORT, str(error)) from error
            npu.users += 1
        self.driver: Driver = npu.machine.driver
        self.cycles = 0

    def close(self) -> None:
        """Release the device; a second call does nothing."""
        key, self._key = self._key, None
        if key is None:
            return
        with _LOCKS[key]:
            npu = _OPEN[key]
            npu.users -= 1
            if not npu.users:
                del _OPEN[key]
                npu.machine.close()


def compiled(net: TnnNetwork) -> CompiledModel:
    """Compile a network.

    Raises
    ------
    TnnError
        If a layer is not supported; the text names it.
    """
    try:
        return compile_model(to_onnx(net).SerializeToString())
    except ModelError as error:
        raise TnnError(StatusCode.TNNERR_LAYER_ERR, str(error)) from error


def network_of(b: Bound, blobs: Sequence[Blob]) -> TnnNetwork:
    """Return the network of one layer with these blobs, which are floats outside of it."""
    dims = dict(zip(b.layer.inputs, b.inputs, strict=True))
    inputs = tuple(NetInput(name, shape) for name, shape in dims.items())
    resources = {b.layer.name: b.resource}
    for blob in blobs:
        if blob.scale is not None:
            zeros = np.full(blob.scale.scale.size, blob.scale.zero, np.int8)
            resources[_plain(blob) + SCALE_SUFFIX] = {"scale": blob.scale.scale, "zero_point": zeros}
    return TnnNetwork(NetStructure(inputs, b.layer.outputs, (b.layer,), VERSION_2), resources)


def _plain(blob: Blob) -> str:
    return blob.desc.name


def real_array(blob: Blob, device: AbstractDevice) -> Array:
    """Return the real numbers of a blob in float32, as a copy."""
    values = device.array(blob.handle, blob.desc)
    if not is_int8(blob):
        return values.astype(np.float32)
    assert blob.scale is not None
    return dequantised(values, blob.scale)


def store(blob: Blob, device: AbstractDevice, values: Array) -> None:
    """Set a blob to real numbers; codes are rounded."""
    values = np.asarray(values).reshape(blob.desc.dims)
    if is_int8(blob):
        assert blob.scale is not None
        values = quantised(values, blob.scale)
    device.array(blob.handle, blob.desc)[...] = values


class Rk3588LayerAcc(AbstractLayerAcc):
    """A layer as a plan of its own."""

    _loaded: LoadedModel | None = None

    def Init(
        self,
        device: AbstractDevice,
        context: Context,
        bound: Bound,
        inputs: Sequence[Blob],
        outputs: Sequence[Blob],
    ) -> None:
        """Compile the layer and load it into the device's memory."""
        super().Init(device, context, bound, inputs, outputs)
        assert isinstance(context, Rk3588Context)
        self._loaded = LoadedModel(compiled(network_of(bound, [*inputs, *outputs])), context.driver)

    @property
    def on_npu(self) -> bool:
        """Whether the NPU computes any part of the layer."""
        return bool(self.model.plan.tasks)

    @property
    def model(self) -> CompiledModel:
        """The compiled layer."""
        assert self._loaded is not None
        return self._loaded.model

    def Forward(self, inputs: Sequence[Blob], outputs: Sequence[Blob]) -> None:
        """Run the plan on the blobs."""
        loaded, context = self._loaded, self.context
        assert loaded is not None and isinstance(context, Rk3588Context)
        arrays = {blob.desc.name: real_array(blob, self.device) for blob in inputs}
        for index, info in enumerate(loaded.model.inputs):
            loaded.set_input(index, arrays[info.name])
        context.cycles += loaded.run().cycles
        for index, blob in enumerate(outputs):
            store(blob, self.device, loaded.get_output(index))

    def DeInit(self) -> None:
        """Free the memory."""
        if self._loaded is not None:
            self._loaded.close()
        self._loaded = None


class Rk3588Device(AbstractDevice):
    """The NPU of the RK3588 on the RTL."""

    device_type = DeviceType.DEVICE_RK3588

    def __init__(self) -> None:
        self.accelerators = {
            **dict.fromkeys(EMITTERS, Rk3588LayerAcc),
            **dict.fromkeys(("Reformat", "Const"), NaiveLayerAcc),
        }

    def Allocate(self, size: int, context: Context) -> Any:
        """Return a buffer of device memory, zeroed."""
        assert isinstance(context, Rk3588Context)
        return context.driver.alloc(max(size, LEAST), "blobs")

    def Free(self, base: Any) -> None:
        """Free a buffer."""
        base.free()

    def view(self, handle: BlobHandle, size: int) -> Array:
        """Return bytes of a buffer."""
        made: Array = handle.base.view(handle.bytes_offset, size)
        return made

    def CreateContext(self, device_id: int, engine: str | None = None) -> Context:
        """Return a context; the device is opened if this is its first one."""
        return Rk3588Context(device_id, engine)

    def guard(self, device_id: int, engine: str | None = None) -> AbstractContextManager[Any]:
        """Return the lock of a device: its instances in several threads work one after the other."""
        return _LOCKS[engine or "", device_id]

    def ConvertAutoNetworkType(self) -> NetworkType:
        """Return NETWORK_TYPE_RK_NPU: the whole network is one plan."""
        return NetworkType.NETWORK_TYPE_RK_NPU


register_device(Rk3588Device())
