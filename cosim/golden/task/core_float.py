"""Tile sums of floating-point convolutions, bit for bit [HW 6.2].

A tile sum is the sum of the products of one pixel and one kernel in one channel group and tap.  All functions
work on a stack of tiles: features [tiles, pixels, lanes], weights [tiles, lanes, kernels], sums binary32
[tiles, pixels, kernels].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rkcosim.spec.types import FP16, ElementType

Reals = NDArray[np.float64]
Singles = NDArray[np.float32]
Bits = NDArray[np.uint32]

_HALF_UNIT = 24
"""log2 of the inverse of the unit of fp16.

A finite fp16 is a multiple of 2^-24 below 2^16: 40 bits and a sign in this unit.
"""

_PART = 20
"""Width of the lower part when a number is split into two parts."""

_INFINITE = 0x7F800000
_WINDOW = 34
_BIAS = 127
_PAIRS = 1 << 14
"""Number of pairs of pixel and kernel that the window rule processes at a time, to fit the caches."""


@dataclass(frozen=True)
class Operands:
    """Features or weights in the forms that tile sums need; all arrays have the same shape."""

    bits: Bits
    value: Reals
    """The number, 0 for infinities and NaNs."""
    finite: bool
    """Whether there are no infinities and no NaNs."""

    @classmethod
    def of(cls, bits: Bits) -> Operands:
        """Build the forms from binary32 bits."""
        magnitude = bits & np.uint32(0x7FFFFFFF)
        finite = magnitude < _INFINITE
        value = np.where(finite, bits, 0).view(np.float32).astype(np.float64)
        return cls(bits, value, bool(finite.all()))

    def __getitem__(self, place: Any) -> Operands:
        """Index all arrays with the same place."""
        return Operands(self.bits[place], self.value[place], self.finite)


def tile_sums(kind: ElementType, features: Operands, weights: Operands) -> Singles:
    """Sum of the products of every tile by the rule for its type."""
    if kind is FP16:
        sums = _half_sums(features.value, weights.value)
    else:
        sums = _window_sums(kind, features, weights)
    if features.finite and weights.finite:
        return sums
    return _with_specials(sums, features.bits, weights.bits)


def _half_sums(x: Reals, w: Reals) -> Singles:
    """fp16: exact sum of the products, rounded once.

    In units of 2^-24 operands are integers of 40 bits, x = xh * 2^20 + xl with |xh| <= 2^20 and
    |xl| <= 2^19; w is split in the same way.  With at most 32 lanes the sums of xh*wh (32 * 2^40), of
    xh*wl + xl*wh (64 * 2^39) and of xl*wl (32 * 2^38) are integers of at most 2^45, which float64 represents
    exactly in any order.  With the carries from the lower sums they are `top * 2^40 + low`, 0 <= low < 2^40
    and |top| < 2^46, in units of 2^-48.  If |top| < 2^22, this fits an int64.  Otherwise `top`, the 16 bits
    below it and one sticky bit for the others (2^62 at most) round to binary32 like the whole sum,
    because they have more than 24 + 2 leading bits.  All results are normal numbers or 0.
    """
    unit = 2.0**_HALF_UNIT
    x, w = x * unit, w * unit
    direct = _width(x) + _width(w) + 5 <= 53  # float64 represents every sum of 32 products exactly
    if direct:
        return np.matmul(x, w).astype(np.float32) * np.float32(2.0 ** (-2 * _HALF_UNIT))
    split = 2.0**_PART
    xh, wh = np.rint(x / split), np.rint(w / split)
    xl, wl = x - xh * split, w - wh * split
    middle = np.matmul(np.concatenate((xh, xl), axis=-1), np.concatenate((wl, wh), axis=-2)).astype(np.int64)
    low = np.matmul(xl, wl).astype(np.int64)
    top = np.matmul(xh, wh).astype(np.int64)
    middle += low >> _PART
    low &= (1 << _PART) - 1
    top += middle >> _PART
    low |= (middle & ((1 << _PART) - 1)) << _PART
    large = np.abs(top) >= 1 << 22
    near = (top << 16) | (low >> 24) | ((low & ((1 << 24) - 1)) != 0)
    sums = np.where(large, near, (top << 40) | low).astype(np.float32)
    scale = np.where(large, np.float32(2.0 ** (24 - 2 * _HALF_UNIT)), np.float32(2.0 ** (-2 * _HALF_UNIT)))
    return sums * scale


def _width(value: Reals) -> int:
    """Number of bits from the lowest to the highest bit that is set in any of some integers below 2^53."""
    used = int(np.bitwise_or.reduce(np.abs(value).astype(np.int64), axis=None))
    return used.bit_length() - ((used & -used).bit_length() - 1) if used else 0


def _fields(kind: ElementType, bits: Bits) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Signed integer m and exponent q of `m * 2^q`; arbitrary for infinities and NaNs (`_with_specials`)."""
    wide = bits.astype(np.int64)
    biased = wide >> 23 & 0xFF
    fraction = (wide & 0x7FFFFF) >> (24 - kind.mantissa)
    m = fraction | np.where(biased > 0, 1 << (kind.mantissa - 1), 0)
    return np.where(wide >> 31 == 1, -m, m), np.maximum(biased, 1) - _BIAS - (kind.mantissa - 1)


