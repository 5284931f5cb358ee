"""The arithmetic of quantised tensors in nnlib, in float32 as it is defined there.

A quantised tensor is three edges of a graph: unsigned bytes, and two float scalars, the real numbers of the
codes 0 and 255.  A tensor of int32 has the zero point 0, and its scalars are the real numbers of -2^31 and
2^31 (XiaoMi/nnlib at df7ad3c1: docs/quantization.txt, hexagon/include/quantize.h, hexagon/src/quantize.c,
hexagon/ops/src/op_requantize.c).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.hostops.quantise import coded
from rkcosim.hostops.rounding import Halves, nearest

Array = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]
Sums = npt.NDArray[np.int32]

LEVELS = 255
"""Steps between the scalars of a tensor of bytes."""

NEAR = 2.0**-14
"""Distance from an integer at which a zero point counts as that integer."""

LEAST_RANGE = 1e-18
"""The smallest difference of two scalars."""

f32 = np.float32

half_away = partial(nearest, halves=Halves.AWAY)
"""Real numbers rounded to integers as nnlib rounds them."""


@dataclass(frozen=True)
class Range:
    """The scalars of a quantised tensor, as float32 numbers.

    Members
    -------
    low, high : real numbers of the lowest and the highest code.
    """

    low: float
    high: float

    @property
    def step(self) -> float:
        """Real size of a step of bytes."""
        return float((f32(self.high) - f32(self.low)) / f32(LEVELS))

    @property
    def step32(self) -> float:
        """Real size of a step of int32."""
        return float((f32(self.high) - f32(self.low)) * f32(2.0**-32))

    @property
    def zero(self) -> int:
        """Code of the real number 0 in bytes, saturated."""
        return int(self.codes(np.zeros(1, np.float32))[0])

    def codes(self, values: Array) -> Bytes:
        """Return real numbers as codes: rounded half away from 0, and saturated."""
        gain = f32(LEVELS) / np.maximum(f32(LEAST_RANGE), f32(self.high) - f32(self.low))
        scaled = (values.astype(np.float32) - f32(self.low)) * gain
        return coded(scaled, 0, np.uint8, Halves.AWAY)

    def reals(self, codes: Array) -> npt.NDArray[np.float32]:
        """Return the real numbers of codes, float32: (code - zero) * step."""
        return (codes.astype(np.float32) - f32(self.zero)) * f32(self.step)

    def reals32(self, sums: Array) -> npt.NDArray[np.float32]:
        """Return the real numbers of a tensor of int32, float32."""
        return sums.astype(np.float32) * f32(self.step32)


def saturate(values: Array) -> Bytes:
    """Return integers as unsigned bytes, saturated."""
    return np.clip(values, 0, LEVELS).astype(np.uint8)


def sums_range(step: float) -> Range:
    """Return the scalars of a tensor of int32 with a step."""
    return Range(float(f32(-(2.0**31)) * f32(step)), float(f32(2.0**31 - 1) * f32(step)))


def with_zero(low: float, high: float) -> Range:
    """Return the smallest range around two numbers in which 0 has an exact code.

    The range includes 0.  If the zero point is not an integer within 2^-14, the end that moves less is moved
    outwards.
    """
    least, most = f32(min(0.0, low)), f32(max(0.0, high))
    gain = f32(LEVELS) / np.maximum(f32(LEAST_RANGE), most - least)
    if least < 0:
        zero = -least * gain
        whole = np.floor(zero)
        rest = zero - whole
        if f32(NEAR) < rest < f32(1 - NEAR):
            up = whole > 0 and (whole > 253 or (rest - f32(1)) * least >= rest * most)
            if up:
                most = least - f32(LEVELS) * least / whole
            else:
                least = most * (whole + f32(1)) / (whole - f32(254))
    if most - least < f32(LEAST_RANGE):
        most = least + f32(LEAST_RANGE)
    return Range(float(least), float(most))


def with_zero_between(low: float, high: float) -> Range:
    """Return a range with an exact code for 0 near two given ends, of which neither is free to move.

    If the zero point is not an integer within 2^-14, the end near 0 of a lopsided range moves so that it is
    rounded, otherwise both ends move by the same amount (hexagon/src/quantize.c, both ends "fixed").
    """
    least, most = f32(min(0.0, low)), f32(max(0.0, high))
    reach = most - least
    if least == 0 or not reach > 0:
        return Range(float(least), float(max(most, least + f32(LEAST_RANGE))))
    zero = f32(-LEVELS) * least / reach
    rest = zero - np.floor(zero)
    if not f32(NEAR) < rest < f32(1 - NEAR):
        return Range(float(least), float(most))
    nearest = np.floor(zero) + f32(rest >= 0.5)
    if zero <= 63.75:
        least = most * nearest / (nearest - f32(LEVELS))
    elif zero >= 192.25:
        most = least - f32(LEVELS) * least / nearest
    else:
        moved = (zero - nearest) * reach * f32(1 / LEVELS)
        least, most = least + moved, most + moved
    return Range(float(least), float(most))


@dataclass(frozen=True)
class Adder:
    """The sum of two tensors of bytes in a given range, in nnlib's integers (hexagon/ops/src/op_add.c).

    t = (a * first + b * second) >> early; the code is (t + offset) / 2^late, rounded up at halves.

    Members
    -------
    first, second : factors of the codes, below 2^14.
    early, late : right shifts.
    offset : added between them; the sum is saturated to 16 bits.
    """

    first: int
    second: int
    early: int
    late: int
    offset: int

    @classmethod
    def of(cls, a: Range, b: Range, wanted: Range, sign: int) -> Adder | None:
        """Return the factors of a + sign * b, or None if the wanted range is too small for them."""
        scale = f32(LEVELS) / (f32(wanted.high) - f32(wanted.low))
        factors = scale * f32(a.step), scale * f32(b.step) * f32(sign)
        largest = factors[0] + factors[1] if sign > 0 else max(factors[0], -factors[1])
        _, exponent = np.frexp(f32(largest) * f32(16384 / 16380))
        if exponent > 12:
            return None
        late = min(6 - int(exponent), 7)
        more = 1 - late if late <= 0 else 0
        gain = f32(2.0**late)
        first, second = (int(half_away(np.array(one * gain * f32(256)))) for one in factors)
        zero = (a.zero * first + b.zero * second) >> (8 - more)
        unit = f32(2.0) if more else gain
        offset = int(half_away(np.array(f32(-wanted.low) * scale * unit))) - zero
        if not more:
            offset = min(max(offset, -(2**15)), 2**15 - 1)
        return cls(first, second, 8 - more, 1 if more else late, offset)

    def codes(self, a: Bytes, b: Bytes) -> Bytes:
        """Return the codes of the sums of two tensors of codes."""
        total = (a.astype(np.int64) * self.first + b.astype(np.int64) * self.second) >> self.early
        total = np.clip(total + self.offset, -(2**15), 2**15 - 1)
        return saturate((total + (1 << self.late >> 1)) >> self.late)


def requantise32(sums: Sums, given: Range, wanted: Range) -> Bytes:
    """Return a tensor of int32 as codes of another range, as Requantize_32to8 computes them."""
    return wanted.codes(given.reals32(sums))


def requantise8(codes: Bytes, given: Range, wanted: Range) -> Bytes:
    """Return codes as codes of another range: one rounding of the real number."""
    if given == wanted:
        return codes
    return wanted.codes(given.reals(codes))


def bias_sums(bias: Array, given: Range, step: float) -> npt.NDArray[np.int64]:
    """Return a bias in units of the sums, int64: bytes or int32 with a range, to sums with a step."""
    if bias.dtype == np.uint8:
        scaled = (bias.astype(np.float32) - f32(given.zero)) * (f32(given.step) / f32(step))
    else:
        scaled = bias.astype(np.float32) * (f32(given.step32) / f32(step))
    return half_away(scaled).astype(np.int64)


@dataclass(frozen=True)
class Quotient:
    """The requantisation of nnlib's fused convolutions (Supernode): integers and a reciprocal.

    q = clamp((s * reciprocal + 2^30) >> 31, 0, 255) with s the sum, its bias and the offset of `wanted.low`,
    and reciprocal = (0xFF0000 << 15) / steps (hexagon/ops/src/op_supernode.c, `supernode_execute_ref`).

    Members
    -------
    step : real size of a step of the sums.
    wanted : range of the output.
    """

    step: float
    wanted: Range

    def codes(self, sums: Array) -> Bytes:
        """Return sums with bias as codes; the offset is added in float32, as it is there."""
        step = f32(self.step)
        most = max(1, int((f32(self.wanted.high) - f32(self.wanted.low)) / step + f32(0.5)))
        moved = np.trunc(sums.astype(np.float32) + -f32(self.wanted.low) / step).astype(np.int64)
        inside = np.clip(moved, -2 * most, 2 * most)  # codes beyond are saturated anyway
        return saturate((inside * ((0x00FF0000 << 15) // most) + 2**30) >> 31)
