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
