"""Tile sums of the floating-point types in exact rational numbers ([HW 3.4], [HW 6.2])."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

NAN, INFINITY, SIGN = 0x7FC00000, 0x7F800000, 0x80000000


@dataclass(frozen=True)
class Format:
    """A binary format: a sign, `exponent` and `fraction` bits, and `ignored` bits below them.

    `exact`: the products of a tile are summed exactly, not in an alignment window.
    """

    exponent: int
    fraction: int
    ignored: int = 0
    exact: bool = False


FP16 = Format(5, 10, exact=True)
BF16 = Format(8, 7)
TF32 = Format(8, 10, ignored=13)
BINARY32 = Format(8, 23)


@dataclass(frozen=True)
class Number:
    """An operand: `(-1)^sign * mantissa * 2^place`, or a special value."""

    sign: int
    mantissa: int
    place: int
    nan: bool = False
    infinite: bool = False

    @property
    def value(self) -> Fraction:
        return Fraction((-1) ** self.sign * self.mantissa) * Fraction(2) ** self.place


def decode(kind: Format, bits: int) -> Number:
    """Return the number that the bits of a format represent."""
    bits >>= kind.ignored
    fraction = bits & ((1 << kind.fraction) - 1)
    biased = bits >> kind.fraction & ((1 << kind.exponent) - 1)
    sign = bits >> (kind.fraction + kind.exponent) & 1
    top, bias = (1 << kind.exponent) - 1, (1 << (kind.exponent - 1)) - 1
    hidden = (biased != 0) << kind.fraction
    return Number(
        sign,
        fraction | hidden,
        max(biased, 1) - bias - kind.fraction,
        nan=biased == top and fraction != 0,
        infinite=biased == top and fraction == 0,
    )


def binary32(value: Fraction, negative_zero: bool = False) -> int:
    """Return the bits of the binary32 nearest to a rational number, ties to even."""
    sign = SIGN if value < 0 or (value == 0 and negative_zero) else 0
    magnitude = abs(value)
    if magnitude == 0:
        return sign
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    exponent -= Fraction(2) ** exponent > magnitude  # 2^exponent <= magnitude < 2^(exponent + 1)
    unit = max(exponent - 23, -149)
    mantissa = round(magnitude / Fraction(2) ** unit)  # Python rounds fractions half to even
    # Counted from 2^-149 in steps of a unit, a mantissa of 2^24 falls on the next power of two by itself.
    bits = mantissa + ((unit + 149) << 23)
    return sign | min(bits, INFINITY)


def add(a: int, b: int) -> int:
    """Sum of two binary32, as bits."""
    x, y = decode(BINARY32, a), decode(BINARY32, b)
    if x.nan or y.nan or (x.infinite and y.infinite and x.sign != y.sign):
        return NAN
    if x.infinite:
        return a
    if y.infinite:
        return b
    return binary32(x.value + y.value, negative_zero=bool(x.sign and y.sign))


def tile_sum(kind: Format, features: list[int], weights: list[int]) -> int:
    """Sum of the products of one tile and pixel as the bits of a binary32."""
    pairs = [(decode(kind, f), decode(kind, w)) for f, w in zip(features, weights, strict=True)]
    infinities = set()
    for a, b in pairs:
        if a.nan or b.nan or (a.infinite and not b.mantissa) or (b.infinite and not a.mantissa):
            return NAN
        if a.infinite or b.infinite:
            infinities.add(a.sign ^ b.sign)
    if infinities:
        return NAN if len(infinities) == 2 else INFINITY | (SIGN if infinities == {1} else 0)
    bits = binary32(exact_sum(pairs) if kind.exact else window_sum(pairs))
    return bits if bits & ~SIGN else 0


def exact_sum(pairs: list[tuple[Number, Number]]) -> Fraction:
    """Sum of the products."""
    return sum((a.value * b.value for a, b in pairs), Fraction(0))


def window_sum(pairs: list[tuple[Number, Number]]) -> Fraction:
    """Sum of the products in the alignment window: X * 2^(Q - 35)."""
    products = [
        ((-1) ** (a.sign ^ b.sign), a.mantissa * b.mantissa, a.place + b.place)
        for a, b in pairs
        if a.mantissa * b.mantissa
    ]
    if not products:
        return Fraction(0)
    top = max(place for _, _, place in products)
    total, sticky = 0, 0
    for sign, mantissa, place in products:
        wide = mantissa << 34
        kept = wide >> (top - place) if top - place <= 62 else 0
        total += sign * kept
        sticky |= kept << (top - place) != wide
    return Fraction(2 * total | sticky) * Fraction(2) ** (top - 35)
