"""Arithmetic of the DPU's stages in its two domains ([HW 7.3.3] to [HW 7.10]).

`Integers` works on signed values, int64; `Floats` on binary32 bits, uint32.  Both receive operands as
int64, as DPU_RDMA or a register provides them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rkcosim.golden.task import dpu_float as fp
from rkcosim.golden.task.arith import saturate, shift_away, shift_by_sign, shift_even

Ints = NDArray[np.int64]
Values = NDArray[Any]
LOWEST = -(1 << 31)


def sign_extend(value: Ints | int, bits: int) -> Ints:
    """Low `bits` bits as two's complement numbers."""
    half = 1 << (bits - 1)
    return ((np.asarray(value, np.int64) + half) & (2 * half - 1)) - half


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

    def element_alu(self, algorithm: int, value: Ints, operand: Ints) -> Ints | None:
        """ALU of EW; None if the domain has no such algorithm."""
        if algorithm == 0:
            return np.maximum(value, operand)
        if algorithm == 1:
            return np.minimum(value, operand)
        if algorithm == 2:
            return saturate(value + operand, 32)
        if algorithm == 4:
            return saturate(value - operand, 32)
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
    """Binary32 values; every operation rounds its result."""

    def enter(self, raw: Ints) -> fp.Bits:
        """As `Integers`."""
        return fp.bits32(raw)

    def add(self, value: fp.Bits, operand: Ints | int, *, minus: bool) -> fp.Bits:
        """As `Integers`: the operand's 32 bits are binary32."""
        return fp.operate(np.subtract if minus else np.add, value, fp.bits32(operand))

    def multiply(
        self, value: fp.Bits, factor: Ints | int, shift: int, shift_negative: int, *, prelu: bool
    ) -> fp.Bits:
        """As `Integers`: the factor is fp16; the shifts are not used."""
        return self._product(value, fp.widen16(factor), prelu)

    def settle(self, value: fp.Bits) -> fp.Bits:
        """As `Integers`: nothing to do."""
        return value

    def relu(self, value: fp.Bits) -> fp.Bits:
        """As `Integers`: a NaN passes, -0 becomes +0."""
        return np.where(fp.is_negative(value) & ~fp.is_nan(value), np.uint32(0), value)

    def clamp(self, value: fp.Bits, limit: int) -> fp.Bits:
        """As `Integers`: a NaN passes."""
        bits = fp.bits32(limit)
        return np.where(fp.greater(value, bits), bits, value)

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
            keep = fp.greater(value, other) if algorithm == 0 else fp.greater(other, value)
            return np.where(keep, value, other)
        operations = {2: np.add, 3: np.divide, 4: np.subtract}
        return fp.operate(operations[algorithm], value, other) if algorithm in operations else None

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
        """As `Integers`: fp16 from a register, binary32 from ERDMA."""
        return self._product(value, fp.widen16(operand) if register else fp.bits32(operand), prelu)

    @staticmethod
    def _product(value: fp.Bits, factor: fp.Bits, prelu: bool) -> fp.Bits:
        out = fp.operate(np.multiply, value, factor)
        return np.where(fp.is_negative(value), out, value) if prelu else out


Domain = Integers | Floats
"""Domain of a DPU task; `Values` have its dtype."""
