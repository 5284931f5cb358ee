"""Weight stream of the task-level golden model: sizes and order of the tiles (docs/hardware.md 3.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cosim.golden.task.conv_types import INT8, decode

if TYPE_CHECKING:
    from cosim.golden.task.cna import ConvShape

ATOM = 16
DEPTHWISE_GROUP = 64
BLOCK_ATOMS = 4
"""Atoms that a tap of a whole depthwise block takes: 64 channels of int8, 32 of a 16-bit type."""


def tile_atoms(shape: ConvShape) -> list[int]:
    """Atoms of a kernel in the tile of each channel group; three count as four for the wide types."""
    full, left, out = shape.type.tile_atoms, shape.surfaces, []
    while left > 0:
        atoms = min(left, full)
        out.append(4 if atoms == 3 else atoms)
        left -= full
    return out


def block_atoms(shape: ConvShape) -> list[int]:
    """Atoms that a tap takes in each depthwise block; three in the last one count as four."""
    sizes = [min(BLOCK_ATOMS, shape.surfaces - first) for first in range(0, shape.surfaces, BLOCK_ATOMS)]
    return [BLOCK_ATOMS if atoms == 3 and not shape.three_atoms else atoms for atoms in sizes]


def group_bytes(shape: ConvShape) -> list[int]:
    """Weight bytes of each kernel group."""
    if shape.depthwise:
        blocks = block_atoms(shape)
        step = 1 if shape.type is INT8 else 2
        return [ATOM * shape.taps * sum(blocks[at : at + step]) for at in range(0, len(blocks), step)]
    kernel = sum(tile_atoms(shape)) * ATOM * shape.taps
    most = shape.type.kernels
    return [min(most, shape.kernels - most * group) * kernel for group in range(shape.groups)]


def unpack_weights(stream: NDArray[np.uint8], shape: ConvShape) -> NDArray:
    """Undo the tile order of a weight stream.

    Parameters
    ----------
    stream
        uint8, at least the bytes of all groups.

    Returns
    -------
    Elements as `decode` has them: [channel groups, taps, lanes of a channel group, kernels] of a direct
    convolution, lanes past a tile's atoms 0; [taps, groups * 64] of a depthwise one, channels past the
    last block 0.
    """
    elements = decode(shape.type, stream[: sum(group_bytes(shape))])
    if shape.depthwise:
        counts = np.array(block_atoms(shape)) * shape.type.per_atom
        parts = np.split(elements, np.cumsum(counts * shape.taps)[:-1])
        tiles = np.concatenate([part.reshape(shape.taps, -1) for part in parts], axis=1)
        return np.pad(tiles, ((0, 0), (0, shape.groups * DEPTHWISE_GROUP - tiles.shape[1])))
    lanes, most = shape.type.channels, shape.type.kernels
    atoms = tile_atoms(shape)
    out = np.zeros((len(atoms), shape.taps, lanes, shape.kernels), elements.dtype)
    at = 0
    for k in range(0, shape.kernels, most):
        n = min(most, shape.kernels - k)
        for group, count in enumerate(atoms):
            m = count * shape.type.per_atom
            tile = elements[at : at + n * m * shape.taps].reshape(shape.taps, n, m)
            out[group, :, :m, k : k + n] = tile.transpose(0, 2, 1)
            at += tile.size
    return out
