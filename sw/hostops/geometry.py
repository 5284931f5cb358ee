"""Sliding windows: their number along an axis, and the padding that they need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Ints = Sequence[int]


def reach(kernel: int, dilation: int = 1) -> int:
    """Return the elements from the first to the last tap of a window along an axis."""
    return (kernel - 1) * dilation + 1


def count(size: int, before: int, after: int, reach: int, stride: int, ceil: bool = False) -> int:
    """Return the number of windows along an axis; zero or negative if none fits.

    Parameters
    ----------
    size
        Elements of the axis.
    before, after
        Elements of padding; negative ones cut elements off.
    reach
        Elements that a window spans.
    stride
        Distance between two windows, at least 1.
    ceil
        Whether a last window may extend beyond the padding.  It must begin before the padding after the data
        does, as in PyTorch and ONNX.
    """
    room = size + before + after - reach
    steps = -(-room // stride) if ceil else room // stride
    if ceil and steps * stride >= size + before:
        steps -= 1
    return steps + 1


def missing(size: int, windows: int, reach: int, stride: int) -> int:
    """Return the elements that an axis lacks for a number of windows; 0 if it has enough."""
    return max((windows - 1) * stride + reach - size, 0)


def same_pads(size: Ints, kernel: Ints, strides: Ints, dilations: Ints) -> tuple[int, int, int, int]:
    """Return the padding of maps for ceil(size / stride) windows along both axes (SAME).

    Parameters
    ----------
    size, kernel, strides, dilations
        Two numbers each, of rows and columns.

    Returns
    -------
    Rows above, columns to the left, rows below, columns to the right; an odd element goes below or to the
    right.
    """
    down, across = (
        missing(n, -(-n // step), reach(taps, dilation), step)
        for n, taps, step, dilation in zip(size, kernel, strides, dilations, strict=True)
    )
    return down // 2, across // 2, down - down // 2, across - across // 2


@dataclass(frozen=True)
class Sliding:
    """Windows that slide along consecutive axes; each member has one number for each of them.

    Members
    -------
    kernel
        Taps of a window.
    strides
        Distances between windows.
    dilations
        Distances between taps.
    before
        Elements of padding before the data.  After the data, there is as much as the last window needs.
    counts
        Numbers of windows.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    counts: tuple[int, ...]

    @classmethod
    def over(
        cls,
        sizes: Ints,
        kernel: Ints,
        strides: Ints,
        before: Ints,
        after: Ints,
        dilations: Ints | None = None,
        ceil: bool = False,
    ) -> Sliding:
        """Return the windows that fit axes of these sizes with padding; see `count` for `ceil`."""
        steps = [1] * len(kernel) if dilations is None else dilations
        counts = [
            count(n, first, last, reach(k, d), s, ceil)
            for n, first, last, k, d, s in zip(sizes, before, after, kernel, steps, strides, strict=True)
        ]
        return cls(tuple(kernel), tuple(strides), tuple(steps), tuple(before), tuple(counts))

    @property
    def reaches(self) -> tuple[int, ...]:
        """Elements from the first to the last tap of a window."""
        return tuple(reach(k, d) for k, d in zip(self.kernel, self.dilations, strict=True))
