"""Types of results, and arrays for arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.frontends.diopi.enums import Dtype
from rkcosim.frontends.diopi.values import REALS, diopiScalar

Array = npt.NDArray[Any]


def _category(dtype: np.dtype) -> int:
    return 0 if dtype.kind == "b" else 1 if dtype.kind in "iu" else 2 if dtype.kind == "f" else 3


def promoted(a: np.dtype, b: np.dtype) -> np.dtype:
    """Return the type of an operation on two tensors: the wider one of the higher category, as in PyTorch."""
    if _category(a) != _category(b):
        return a if _category(a) > _category(b) else b
    return np.promote_types(a, b)


def with_scalar(dtype: np.dtype, scalar: diopiScalar) -> np.dtype:
    """Return the type of an operation on a tensor and a scalar: a scalar only raises the category."""
    if scalar.stype in REALS:
        return dtype if _category(dtype) >= 2 else np.dtype(np.float32)
    if scalar.stype is Dtype.bool or _category(dtype) >= 1:
        return dtype
    return np.dtype(np.int64)


def as_number(value: float, dtype: np.dtype) -> float:
    """Return a number as one of a type: integers without their fraction, and modulo their size."""
    if dtype.kind not in "iu":
        return value
    return int(np.array(int(value), np.int64).astype(dtype))


def wide(array: Array) -> Array:
    """Return an array for arithmetic: real numbers in float64, others as they are."""
    return array.astype(np.float64) if array.dtype.kind == "f" else array


def wide_as(array: Array, dtype: np.dtype) -> Array:
    """Return an array for arithmetic of a type: converted, and real numbers in float64."""
    return array.astype(np.float64) if dtype.kind == "f" else array.astype(dtype)


def real(array: Array) -> Array:
    """Return an array in float64 (complex numbers as they are)."""
    return array if array.dtype.kind == "c" else array.astype(np.float64)
