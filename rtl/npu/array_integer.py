"""Products and sums of the array cell for int4, int8 and int16 (docs/hardware.md 3.7)."""

from amaranth.hdl import Cat, Module, Signal, Value, signed

from rtl.npu.dpu_math import extend

IDLE = 1
"""What a wire without a value shows; not 0, see `rtl.npu.dpu_pipe.IDLE`."""

CHANNELS = 32
"""Channels of a direct group of every integer type."""

PACKED = 4
"""int4 kernels whose weights share one multiplier."""

_FIELD = 13
"""Bits that keep packed sums apart: the sum of 32 products of two int4 values."""


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


class PackedWeights:
    """int4 weights of 64 kernels, four kernels to a number so that one product serves all four.

    Such a number is `w0 + (w1 << 13) + (w2 << 26) + (w3 << 39)`: the sum of its products with the
    operands holds the four sums in the same places, each with what the one below it borrows.
    """

    def __init__(self) -> None:
        self._groups = [
            [Signal(signed(3 * _FIELD + 5), name=f"packed_{n}_{c}", reset_less=True) for c in range(CHANNELS)]
            for n in range(64 // PACKED)
        ]

    def take(self, m: Module, shadow: list[Signal]) -> None:
        """Pack the tile in `shadow` at this clock edge, under the conditions around the call."""
        for n, group in enumerate(self._groups):
            for c, packed in enumerate(group):
                nibbles = [element(shadow, CHANNELS * (PACKED * n + k) + c, 4) for k in range(PACKED)]
                # From the top down, so that a lower negative value borrows from those above it.
                value = nibbles[-1]
                for nibble in reversed(nibbles[:-1]):
                    value = Cat(nibble, nibble[-1].replicate(_FIELD - 4), value - nibble[-1]).as_signed()
                m.d.sync += packed.eq(value)

    def dot(self, m: Module, words: list[Signal]) -> list[Value]:
        """64 sums of products with the 32 operands in `words`, 13 bits signed each."""
        operands = []
        for c in range(CHANNELS):
            operand = Signal(signed(4), name=f"nibble_{c}", init=IDLE)
            m.d.comb += operand.eq(element(words, c, 4))
            operands.append(operand)
        sums: list[Value] = []
        for n, group in enumerate(self._groups):
            rest = Signal(signed(3 * _FIELD + _FIELD), name=f"packed_sum_{n}", init=IDLE)
            m.d.comb += rest.eq(tree([o * w for o, w in zip(operands, group, strict=True)]))
            for k in range(PACKED):
                own = rest[_FIELD * k : _FIELD * (k + 1)]
                # A negative field below has borrowed one.
                borrowed = rest[_FIELD * k - 1] if k else 0
                sums.append((own + borrowed)[:_FIELD].as_signed())
        return sums


def window_sum(words: list[Signal], bits: int) -> Value:
    """Sum of the 32 operands of `bits` bits."""
    return tree([element(words, c, bits) for c in range(CHANNELS)])


def extended(value: Value, bits: int) -> Value:
    """A signed value as `bits` unsigned bits in two's complement."""
    return extend(value, bits)[:bits].as_unsigned()
