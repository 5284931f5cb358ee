"""Products of two activations, and the transpositions and reshapes around them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rkcosim.compiler import graph as g
from rkcosim.compiler.graph import Graph, ModelError, Tensor
from rkcosim.compiler.graph_products import (
    ByteTiles,
    ColumnSums,
    Factors,
    KernelAtoms,
    KernelTiles,
    Product,
)
from rkcosim.compiler.loaders.node import Array, Cube, Pending, Shape, natural_cube
from rkcosim.compiler.loaders.views import View, rows_cube, settled_cube, view_of
from rkcosim.compiler.permutation import Permute, loops, moves
from rkcosim.spec.layouts.features import atom_channels
from rkcosim.spec.layouts.weights import channel_group


@dataclass(frozen=True)
class Matrices:
    """Matrices in a tensor: the tensor's name, their number and size, whether they are ranges of channels."""

    tensor: str
    heads: int
    rows: int
    columns: int
    split: bool


@dataclass(frozen=True)
class ConstantMatrices:
    """A factor (..., K, N) that is known when the model is read.

    Members
    -------
    numbers
        fp16 numbers, or signed codes.
    scale, zero_point
        Of codes.
    """

    numbers: Array
    scale: float = 1.0
    zero_point: int = 0

    @property
    def shape(self) -> Shape:
        """Shape of the factor."""
        return self.numbers.shape

    def tiles(self, factors: Factors) -> Array:
        """Return the cube of the weights of all heads, as `KernelTiles` and `ByteTiles` make it."""
        depth, kernels = factors.blocks * channel_group(), factors.groups * factors.group
        whole = np.zeros((factors.heads, kernels, depth), self.numbers.dtype)
        heads = self.numbers.reshape(-1, *self.shape[-2:])
        whole[:, : factors.columns, : factors.depth] = heads.swapaxes(1, 2)
        split = whole.reshape(
            factors.heads,
            factors.groups,
            factors.group,
            factors.blocks,
            factors.block_atoms,
            factors.atom,
        )
        return np.ascontiguousarray(split.transpose(0, 1, 5, 3, 2, 4).reshape(factors.tiles_cube))


