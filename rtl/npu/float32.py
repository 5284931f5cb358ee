"""Binary32 arithmetic as Amaranth expressions [HW 3.4], from which DPU, PPU and array build float paths.

Every function takes the module and adds gated wires to it under the conditions around the call
(`rkcosim.rtl.npu.arith.wire`): called inside `m.If(valid)`, nothing is evaluated while there is no value.
docs/architecture.md describes the coding rules for this and the measured benefit.

Values are 32 bits unsigned. Rounding is to nearest, ties to even; subnormals are kept; an operation with
a NaN operand and an invalid operation return `NAN`.
"""

from dataclasses import dataclass

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, ValueLike
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from rkcosim.rtl.npu.arith import wire

NAN, INFINITY = 0x7FC00000, 0x7F800000
NAN_FP16, INFINITY_FP16 = 0x7E00, 0x7C00
NAN_BF16 = 0x7FC0

OFFSET = 512
"""Bias that is added to exponents so that they are never negative."""

DIVIDE_STEPS = 26
"""Number of quotient bits: the leading one may be the second bit, 24 are kept, one is for rounding."""


def exponent_of(value: Value) -> Value:
    """The biased exponent, with 1 for subnormals; 8 bits."""
    return value[23:31] | (value[23:31] == 0)


def mantissa_of(value: Value) -> Value:
    """The mantissa with the hidden bit; 24 bits."""
    return Cat(value[:23], value[23:31] != 0)


def is_nan(value: Value) -> Value:
    """Whether `value` is a NaN."""
    return value[:31] > INFINITY


def is_zero(value: Value) -> Value:
    """Whether `value` is a zero of either sign."""
    return value[:31] == 0


def normalised(m: Module, value: Value, bits: int) -> tuple[Value, Value]:
    """`value` of `bits` bits (a power of two), shifted up until its top bit is set, and the shift count.

    Zero is not changed; its count is `bits` - 1.
    """
    step, counts = bits // 2, []
    while step:
        clear = wire(m, value[bits - step :] == 0, 1)
        value = wire(m, Mux(clear, Cat(Const(0, step), value[: bits - step]), value), bits)
        counts.append(clear)
        step //= 2
    return value, Cat(*reversed(counts))


def leading_zeros(value: Value, bits: int) -> Value:
    """Number of zeros above the highest set bit of the `bits` bits of `value`; for zero it is `bits` - 1."""

    def count(below: int, above: int) -> Value:
        """The count for the bits below:above, if one of them is set or `below` is 0."""
        if above - below == 1:
            return Const(bits - above)
        step = 8 if above - below > 8 else 1  # groups of eight bits, from the top
        middle = below + (above - below - 1) // step * step
        return Mux(value[middle:above].any(), count(middle, above), count(below, middle))

    return count(0, bits)


def rounded(
    m: Module, sign: Value, exponent: Value, mantissa: Value, zero_sign: Value | None = None
) -> Value:
    """The binary32 nearest to a value of any magnitude.

    Parameters
    ----------
    sign, zero_sign : Value
        Sign of the result, and its sign if the mantissa is zero; None: `sign` in both cases.
    exponent : Value
        Unsigned, 11 bits: biased exponent plus `OFFSET` if the top bit of the mantissa is set; at least 64.
    mantissa : Value
        Unsigned, 64 bits.  Its lowest bit may be a sticky bit for all lower bits.
    """
    count = wire(m, leading_zeros(mantissa, 64), 6)
    place = wire(m, exponent - count, 11)
    whole = wire(m, (mantissa << count)[:64], 64)
    # A subnormal is shifted down; the lost bits are kept in the lowest bit.
    down = wire(m, Mux(place > OFFSET, 0, Mux(place < OFFSET - 62, 63, OFFSET + 1 - place)), 6)
    cut = wire(m, whole >> down, 64)
    kept = wire(m, cut | ((cut << down)[:64] != whole), 64)
    up = kept[39] & (kept[:39].any() | kept[40])
    # The hidden bit increments the exponent field below it, as does a carry out of the fraction.
    below = Mux(place > OFFSET, place - (OFFSET + 1), 0)[:8]
    magnitude = Mux(place > OFFSET + 254, INFINITY, Cat(Const(0, 23), below) + kept[40:] + up)
    if zero_sign is None:
        return wire(m, Cat(Mux(whole[63], magnitude, 0)[:31], sign), 32)
    return wire(m, Mux(whole[63], Cat(magnitude[:31], sign), Cat(Const(0, 31), zero_sign)), 32)


