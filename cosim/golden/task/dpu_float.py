"""Binary32 arithmetic of DPU and PPU on arrays of bits ([HW 3.4], [HW 3.5.1], [HW 3.5.2]).

Values are uint32 arrays of bits, so that a NaN that is only moved keeps its bits.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bits = NDArray[np.uint32]
NAN32, NAN16, NAN_BF16 = 0x7FC00000, 0x7E00, 0x7FC0
NAN16_OUT = 0x7C01
"""The NaN of fp16 that the DPU writes, and that its divider gives."""
INFINITY32, INFINITY16 = 0x7F800000, 0x7C00
SIGN = np.uint32(1 << 31)


def bits32(value: Ints | int) -> Bits:
    """Low 32 bits of integers."""
    return (np.asarray(value, np.int64) & 0xFFFFFFFF).astype(np.uint32)


def floats(bits: Bits) -> NDArray[np.float32]:
    """View bits as numbers."""
    return np.ascontiguousarray(bits).view(np.float32)


def is_nan(bits: Bits) -> NDArray[np.bool_]:
    """Which values are NaN."""
    return (bits & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)


def is_negative(bits: Bits) -> NDArray[np.bool_]:
    """Which values have their sign bit set."""
    return bits >= SIGN


def from_floats(value: NDArray[np.float32]) -> Bits:
    """Bits of results; every NaN becomes the one NaN of the hardware."""
    bits = np.ascontiguousarray(value, np.float32).view(np.uint32)
    return np.where(np.isnan(value), np.uint32(NAN32), bits)


def operate(operation: Callable, a: Bits, b: Bits) -> Bits:
    """Apply a rounded binary32 operation of numpy."""
    with np.errstate(all="ignore"):
        return from_floats(operation(floats(a), floats(b)))


def round_whole(operation: Callable, a: Bits) -> Bits:
    """Apply np.floor or np.ceil."""
    with np.errstate(all="ignore"):
        return from_floats(operation(floats(a)))


def rank(bits: Bits | int) -> Ints:
    """Place of each value in the order by sign and magnitude of the bits, from -NaN to NaN [HW 3.5]."""
    magnitude = np.asarray(bits, np.int64) & 0x7FFFFFFF
    return np.where(np.asarray(bits, np.int64) >> 31 & 1, ~magnitude, magnitude)


def is_infinite(bits: Bits) -> NDArray[np.bool_]:
    """Which values are infinities."""
    return (bits & ~SIGN) == INFINITY32


def divide16(a: Ints | Bits, b: Ints | Bits) -> Bits:
    """The divider: fp16 in the low 16 bits of the operands, and in the result with 0 above [HW 7.8.10]."""
    a, b = (np.asarray(x, np.int64) & 0xFFFF for x in np.broadcast_arrays(a, b))
    x, y = (v.astype(np.uint16).view(np.float16).astype(np.float64) for v in (a, b))
    with np.errstate(all="ignore"):
        # A quotient of two fp16 numbers is never so close to a tie that binary64 would hide it.
        quotient = (x / y).astype(np.float16).view(np.uint16).astype(np.int64)
    sign, infinite = a & 0x8000, np.isinf(x) | (y == 0)
    special = np.where(infinite, sign | INFINITY16, sign)
    out = np.where(infinite | (x == 0) | np.isinf(y), special, quotient)
    nan = np.isnan(x) | np.isnan(y) | ((a | b) == 0)
    return bits32(np.where(nan, NAN16_OUT, out))


@cache
def _fp16_table() -> Bits:
    """Binary32 bits of every fp16 pattern; a NaN keeps its bits."""
    half = np.arange(1 << 16, dtype=np.uint32)
    number = half.astype(np.uint16).view(np.float16).astype(np.float32).view(np.uint32)
    nan = (half >> 15 << 31) | np.uint32(0x7F800000) | ((half & 0x3FF) << 13)
    return np.where((half & 0x7FFF) > 0x7C00, nan, number)


def widen16(half: Ints | int) -> Bits:
    """fp16 in the low 16 bits to binary32."""
    return _fp16_table()[np.asarray(half, np.int64) & 0xFFFF]


def widen_bf16(half: Ints | int) -> Bits:
    """bf16 in the low 16 bits to binary32."""
    return bits32((np.asarray(half, np.int64) & 0xFFFF) << 16)


def narrow16(bits: Bits) -> Ints:
    """Round binary32 to fp16 bits."""
    with np.errstate(all="ignore"):
        half = floats(bits).astype(np.float16).view(np.uint16).astype(np.int64)
    return np.where(is_nan(bits), NAN16, half)


def narrow_bf16(bits: Bits) -> Ints:
    """Round binary32 to bf16 bits."""
    wide = bits.astype(np.int64)
    return np.where(is_nan(bits), NAN_BF16, (wide + 0x7FFF + (wide >> 16 & 1)) >> 16)


def to_integers(bits: Bits, width: int) -> Ints:
    """Round half to even to signed integers of `width` bits, saturated; NaN gives 0."""
    with np.errstate(all="ignore"):
        whole = np.rint(floats(bits).astype(np.float64))
    limit = float(1 << (width - 1))
    return np.clip(np.where(is_nan(bits), 0.0, whole), -limit, limit - 1).astype(np.int64)


def from_integers(value: Ints) -> Bits:
    """Round signed 32-bit integers to binary32."""
    return from_floats(value.astype(np.float32))


def less_exponent(value: Ints, amount: int, exponent: int, mantissa: int) -> Ints:
    """Subtract `amount` from the exponent field, modulo its size; sign and mantissa are kept (4.8).

    Parameters
    ----------
    value
        Bits of floats.
    exponent, mantissa
        Widths of the two fields.
    """
    field = ((1 << exponent) - 1) << mantissa
    return (value & ~field) | ((value - (amount << mantissa)) & field)
