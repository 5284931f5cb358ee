"""Windows over height and width: output sizes and padding (hexagon/include/nn_graph_padding.h)."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.apis.hexagon.tensors import Failure, Value, check_size
from rkcosim.hostops.geometry import Sliding, count, missing, reach
from rkcosim.hostops.windows import counted, windows

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

    @property
    def sliding(self) -> Sliding:
        """The window without the padding after the input, which follows from the output's size."""
        return Sliding(self.kernel, self.strides, self.dilations, self.pads[:2], self.output)

    def patches(self, x: Array, fill: Any) -> Array:
        """Return the windows of an input (B, H, W, D) as a view (B, OH, OW, kh, kw, D).

        `fill` is the value of padding.
        """
        return np.moveaxis(windows(x, self.sliding, 1, fill), 3, 5)

    def counts(self, height: int, width: int) -> Array:
        """Return how many elements of each window are in an input of this size, int64 (OH, OW)."""
        return counted(self.sliding, (height, width))


def _axis(size: int, span: int, stride: int, padding: Padding) -> tuple[int, int, int]:
    """Return the output's size and the padding before and after."""
    if padding == Padding.VALID:
        return max(count(size, 0, 0, span, stride), 0), 0, 0
    if padding not in (Padding.NA, Padding.SAME, Padding.SAME_CAFFE):
        raise Failure(f"padding {padding.name} for a window")
    number = size // stride if padding == Padding.NA else -(-size // stride)
    total = missing(size, number, span, stride)
    before = (total + (padding == Padding.SAME_CAFFE)) // 2
    return number, before, total - before


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
    spans = [reach(k, d) for k, d in zip(kernel, dilations, strict=True)]
    down, across = (_axis(x.shape[n + 1], spans[n], strides[n], padding) for n in range(2))
    if min(down[0], across[0]) < 1:
        raise Failure(
            f"an input of {x.shape[1]}x{x.shape[2]} is too small for a window of {spans[0]}x{spans[1]}"
        )
    check_size(x.shape[0], *(spans[n] + x.shape[n + 1] + strides[n] for n in range(2)), x.shape[3])
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
