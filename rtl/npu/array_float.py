"""Tile sums and accumulation of the array cell for fp16, bf16 and tf32 (docs/hardware.md 3.7).

One multiplier, one aligner and one adder tree a product serve all types.  Products are put into a fixed-point
number of 80 bits, the window: of bf16 and tf32 it ends 34 bits below the last place of the product with the
largest exponent, of fp16 it holds every product whole.  Its upper and its lower bits are added apart, so
that everything fits 64 bits; bf16 and tf32 only ask whether there are any lower bits.

Every wire hangs on a condition of one bit: a simulation without floats pays nothing (see `rtl.npu.float32`).
"""

from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from rtl.layouts import LANES
from rtl.npu.array_integer import tree
from rtl.npu.array_round import add, rounded
from rtl.npu.cna_types import Precision
from rtl.npu.float32 import INFINITY, NAN, OFFSET, wire

CHANNELS = 32
WORDS = 16
"""Words of 32 bits of a kernel's row: two elements of 16 bits each, or one of tf32."""

KERNELS = 16

MANTISSA, EXPONENT = 11, 9
"""Bits of an operand's mantissa with the hidden one (of bf16 8 are used), and of its exponent."""

_NORMAL = 256
"""Added to the biased exponents of bf16 and tf32 operands that are not zero, so that no product with a zero
has the largest exponent."""

_PRODUCT = 2 * MANTISSA
_GUARD = 34
"""Upper bits of the window below the last place of its highest product."""

_LOW = 24
"""Lower bits of the window."""

_DEEPEST = _GUARD + _LOW
"""Places by which a product may be shifted down without falling out of the window."""

_FP16_TOP = _DEEPEST + 2
"""Sum of exponents at which an fp16 product is at the top of the window; the least is 2."""

_HIGH = _PRODUCT + _GUARD
_UNIT = 127 + 63 + OFFSET
"""`exponent` of a `Sum` whose mantissa counts units of 1."""


def _unit(precision: Precision) -> int:
    """`exponent` of a `Sum` whose mantissa counts products whose biased exponents sum to 0."""
    bias = 15 if precision == Precision.FP16 else 127
    fraction = 7 if precision == Precision.BF16 else 10
    return _UNIT - 2 * (bias + fraction)


class Marks(data.Struct):
    """A sum or product before rounding, beside its mantissa: sign, and `exponent` as `rounded` takes it.

    `special`: it is a NaN, or else (`nan` = 0) an infinity of this sign.
    """

    exponent: 11
    sign: 1
    special: 1
    nan: 1


FLAGS = ("sign", "some", "infinite", "nan")
"""Marks of operands: `some` is set where it is not zero."""


class Operands:
    """Registers for 32 operands taken apart.

    The exponent is the biased one, 1 for subnormals; of bf16 and tf32 plus 256, and 0 for zeros.

    Attributes
    ----------
    number : list of Signal
        mantissa (low) and exponent of each operand.
    flags : dict of Signal
        a bit an operand.
    """

    def __init__(self, name: str) -> None:
        self.number = [
            Signal(MANTISSA + EXPONENT, name=f"{name}_number_{n}", reset_less=True) for n in range(CHANNELS)
        ]
        self.flags = {flag: Signal(CHANNELS, name=f"{name}_{flag}", reset_less=True) for flag in FLAGS}

    def take(self, m: Module, precision: Value, words: list[Value]) -> None:
        """Take 16 words apart, under the conditions around the call."""
        with m.Switch(precision):
            for kind in (Precision.FP16, Precision.BF16, Precision.TF32):
                with m.Case(kind):
                    self._take(m, [e for word in words for e in _elements(kind, word)], kind)

    def _take(self, m: Module, elements: list["_Element | None"], kind: Precision) -> None:
        for e, number in zip(elements, self.number, strict=True):
            if e is None:
                m.d.sync += number.eq(0)
                continue
            exponent = e.exponent
            if kind != Precision.FP16:
                exponent = Mux(e.some, exponent + _NORMAL, 0)
            mantissa = Cat(e.mantissa, Const(0, MANTISSA - len(e.mantissa)))
            m.d.sync += number.eq(Cat(mantissa, exponent))
        for flag, to in self.flags.items():
            m.d.sync += to.eq(Cat(Const(0, 1) if e is None else getattr(e, flag) for e in elements))

    def copy(self, m: Module, numbers: list[Value], flags: dict[str, Value], first: int, count: int) -> None:
        """Take `count` operands over from the given ones, from number `first` on; zeros behind them."""
        for n, to in enumerate(self.number):
            m.d.sync += to.eq(numbers[first + n] if n < count else 0)
        for flag, to in self.flags.items():
            m.d.sync += to.eq(flags[flag][first : first + count])


