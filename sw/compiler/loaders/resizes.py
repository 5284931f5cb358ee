"""Resizes of floats by ratios without a convolution, as products with a matrix of weights.

Along an axis the results are M * x with a constant matrix M (results, elements).  x becomes the weights of
the CNA, as in a product of two activations, with a kernel for each line along the axis.

For the columns of a map (C, H, W) its atoms are moved to a matrix of W rows with H * C channels, for its rows
to one of H rows with W * C channels; the atoms of the product are moved back.  Zeros make whole atoms of the
channels and whole weight tiles of the resized axis.

A longer axis is divided into parts of the results, each with the elements that it needs.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np

from rkcosim.compiler.constraints.movements import order_in_memory, resize_matrix
from rkcosim.compiler.graph import Concat, Graph, ModelError, Op, Pad, Slice, Tensor
from rkcosim.compiler.graph_products import Factors, KernelAtoms, KernelTiles, Product
from rkcosim.compiler.limits import MOST_DEPTH
from rkcosim.compiler.loaders.node import Array, Cube, Shape
from rkcosim.compiler.permutation import Permute, loops, moves
from rkcosim.compiler.resampling import Resample, Sampling
from rkcosim.compiler.trial import check_operations
from rkcosim.spec.layouts.features import atom_channels
from rkcosim.spec.layouts.weights import channel_group

AXES = ("channels", "rows", "columns")


def add_resize(graph: Graph, label: str, op: Op, rows: Sampling, columns: Sampling) -> None:
    """Add a resize to the graph: the operation, or for floats of other ratios products.

    Parameters
    ----------
    graph
        The graph, which has the input and the output of the operation.
    label
        The node in messages.
    op
        The operation.
    rows, columns
        Places of its results.

    Raises
    ------
    ModelError
        If neither is possible for floats; the message names the axis and its sizes.
    """
    x, y = graph.tensors[op.inputs[0]], graph.tensors[op.output]
    if not x.real or rows.method == "nearest" or _possible(graph, op):
        graph.ops.append(op)
        return
    one = Sampling(rows.method, a=rows.a)
    axes = [(axis, places) for axis, places in ((1, rows), (2, columns)) if not _plain(places, x, y, axis)]
    # The axis that becomes longer is the second one.
    axes.sort(key=lambda item: y.cube[item[0]] / x.cube[item[0]])
    for number, (axis, places) in enumerate(axes):
        made = y
        if number < len(axes) - 1:
            made = _tensor(graph, y, f"{y.name}@resized", _with(x.cube, axis, y.cube[axis]))
        both = (places, one) if axis == 1 else (one, places)
        alone = Resample(op.name, (x.name,), made.name, *both)
        if _possible(graph, alone):
            graph.ops.append(alone)
        else:
            resize_matrix(label, places.method, AXES[axis], x.cube[axis], made.cube[axis], places.most)
            matrix = places.matrix(x.cube[axis], made.cube[axis])
            _add_products(graph, label, f"{op.name}.{AXES[axis]}", x, made, axis, matrix)
        x = made


def _add_products(
    graph: Graph, label: str, name: str, x: Tensor, y: Tensor, axis: int, matrix: Array
) -> None:
    """Add the products of an axis with at most `MOST_DEPTH` elements each; see `_Products.resize`."""
    if x.cube[axis] <= MOST_DEPTH:
        _Products(graph, label, name).resize(x, y, axis, matrix)
        return
    parts = []
    for number, (first, last) in enumerate(divided(matrix)):
        rows = matrix[first:last]
        used = np.flatnonzero(rows.any(axis=0))
        tile = channel_group()  # whole weight tiles, if the axis has as many elements
        length = min(-(-(int(np.ptp(used)) + 1) // tile) * tile, x.cube[axis])
        low = min(int(used[0]), x.cube[axis] - length)
        source = _tensor(graph, x, f"{y.name}@elements{number}", _with(x.cube, axis, length))
        begin = _with((0, 0, 0), axis, low)
        graph.ops.append(Slice(f"{name}.{number}.elements", (x.name,), source.name, begin))
        part = _tensor(graph, x, f"{y.name}@part{number}", _with(x.cube, axis, last - first))
        _Products(graph, label, f"{name}.{number}").resize(source, part, axis, rows[:, low : low + length])
        parts.append(part.name)
    graph.ops.append(Concat(f"{name}.joined", tuple(parts), y.name, axis=axis))


def divided(matrix: Array) -> list[tuple[int, int]]:
    """Return ranges of results, each with at most `MOST_DEPTH` neighbouring elements.

    They are about equally long: as many as needed for the longest axis, unless a part of it needs more.
    """
    count = -(-matrix.shape[1] // MOST_DEPTH)
    while True:
        ends = np.linspace(0, len(matrix), count + 1).astype(int)
        ranges = [(int(a), int(b)) for a, b in itertools.pairwise(ends) if a < b]
        if all(np.ptp(np.flatnonzero(matrix[a:b].any(axis=0))) < MOST_DEPTH for a, b in ranges):
            return ranges
        count += 1


def _plain(places: Sampling, x: Tensor, y: Tensor, axis: int) -> bool:
    return places.plain(x.cube[axis], y.cube[axis])


def _possible(graph: Graph, op: Op) -> bool:
    try:
        check_operations(graph, [op])
    except ModelError:
        return False
    return True


def _with(cube: Cube, axis: int, size: int) -> Cube:
    sizes = [*cube]
    sizes[axis] = size
    return sizes[0], sizes[1], sizes[2]


def _tensor(graph: Graph, like: Tensor, name: str, cube: Cube) -> Tensor:
    """Add a tensor of the type of `like`."""
    made = replace(like, name=name, shape=(1, *cube), cube=cube, channels_last=False)
    graph.tensors[name] = made
    return made


class _Products:
    """Makes the operations of one resized axis.

    Parameters
    ----------
    graph
        The graph.
    label
        The node in messages.
    name
        Name of the product.
    """

    def __init__(self, graph: Graph, label: str, name: str) -> None:
        self._graph, self._label, self._name = graph, label, name

    def resize(self, x: Tensor, y: Tensor, axis: int, matrix: Array) -> None:
        """Add operations that multiply `matrix` (results, elements) by an axis of a map.

        Parameters
        ----------
        x, y
            Input and output, of real numbers.
        axis
            1 for rows, 2 for columns.
        matrix
            The weights.

        Raises
        ------
        ModelError
            If the NPU cannot move the map, or has no tiles for the product.
        """
        graph, before = self._graph, len(self._graph.ops)
        out, size = matrix.shape
        spare, missing = -x.cube[0] % atom_channels(x.itemsize), -size % channel_group()
        if spare:
            wide = self._tensor(x, "wide", _with(x.cube, 0, x.cube[0] + spare))
            graph.ops.append(Pad(f"{self._name}.wide", (x.name,), wide.name, (0, 0, 0, 0), (0, spare)))
            x = wide
        if missing:
            padded = self._tensor(x, "padded", _with(x.cube, axis, size + missing))
            zeros = self._tensor(x, "zeros", _with(x.cube, axis, missing))
            graph.constants[zeros.name] = np.zeros(zeros.cube, np.float16)
            graph.ops.append(Concat(f"{self._name}.padded", (x.name, zeros.name), padded.name, axis=axis))
            x = padded
        channels, depth, across = x.cube[0], x.cube[axis], x.cube[3 - axis]
        factors = Factors(1, out, depth, channels * across, turned=False)
        order = (0, 1, 2) if axis == 1 else (1, 0, 2)
        stored = (x.cube[1], x.cube[2], channels)
        lines = self._moved(x, "lines", stored, order, (factors.columns, depth, 1))
        table: Array = np.zeros((depth, out, 1), np.float16)
        table[:size, :, 0] = matrix.T
        weights = self._tensor(x, "matrix", (depth, out, 1))
        graph.constants[weights.name] = table
        atoms = self._tensor(x, "atoms", factors.atoms_cube)
        tiles = self._tensor(x, "tiles", factors.tiles_cube)
        result = self._tensor(x, "product", (factors.columns, out, 1))
        graph.ops.append(KernelAtoms(f"{self._name}.atoms", (lines.name,), atoms.name, factors))
        graph.ops.append(KernelTiles(f"{self._name}.tiles", (atoms.name,), tiles.name, factors))
        graph.ops.append(Product(self._name, (weights.name, tiles.name), result.name, factors))
        stored = (out, across, channels)
        wide = self._moved(result, "map", stored, order, (channels, *y.cube[1:]))
        if spare:
            graph.ops.append(Slice(f"{self._name}.narrow", (wide.name,), y.name, (0, 0, 0)))
        else:
            del graph.tensors[wide.name]
            graph.ops[-1] = replace(graph.ops[-1], output=y.name)
        check_operations(graph, graph.ops[before:])

    def _tensor(self, like: Tensor, suffix: str, cube: Cube) -> Tensor:
        return _tensor(self._graph, like, f"{self._name}@{suffix}", cube)

    def _moved(self, x: Tensor, suffix: str, stored: Shape, order: Shape, cube: Cube) -> Tensor:
        """Add a move of atoms."""
        made = self._tensor(x, suffix, cube)
        found = loops(stored, order, (x.cube[0], cube[0]), atom_channels(x.itemsize))
        possible = found is not None and moves(found) is not None
        order_in_memory(self._label, x.cube, cube, possible)
        self._graph.ops.append(Permute(f"{self._name}.{suffix}", (x.name,), made.name, stored, order))
        return made
