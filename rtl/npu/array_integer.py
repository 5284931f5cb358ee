"""Products and sums of the array cell for int4, int8 and int16 [HW 6.2]."""

from amaranth.hdl import Cat, Module, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from rkcosim.rtl.layouts import IDLE
from rkcosim.rtl.npu.arith import extend

CHANNELS = 32
"""Channels of a direct channel group for every integer type."""

KERNELS = 64
"""Kernels of a kernel group of int4."""

PACKED = 4
"""int4 kernels whose weights share one multiplier."""

_FIELD = 13
"""Distance in bits of packed sums: the width of the sum of 32 products of two int4 values."""


def tree(terms: list[Value]) -> Value:
    """Balanced sum of the terms."""
    while len(terms) > 1:
        terms = [sum(terms[n : n + 2][1:], terms[n]) for n in range(0, len(terms), 2)]
    return terms[0]


def element(words: list[Signal], index: int, bits: int) -> Value:
    """Signed element `index` of `bits` bits (4, 8 or 16) in words of 32 bits."""
    each = 32 // bits
    return words[index // each][bits * (index % each) :][:bits].as_signed()


def dot(words: list[Signal], weights: list[Signal], kernel: int, bits: int) -> Value:
    """Sum of products of 32 operands and the weights of one kernel, `bits` (8 or 16) bits each."""
    row = kernel * CHANNELS
    return tree([element(words, c, bits) * element(weights, row + c, bits) for c in range(CHANNELS)])


class PackedDot(wiring.Component):
    """Sums of int4 products for 64 kernels; four kernels share one multiplication.

    The weights of four kernels are packed to `w0 + (w1 << 13) + (w2 << 26) + (w3 << 39)`. The sum of the
    products of this number with the operands holds the four sums in the same places, each reduced by the
    borrow of the one below it.

    Members
    -------
    take : In(1)            : load the weights of the tile in `shadow`.
    shadow : In(32) x 256
    on : In(1)              : there are operands.
    words : In(32) x 4      : 32 operands.
    o : Out(signed(13)) x 64 : with `on`, a sum of products for each kernel.
    """

    take: In(1)
    shadow: In(32).array(KERNELS * CHANNELS * 4 // 32)
    on: In(1)
    words: In(32).array(CHANNELS * 4 // 32)
    o: Out(signed(_FIELD)).array(KERNELS)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        operands = [Signal(signed(4), name=f"nibble_{c}", init=IDLE) for c in range(CHANNELS)]
        with m.If(self.on):
            m.d.comb += [operand.eq(element(self.words, c, 4)) for c, operand in enumerate(operands)]
        for n in range(0, KERNELS, PACKED):
            products = []
            for c, operand in enumerate(operands):
                packed = Signal(signed(3 * _FIELD + 5), name=f"packed_{n // PACKED}_{c}", reset_less=True)
                nibbles = [element(self.shadow, CHANNELS * (n + k) + c, 4) for k in range(PACKED)]
                # Start at the highest weight, so that a negative value borrows from those above it.
                value = nibbles[-1]
                for nibble in reversed(nibbles[:-1]):
                    value = Cat(nibble, nibble[-1].replicate(_FIELD - 4), value - nibble[-1]).as_signed()
                with m.If(self.take):
                    m.d.sync += packed.eq(value)
                products.append(operand * packed)
            total = Signal(signed(3 * _FIELD + _FIELD), name=f"packed_sum_{n // PACKED}", init=IDLE)
            with m.If(self.on):
                m.d.comb += total.eq(tree(products))
            for k in range(PACKED):
                own = total[_FIELD * k : _FIELD * (k + 1)]
                # A negative field below has borrowed one from this field.
                borrowed = total[_FIELD * k - 1] if k else 0
                m.d.comb += self.o[n + k].eq((own + borrowed)[:_FIELD].as_signed())
        return m


def window_sum(words: list[Signal], bits: int) -> Value:
    """Sum of the 32 operands of `bits` bits."""
    return tree([element(words, c, bits) for c in range(CHANNELS)])


def extended(value: Value, bits: int) -> Value:
    """A signed value as `bits` unsigned bits in two's complement."""
    return extend(value, bits)[:bits].as_unsigned()
