"""Places of the elements of products of two activations, for the graph-level golden model."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rkcosim.compiler.steps import AtomsStep, ProductStep, TilesStep

Index = npt.NDArray[np.int64]


def _flat(place: tuple[Index, ...], cube: tuple[int, int, int]) -> Index:
    """Return positions in a cube (C, H, W), -1 outside."""
    inside = np.ones(np.broadcast(*place).shape, bool)
    for along, size in zip(place, cube, strict=True):
        inside &= (along >= 0) & (along < size)
    channel, row, column = place
    return np.where(inside, (channel * cube[1] + row) * cube[2] + column, -1)


def atoms_index(step: AtomsStep) -> Index:
    """Return the source of each element of an `AtomsStep`'s result, -1 for zeros."""
    x, y = step.inputs[0], step.output
    channel, kernel, atom = np.indices(y.cube)
    element = channel // 8 * 32 + 8 * atom + channel % 8
    channel, row = (element, kernel) if step.factors.turned else (kernel, element)
    return _flat((channel, row // x.cube[2], row % x.cube[2]), x.cube)


def tiles_index(step: TilesStep) -> Index:
    """Return the source of each element of a `TilesStep`'s result, -1 for zeros."""
    factors = step.factors
    channel, block, place = np.indices(step.output.cube)
    head, group = np.divmod(channel // 8, factors.groups)
    source = 8 * (block + head * factors.block_step) + channel % 8
    row = 16 * group + place // 4 + head * factors.row_step
    return _flat((source, row, place % 4), step.inputs[0].cube)


def _matrices(cube: tuple[int, int, int], heads: int, size: tuple[int, int], split: bool) -> Index:
    """Return the positions [heads, rows, channels] of matrices whose rows are pixels."""
    head, row, channel = np.indices((heads, *size))
    channel, row = (channel + head * size[1], row) if split else (channel, row + head * size[0])
    return _flat((channel, row // cube[2], row % cube[2]), cube)


def product_indices(step: ProductStep) -> tuple[Index, Index, Index]:
    """Return the positions of the elements of both factors and of the result of each head's product."""
    factors, (x, weights) = step.factors, step.inputs
    rows, depth, columns = factors.rows, factors.depth, factors.columns
    head, k, n = np.indices((factors.heads, depth, columns))
    channel = 8 * (n // 16 + head * factors.groups) + k % 8
    second = _flat((channel, k // 32, 4 * (n % 16) + k // 8 % 4), weights.cube)
    first = _matrices(x.cube, factors.heads, (rows, depth), factors.split_a)
    return first, second, _matrices(step.output.cube, factors.heads, (rows, columns), factors.split_y)
