"""NAIVE as a reference for `rkcosim compare` and `rkcosim run`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.apis.tnn.blob import dequantised, quantised
from rkcosim.apis.tnn.config import NetworkConfig
from rkcosim.apis.tnn.device import elements_of, is_int8
from rkcosim.apis.tnn.loader import TnnNetwork, read_network
from rkcosim.apis.tnn.loader.resources import SCALE_SUFFIX
from rkcosim.apis.tnn.network import DefaultNetwork
from rkcosim.apis.tnn.status import TnnError
from rkcosim.compiler.graph import Tensor, to_cube
from rkcosim.measure.models.references import AnyModel, ReferenceProblem, Sampled


class NaiveReference(Sampled):
    """A network on NAIVE, which keeps the blobs that the compiled network has as well.

    Parameters
    ----------
    data
        Bytes of both files of the network.
    model
        The compiled network.

    Raises
    ------
    ReferenceProblem
        If NAIVE cannot run the network.
    """

    keeps_floats = True
    rounded: frozenset[str] = frozenset()

    def __init__(self, data: bytes, model: AnyModel) -> None:
        net = read_network(data)
        self._net, self._outputs = net, net.structure.outputs
        self._seen = {name.removesuffix("::codes") for name in model.graph.tensors}
        self.name = "NAIVE"
        self._blobs: dict[str, npt.NDArray[Any]] = {}
        self._codes: dict[str, npt.NDArray[Any]] = {}
        self._model = model
        try:
            self._network = DefaultNetwork(_keeping(net, self._seen), NetworkConfig(), {})
        except TnnError as error:
            raise ReferenceProblem(f"NAIVE refuses the network: {error}") from error

    def run(self, inputs: Sequence[npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
        """Run once; see `Reference`."""
        network = self._network
        for values, blob in zip(inputs, network.inputs.values(), strict=True):
            network.device.CopyToDevice(blob.handle, np.asarray(values, np.float32), blob.desc)
        try:
            network.Forward()
        except TnnError as error:
            raise ReferenceProblem(f"NAIVE fails on the network: {error}") from error
        for name, blob in {**network.inputs, **network.outputs}.items():
            values = elements_of(network.device, blob)
            if is_int8(blob):
                assert blob.scale is not None
                self._codes[name], values = values, dequantised(values, blob.scale)
            elif name + SCALE_SUFFIX in self._net.resources:  # an int8 layer reads it
                dims = blob.desc.dims
                scale = self._net.scale_of(name, dims[1] if len(dims) > 1 else 1)
                self._codes[name] = quantised(values, scale)
            self._blobs[name] = values
        return [self._blobs[name] for name in self._outputs]

    def cube(self, tensor: Tensor) -> npt.NDArray[Any] | None:
        """Codes or numbers of a tensor; see `Reference`."""
        name = tensor.name.removesuffix("::codes")
        values = (self._blobs if tensor.real or tensor.host else self._codes).get(name)
        values = None if values is None else self._of_sample(tensor.name, values)
        if values is None or values.size != tensor.elements:
            return None
        values = values.reshape(tensor.shape)
        return values if tensor.host else to_cube(values, tensor)


def _keeping(net: TnnNetwork, names: set[str]) -> TnnNetwork:
    """Return a network whose outputs are also the blobs with these names."""
    structure = net.structure
    more = [name for name in structure.blobs if name in names and name not in structure.outputs]
    inputs = {item.name for item in structure.inputs}
    outputs = (*structure.outputs, *(name for name in more if name not in inputs))
    return replace(net, structure=replace(structure, outputs=outputs))
