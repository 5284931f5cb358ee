"""Binary32 for the block tests' models: numpy's arithmetic on bit patterns, with a single NaN [HW 3.4]."""

from __future__ import annotations

import math

import numpy as np

NAN = 0x7FC00000


def value_of(word: int) -> np.float32:
    """Return the number of a pattern."""
    return np.uint32(word).view(np.float32)


def word_of(value: np.float32 | float) -> int:
    """Return the pattern of a number, rounded to binary32."""
    with np.errstate(all="ignore"):
        value = np.float32(value)
    return NAN if np.isnan(value) else int(value.view(np.uint32))


def is_nan(word: int) -> bool:
    """Whether the pattern is a NaN."""
    return word % (1 << 31) > 0x7F800000


def comes_after(a: int, b: int) -> bool:
    """Whether a lies behind b in the order of the signs and magnitudes of the patterns [HW 3.5]."""
    if a >> 31 != b >> 31:
        return b >> 31 == 1
    return a < b if a >> 31 else a > b


def half_quotient(a: int, b: int) -> int:
    """Divide the fp16 in the low halves of two words [HW 7.8.10]."""
    a, b = a % 65536, b % 65536
    sign, top, bottom = a & 0x8000, a & 0x7FFF, b & 0x7FFF
    if max(top, bottom) > 0x7C00 or (a == 0 and b == 0):
        return 0x7C01
    if top == 0x7C00 or bottom == 0:
        return sign | 0x7C00
    if top == 0 or bottom == 0x7C00:
        return sign
    x, y = (np.float64(np.uint16(v).view(np.float16)) for v in (a, b))
    with np.errstate(all="ignore"):
        return int(np.float16(x / y).view(np.uint16))


def float_op(op: str, a: int, b: int) -> int:
    """Do one rounded operation: + - * floor ceil."""
    x, y = value_of(a), value_of(b)
    with np.errstate(all="ignore"):
        match op:
            case "+":
                return word_of(x + y)
            case "-":
                return word_of(x - y)
            case "*":
                return word_of(x * y)
            case "floor":
                return word_of(np.floor(x))
            case "ceil":
                return word_of(np.ceil(x))
    raise ValueError(f"no operation {op!r}")


def float_rounded(number: int) -> int:
    """Return an integer as binary32."""
    return word_of(np.float32(np.int64(number)))


def to_int(word: int) -> int:
    """Round half to even, saturate to 32 bits; NaN gives 0."""
    value = float(value_of(word))
    if math.isnan(value):
        return 0
    if math.isinf(value):
        return (1 << 31) - 1 if value > 0 else -(1 << 31)
    return max(-(1 << 31), min((1 << 31) - 1, round(value)))


def float_of_half(half: int) -> int:
    """Widen an fp16; a NaN keeps its bits."""
    if half & 0x7FFF > 0x7C00:
        return (half >> 15) << 31 | 0x7F800000 | (half & 0x3FF) << 13
    return int(np.uint16(half).view(np.float16).astype(np.float32).view(np.uint32))


def float_of_bf16(half: int) -> int:
    """Widen a bf16."""
    return half << 16


def half_bits(word: int) -> int:
    """Narrow to fp16."""
    with np.errstate(all="ignore"):
        return 0x7E00 if is_nan(word) else int(value_of(word).astype(np.float16).view(np.uint16))


def bf16_bits(word: int) -> int:
    """Narrow to bf16."""
    if is_nan(word):
        return 0x7FC0
    high, rest = divmod(word, 1 << 16)
    return high + (rest > 0x8000 or (rest == 0x8000 and high % 2))
