"""Tile sums and accumulation of the array cell for fp16, bf16 and tf32 [HW 6.2].

All types share one multiplier, one aligner and one adder tree per product. Products are aligned to a
fixed-point number of 80 bits, the window. For bf16 and tf32 it ends 34 bits below the last place of the
product with the largest exponent; for fp16 it holds every product completely. Its upper and lower bits are
added separately, so that everything fits 64 bits; for bf16 and tf32 it only matters whether any lower bit
is set.

Every wire is gated by a condition of one bit: a simulation without floats does not evaluate them
(see `rkcosim.rtl.npu.float32`).
"""

from functools import reduce
from operator import or_
from types import SimpleNamespace
from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from rkcosim.rtl.layouts import LANES
from rkcosim.rtl.npu.array_integer import tree
from rkcosim.rtl.npu.cna_types import Precision
from rkcosim.rtl.npu.float32 import INFINITY, NAN, OFFSET, Exact, exact_sum, normalised, wire

CHANNELS = 32
WORDS = 16
"""Words of 32 bits of a kernel's row: two elements of 16 bits each, or one of tf32."""

KERNELS = 16

MANTISSA, EXPONENT = 11, 9
"""Bits of an operand's mantissa with the hidden bit (bf16 uses 8 of them), and of its exponent."""

_NORMAL = 256
"""Added to the biased exponents of bf16 and tf32 operands that are not zero.

It ensures that a product with a zero never has the largest exponent.
"""

_PRODUCT = 2 * MANTISSA
_GUARD = 34
"""Upper bits of the window below the last place of its highest product."""

_LOW = 24
"""Lower bits of the window."""

_DEEPEST = _GUARD + _LOW
"""Places by which a product may be shifted down without falling out of the window."""

_FP16_TOP = _DEEPEST + 2
"""Sum of exponents for which an fp16 product is at the top of the window; the smallest sum is 2."""

_HIGH = _PRODUCT + _GUARD
_UNIT = 127 + 63 + OFFSET
"""`exponent` of `Marks` whose mantissa is in units of 1."""


def _unit(precision: Precision) -> int:
    """`exponent` of `Marks` whose mantissa is in units of products whose biased exponents sum to 0."""
    bias = 15 if precision == Precision.FP16 else 127
    fraction = 7 if precision == Precision.BF16 else 10
    return _UNIT - 2 * (bias + fraction)


class Marks(data.Struct):
    """Sign, exponent and special values of a sum or product before rounding, without its mantissa.

    Members
    -------
    exponent : as `rounded` takes it.
    special : the value is a NaN (`nan` = 1) or an infinity of this sign.
    """

    exponent: 11
    sign: 1
    special: 1
    nan: 1


FLAGS = ("sign", "some", "infinite", "nan")
"""Flags of operands: `some` is set for an operand that is not zero."""


class Operands(wiring.Signature):
    """32 operands split into their parts, seen from their source.

    Members
    -------
    number : for each operand the mantissa (low) and the exponent: the biased one, 1 for subnormals; for bf16
        and tf32 256 more, and 0 for zeros.
    sign, some, infinite, nan : one bit for each operand (`FLAGS`).
    """

    def __init__(self) -> None:
        numbers = {"number": Out(MANTISSA + EXPONENT).array(CHANNELS)}
        super().__init__(numbers | dict.fromkeys(FLAGS, Out(CHANNELS)))


class _Element:
    """An operand split into its parts, as expressions; `exponent` is the biased one, 1 for subnormals."""

    def __init__(self, bits: Value, kind: Precision) -> None:
        fraction_bits = 7 if kind == Precision.BF16 else 10
        fraction, biased = bits[:fraction_bits], bits[fraction_bits:-1]
        self.mantissa = Cat(fraction, biased != 0)
        self.exponent = biased | (biased == 0)
        self.sign = bits[-1]
        self.some = bits[:-1] != 0
        self.infinite = biased.all() & (fraction == 0)
        self.nan = biased.all() & (fraction != 0)


def _elements(kind: Precision, word: Value) -> list[_Element | None]:
    """The two elements of a word; for tf32 one element and None."""
    if kind == Precision.TF32:
        return [_Element(word[13:], kind), None]
    return [_Element(word[:16], kind), _Element(word[16:], kind)]


def _registers(name: str) -> SimpleNamespace:
    """Registers for `Operands`, which are not reset."""
    numbers = [
        Signal(MANTISSA + EXPONENT, name=f"{name}_number_{n}", reset_less=True) for n in range(CHANNELS)
    ]
    flags = {flag: Signal(CHANNELS, name=f"{name}_{flag}", reset_less=True) for flag in FLAGS}
    return SimpleNamespace(number=numbers, **flags)


