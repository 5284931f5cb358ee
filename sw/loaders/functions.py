"""Functions of one number, as tables of 256 bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from sw.compiler.graph import Clamp, Lookup, Tensor

Reals = npt.NDArray[Any]


def _sigmoid(x: Reals) -> Reals:
    return 1.0 / (1.0 + np.exp(-np.clip(x, -700.0, 700.0)))


FUNCTIONS: dict[str, Callable[[Reals], Reals]] = {
    "Sigmoid": _sigmoid,
    "Tanh": np.tanh,
    "HardSigmoid": lambda x: np.clip(x / 6 + 0.5, 0.0, 1.0),
    "HardSwish": lambda x: x * np.clip(x / 6 + 0.5, 0.0, 1.0),
    "Silu": lambda x: x * _sigmoid(x),
}
"""Functions by name, on float64."""


def lookup(
    name: str,
    kind: str,
    x: Tensor,
    y: Tensor,
    function: Callable[[Reals], Reals] | None = None,
    clamp: Clamp | None = None,
) -> Lookup:
    """The table of a function from x's bytes to y's: `sat8(rint(f(real) / scale) + zero)`.

    Parameters
    ----------
    name, kind
        of the operation; `kind` is a key of `FUNCTIONS` unless `function` is given.
    x, y
        input and output, for their scales.
    clamp
        limits on the function's value.
    """
    limits = clamp or Clamp()
    codes = np.arange(-128, 128)
    values = (function or FUNCTIONS[kind])((codes - x.zero_point) * x.scale)
    values = np.clip(values, limits.low, limits.high)
    table = np.clip(np.rint(values / y.scale) + y.zero_point, -128, 127).astype(np.int8)
    return Lookup(name, (x.name,), y.name, table, kind)
