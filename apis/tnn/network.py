"""Networks: one that runs layer by layer, and one that runs as a plan of the compiler."""

from __future__ import annotations

import itertools
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from rkcosim.apis.tnn.blob import Blob, BlobDesc, BlobHandle
from rkcosim.apis.tnn.config import NetworkConfig
from rkcosim.apis.tnn.device import AbstractDevice, get_device
from rkcosim.apis.tnn.enums import DataType, DeviceType, NetworkType, ShareMemoryMode
from rkcosim.apis.tnn.layer import BaseLayer, CreateLayer
from rkcosim.apis.tnn.loader.bound import Dims
from rkcosim.apis.tnn.loader.network import TnnNetwork
from rkcosim.apis.tnn.loader.proto import LayerInfo, NetInput
from rkcosim.apis.tnn.loader.resources import SCALE_SUFFIX
from rkcosim.apis.tnn.pool import plan_blobs
from rkcosim.apis.tnn.rk3588 import Rk3588Context, compiled, real_array, store
from rkcosim.apis.tnn.sharing import SHARED, Key, check_thread
from rkcosim.apis.tnn.status import StatusCode, TnnError
from rkcosim.compiler import LoadedModel
from rkcosim.compiler.graph import ModelError

_NUMBERS = itertools.count()


@dataclass(frozen=True)
class MemoryUse:
    """Memory of the blobs of one instance in bytes.

    Members
    -------
    blobs
        Sum of all blobs, each with memory of its own.
    forward
        The forward memory, in which blobs follow each other.
    own
        What this instance has allocated for it: nothing if the caller gave it.
    shared
        The memory that all instances of the thread have together; 0 in other modes.
    """

    blobs: int
    forward: int
    own: int
    shared: int

    @property
    def saved(self) -> int:
        """Bytes that the reuse of blocks saves."""
        return self.blobs - self.forward


class AbstractNetwork(ABC):
    """A network on a device.

    Parameters
    ----------
    net
        Structure and arrays.
    config
        Device, sharing mode, and the rest.
    shapes
        Shapes of inputs, for others than those of the file.

    Raises
    ------
    TnnError
        If the network cannot be created.
    """

    def __init__(self, net: TnnNetwork, config: NetworkConfig, shapes: Mapping[str, Dims]) -> None:
        self.net, self.config = _shaped(net, shapes), config
        self.device: AbstractDevice = get_device(config.device_type)
        self.context = self.device.CreateContext(config.device_id, config.engine)
        self.inputs: dict[str, Blob] = {}
        self.outputs: dict[str, Blob] = {}
        self._base: Any = None
        self._number = next(_NUMBERS)
        self._key: Key = (threading.get_ident(), config.device_type, config.device_id, config.engine or "")
        try:
            self._build()
            self._take_memory()
        except BaseException:
            self.DeInit()
            raise

    @abstractmethod
    def _build(self) -> None:
        """Create blobs, and layers or a plan."""

    @abstractmethod
    def _place(self, base: Any, offset: int) -> None:
        """Use forward memory from an offset on."""

    @abstractmethod
    def _run(self) -> None:
        """Compute the outputs."""

    @abstractmethod
    def GetForwardMemorySize(self) -> int:
        """Return the bytes of the forward memory."""

    @abstractmethod
    def blob_bytes(self) -> int:
        """Return the bytes of all blobs, each with memory of its own."""

    @property
    def _mode(self) -> ShareMemoryMode:
        return self.config.share_memory_mode

    def _take_memory(self) -> None:
        size = self.GetForwardMemorySize()
        if self._mode == ShareMemoryMode.SHARE_MEMORY_MODE_DEFAULT:
            self._base = self.device.Allocate(size, self.context)
            self._place(self._base, 0)
        elif self._mode == ShareMemoryMode.SHARE_MEMORY_MODE_SHARE_ONE_THREAD:
            SHARED.acquire(self._key, self._number, size, self._moved, self.device, self.context)

    def _moved(self, base: Any) -> None:
        self._base = base
        self._place(base, 0)

    def SetForwardMemory(self, memory: Any, offset: int = 0) -> None:
        """Use memory of the caller.

        Parameters
        ----------
        memory
            What `AbstractDevice.Allocate` returns: uint8 (n,) for NAIVE, a buffer of the driver for RK3588.
        offset
            Its first byte.

        Raises
        ------
        TnnError
            If the sharing mode is another, or the memory is too small.
        """
        if self._mode != ShareMemoryMode.SHARE_MEMORY_MODE_SET_FROM_EXTERNAL:
            raise TnnError(StatusCode.TNNERR_SHARED_MODE, f"SetForwardMemory with {self._mode.name}")
        if memory is None or memory.size - offset < self.GetForwardMemorySize():
            have = 0 if memory is None else memory.size - offset
            raise TnnError(
                StatusCode.TNNERR_OUTOFMEMORY,
                f"the forward memory has {self.GetForwardMemorySize()} bytes, not {have}",
            )
        self._base = memory
        self._place(memory, offset)

    def Forward(self) -> None:
        """Compute the outputs.

        Raises
        ------
        TnnError
            If memory was not set, or is shared in another thread.
        """
        if self._base is None:
            raise TnnError(StatusCode.TNNERR_FORWARD_MEM_NOT_SET, "Forward before SetForwardMemory")
        if self._mode == ShareMemoryMode.SHARE_MEMORY_MODE_SHARE_ONE_THREAD:
            check_thread(self._key)
        self._run()

    def memory(self) -> MemoryUse:
        """Return how much memory the blobs have."""
        forward, shared = self.GetForwardMemorySize(), 0
        if self._mode == ShareMemoryMode.SHARE_MEMORY_MODE_SHARE_ONE_THREAD:
            shared = SHARED.size(self._key)
        own = forward if self._mode == ShareMemoryMode.SHARE_MEMORY_MODE_DEFAULT else 0
        return MemoryUse(self.blob_bytes(), forward, own, shared)

    @property
    def cycles(self) -> int | None:
        """Cycles of all jobs; None for a device that has none."""
        return self.context.cycles if isinstance(self.context, Rk3588Context) else None

    def DeInit(self) -> None:
        """Release everything."""
        if self._mode == ShareMemoryMode.SHARE_MEMORY_MODE_SHARE_ONE_THREAD:
            SHARED.release(self._key, self._number, self.device)
        elif self._mode == ShareMemoryMode.SHARE_MEMORY_MODE_DEFAULT and self._base is not None:
            self.device.Free(self._base)
        self._base = None
        self.context.close()


