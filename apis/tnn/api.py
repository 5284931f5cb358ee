"""Models: TNN's class of the same name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from rkcosim.apis.tnn.config import ModelConfig, NetworkConfig
from rkcosim.apis.tnn.enums import DataFormat, ModelType
from rkcosim.apis.tnn.instance import FAILURES, Instance, as_status, returns_status
from rkcosim.apis.tnn.loader import TnnNetwork, join, read_network
from rkcosim.apis.tnn.loader.bound import Dims
from rkcosim.apis.tnn.status import TNN_OK, Status, StatusCode, TnnError


class TNN:
    """A model, from which instances are created."""

    def __init__(self) -> None:
        self._net: TnnNetwork | None = None

    @returns_status
    def Init(self, config: ModelConfig) -> None:
        """Read a model."""
        if config.model_type != ModelType.MODEL_TYPE_TNN:
            text = f"{config.model_type.name} is not read; MODEL_TYPE_TNN is"
            raise TnnError(StatusCode.TNNERR_FIND_MODEL, text)
        if len(config.params) < 2:
            text = "params has the contents of the .tnnproto and of the .tnnmodel file"
            raise TnnError(StatusCode.TNNERR_PARAM_ERR, text)
        proto, model = (one.encode() if isinstance(one, str) else bytes(one) for one in config.params[:2])
        self._net = read_network(join(proto, model))

    def DeInit(self) -> Status:
        """Forget the model; instances stay."""
        self._net = None
        return TNN_OK

    def _read(self) -> TnnNetwork:
        if self._net is None:
            raise TnnError(StatusCode.TNNERR_NET_ERR, "Init was not called, or failed")
        return self._net

    @returns_status
    def AddOutput(self, name: str, index: int = 0) -> None:
        """Make a blob, or output `index` of a layer, an output of the network."""
        net = self._read()
        structure = net.structure
        layers = {layer.name: layer for layer in structure.layers}
        if name not in structure.blobs and name in layers and 0 <= index < len(layers[name].outputs):
            name = layers[name].outputs[index]
        if name not in structure.blobs:
            raise TnnError(StatusCode.TNNERR_PARAM_ERR, f"the network has no blob and no layer '{name}'")
        if name not in structure.outputs:
            outputs = (*structure.outputs, name)
            self._net = replace(net, structure=replace(structure, outputs=outputs))

    def GetModelInputShapesMap(self) -> tuple[Status, dict[str, Dims]]:
        """Return the shapes of the inputs by name."""
        try:
            return TNN_OK, {item.name: item.dims for item in self._read().structure.inputs}
        except TnnError as error:
            return error.status, {}

    def CreateInst(
        self, config: NetworkConfig, inputs: Mapping[str, Dims] | None = None
    ) -> tuple[Status, Instance | None]:
        """Return a new instance.

        Parameters
        ----------
        config
            How it runs.
        inputs
            Shapes of inputs, for others than those of the file.
        """
        try:
            if config.data_format not in (DataFormat.DATA_FORMAT_AUTO, DataFormat.DATA_FORMAT_NCHW):
                text = f"{config.data_format.name} is not supported; blobs are NCHW"
                return Status(StatusCode.TNNERR_DATA_FORMAT, text), None
            return TNN_OK, Instance(self._read(), config, inputs or {})
        except FAILURES as error:
            return as_status(error), None