class ProductBuilder:
    """Makes operations of one MatMul of two activations.

    Parameters
    ----------
    graph
        The graph to which operations and tensors are added.
    label, name, output
        The node in messages, its name, and the name of its result.
    itemsize
        Bytes of an element: 2 for fp16, 1 for codes.
    """

    def __init__(self, graph: Graph, label: str, name: str, output: str, itemsize: int = 2) -> None:
        self.graph, self.label, self.name, self.output = graph, label, name, output
        self.itemsize, self.atom = itemsize, atom_channels(itemsize)

    def product(self, a: View, b: View | ConstantMatrices, cube: Cube | None = None) -> Pending:
        """Add the operations of the factors of ``a * b`` and return the product itself.

        Parameters
        ----------
        a, b
            The factors (..., M, K) and (..., K, N).
        cube
            Cube of the result; None for (N, heads * M, 1). It must hold the elements in the same order.

        Raises
        ------
        ModelError
            If the factors have different numbers of matrices, or the result is too large.
        """
        leading, left, source, factors = self._factors(a, b, False)
        return self._pending(leading, self._inputs(left, source, factors), factors, cube)

    def joined(self, a: View, b: View | ConstantMatrices, like: Tensor) -> View | Pending:
        """Add the operations of ``a * b`` with the heads of the result as ranges of channels, if possible.

        Parameters
        ----------
        a, b
            The factors as in `product`.
        like
            A tensor with the type and the quantisation of the result.

        Raises
        ------
        ModelError
            As `product`.
        """
        leading, left, source, factors = self._factors(a, b, True)
        inputs = self._inputs(left, source, factors)
        if not factors.split_y:
            return self._pending(leading, inputs, factors, None)
        cube = (factors.heads * factors.columns, factors.rows, 1)
        # The heads lie in another order than in the model's value, which a view describes.
        name, shape = f"{self.output}@heads", (1, cube[1], cube[0])
        self.graph.tensors[name] = replace(like, name=name, shape=shape, cube=cube)
        self.graph.ops.append(Product(self.name, inputs, name, factors))
        batch = len(leading)
        stored = (factors.rows, *leading, factors.columns)
        return View(name, cube[0], stored, (*range(1, batch + 1), 0, batch + 1))

    def _pending(
        self, leading: Shape, inputs: tuple[str, ...], factors: Factors, cube: Cube | None
    ) -> Pending:
        shape = (*leading, factors.rows, factors.columns)
        product = Product(self.name, inputs, "", factors)
        return Pending(product, shape, cube or rows_cube(shape), real=self.itemsize > 1)

    def _inputs(self, left: Matrices, source: str | ConstantMatrices, factors: Factors) -> tuple[str, ...]:
        """Add the operations that a product needs before it and return its inputs."""
        if isinstance(source, ConstantMatrices):
            return self._with_sums(left, self._constant(source, factors), factors)
        tiles = self._tensor("weights", factors.tiles_cube, source)
        name, inputs = f"{self.name}.weights", (left.tensor, tiles.name)
        if self.itemsize > 1:
            atoms = self._tensor("atoms", factors.atoms_cube, source)
            self.graph.ops.append(KernelAtoms(f"{self.name}.atoms", (source,), atoms.name, factors))
            self.graph.ops.append(KernelTiles(name, (atoms.name,), tiles.name, factors))
            return inputs
        self.graph.ops.append(ByteTiles(name, (source,), tiles.name, factors))
        return self._with_sums(left, tiles, factors)

    def _constant(self, matrices: ConstantMatrices, factors: Factors) -> Tensor:
        """Add the weights of all heads to the graph."""
        name, cube = f"{self.output}@weights", factors.tiles_cube
        made = Tensor(name, (1, *cube), matrices.scale, matrices.zero_point, cube, real=self.itemsize > 1)
        self.graph.tensors[name], self.graph.constants[name] = made, matrices.tiles(factors)
        return made

    def _with_sums(self, left: Matrices, tiles: Tensor, factors: Factors) -> tuple[str, ...]:
        """Return the inputs of a product; the first factor's zero point needs the sums of the weights."""
        inputs, zero = (left.tensor, tiles.name), self.graph.tensors[left.tensor].zero_point
        if not zero:
            return inputs
        sums = Tensor(f"{self.output}@sums", (1, *factors.sums_cube), 1.0, 0, factors.sums_cube)
        self.graph.tensors[sums.name] = sums
        self.graph.ops.append(ColumnSums(f"{self.name}.sums", (tiles.name,), sums.name, factors, zero))
        return *inputs, sums.name

    def _factors(
        self, a: View, b: View | ConstantMatrices, split: bool
    ) -> tuple[Shape, Matrices, str | ConstantMatrices, Factors]:
        """Return leading axes and sizes of a product, its first factor, and the tensor of the second one."""
        first, second = a.shape, b.shape
        batches = [_without_ones(shape[:-2]) for shape in (first, second)]
        if min(len(first), len(second)) < 2 or batches[0] != batches[1] or first[-1] != second[-2]:
            raise ModelError(f"{self.label}: {first} times {second} is not supported on the NPU")
        leading = max(first[:-2], second[:-2], key=len)
        left = self._left(a)
        columns = second[-1]
        if isinstance(b, ConstantMatrices):
            right, turned = Matrices("", left.heads, columns, left.columns, False), True
        else:
            right, turned = self._right(b)
        split = split and left.heads > 1 and columns % self.atom == 0
        flags = {"split_a": left.split, "split_b": right.split, "split_y": split, "turned": turned}
        factors = Factors(left.heads, left.rows, left.columns, columns, **flags, itemsize=self.itemsize)
        if isinstance(b, ConstantMatrices):
            return leading, left, b, factors
        return leading, left, right.tensor if turned else self._whole_tiles(right), factors

    def _tensor(self, suffix: str, cube: Cube, like: str) -> Tensor:
        """Add a tensor of the type and quantisation of `like`."""
        name = f"{self.output}@{suffix}"
        tensor = replace(
            self.graph.tensors[like], name=name, shape=(1, *cube), cube=cube, channels_last=False
        )
        self.graph.tensors[name] = tensor
        return tensor

    def _left(self, a: View) -> Matrices:
        """Return the first factor with its depth in whole weight tiles, or with zeros behind it."""
        return self._rows(a) or self._straight(a, "a", self._rows) or self._by_host(a, "a")

    def _right(self, b: View) -> tuple[Matrices, bool]:
        """Return the second factor, and whether its rows are the columns of the product."""
        count = len(b.shape)
        swapped = b.transposed((*range(count - 2), count - 1, count - 2))
        if (found := self._rows(swapped)) is not None:
            return found, True
        if (found := self._columns(b)) is not None:
            return found, False
        if (found := self._straight(swapped, "b", self._rows)) is not None:
            return found, True
        if (found := self._straight(b, "b", self._columns)) is not None:
            return found, False
        return self._by_host(swapped, "b"), True

    def _rows(self, view: View) -> Matrices | None:
        """Return matrices whose rows are pixels, with the depth in the channels; None for others."""
        found = view.matrices()
        if found is None:
            return None
        heads, rows, columns, split = found
        split = split and heads > 1
        whole = columns % channel_group() == 0
        fits = whole or (not split and self._padded(view.tensor))
        return Matrices(view.tensor, heads, rows, columns, split) if fits else None

    def _columns(self, view: View) -> Matrices | None:
        """Return matrices whose columns are channels, with the depth in the pixels; None for others."""
        found = view.matrices()
        if found is None:
            return None
        heads, rows, columns, split = found
        split = split and heads > 1
        aligned = columns % self.atom == 0 or (not split and self._clean(view.tensor))
        fits = aligned and (rows % channel_group() == 0 or heads == 1 or split)
        return Matrices(view.tensor, heads, rows, columns, split) if fits else None

    def _straight(
        self, view: View, suffix: str, accept: Callable[[View], Matrices | None]
    ) -> Matrices | None:
        """Let the NPU bring a factor into order; None if it cannot or the result is not accepted."""
        straight = straightened(self.graph, view, f"{self.output}@{suffix}")
        if straight is None:
            return None
        kept = dict(self.graph.tensors), list(self.graph.ops)
        found = accept(straight.add(self.graph))
        if found is None:
            self.graph.tensors, self.graph.ops[:] = kept
        return found

    def _whole_tiles(self, b: Matrices) -> str:
        """Return the second factor with zeros behind its rows, so that these are whole weight tiles."""
        tensor = self.graph.tensors[b.tensor]
        rows = b.rows if b.split or b.heads == 1 else b.heads * b.rows
        missing = -rows % channel_group()
        channels = tensor.cube[0]
        if not missing:
            return self._matrix(b.tensor, rows)
        zeros = self._tensor("zeros", (channels, missing, 1), b.tensor)
        self.graph.constants[zeros.name] = np.zeros(zeros.cube, tensor.dtype)
        padded = self._tensor("rows", (channels, rows + missing, 1), b.tensor)
        inputs = (self._matrix(b.tensor, rows), zeros.name)
        self.graph.ops.append(g.Concat(f"{self.name}.rows", inputs, padded.name, axis=1))
        return padded.name

    def _matrix(self, name: str, rows: int) -> str:
        """Return the name of a tensor with its pixels as rows of one column."""
        tensor = self.graph.tensors[name]
        cube = (tensor.cube[0], rows, 1)
        if tensor.cube == cube:
            return name
        other = f"{name}@{rows}x1"
        self.graph.tensors[other] = replace(tensor, name=other, shape=(1, *cube), cube=cube)
        self.graph.aliases[other] = name
        return other

    def _padded(self, name: str) -> bool:
        """Whether memory has zeros in the channels behind the last one up to a whole weight tile.

        The host writes whole surfaces, and a product whole weight tiles; so does a convolution of bytes.
        """
        root = self.graph.root(name)
        makers = [op for op in self.graph.ops if root in (op.output, *getattr(op, "more", ()))]
        return all(
            isinstance(op, g.OnHost | g.HostPart | Product)
            or (self.itemsize == 1 and isinstance(op, g.Conv) and not op.depthwise and op.insert == (1, 1))
            for op in makers
        )

    def _clean(self, name: str) -> bool:
        """Whether the elements behind the channels of the last atom are zeros."""
        return self.itemsize > 1 or self._padded(name)

    def _by_host(self, view: View, suffix: str) -> Matrices:
        """Let the host bring a factor into rows."""
        shape = view.shape
        name = f"{self.output}@{suffix}"
        like = replace(self.graph.tensors[view.tensor], channels_last=False)
        moved(self.graph, view, replace(like, name=name, shape=shape, cube=rows_cube(shape)), name)
        heads = math.prod(shape[:-2])
        return Matrices(name, heads, shape[-2], shape[-1], False)


