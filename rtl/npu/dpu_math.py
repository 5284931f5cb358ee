"""Exact shift, rounding and saturation of the DPU as functions over Amaranth values (H 5.3, 5.4).

Every function puts intermediate values into named signals of the given module and keeps them at 64
bits or less.  Called inside an `m.If`, all of its work depends on that condition; a simulator then
skips it while the condition is low.
"""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed

WIDE = 63
"""Bits of the widest product: (acc + S*B + A) * C is below 2^62 in magnitude."""


def shift_mask(shift: Value) -> Value:
    """Ones below bit `shift` (6 bits), 63 bits wide: what a right shift by `shift` drops."""
    return Const((1 << WIDE) - 1, WIDE) >> (~shift[:6])


def round_shift(m: Module, value: Value, shift: Value, mask: Value, away: Value | int) -> Signal:
    """`value / 2^shift` rounded half to even, or half away from zero where `away` is set.

    Parameters
    ----------
    value : Value
        signed, at most 63 bits.
    shift : Value
        6 bits, 0..63.
    mask : Value
        `shift_mask(shift)`; passed in because it comes from few configuration values.

    Returns
    -------
    Signal
        signed, 63 bits; exact, since a shift of 0 never rounds.
    """
    wide = Signal(signed(WIDE))
    floor = Signal(signed(WIDE))
    below = Signal(WIDE)
    result = Signal(signed(WIDE))
    tie = Signal()
    up = Signal()
    half = Signal(WIDE)
    m.d.comb += [
        half.eq(mask ^ (mask >> 1)),
        wide.eq(value),
        floor.eq(wide >> shift),
        below.eq(wide & mask),
        # A tie goes up when that makes the result even, or moves a positive value away from zero.
        tie.eq(Mux(away, ~wide[-1], floor[0])),
        up.eq(((below & half) != 0) & (tie | ((below & ~half) != 0))),
        result.eq(floor + Cat(up, Const(0, 1)).as_signed()),
    ]
    return result


def saturate(m: Module, value: Value, low: Value | int, high: Value | int, bits: int = 32) -> Signal:
    """`value` limited to low..high, as a signed signal of `bits` bits."""
    result = Signal(signed(bits))
    m.d.comb += result.eq(Mux(value > high, high, Mux(value < low, low, value)))
    return result


def saturate32(m: Module, value: Value) -> Signal:
    """`value` limited to the signed 32-bit range."""
    return saturate(m, value, -(1 << 31), (1 << 31) - 1)


def rectify(m: Module, value: Value, relu: Value, relux: Value, limit: Value) -> Signal:
    """ReLU where `relu` is set, then the clamp at `limit` where `relux` is set; signed 32 bits."""
    positive = Signal(signed(32))
    result = Signal(signed(32))
    m.d.comb += [
        positive.eq(Mux(relu & (value < 0), 0, value)),
        result.eq(Mux(relux & (positive > limit), limit, positive)),
    ]
    return result
