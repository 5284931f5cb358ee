"""Convolutions and pools over one, two or three axes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Ints = Sequence[int]


def _at(last: Sequence[Any]) -> Any:
    """Return an index of the last axes."""
    return (..., *last)


def _strided(x: Array, at: Ints, sizes: Ints, strides: Ints) -> Array:
    """Return every `strides`-th element of the last axes, `sizes` of them, from index `at` on."""
    cut = tuple(
        slice(a, a + (n - 1) * s + 1, s) if n else slice(0, 0)
        for a, n, s in zip(at, sizes, strides, strict=True)
    )
    return x[_at(cut)]


def _padded(x: Array, before: Ints, after: Ints, value: float) -> Array:
    rank = x.ndim - len(before)
    return np.pad(x, [(0, 0)] * rank + list(zip(before, after, strict=True)), constant_values=value)


def _places(kernel: Ints) -> Iterator[tuple[int, ...]]:
    return itertools.product(*(range(size) for size in kernel))


def convolution(x: Array, weight: Array, strides: Ints, padding: Ints, dilation: Ints, groups: int) -> Array:
    """Return a convolution of (N, C, ...) with (OC, C / groups, ...)."""
    kernel = weight.shape[2:]
    sizes = [
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, p, d, k, s in zip(x.shape[2:], padding, dilation, kernel, strides, strict=True)
    ]
    x = _padded(x, padding, padding, 0)
    filters = weight.reshape(groups, -1, weight.shape[1], *kernel)
    made = np.zeros((groups, filters.shape[1], x.shape[0] * math.prod(sizes)))
    for place in _places(kernel):
        at = [p * d for p, d in zip(place, dilation, strict=True)]
        made += filters[_at(place)] @ _grouped(_strided(x, at, sizes, strides), groups)
    return made.reshape(weight.shape[0], x.shape[0], *sizes).swapaxes(0, 1)


def _grouped(x: Array, groups: int) -> Array:
    """Return (N, C, ...) as matrices (G, C / G, N * ...)."""
    return x.swapaxes(0, 1).reshape(groups, x.shape[1] // groups, -1)


def transposed(
    x: Array, weight: Array, strides: Ints, padding: Ints, more: Ints, groups: int, dilation: Ints
) -> Array:
    """Return a transposed convolution of (N, C, ...) with (C, OC / groups, ...)."""
    kernel = weight.shape[2:]
    whole = [
        (n - 1) * s + d * (k - 1) + 1 + o
        for n, s, d, k, o in zip(x.shape[2:], strides, dilation, kernel, more, strict=True)
    ]
    filters = weight.reshape(groups, -1, *weight.shape[1:]).swapaxes(1, 2)
    data = _grouped(x, groups)
    made = np.zeros((weight.shape[1] * groups, x.shape[0], *whole))
    for place in _places(kernel):
        at = [p * d for p, d in zip(place, dilation, strict=True)]
        part = filters[_at(place)] @ data
        target = _strided(made, at, x.shape[2:], strides)
        target += part.reshape(target.shape)
    cut = tuple(slice(p, n - p) for p, n in zip(padding, whole, strict=True))
    return made.swapaxes(0, 1)[_at(cut)]


def pool_sizes(
    sizes: Ints, kernel: Ints, strides: Ints, padding: Ints, dilation: Ints, ceil: bool
) -> list[int]:
    """Return the size of a pool's result; with `ceil` the last window begins within the padded data."""
    made = []
    for n, k, s, p, d in zip(sizes, kernel, strides, padding, dilation, strict=True):
        span = n + 2 * p - d * (k - 1) - 1 + (s - 1 if ceil else 0)
        count = span // s + 1
        if ceil and (count - 1) * s >= n + p:
            count -= 1
        made.append(count)
    return made


