"""Softmax and its logarithm."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def softmax(x: Array, axis: int, beta: float = 1.0) -> Array:
    """Return exp(beta * x) divided by its sum along an axis, in the type of `x`.

    Parameters
    ----------
    x
        Floats of any shape; also an empty one.
    axis
        The axis.
    beta
        Factor of the exponents, above 0.
    """
    powers = np.exp(_apart(x, axis, beta))
    return np.asarray(powers / powers.sum(axis=axis, keepdims=True))


def log_softmax(x: Array, axis: int, beta: float = 1.0) -> Array:
    """Return the logarithm of `softmax`, which is finite also where softmax is rounded to 0."""
    apart = _apart(x, axis, beta)
    return np.asarray(apart - np.log(np.exp(apart).sum(axis=axis, keepdims=True)))


def _apart(x: Array, axis: int, beta: float) -> Array:
    """Return the distances to the largest number along an axis, times beta: no power of them is infinite."""
    return np.asarray((x - x.max(axis=axis, keepdims=True, initial=-np.inf)) * beta)
