"""How the PPU keeps partial results of a window: formats of the lanes, and taking in one more tap.

Extrema are always maxima here: for minima every value is inverted bit by bit, which turns the order round
(`flip`).  fp16 extrema are kept as signed 16-bit keys in the order of the numbers, see `key_of_half`.
Padded taps only count; their value joins at the end (`rtl.npu.ppu_finish`).
"""

# No postponed annotations here: Amaranth reads the fields of a Struct from them.
from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, enum

from rtl.npu.dpu_math import extend
from rtl.npu.float32 import wire

WORD_BITS = 416
"""Lanes of an atom at their widest: 8 exact fp16 sums."""
INDEX_AT = 128
"""Extrema fill the bits below, their positions (6 bits a lane) those from here on."""
INDEX_BITS = 6
FIXED_BITS = 49
"""Sum of 256 fp16 numbers in units of 2^-24, signed; above it: saw a NaN, +infinity, -infinity."""
FLOAT_BITS = FIXED_BITS + 3
NAN_KEY = 0x7FFF
"""Above the key of every number, flipped or not."""


class Lanes(enum.IntEnum, shape=3):
    """What the lanes of a partial result hold."""

    BEST8 = 0  # 16 x 8 bits
    BEST16 = 1  # 8 x 16 bits
    SUM8 = 2  # 16 x 16 bits
    SUM16 = 3  # 8 x 32 bits
    SUM_FP16 = 4  # 8 x FLOAT_BITS


class Partial(data.Struct):
    """A window, or a part of it: lanes, number of padded taps, whether there was a real one.

    Without a real tap the lanes mean nothing.
    """

    lanes: WORD_BITS
    padded: 9
    real: 1


def key_of_half(half: Value, flip: Value) -> Value:
    """16-bit key of an fp16: signed order is that of the numbers (-0 below +0), a NaN `NAN_KEY`."""
    key = Cat(half[:15] ^ half[15].replicate(15), half[15]) ^ flip.replicate(16)
    return Mux(half[:15] > 0x7C00, Const(NAN_KEY, 16), key)


def half_of_key(key: Value, flip: Value) -> Value:
    """The fp16 of `key_of_half`; 0x7E00 for NaN."""
    plain = key ^ flip.replicate(16)
    return Mux(key == NAN_KEY, Const(0x7E00, 16), Cat(plain[:15] ^ plain[15].replicate(15), plain[15]))


def fixed_of_half(half: Value) -> Value:
    """A lane of `SUM_FP16` for one fp16."""
    sign, biased, fraction = half[15], half[10:15], half[:10]
    normal = biased != 0
    magnitude = (Cat(fraction, normal) << (biased - normal).as_unsigned()[:5])[:40]
    fixed = extend(Mux(sign, -magnitude, magnitude), FIXED_BITS)[:FIXED_BITS]
    special = biased == 31
    infinite = special & (fraction == 0)
    flags = Cat(special & (fraction != 0), infinite & ~sign, infinite & sign)
    return Cat(Mux(special, Const(0, FIXED_BITS), fixed), flags)


def tap_lanes(m: Module, kind: Value, flip: Value, fp16: Value, atom: Value, index: Value) -> Signal:
    """The lanes of a single real tap.  Driven under the conditions around the call."""
    result = Signal(WORD_BITS, init=1)
    index = index.replicate(16)
    with m.Switch(kind):
        with m.Case(Lanes.BEST8):
            m.d.comb += result.eq(Cat(atom ^ flip.replicate(128), index))
        with m.Case(Lanes.BEST16):
            with m.If(fp16):
                keys = [key_of_half(atom.word_select(lane, 16), flip) for lane in range(8)]
                m.d.comb += result.eq(Cat(*keys, index))
            with m.Else():
                m.d.comb += result.eq(Cat(atom ^ flip.replicate(128), index))
        with m.Case(Lanes.SUM8):
            bytes_ = [extend(atom.word_select(lane, 8).as_signed(), 16)[:16] for lane in range(16)]
            m.d.comb += result.eq(Cat(*bytes_))
        with m.Case(Lanes.SUM16):
            words = [extend(atom.word_select(lane, 16).as_signed(), 32)[:32] for lane in range(8)]
            m.d.comb += result.eq(Cat(*words))
        with m.Default():
            halves = [fixed_of_half(atom.word_select(lane, 16)) for lane in range(8)]
            m.d.comb += result.eq(Cat(*halves))
    return result


def joined_lanes(m: Module, kind: Value, indexed: Value, old: Value, new: Value) -> Signal:
    """The lanes of two parts, `old` the earlier in row-major order.  Driven as `tap_lanes`."""
    result = Signal(WORD_BITS, init=1)
    with m.Switch(kind):
        for case, bits in ((Lanes.BEST8, 8), (Lanes.BEST16, 16)):
            with m.Case(case):
                count = 128 // bits
                pairs = [(old.word_select(i, bits), new.word_select(i, bits)) for i in range(count)]
                with m.If(indexed):
                    better = wire(m, Cat(*(n.as_signed() > o.as_signed() for o, n in pairs)), count)
                    best = [Mux(better[i], n, o) for i, (o, n) in enumerate(pairs)]
                    places = [
                        Mux(
                            better[i],
                            new[INDEX_AT:].word_select(i, INDEX_BITS),
                            old[INDEX_AT:].word_select(i, INDEX_BITS),
                        )
                        for i in range(count)
                    ]
                    m.d.comb += result.eq(Cat(*best, *places))
                with m.Else():
                    best = [Mux(n.as_signed() > o.as_signed(), n, o) for o, n in pairs]
                    m.d.comb += result.eq(Cat(*best))
        for case, bits in ((Lanes.SUM8, 16), (Lanes.SUM16, 32)):
            with m.Case(case):
                sums = [
                    (old.word_select(i, bits) + new.word_select(i, bits))[:bits] for i in range(256 // bits)
                ]
                m.d.comb += result.eq(Cat(*sums))
        with m.Default():
            parts = []
            for lane in range(8):
                a, b = old.word_select(lane, FLOAT_BITS), new.word_select(lane, FLOAT_BITS)
                parts += [(a[:FIXED_BITS] + b[:FIXED_BITS])[:FIXED_BITS], a[FIXED_BITS:] | b[FIXED_BITS:]]
            m.d.comb += result.eq(Cat(*parts))
    return result


def join(
    m: Module,
    kind: Value,
    indexed: Value,
    first: Value,
    old: data.View,
    new_lanes: Value,
    new_padded: Value,
    new_real: Value,
) -> data.View:
    """`Partial` of an earlier part (none where `first`) and a new one.  Driven as `tap_lanes`."""
    result = Signal(Partial, init={"padded": 1})
    old_real = wire(m, ~first & old.real, 1)
    m.d.comb += [
        result.padded.eq(Mux(first, 0, old.padded) + new_padded),
        result.real.eq(old_real | new_real),
    ]
    with m.If(~new_real):
        m.d.comb += result.lanes.eq(old.lanes)
    with m.Elif(~old_real):
        m.d.comb += result.lanes.eq(new_lanes)
    with m.Else():
        m.d.comb += result.lanes.eq(joined_lanes(m, kind, indexed, old.lanes, new_lanes))
    return result
