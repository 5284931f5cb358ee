"""Binary32 arithmetic as Amaranth expressions (docs 0.3): DPU and PPU build their float paths from it.

Every function takes the module and adds wires to it under the conditions around the call: called below
`m.If(valid)`, nothing is evaluated while there is no value.  Values are 32 bits unsigned.  Rounding is to
nearest, ties to even; subnormals are kept; an operation with a NaN operand or an invalid one gives `NAN`.
Nothing here is signed: generated Verilog spells a sign extension bit by bit, which simulators pay for.
"""

from dataclasses import dataclass

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

NAN, INFINITY = 0x7FC00000, 0x7F800000
NAN_FP16, INFINITY_FP16 = 0x7E00, 0x7C00
NAN_BF16 = 0x7FC0

IDLE = 1
"""What a wire without a value shows; not 0, see `rtl.npu.dpu_pipe.IDLE`."""

OFFSET = 512
"""Added to exponents that may be negative."""

DIVIDE_STEPS = 26
"""Quotient bits: the leading one may be the second, 24 are kept, one rounds."""


def wire(m: Module, value: Value, bits: int | None = None) -> Signal:
    """`value` as a signal driven under the conditions around the call."""
    result = Signal(bits if bits is not None else value.shape(), init=IDLE)
    m.d.comb += result.eq(value)
    return result


@dataclass(frozen=True)
class Parts:
    """A binary32 taken apart.

    `exponent` is the biased one, but 1 for subnormals; `mantissa` 24 bits with the hidden one.
    """

    sign: Value
    exponent: Value
    mantissa: Value
    nan: Value
    infinite: Value
    zero: Value


def parts(m: Module, value: Value) -> Parts:
    """The `Parts` of `value`."""
    biased, fraction = value[23:31], value[:23]
    top, low, empty = (wire(m, x, 1) for x in (biased == 0xFF, biased == 0, fraction == 0))
    return Parts(
        value[31],
        wire(m, biased | low, 8),
        Cat(fraction, ~low),
        top & ~empty,
        top & empty,
        low & empty,
    )


def is_nan(value: Value) -> Value:
    """Whether `value` is a NaN."""
    return value[:31] > INFINITY


def is_zero(value: Value) -> Value:
    """Whether `value` is a zero of either sign."""
    return value[:31] == 0


def normalised(m: Module, value: Value, bits: int) -> tuple[Value, Value]:
    """`value` of `bits` bits (a power of two) shifted up until its top bit is set, and the count.

    Zero stays zero; its count is `bits` - 1.
    """
    step, counts = bits // 2, []
    while step:
        clear = wire(m, value[bits - step :] == 0, 1)
        value = wire(m, Mux(clear, Cat(Const(0, step), value[: bits - step]), value), bits)
        counts.append(clear)
        step //= 2
    return value, Cat(*reversed(counts))


def rounded(m: Module, sign: Value, exponent: Value, mantissa: Value) -> Signal:
    """The binary32 nearest to a value of any magnitude.

    Parameters
    ----------
    exponent : Value
        unsigned, 11 bits: biased exponent plus `OFFSET` if the top bit of the mantissa is set; at least 64.
    mantissa : Value
        unsigned, 64 bits.  Its lowest bit may stand for anything below it.
    """
    shifted, count = normalised(m, mantissa, 64)
    place = wire(m, exponent - count, 11)
    tiny = wire(m, place <= OFFSET, 1)
    down = wire(m, Mux(tiny, Mux(place < OFFSET - 62, 63, OFFSET + 1 - place), 0), 6)
    kept = wire(m, shifted >> down, 64)
    lost = wire(m, (kept << down)[:64] != shifted, 1)
    up = wire(m, kept[39] & (kept[:39].any() | lost | kept[40]), 1)
    # The hidden bit adds one to the exponent below it; a carry out of the fraction does the same.
    below = wire(m, Mux(tiny, 0, place - (OFFSET + 1)), 8)
    magnitude = wire(m, Cat(Const(0, 23), below) + kept[40:] + up, 31)
    result = Signal(32, init=IDLE)
    with m.If(mantissa == 0):
        m.d.comb += result.eq(Cat(Const(0, 31), sign))
    with m.Elif(place > OFFSET + 254):
        m.d.comb += result.eq(Cat(Const(INFINITY, 31), sign))
    with m.Else():
        m.d.comb += result.eq(Cat(magnitude, sign))
    return result


