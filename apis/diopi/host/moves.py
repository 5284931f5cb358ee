"""Data movement: slices, paddings and resized maps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.apis.diopi.values import DiopiError

Array = npt.NDArray[Any]

MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}
"""Modes of paddings, and numpy's names."""


def padded(x: Array, pads: Sequence[int], mode: str, value: float) -> Array:
    """Return a padded array; `pads` has before and after of the last axis first, negative ones crop.

    Raises
    ------
    DiopiError
        for an unknown mode, and for an odd number of paddings or too many.
    """
    if mode not in MODES:
        raise DiopiError(f"mode '{mode}' of Pad; the modes are {', '.join(MODES)}")
    if len(pads) % 2 or len(pads) // 2 > x.ndim:
        raise DiopiError(f"{len(pads)} paddings of a tensor of rank {x.ndim}")
    pairs = [(pads[i], pads[i + 1]) for i in range(0, len(pads), 2)][::-1]
    pairs = [(0, 0)] * (x.ndim - len(pairs)) + pairs
    if not pairs:
        return x
    more = [(max(a, 0), max(b, 0)) for a, b in pairs]
    if mode == "circular":  # what is cropped does not come around
        return np.pad(_cropped(x, pairs), more, mode="wrap")
    made: Array
    if mode == "constant":
        made = np.pad(x, more, constant_values=value)
    else:
        made = np.pad(x, more, mode=MODES[mode])  # type: ignore[call-overload]
    return _cropped(made, pairs)


def _cropped(x: Array, pairs: Sequence[tuple[int, int]]) -> Array:
    """Return an array without what negative paddings crop."""
    return x[tuple(slice(max(-a, 0), n - max(-b, 0)) for (a, b), n in zip(pairs, x.shape, strict=True))]


def windows(x: Array, axis: int, size: int, step: int) -> Array:
    """Return the windows of an axis, as a new last axis."""
    if not x.ndim:
        return x.reshape(1)
    every = np.lib.stride_tricks.sliding_window_view(x, size, axis)
    return every[(slice(None),) * (axis % x.ndim) + (slice(None, None, step),)]


def nearest(x: Array, sizes: Sequence[int]) -> Array:
    """Return maps of other sizes; each element is the one at floor(index * size / new size)."""
    first = x.ndim - len(sizes)
    for axis, size in enumerate(sizes, first):
        scale = np.float32(x.shape[axis]) / np.float32(size)
        index = np.floor(np.arange(size, dtype=np.float32) * scale).astype(np.int64)
        x = np.take(x, np.minimum(index, x.shape[axis] - 1), axis)
    return x


def interpolated(x: Array, sizes: Sequence[int], align: bool, cubic: bool) -> Array:
    """Return maps of other sizes, interpolated axis by axis.

    Parameters
    ----------
    x : (N, C, ...).
    sizes : new sizes of the last axes.
    align : the corners' elements lie at the corners.
    cubic : cubic convolution with -0.75 instead of linear interpolation.
    """
    made, first = x.astype(np.float64), x.ndim - len(sizes)
    for axis, size in enumerate(sizes, first):
        old = made.shape[axis]
        # Places are computed in the type of the arithmetic, float32 also for float16, as PyTorch does.
        place: Any = np.dtype(np.float64) if x.dtype == np.float64 else np.dtype(np.float32)
        at: Array = np.arange(size, dtype=place)
        if align:
            at = at * (place.type(old - 1) / place.type(size - 1) if size > 1 else place.type(0))
        else:
            at = (at + place.type(0.5)) * (place.type(old) / place.type(size)) - place.type(0.5)
            at = at if cubic else np.maximum(at, 0)
        base = np.floor(at).astype(np.int64)
        rest = at - base
        near = ((0, 1 - rest), (1, rest)) if not cubic else _cubic(rest)
        column = (-1,) + (1,) * (x.ndim - axis - 1)
        parts = [
            np.take(made, np.clip(base + offset, 0, old - 1), axis) * weight.reshape(column)
            for offset, weight in near
        ]
        made = np.add.reduce(parts)
    return np.asarray(made)


def _cubic(t: Array) -> tuple[tuple[int, Array], ...]:
    a = -0.75

    def inner(x: Array) -> Array:
        return np.asarray(((a + 2) * x - (a + 3)) * x * x + 1)

    def outer(x: Array) -> Array:
        return np.asarray(((x - 5) * x + 8) * x * a - 4 * a)

    return ((-1, outer(t + 1)), (0, inner(t)), (1, inner(1 - t)), (2, outer(2 - t)))
