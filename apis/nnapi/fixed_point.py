"""Functions of 16-bit fixed-point numbers, as gemmlowp defines them: sigmoid and tanh.

The quantised LSTMs of NNAPI are defined with these functions, whose results differ from the exact ones by
several of the last of 15 bits.  Source of the method and of its constants: gemmlowp, fixedpoint/fixedpoint.h
(a fourth-order Taylor polynomial of exp on an interval of a quarter, a product of powers for the rest, and
three Newton steps for the quotient).  Numbers are raw integers in int64 arrays; `bits` are those before the
point.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import numpy.typing as npt

from rkcosim.hostops.quantise import multiplied_twice
from rkcosim.hostops.rounding import Halves, shifted

Raw = npt.NDArray[np.int64]

LOW, HIGH = -(2**15), 2**15 - 1
ONE = HIGH
"""1.0 with no bits before the point: the largest number."""

rounded_shift = partial(shifted, halves=Halves.AWAY)
"""Integers divided by a power of two, rounded as gemmlowp rounds them."""

FIRST_POWER, LAST_POWER = -2, 4
"""The rest of an exponent is a sum of the powers of two between these."""


def saturated(values: Raw) -> Raw:
    """Return numbers within 16 bits."""
    return np.clip(values, LOW, HIGH)


def times(first: Raw | int, second: Raw | int) -> Raw:
    """Return the product of two numbers of which one has 15 fraction bits, in the format of the other."""
    product = np.asarray(first, np.int64) * np.asarray(second, np.int64)
    nudged = product + np.where(product >= 0, 1 << 14, 1 - (1 << 14))
    return saturated(np.sign(nudged) * (np.abs(nudged) >> 15))


def over_root(values: Raw, squares: Raw) -> Raw:
    """Return integers divided by the square roots of integers, rounded twice.

    The multiplier of the reciprocal root has 31 bits less its pairs of leading zeros: its shift is that of
    gemmlowp's users (GetInvSqrtQuantizedMultiplierExp), which decides where the first rounding is.
    """
    squares = np.maximum(squares, 1)
    _, length = np.frexp(squares.astype(np.float64))
    shift = np.maximum(11 - ((31 - length) // 2 - 1), 0).astype(np.int64)
    shift = np.where(squares == 1, 0, shift)
    whole = np.rint(2.0**31 * 2.0**shift / np.sqrt(squares.astype(np.float64))).astype(np.int64)
    return multiplied_twice(values, np.minimum(whole, 2**31 - 1), -shift)


def constant(value: float, bits: int = 0) -> int:
    """Return a number as a raw integer with `bits` bits before the point."""
    return int(np.clip(round(value * 2.0 ** (15 - bits)), LOW, HIGH))


def _exp_near_zero(values: Raw) -> Raw:
    """Return exp of numbers from -1/4 to 0, around -1/8."""
    base = constant(math.exp(-0.125))
    x = values + constant(0.125)
    square = times(x, x)
    cube, fourth = times(square, x), times(square, square)
    rest = times(rounded_shift(fourth, 2) + cube, constant(1 / 3)) + square
    return saturated(base + times(base, x + rounded_shift(rest, 1)))


def exp_of_negative(values: Raw, bits: int) -> Raw:
    """Return exp of numbers up to 0 with `bits` bits before the point; the result has none."""
    quarter = 1 << (15 - bits - 2)
    part = (values & (quarter - 1)) - quarter
    result = _exp_near_zero(part << bits)
    rest = part - values
    for power in range(FIRST_POWER, min(LAST_POWER, bits - 1) + 1):
        place = 15 - bits + power
        result = np.where(rest & (1 << place), times(result, constant(math.exp(-(2.0**power)))), result)
    if bits > 5:
        result = np.where(values < -(1 << (15 - bits + 5)), 0, result)
    return np.where(values == 0, ONE, result)


def _reciprocal(values: Raw) -> Raw:
    """Return 2 / (1 + x) for x from 0 to 1, with 2 bits before the point."""
    total = values + ONE
    half = (total + 1) >> 1
    x = constant(48 / 17, 2) + times(half, constant(-32 / 17, 2))
    for _ in range(3):
        error = (1 << 13) - times(half, x)
        x = x + saturated(times(x, error) << 2)
    return x


def sigmoid(values: Raw, bits: int = 3) -> Raw:
    """Return 1 / (1 + exp(-x)) with 15 fraction bits."""
    positive = saturated(_reciprocal(exp_of_negative(-np.abs(values), bits)) << 1)
    result = np.where(values > 0, positive, ONE - positive)
    return np.where(values == 0, 1 << 14, result)


def tanh(values: Raw, bits: int = 3) -> Raw:
    """Return tanh(x) with 15 fraction bits."""
    near = exp_of_negative(-np.abs(values), bits + 1)  # exp(-2x): the same integer, one bit more
    size = saturated((_reciprocal(near) - (1 << 13)) << 2)
    return np.where(values == 0, 0, np.where(values > 0, size, -size))