def max_pool(
    x: Array, kernel: Ints, strides: Ints, padding: Ints, dilation: Ints, ceil: bool
) -> tuple[Array, Array]:
    """Return the largest element of each window, and its index in the flattened axes; NaN is the largest."""
    inside = x.shape[x.ndim - len(kernel) :]
    sizes = pool_sizes(inside, kernel, strides, padding, dilation, ceil)
    numbers = np.arange(int(np.prod(inside))).reshape(inside)
    after = [
        max((m - 1) * s + d * (k - 1) + 1 - n - p, 0)
        for m, s, d, k, n, p in zip(sizes, strides, dilation, kernel, inside, padding, strict=True)
    ]
    x = _padded(x.astype(np.float64), padding, after, -np.inf)
    numbers = _padded(numbers, padding, after, -1)
    best = found = None
    for place in _places(kernel):
        at = [p * d for p, d in zip(place, dilation, strict=True)]
        values, index = _strided(x, at, sizes, strides), _strided(numbers, at, sizes, strides)
        index = np.broadcast_to(index, values.shape)
        if best is None or found is None:
            best, found = values.copy(), index.copy()
            continue
        more = ((values > best) | np.isnan(values) | (found < 0)) & (index >= 0)
        best[more], found[more] = values[more], index[more]
    assert best is not None and found is not None
    return best, found


def average_pool(
    x: Array, kernel: Ints, strides: Ints, padding: Ints, ceil: bool, include: bool, divisor: int | None
) -> Array:
    """Return the mean of each window; `include` counts the padding, `divisor` replaces the count."""
    inside = x.shape[x.ndim - len(kernel) :]
    sizes = pool_sizes(inside, kernel, strides, padding, [1] * len(kernel), ceil)
    after = [
        max((m - 1) * s + k - n - p, 0)
        for m, s, k, n, p in zip(sizes, strides, kernel, inside, padding, strict=True)
    ]
    data = _padded(x.astype(np.float64), padding, after, 0)
    total = sum(_strided(data, place, sizes, strides) for place in _places(kernel))
    if divisor:
        return np.asarray(total / divisor)
    count: Array = np.ones(())
    for m, k, s, p, n in zip(sizes, kernel, strides, padding, inside, strict=True):
        first = np.arange(m) * s - p
        last = np.minimum(first + k, n + p)
        counted = last - first if include else np.minimum(last, n) - np.maximum(first, 0)
        count = np.multiply.outer(count, counted)
    return np.asarray(total / count)


def adaptive(sizes: Ints, wanted: Ints) -> list[list[tuple[int, int]]]:
    """Return the windows of an adaptive pool, for each axis."""
    return [
        [(i * n // m, -(-(i + 1) * n // m)) for i in range(m)] for n, m in zip(sizes, wanted, strict=True)
    ]


def adaptive_average(x: Array, wanted: Ints) -> Array:
    """Return an adaptive pool of means over the last axes."""
    made = x.astype(np.float64)
    first = x.ndim - len(wanted)
    for axis, ranges in enumerate(adaptive(x.shape[first:], wanted), first):
        parts = [np.take(made, range(a, b), axis).mean(axis, keepdims=True) for a, b in ranges]
        empty = np.take(made, range(0), axis)
        made = np.concatenate([empty, *parts], axis)
    return made


def adaptive_max(x: Array, wanted: Ints) -> tuple[Array, Array]:
    """Return an adaptive pool of maxima over the last axes, and the index of each."""
    first = x.ndim - len(wanted)
    inside, outer = x.shape[first:], x.shape[:first]
    numbers = np.arange(int(np.prod(inside))).reshape(inside)
    made, found = np.zeros((*outer, *wanted)), np.zeros((*outer, *wanted), np.int64)
    ranges = adaptive(inside, wanted)
    for place in _places(wanted):
        cut = tuple(slice(*ranges[axis][i]) for axis, i in enumerate(place))
        data = x[_at(cut)].reshape(*outer, -1)
        best = data.argmax(-1)
        made[_at(place)] = np.take_along_axis(data, best[..., None], -1)[..., 0]
        found[_at(place)] = numbers[cut].reshape(-1)[best]
    return made, found
