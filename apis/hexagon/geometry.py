"""Windows over height and width: output sizes and padding (hexagon/include/nn_graph_padding.h)."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.apis.hexagon.tensors import Failure, Value, check_size

Array = npt.NDArray[Any]


class Padding(enum.IntEnum):
    """Padding of a node, by the numbers of nnlib 2."""

    NA = 0
    SAME = 1
    VALID = 2
    MIRROR_REFLECT = 3
    MIRROR_SYMMETRIC = 4
    SAME_CAFFE = 5


V1_PADDING = {0: Padding.NA, 1: Padding.SAME, 2: Padding.VALID, 3: Padding.SAME_CAFFE}
"""Padding by the numbers of the oldest interface."""


@dataclass(frozen=True)
class Geometry:
    """A window that slides over an input.

    Members
    -------
    kernel, strides : (rows, columns).
    pads : elements before the input's first row and column, and after its last ones.
    output : rows and columns of the output.
    dilations : distance of the window's elements.
    """

    kernel: tuple[int, int]
    strides: tuple[int, int]
    pads: tuple[int, int, int, int]
    output: tuple[int, int]
    dilations: tuple[int, int] = (1, 1)

    def patches(self, x: Array, fill: Any) -> Array:
        """Return the windows of an input (B, H, W, D) as a view (B, OH, OW, kh, kw, D).

        `fill` is the value of padding.
        """
        top, left = self.pads[:2]
        rows, columns = (
            (n - 1) * stride + (k - 1) * d + 1
            for n, stride, k, d in zip(self.output, self.strides, self.kernel, self.dilations, strict=True)
        )
        batches, height, width, depth = x.shape
        full = np.full((batches, max(top + height, rows), max(left + width, columns), depth), fill, x.dtype)
        full[:, top : top + height, left : left + width] = x
        b, y, c, d = full.strides
        shape = (batches, *self.output, *self.kernel, depth)
        steps = (
            b,
            y * self.strides[0],
            c * self.strides[1],
            y * self.dilations[0],
            c * self.dilations[1],
            d,
        )
        return np.lib.stride_tricks.as_strided(full, shape, steps, writeable=False)

    def counts(self, height: int, width: int) -> Array:
        """Return how many elements of each window are in an input of this size, int64 (OH, OW)."""
        inside = np.ones((1, height, width, 1), np.int64)
        return self.patches(inside, 0).sum(axis=(0, 3, 4, 5))


def _axis(size: int, kernel: int, stride: int, padding: Padding) -> tuple[int, int, int]:
    """Return the output's size and the padding before and after."""
    if padding == Padding.VALID:
        return ((size - kernel) // stride + 1 if size >= kernel else 0), 0, 0
    if padding not in (Padding.NA, Padding.SAME, Padding.SAME_CAFFE):
        raise Failure(f"padding {padding.name} for a window")
    count = size // stride if padding == Padding.NA else -(-size // stride)
    total = max(0, (count - 1) * stride + kernel - size)
    before = (total + (padding == Padding.SAME_CAFFE)) // 2
    return count, before, total - before


def geometry(
    x: Value,
    kernel: tuple[int, int],
    strides: tuple[int, int],
    padding: Padding,
    dilations: tuple[int, int] = (1, 1),
) -> Geometry:
    """Return the window of a kernel over an input.

    Raises
    ------
    Failure
        if the window does not fit, or a stride is 0.
    """
    if min(*kernel, *strides, *dilations) < 1:
        raise Failure(f"a window of {kernel} with the strides {strides}")
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    down, across = (_axis(x.shape[n + 1], reach[n], strides[n], padding) for n in range(2))
    if min(down[0], across[0]) < 1:
        raise Failure(
            f"an input of {x.shape[1]}x{x.shape[2]} is too small for a window of {reach[0]}x{reach[1]}"
        )
    check_size(x.shape[0], *(reach[n] + x.shape[n + 1] + strides[n] for n in range(2)), x.shape[3])
    return Geometry(
        kernel, strides, (down[1], across[1], down[2], across[2]), (down[0], across[0]), dilations
    )


def window_of(shape: Value, what: str) -> tuple[int, int]:
    """Return the rows and columns of a tensor of which only the shape counts.

    Raises
    ------
    Failure
        if its batches or depth are not 1.
    """
    if shape.shape[0] != 1 or shape.shape[3] != 1:
        raise Failure(f"{what} of {shape.shape}: batches and depth must be 1")
    return shape.shape[1], shape.shape[2]