def add(m: Module, a: Value, b: Value) -> Signal:
    """`a + b`."""
    swap = wire(m, a[:31] < b[:31], 1)
    large = parts(m, wire(m, Mux(swap, b, a), 32))
    small = parts(m, wire(m, Mux(swap, a, b), 32))
    minus = wire(m, large.sign ^ small.sign, 1)
    apart = wire(m, large.exponent - small.exponent, 8)
    # 32 bits below the larger mantissa hold the smaller one exactly, or it only counts as "something".
    shifted = wire(m, Cat(Const(0, 32), small.mantissa) >> apart[:6], 56)
    aligned = wire(m, Mux(apart > 32, small.mantissa != 0, shifted), 56)
    whole = Cat(Const(0, 32), large.mantissa)
    total = wire(m, Mux(minus, whole - aligned, whole + aligned), 57)
    sign = wire(m, Mux(total == 0, large.sign & small.sign, large.sign), 1)
    finite = rounded(m, sign, wire(m, large.exponent + (OFFSET + 1), 11), Cat(Const(0, 7), total))
    result = Signal(32, init=IDLE)
    with m.If(large.nan | small.nan | (small.infinite & minus)):
        m.d.comb += result.eq(NAN)
    with m.Elif(large.infinite):
        m.d.comb += result.eq(Cat(Const(INFINITY, 31), large.sign))
    with m.Else():
        m.d.comb += result.eq(finite)
    return result


def subtract(m: Module, a: Value, b: Value) -> Signal:
    """`a - b`."""
    return add(m, a, negate(b))


def negate(value: Value) -> Value:
    """`value` with its sign flipped, also of a NaN."""
    return Cat(value[:31], ~value[31])


def multiply(m: Module, a: Value, b: Value) -> Signal:
    """`a * b`."""
    x, y = parts(m, a), parts(m, b)
    sign = wire(m, x.sign ^ y.sign, 1)
    product = wire(m, x.mantissa * y.mantissa, 48)
    exponent = wire(m, x.exponent + y.exponent + (OFFSET + 1 - 127), 11)
    finite = rounded(m, sign, exponent, Cat(Const(0, 16), product))
    result = Signal(32, init=IDLE)
    with m.If(x.nan | y.nan | (x.infinite & y.zero) | (x.zero & y.infinite)):
        m.d.comb += result.eq(NAN)
    with m.Elif(x.infinite | y.infinite):
        m.d.comb += result.eq(Cat(Const(INFINITY, 31), sign))
    with m.Else():
        m.d.comb += result.eq(finite)
    return result


def greater(a: Value, b: Value) -> Value:
    """IEEE `a > b`: false with a NaN, zeros of both signs are equal."""
    larger = Mux(a[31], b[31] & (b[:31] > a[:31]), b[31] | (a[:31] > b[:31]))
    return larger & ~is_nan(a) & ~is_nan(b) & ~(is_zero(a) & is_zero(b))


def relu(value: Value) -> Value:
    """+0 for what has its sign bit set and is no NaN."""
    return Mux(value[31] & ~is_nan(value), Const(0, 32), value)


def from_int32(m: Module, value: Value) -> Signal:
    """The binary32 nearest to a 32-bit two's complement number."""
    sign = value[31]
    magnitude = wire(m, Mux(sign, (-value.as_unsigned())[:32], value.as_unsigned()), 32)
    return rounded(m, sign, Const(OFFSET + 127 + 31, 11), Cat(Const(0, 32), magnitude))


def to_int32(m: Module, value: Value) -> Signal:
    """`value` rounded and saturated to a signed 32-bit integer; a NaN gives 0."""
    x = parts(m, value)
    # 32 bits of fraction; from 2^31 on the value saturates, below 2^-8 nothing is left of it.
    fixed = wire(m, Cat(x.mantissa, Const(0, 39)) << (x.exponent - 118).as_unsigned()[:6], 63)
    up = fixed[31] & (fixed[:31].any() | fixed[32])
    magnitude = wire(m, fixed[32:] + up, 32)
    limit = Mux(x.sign, Const(1 << 31, 32), Const((1 << 31) - 1, 32))
    result = Signal(signed(32), init=IDLE)
    with m.If(x.nan | (x.exponent < 118)):
        m.d.comb += result.eq(0)
    with m.Elif(x.exponent >= 158):
        m.d.comb += result.eq(limit)
    with m.Elif(x.sign):
        m.d.comb += result.eq(-magnitude)
    with m.Else():
        m.d.comb += result.eq(Mux(magnitude[31], limit, magnitude))
    return result


def widen_fp16(m: Module, value: Value) -> Signal:
    """A 16-bit fp16 as binary32, exactly; a NaN keeps its fraction."""
    sign, biased, fraction = value[15], value[10:15], value[:10]
    shifted, count = normalised(m, wire(m, Cat(Const(0, 6), fraction), 16), 16)
    result = Signal(32, init=IDLE)
    with m.If(biased == 0x1F):
        m.d.comb += result.eq(Cat(Const(0, 13), fraction, Const(0xFF, 8), sign))
    with m.Elif(biased != 0):
        m.d.comb += result.eq(Cat(Const(0, 13), fraction, (biased + 112)[:8], sign))
    with m.Elif(fraction == 0):
        m.d.comb += result.eq(Cat(Const(0, 31), sign))
    with m.Else():
        m.d.comb += result.eq(Cat(Const(0, 8), shifted[:15], (112 - count)[:8], sign))
    return result


