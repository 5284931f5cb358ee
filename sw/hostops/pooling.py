"""Pooling: the largest elements and the means of sliding windows, and of windows that divide axes evenly."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.hostops.geometry import Sliding
from rkcosim.hostops.windows import counted, taps, windows

Array = npt.NDArray[Any]
Ints = Sequence[int]


def largest(x: Array, sliding: Sliding, axis: int, lowest: float = -np.inf) -> Array:
    """Return the largest element of each window, in the type of `x`; NaN if a window has one.

    Parameters
    ----------
    x
        Any shape; integers or floats.
    sliding
        The windows, along axis `axis` and the following ones.
    axis
        The first of these axes.
    lowest
        Value of padding; for integers, the smallest number of the type.
    """
    views = windows(x, sliding, axis, lowest)
    return np.asarray(views.max(axis=tuple(range(x.ndim, views.ndim))))


def largest_with_places(x: Array, sliding: Sliding) -> tuple[Array, Array]:
    """Return the largest element of each window along the last axes, and where it is.

    Parameters
    ----------
    x
        Floats of any shape.
    sliding
        The windows along the last axes.

    Returns
    -------
    The largest elements, float64: the first one of equal ones, and NaN is larger than every number.  Their
    indices in the flattened last axes, int64; -1 for a window that has only padding, whose value is -inf.
    """
    axis = x.ndim - len(sliding.kernel)
    inside = x.shape[axis:]
    numbers = np.arange(math.prod(inside)).reshape(inside)
    shape = (*x.shape[:axis], *sliding.counts)
    best, found = np.full(shape, -np.inf), np.full(shape, -1)
    data = taps(x.astype(np.float64), sliding, axis, -np.inf)
    for (_, values), (_, places) in zip(data, taps(numbers, sliding, 0, -1), strict=True):
        index = np.broadcast_to(places, shape)
        more = ((values > best) | np.isnan(values) | (found < 0)) & (index >= 0)
        best[more], found[more] = values[more], index[more]
    return best, found


def sums(x: Array, sliding: Sliding, axis: int) -> Array:
    """Return the sum of each window's elements, in the type of `x`, tap by tap in row-major order.

    Parameters
    ----------
    x
        Any shape; float64 or int64, since nothing is converted.
    sliding
        The windows, along axis `axis` and the following ones; padding is 0.
    axis
        The first of these axes.
    """
    shape = (*x.shape[:axis], *sliding.counts, *x.shape[axis + len(sliding.counts) :])
    total: Array = np.zeros(shape, x.dtype)
    for _, values in taps(x, sliding, axis):
        total += values
    return total


def means(x: Array, sliding: Sliding, axis: int, after: Ints | None = None) -> Array:
    """Return the mean of each window's elements, float64; NaN where a window has none.

    Parameters
    ----------
    x
        Numbers of any shape.
    sliding
        The windows, along axis `axis` and the following ones.
    axis
        The first of these axes.
    after
        Elements of padding after the data, if padding counts as zeros; else only data counts.
    """
    sizes = x.shape[axis : axis + len(sliding.kernel)]
    inside = counted(sliding, sizes, after)
    total = sums(x.astype(np.float64), sliding, axis)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(total / inside.reshape(*inside.shape, *(1,) * (x.ndim - axis - len(sizes))))


def even_ranges(size: int, wanted: int) -> list[tuple[int, int]]:
    """Return first and end of each of the windows that divide an axis evenly (adaptive pooling)."""
    return [(i * size // wanted, -(-(i + 1) * size // wanted)) for i in range(wanted)]


def adaptive_means(x: Array, wanted: Ints) -> Array:
    """Return the means of windows that divide the last axes evenly, float64.

    Parameters
    ----------
    x
        Numbers of any shape.
    wanted
        Numbers of windows along each of the last axes; 0 makes an empty result.
    """
    made = x.astype(np.float64)
    for axis, number in enumerate(wanted, x.ndim - len(wanted)):
        ranges = even_ranges(made.shape[axis], number)
        parts = [np.take(made, range(a, b), axis).mean(axis, keepdims=True) for a, b in ranges]
        made = np.concatenate([np.take(made, range(0), axis), *parts], axis)
    return made


def adaptive_largest(x: Array, wanted: Ints) -> tuple[Array, Array]:
    """Return the largest elements of windows that divide the last axes evenly, and where they are.

    Parameters
    ----------
    x
        Numbers of any shape.
    wanted
        Numbers of windows along each of the last axes.

    Returns
    -------
    The largest elements, float64, and their indices in the flattened last axes, int64: the first one of equal
    ones, and NaN is larger than every number.
    """
    first = x.ndim - len(wanted)
    outer, inside = x.shape[:first], x.shape[first:]
    numbers = np.arange(math.prod(inside)).reshape(inside)
    made, found = np.zeros((*outer, *wanted)), np.zeros((*outer, *wanted), np.int64)
    ranges = [even_ranges(n, m) for n, m in zip(inside, wanted, strict=True)]
    for place in itertools.product(*(range(n) for n in wanted)):
        cut = tuple(slice(*ranges[axis][i]) for axis, i in enumerate(place))
        at: Any = (..., *cut)
        data = x[at].reshape(*outer, -1)
        best = data.argmax(-1)
        to: Any = (..., *place)
        made[to] = np.take_along_axis(data, best[..., None], -1)[..., 0]
        found[to] = numbers[cut].reshape(-1)[best]
    return made, found
