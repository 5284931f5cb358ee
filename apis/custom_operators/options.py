"""Options and inputs of custom operators, checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Options = Mapping[str, Any]

MOST = 4096
"""Largest number of options, and of elements of a list."""


def read_options(data: bytes) -> dict[str, Any]:
    """Return the options of a custom operator, which TFLite files hold as a FlexBuffers map; {} for none.

    Only numbers and lists of integers are read.

    Raises
    ------
    ValueError
        If the bytes are not such a map.
    """
    from flatbuffers import flexbuffers

    if not data:
        return {}
    try:
        root = flexbuffers.GetRoot(data)
        if not root.IsMap:
            raise ValueError("they are not a map")
        found = root.AsMap
        if len(found) > MOST:
            raise ValueError(f"there are {len(found)}")
        return {key.AsKey: _value(value) for key, value in zip(found.Keys, found.Values, strict=True)}
    except Exception as error:  # the reader does not verify: damage gives struct.error, IndexError, ...
        raise ValueError(f"the options are damaged: {error}") from error


def _value(ref: Any) -> Any:
    """Return a number or a list of integers; None for everything else, which could be nested without end."""
    if ref.IsBool:
        return ref.AsBool
    if ref.IsInt:
        return ref.AsInt
    if ref.IsFloat:
        return ref.AsFloat
    if (ref.IsVector and not ref.IsMap) or ref.IsTypedVector:
        items = ref.AsVector if ref.IsVector else ref.AsTypedVector
        if len(items) > MOST:
            raise ValueError(f"a list of the options has {len(items)} elements")
        return [item.AsInt if item.IsInt else None for item in items]
    return None


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
