"""Reshaped and transposed maps that are pixels as channels, the reverse, or channels in another order.

Exporters write a pixel shuffle and the channel shuffle of ShuffleNet as a Reshape, a Transpose of five or six
axes and a Reshape.  The NPU computes them with a convolution of ones (`rkcosim.compiler.graph.Blocks`).
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from rkcosim.compiler import graph as g
from rkcosim.compiler.graph import Graph, Tensor
from rkcosim.compiler.limits import CONV_STRIDE, INSERTS
from rkcosim.compiler.loaders.node import Cube, Shape
from rkcosim.compiler.loaders.views import View

Indices = npt.NDArray[np.int64]
MOST_ELEMENTS = 2**23
"""Elements of the largest map whose places are compared."""
MOST_CHANNELS = 2048
"""Largest number of channels of a shuffle: its matrix grows with the square of it."""


def shuffled(graph: Graph, view: View, shape: Shape, name: str) -> Tensor | None:
    """Add the operation that makes a map of a view, and return the map; None for other rearrangements.

    Parameters
    ----------
    graph
        The graph.
    view
        A value that consists of a map.
    shape
        The shape to which it is reshaped.
    name
        Name of the result.
    """
    tensor = graph.tensors[view.tensor]
    plain = len(shape) == 4 and shape[0] == 1 and tensor.shape == (1, *tensor.cube)
    if not plain or tensor.elements > MOST_ELEMENTS:
        return None
    cube = (shape[1], shape[2], shape[3])
    size = _size(tensor.cube, cube)
    if size is None:
        return None
    side, inward = size
    memory = np.arange(math.prod(shape)).reshape(view.stored).transpose(view.axes).reshape(cube)
    pixel, channel = np.divmod(memory, tensor.cube[0])
    row, column = np.divmod(pixel, tensor.cube[2])
    places = _inward(channel, row, column, side) if inward else _outward(channel, row, column, side)
    if places is None:
        return None
    made = replace(tensor, name=name, shape=shape, cube=cube, channels_last=False)
    graph.tensors[name] = made
    graph.ops.append(g.Blocks(name, (view.tensor,), name, side, inward, channels=tuple(map(int, places))))
    return made


def _size(before: Cube, after: Cube) -> tuple[int, bool] | None:
    """Return the side of the blocks and whether they become channels; None if there are none."""
    deep, flat = (after, before) if after[0] > before[0] else (before, after)
    side = flat[1] // deep[1]
    inward = deep is after
    if (flat[1], flat[2]) != (deep[1] * side, deep[2] * side) or deep[0] != flat[0] * side * side:
        return None
    fits = side <= CONV_STRIDE if inward else side in INSERTS
    return (side, inward) if fits and deep[0] <= MOST_CHANNELS else None


def _inward(channel: Indices, row: Indices, column: Indices, side: int) -> Indices | None:
    """Return for each channel of the result its number as `Blocks` counts; None if there is none."""
    rows, columns = np.indices(channel.shape[1:])
    at, across = row - rows * side, column - columns * side
    inside = min(at.min(), across.min()) >= 0 and max(at.max(), across.max()) < side
    numbers = (at * side + across) * (len(channel) // side**2) + channel
    first = numbers[:, :1, :1]
    return first.reshape(-1) if inside and (numbers == first).all() else None


def _outward(channel: Indices, row: Indices, column: Indices, side: int) -> Indices | None:
    """Return for each channel of the input its number as `Blocks` counts; None if there is none."""
    count, height, width = channel.shape
    rows, columns = np.indices((height, width))
    if (row != rows // side).any() or (column != columns // side).any():
        return None
    numbers = np.full(count * side * side, -1)
    for at, across in itertools.product(range(side), range(side)):
        part = channel[:, at::side, across::side]
        if (part != part[:, :1, :1]).any():
            return None
        numbers[part[:, 0, 0]] = (at * side + across) * count + np.arange(count)
    return numbers if (numbers >= 0).all() else None
