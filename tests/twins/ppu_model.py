"""Naive model of the PPU: pooling of one cube, written from [HW 9]."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

INT8, INT16, FP16 = 0, 1, 2
AVERAGE, MAX, MIN = 0, 1, 2
NAN16 = 0x7E00


def average(total: int, kw: int, kh: int, recip_width: int, recip_height: int) -> int:
    """Rounded average of one window, before saturation."""
    magnitude = abs(total)
    taps = kw * kh
    nearest = (magnitude * recip_width * recip_height + (1 << 31)) >> 32
    result = nearest
    if taps % 2 == 0:
        for j in (nearest - 1, nearest):
            if j >= 0 and 2 * magnitude == (2 * j + 1) * taps:
                powers = (1, 2, 4, 8, 16)
                exact = kw in powers and kh in powers
                result = j + (j % 2) if exact else j
                break
    return -result if total < 0 else result


def half_value(half: int) -> Fraction | str:
    """Return the value of fp16 bits; "nan", "inf" or "-inf" if it is not a number."""
    sign, biased, fraction = half >> 15, half >> 10 & 0x1F, half & 0x3FF
    if biased == 31:
        return "nan" if fraction else ("-inf" if sign else "inf")
    size = Fraction(fraction, 1 << 24) if biased == 0 else Fraction((1024 + fraction) << biased, 1 << 25)
    return -size if sign else size


def rounded(value: Fraction, digits: int, least: int, top: int) -> Fraction | str:
    """Return `value` rounded half to even to `digits` bits or a multiple of 2^least; infinite at 2^top."""
    size = abs(value)
    if size == 0:
        return Fraction(0)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    if size < Fraction(2) ** exponent:
        exponent -= 1
    unit = Fraction(2) ** max(exponent - digits + 1, least)
    steps = round(size / unit)  # Python rounds fractions half to even
    result = steps * unit
    if result >= Fraction(2) ** top:
        return "-inf" if value < 0 else "inf"
    return -result if value < 0 else result


def reciprocal_value(code: int) -> Fraction:
    """Return the value of a factor of fp16 averages: sign, 6 exponent bits with bias 31, 10 fraction bits."""
    biased, fraction = code >> 10 & 0x3F, code & 0x3FF
    size = (
        Fraction(fraction, 1 << 40)
        if biased == 0
        else Fraction(1024 + fraction) * Fraction(2) ** (biased - 41)
    )
    return -size if code >> 16 else size


def float_average(halves: list[int], recip_width: int, recip_height: int) -> int:
    """Return the average of fp16 bits as fp16 bits."""
    values = [half_value(half) for half in halves]
    kinds = {v for v in values if isinstance(v, str)}
    negative = False
    now: Fraction | str
    if "nan" in kinds or len(kinds) == 2:
        return NAN16
    if kinds:
        now = kinds.pop()
        negative = now == "-inf"
    else:
        now = rounded(sum((v for v in values if not isinstance(v, str)), Fraction(0)), 24, -149, 128)
        negative = now == "-inf" or (not isinstance(now, str) and now < 0)
    for code in (recip_width, recip_height):
        factor = reciprocal_value(code)
        negative ^= bool(code >> 16)
        if isinstance(now, str):
            if factor == 0:
                return NAN16
        else:
            now = rounded(now * factor, 24, -149, 128)
    if not isinstance(now, str):
        now = rounded(now, 11, -24, 16)
    if isinstance(now, str):
        return 0xFC00 if negative else 0x7C00
    size = abs(now)
    bits = int(size * (1 << 24))  # subnormals
    if size >= Fraction(1, 1 << 14):
        exponent = 0
        while size >= Fraction(2) ** (exponent - 13):
            exponent += 1
        bits = (exponent + 1 << 10) + int(size / Fraction(2) ** (exponent - 14) * 1024) - 1024
    return bits | (0x8000 if negative else 0)


def half_rank(half: int) -> int:
    """Return the position of a number's fp16 bits in numeric order."""
    return -(half & 0x7FFF) - 1 if half >> 15 else half


@dataclass
class Pool:
    """A pooling task; pairs are (rows, columns).  `pad_value` as in the registers (19 or 16 bits)."""

    kind: int
    method: int
    kernel: tuple[int, int]
    stride: tuple[int, int]
    pad: tuple[int, int]
    out: tuple[int, int]
    pad_value: int
    recip: tuple[int, int] = field(default=(0, 0))

    def run(self, cube: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Pool int64 [H, W, C]; return values and positions, int64 [OH, OW, C]; fp16 as bits."""
        shape = (*self.out, cube.shape[2])
        result, index = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        for place in np.ndindex(shape):
            result[place], index[place] = self._window(cube, *place)
        return result, index

    def _window(self, cube: np.ndarray, oy: int, ox: int, channel: int) -> tuple[int, int]:
        real, padded = [], 0
        for ky in range(self.kernel[0]):
            for kx in range(self.kernel[1]):
                y, x = oy * self.stride[0] - self.pad[0] + ky, ox * self.stride[1] - self.pad[1] + kx
                if 0 <= y < cube.shape[0] and 0 <= x < cube.shape[1]:
                    real.append((int(cube[y, x, channel]), y % 8 * 8 + x % 8))
                else:
                    padded += 1
        half = self.kind == FP16
        low, high = (-128, 127) if self.kind == INT8 else (-32768, 32767)
        pad = self.pad_value & 0xFFFF if half else (self.pad_value + (1 << 18)) % (1 << 19) - (1 << 18)
        kh, kw = self.kernel
        if self.method == AVERAGE:
            taps = [v for v, _ in real] + [pad] * padded
            if half:
                return float_average(taps, self.recip[1], self.recip[0]), 0
            return max(low, min(high, average(sum(taps), kw, kh, self.recip[1], self.recip[0]))), 0

        def is_nan(value: int) -> bool:
            return half and value & 0x7FFF > 0x7C00

        def best_of(values: list[int]) -> int:
            if any(is_nan(v) for v in values):
                return NAN16
            rank = half_rank if half else int
            return max(values, key=rank) if self.method == MAX else min(values, key=rank)

        index = 0
        if real:
            best = best_of([v for v, _ in real])
            index = next(at for v, at in real if (is_nan(v) if half and best == NAN16 else v == best))
        return best_of([v for v, _ in real] or [pad if half else max(low, min(high, pad))]), index
