"""Integer arithmetic of the data path on int64 arrays: shifts that round, saturation (H5.3, H5.4, H12)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


def signed(value: int, width: int) -> int:
    """Read the low `width` bits of `value` as a two's complement number."""
    value &= (1 << width) - 1
    return value - (1 << width) if value >> (width - 1) else value


def saturate(value: Ints, bits: int) -> Ints:
    """Clamp to a signed range of `bits` bits."""
    return np.clip(value, -(1 << (bits - 1)), (1 << (bits - 1)) - 1)


def shift_even(value: Ints, shift: int) -> Ints:
    """`value / 2^shift` rounded half to even; |value| < 2^62, 0 <= shift <= 63."""
    if shift == 0:
        return value
    # What is added carries into the result where the rest is above a half, or a half and the floor odd.
    return (value + ((value >> shift) & 1) + ((1 << (shift - 1)) - 1)) >> shift


def shift_up(value: Ints, shift: int) -> Ints:
    """`value / 2^shift` rounded half up; |value| < 2^62, 0 <= shift <= 63."""
    return value if shift == 0 else (value + (1 << (shift - 1))) >> shift


def shift_away(value: Ints, shift: int) -> Ints:
    """`value / 2^shift` rounded half away from zero; |value| < 2^62, 0 <= shift <= 63."""
    return np.sign(value) * shift_up(np.abs(value), shift)


def shift_to_offset(value: Ints, shift: int, offset: int, *, away: bool) -> Ints:
    """`value / 2^shift + offset`, of which ties are rounded to even, or away from zero.

    |value| < 2^48, 0 <= shift <= 63.
    """
    if shift == 0:
        return value + offset
    floor = value >> shift
    rest, half = value - (floor << shift), 1 << (shift - 1)
    total = floor + offset
    tie_up = total >= 0 if away else (total & 1) == 1
    return total + ((rest > half) | ((rest == half) & tie_up))


def shift_by_sign(value: Ints, shift: int, shift_negative: int) -> Ints:
    """Half to even by `shift` where value >= 0, by `shift_negative` elsewhere (H5.3)."""
    if shift == shift_negative:
        return shift_even(value, shift)
    return np.where(value >= 0, shift_even(value, shift), shift_even(value, shift_negative))
