"""First-layer input: unpacks interleaved pixels and converts them ([HW 3.3], [HW 4.3])."""

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from rkcosim.rtl import assertions
from rkcosim.rtl.layouts import IDLE
from rkcosim.rtl.npu.arith import wire
from rkcosim.rtl.npu.cna_fetch import AtomBeat
from rkcosim.rtl.npu.cna_types import TypeOf
from rkcosim.rtl.regfile import config_signature

LANES = 8
"""Elements of 8 bits that are converted per cycle (half as many of 16 bits): two CBUF atoms of pixels."""

LONGEST_SHIFT = 40
"""Shifts by this count or more round every 34-bit value to zero."""


def factors_of(cfg: Any, number: int) -> tuple[Value, Value, Value]:
    """Scale, offset and shift of one of the converter's four sets."""
    shift = cfg.CVT_TRUNCATE[number]
    return (
        cfg.CVT_SCALE[number],
        cfg.CVT_OFFSET[number],
        Mux(shift < LONGEST_SHIFT, shift, LONGEST_SHIFT),
    )


def shifted(m: Module, name: str, total: Value, shift: Value, half: Value, half_up: Value) -> Signal:
    """`total / 2^shift`, rounded half up or half to even; `half` is half of `2^shift`, or 0."""
    floor = Signal(signed(34), name=f"floor_{name}", init=IDLE)
    bias = Signal(LONGEST_SHIFT, name=f"bias_{name}", init=IDLE)
    rounded = Signal(signed(LONGEST_SHIFT + 2), name=f"rounded_{name}", init=IDLE)
    m.d.comb += [
        floor.eq(total >> shift),
        bias.eq(half - (~half_up & (shift != 0) & ~floor[0])),  # without a shift, `half` is 0
        rounded.eq((total + bias) >> shift),
    ]
    return rounded


def limited(value: Value, bits: int) -> Value:
    """A signed value limited to the range of `bits` bits."""
    high, low = (1 << bits - 1) - 1, Const(-(1 << bits - 1), signed(bits))
    return Mux(value > high, high, Mux(value < low, low, value[:bits]))


class PixelAtoms(data.Struct):
    """Two atoms of pixels; the second one is valid if `two` is set. `pixels` is the number of real pixels."""

    data: 256
    two: 1
    pixels: 4