def _span(bits: Bits, axis: int) -> NDArray[np.int64]:
    """Largest minus smallest exponent of the finite non-zero numbers along an axis, at least 0."""
    magnitude = bits & np.uint32(0x7FFFFFFF)
    used = (magnitude > 0) & (magnitude < _INFINITE)
    biased = np.maximum(magnitude >> 23, 1).astype(np.int64)
    top = np.where(used, biased, 0).max(axis=axis)
    bottom = np.where(used, biased, 255).min(axis=axis)
    return np.maximum(top - bottom, 0)


def _window_sums(kind: ElementType, features: Operands, weights: Operands) -> Singles:
    """bf16 and tf32: the sum in an alignment window.

    The exponents of the products differ by at most the sum of the spans of both operands.  Up to 34 the
    window loses nothing (`m << 34` is shifted right by at most 34), so that the result is the exact sum
    rounded once.  float64 represents that sum exactly in any order if 2 * mantissa + 5 + span <= 53.
    """
    with np.errstate(over="ignore", under="ignore"):
        sums = np.matmul(features.value, weights.value).astype(np.float32)
    limit = 53 - 5 - 2 * kind.mantissa  # 32 or 26, less than 34
    span = _span(features.bits, -1)[:, :, None] + _span(weights.bits, -2)[:, None, :]
    where = np.nonzero(span > limit)
    if where[0].size:
        xm, xq = _fields(kind, features.bits)
        wm, wq = _fields(kind, weights.bits.swapaxes(-1, -2))
    for at in range(0, where[0].size, _PAIRS):
        tile, pixel, kernel = (index[at : at + _PAIRS] for index in where)
        m = xm[tile, pixel] * wm[tile, kernel]
        sums[tile, pixel, kernel] = window_sum(m, xq[tile, pixel] + wq[tile, kernel])
    return sums + np.float32(0)


def window_sum(m: NDArray[np.int64], q: NDArray[np.int64]) -> Singles:
    """Sum products `m * 2^q` in the window: int64 [n, lanes] -> binary32 [n]."""
    used = m != 0
    top = np.where(used, q, -(1 << 20)).max(axis=-1)
    size = np.abs(m) << _WINDOW
    gone = np.clip(top[:, None] - q, 0, 63)  # arbitrary for products that are 0
    kept = size >> gone
    sticky = ((kept << gone) != size).any(axis=-1)
    total = 2 * (np.sign(m) * kept).sum(axis=-1) | sticky
    # 62 bits are reduced to 50 with a sticky bit for those below, which rounds to binary32 in the same way;
    # large sums keep more than 24 + 2 leading bits.  float64 represents them and their scaling exactly.
    large = np.abs(total) >= 1 << 50
    near = (total >> 12) | ((total & 4095) != 0)
    value = np.where(large, near, total).astype(np.float64)
    exponent = np.where(total == 0, 0, top - _WINDOW - 1 + np.where(large, 12, 0))
    with np.errstate(over="ignore", under="ignore"):
        return np.ldexp(value, exponent.astype(np.int32)).astype(np.float32)


def _with_specials(sums: Singles, x: Bits, w: Bits) -> Singles:
    """Insert the sums that infinities and NaNs determine.

    Infinite and NaN products are counted by products of 0 and 1: at most 4 * 32 of them, so that
    binary32 counts exactly.
    """

    def kinds(bits: Bits) -> dict[str, Singles]:
        magnitude, negative = bits & np.uint32(0x7FFFFFFF), bits >> 31 == 1
        infinite = magnitude == _INFINITE
        out = {
            "nan": magnitude > _INFINITE,
            "zero": magnitude == 0,
            "any": np.ones_like(negative),
            "infinite": infinite,
            "plus": ~negative,  # with a zero or a NaN the product is invalid in any case
            "minus": negative,
            "up": infinite & ~negative,
            "down": infinite & negative,
        }
        return {name: flag.astype(np.float32) for name, flag in out.items()}

    a, b = kinds(x), kinds(w)

    def count(*pairs: tuple[str, str]) -> NDArray[np.bool_]:
        left = np.concatenate([a[name] for name, _ in pairs], axis=-1)
        right = np.concatenate([b[name] for _, name in pairs], axis=-2)
        return np.matmul(left, right) > 0

    invalid = count(("nan", "any"), ("any", "nan"), ("infinite", "zero"), ("zero", "infinite"))
    up = count(("up", "plus"), ("plus", "up"), ("down", "minus"), ("minus", "down"))
    down = count(("up", "minus"), ("minus", "up"), ("down", "plus"), ("plus", "down"))
    sums = np.where(up, np.float32(np.inf), np.where(down, np.float32(-np.inf), sums))
    return np.where(invalid | (up & down), np.float32(np.nan), sums)
