"""Maps of other sizes: where each element of the result lies in the input, and what it is there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


class Coordinates(Enum):
    """Rules for the place of element i of a result: `step` is the distance of two elements in the input."""

    ASYMMETRIC = "i * step"
    CENTRES = "(i + 1/2) * step"
    HALF_PIXEL = "(i + 1/2) * step - 1/2"


RULES: dict[Coordinates, Callable[[Array, np.floating[Any], np.floating[Any]], Array]] = {
    Coordinates.ASYMMETRIC: lambda at, step, half: at * step,
    Coordinates.CENTRES: lambda at, step, half: (at + half) * step,
    Coordinates.HALF_PIXEL: lambda at, step, half: (at + half) * step - half,
}
"""The rules in their order of operations, which decides places that are whole numbers or halves."""

Real = type[np.float32] | type[np.float64]


def step_of(size: int, count: int, corners: bool = False, dtype: Real = np.float64) -> np.floating[Any]:
    """Return the distance of two elements of a result in the input, a quotient of numbers of the type.

    Parameters
    ----------
    size, count
        Elements of the input and of the result along an axis, at least 1.
    corners
        Whether the first and the last elements of both lie at the same places; a single element lies at the
        first one.
    dtype
        Type of the arithmetic.
    """
    if not corners:
        return dtype(size) / dtype(count)
    return dtype(size - 1) / dtype(count - 1) if count > 1 else dtype(0)


def places(
    count: int, step: float | np.floating[Any], rule: Coordinates, dtype: Real = np.float64
) -> npt.NDArray[np.floating[Any]]:
    """Return the place in the input of each element of a result along an axis, also outside of the input.

    Parameters
    ----------
    count
        Elements of the result.
    step
        Their distance; see `step_of`.
    rule
        The rule.
    dtype
        Type of the arithmetic and of the result.
    """
    return np.asarray(RULES[rule](np.arange(count).astype(dtype), dtype(step), dtype(0.5)))


def picked(at: Array, size: int, half_up: bool = False) -> npt.NDArray[np.int64]:
    """Return the index of the element that is taken for each place along an axis of `size` elements.

    Parameters
    ----------
    at
        Places of any shape.
    size
        Elements of the axis; places outside of them have the first or the last one.
    half_up
        Whether a place is rounded to the nearest element, halves up; else to the one before it.
    """
    picks = np.floor(at + at.dtype.type(0.5)) if half_up else np.floor(at)
    return np.clip(picks, 0, size - 1).astype(np.int64)


def nearest(x: Array, axis: int, at: Array, half_up: bool = False) -> Array:
    """Return the elements next to places along an axis, in the type of `x`; see `picked`.

    Parameters
    ----------
    x
        Any shape and type.
    axis
        The axis.
    at
        Places (elements of the result).
    half_up
        The rounding.
    """
    return np.take(x, picked(at, x.shape[axis], half_up), axis)


def linear(x: Array, axis: int, at: Array, past: bool = True) -> Array:
    """Return numbers interpolated between the two elements around each place; outside, the outer one counts.

    Parameters
    ----------
    x
        float64 of any shape.
    axis
        The axis, from 0 on.
    at
        Places (elements of the result).
    past
        Whether the element after a place that is a whole number takes part with a share of 0, as in PyTorch.
        It only matters if that element is not finite.
    """
    below = np.maximum(np.floor(at), 0).astype(np.int64)
    rest = at - below  # negative before the first element, whose shares then add up to 1 as well
    above = (np.floor(at) + 1 if past else np.ceil(at)).astype(np.int64)
    return _weighted(x, axis, [(below, 1 - rest), (above, rest)])


def cubic(x: Array, axis: int, at: Array, a: float = -0.75) -> Array:
    """Return numbers interpolated by cubic convolution over the four elements around each place.

    Parameters
    ----------
    x
        float64 of any shape.
    axis
        The axis, from 0 on.
    at
        Places (elements of the result); beyond the input, the outer elements repeat.
    a
        Coefficient of the cubic (Keys, "Cubic convolution interpolation for digital image processing", 1981).
    """
    below = np.floor(at).astype(np.int64)
    t = at - below

    def inner(x: Array) -> Array:
        return np.asarray(((a + 2) * x - (a + 3)) * x * x + 1)

    def outer(x: Array) -> Array:
        return np.asarray(((x - 5) * x + 8) * x * a - 4 * a)

    shares = (outer(t + 1), inner(t), inner(1 - t), outer(2 - t))
    return _weighted(x, axis, [(below + offset, share) for offset, share in enumerate(shares, -1)])


def _weighted(x: Array, axis: int, shares: Sequence[tuple[npt.NDArray[np.int64], Array]]) -> Array:
    """Return sums of elements by their indices along an axis, times their shares."""
    column = (-1,) + (1,) * (x.ndim - axis - 1)
    first, *others = (
        np.take(x, np.clip(index, 0, x.shape[axis] - 1), axis) * share.reshape(column)
        for index, share in shares
    )
    return np.asarray(sum(others, start=first))
