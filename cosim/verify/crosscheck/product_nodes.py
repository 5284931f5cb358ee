"""Places of the elements of products of two activations, for the graph-level golden model."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rkcosim.compiler.steps import AtomsStep, ByteTilesStep, PermuteStep, ProductStep, SumsStep, TilesStep

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


def permuted_index(step: PermuteStep) -> Index:
    """Return the source of each element of a `PermuteStep`'s result."""
    x, y = step.inputs[0].cube, step.output.cube
    count = int(np.prod(x))
    memory = np.arange(count).reshape(step.stored).transpose(step.order).reshape(y[1], y[2], y[0])
    pixel, channel = np.divmod(memory.transpose(2, 0, 1), x[0])
    return channel * (count // x[0]) + pixel


def unread(step: AtomsStep | TilesStep) -> npt.NDArray[np.bool_] | None:
    """Return which elements of a result belong to kernels that no product has; None if there are none.

    They are lanes of the last atom behind the channels of a tensor, which a function or a sum may have
    changed from zero: nothing reads them.
    """
    if isinstance(step, TilesStep):
        channel, _, place = np.indices(step.output.cube)
        kernel = 16 * (channel // 8 % step.factors.groups) + place // 4
        beyond = kernel >= step.factors.columns
    elif step.factors.turned:
        return None
    else:
        beyond = np.indices(step.output.cube)[1] >= step.inputs[0].cube[0]
    return beyond if beyond.any() else None


def byte_tiles_index(step: ByteTilesStep) -> Index:
    """Return the source of each element of a `ByteTilesStep`'s result, -1 for zeros."""
    factors, x = step.factors, step.inputs[0]
    channel, block, place = np.indices(step.output.cube)
    head, group = np.divmod(channel // 16, factors.groups)
    depth, kernel = 32 * block + 16 * (place % 2) + channel % 16, 32 * group + place // 2
    inside = (depth < factors.depth) & (kernel < factors.columns)
    channel, row = (depth, kernel) if factors.turned else (kernel, depth)
    channels, rows = (factors.depth, factors.columns) if factors.turned else (factors.columns, factors.depth)
    channel, row = (channel + head * channels, row) if factors.split_b else (channel, row + head * rows)
    index = _flat((channel, row // x.cube[2], row % x.cube[2]), x.cube)
    return np.where(inside, index, -1)


def _weights_index(step: ProductStep | SumsStep, cube: tuple[int, int, int], columns: int) -> Index:
    """Return the positions [heads, depth, columns] of the elements of the kernels in the weights."""
    factors = step.factors
    head, k, n = np.indices((factors.heads, factors.depth, columns))
    group, atom, parts = factors.group, factors.atom, factors.block_atoms
    channel = atom * (n // group + head * factors.groups) + k % atom
    return _flat((channel, k // 32, parts * (n % group) + k // atom % parts), cube)


def sums_index(step: SumsStep) -> Index:
    """Return the positions of the elements of all kernels, also of those that fill a group."""
    factors = step.factors
    return _weights_index(step, step.inputs[0].cube, factors.groups * factors.group)


def _matrices(cube: tuple[int, int, int], heads: int, size: tuple[int, int], split: bool) -> Index:
    """Return the positions [heads, rows, channels] of matrices whose rows are pixels."""
    head, row, channel = np.indices((heads, *size))
    channel, row = (channel + head * size[1], row) if split else (channel, row + head * size[0])
    return _flat((channel, row // cube[2], row % cube[2]), cube)


def product_indices(step: ProductStep) -> tuple[Index, Index, Index]:
    """Return the positions of the elements of both factors and of the result of each head's product."""
    factors, (x, weights, *_) = step.factors, step.inputs
    rows, depth, columns = factors.rows, factors.depth, factors.columns
    second = _weights_index(step, weights.cube, columns)
    first = _matrices(x.cube, factors.heads, (rows, depth), factors.split_a)
    return first, second, _matrices(step.output.cube, factors.heads, (rows, columns), factors.split_y)