class OperandRegisters(wiring.Component):
    """Split operands into their parts and register them.

    Members
    -------
    take : In(1)        : split `words`, which have the type `precision`.
    precision : In(3)
    words : In(32) x 16 : two elements of 16 bits each, or one of tf32.
    o : Out(Operands()) : the operands, from the next cycle on.
    """

    take: In(1)
    precision: In(Precision)
    words: In(32).array(WORDS)
    o: Out(Operands())

    def elaborate(self, platform: object) -> Module:
        m = Module()
        kept = _registers("kept")
        m.d.comb += [out.eq(number) for out, number in zip(self.o.number, kept.number, strict=True)]
        m.d.comb += [getattr(self.o, flag).eq(getattr(kept, flag)) for flag in FLAGS]
        with m.If(self.take), m.Switch(self.precision):
            for kind in (Precision.FP16, Precision.BF16, Precision.TF32):
                with m.Case(kind):
                    elements = [element for word in self.words for element in _elements(kind, word)]
                    m.d.sync += [kept.number[n].eq(_number(kind, e)) for n, e in enumerate(elements)]
                    for flag in FLAGS:
                        bits = [Const(0, 1) if e is None else getattr(e, flag) for e in elements]
                        m.d.sync += getattr(kept, flag).eq(Cat(bits))
        return m


def _number(kind: Precision, element: _Element | None) -> Value:
    """A number as in `Operands`; 0 if there is no element."""
    if element is None:
        return Const(0, MANTISSA + EXPONENT)
    exponent = element.exponent
    if kind != Precision.FP16:
        exponent = Mux(element.some, exponent + _NORMAL, 0)
    return Cat(element.mantissa, Const(0, MANTISSA - len(element.mantissa)), exponent)