def _without_ones(shape: Shape) -> Shape:
    """Return a shape without the leading axes of size 1."""
    first = next((axis for axis, size in enumerate(shape) if size > 1), len(shape))
    return shape[first:]


def moved(graph: Graph, view: View, output: Tensor, name: str) -> None:
    """Let the host move the elements of a view to a new tensor of its shape."""
    source, shape = f"{view.tensor}@{output.name}", (view.rows, view.channels)
    tensor = graph.tensors[view.tensor]
    cube = rows_cube(shape)
    graph.tensors[source] = replace(tensor, name=source, shape=shape, cube=cube, channels_last=True)
    graph.aliases[source] = view.tensor
    graph.tensors[output.name] = output
    attributes = {"shape": view.stored, "after": view.axes}
    graph.ops.append(g.OnHost(name, (source,), output.name, function="Rearrange", attributes=attributes))


@dataclass(frozen=True)
class Straight:
    """A view whose elements the NPU has moved, and what adds the move to the graph.

    The axes of `view` lie in order in memory, but for the one in the lanes of atoms, which is last.
    """

    view: View
    tensor: Tensor
    op: Permute

    def add(self, graph: Graph) -> View:
        """Add the move to the graph, unless it is there already, and return the view."""
        if self.tensor.name not in graph.tensors:
            graph.tensors[self.tensor.name] = self.tensor
            graph.ops.append(self.op)
        return self.view


