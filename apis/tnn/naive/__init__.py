"""The device NAIVE: the host, with every layer written from its definition in numpy.

It is the standard that the other device is compared with.  Layers of real numbers compute in float64 and
round once to float32; int8 layers compute exact sums of codes.  No layer uses a kernel of `rkcosim.hostops`,
with which the compiler computes its steps on the host: a fault of such a kernel would be on both sides of
the comparison.  Only the rounding of codes is shared; the compiler rounds halves to even, TNN away from zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rkcosim.apis.tnn.blob import Array, Blob, BlobHandle, dequantised, quantised
from rkcosim.apis.tnn.device import AbstractDevice, AbstractLayerAcc, Context, is_int8, register_device
from rkcosim.apis.tnn.enums import DeviceType, NetworkType
from rkcosim.apis.tnn.naive import arithmetic, moves, windows  # noqa: F401 - they register their layers
from rkcosim.apis.tnn.naive.table import CODED, FUNCTIONS
from rkcosim.apis.tnn.status import StatusCode, TnnError
from rkcosim.compiler.graph import ModelError


class NaiveLayerAcc(AbstractLayerAcc):
    """A layer that the host computes."""

    def Forward(self, inputs: Sequence[Blob], outputs: Sequence[Blob]) -> None:
        """Compute the outputs from the inputs."""
        x = [self.device.array(blob.handle, blob.desc) for blob in inputs]
        y = [self.device.array(blob.handle, blob.desc) for blob in outputs]
        for target, values in zip(y, self._results(inputs, outputs, x), strict=True):
            target[...] = values

    def _results(self, inputs: Sequence[Blob], outputs: Sequence[Blob], x: list[Array]) -> list[Array]:
        b = self.bound
        try:
            with np.errstate(all="ignore"):
                if b.layer.type == "Reformat":
                    return [_reformatted(inputs[0], outputs[0], x[0])]
                if not b.layer.quantized:
                    return FUNCTIONS[b.layer.type](b, [one.astype(np.float64) for one in x])
                scales = [[_scale(blob) for blob in blobs] for blobs in (inputs, outputs)]
                if b.layer.type in CODED:
                    return CODED[b.layer.type](b, x, *scales)
                reals = [
                    dequantised(one, scale).astype(np.float64)
                    for one, scale in zip(x, scales[0], strict=True)
                ]
                made = FUNCTIONS[b.layer.type](b, reals)
                return [quantised(one, scale) for one, scale in zip(made, scales[1], strict=True)]
        except ModelError as error:
            raise TnnError(StatusCode.TNNERR_LAYER_ERR, str(error)) from error


def _scale(blob: Blob) -> Any:
    assert blob.scale is not None, blob.desc.name
    return blob.scale


def _reformatted(source: Blob, target: Blob, x: Array) -> Array:
    return dequantised(x, _scale(source)) if is_int8(source) else quantised(x, _scale(target))


class NaiveDevice(AbstractDevice):
    """The host."""

    device_type = DeviceType.DEVICE_NAIVE

    def __init__(self) -> None:
        self.accelerators = dict.fromkeys((*FUNCTIONS, "Reformat"), NaiveLayerAcc)

    def Allocate(self, size: int, context: Context) -> Array:
        """Return zeroed bytes."""
        return np.zeros(size, np.uint8)

    def Free(self, base: Any) -> None:
        """Do nothing: the memory is Python's."""

    def view(self, handle: BlobHandle, size: int) -> Array:
        """Return bytes of memory."""
        if not 0 <= handle.bytes_offset <= handle.base.size - size:
            raise TnnError(
                StatusCode.TNNERR_OUTOFMEMORY,
                f"{size} bytes from {handle.bytes_offset} exceed the memory of {handle.base.size} bytes",
            )
        made: Array = handle.base[handle.bytes_offset : handle.bytes_offset + size]
        return made

    def CreateContext(self, device_id: int, engine: str | None = None) -> Context:
        """Return a context, which has nothing."""
        return Context()

    def ConvertAutoNetworkType(self) -> NetworkType:
        """Return NETWORK_TYPE_DEFAULT."""
        return NetworkType.NETWORK_TYPE_DEFAULT


register_device(NaiveDevice())