def _shaped(net: TnnNetwork, shapes: Mapping[str, Dims]) -> TnnNetwork:
    known = {item.name for item in net.structure.inputs}
    if unknown := [name for name in shapes if name not in known]:
        raise TnnError(StatusCode.TNNERR_PARAM_ERR, f"the network has no input '{unknown[0]}'")
    inputs = tuple(
        NetInput(item.name, tuple(shapes.get(item.name, item.dims)), item.data_type)
        for item in net.structure.inputs
    )
    return replace(net, structure=replace(net.structure, inputs=inputs))


def reformatted(layers: tuple[LayerInfo, ...]) -> tuple[LayerInfo, ...]:
    """Return layers with a Reformat between those of real numbers and those of codes."""
    codes: set[str] = set()
    made: list[LayerInfo] = []
    done: set[str] = set()
    for layer in layers:
        names = []
        for name in layer.inputs:
            if (name in codes) == layer.quantized:
                names.append(name)
                continue
            other = f"{name}:{'int8' if layer.quantized else 'float'}"
            if other not in done:
                made.append(LayerInfo("Reformat", other, (name,), (other,), quantized=layer.quantized))
                done.add(other)
            names.append(other)
        made.append(replace(layer, inputs=tuple(names)))
        if layer.quantized:
            codes.update(layer.outputs)
    return tuple(made)


class DefaultNetwork(AbstractNetwork):
    """A network whose layers run one after the other, each on its accelerator."""

    def _build(self) -> None:
        structure = self.net.structure
        self.layers: list[BaseLayer] = []
        infos = reformatted(structure.layers)
        self.blobs: dict[str, Blob] = {}
        for item in structure.inputs:
            self._blob(item.name, False, item.dims)
        for name, values in self.net.constants.items():
            self._blob(name, False, values.shape)
        for info in infos:
            for name in info.outputs:
                self._blob(name, info.quantized, ())
            layer = CreateLayer(info)
            self.layers.append(layer)
            taken, made = ([self.blobs[name] for name in names] for names in (info.inputs, info.outputs))
            resource = self.net.resources.get(info.name)
            layer.InferOutputShape(resource, taken, made)
            for blob in (*made, *taken):
                self._give_scale(blob)
            layer.Init(self.context, self.device, resource, taken, made)
        self.inputs = {item.name: self.blobs[item.name] for item in structure.inputs}
        self.outputs = {name: self.blobs[name] for name in structure.outputs}
        sizes = {name: self.device.Calculate(blob.desc) for name, blob in self.blobs.items()}
        lone = [*self.inputs, *(name for name in self.net.constants if name not in self.inputs)]
        steps = [(info.inputs, info.outputs) for info in infos]
        self.pool, self._blocks = plan_blobs(lone, steps, structure.outputs, sizes)
        self._size = self.pool.assign()

    def _blob(self, name: str, codes: bool, dims: Dims) -> None:
        kind = DataType.DATA_TYPE_INT8 if codes else DataType.DATA_TYPE_FLOAT
        self.blobs[name] = Blob(BlobDesc(self.config.device_type, kind, dims=dims, name=name))

    def _give_scale(self, blob: Blob) -> None:
        """Give an int8 blob its quantisation; a blob of a Reformat has that of its source."""
        if blob.desc.data_type != DataType.DATA_TYPE_INT8 or blob.scale is not None:
            return
        name = blob.desc.name.removesuffix(":int8")
        dims = blob.desc.dims
        try:
            blob.scale = self.net.scale_of(name, dims[1] if len(dims) > 1 else 1)
        except ModelError as error:
            raise TnnError(StatusCode.TNNERR_INVALID_MODEL, str(error)) from error

    def _place(self, base: Any, offset: int) -> None:
        for name, blob in self.blobs.items():
            blob.handle = BlobHandle(base, offset + self._blocks[name].offset)
        for name, values in self.net.constants.items():
            self.device.CopyToDevice(self.blobs[name].handle, values, self.blobs[name].desc)

    def _run(self) -> None:
        for layer in self.layers:
            layer.Forward()

    def GetForwardMemorySize(self) -> int:
        """Return the bytes of all blocks."""
        return self._size

    def blob_bytes(self) -> int:
        """Return the bytes of all blobs."""
        return sum(blob.desc.size for blob in self.blobs.values())

    def DeInit(self) -> None:
        """Release layers, memory and context."""
        for layer in self.layers:
            layer.DeInit()
        super().DeInit()


