"""Types of results, and arrays for arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.apis.diopi.enums import Dtype
from rkcosim.apis.diopi.values import REALS, DiopiError, diopiScalar

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
    """Return a number as one of a type: integers without their fraction, and modulo their size.

    Real numbers are rounded to the type, as PyTorch converts the scalars of comparisons, bounds and fills.
    """
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            return float(np.asarray(value, np.float64).astype(dtype))
    if dtype.kind not in "iu":
        return value
    return int(np.array(int(value), np.int64).astype(dtype))


def as_factor(value: float, dtype: np.dtype) -> float:
    """Return a number for arithmetic with elements of a type.

    PyTorch computes with float16 in float32, so it rounds the scalar to float32 and not to float16, whose
    numbers below 2^-14 are coarse.
    """
    return as_number(value, np.dtype(np.float32) if dtype == np.float16 else dtype)


def refuse(array: Array, kinds: str) -> None:
    """Raise DiopiError for elements of a kind of numpy's that PyTorch has no such operator for."""
    if array.dtype.kind in kinds:
        raise DiopiError(f"there is no such operator on {array.dtype.name}")


LARGEST = 65504.0
"""The largest number of fp16."""


def fits_half(value: float) -> bool:
    """Whether fp16 has a number next to a constant with its full precision."""
    return value == 0 or 2.0**-14 <= abs(value) <= LARGEST


TOO_FINE = "a constant that fp16 does not represent with its precision"
"""Why a constant keeps an operator from the NPU."""


def wide(array: Array) -> Array:
    """Return an array for arithmetic: real numbers in float64, others as they are."""
    return array.astype(np.float64) if array.dtype.kind == "f" else array


def wide_as(array: Array, dtype: np.dtype) -> Array:
    """Return an array for arithmetic of a type: converted, and real numbers in float64."""
    return array.astype(np.float64) if dtype.kind == "f" else array.astype(dtype)


def real(array: Array) -> Array:
    """Return an array in float64 (complex numbers as they are)."""
    return array if array.dtype.kind == "c" else array.astype(np.float64)
