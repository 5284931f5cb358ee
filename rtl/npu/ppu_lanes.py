"""Partial results of a PPU window: formats of the lanes, and the addition of one more tap.

Extrema are always maxima here: for minima all bits of every value are inverted, which reverses the order
(`flip`). fp16 extrema are kept as signed 16-bit keys in the order of the numbers, see `key_of_half`.
Padded taps are only counted; their value is added at the end (`rkcosim.rtl.npu.ppu_finish`).
"""

# No postponed annotations here: Amaranth reads the fields of a Struct from the annotations.
from dataclasses import dataclass

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, enum

from rkcosim.rtl.layouts import IDLE
from rkcosim.rtl.npu.arith import extend, wire

WORD_BITS = 416
"""Width of the lanes of an atom in the widest format: 8 exact fp16 sums."""
INTEGER_BITS = 256
"""Width of the lanes of an atom in the widest format of integers: 16 sums of 16 bits, or 8 of 32."""
INDEX_AT = 128
"""First bit of the positions of extrema (6 bits per lane); the extrema are in the bits below."""
INDEX_BITS = 6
FIXED_BITS = 49
"""Width of the signed sum of 256 fp16 numbers in units of 2^-24.

The three flags above the sum are set if a tap was a NaN, +infinity or -infinity.
"""
FLOAT_BITS = FIXED_BITS + 3
NAN_KEY = 0x7FFF
"""A key greater than that of every number, inverted or not."""


class Lanes(enum.IntEnum, shape=3):
    """Contents of the lanes of a partial result."""

    BEST8 = 0  # 16 x 8 bits
    BEST16 = 1  # 8 x 16 bits
    SUM8 = 2  # 16 x 16 bits
    SUM16 = 3  # 8 x 32 bits
    SUM_FP16 = 4  # 8 x FLOAT_BITS


class PoolTask(data.Struct):
    """Type and method of a task.

    Members
    -------
    kind : contents of the lanes.
    flip : minima are searched.
    fp16 : elements are fp16.
    indexed : positions of extrema are written as well.
    """

    kind: Lanes
    flip: 1
    fp16: 1
    indexed: 1


class Partial(data.Struct):
    """A window or a part of it: lanes, number of padded taps, and whether there was a real tap.

    Without a real tap the lanes are undefined.
    """

    lanes: WORD_BITS
    padded: 9
    real: 1


class IntegerPartial(data.Struct):
    """A `Partial` in a PPU without floats."""

    lanes: INTEGER_BITS
    padded: 9
    real: 1


def partial_of(floats: bool) -> type[data.Struct]:
    """Return the shape of a partial result in a PPU with or without floats."""
    return Partial if floats else IntegerPartial


@dataclass(frozen=True)
class Tap:
    """The members of a `Partial` as expressions that are not in a register."""

    lanes: Value
    padded: Value
    real: Value


def key_of_half(half: Value, flip: Value) -> Value:
    """16-bit key of an fp16 in the signed order of the numbers (-0 below +0); `NAN_KEY` for a NaN."""
    key = Cat(half[:15] ^ half[15].replicate(15), half[15]) ^ flip.replicate(16)
    return Mux(half[:15] > 0x7C00, Const(NAN_KEY, 16), key)


def half_of_key(key: Value, flip: Value) -> Value:
    """The fp16 for a key of `key_of_half`; 0x7E00 for NaN."""
    plain = key ^ flip.replicate(16)
    return Mux(key == NAN_KEY, Const(0x7E00, 16), Cat(plain[:15] ^ plain[15].replicate(15), plain[15]))


def fixed_of_half(half: Value) -> Value:
    """A lane of `SUM_FP16` that holds one fp16."""
    sign, biased, fraction = half[15], half[10:15], half[:10]
    normal = biased != 0
    magnitude = (Cat(fraction, normal) << (biased - normal).as_unsigned()[:5])[:40]
    fixed = extend(Mux(sign, -magnitude, magnitude), FIXED_BITS)[:FIXED_BITS]
    special = biased == 31
    infinite = special & (fraction == 0)
    flags = Cat(special & (fraction != 0), infinite & ~sign, infinite & sign)
    return Cat(Mux(special, Const(0, FIXED_BITS), fixed), flags)


def tap_lanes(m: Module, task: data.View, atom: Value, index: Value, *, floats: bool = True) -> Signal:
    """The lanes for a single real tap of a `PoolTask`, gated by the conditions around the call.

    Without `floats` the task is never one of fp16.
    """
    result, flip = Signal(WORD_BITS if floats else INTEGER_BITS, init=IDLE), task.flip
    index = index.replicate(16)
    with m.Switch(task.kind):
        with m.Case(Lanes.BEST8):
            m.d.comb += result.eq(Cat(atom ^ flip.replicate(128), index))
        with m.Case(Lanes.BEST16):
            with m.If(task.fp16 if floats else Const(0)):
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
        if floats:
            with m.Default():
                halves = [fixed_of_half(atom.word_select(lane, 16)) for lane in range(8)]
                m.d.comb += result.eq(Cat(*halves))
    return result


def joined_lanes(m: Module, task: data.View, old: Value, new: Value) -> Signal:
    """The lanes of two joined parts, `old` the earlier one in row-major order; gated as `tap_lanes`."""
    floats = len(old) == WORD_BITS
    result = Signal(len(old), init=IDLE)
    with m.Switch(task.kind):
        for case, bits in ((Lanes.BEST8, 8), (Lanes.BEST16, 16)):
            with m.Case(case):
                count = 128 // bits
                pairs = [(old.word_select(i, bits), new.word_select(i, bits)) for i in range(count)]
                with m.If(task.indexed):
                    better = wire(m, Cat(*(n.as_signed() > o.as_signed() for o, n in pairs)), count)
                    best = [Mux(better[i], n, o) for i, (o, n) in enumerate(pairs)]
                    was, now = old[INDEX_AT:], new[INDEX_AT:]
                    places = [
                        Mux(better[i], now.word_select(i, INDEX_BITS), was.word_select(i, INDEX_BITS))
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
        if floats:
            with m.Default():
                parts = []
                for lane in range(8):
                    a, b = old.word_select(lane, FLOAT_BITS), new.word_select(lane, FLOAT_BITS)
                    parts += [(a[:FIXED_BITS] + b[:FIXED_BITS])[:FIXED_BITS], a[FIXED_BITS:] | b[FIXED_BITS:]]
                m.d.comb += result.eq(Cat(*parts))
    return result


def join(m: Module, task: data.View, first: Value, old: data.View, new: data.View | Tap) -> data.View:
    """The `Partial` of an earlier part (ignored where `first`) and a new one; gated as `tap_lanes`."""
    result = Signal(partial_of(len(old.lanes) == WORD_BITS), init={"padded": 1})
    old_real = wire(m, ~first & old.real, 1)
    m.d.comb += [
        result.padded.eq(Mux(first, 0, old.padded) + new.padded),
        result.real.eq(old_real | new.real),
    ]
    with m.If(~new.real):
        m.d.comb += result.lanes.eq(old.lanes)
    with m.Elif(~old_real):
        m.d.comb += result.lanes.eq(new.lanes)
    with m.Else():
        m.d.comb += result.lanes.eq(joined_lanes(m, task, old.lanes, new.lanes))
    return result