class _Element:
    """An operand taken apart, as expressions; `exponent` is the biased one, 1 for subnormals."""

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
    """The two elements of a word; of tf32 there is one."""
    if kind == Precision.TF32:
        return [_Element(word[13:], kind), None]
    return [_Element(word[:16], kind), _Element(word[16:], kind)]


class FloatKernel(wiring.Component):
    """The tile sums of one kernel.

    Parameters
    ----------
    row : the kernel's number.

    Members
    -------
    load : In(1)        : a chunk of a tile is there.
    index, stride : In  : which one, as `CellIn.w_index` and `w_stride`.
    weights : In(20) x 32, weight_sign, weight_some, weight_infinite, weight_nan : In(32) : it (`Operands`).
    take : In(1)        : the tile loaded before this cycle is that of the pixels after it.
    exact, window : In(1) : there is a pixel of fp16; of bf16 or tf32.
    tf32 : In(1)        : that pixel is of tf32.
    features : In(20) x 32, sign, some, infinite, nan : In(32) : its operands, see `Operands`.
    mantissa, marks : Out : the sum (64 bits, `Marks`), until the next one comes out.
    """

    def __init__(self, row: int) -> None:
        self._row = row
        operand = MANTISSA + EXPONENT
        super().__init__(
            {
                "load": In(1),
                "index": In(4),
                "stride": In(2),
                "weights": In(operand).array(CHANNELS),
                **{f"weight_{flag}": In(CHANNELS) for flag in FLAGS},
                "take": In(1),
                "exact": In(1),
                "window": In(1),
                "tf32": In(1),
                "features": In(operand).array(CHANNELS),
                **{flag: In(CHANNELS) for flag in FLAGS},
                "mantissa": Out(64),
                "marks": Out(Marks),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        weights = self._weights(m)
        some = Signal()
        m.d.comb += some.eq(self.exact | self.window)

        with m.If(some):
            places = [
                wire(m, a[MANTISSA:] + b[MANTISSA:], EXPONENT + 1)
                for a, b in zip(self.features, weights.number, strict=True)
            ]
        with m.If(self.window):
            top = self._largest(m, places)
        with m.If(some):
            highest = wire(m, Mux(self.exact, _FP16_TOP, top), EXPONENT + 1)
            signs = wire(m, self.sign ^ weights.flags["sign"], CHANNELS)
            high, low = [], []
            for n, place in enumerate(places):
                product = wire(m, self.features[n][:MANTISSA] * weights.number[n][:MANTISSA], _PRODUCT)
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
            # All that was lost counts as half a unit of the upper part: a sticky bit below it.
            half = Cat(Const(0, _LOW - 1), lost != 0, Const(32, 6))
            low_sum = wire(m, Mux(self.exact, exact_low, half), _LOW + 6)
            sign, exponent = self._finish(m, high_sum, low_sum, top)
            infinite, minus, special, nan = self._special(m, weights.flags)
            # One assignment: parts of a register would be put together bit by bit.
            m.d.sync += self.marks.as_value().eq(Cat(exponent, Mux(infinite, minus, sign), special, nan))
        return m

    def _weights(self, m: Module) -> Operands:
        """The active weights, taken from a shadow, where a chunk is one row, two or four."""
        weights, shadow = Operands("weight"), Operands("shadow")
        flags = {flag: getattr(self, f"weight_{flag}") for flag in FLAGS}
        with m.If(self.take):
            weights.copy(m, shadow.number, shadow.flags, 0, CHANNELS)
        for parts, fits in ((1, self.stride >= 2), (2, self.stride == 1), (4, self.stride == 0)):
            mine = Signal(name=f"load_{parts}")
            m.d.comb += mine.eq(self.load & fits & (self.index == self._row // parts))
            count = CHANNELS // parts
            with m.If(mine):
                shadow.copy(m, list(self.weights), flags, count * (self._row % parts), count)
        return weights

    def _largest(self, m: Module, values: list[Value]) -> Value:
        while len(values) > 1:
            pairs = zip(values[::2], values[1::2], strict=True)
            values = [wire(m, Mux(a > b, a, b), EXPONENT + 1) for a, b in pairs]
        return values[0]

    def _finish(self, m: Module, high: Value, low: Value, top: Value) -> tuple[Value, Value]:
        """Register the magnitude of the two sums together; gives its sign and exponent."""
        bias = CHANNELS * (1 << _HIGH) + CHANNELS
        total = wire(m, high + low[_LOW:], _HIGH + 7)
        minus = wire(m, total < bias, 1)
        rest = wire(m, Mux(minus, -low[:_LOW], low[:_LOW])[:_LOW], _LOW)
        whole = wire(m, Mux(minus, bias - total - (rest != 0), total - bias)[: _HIGH + 6], _HIGH + 6)
        # Both parts, or the upper one with a bit for the other.
        short = wire(m, whole[62 - _LOW :] == 0, 1)
        least = 2 * _NORMAL + _DEEPEST
        tf32, bf16 = (top + (_unit(kind) - least) for kind in (Precision.TF32, Precision.BF16))
        exact = _unit(Precision.FP16) + _FP16_TOP - _DEEPEST
        exponent = Mux(self.exact, exact, Mux(self.tf32, tf32, bf16)[:11])
        m.d.sync += self.mantissa.eq(Mux(short, Cat(rest, whole[: 62 - _LOW]), Cat(rest != 0, whole)))
        return minus, wire(m, exponent + Mux(short, 0, _LOW - 1), 11)

    def _special(self, m: Module, w: dict[str, Signal]) -> tuple[Value, Value, Value, Value]:
        """Whether there are infinities, negative ones, whether the sum is one or a NaN, and the latter."""
        nan = self.nan | w["nan"] | (self.infinite & ~w["some"]) | (w["infinite"] & ~self.some)
        infinite, signs = self.infinite | w["infinite"], self.sign ^ w["sign"]
        plus, minus = wire(m, infinite & ~signs, CHANNELS), wire(m, infinite & signs, CHANNELS)
        invalid = wire(m, (nan != 0) | ((plus != 0) & (minus != 0)), 1)
        some = wire(m, (plus | minus) != 0, 1)
        return some, minus != 0, invalid | some, invalid


def _biased_sum(values: list[Value], signs: Value, bits: int) -> Value:
    """Sum of 32 values of `bits` bits with their signs; `2**bits` is added to each: none is negative."""
    return tree(
        [
            Mux(sign, ((1 << bits) - value)[: bits + 1].as_unsigned(), Cat(value, Const(1, 1)))
            for value, sign in zip(values, signs, strict=True)
        ]
    )


class FloatOctet(wiring.Component):
    """Eight lanes: depthwise products, rounding to binary32, and the sum with the accumulators.

    Parameters
    ----------
    direct : whether the lanes also take the sums of kernels.

    Members
    -------
    wide : In(1)        : multiply eight operands of fp16 or bf16 with their weights.
    bf16 : In(1)        : the latter, steady from `wide` on.
    features, weights : In(32) x 4 : they, two a word.
    move : In(1)        : in the cycle after `wide`: hold the products for `add`.
    sums, marks : In x 8 : with `direct`, the kernels' sums.
    add : In(1)         : round, and add to `old`.
    add_products : In(1) : with `add`: the products, else the kernels' sums.
    first : In(1)       : take 0 for `old`.
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
