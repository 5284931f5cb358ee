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