class RkNpuNetwork(AbstractNetwork):
    """A whole network as one plan of the compiler.

    Inputs and outputs are blobs of the host, so that instances which share memory can be used in turns; the
    forward memory has the plan's activations.
    """

    def _build(self) -> None:
        self._loaded: LoadedModel | None = None
        if self.config.device_type != DeviceType.DEVICE_RK3588:
            raise TnnError(StatusCode.TNNERR_NET_ERR, f"{self.config.device_type.name} has no such network")
        for layer in self.net.structure.layers:
            CreateLayer(layer)
        self.model = compiled(self.net)
        assert isinstance(self.context, Rk3588Context)
        self._loaded = LoadedModel(self.model, self.context.driver, outside=("activations",))
        host = get_device(DeviceType.DEVICE_NAIVE)
        for infos, blobs in ((self.model.inputs, self.inputs), (self.model.outputs, self.outputs)):
            for info in infos:
                desc = BlobDesc(DeviceType.DEVICE_NAIVE, dims=tuple(info.shape), name=info.name)
                blobs[info.name] = Blob(desc, BlobHandle(host.Allocate(desc.size, self.context)))

    def _place(self, base: Any, offset: int) -> None:
        assert self._loaded is not None
        try:
            self._loaded.use_region("activations", base, offset)
        except ModelError as error:
            raise TnnError(StatusCode.TNNERR_PARAM_ERR, str(error)) from error

    def _run(self) -> None:
        assert self._loaded is not None and isinstance(self.context, Rk3588Context)
        host = get_device(DeviceType.DEVICE_NAIVE)
        for index, blob in enumerate(self.inputs.values()):
            self._loaded.set_input(index, real_array(blob, host))
        self.context.cycles += self._loaded.run().cycles
        for index, blob in enumerate(self.outputs.values()):
            store(blob, host, self._loaded.get_output(index))

    def GetForwardMemorySize(self) -> int:
        """Return the bytes of the plan's activations."""
        return max(self.model.plan.activation_bytes, 64)

    def blob_bytes(self) -> int:
        """Return the bytes of the plan's tensors, each with memory of its own."""
        return max(self.model.plan.separate_bytes, 64)

    def DeInit(self) -> None:
        """Release plan, memory and context."""
        if self._loaded is not None:
            self._loaded.close()
        self._loaded = None
        super().DeInit()


NETWORKS: dict[NetworkType, type[AbstractNetwork]] = {
    NetworkType.NETWORK_TYPE_DEFAULT: DefaultNetwork,
    NetworkType.NETWORK_TYPE_RK_NPU: RkNpuNetwork,
}
"""Networks by type: TNN's NetworkImplManager."""


def create_network(net: TnnNetwork, config: NetworkConfig, shapes: Mapping[str, Dims]) -> AbstractNetwork:
    """Return a new network of the type that the configuration asks for.

    Raises
    ------
    TnnError
        If the type does not exist here, or the network cannot be created.
    """
    wanted = config.network_type
    if wanted == NetworkType.NETWORK_TYPE_AUTO:
        wanted = get_device(config.device_type).ConvertAutoNetworkType()
    if wanted not in NETWORKS:
        raise TnnError(StatusCode.TNNERR_NET_ERR, f"{wanted.name} is not a network here")
    return NETWORKS[wanted](net, config, shapes)


__all__ = ["SCALE_SUFFIX", "AbstractNetwork", "DefaultNetwork", "MemoryUse", "RkNpuNetwork", "create_network"]
