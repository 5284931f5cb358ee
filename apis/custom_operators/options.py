"""Options and inputs of custom operators, checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Options = Mapping[str, Any]


def number(options: Options, name: str, low: float, high: float) -> float:
    """Return an option as a number between two limits, both included.

    Raises
    ------
    ValueError
        If it is missing, not a number, or outside the limits.
    """
    value = options.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not np.isfinite(value):
        raise ValueError(f"the option '{name}' is {value!r}, not a number")
    if not low <= value <= high:
        raise ValueError(f"the option '{name}' is {value}, not between {low:g} and {high:g}")
    return float(value)


def shaped(arrays: Sequence[Array], *shapes: tuple[int | None, ...]) -> list[Array]:
    """Return arrays as float32 after a check of their shapes; None stands for any size.

    Raises
    ------
    ValueError
        If there is another number of arrays, or one has another shape.
    """
    if len(arrays) != len(shapes):
        raise ValueError(f"there are {len(arrays)} inputs, not {len(shapes)}")
    for place, (array, shape) in enumerate(zip(arrays, shapes, strict=True)):
        if array.ndim != len(shape) or any(
            w not in (None, n) for w, n in zip(shape, array.shape, strict=True)
        ):
            raise ValueError(f"input {place} has the shape {list(array.shape)}")
    return [np.asarray(array, np.float32) for array in arrays]
