"""The elements under sliding windows, and how many of them are data."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.hostops.geometry import Sliding, missing

Array = npt.NDArray[Any]


def windows(x: Array, sliding: Sliding, axis: int, fill: float = 0) -> Array:
    """Return the windows of an array as a view that must not be written to.

    Parameters
    ----------
    x
        Any shape and type.
    sliding
        The windows, along axis `axis` and the following ones.
    axis
        The first of these axes, from 0 on.
    fill
        Value of padding, in the type of `x`.

    Returns
    -------
    An array of the type of `x`: the axes have the numbers of windows, and the taps are new axes after all
    others.

    Raises
    ------
    ValueError
        If a number of windows is negative.
    """
    if min(sliding.counts, default=0) < 0:
        raise ValueError(f"{sliding.counts} windows along axes of {x.shape}")
    begin = (0,) * axis + sliding.before
    sizes = list(x.shape)
    for place, (windows_, span, stride) in enumerate(
        zip(sliding.counts, sliding.reaches, sliding.strides, strict=True), axis
    ):
        sizes[place] += begin[place]
        sizes[place] += missing(sizes[place], max(windows_, 1), span, stride)
    full = x
    if tuple(sizes) != x.shape or not x.flags.c_contiguous:
        full = np.full(sizes, fill, x.dtype)
        full[tuple(slice(first, first + n) for first, n in zip(begin, x.shape, strict=False))] = x
    axes = tuple(range(axis, axis + len(sliding.kernel)))
    views = np.lib.stride_tricks.sliding_window_view(full, sliding.reaches, axes)
    cut = tuple(slice(0, n * s, s) for n, s in zip(sliding.counts, sliding.strides, strict=True))
    taps = tuple(slice(None, None, step) for step in sliding.dilations)
    return np.asarray(views[(slice(None),) * axis + cut + (..., *taps)])


def taps(x: Array, sliding: Sliding, axis: int, fill: float = 0) -> Iterator[tuple[tuple[int, ...], Array]]:
    """Yield each tap's place in the window and its elements under all windows; see `windows`.

    The taps are in row-major order.
    """
    views = windows(x, sliding, axis, fill)
    for place in itertools.product(*(range(size) for size in sliding.kernel)):
        at: Any = (..., *place)
        yield place, views[at]


def counted(sliding: Sliding, sizes: Sequence[int], after: Sequence[int] | None = None) -> Array:
    """Return the number of taps of each window that are data.

    Parameters
    ----------
    sliding
        The windows.
    sizes
        Elements of the data along each axis.
    after
        Elements of padding after the data.  If they are given, the taps of the padding before and after the
        data count too, but not those beyond it.

    Returns
    -------
    An int64 array with one axis for each of the windows' axes.
    """
    made = np.ones((), np.int64)
    for axis, size in enumerate(sizes):
        first, last = (0, size) if after is None else (-sliding.before[axis], size + after[axis])
        starts = np.arange(sliding.counts[axis]) * sliding.strides[axis] - sliding.before[axis]
        places = np.add.outer(starts, np.arange(sliding.kernel[axis]) * sliding.dilations[axis])
        made = np.multiply.outer(made, ((places >= first) & (places < last)).sum(axis=1))
    return np.asarray(made)
