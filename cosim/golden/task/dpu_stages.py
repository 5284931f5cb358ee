"""Arithmetic of the DPU's stages in its two domains ([HW 7.3.3] to [HW 7.10]).

`Integers` works on signed values, int64; `Floats` on binary32 bits, uint32.  Both receive operands as
int64, as DPU_RDMA or a register provides them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rkcosim.golden.task import dpu_float as fp
from rkcosim.golden.task.arith import saturate, shift_away, shift_by_sign, shift_even, sign_extend

Ints = NDArray[np.int64]
Values = NDArray[Any]
LOWEST = -(1 << 31)


def shift_round(value: Ints, shift: int, *, away: bool) -> Ints:
    """`value / 2^shift` rounded half away from zero, or half to even."""
    return shift_away(value, shift) if away else shift_even(value, shift)


class Integers:
    """Signed 32-bit values with wider intermediate results."""

    def enter(self, raw: Ints) -> Ints:
        """Convert elements of 32 bits, int64, to the domain."""
        return raw

    def add(self, value: Ints, operand: Ints | int, *, minus: bool) -> Ints:
        """ALU of BS and BN, before saturation; the result is not limited to 32 bits."""
        return value - operand if minus else value + operand

    def multiply(
        self, value: Ints, factor: Ints | int, shift: int, shift_negative: int, *, prelu: bool
    ) -> Ints:
        """Multiply by 16-bit operands, shift and saturate; with `prelu` only negative values."""
        out = saturate(shift_by_sign(value * factor, shift, shift_negative), 32)
        return np.where(value >= 0, saturate(value, 32), out) if prelu else out

    def settle(self, value: Ints) -> Ints:
        """Saturate to 32 bits."""
        return saturate(value, 32)

    def relu(self, value: Ints) -> Ints:
        """Replace negative values by zero."""
        return np.maximum(value, 0)

    def clamp(self, value: Ints, limit: int) -> Ints:
        """Replace values above a limit, which is given as its 32 bits."""
        return np.minimum(value, sign_extend(limit, 32))

    def compare(self, algorithm: int, value: Ints, operand: Ints) -> Ints:
        """1 where maximum (0) or minimum (1) would choose its first operand for being different, else 0."""
        return (value > operand if algorithm == 0 else value < operand).astype(np.int64)

    def element_alu(self, algorithm: int, value: Ints, operand: Ints) -> Ints | None:
        """ALU of EW; None if the domain has no such algorithm."""
        if algorithm == 0:
            return np.maximum(value, operand)
        if algorithm == 1:
            return np.minimum(value, operand)
        if algorithm == 2:
            return saturate(value + operand, 32)
        if algorithm == 4:
            return saturate(value + sign_extend(-operand, 32), 32)
        if algorithm == 5:
            return np.where(value == LOWEST, value, np.abs(value))
        if algorithm == 6:
            return np.where(value == LOWEST, value, -value)
        return None

    def element_multiply(
        self,
        value: Ints,
        operand: Ints,
        shift: int,
        shift_negative: int,
        *,
        prelu: bool,
        register: bool,
    ) -> Ints:
        """Multiplier of EW: the low 16 bits of both operands, signed.

        `register`: the operand is EW_OP_VALUE; otherwise it comes from ERDMA.
        """
        return self.multiply(value, sign_extend(operand, 16), shift, shift_negative, prelu=prelu)


class Floats:
    """Binary32 values; every operation rounds its result.

    Parameters
    ----------
    brain
        Whether 16-bit factors and operands are bf16 instead of fp16.
    """

    def __init__(self, *, brain: bool = False) -> None:
        self._widen = fp.widen_bf16 if brain else fp.widen16

    def enter(self, raw: Ints) -> fp.Bits:
        """As `Integers`."""
        return fp.bits32(raw)

    def add(self, value: fp.Bits, operand: Ints | int, *, minus: bool) -> fp.Bits:
        """As `Integers`: the operand's 32 bits are binary32."""
        return fp.operate(np.subtract if minus else np.add, value, fp.bits32(operand))

    def multiply(
        self, value: fp.Bits, factor: Ints | int, shift: int, shift_negative: int, *, prelu: bool
    ) -> fp.Bits:
        """As `Integers`: the factor is a 16-bit float; the shifts are not used."""
        return self._product(value, self._widen(factor), prelu)

    def settle(self, value: fp.Bits) -> fp.Bits:
        """As `Integers`: nothing to do."""
        return value

    def relu(self, value: fp.Bits) -> fp.Bits:
        """As `Integers`: a NaN passes, -0 becomes +0."""
        return np.where(fp.is_negative(value) & ~fp.is_nan(value), np.uint32(0), value)

    def clamp(self, value: fp.Bits, limit: int) -> fp.Bits:
        """As `Integers`, in the order of [HW 3.5]."""
        return np.where(fp.rank(value) > fp.rank(limit & 0xFFFFFFFF), fp.bits32(limit), value)

    def widened(self, operand: Ints) -> Ints:
        """16-bit floats in the low bits of elements, as binary32 bits."""
        return self._widen(operand).astype(np.int64)

    def compare(self, algorithm: int, value: fp.Bits, operand: Ints) -> fp.Bits:
        """As `Integers`, in the order of [HW 3.5]; the 1 is an integer as well."""
        mine, theirs = fp.rank(value), fp.rank(fp.bits32(operand))
        return (mine > theirs if algorithm == 0 else mine < theirs).astype(np.uint32)

    def element_alu(self, algorithm: int, value: fp.Bits, operand: Ints) -> fp.Bits | None:
        """As `Integers`."""
        if algorithm == 5:
            return value & ~fp.SIGN
        if algorithm == 6:
            return value ^ fp.SIGN
        if algorithm in (7, 8):
            return fp.round_whole(np.floor if algorithm == 7 else np.ceil, value)
        other = fp.bits32(operand)
        if algorithm in (0, 1):
            return np.where(self.compare(algorithm, value, operand) != 0, value, other)
        if algorithm == 2:
            both = (value == fp.SIGN) & (other == fp.SIGN)
            return np.where(both, np.uint32(0), fp.operate(np.add, value, other))
        if algorithm == 3:
            return fp.divide16(value, other)
        if algorithm == 4:
            both = fp.is_infinite(value) & fp.is_infinite(other)
            odd = np.where(value == other, np.uint32(fp.INFINITY32), np.uint32(fp.NAN32))
            return np.where(both, odd, fp.operate(np.subtract, value, other))
        return None

    def element_multiply(
        self,
        value: fp.Bits,
        operand: Ints,
        shift: int,
        shift_negative: int,
        *,
        prelu: bool,
        register: bool,
    ) -> fp.Bits:
        """As `Integers`: a 16-bit float from a register, binary32 otherwise; `truncate` does the shifts."""
        return self._product(value, self._widen(operand) if register else fp.bits32(operand), prelu)

    def truncate(
        self, value: fp.Bits, product: fp.Bits, shift: int, shift_negative: int, *, prelu: bool
    ) -> fp.Bits:
        """Shift the bits of a product as a signed integer; with `prelu` only if `value` was multiplied."""
        if not shift and not shift_negative:
            return product
        shifted = fp.bits32(shift_by_sign(sign_extend(product.astype(np.int64), 32), shift, shift_negative))
        return np.where(fp.is_negative(value), shifted, product) if prelu else shifted

    @staticmethod
    def _product(value: fp.Bits, factor: fp.Bits, prelu: bool) -> fp.Bits:
        out = fp.operate(np.multiply, value, factor)
        return np.where(fp.is_negative(value), out, value) if prelu else out


Domain = Integers | Floats
"""Domain of a DPU task; `Values` have its dtype."""
