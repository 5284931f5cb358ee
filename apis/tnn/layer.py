"""Layers, registered by type: shapes of their outputs, and the accelerator that computes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rkcosim.apis.tnn.blob import Blob
from rkcosim.apis.tnn.device import AbstractDevice, AbstractLayerAcc, Context
from rkcosim.apis.tnn.loader.bound import Bound
from rkcosim.apis.tnn.loader.proto import LayerInfo
from rkcosim.apis.tnn.loader.resources import Resource
from rkcosim.apis.tnn.loader.shapes import SHAPES, bind
from rkcosim.apis.tnn.status import StatusCode, TnnError
from rkcosim.compiler.graph import ModelError


class BaseLayer:
    """A layer of a network on a device.

    Parameters
    ----------
    info
        The layer of the network's structure.
    """

    def __init__(self, info: LayerInfo) -> None:
        self.info = info
        self.acc: AbstractLayerAcc | None = None
        self.inputs: Sequence[Blob] = ()
        self.outputs: Sequence[Blob] = ()

    def InferOutputShape(
        self, resource: Resource | None, inputs: Sequence[Blob], outputs: Sequence[Blob]
    ) -> Bound:
        """Set the shapes of the outputs, and return the layer with its parameters.

        Raises
        ------
        TnnError
            If parameters, arrays and shapes do not fit.
        """
        try:
            bound = bind(self.info, resource, [blob.desc.dims for blob in inputs])
        except ModelError as error:
            raise TnnError(StatusCode.TNNERR_PARAM_ERR, str(error)) from error
        for blob, dims in zip(outputs, bound.outputs, strict=True):
            blob.desc = replace(blob.desc, dims=dims)
        return bound

    def Init(
        self,
        context: Context,
        device: AbstractDevice,
        resource: Resource | None,
        inputs: Sequence[Blob],
        outputs: Sequence[Blob],
    ) -> None:
        """Infer shapes and create the accelerator.

        Raises
        ------
        TnnError
            If the device has no accelerator for the type, or the accelerator refuses the layer.
        """
        self.inputs, self.outputs = inputs, outputs
        bound = self.InferOutputShape(resource, inputs, outputs)
        self.acc = device.CreateLayerAcc(self.info.type)
        if self.acc is None:
            raise TnnError(
                StatusCode.TNNERR_CREATE_LAYER,
                f"{self.info.label}: {device.device_type.name} has no accelerator for this type",
            )
        self.acc.Init(device, context, bound, inputs, outputs)

    def Forward(self) -> None:
        """Compute the outputs."""
        if self.acc is None:
            raise TnnError(StatusCode.TNNERR_INIT_LAYER, f"{self.info.label}: Forward before Init")
        self.acc.Forward(self.inputs, self.outputs)

    def DeInit(self) -> None:
        """Release the accelerator."""
        acc, self.acc = self.acc, None
        if acc is not None:
            acc.DeInit()


class ReformatLayer(BaseLayer):
    """Codes from real numbers, or the reverse, between layers of both kinds; no file has this type."""

    def InferOutputShape(
        self, resource: Resource | None, inputs: Sequence[Blob], outputs: Sequence[Blob]
    ) -> Bound:
        """Set the shape of the output, which is that of the input."""
        dims = inputs[0].desc.dims
        outputs[0].desc = replace(outputs[0].desc, dims=dims)
        return Bound(self.info, {}, {}, (dims,), (dims,))


_LAYERS: dict[str, type[BaseLayer]] = {**dict.fromkeys(SHAPES, BaseLayer), "Reformat": ReformatLayer}


def register_layer(layer_type: str, made: type[BaseLayer]) -> None:
    """Register the class of a layer type: TNN's TypeLayerRegister."""
    _LAYERS[layer_type] = made


def CreateLayer(info: LayerInfo) -> BaseLayer:
    """Return a new layer.

    Raises
    ------
    TnnError
        If its type is not registered.
    """
    if info.type not in _LAYERS:
        raise TnnError(
            StatusCode.TNNERR_UNKNOWN_LAYER, f"{info.label}: layers of this type are not supported"
        )
    return _LAYERS[info.type](info)