def straightened(graph: Graph, view: View, name: str) -> Straight | None:
    """Return a view as the NPU can move it; None if atoms would be divided, or nothing would move."""
    long = [axis for axis, size in enumerate(view.shape) if size > 1]
    order = [*range(len(view.shape))]
    channels = 1
    if view.channels > 1 and long:
        lanes = max(long, key=lambda axis: view.axes[axis])
        order = [axis for axis in order if axis != lanes] + [lanes]
        channels = view.shape[lanes]
    places = tuple(view.axes[axis] for axis in order)
    tensor, made = graph.tensors[view.tensor], f"{name}@straight"
    found = loops(view.stored, places, (view.channels, channels), atom_channels(tensor.itemsize))
    if found is None or (len(found) < 2 and channels == view.channels) or moves(found) is None:
        return None
    stored = tuple(view.stored[place] for place in places)
    cube = (channels, math.prod(stored) // channels, 1)
    shape = (1, cube[1], channels)
    axes = tuple(order.index(axis) for axis in range(len(view.shape)))
    return Straight(
        View(made, channels, stored, axes),
        replace(tensor, name=made, shape=shape, cube=cube, channels_last=False),
        Permute(name, (view.tensor,), made, view.stored, places),
    )


def flattened(graph: Graph, view: View, name: str) -> Tensor | None:
    """Return a view of one channel, whose axes lie in order, as a tensor for an output; None for others.

    Its cube is no layout of the shape, but the elements lie in the order of the model's array.
    """
    order = [axis for axis in view.axes if view.stored[axis] > 1]
    if view.channels != 1 or order != sorted(order):
        return None
    tensor = graph.tensors[view.tensor]
    cube = (1, view.rows, 1)
    made = replace(tensor, name=name, shape=view.shape, cube=cube, channels_last=False)
    graph.tensors[name], graph.aliases[name] = made, view.tensor
    return made


def settled(graph: Graph, view: View, name: str, label: str) -> Tensor:
    """Return a tensor of the shape of a view: itself with another name, or moved by the NPU or the host.

    Raises
    ------
    ModelError
        If the NPU has no layout for the shape.
    """
    if name in graph.tensors:
        return graph.tensors[name]
    cube = settled_cube(view)
    tensor = graph.tensors[view.tensor]
    if cube is None and (straight := straightened(graph, view, name)) is not None:
        cube = settled_cube(straight.view)
        if cube is not None:
            view, tensor = straight.add(graph), straight.tensor
    if cube is not None:
        made = replace(tensor, name=name, shape=view.shape, cube=cube, channels_last=False)
        graph.tensors[name] = made
        graph.aliases[name] = view.tensor
        return made
    made = replace(
        tensor, name=name, shape=view.shape, cube=natural_cube(view.shape, label), channels_last=False
    )
    moved(graph, view, made, name)
    return made


def viewed(tensor: Tensor, shape: Shape | None, order: Sequence[int] | None) -> View | None:
    """Return a transposed or reshaped tensor as a view; None if its elements have to move."""
    view = view_of(tensor)
    return None if view is None else changed(view, shape, order)


def changed(view: View, shape: Shape | None, order: Sequence[int] | None) -> View | None:
    """Return a view after a reshape to `shape` or a transposition to `order`."""
    if order is not None:
        return view.transposed(order)
    return view.reshaped(shape) if shape is not None else None
