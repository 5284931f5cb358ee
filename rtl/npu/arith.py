"""Wires, held settings and exact integer arithmetic that the blocks share ([HW 7.5], [HW 7.10]).

Simulators evaluate these expressions eight times per stage and cycle. Therefore everything fits 64 bits,
operands appear rarely, and no value is sign-extended implicitly: generated Verilog writes a sign extension
as a concatenation of single bits, which is slow (see `extend`). Wires that are only needed under a
condition are gated, see `wire` and docs/architecture.md.
"""

from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Const, Module, Mux, Shape, Signal, Value, ValueLike, signed, unsigned
from amaranth.lib import data

from rkcosim.rtl.layouts import IDLE


def wire(m: Module, value: ValueLike, shape: Shape | int | None = None) -> Value:
    """Return a signal that has `value` under the conditions around the call, and `IDLE` otherwise.

    Parameters
    ----------
    shape
        Shape of the signal; None: the shape of `value`.

    Returns
    -------
    Value
        The signal. For one bit it is the low bit of a signal of two, because Verilator also turns
        `valid ? x : 1` into a mask.
    """
    value = Value.cast(value)
    shape = Shape.cast(shape) if shape is not None else value.shape()
    result = Signal(unsigned(2) if shape.width == 1 else shape, init=IDLE)
    m.d.comb += result.eq(value)
    return result[:1] if shape.width == 1 else result


def held(m: Module, when: Value, value: ValueLike, shape: Shape | int | None = None, name: str = "") -> Any:
    """Return a register that loads `value` while `when` holds, for example a setting at the start of a task.

    Without `name`, the register is named like the variable that it is assigned to; without `shape`, it has
    the shape of `value`.
    """
    value = Value.cast(value)
    shape = value.shape() if shape is None else shape
    register = Signal(shape, name=name or None, reset_less=True, src_loc_at=1)
    with m.If(when):
        m.d.sync += register.eq(value)
    return register


def held_flags(m: Module, when: Value, **flags: ValueLike) -> data.View:
    """Return one register with a bit for each flag, which loads the flags while `when` holds."""
    register = Signal(data.StructLayout(dict.fromkeys(flags, 1)), reset_less=True, src_loc_at=1)
    with m.If(when):
        m.d.sync += [register[name].eq(flag) for name, flag in flags.items()]
    return register


LOWEST, HIGHEST = -(1 << 31), (1 << 31) - 1
"""Limits of the signed 32-bit values between the stages."""


@dataclass(frozen=True)
class Shift:
    """A right shift with rounding, as the three values that `round_shift` needs.

    Members
    -------
    count : the shift, 0..63 (6 bits).
    below : just under half of the last bit kept, 2^(count-1) - 1, or 0 for counts 0 and 1 (62 bits).
    unit : weight of that bit, 2^count, or 0 for counts 0 and 63, for which there are no ties (63 bits).
    """

    count: Value
    below: Value
    unit: Value


def shift_of(count: Value) -> Shift:
    """The `Shift` for a count of 6 bits."""
    rest = ~count[:6]  # 63 - count
    unit = Mux(count[:6] == 0, 0, (Const(1 << 63, 64) >> rest)[:63])
    return Shift(count[:6], Const((1 << 62) - 1, 62) >> rest, unit)


def held_shift(m: Module, when: Value, name: str, count: Value) -> Shift:
    """A `Shift` in registers, which load `count` while `when` holds."""
    shift = shift_of(count)
    return Shift(
        held(m, when, shift.count, 6, f"{name}_count"),
        held(m, when, shift.below, 62, f"{name}_below"),
        held(m, when, shift.unit, 63, f"{name}_unit"),
    )


def extend(value: Value, bits: int) -> Value:
    """Sign-extend a signed `value` to `bits` bits."""
    return value + Const(0, signed(bits - 1)) if len(value) < bits else value


def odd_part(value: Value, shift: Shift) -> Value:
    """Whether `value / 2^count`, rounded down, is odd; 0 where there are no ties."""
    return (value.as_unsigned() & shift.unit[: len(value)]).any()


def round_shift(value: Value, shift: Shift, away: Value | None = None, ties_up: Value | None = None) -> Value:
    """`value / 2^count` rounded half to even, or half away from zero where `away` is set.

    Parameters
    ----------
    value : Value
        Signed, n <= 63 bits. Its magnitude is at most 2^(n-2), as that of a product of two signed numbers,
        or, for n = 63, less than 2^62 - 1.
    shift : Shift
    away : Value or None
        None: half to even.
    ties_up : Value or None
        Used instead of `away`: whether a tie is rounded up; must be clear for counts 0 and 63.

    Returns
    -------
    Value
        Signed, 64 bits; exact.
    """
    # Adding just under half rounds everything except ties. A tie is rounded up if the result becomes
    # even (its last bit is set now), or away from zero if the value is positive.
    up = odd_part(value, shift) if ties_up is None else ties_up
    if away is not None:
        up = Mux(away, (shift.unit != 0) & ~value[-1], up)
    return ((value + up)[:63].as_signed() + shift.below) >> shift.count


def clamp(value: Value, low: Value | int, high: Value | int) -> Value:
    """`value` limited to low..high (signed 32-bit values, low <= high); the result is signed, 32 bits."""
    low, high = (Const(x, signed(32)) if isinstance(x, int) else x for x in (low, high))
    return Mux(value > high, high, Mux(value < low, low, value[:32].as_signed()))


def rectifier_limits(relu: Value, relux: Value, limit: Value) -> tuple[Value, Value]:
    """Limits for `clamp` that saturate to 32 bits, then apply ReLU, then ReLUX.

    ReLUX with a negative limit has no effect.
    """
    high = Mux(relux, limit, HIGHEST)
    low = Mux(relu, Mux(relux & (limit < 0), limit, 0), LOWEST)
    return low, high
