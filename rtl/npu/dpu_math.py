"""Exact shift, rounding and saturation of the DPU as Amaranth expressions (H 5.3, 5.4).

Simulators evaluate these expressions eight times per stage and cycle, so everything fits 64 bits,
operands appear rarely, and no value is sign-extended implicitly: generated Verilog spells that as a
concatenation of single bits, which is dear (see `extend`).
"""

from dataclasses import dataclass

from amaranth.hdl import Const, Mux, Value, signed

LOWEST, HIGHEST = -(1 << 31), (1 << 31) - 1
"""Limits of the signed 32-bit values between the stages."""


@dataclass(frozen=True)
class Shift:
    """A right shift with rounding, as the three values that `round_shift` needs.

    `count` 0..63 (6 bits); `below` just under half of the last bit kept, 2^(count-1) - 1, or 0 for
    counts 0 and 1 (62 bits); `unit` the weight of that bit, 2^count, or 0 for counts 0 and 63, at
    which there are no ties (63 bits).
    """

    count: Value
    below: Value
    unit: Value


def shift_of(count: Value) -> Shift:
    """The `Shift` of a count of 6 bits."""
    rest = ~count[:6]  # 63 - count
    unit = Mux(count[:6] == 0, 0, (Const(1 << 63, 64) >> rest)[:63])
    return Shift(count[:6], Const((1 << 62) - 1, 62) >> rest, unit)


def extend(value: Value, bits: int) -> Value:
    """A signed `value` as a signed value of `bits` bits."""
    return value + Const(0, signed(bits - 1)) if len(value) < bits else value


def odd_part(value: Value, shift: Shift) -> Value:
    """Whether `value / 2^count`, rounded down, is odd; 0 where there are no ties."""
    return (value.as_unsigned() & shift.unit[: len(value)]).any()


def round_shift(value: Value, shift: Shift, away: Value | None = None, ties_up: Value | None = None) -> Value:
    """`value / 2^count` rounded half to even, or half away from zero where `away` is set.

    Parameters
    ----------
    value : Value
        signed, n <= 63 bits; at most 2^(n-2) in magnitude, as a product of two signed numbers is, or
        for n = 63 less than 2^62 - 1.
    shift : Shift
    away : Value or None
        None: half to even.
    ties_up : Value or None
        Instead: whether a tie goes up; not set for counts 0 and 63.

    Returns
    -------
    Value
        signed, 64 bits; exact.
    """
    # Adding just under half rounds everything but ties, which go up when that makes the result even
    # (its last bit is set now) or moves a positive value away from zero.
    up = odd_part(value, shift) if ties_up is None else ties_up
    if away is not None:
        up = Mux(away, (shift.unit != 0) & ~value[-1], up)
    return ((value + up)[:63].as_signed() + shift.below) >> shift.count


def clamp(value: Value, low: Value | int, high: Value | int) -> Value:
    """`value` limited to low..high, two signed 32-bit values with low <= high; signed, 32 bits."""
    low, high = (Const(x, signed(32)) if isinstance(x, int) else x for x in (low, high))
    return Mux(value > high, high, Mux(value < low, low, value[:32].as_signed()))


def rectifier_limits(relu: Value, relux: Value, limit: Value) -> tuple[Value, Value]:
    """The limits of `clamp` that saturate to 32 bits, then apply ReLU, then ReLUX.

    ReLUX with a negative limit leaves that limit alone.
    """
    high = Mux(relux, limit, HIGHEST)
    low = Mux(relu, Mux(relux & (limit < 0), limit, 0), LOWEST)
    return low, high