def widen_bf16(value: Value) -> Value:
    """A 16-bit bf16 as binary32, exactly."""
    return Cat(Const(0, 16), value[:16])


def narrow_fp16(m: Module, value: Value) -> Signal:
    """The fp16 nearest to a binary32; 16 bits."""
    x = parts(m, value)
    tiny = wire(m, x.exponent <= 112, 1)
    down = wire(m, Mux(tiny, Mux(x.exponent < 113 - 31, 31, 113 - x.exponent), 0), 5)
    whole = Cat(Const(0, 8), x.mantissa)
    kept = wire(m, whole >> down, 32)
    lost = wire(m, (kept << down)[:32] != whole, 1)
    up = kept[20] & (kept[:20].any() | lost | kept[21])
    below = wire(m, Mux(tiny, 0, x.exponent - 113), 5)
    magnitude = wire(m, Cat(Const(0, 10), below) + kept[21:] + up, 15)
    result = Signal(16, init=IDLE)
    with m.If(x.nan):
        m.d.comb += result.eq(NAN_FP16)
    with m.Elif(x.exponent > 112 + 30):
        m.d.comb += result.eq(Cat(Const(INFINITY_FP16, 15), x.sign))
    with m.Else():
        m.d.comb += result.eq(Cat(magnitude, x.sign))
    return result


def narrow_bf16(m: Module, value: Value) -> Signal:
    """The bf16 nearest to a binary32; 16 bits."""
    up = value[15] & (value[:15].any() | value[16])
    return wire(m, Mux(is_nan(value), Const(NAN_BF16, 16), (value[16:32] + up)[:16]), 16)


def to_integral(m: Module, value: Value, up: Value) -> Signal:
    """The largest whole binary32 not above `value`, or where `up` is set the smallest not below it."""
    biased, magnitude = value[23:31], value[:31]
    mask = wire(m, Const((1 << 23) - 1, 23) >> (biased - 127).as_unsigned()[:5], 23)
    away = wire(m, value[31] ^ up, 1)  # from zero
    cut = wire(m, Cat(magnitude[:23] & ~mask, biased), 31)
    inexact = wire(m, (magnitude[:23] & mask) != 0, 1)
    result = Signal(32, init=IDLE)
    with m.If(is_nan(value)):
        m.d.comb += result.eq(NAN)
    with m.Elif(biased >= 150):
        m.d.comb += result.eq(value)
    with m.Elif(biased < 127):
        one = away & (magnitude != 0)
        m.d.comb += result.eq(Cat(Mux(one, Const(0x3F800000, 31), Const(0, 31)), value[31]))
    with m.Else():
        m.d.comb += result.eq(Cat((cut + Mux(away & inexact, mask + 1, 0))[:31], value[31]))
    return result


class Divider(wiring.Component):
    """Divides `lanes` pairs of binary32 at a time, a quotient bit a cycle.

    Members
    -------
    start : 1, in
        Take the operands; a division under way is given up.
    a, b : 32 bits a lane, in
    done : 1, out
        The results are there, until the next start; low before the first.
    result : 32 bits a lane, out
        `a / b`.
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
            x, y = parts(m, a), parts(m, b)
            dividend, x_count = normalised(m, Cat(Const(0, 8), x.mantissa), 32)
            normal, y_count = normalised(m, Cat(Const(0, 8), y.mantissa), 32)
            m.d.sync += [
                rest.eq(dividend[8:]),
                divisor.eq(normal[8:]),
                exponent.eq(x.exponent + y_count + (OFFSET + 127) - (y.exponent + x_count)),
                sign.eq(x.sign ^ y.sign),
                nan.eq(x.nan | y.nan | (x.infinite & y.infinite) | (x.zero & y.zero)),
                infinite.eq(x.infinite | y.zero),
                zero.eq(x.zero | y.infinite),
            ]
        with m.If(dividing):
            fits = wire(m, rest >= divisor, 1)
            m.d.sync += [
                rest.eq(Cat(Const(0, 1), Mux(fits, rest - divisor, rest)[:24])),
                quotient.eq(Cat(fits, quotient[:-1])),
            ]
        with m.If(last):
            below = 63 - DIVIDE_STEPS
            mantissa = wire(m, Cat(rest != 0, Const(0, below), quotient), 64)
            finite = rounded(m, sign, exponent, mantissa)
            with m.If(nan):
                m.d.sync += result.eq(NAN)
            with m.Elif(infinite):
                m.d.sync += result.eq(Cat(Const(INFINITY, 31), sign))
            with m.Elif(zero):
                m.d.sync += result.eq(Cat(Const(0, 31), sign))
            with m.Else():
                m.d.sync += result.eq(finite)