class FloatKernel(wiring.Component):
    """The tile sums of one kernel.

    Parameters
    ----------
    row : int
        Number of the kernel.

    Members
    -------
    load : In(1)        : a chunk of a tile is valid.
    index, stride : In  : place of the chunk, as `CellIn.w_index` and `w_stride`.
    weights : In(Operands())
    take : In(1)        : the tile that was loaded before this cycle becomes active for the next pixels.
    exact, window : In(1) : the pixel in this cycle is of fp16; of bf16 or tf32.
    tf32 : In(1)        : that pixel is of tf32.
    features : In(Operands()) : its operands.
    mantissa, marks : Out : the sum (64 bits, `Marks`), held until the next sum.
    """

    load: In(1)
    index: In(4)
    stride: In(2)
    weights: In(Operands())
    take: In(1)
    exact: In(1)
    window: In(1)
    tf32: In(1)
    features: In(Operands())
    mantissa: Out(64)
    marks: Out(Marks)

    def __init__(self, row: int) -> None:
        self._row = row
        super().__init__()

    def elaborate(self, platform: object) -> Module:
        m = Module()
        weights = self._weights(m)
        some = Signal()
        m.d.comb += some.eq(self.exact | self.window)

        with m.If(some):
            places = [
                wire(m, a[MANTISSA:] + b[MANTISSA:], EXPONENT + 1)
                for a, b in zip(self.features.number, weights.number, strict=True)
            ]
        with m.If(self.window):
            top = self._largest(m, places)
        with m.If(some):
            highest = wire(m, Mux(self.exact, _FP16_TOP, top), EXPONENT + 1)
            signs = wire(m, self.features.sign ^ weights.sign, CHANNELS)
            high, low = [], []
            for n, place in enumerate(places):
                product = wire(m, self.features.number[n][:MANTISSA] * weights.number[n][:MANTISSA], _PRODUCT)
                below = wire(m, highest - place, EXPONENT + 1)
                down = wire(m, Mux(below > _DEEPEST, _DEEPEST, below), 6)
                high.append(wire(m, Cat(Const(0, _GUARD), product) >> down, _HIGH))
                low.append(wire(m, Cat(Const(0, _LOW), product) >> (down - _GUARD)[:7], _LOW))
            high_sum = wire(m, _biased_sum(high, signs, _HIGH), _HIGH + 6)
        with m.If(self.exact):
            exact_low = wire(m, _biased_sum(low, signs, _LOW), _LOW + 6)
        with m.If(self.window):
            lost = wire(m, reduce(or_, low), _LOW)
        with m.If(some):
            # All lost bits together count as half a unit of the upper part: a sticky bit below it.
            half = Cat(Const(0, _LOW - 1), lost != 0, Const(32, 6))
            low_sum = wire(m, Mux(self.exact, exact_low, half), _LOW + 6)
            sign, exponent = self._finish(m, high_sum, low_sum, top)
            infinite, minus, special, nan = self._special(m, weights)
            # One assignment, because partial assignments would build the register bit by bit.
            m.d.sync += self.marks.as_value().eq(Cat(exponent, Mux(infinite, minus, sign), special, nan))
        return m

    def _weights(self, m: Module) -> SimpleNamespace:
        """The active weights, loaded from a shadow in which a chunk is one row, two or four."""
        weights, shadow = _registers("weight"), _registers("shadow")

        def copy(source: Any, to: SimpleNamespace, first: int, count: int) -> list:
            """Assign `count` operands from number `first` on, followed by zeros."""
            numbers = [*source.number[first : first + count], *[0] * (CHANNELS - count)]
            return [
                *(new.eq(old) for new, old in zip(to.number, numbers, strict=True)),
                *(getattr(to, flag).eq(getattr(source, flag)[first : first + count]) for flag in FLAGS),
            ]

        with m.If(self.take):
            m.d.sync += copy(shadow, weights, 0, CHANNELS)
        for parts, fits in ((1, self.stride >= 2), (2, self.stride == 1), (4, self.stride == 0)):
            mine = Signal(name=f"load_{parts}")
            m.d.comb += mine.eq(self.load & fits & (self.index == self._row // parts))
            count = CHANNELS // parts
            with m.If(mine):
                m.d.sync += copy(self.weights, shadow, count * (self._row % parts), count)
        return weights

    def _largest(self, m: Module, values: list[Value]) -> Value:
        while len(values) > 1:
            pairs = zip(values[::2], values[1::2], strict=True)
            values = [wire(m, Mux(a > b, a, b), EXPONENT + 1) for a, b in pairs]
        return values[0]

    def _finish(self, m: Module, high: Value, low: Value, top: Value) -> tuple[Value, Value]:
        """Register the magnitude of the two sums together; returns its sign and exponent."""
        bias = CHANNELS * (1 << _HIGH) + CHANNELS
        total = wire(m, high + low[_LOW:], _HIGH + 7)
        minus = wire(m, total < bias, 1)
        rest = wire(m, Mux(minus, -low[:_LOW], low[:_LOW])[:_LOW], _LOW)
        whole = wire(m, Mux(minus, bias - total - (rest != 0), total - bias)[: _HIGH + 6], _HIGH + 6)
        # Either both parts, or the upper part with one bit for the lower part.
        short = wire(m, whole[62 - _LOW :] == 0, 1)
        least = 2 * _NORMAL + _DEEPEST
        tf32, bf16 = (top + (_unit(kind) - least) for kind in (Precision.TF32, Precision.BF16))
        exact = _unit(Precision.FP16) + _FP16_TOP - _DEEPEST
        exponent = Mux(self.exact, exact, Mux(self.tf32, tf32, bf16)[:11])
        m.d.sync += self.mantissa.eq(Mux(short, Cat(rest, whole[: 62 - _LOW]), Cat(rest != 0, whole)))
        return minus, wire(m, exponent + Mux(short, 0, _LOW - 1), 11)

    def _special(self, m: Module, w: SimpleNamespace) -> tuple[Value, Value, Value, Value]:
        """Whether there is an infinity, whether a negative one; whether the sum is special, whether a NaN."""
        f = self.features
        nan = f.nan | w.nan | (f.infinite & ~w.some) | (w.infinite & ~f.some)
        infinite, signs = f.infinite | w.infinite, f.sign ^ w.sign
        plus, minus = wire(m, infinite & ~signs, CHANNELS), wire(m, infinite & signs, CHANNELS)
        invalid = wire(m, (nan != 0) | ((plus != 0) & (minus != 0)), 1)
        some = wire(m, (plus | minus) != 0, 1)
        return some, minus != 0, invalid | some, invalid


def _biased_sum(values: list[Value], signs: Value, bits: int) -> Value:
    """Sum of 32 signed values of `bits` bits, `2**bits` added to each so that no term is negative."""
    return tree(
        [
            Mux(sign, ((1 << bits) - value)[: bits + 1].as_unsigned(), Cat(value, Const(1, 1)))
            for value, sign in zip(values, signs, strict=True)
        ]
    )


class FloatOctet(wiring.Component):
    """Eight lanes: depthwise products, rounding to binary32, and the addition to the accumulators.

    Parameters
    ----------
    direct : bool
        Whether the lanes also take the sums of kernels.

    Members
    -------
    wide : In(1)        : multiply eight operands of fp16 or bf16 with their weights.
    bf16 : In(1)        : the type is bf16; constant from `wide` on.
    features, weights : In(32) x 4 : operands and weights, two per word.
    move : In(1)        : in the cycle after `wide`: keep the products for `add`.
    sums, marks : In x 8 : with `direct`, the sums of the kernels.
    add : In(1)         : round, and add to `old`.
    add_products : In(1) : with `add`: add the products instead of the sums of the kernels.
    first : In(1)       : use 0 instead of `old`.
    old : In(32) x 8
    o : Out(32) x 8     : with `add`, the new accumulators.
    """

    def __init__(self, *, direct: bool) -> None:
        self._direct = direct
        kernels = {"sums": In(64).array(LANES), "marks": In(Marks).array(LANES)} if direct else {}
        super().__init__(
            {
                "wide": In(1),
                "bf16": In(1),
                "features": In(32).array(LANES // 2),
                "weights": In(32).array(LANES // 2),
                "move": In(1),
                **kernels,
                "add": In(1),
                "add_products": In(1),
                "first": In(1),
                "old": In(32).array(LANES),
                "o": Out(32).array(LANES),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        for lane in range(LANES):
            product, held = (
                Signal(_PRODUCT, name=f"{name}_{lane}", reset_less=True) for name in ("product", "held")
            )
            marks, held_marks = (
                Signal(Marks, name=f"{name}_{lane}", reset_less=True) for name in ("marks", "held_marks")
            )
            with m.If(self.wide):
                with m.If(self.bf16):
                    self._multiply(m, Precision.BF16, lane, product, marks)
                with m.Else():
                    self._multiply(m, Precision.FP16, lane, product, marks)
            with m.If(self.move):
                m.d.sync += [held.eq(product), held_marks.as_value().eq(marks.as_value())]
            with m.If(self.add):
                mantissa, chosen = held, held_marks.as_value()
                if self._direct:
                    mantissa = Mux(self.add_products, held, self.sums[lane])
                    chosen = Mux(self.add_products, chosen, self.marks[lane].as_value())
                chosen = wire(m, chosen, Marks.as_shape().size)
                m.d.comb += self.o[lane].eq(self._sum(m, lane, mantissa, Marks(chosen)))
        return m

    def _sum(self, m: Module, lane: int, mantissa: Value, marks: Value) -> Value:
        finite = rounded(m, marks.sign, marks.exponent, wire(m, mantissa, 64), Const(0, 1))
        special = Mux(marks.nan, Const(NAN, 32), Cat(Const(INFINITY, 31), marks.sign))
        tile = wire(m, Mux(marks.special, special, Mux(finite[:31] == 0, 0, finite)), 32)
        before = wire(m, Mux(self.first, 0, self.old[lane]), 32)
        return add(m, before, tile)

    def _multiply(self, m: Module, kind: Precision, lane: int, product: Signal, marks: Value) -> None:
        place = slice(16 * (lane % 2), 16 * (lane % 2) + 16)
        a = _Element(self.features[lane // 2][place], kind)
        b = _Element(self.weights[lane // 2][place], kind)
        nan = a.nan | b.nan | (a.infinite & ~b.some) | (b.infinite & ~a.some)
        exponent = (a.exponent + b.exponent + _unit(kind))[:11]
        exponent = Cat(exponent, Const(0, 11 - len(exponent)))
        special = nan | a.infinite | b.infinite
        m.d.sync += [
            product.eq(a.mantissa * b.mantissa),
            marks.as_value().eq(Cat(exponent, a.sign ^ b.sign, special, nan)),
        ]


def rounded(m: Module, sign: Value, exponent: Value, mantissa: Value, zero_sign: Value) -> Value:
    """The binary32 nearest to a value of any magnitude, ties to even.

    Parameters
    ----------
    sign, zero_sign : Value
        Sign of the result if the value before rounding is not zero, and if it is zero.
    exponent : Value
        Unsigned, 11 bits: biased exponent plus `OFFSET` if the top bit of the mantissa is set; at least 64.
    mantissa : Value
        Unsigned, 64 bits.  Its lowest bit may be a sticky bit for all lower bits.
    """
    whole, count = normalised(m, mantissa, 64)
    place = wire(m, exponent - count, 11)
    # A subnormal is shifted down; the lost bits are kept in the lowest bit.
    down = wire(m, Mux(place > OFFSET, 0, Mux(place < OFFSET - 62, 63, OFFSET + 1 - place)), 6)
    cut = wire(m, whole >> down, 64)
    kept = wire(m, cut | ((cut << down)[:64] != whole), 64)
    up = kept[39] & (kept[:39].any() | kept[40])
    # The hidden bit increments the exponent field below it, as does a carry out of the fraction.
    below = Mux(place > OFFSET, place - (OFFSET + 1), 0)[:8]
    magnitude = Mux(place > OFFSET + 254, INFINITY, Cat(Const(0, 23), below) + kept[40:] + up)
    return wire(m, Mux(whole[63], Cat(magnitude[:31], sign), Cat(Const(0, 31), zero_sign)), 32)


def add(m: Module, a: Value, b: Value) -> Value:
    """`a + b`."""
    total: Exact = exact_sum(m, a, b)
    finite = rounded(m, total.sign, total.exponent, total.mantissa, total.zero_sign)
    return wire(m, Mux(total.special, total.instead, finite), 32)
