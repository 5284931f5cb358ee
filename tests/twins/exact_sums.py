"""Sums of products as defined in [HW 6.2], with Python's integers and fractions."""

from __future__ import annotations

import math
from fractions import Fraction

from rkcosim.spec.types import BF16, FP16, TF32, ElementType


def round_to_binary32(value: Fraction) -> float:
    """Round a fraction to binary32, ties to even, with integers only."""
    if value == 0:
        return 0.0
    sign, magnitude = (-1 if value < 0 else 1), abs(value)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if magnitude < Fraction(2) ** exponent:
        exponent -= 1
    ulp = Fraction(2) ** (max(exponent, -126) - 23)
    rounded = round(magnitude / ulp) * ulp
    return sign * (math.inf if rounded >= Fraction(2) ** 128 else float(rounded))


def number(kind: ElementType, bits: int) -> Fraction | float:
    """Value of an element's bits (tf32: 19), infinities and NaNs as float."""
    width, fraction_bits = {FP16.code: (5, 10), BF16.code: (8, 7), TF32.code: (8, 10)}[kind.code]
    sign = -1 if bits >> (width + fraction_bits) & 1 else 1
    exponent, fraction = bits >> fraction_bits & ((1 << width) - 1), bits & ((1 << fraction_bits) - 1)
    bias = (1 << (width - 1)) - 1
    if exponent == (1 << width) - 1:
        return math.nan if fraction else sign * math.inf
    hidden = fraction | (1 << fraction_bits if exponent else 0)
    return sign * hidden * Fraction(2) ** (max(exponent, 1) - bias - fraction_bits)


def special_sum(x: list, w: list) -> float | None:
    """Return the result that infinities and NaNs determine, or None."""
    found = set()
    for a, b in zip(x, w, strict=True):
        if isinstance(a, float) or isinstance(b, float):
            if a != a or b != b or a == 0 or b == 0:
                return math.nan
            found.add((a > 0) == (b > 0))
    if len(found) == 2:
        return math.nan
    return (math.inf if found.pop() else -math.inf) if found else None


def exact_sum(x: list, w: list) -> float:
    """Sum of products of numbers, rounded once."""
    return round_to_binary32(sum((a * b for a, b in zip(x, w, strict=True)), Fraction(0)))


def window_rule(kind: ElementType, x: list[int], w: list[int]) -> float:
    """Return the sum by the rule of the alignment window; elements as bits, without infinities and NaNs."""
    mantissa = 8 if kind is BF16 else 11

    def parts(bits: int) -> tuple[int, int, int]:
        sign, biased = bits >> (8 + mantissa - 1) & 1, bits >> (mantissa - 1) & 0xFF
        m = bits & ((1 << (mantissa - 1)) - 1) | (1 << (mantissa - 1) if biased else 0)
        return sign, m, max(biased, 1) - 127 - (7 if kind is BF16 else 10)

    products = []
    for a, b in zip(x, w, strict=True):
        (sa, ma, qa), (sb, mb, qb) = parts(a), parts(b)
        products.append((sa ^ sb, ma * mb, qa + qb))
    used = [q for _, m, q in products if m]
    if not used:
        return 0.0
    top, total, sticky = max(used), 0, 0
    for sign, m, q in products:
        if not m:
            continue
        shift, wide = top - q, m << 34
        t = 0 if shift > 62 else wide >> shift
        sticky |= (t << shift) != wide
        total += -t if sign else t
    value = 2 * total | int(sticky)
    assert -(1 << 63) <= value < 1 << 63
    return round_to_binary32(value * Fraction(2) ** (top - 35))


def tile_sum(kind: ElementType, x: list[int], w: list[int]) -> float:
    """Return the sum of the products of one tile and pixel, elements as bits."""
    xs, ws = [number(kind, b) for b in x], [number(kind, b) for b in w]
    want = special_sum(xs, ws)
    if want is not None:
        return want
    return exact_sum(xs, ws) if kind is FP16 else window_rule(kind, x, w)
