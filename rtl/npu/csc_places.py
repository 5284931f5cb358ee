"""Places of the pixel walk: where a slot's operands are in the input, and in CBUF ([HW 4.5], [HW 4.6])."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from rkcosim.rtl.layouts import IDLE
from rkcosim.rtl.npu.cna_types import WIDE_GROUP
from rkcosim.rtl.npu.csc_task import LINE_BITS, TASK
from rkcosim.rtl.npu.csc_walk import OutputPixel
from rkcosim.rtl.regfile import config_signature


class InputPlace(wiring.Component):
    """Row and column of the input for an output pixel and a kernel tap; combinational.

    Members
    -------
    task : In(TASK)
    pixel : In(OutputPixel)
    row_offset, column_offset : In(signed(12)) : offset of the tap (`TapWalk`).
    inside : Out(1) : the place is a pixel of the input: neither padding, nor between the pixels of a
        transposed convolution.
    y, x : Out(11)  : its row and column; any value if it is not.
    """

    task: In(TASK)
    pixel: In(OutputPixel)
    row_offset: In(signed(12))
    column_offset: In(signed(12))
    inside: Out(1)
    y: Out(11)
    x: Out(11)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        task, pixel = self.task, self.pixel
        # Place in the input with inserted pixels.
        wide_y, wide_x = Signal(signed(26)), Signal(signed(16))
        within, between = Signal(), Signal()
        m.d.comb += [
            wide_y.eq(pixel.row_in + self.row_offset),
            wide_x.eq(pixel.column_in + self.column_offset),
            within.eq((wide_y >= 0) & (wide_y <= task.last_y) & (wide_x >= 0) & (wide_x <= task.last_x)),
            self.inside.eq(within & ~between),
        ]
        with m.If((task.spread_y | task.spread_x) != 0):
            ones = Const(7, 3)
            m.d.comb += [
                self.y.eq(wide_y[:14] >> task.spread_y),
                self.x.eq(wide_x[:14] >> task.spread_x),
                between.eq((wide_y[:3] & ~(ones << task.spread_y)[:3]).any()),
            ]
            with m.If((wide_x[:3] & ~(ones << task.spread_x)[:3]).any()):
                m.d.comb += between.eq(1)
        with m.Else():
            m.d.comb += [self.y.eq(wide_y), self.x.eq(wide_x)]
        return m


class OperandPlace(wiring.Component):
    """Entry and 4-byte word of CBUF for a pixel of the input and a channel group; combinational.

    Members
    -------
    cfg : In(config_signature("CNA"))
    task : In(TASK)
    en : In(1)              : the other inputs are a slot that reads CBUF; the outputs are used only then.
    line : In(42)           : row pitch of CBUF times the row of the input with its inserted pixels.
    x : In(11)              : column of the input.
    channel_group : In(13)  : channel group of the tile.
    slab, slab_start : In(13), In(24) : slab of the tile, and its first entry in the row.
    live : In(7)            : channels of the tile that are used.
    entry, word : Out(13), Out(4) : the entry and the word in it.
    exists : Out(1)         : features are loaded into this entry; without it the operands are zeros.
    two : Out(1)            : channels from 32 on are at `word2` of `entry2` (depthwise 16-bit types).
    entry2, word2 : Out(13), Out(4)
    """

    cfg: In(config_signature("CNA"))
    task: In(TASK)
    en: In(1)
    line: In(LINE_BITS)
    x: In(11)
    channel_group: In(13)
    slab: In(13)
    slab_start: In(24)
    live: In(7)
    entry: Out(13, init=IDLE)
    word: Out(4)
    exists: Out(1)
    two: Out(1)
    entry2: Out(13)
    word2: Out(4)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        task, x = self.task, self.x
        line, entry = Signal(39, init=IDLE), Signal(40, init=IDLE)
        m.d.comb += self.exists.eq(entry < task.feature_entries)
        with m.If(self.en):
            m.d.comb += [line.eq(self.line >> task.spread_y), self.entry.eq(entry)]
        # First atom of the tile in its slab: tiles of one and two atoms share a slab.
        column_atom = Signal(2)
        with m.If(~task.depthwise):
            with m.Switch(task.tile_atoms):
                with m.Case(0):
                    m.d.comb += column_atom.eq(self.channel_group)
                with m.Case(1):
                    m.d.comb += column_atom.eq(self.channel_group << 1)
        with m.If(self.en & task.argb):
            place = Signal(40, init=IDLE)
            m.d.comb += place.eq(line + x)
            with m.Switch(task.pixel_shift):
                for shift in range(4):
                    with m.Case(shift):
                        m.d.comb += [entry.eq(place >> (4 - shift)), self.word.eq(place << shift)]
        with m.Elif(self.en):
            within_slab, shared = self._in_slab(self.slab)
            m.d.comb += [
                entry.eq(line + self.slab_start + within_slab),
                self.word.eq(Cat(Const(0, 2), shared | column_atom)),
            ]
        with m.If(self.en & task.two_blocks & ~task.argb):
            within_slab, shared = self._in_slab(self.slab + 1)
            entry2 = Signal(40, init=IDLE)
            m.d.comb += [
                entry2.eq(line + self.slab_start + self.cfg.DATA_SIZE0.DATAIN_WIDTH + within_slab),
                self.two.eq((self.live > WIDE_GROUP // 2) & (entry2 < task.feature_entries)),
                self.entry2.eq(entry2),
                self.word2.eq(Cat(Const(0, 2), shared)),
            ]
        return m

    def _in_slab(self, slab: Value) -> tuple[Value, Value]:
        """Entry of pixel `x` relative to the first entry of the slab, and its first atom in that entry."""
        task, x = self.task, self.x
        rest = slab == task.full_slabs
        one, two = rest & (task.rest_atoms == 1), rest & (task.rest_atoms == 2)
        entry = Mux(one, x >> 2, Mux(two, x >> 1, x))
        return entry, Mux(one, x[:2], Mux(two, Cat(Const(0, 1), x[0]), 0))