@dataclass(frozen=True)
class Exact:
    """A result before rounding, as `rounded` takes it, and the value that replaces it if `special` is set."""

    sign: Value
    zero_sign: Value
    exponent: Value
    mantissa: Value
    special: Value
    instead: Value

    def chosen(self, m: Module, other_one: Value, other: "Exact") -> "Exact":
        """This result, or `other` where `other_one` is set."""
        marks = wire(
            m,
            Mux(
                other_one,
                Cat(other.sign, other.zero_sign, other.special),
                Cat(self.sign, self.zero_sign, self.special),
            ),
            3,
        )
        return Exact(
            marks[0],
            marks[1],
            wire(m, Mux(other_one, other.exponent, self.exponent), 11),
            wire(m, Mux(other_one, other.mantissa, self.mantissa), 64),
            marks[2],
            wire(m, Mux(other_one, other.instead, self.instead), 32),
        )


def finish(m: Module, exact: Exact) -> Value:
    """The rounded binary32 of an `Exact`."""
    result = rounded(m, exact.sign, exact.exponent, exact.mantissa, exact.zero_sign)
    return wire(m, Mux(exact.special, exact.instead, result), 32)


def exact_sum(
    m: Module, a: Value, b: Value, no_minus_zero: Value | None = None, turned_infinities: Value | None = None
) -> Exact:
    """`a + b` before rounding.

    Parameters
    ----------
    no_minus_zero : Value or None
        Whether the sum of two negative zeros is +0.
    turned_infinities : Value or None
        Whether infinities of opposite signs give +infinity, and those of the same sign NaN.
    """
    a, b = wire(m, a, 32), wire(m, b, 32)
    large = wire(m, Mux(a[:31] < b[:31], b, a), 32)
    small = wire(m, wire(m, a ^ b, 32) ^ large, 32)
    exponent = wire(m, exponent_of(large), 8)
    turn = wire(m, Mux(large[31] ^ small[31], (1 << 57) - 1, 0), 57)
    apart = wire(m, exponent - exponent_of(small), 8)
    # 32 bits below the larger mantissa hold the smaller one exactly, or it only sets the sticky bit.
    aligned = Mux(apart > 32, mantissa_of(small) != 0, Cat(Const(0, 32), mantissa_of(small)) >> apart[:6])
    total = (Cat(Const(0, 32), mantissa_of(large)) + (aligned[:56] ^ turn) + turn[0])[:57]
    total = wire(m, Cat(Const(0, 7), total), 64)
    both, invalid, kept = small[:31] == INFINITY, turn[1], large
    if turned_infinities is not None:
        invalid, kept = invalid ^ turned_infinities, Mux(both & turned_infinities, INFINITY, large)
    special = Mux((large[:23] != 0) | (both & invalid), NAN, kept)
    zero_sign = large[31] & small[31]
    return Exact(
        large[31],
        zero_sign if no_minus_zero is None else zero_sign & ~no_minus_zero,
        exponent + (OFFSET + 1),
        total,
        exponent == 0xFF,
        special,
    )


def exact_product(m: Module, a: Value, b: Value) -> Exact:
    """`a * b` before rounding."""
    a, b = wire(m, a, 32), wire(m, b, 32)
    product = wire(m, Cat(Const(0, 16), mantissa_of(a) * mantissa_of(b)), 64)
    invalid = is_nan(a) | is_nan(b) | (is_zero(a) | is_zero(b))  # where an operand is infinite or NaN
    infinity = wire(m, Cat(Const(INFINITY, 31), a[31] ^ b[31]), 32)
    return Exact(
        infinity[31],
        infinity[31],
        exponent_of(a) + exponent_of(b) + (OFFSET + 1 - 127),
        product,
        (a[:31] >= INFINITY) | (b[:31] >= INFINITY),
        Mux(invalid, NAN, infinity),
    )


def negate(value: Value) -> Value:
    """`value` with its sign inverted, also for a NaN."""
    return Cat(value[:31], ~value[31])


