"""NAIVE's layers that move elements, from their definitions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rkcosim.apis.tnn.blob import Array
from rkcosim.apis.tnn.loader.bound import Bound
from rkcosim.apis.tnn.loader.network import BlobScale
from rkcosim.apis.tnn.loader.shapes import order, paddings, ranges, slices
from rkcosim.apis.tnn.naive.table import FUNCTIONS, coded, naive


@naive("Concat")
def _concat(b: Bound, x: Sequence[Array]) -> list[Array]:
    return [np.concatenate(x, axis=b.axis(b.params["axis"]))]


@naive("SplitV")
def _split(b: Bound, x: Sequence[Array]) -> list[Array]:
    axis, sizes = b.axis(b.params["axis"]), slices(b)
    return [part.copy() for part in np.split(x[0], np.cumsum(sizes)[:-1], axis=axis)]


@naive("Reshape", "Flatten", "Squeeze", "Unsqueeze")
def _reshape(b: Bound, x: Sequence[Array]) -> list[Array]:
    dims = b.outputs[0]
    if b.params.get("reshape_type", 0) == 0:
        return [x[0].reshape(dims)]
    last = np.moveaxis(x[0], 1, -1)  # the elements keep their order with the channels last
    return [np.moveaxis(last.reshape((dims[0], *dims[2:], dims[1])), -1, 1)]


@naive("Permute")
def _permute(b: Bound, x: Sequence[Array]) -> list[Array]:
    return [x[0].transpose(order(b))]


@naive("StridedSlice", "StridedSliceV2")
def _slice(b: Bound, x: Sequence[Array]) -> list[Array]:
    return [x[0][np.ix_(*(range(*one) for one in ranges(b)))]]


@naive("Pad", "PadV2")
def _pad(b: Bound, x: Sequence[Array]) -> list[Array]:
    widths = list(zip(*paddings(b), strict=True))
    if b.params["type"] == 0:
        return [np.pad(x[0], widths, constant_values=b.params["value"])]
    return [np.pad(x[0], widths, mode="reflect" if b.params["type"] == 1 else "edge")]


@naive("PixelShuffle")
def _pixel_shuffle(b: Bound, x: Sequence[Array]) -> list[Array]:
    (n, c, h, w), factor = b.map(), b.params["upscale_factor"]
    blocks = x[0].reshape(n, c // factor**2, factor, factor, h, w)
    return [blocks.transpose(0, 1, 4, 2, 5, 3).reshape(b.outputs[0])]


@naive("ShuffleChannel")
def _shuffle(b: Bound, x: Sequence[Array]) -> list[Array]:
    n, c, *size = b.inputs[0]
    groups = x[0].reshape(n, b.params["group"], c // b.params["group"], *size)
    return [groups.swapaxes(1, 2).reshape(b.inputs[0])]


@naive("Const")
def _const(b: Bound, x: Sequence[Array]) -> list[Array]:
    return [b.array("weight").astype(np.float64).reshape(b.outputs[0])]


@coded("Reshape", "Permute", "Flatten")
def _coded_move(
    b: Bound, x: Sequence[Array], before: Sequence[BlobScale], after: Sequence[BlobScale]
) -> list[Array]:
    """Codes move unchanged."""
    return FUNCTIONS[b.layer.type](b, x)


@coded("ReLU")
def _coded_relu(
    b: Bound, x: Sequence[Array], before: Sequence[BlobScale], after: Sequence[BlobScale]
) -> list[Array]:
    """Codes below that of 0 become that code."""
    return [np.maximum(x[0], np.int8(before[0].zero))]
