"""Integer arithmetic of the data path on int64 arrays, and conversion of bytes to elements.

Rounding shifts and saturation follow [HW 7.5], [HW 7.10], [HW 14.1], elements [HW 3].
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rkcosim.golden.task.dpu_float import widen16, widen_bf16
from rkcosim.spec.types import FP16, INT4, INT8, INT16, TF32, ElementType

Ints = NDArray[np.int64]
TF32_MASK = np.uint32(0xFFFFE000)
"""Mask of the 19 bits of a word that tf32 uses."""


def signed(value: int, width: int) -> int:
    """Read the low `width` bits of `value` as a two's complement number."""
    value &= (1 << width) - 1
    return value - (1 << width) if value >> (width - 1) else value


def sign_extend(value: Ints | int, bits: int) -> Ints:
    """Low `bits` bits of numbers as two's complement numbers."""
    sign = 1 << (bits - 1)
    return (np.asarray(value, np.int64) & ((1 << bits) - 1) ^ sign) - sign


def saturate(value: Ints, bits: int) -> Ints:
    """Clamp to a signed range of `bits` bits."""
    return np.clip(value, -(1 << (bits - 1)), (1 << (bits - 1)) - 1)


def shift_even(value: Ints, shift: int) -> Ints:
    """`value / 2^shift` rounded half to even; |value| < 2^62, 0 <= shift <= 63."""
    if shift == 0:
        return value
    # The addend carries into the result if the rest is above one half, or is one half and the floor is odd.
    return (value + ((value >> shift) & 1) + ((1 << (shift - 1)) - 1)) >> shift


def shift_up(value: Ints, shift: int) -> Ints:
    """`value / 2^shift` rounded half up; |value| < 2^62, 0 <= shift <= 63."""
    return value if shift == 0 else (value + (1 << (shift - 1))) >> shift


def shift_away(value: Ints, shift: int) -> Ints:
    """`value / 2^shift` rounded half away from zero; |value| < 2^62, 0 <= shift <= 63."""
    return np.sign(value) * shift_up(np.abs(value), shift)


def shift_to_offset(value: Ints, shift: int, offset: int, *, away: bool) -> Ints:
    """`value / 2^shift + offset`; ties are rounded so that the result is even, or away from zero.

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
    """Rounded half to even with `shift` where value >= 0, with `shift_negative` elsewhere [HW 7.5]."""
    if shift == shift_negative:
        return shift_even(value, shift)
    return np.where(value >= 0, shift_even(value, shift), shift_even(value, shift_negative))


def decode(kind: ElementType, raw: NDArray[np.uint8]) -> NDArray:
    """Convert bytes to elements.

    Parameters
    ----------
    raw
        uint8 [..., n], with n a multiple of the element's bytes.

    Returns
    -------
    [..., n * 8 / bits]: int8 or int16 for integers, binary32 bits in uint32 for floats.
    """
    raw = np.ascontiguousarray(raw)
    if kind is INT4:
        nibbles = np.stack((raw & 15, raw >> 4), axis=-1).reshape(*raw.shape[:-1], -1)
        return ((nibbles ^ 8).astype(np.int8) - 8).astype(np.int8)
    if kind is INT8:
        return raw.view(np.int8)
    if kind is INT16:
        return raw.view("<i2")
    if kind is TF32:
        return raw.view("<u4") & TF32_MASK
    half = raw.view("<u2")
    return widen16(half) if kind is FP16 else widen_bf16(half)