def multiply(m: Module, a: Value, b: Value) -> Value:
    """`a * b`."""
    return finish(m, exact_product(m, a, b))


def above(a: Value, b: Value) -> Value:
    """`a > b` in the order by sign and magnitude of the bits, from -NaN over -0 < +0 to NaN [HW 3.5].

    `a` and `b` should be wires.
    """
    return Mux(a[31], b[31] & (b[:31] > a[:31]), b[31] | (a[:31] > b[:31]))


def from_int32(m: Module, value: Value) -> Value:
    """The binary32 nearest to a 32-bit two's complement number."""
    bits = value.as_unsigned()
    magnitude = wire(m, Mux(bits[31], (-bits)[:32], bits), 32)
    count = wire(m, leading_zeros(magnitude, 32), 5)
    whole = wire(m, (magnitude << count)[:32], 32)
    up = whole[7] & (whole[:7].any() | whole[8])
    below = (127 + 30 - count)[:8]
    return wire(m, Cat(Mux(whole[31], Cat(Const(0, 23), below) + whole[8:] + up, 0)[:31], bits[31]), 32)


def to_int32(m: Module, value: Value) -> Value:
    """`value` rounded and saturated to a signed 32-bit integer; a NaN gives 0."""
    biased = value[23:31]
    # 32 bits of fraction; from 2^31 on the value saturates, below 2^-8 it becomes zero.
    fixed = wire(m, Cat(mantissa_of(value), Const(0, 39)) << (biased - 118).as_unsigned()[:6], 63)
    up = fixed[31] & (fixed[:31].any() | fixed[32])
    none = (value[23:31] < 118) | is_nan(value)
    magnitude = wire(m, Mux(none, 0, Mux(value[23:31] >= 158, 1 << 31, fixed[32:] + up)), 32)
    positive = Mux(magnitude[31], (1 << 31) - 1, magnitude)
    return wire(m, Mux(value[31], -magnitude, positive), 32).as_signed()


def widen_fp16(m: Module, value: Value) -> Value:
    """A 16-bit fp16 as binary32, exactly; a NaN keeps its fraction."""
    sign, biased, fraction = value[15], value[10:15], value[:10]
    count = wire(m, leading_zeros(fraction, 10), 4)
    shifted = (fraction << count)[:9]  # the leading one is dropped
    exponent = Mux(biased == 0x1F, 0xFF, biased + 112)[:8]
    small = Mux(fraction == 0, Const(0, 31), Cat(Const(0, 14), shifted, (112 - count)[:8]))
    return wire(m, Cat(Mux(biased == 0, small, Cat(Const(0, 13), fraction, exponent)), sign), 32)


def widen_bf16(value: Value) -> Value:
    """A 16-bit bf16 as binary32, exactly."""
    return Cat(Const(0, 16), value[:16])


def narrow_fp16(m: Module, value: Value, nan: ValueLike = NAN_FP16) -> Value:
    """The fp16 nearest to a binary32, `nan` for any NaN; 16 bits."""
    biased = value[23:31]
    down = wire(m, Mux(value[23:31] > 112, 0, Mux(value[23:31] < 113 - 31, 31, 113 - biased)), 5)
    whole = wire(m, Cat(Const(0, 8), mantissa_of(value)), 32)
    cut = wire(m, whole >> down, 32)
    kept = wire(m, cut | ((cut << down)[:32] != whole), 32)
    up = kept[20] & (kept[:20].any() | kept[21])
    below = Mux(value[23:31] > 112, biased - 113, 0)[:5]
    magnitude = (Cat(Const(0, 10), below) + kept[21:] + up)[:15]
    limited = Mux(value[23:31] > 112 + 30, INFINITY_FP16, magnitude)[:15]
    return wire(m, Mux(is_nan(value), nan, Cat(limited, value[31])), 16)


def narrow_bf16(m: Module, value: Value) -> Value:
    """The bf16 nearest to a binary32; 16 bits."""
    up = value[15] & (value[:15].any() | value[16])
    return wire(m, Mux(is_nan(value), Const(NAN_BF16, 16), (value[16:32] + up)[:16]), 16)


