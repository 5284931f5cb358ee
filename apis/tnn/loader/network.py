"""A whole network of TNN: its structure with the arrays of its layers, and its int8 blobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from rkcosim.apis.tnn.loader.bound import Bound, Dims
from rkcosim.apis.tnn.loader.proto import (
    NetStructure,
    check,
    read_proto,
    write_proto,
)
from rkcosim.apis.tnn.loader.resources import (
    SCALE_SUFFIX,
    Array,
    Resource,
    read_resources,
    write_resources,
)
from rkcosim.apis.tnn.loader.shapes import infer
from rkcosim.compiler.graph import ModelError

LIMITS = 2.0**-60, 2.0**60
"""Scales of blobs that are accepted; quotients of two of them are within the range of float32."""

SEPARATOR = b"\0"
"""Between the two files of a network that are passed as one; no text has it."""


@dataclass(frozen=True)
class BlobScale:
    """Quantisation of an int8 blob: real = (code - zero) * scale, with one scale or one per channel."""

    scale: Array
    zero: int

    @property
    def first(self) -> float:
        """The scale, or that of the first channel."""
        return float(self.scale[0])

    def ratio(self, rank: int) -> Array | None:
        """Return scales divided by the first one, in the shape of channels; None if there is one scale."""
        if self.scale.size == 1:
            return None
        shape = (1, self.scale.size) + (1,) * (rank - 2)
        return (self.scale / self.scale[0]).astype(np.float32).reshape(shape)


@dataclass(frozen=True)
class TnnNetwork:
    """A network with its resources.

    Members
    -------
    structure
        Inputs, outputs and layers.
    resources
        Arrays by layer name; scales of blobs under their name with `SCALE_SUFFIX`.
    constants
        Constant blobs by name (files of the second version).
    """

    structure: NetStructure
    resources: Mapping[str, Resource] = field(default_factory=dict)
    constants: Mapping[str, Array] = field(default_factory=dict)

    def bound(self, shapes: Mapping[str, Dims] | None = None) -> tuple[list[Bound], dict[str, Dims]]:
        """Return layers and blobs with their shapes, for other shapes of the inputs if given.

        Raises
        ------
        ModelError
            If a layer is not supported or does not fit.
        """
        given = {item.name: item.dims for item in self.structure.inputs} | dict(shapes or {})
        known = given | {name: array.shape for name, array in self.constants.items() if name not in given}
        return infer(self.structure.layers, self.resources, known)

    def scale_of(self, blob: str, channels: int) -> BlobScale:
        """Return the quantisation of an int8 blob.

        Raises
        ------
        ModelError
            If the `.tnnmodel` has none, or one that does not fit the blob.
        """
        found = self.resources.get(blob + SCALE_SUFFIX)
        if found is None:
            raise ModelError(f"blob '{blob}' of an int8 layer: the .tnnmodel has no {blob}{SCALE_SUFFIX}")
        scale = np.asarray(found["scale"], np.float32).reshape(-1)
        zeros = np.unique(np.asarray(found.get("zero_point", np.zeros(0)), np.int64))
        low, high = LIMITS
        if scale.size not in (1, channels) or not ((scale >= low) & (scale <= high)).all():
            raise ModelError(
                f"blob '{blob}' has {scale.size} scales, which are not all between {low:g} and {high:g}, for "
                f"{channels} channels"
            )
        if zeros.size > 1:
            raise ModelError(f"blob '{blob}' has a zero point for each channel, which is not supported")
        return BlobScale(scale, int(zeros[0]) if zeros.size else 0)


def join(proto: bytes, model: bytes) -> bytes:
    """Return the two files of a network as one."""
    return proto + SEPARATOR + model


def read_network(data: bytes) -> TnnNetwork:
    """Read a network from its files, joined by `join`.

    Raises
    ------
    ModelError
        If a file is damaged, or the second is missing; the message names layer and position.
    """
    proto, found, model = data.partition(SEPARATOR)
    structure = read_proto(proto)
    if not found:
        raise ModelError("the .tnnmodel with the arrays of this .tnnproto is missing")
    resources, constants = read_resources(model, structure)
    check(structure, constants)
    return TnnNetwork(structure, resources, constants)


def write_network(net: TnnNetwork) -> tuple[bytes, bytes]:
    """Return the bytes of the `.tnnproto` and the `.tnnmodel` file of a network.

    Raises
    ------
    ModelError
        If names or shapes cannot be written in the network's version.
    """
    return write_proto(net.structure), write_resources(net.structure, net.resources)


def layer_types(data: bytes) -> dict[str, int]:
    """Return the number of layers of each type of a network."""
    structure = read_proto(data.partition(SEPARATOR)[0])
    return dict(Counter(("Quantized" if x.quantized else "") + x.type for x in structure.layers))
