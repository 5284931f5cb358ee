"""Transposed and reshaped values without moved bytes.

Memory holds the pixels of a tensor one after another, each with all of its channels.  In this order the
elements are an array; a transposition or a reshape of it can often be described as another order of its axes,
until an operator needs the bytes in another place.  Heads of an attention and maps with the channels last are
such views.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rkcosim.compiler.graph import Tensor

Shape = tuple[int, ...]
Cube = tuple[int, int, int]


@dataclass(frozen=True)
class View:
    """A value whose axes are those of a tensor in memory, split and in another order.

    Members
    -------
    tensor
        Name of a tensor (rows, channels).
    channels
        Channels of the tensor.
    stored
        Sizes of the axes in the order of memory, pixels before channels.
    axes
        For each axis of the value its place in `stored`.
    """

    tensor: str
    channels: int
    stored: Shape
    axes: tuple[int, ...]

    @property
    def shape(self) -> Shape:
        """Shape of the value."""
        return tuple(self.stored[axis] for axis in self.axes)

    @property
    def rows(self) -> int:
        """Pixels of the tensor."""
        return math.prod(self.stored) // self.channels

    def transposed(self, order: Sequence[int]) -> View:
        """Return the view with its axes in another order."""
        return replace(self, axes=tuple(self.axes[axis] for axis in order))

    def reshaped(self, shape: Shape) -> View | None:
        """Return the view with another shape; None if elements would have to move."""
        parts = _common_parts(self.shape, shape)
        if parts is None:
            return None
        sizes: dict[int, list[int]] = {}
        for old, new in parts:
            first = [self.axes[axis] for axis in old if self.shape[axis] > 1]
            if first != list(range(first[0], first[0] + len(first))) if first else False:
                return None
            place = first[0] if first else self.axes[old[0]]
            if place in sizes:
                return None
            sizes[place] = new
        stored: list[int] = []
        axes = [0] * len(shape)
        for place in sorted(sizes):
            for axis in sizes[place]:
                axes[axis] = len(stored)
                stored.append(shape[axis])
        return replace(self, stored=tuple(stored), axes=tuple(axes))

    @property
    def plain(self) -> bool:
        """Whether the axes lie in order in memory, the last one in the channels: rows of channels."""
        order = [axis for axis in self.axes if self.stored[axis] > 1]
        return order == sorted(order) and self.shape[-1] == self.channels

    def part(self, axis: int, first: int, count: int) -> tuple[tuple[int, int], tuple[int, int], View] | None:
        """Return a part along an axis: ranges (first, count) of pixels and of channels, and its view.

        None unless the axis is the outermost one of the pixels or of the channels.
        """
        place = self.axes[axis]
        inner = math.prod(self.stored[place + 1 :])
        stored = (*self.stored[:place], count, *self.stored[place + 1 :])
        if inner * self.stored[place] == self.channels:
            channels = (first * inner, count * inner)
            return (0, self.rows), channels, replace(self, channels=count * inner, stored=stored)
        if inner % self.channels == 0 and math.prod(self.stored[:place]) == 1:
            pixels = inner // self.channels
            return (first * pixels, count * pixels), (0, self.channels), replace(self, stored=stored)
        return None

    def matrices(self) -> tuple[int, int, int, bool] | None:
        """Return heads, rows and columns of the matrices of the last two axes, and where the heads are.

        Returns
        -------
        The last element is true if heads are ranges of the channels, false if they are ranges of the rows;
        None if the matrices lie in another way.
        """
        shape, count = self.shape, len(self.shape)
        if count < 2:
            return None
        heads, rows, columns = math.prod(shape[:-2]), shape[-2], shape[-1]
        order = sorted((axis for axis in range(count) if shape[axis] > 1), key=lambda axis: self.axes[axis])
        batch = [axis for axis in range(count - 2) if shape[axis] > 1]
        row, column = ([axis] if shape[axis] > 1 else [] for axis in (count - 2, count - 1))
        if order == [*batch, *row, *column] and columns == self.channels:
            return heads, rows, columns, False
        if order == [*row, *batch, *column] and heads * columns == self.channels:
            return heads, rows, columns, True
        return None


def _common_parts(old: Shape, new: Shape) -> list[tuple[list[int], list[int]]] | None:
    """Return runs of axes of two shapes that have equal numbers of elements, each as short as possible."""
    if math.prod(old) != math.prod(new) or 0 in old:
        return None
    parts: list[tuple[list[int], list[int]]] = []
    first, second = 0, 0
    while first < len(old) and second < len(new):
        a, b, left, right = [first], [second], old[first], new[second]
        while left != right:
            if left < right:
                first += 1
                a.append(first)
                left *= old[first]
            else:
                second += 1
                b.append(second)
                right *= new[second]
        parts.append((a, b))
        first, second = first + 1, second + 1
    if not parts:
        return None
    parts[-1][0].extend(range(first, len(old)))  # axes of size 1
    parts[-1][1].extend(range(second, len(new)))
    return parts


def rows_cube(shape: Shape) -> Cube:
    """Return the cube in which the last axis of a shape are channels and all others are rows."""
    return shape[-1], math.prod(shape[:-1]), 1


def view_of(tensor: Tensor) -> View | None:
    """Return a tensor as a view of itself; None if its elements lie in the order of a flattened map."""
    shape, cube = tensor.shape, tensor.cube
    if not shape or tensor.channels_last or tensor.host:
        return None
    if cube == rows_cube(shape):
        return View(tensor.name, cube[0], shape, tuple(range(len(shape))))
    if len(shape) == 3 and shape[0] == 1 and cube == (shape[1], 1, shape[2]):  # a line
        return View(tensor.name, cube[0], (1, cube[2], cube[0]), (0, 2, 1))
    if len(shape) == 4 and shape == (1, *cube):
        return View(tensor.name, cube[0], (1, cube[1], cube[2], cube[0]), (0, 3, 1, 2))
    return None


def settled_cube(view: View) -> Cube | None:
    """Return the cube in which memory holds the view as a tensor of its shape; None if it does not."""
    shape = view.shape
    order = [axis for axis in view.axes if view.stored[axis] > 1]
    if len(shape) in (1, 2, 3) and order == sorted(order) and shape[-1] == view.channels:
        batch = math.prod(shape[:-2]) if len(shape) > 2 else 1
        return rows_cube(shape) if batch == 1 else None
    if (
        len(shape) == 3
        and shape[0] == 1
        and shape[1] == view.channels
        and order == sorted(order, reverse=True)
    ):
        return shape[1], 1, shape[2]
    if len(shape) == 4 and shape[0] == 1 and shape[1] == view.channels:
        places = [view.axes[axis] for axis in (2, 3, 1) if shape[axis] > 1]
        if places == sorted(places):
            return shape[1], shape[2], shape[3]
    return None
