"""Convolutions and transposed convolutions over any number of axes, with groups and dilations."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.hostops.geometry import Sliding, reach
from rkcosim.hostops.windows import taps

Array = npt.NDArray[Any]
Ints = Sequence[int]


def convolved(x: Array, filters: Array, sliding: Sliding, groups: int = 1) -> npt.NDArray[np.float64]:
    """Return the sums of products of a convolution.

    Products of each tap are summed by a product of matrices, then the taps in row-major order.  Sums of
    integers below 2**53 are exact.

    Parameters
    ----------
    x
        Numbers (N, C, ...).
    filters
        Numbers (OC, C / groups, taps of each axis).
    sliding
        The windows along the axes after the channels; padding is 0.
    groups
        Groups of channels.

    Returns
    -------
    Sums (N, OC, windows of each axis).

    Raises
    ------
    ValueError
        If the channels do not fit the groups and filters.
    """
    _check(x, filters, filters.shape[0], filters.shape[1] * groups, groups)
    kernels = filters.reshape(groups, -1, *filters.shape[1:])
    total = np.zeros((groups, kernels.shape[1], x.shape[0] * math.prod(sliding.counts)))
    for place, values in taps(x, sliding, 2):
        at: Any = (..., *place)
        total += _product(kernels[at], _grouped(values, groups))
    return total.reshape(filters.shape[0], x.shape[0], *sliding.counts).swapaxes(0, 1)


def transposed(
    x: Array,
    filters: Array,
    strides: Ints,
    dilations: Ints,
    before: Ints,
    counts: Ints,
    groups: int = 1,
) -> npt.NDArray[np.float64]:
    """Return the sums of products of a transposed convolution.

    Parameters
    ----------
    x
        Numbers (N, C, ...).
    filters
        Numbers (C, OC / groups, taps of each axis).
    strides, dilations
        Distances of the results of neighbouring elements, and of neighbouring taps.
    before
        Elements that are cut off before the result, at least 0.
    counts
        Elements of the result along each axis; those that no tap reaches are 0.
    groups
        Groups of channels.

    Returns
    -------
    Sums (N, OC, *counts).

    Raises
    ------
    ValueError
        If the channels do not fit the groups and filters.
    """
    _check(x, filters, x.shape[1], filters.shape[0], groups)
    taps_of, sizes = filters.shape[2:], x.shape[2:]
    kernels = filters.reshape(groups, -1, *filters.shape[1:]).swapaxes(1, 2)
    whole = [
        max((n - 1) * s + reach(k, d), cut + count)
        for n, s, k, d, cut, count in zip(sizes, strides, taps_of, dilations, before, counts, strict=True)
    ]
    total = np.zeros((filters.shape[1] * groups, x.shape[0], *whole))
    data = _grouped(x, groups)
    for place in itertools.product(*(range(size) for size in taps_of)):
        at: Any = (..., *place)
        part = _product(kernels[at], data)
        reached: Any = (
            ...,
            *(
                slice(tap * d, tap * d + (n - 1) * s + 1, s)
                for tap, d, n, s in zip(place, dilations, sizes, strides, strict=True)
            ),
        )
        target = total[reached]
        target += part.reshape(target.shape)
    kept: Any = (..., *(slice(cut, cut + count) for cut, count in zip(before, counts, strict=True)))
    return total.swapaxes(0, 1)[kept]


def _grouped(x: Array, groups: int) -> Array:
    """Return (N, C, ...) as matrices (G, C / G, N * ...)."""
    each = x.shape[0] * math.prod(x.shape[2:])
    return x.swapaxes(0, 1).reshape(groups, x.shape[1] // groups, each)


def _product(filters: Array, data: Array) -> Array:
    """Return the products of matrices (G, M, K) and (G, K, N); for K = 1 there is nothing to sum."""
    return np.asarray(filters * data if data.shape[1] == 1 else filters @ data)


def _check(x: Array, filters: Array, split: int, inputs: int, groups: int) -> None:
    if groups < 1 or x.shape[1] != inputs or split % groups:
        raise ValueError(f"channels of {x.shape} and filters of {filters.shape} do not fit {groups} groups")
