"""Options and inputs of custom operators, checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Options = Mapping[str, Any]


def read_options(data: bytes) -> dict[str, Any]:
    """Return the options of a custom operator, which TFLite files hold as a FlexBuffers map; {} for none.

    Raises
    ------
    ValueError
        If the bytes are not such a map.
    """
    from flatbuffers import flexbuffers

    if not data:
        return {}
    try:
        options = flexbuffers.Loads(data)
    except Exception as error:  # the reader does not verify: damage gives struct.error, IndexError, ...
        raise ValueError(f"the options are damaged: {error}") from error
    if not isinstance(options, dict):
        raise ValueError("the options are not a map")
    return options


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
