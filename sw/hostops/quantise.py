"""Real numbers as codes of a few bits, codes as real numbers, and codes multiplied in integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.hostops.rounding import Halves, nearest

Array = npt.NDArray[Any]
Integers = npt.NDArray[np.int64]

PART = 1 << 15
"""Elements that are converted at a time."""


def coded(
    steps: npt.ArrayLike, zero: int | Integers, dtype: npt.DTypeLike, halves: Halves = Halves.EVEN
) -> Array:
    """Return `sat(round(steps) + zero)`, computed in float64.

    Parameters
    ----------
    steps
        Real numbers in units of the step, of any shape; not NaN.
    zero
        Zero point: a number, or several that broadcast to the shape.
    dtype
        Type of the codes; they saturate at its limits.
    halves
        The rule for halves.
    """
    limits = np.iinfo(np.dtype(dtype))
    return np.clip(nearest(steps, halves) + zero, limits.min, limits.max).astype(dtype)


def recoded(
    codes: Array,
    zero: int,
    ratio: float,
    new_zero: int,
    dtype: npt.DTypeLike,
    halves: Halves = Halves.EVEN,
) -> Array:
    """Return codes with another step and zero point, `sat(round((codes - zero) * ratio) + new_zero)`.

    Parameters
    ----------
    codes
        Codes of any shape; also real numbers in units of their step.
    zero, new_zero
        Zero points before and after.
    ratio
        The step before, divided by the step after; the product is computed in float64.
    dtype
        Type of the new codes; they saturate at its limits.
    halves
        The rule for halves.
    """
    return coded((codes.astype(np.float64) - zero) * ratio, new_zero, dtype, halves)


def multiplied(values: Array, factor: npt.ArrayLike) -> Integers:
    """Return integers times positive numbers, as gemmlowp's users multiply: rounded twice.

    Each factor becomes an integer of 31 bits and a shift; see `multiplied_twice`.

    Parameters
    ----------
    values
        Integers of at most 32 bits, of any shape.
    factor
        Numbers above 0 that broadcast to the shape.
    """
    mantissa, exponent = np.frexp(np.asarray(factor, np.float64))
    return multiplied_twice(values, np.rint(mantissa * 2.0**31).astype(np.int64), exponent.astype(np.int64))


def multiplied_twice(values: Array, whole: Integers, exponent: Integers) -> Integers:
    """Return `values * whole * 2**(exponent - 31)`, rounded after the product and after the shift.

    Halves of the product are rounded up, halves of the shift away from zero (gemmlowp,
    fixedpoint/fixedpoint.h: SaturatingRoundingDoublingHighMul and RoundingDivideByPOT).

    Parameters
    ----------
    values
        Integers of at most 32 bits, also after a shift to the left by `exponent`.
    whole
        Integers from 0 to 2**31.
    exponent
        Shifts: to the left before the product if positive, to the right after it if negative.
    """
    left, right = np.maximum(exponent, 0), np.maximum(-exponent, 0)
    product = (values.astype(np.int64) << left) * whole
    nudged = product + np.where(product >= 0, 1 << 30, 1 - (1 << 30))
    high = np.sign(nudged) * (np.abs(nudged) >> 31)
    half = (np.int64(1) << right) >> 1
    return np.asarray(np.sign(high) * ((np.abs(high) + half) >> right))


def quantize(values: Array, scale: float, zero_point: int, dtype: type) -> Array:
    """Return `sat(round(values / scale) + zero_point)` in float32, ties to even, as ONNX's QuantizeLinear.

    Parameters
    ----------
    values
        Real numbers of any shape; converted to float32.
    scale, zero_point
        Step and zero point of the codes.
    dtype
        An integer type of 8 or 16 bits.
    """
    info = np.iinfo(dtype)

    def convert(given: Array, taken: Array, work: Array) -> None:
        np.divide(given.astype(np.float32, copy=False), np.float32(scale), out=work)
        np.rint(work, out=work)
        np.add(work, np.float32(zero_point), out=work)
        np.clip(work, info.min, info.max, out=work)
        np.copyto(taken, work, casting="unsafe")

    return _in_parts(convert, values, dtype)


def dequantize(codes: Array, scale: float, zero_point: int) -> npt.NDArray[np.float32]:
    """Return `(codes - zero_point) * scale` in float32, as ONNX's DequantizeLinear.

    Parameters
    ----------
    codes
        Integers of any shape, of at most 32 bits.
    scale, zero_point
        Step and zero point of the codes.
    """
    if codes.dtype.itemsize > 2:  # float32 does not hold every code
        return ((codes.astype(np.int32) - zero_point).astype(np.float32) * np.float32(scale)).astype(
            np.float32
        )

    def convert(given: Array, taken: Array, work: Array) -> None:
        np.subtract(given, np.float32(zero_point), out=taken, dtype=np.float32)
        np.multiply(taken, np.float32(scale), out=taken)

    return _in_parts(convert, codes, np.float32)


def _in_parts(convert: Callable[[Array, Array, Array], None], values: Array, dtype: npt.DTypeLike) -> Array:
    """Convert elements in parts that caches hold, in the order of memory; `convert` gets a float32 buffer."""
    given = values.ravel(order="K")
    if not np.may_share_memory(given, values):  # there are gaps between elements
        values = np.array(values)
        given = values.ravel(order="K")
    result = np.empty_like(values, dtype=dtype)
    taken = result.ravel(order="K")
    work = np.empty(min(given.size, PART), np.float32)
    for first in range(0, given.size, PART):
        part = given[first : first + PART]
        convert(part, taken[first : first + PART], work[: part.size])
    return result