class ArgbUnpack(wiring.Component):
    """Convert a byte stream of C-channel pixels to CBUF atoms with room for 4, 8 or 16 elements per pixel.

    A pixel takes the room of 4 elements (C = 1), 8 (C = 2) or 16 (C = 3, 4). The first C of them hold
    the channels and the others are zero. The unit accepts 8 bytes per cycle (6 for C = 3), which make two
    atoms.

    Members
    -------
    cfg : In(config_signature("CNA"))
    start : In(1)                   : pulse; `channels`, `wide` and `pixels` are sampled in this cycle.
    channels : In(3)                : C, 1 to 4.
    wide : In(1)                    : elements have 16 bits instead of 8.
    pixels : In(32)                 : number of pixels of the stream.
    beat : In(stream of AtomBeat)   : the bytes, from the first byte of the first atom on.
    atoms : Out(stream of PixelAtoms)
    """

    cfg: In(config_signature("CNA"))
    start: In(1)
    channels: In(3)
    wide: In(1)
    pixels: In(32)
    beat: In(stream.Signature(AtomBeat))
    atoms: Out(stream.Signature(PixelAtoms))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        cfg = self.cfg
        channels, wide = Signal(3, reset_less=True), Signal(reset_less=True)
        left = Signal(32)  # pixels that have not entered stage 1
        with m.If(self.start):
            m.d.sync += [channels.eq(self.channels), wide.eq(self.wide), left.eq(self.pixels)]

        # 1. Words: 8 bytes of the beat at a time.  With `left == 0` the rest of the stream is dropped.
        place = Signal(2)
        at = Signal(2)
        word = Signal(64)
        word_end = Signal()
        need_word = Signal()
        word_taken = Signal()
        beat = self.beat.payload
        m.d.comb += [
            at.eq(Mux(beat.low, place, place | 2)),
            word.eq(beat.data.word_select(at, 64)),
            word_end.eq(Cat(at[0], at[1] | ~beat.high).all()),
        ]
        with m.If(left == 0):
            m.d.comb += self.beat.ready.eq(1)
            m.d.sync += place.eq(0)
        with m.Elif(self.beat.valid & word_taken):
            m.d.comb += self.beat.ready.eq(word_end)
            m.d.sync += place.eq(Mux(word_end, 0, at + 1))

        # 2. Lanes: eight consecutive bytes, or two pixels of three bytes in four lanes each; a single pixel
        # of
        # three 16-bit elements takes the first three of four lanes.
        carry = Signal(48, reset_less=True)
        carried = Signal(2)  # byte pairs
        six = Signal(48)
        three = Signal()
        lanes_valid = Signal()
        lanes = Signal(64, reset_less=True)
        lanes_pixels = Signal(4, reset_less=True)
        lanes_two = Signal(reset_less=True)
        group = Signal(4)  # pixels of one cycle
        now = Signal(4)
        step = Signal()
        moves = Signal()
        m.d.comb += three.eq(channels == 3)
        with m.Switch(carried):
            with m.Case(0):
                m.d.comb += six.eq(word)
            with m.Case(1):
                m.d.comb += six.eq(Cat(carry[:16], word))
            with m.Case(2):
                m.d.comb += six.eq(Cat(carry[:32], word))
            with m.Case(3):
                m.d.comb += six.eq(carry)
        m.d.comb += [
            group.eq(Mux(channels == 1, 8, Mux(channels == 2, 4, 2)) >> wide),
            now.eq(Mux(left < group, left, group)),
            # The last pixel may be complete in the carried bytes; then no word follows it.
            need_word.eq(~(three & ((carried == 3) | ((carried == 2) & (now == 1) & ~wide)))),
            moves.eq(step & (left != 0) & (self.beat.valid | ~need_word)),
            word_taken.eq(moves & need_word),
        ]
        with m.If(step):
            m.d.sync += lanes_valid.eq(moves)
        with m.If(moves):
            m.d.sync += [
                left.eq(left - now),
                lanes.eq(Mux(three, Mux(wide, six, Cat(six[:24], Const(0, 8), six[24:])), word)),
                lanes_pixels.eq(now),
                lanes_two.eq(now > (group >> 1)),
            ]
            with m.If(three):
                m.d.sync += carried.eq(carried + 1)
                with m.Switch(carried):
                    for pairs in range(3):
                        with m.Case(pairs):
                            m.d.sync += carry.eq(word[48 - 16 * pairs :])
        with m.If(self.start):
            m.d.sync += carried.eq(0)

        # 3. Multiply and add; 4. shift, round and saturate.  A lane that is off passes its byte unchanged.
        sums_valid = Signal()
        sums_pixels = Signal(4, reset_less=True)
        sums_two = Signal(reset_less=True)
        real_lanes = Signal(range(LANES + 1))  # the other lanes hold bytes beyond the end of the stream
        atoms = self.atoms
        m.d.comb += step.eq(~atoms.valid | atoms.ready)
        with m.Switch(channels):
            with m.Case(1):
                m.d.comb += real_lanes.eq(sums_pixels)
            with m.Case(2):
                m.d.comb += real_lanes.eq(sums_pixels << 1)
            with m.Default():
                m.d.comb += real_lanes.eq(sums_pixels << 2)
        out = []
        with m.If(step):
            m.d.sync += [sums_valid.eq(lanes_valid), atoms.valid.eq(sums_valid)]
            with m.If(lanes_valid):
                m.d.sync += [sums_pixels.eq(lanes_pixels), sums_two.eq(lanes_two)]
        for lane in range(LANES):
            scale, offset, shift, half, on = self._lane_settings(m, lane)
            x = Signal(signed(17), name=f"x_{lane}", init=IDLE)
            total = Signal(signed(34), name=f"total_{lane}", reset_less=True)
            kept = Signal(16, name=f"kept_{lane}", reset_less=True)
            result = Signal(16, name=f"result_{lane}", init=IDLE)
            sign = cfg.CVT_CON0.DATA_SIGN
            with m.If(step & lanes_valid):
                byte = lanes[8 * lane :][:8]
                m.d.comb += x.eq(Cat(byte, (byte[7] & sign).replicate(9)).as_signed())
                if lane < LANES // 2:
                    with m.If(wide):
                        word = lanes[16 * lane :][:16]
                        m.d.comb += x.eq(Cat(word, word[15] & sign).as_signed())
                m.d.sync += kept.eq(x)
                with m.If(cfg.CVT_CON0.CVT_TYPE):
                    m.d.sync += total.eq(wire(m, (x + offset) * scale))
                with m.Else():
                    m.d.sync += total.eq(wire(m, x * scale))
            with m.If(step & sums_valid):
                m.d.comb += result.eq(kept)
                with m.If(lane >= real_lanes):
                    m.d.comb += result.eq(0)
                with m.Elif(on):
                    rounded = shifted(m, str(lane), total, shift, half, cfg.CVT_CON0.ROUND_TYPE)
                    moved = Signal(signed(LONGEST_SHIFT + 3), name=f"moved_{lane}", init=IDLE)
                    m.d.comb += moved.eq(rounded + Mux(cfg.CVT_CON0.CVT_TYPE, 0, offset))
                    limits = [wire(m, limited(moved, bits)) for bits in (8, 16)]
                    m.d.comb += result.eq(Mux(wide, limits[1], limits[0]))
            out.append(result)
        with m.If(step & sums_valid):
            m.d.sync += [atoms.payload.two.eq(sums_two), atoms.payload.pixels.eq(sums_pixels)]
            self._pack(m, out, channels, wide)
        assertions.ports(m, platform, self)
        return m

    def _pack(self, m: Module, out: list[Signal], channels: Value, wide: Value) -> None:
        """Drive the atoms: the first elements of a pixel's room are its channels, the others are zero."""
        place = self.atoms.payload.data
        for is_wide, bits in ((0, 8), (1, 16)):
            with m.If(wide == is_wide):
                with m.Switch(channels):
                    for count, lanes, room in ((1, 1, 4), (2, 2, 8), (3, 4, 16), (4, 4, 16)):
                        parts = []
                        for first in range(0, LANES * 8 // bits, lanes):
                            pixel = Cat(*(element[:bits] for element in out[first : first + count]))
                            parts.append(Cat(pixel, Const(0, bits * (room - count))))
                        with m.Case(count):
                            m.d.sync += place.eq(Cat(*parts))

    def _lane_settings(self, m: Module, lane: int) -> tuple[Value, Value, Value, Value, Value]:
        """Converter settings of a lane, held from the start on: scale, offset, shift, half, on."""
        cfg = self.cfg
        scale = Signal(signed(16), name=f"scale_{lane}", reset_less=True)
        offset = Signal(signed(16), name=f"offset_{lane}", reset_less=True)
        shift = Signal(6, name=f"shift_{lane}", reset_less=True)
        half = Signal(LONGEST_SHIFT, name=f"half_{lane}", reset_less=True)
        on = Signal(name=f"on_{lane}", reset_less=True)
        integer = ~TypeOf(cfg.CONV_CON1.IN_PRECISION).is_float

        def load(channel: int) -> list:
            factor, added, by = factors_of(cfg, channel)
            return [
                scale.eq(factor),
                offset.eq(added),
                shift.eq(by),
                half.eq((Const(1, 1) << by) >> 1),
                on.eq(integer & ~cfg.CVT_CON0.CVT_BYPASS & cfg.CVT_CON5.PER_CHANNEL_CVT_EN[channel]),
            ]

        with m.If(self.start):
            with m.Switch(self.channels):
                with m.Case(1):
                    m.d.sync += load(0)
                with m.Case(2):
                    m.d.sync += load(lane % 2)
                with m.Default():
                    m.d.sync += load(lane % 4)
        return scale, offset, shift, half, on