def to_integral(m: Module, value: Value, up: Value) -> Value:
    """The largest whole binary32 not above `value`, or where `up` is set the smallest not below it."""
    biased = value[23:31]
    mask = wire(m, Const((1 << 23) - 1, 23) >> (biased - 127).as_unsigned()[:5], 23)
    away = wire(m, Mux(value[31] ^ up, (1 << 31) - 1, 0), 31)  # rounds away from zero
    step = Mux((value[:23] & mask & away[:23]) != 0, mask + 1, 0)
    whole = (Cat(value[:23] & ~mask, biased) + step)[:31]
    one = Mux((value[:31] & away) != 0, 0x3F800000, 0)
    result = Cat(Mux(value[23:31] < 127, one, whole)[:31], value[31])
    return wire(m, Mux(is_nan(value), NAN, Mux(value[23:31] >= 150, value, result)), 32)


class Divider(wiring.Component):
    """Divide `lanes` pairs of binary32 at the same time, one quotient bit per cycle.

    Members
    -------
    start : load the operands; a division in progress is aborted.
    a, b : operands, for each lane.
    done : the results are valid until the next start; low before the first.
    result : `a / b`, for each lane.
    """

    def __init__(self, lanes: int) -> None:
        self._lanes = lanes
        super().__init__(
            {
                "start": In(1),
                "a": In(32).array(lanes),
                "b": In(32).array(lanes),
                "done": Out(1),
                "result": Out(32).array(lanes),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        left = Signal(range(DIVIDE_STEPS + 2))
        dividing, last = Signal(), Signal()
        m.d.comb += [dividing.eq(left > 1), last.eq(left == 1)]
        with m.If(self.start):
            m.d.sync += [left.eq(DIVIDE_STEPS + 1), self.done.eq(0)]
        with m.Elif(left != 0):
            m.d.sync += left.eq(left - 1)
            with m.If(last):
                m.d.sync += self.done.eq(1)
        for lane in range(self._lanes):
            self._lane(m, self.a[lane], self.b[lane], self.result[lane], dividing, last)
        return m

    def _lane(self, m: Module, a: Value, b: Value, result: Signal, dividing: Signal, last: Signal) -> None:
        rest, quotient = Signal(25, reset_less=True), Signal(DIVIDE_STEPS, reset_less=True)
        divisor, exponent = Signal(24, reset_less=True), Signal(11, reset_less=True)
        sign, nan, infinite, zero = (Signal(reset_less=True) for _ in range(4))
        with m.If(self.start):
            a, b = wire(m, a, 32), wire(m, b, 32)
            x_count = wire(m, leading_zeros(mantissa_of(a), 24), 5)
            y_count = wire(m, leading_zeros(mantissa_of(b), 24), 5)
            # Special dividend or divisor: NaN, infinite or zero.
            either = is_nan(a) | is_nan(b)
            same = (is_zero(a) & is_zero(b)) | ((a[:31] == INFINITY) & (b[:31] == INFINITY))
            m.d.sync += [
                rest.eq((mantissa_of(a) << x_count)[:24]),
                divisor.eq((mantissa_of(b) << y_count)[:24]),
                exponent.eq(exponent_of(a) + y_count + (OFFSET + 127) - (exponent_of(b) + x_count)),
                sign.eq(a[31] ^ b[31]),
                nan.eq(either | same),
                infinite.eq((a[:31] == INFINITY) | is_zero(b)),
                zero.eq(is_zero(a) | (b[:31] == INFINITY)),
            ]
        with m.Elif(dividing):
            m.d.sync += [
                rest.eq(Cat(Const(0, 1), Mux(rest >= divisor, rest - divisor, rest)[:24])),
                quotient.eq(Cat(rest >= divisor, quotient[:-1])),
            ]
        with m.If(last):
            below = 63 - DIVIDE_STEPS
            mantissa = Cat(rest != 0, Const(0, below), quotient)
            finite = rounded(m, sign, exponent, mantissa)
            with m.If(nan):
                m.d.sync += result.eq(NAN)
            with m.Elif(infinite):
                m.d.sync += result.eq(Cat(Const(INFINITY, 31), sign))
            with m.Elif(zero):
                m.d.sync += result.eq(Cat(Const(0, 31), sign))
            with m.Else():
                m.d.sync += result.eq(finite)
