"""Sequence controller: walks a convolution and feeds the array cell from CBUF (docs/hardware.md 3).

Two walks run side by side.  The weight walk reads the next tile into the cell's shadow registers, 64
bytes a cycle, while the pixel walk issues the 16 slots of the current one; both paths take the same
number of cycles to the cell, so a tile's first weights may leave in the cycle of the slot that swaps
the tile before it.
"""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from rtl.config import NpuConfig
from rtl.layouts import CellIn, DiagnosticCode, DiagnosticPort, StripeDone
from rtl.npu.array import CELL_LATENCY
from rtl.npu.cna_check import Check, Checker
from rtl.regfile import config_signature
from rtl.regs import registers

DEPTHWISE = 3
"""CONV_MODE of a depthwise convolution (HARDWARE 2.2)."""

SLOTS = 16
"""Pixels of a stripe, and the cycles a tile takes at least (DESIGN 4.3)."""

ISSUE_LATENCY = 2
"""Cycles from the issue of a slot to its operands at the cell."""

STRIPE_LATENCY = ISSUE_LATENCY + CELL_LATENCY
"""Cycles from the issue of a stripe's last slot to its entry for CORE: from then on it may be drained."""

_GROUP = 32
_WIDE_GROUP = 64


def _at_most(value: Value, limit: int) -> Value:
    return Mux(value > limit, limit, value)


class SequenceController(wiring.Component):
    """Issue the operands of every pixel, tile after tile, 16 cycles each.

    Members
    -------
    cfg : In(config_signature("CNA"))
    start : In(1)         : pulse; `cfg` is stable from here to `done`.
    done : Out(1)         : pulse, CORE has taken the last stripe.
    rows_ready : In(12)   : feature rows that are in CBUF; from the cycle after `start` on.
    loaded : In(32)       : bytes of the weight stream that have come; from the cycle after `start` on.
    released : Out(32)    : bytes of it that are not needed any more; zero from the cycle after `start`.
    f_en0, f_entry0, f_en1, f_entry1 : Out(1), Out(13) : feature read of one or two CBUF entries.
    f_data : In(1024)     : what was read, in the next cycle, entry 0 in the low half.
    w_en, w_entry0, w_entry1, w_column : Out(1), Out(13), Out(13), Out(2) : weight read of 64 bytes
        from 16-byte column `w_column` of entry 0 on, running on into entry 1.
    w_data : In(512)      : what was read, in the next cycle.
    cell : Out(CellIn)
    stripe : Out(stream of StripeDone) : a stripe whose accumulators are complete.
    bank_free : In(2)     : level, accumulator bank b is not being drained.  Goes low in the cycle after
        CORE has taken a stripe of that bank.
    diag : Out(DiagnosticPort())
    stall_feature, stall_weight, stall_acc : Out(1) : no slot in this cycle, for want of input rows, of a
        weight tile, of an accumulator bank; at most one is high.
    slot_valid : Out(1)   : a slot is issued in this cycle, also an empty one of a partial stripe.
    slot_real : Out(1)    : a pixel is issued in this cycle.
    """

    def __init__(self, cfg: NpuConfig) -> None:
        self._cfg = cfg
        super().__init__(
            {
                "cfg": In(config_signature("CNA")),
                "start": In(1),
                "done": Out(1),
                "rows_ready": In(12),
                "loaded": In(32),
                "released": Out(32),
                "f_en0": Out(1),
                "f_entry0": Out(13),
                "f_en1": Out(1),
                "f_entry1": Out(13),
                "f_data": In(1024),
                "w_en": Out(1),
                "w_entry0": Out(13),
                "w_entry1": Out(13),
                "w_column": Out(2),
                "w_data": In(512),
                "cell": Out(CellIn),
                "stripe": Out(stream.Signature(StripeDone)),
                "bank_free": In(2),
                "diag": Out(DiagnosticPort()),
                "stall_feature": Out(1),
                "stall_weight": Out(1),
                "stall_acc": Out(1),
                "slot_valid": Out(1),
                "slot_real": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.check = check = Checker(self.cfg, self._checks())
        m.d.comb += check.start.eq(self.start)
        wiring.connect(m, check.diag, wiring.flipped(self.diag))

        # What one walk tells the other, and the end.
        self._go = Signal()  # both walks begin after this cycle
        self._tile_here = Signal()  # all chunks of the next tile are issued, no slot has swapped it in yet
        self._swap = Signal()  # a slot is issued that makes the shadow tile active
        self._setup(m)
        weights = self._walk_weights(m)
        pixels = self._walk_pixels(m)
        self._feed_cell(m, weights, pixels)
        last_taken = self._hand_over(m, pixels)

        finished = Signal()
        with m.If(last_taken):
            m.d.sync += finished.eq(1)
        m.d.comb += self.done.eq(finished & ~check.busy)
        with m.If(self.done):
            m.d.sync += finished.eq(0)
        return m

    # ------------------------------------------------------------------ constants of the task

    def _setup(self, m: Module) -> None:
        """Registers that follow from the configuration; two cycles after `start` they are there."""
        cfg = self.cfg
        con1, con3, size, kernel = cfg.CONV_CON1, cfg.CONV_CON3, cfg.DATA_SIZE0, cfg.WEIGHT_SIZE2
        channels = cfg.DATA_SIZE1.DATAIN_CHANNEL
        pixels = cfg.DATA_SIZE3.DATAOUT_ATOMICS

        def register(name: str, shape: object) -> Signal:
            signal = Signal(shape, name=name, reset_less=True)
            setattr(self, f"_{name}", signal)
            return signal

        depthwise = register("depthwise", 1)
        argb = register("argb", 1)
        pixel_shift = register("pixel_shift", 2)  # log2 of the words of a pixel in ARGB mode
        image_channels = register("image_channels", 3)
        channel_groups = register("channel_groups", 11)
        groups = register("groups", 10)
        atoms = register("atoms", 13)
        full_slabs = register("full_slabs", 11)
        rest_atoms = register("rest_atoms", 2)
        stripes = register("stripes", 18)
        stride_y, stride_x = register("stride_y", 3), register("stride_x", 3)
        step_y, step_x = register("step_y", 6), register("step_x", 6)
        first_rows = register("first_rows", 11)
        ring_first = register("ring_first", 13)
        ring_entries = register("ring_entries", 13)
        pad_bytes = register("pad_bytes", 512)
        grains = cfg.CONV_CON2.FEATURE_GRAINS
        banks = cfg.CBUF_CON0.WEIGHT_BANK
        pad = cfg.PAD_CON1.PAD_VALUE
        wide = con1.CONV_MODE == DEPTHWISE
        all_atoms = (channels + 15)[4:]
        is_argb = con1.ARGB_IN[2:] == 2

        phase = Signal(2)
        m.d.sync += phase.eq(Cat(self.start, phase[0]))
        with m.If(phase[0]):
            m.d.sync += [
                depthwise.eq(wide),
                argb.eq(is_argb),
                image_channels.eq(con1.ARGB_IN[:2] + 1),
                pixel_shift.eq(Mux(con1.ARGB_IN[1], 2, con1.ARGB_IN[0])),
                atoms.eq(all_atoms),
                channel_groups.eq(Mux(wide, 1, (all_atoms + 1) >> 1)),
                groups.eq(Mux(wide, (all_atoms + 3) >> 2, (kernel.WEIGHT_KERNELS + _GROUP - 1) >> 5)),
                full_slabs.eq((all_atoms + 1) >> 2),
                rest_atoms.eq(Mux(all_atoms[:2] == 3, 0, all_atoms[:2])),
                stripes.eq((pixels + SLOTS - 1) >> 4),
                stride_y.eq(Mux(con3.CONV_Y_STRIDE == 0, 1, con3.CONV_Y_STRIDE)),
                stride_x.eq(Mux(con3.CONV_X_STRIDE == 0, 1, con3.CONV_X_STRIDE)),
                step_y.eq(con3.ATROUS_Y_DILATION + 1),
                step_x.eq(con3.ATROUS_X_DILATION + 1),
                first_rows.eq(
                    Mux(grains > size.DATAIN_HEIGHT, size.DATAIN_HEIGHT, Mux(grains == 0, 1, grains))
                ),
                ring_first.eq((self._cfg.cbuf_banks - banks) * self._cfg.bank_entries),
                ring_entries.eq(banks * self._cfg.bank_entries),
                # Depthwise: byte 1 for the odd channels among the first 32 (HARDWARE 2.2).
                pad_bytes.eq(
                    Cat(Cat(pad[:8], Mux(wide, pad[8:16], pad[:8])).replicate(16), pad[:8].replicate(32))
                ),
            ]
        nothing = (
            (pixels == 0)
            | (cfg.DATA_SIZE2.DATAOUT_WIDTH == 0)
            | (size.DATAIN_WIDTH == 0)
            | (size.DATAIN_HEIGHT == 0)
            | (channels == 0)
            | (kernel.WEIGHT_WIDTH == 0)
            | (kernel.WEIGHT_HEIGHT == 0)
            | (~wide & (kernel.WEIGHT_KERNELS == 0))
        )
        # A task without work never ends; the diagnostics say why.
        m.d.comb += self._go.eq(phase[1] & ~nothing)

    def _checks(self) -> list[Check]:
        cfg, C, R = self.cfg, DiagnosticCode, registers()["CNA"]
        kernel, con1, con2, con3 = cfg.WEIGHT_SIZE2, cfg.CONV_CON1, cfg.CONV_CON2, cfg.CONV_CON3
        no_kernel = (kernel.WEIGHT_WIDTH == 0) | (kernel.WEIGHT_HEIGHT == 0)
        no_kernels = (con1.CONV_MODE != DEPTHWISE) & (kernel.WEIGHT_KERNELS == 0)
        return [
            Check(cfg.DATA_SIZE3.DATAOUT_ATOMICS == 0, C.EMPTY_SIZE, R["DATA_SIZE3"]),
            Check(cfg.DATA_SIZE2.DATAOUT_WIDTH == 0, C.EMPTY_SIZE, R["DATA_SIZE2"]),
            Check(no_kernel | no_kernels, C.EMPTY_SIZE, R["WEIGHT_SIZE2"]),
            Check((con3.CONV_X_STRIDE == 0) | (con3.CONV_Y_STRIDE == 0), C.EMPTY_SIZE, R["CONV_CON3"]),
            # Only int8 is built; the loader reports the codes that mean nothing at all.
            Check((con1.IN_PRECISION != 0) | (con1.PROC_PRECISION != 0), C.RESERVED_MODE, R["CONV_CON1"]),
            Check(con2.CSC_WO_EN | con2.CSC_DO_EN, C.RESERVED_MODE, R["CONV_CON2"]),
            Check(cfg.DATA_SIZE3.SURF_MODE[1], C.RESERVED_MODE, R["DATA_SIZE3"]),
        ]

    # ------------------------------------------------------------------ weights

    def _walk_weights(self, m: Module) -> Value:
        """Read tile after tile into the shadow registers; returns the chunk issued in this cycle."""
        kernel = self.cfg.WEIGHT_SIZE2
        taps = Signal(10, reset_less=True)
        running, reading = Signal(), Signal()
        # Place of a tile: `place` in the ring and `begin` in the stream, both in atoms.
        place, begin = Signal(16, reset_less=True), Signal(29, reset_less=True)
        group_place, group_begin = Signal(16, reset_less=True), Signal(29, reset_less=True)
        chunk_place = Signal(16, reset_less=True)
        chunk_index = Signal(4, reset_less=True)
        tap, channel_group = Signal(10, reset_less=True), Signal(11, reset_less=True)
        stripe, group = Signal(18, reset_less=True), Signal(10, reset_less=True)
        kernels_left, atoms_left = Signal(14, reset_less=True), Signal(13, reset_less=True)

        full = self._tile_here

        # 1. Sizes of the tile.
        tile_kernels, tile_atoms, wide_rows = Signal(6), Signal(7), Signal()
        m.d.comb += [
            tile_kernels.eq(_at_most(kernels_left, _GROUP)),
            wide_rows.eq(atoms_left > 1),
            tile_atoms.eq(
                Mux(self._depthwise, 4, Mux(wide_rows, Cat(Const(0, 1), tile_kernels), tile_kernels))
            ),
        ]
        after, chunks = Signal(29), Signal(5)
        ring = Cat(Const(0, 2), self._ring_entries)
        m.d.comb += [after.eq(begin + tile_atoms), chunks.eq((tile_atoms + 3) >> 2)]

        def wrapped(position: Value) -> Value:
            return Mux(position >= ring, position - ring, position)

        # 2. One chunk a cycle, once the whole tile is there and its registers are free.
        first, issue, last = Signal(), Signal(), Signal()
        chunk = Signal(data.StructLayout({"valid": 1, "place": 16, "next": 16, "index": 4, "stride": 2}))
        m.d.comb += [
            first.eq(running & ~reading & (~full | self._swap) & (self.loaded[4:] >= after)),
            issue.eq(first | reading),
            chunk.valid.eq(issue),
            chunk.index.eq(Mux(reading, chunk_index, 0)),
            chunk.place.eq(Mux(reading, chunk_place, place)),
            chunk.next.eq(wrapped(chunk.place + 4)),
            chunk.stride.eq(Mux(self._depthwise, 2, wide_rows)),
            last.eq(chunk.index == chunks - 1),
        ]
        with m.If(self._swap):
            m.d.sync += full.eq(0)
        with m.If(issue):
            m.d.sync += [
                reading.eq(~last),
                chunk_index.eq(chunk.index + 1),
                chunk_place.eq(chunk.next),
            ]

        # Released one cycle later: by then the last chunk has been read.
        used = Signal(29)
        m.d.sync += self.released.eq(Cat(Const(0, 4), used))
        with m.If(self.start):
            m.d.sync += [used.eq(0), self.released.eq(0)]

        # 3. Next tile: tap, channel group, stripe (which begins the group again), group.
        tile_place = wrapped(place + tile_atoms)
        last_group = group == self._groups - 1
        with m.If(issue & last):
            m.d.sync += [full.eq(1), place.eq(tile_place), begin.eq(after), tap.eq(tap + 1)]
            with m.If(stripe == self._stripes - 1):
                m.d.sync += used.eq(after)
            with m.If(tap == taps - 1):
                m.d.sync += [tap.eq(0), channel_group.eq(channel_group + 1), atoms_left.eq(atoms_left - 2)]
                with m.If(channel_group == self._channel_groups - 1):
                    m.d.sync += [channel_group.eq(0), atoms_left.eq(self._atoms), stripe.eq(stripe + 1)]
                    with m.If(stripe != self._stripes - 1):
                        m.d.sync += [place.eq(group_place), begin.eq(group_begin)]
                    with m.Else():
                        m.d.sync += [
                            stripe.eq(0),
                            group.eq(group + 1),
                            kernels_left.eq(kernels_left - _GROUP),
                            group_place.eq(tile_place),
                            group_begin.eq(after),
                            running.eq(~last_group),
                        ]
        with m.If(self._go):
            m.d.sync += [
                running.eq(1),
                reading.eq(0),
                full.eq(0),
                taps.eq(kernel.WEIGHT_WIDTH * kernel.WEIGHT_HEIGHT),
                Cat(place, begin, group_place, group_begin).eq(0),
                Cat(tap, channel_group, stripe, group).eq(0),
                kernels_left.eq(kernel.WEIGHT_KERNELS),
                atoms_left.eq(self._atoms),
            ]
        return chunk

    # ------------------------------------------------------------------ pixels

    def _walk_pixels(self, m: Module) -> Value:
        """Issue slot after slot; returns the slot issued in this cycle."""
        cfg, kernel, size = self.cfg, self.cfg.WEIGHT_SIZE2, self.cfg.DATA_SIZE0
        pad_top, pad_left = cfg.PAD_CON0.PAD_TOP, cfg.PAD_CON0.PAD_LEFT
        running, started = Signal(), Signal()
        slot, bank = Signal(4), Signal()
        # Output pixel: column, and its row and column times the stride; and the same at slot 0.
        at = {"column": 11, "row_in": 26, "column_in": 14}
        pixel = Signal(data.StructLayout(at), reset_less=True)
        origin = Signal(data.StructLayout(at), reset_less=True)
        following = Signal(data.StructLayout(at))
        # Kernel tap, and its offset in the input.
        row, column = Signal(5, reset_less=True), Signal(5, reset_less=True)
        row_offset, column_offset = Signal(signed(12), reset_less=True), Signal(signed(12), reset_less=True)
        channel_group, group = Signal(11, reset_less=True), Signal(10, reset_less=True)
        slab, slab_start = Signal(11, reset_less=True), Signal(22, reset_less=True)
        pixels_left = Signal(22, reset_less=True)
        kernels_left, channels_left = Signal(14, reset_less=True), Signal(16, reset_less=True)

        # 1. May a slot be issued?
        self._bank_used = Signal(2)  # filled, and not yet taken by CORE
        first_slot, first_tile = Signal(), Signal()
        y, x = Signal(signed(27)), Signal(signed(16))
        inside, real, rows_here, bank_here, issue = Signal(), Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            first_slot.eq(slot == 0),
            first_tile.eq((channel_group == 0) & (row == 0) & (column == 0)),
            y.eq(pixel.row_in + row_offset),
            x.eq(pixel.column_in + column_offset),
            real.eq(slot < pixels_left),
            inside.eq((y >= 0) & (y < size.DATAIN_HEIGHT) & (x >= 0) & (x < size.DATAIN_WIDTH)),
            rows_here.eq(started & ~(real & inside & (y[:11] >= self.rows_ready))),
            bank_here.eq(
                ~(first_slot & first_tile) | (self.bank_free & ~self._bank_used).bit_select(bank, 1)
            ),
            issue.eq(running & rows_here & bank_here & (self._tile_here | ~first_slot)),
            self._swap.eq(issue & first_slot),
            self.slot_valid.eq(issue),
            self.slot_real.eq(issue & real),
            self.stall_feature.eq(running & ~rows_here),
            self.stall_weight.eq(running & rows_here & first_slot & ~self._tile_here),
            self.stall_acc.eq(running & rows_here & (self._tile_here | ~first_slot) & ~bank_here),
        ]
        with m.If(running & (self.rows_ready >= self._first_rows)):
            m.d.sync += started.eq(1)

        # 2. Where the operands are: entry and 4-byte word (docs/hardware.md 2.2, 2.3).
        entry, line = Signal(40), Signal(39)
        word = Signal(4)
        rest = ~self._argb & (slab == self._full_slabs)
        m.d.comb += line.eq(y[:11] * Mux(self._argb, cfg.DMA_CON1.LINE_STRIDE, cfg.CBUF_CON1.DATA_ENTRIES))
        with m.If(self._argb):
            place = Signal(40)
            m.d.comb += place.eq(line + x[:11])
            with m.Switch(self._pixel_shift):
                for shift in range(3):
                    with m.Case(shift):
                        m.d.comb += [entry.eq(place >> (4 - shift)), word.eq(place << shift)]
        with m.Elif(rest & (self._rest_atoms == 1)):
            m.d.comb += [entry.eq(line + slab_start + x[2:11]), word.eq(Cat(Const(0, 2), x[:2]))]
        with m.Elif(rest):
            m.d.comb += [entry.eq(line + slab_start + x[1:11]), word.eq(Cat(Const(0, 3), x[0]))]
        with m.Else():
            m.d.comb += [entry.eq(line + slab_start + x[:11]), word.eq(Cat(Const(0, 3), channel_group[0]))]

        # 3. Live channels of the tile; in ARGB mode fewer of them come from CBUF.
        live, stored = Signal(7), Signal(7)
        m.d.comb += live.eq(_at_most(channels_left, Mux(self._depthwise, _WIDE_GROUP, _GROUP)))
        with m.If(self._argb):
            m.d.comb += stored.eq(Mux(channel_group == 0, _at_most(live, self._image_channels), 0))
        with m.Else():
            m.d.comb += stored.eq(live)

        # 4. Next slot, tile, stripe, group.
        last_tap = (row == kernel.WEIGHT_HEIGHT - 1) & (column == kernel.WEIGHT_WIDTH - 1)
        last_tile, last_stripe, last_group = Signal(), Signal(), Signal()
        m.d.comb += [
            last_tile.eq(last_tap & (channel_group == self._channel_groups - 1)),
            last_stripe.eq(pixels_left <= SLOTS),
            last_group.eq(group == self._groups - 1),
            following.eq(pixel),
        ]
        with m.If(pixel.column == cfg.DATA_SIZE2.DATAOUT_WIDTH - 1):
            m.d.comb += [
                following.column.eq(0),
                following.column_in.eq(0),
                following.row_in.eq(pixel.row_in + self._stride_y),
            ]
        with m.Else():
            m.d.comb += [
                following.column.eq(pixel.column + 1),
                following.column_in.eq(pixel.column_in + self._stride_x),
            ]
        with m.If(issue):
            m.d.sync += [slot.eq(slot + 1), pixel.eq(following)]
        with m.If(issue & (slot == SLOTS - 1)):
            m.d.sync += [
                pixel.eq(origin),
                column.eq(column + 1),
                column_offset.eq(column_offset + self._step_x),
            ]
            with m.If(column == kernel.WEIGHT_WIDTH - 1):
                m.d.sync += [
                    column.eq(0),
                    column_offset.eq(-pad_left),
                    row.eq(row + 1),
                    row_offset.eq(row_offset + self._step_y),
                ]
            with m.If(last_tap):
                m.d.sync += [
                    row.eq(0),
                    row_offset.eq(-pad_top),
                    channel_group.eq(channel_group + 1),
                    channels_left.eq(channels_left - _GROUP),
                ]
                with m.If(channel_group[0]):
                    m.d.sync += [slab.eq(slab + 1), slab_start.eq(slab_start + size.DATAIN_WIDTH)]
            with m.If(last_tile):
                m.d.sync += [
                    channel_group.eq(0),
                    origin.eq(following),
                    pixel.eq(following),
                    pixels_left.eq(pixels_left - SLOTS),
                    bank.eq(~bank),
                ]
                # The same channels again, or the next 64 of a depthwise layer.
                with m.If(~self._depthwise):
                    m.d.sync += [
                        slab.eq(0),
                        slab_start.eq(0),
                        channels_left.eq(cfg.DATA_SIZE1.DATAIN_CHANNEL),
                    ]
                with m.Elif(last_stripe):
                    m.d.sync += [
                        slab.eq(slab + 1),
                        slab_start.eq(slab_start + size.DATAIN_WIDTH),
                        channels_left.eq(channels_left - _WIDE_GROUP),
                    ]
                with m.Else():
                    m.d.sync += channels_left.eq(channels_left)
                with m.If(last_stripe):
                    m.d.sync += [
                        Cat(origin, pixel).eq(0),
                        pixels_left.eq(cfg.DATA_SIZE3.DATAOUT_ATOMICS),
                        group.eq(group + 1),
                        kernels_left.eq(kernels_left - _GROUP),
                        running.eq(~last_group),
                    ]
        with m.If(self._go):
            m.d.sync += [
                running.eq(1),
                started.eq(0),
                Cat(slot, bank, pixel, origin, row, column, channel_group, group, slab, slab_start).eq(0),
                row_offset.eq(-pad_top),
                column_offset.eq(-pad_left),
                pixels_left.eq(cfg.DATA_SIZE3.DATAOUT_ATOMICS),
                kernels_left.eq(kernel.WEIGHT_KERNELS),
                channels_left.eq(cfg.DATA_SIZE1.DATAIN_CHANNEL),
            ]

        issued = Signal(
            data.StructLayout(
                {
                    "valid": 1,  # a pixel
                    "inside": 1,  # its operands are in CBUF
                    "swap": 1,
                    "first": 1,
                    "bank": 1,
                    "slot": 4,
                    "entry": 13,
                    "word": 4,
                    "live": 7,
                    "stored": 7,
                    "ends": 1,  # the last slot of a stripe, which `done` describes
                    "done": StripeDone,
                }
            )
        )
        m.d.comb += [
            issued.valid.eq(issue & real),
            issued.inside.eq(inside),
            issued.swap.eq(first_slot),
            issued.first.eq(first_tile),
            issued.bank.eq(bank),
            issued.slot.eq(slot),
            issued.entry.eq(entry % self._cfg.cbuf_entries),
            issued.word.eq(word),
            issued.live.eq(live),
            issued.stored.eq(stored),
            issued.ends.eq(issue & (slot == SLOTS - 1) & last_tile),
            issued.done.bank.eq(bank),
            issued.done.pixels_m1.eq(Mux(last_stripe, pixels_left - 1, SLOTS - 1)),
            issued.done.kernels.eq(Mux(self._depthwise, live, _at_most(kernels_left, _GROUP))),
            issued.done.last.eq(last_stripe & last_group),
        ]
        with m.If(self._swap & first_tile):
            m.d.sync += self._bank_used.bit_select(bank, 1).eq(1)
        return issued

    # ------------------------------------------------------------------ to the cell, to CORE

    def _feed_cell(self, m: Module, chunk: Value, issued: Value) -> None:
        """CBUF reads in the cycle after the issue, the cell's inputs in the one after that."""
        cell = self.cell
        m.d.comb += cell.depthwise.eq(self._depthwise)

        # 1. Addresses.
        w_tag, w_late = Signal(chunk.shape()), Signal(chunk.shape())
        m.d.sync += [w_tag.valid.eq(chunk.valid), w_late.valid.eq(w_tag.valid)]
        with m.If(chunk.valid):
            m.d.sync += [
                w_tag.index.eq(chunk.index),
                w_tag.stride.eq(chunk.stride),
                self.w_entry0.eq(self._ring_first + chunk.place[2:]),
                self.w_entry1.eq(self._ring_first + chunk.next[2:]),
                self.w_column.eq(chunk.place[:2]),
            ]
        m.d.comb += self.w_en.eq(w_tag.valid)
        with m.If(w_tag.valid):
            m.d.sync += [w_late.index.eq(w_tag.index), w_late.stride.eq(w_tag.stride)]
        tag = Signal(issued.shape(), reset_less=True)
        valid, late_valid = Signal(), Signal()
        m.d.sync += [valid.eq(issued.valid), late_valid.eq(valid)]
        with m.If(issued.valid):
            m.d.sync += tag.eq(issued)
        m.d.comb += [self.f_en0.eq(valid & tag.inside), self.f_entry0.eq(tag.entry)]

        # 2. Masks change only with a tile.
        late = Signal(issued.shape(), reset_less=True)
        mask, pads = Signal(512, reset_less=True), Signal(512, reset_less=True)
        absent, absent_stored = Signal(7), Signal(7)
        m.d.comb += [absent.eq(_WIDE_GROUP - tag.live), absent_stored.eq(_WIDE_GROUP - tag.stored)]
        with m.If(valid):
            m.d.sync += late.eq(tag)
            with m.If(tag.swap):
                ones = Const((1 << 512) - 1, 512)
                m.d.sync += [
                    mask.eq(ones >> Cat(Const(0, 3), absent_stored)),
                    pads.eq((ones >> Cat(Const(0, 3), absent)) & self._pad_bytes),
                ]

        # 3. Operands: the atoms of this pixel to the front, then masked, or the pad value.
        stored = self.f_data[:512]
        atom = [stored[128 * n : 128 * n + 128] for n in range(4)]
        moved = Signal(512)
        with m.If(self._argb):
            m.d.comb += [
                moved[:32].eq(stored.word_select(late.word, 32)),
            ]
        with m.Else():
            with m.Switch(late.word[2:]):
                for column in range(4):
                    with m.Case(column):
                        m.d.comb += moved.eq(Cat(atom[column], atom[column | 1], atom[2], atom[3]))
        m.d.comb += [
            cell.w_valid.eq(w_late.valid),
            cell.w_index.eq(w_late.index),
            cell.w_stride.eq(w_late.stride),
            cell.w_data.eq(self.w_data),
            cell.f_valid.eq(late_valid),
            cell.f_swap.eq(late_valid & late.swap),
            cell.f_first.eq(late.first),
            cell.f_bank.eq(late.bank),
            cell.f_slot.eq(late.slot),
            cell.f_data.eq(Mux(late.inside, moved & mask, pads)),
        ]

    def _hand_over(self, m: Module, issued: Value) -> Value:
        """Queue finished stripes for CORE; returns a pulse when the task's last one is taken."""
        entries = [Signal(StripeDone, name=f"stripe_{bank}", reset_less=True) for bank in range(2)]
        ready = Signal(2)
        head = Signal()
        # A stripe's entry waits until its last operand has gone through the cell.
        delay = Signal(STRIPE_LATENCY - 1)
        delay_bank = Signal(STRIPE_LATENCY - 1, reset_less=True)
        m.d.sync += [delay.eq(Cat(issued.ends, delay)), delay_bank.eq(Cat(issued.bank, delay_bank))]
        for bank in range(2):
            with m.If(issued.ends & (issued.bank == bank)):
                m.d.sync += entries[bank].eq(issued.done)
        with m.If(self._go):
            m.d.sync += head.eq(0)
        taken = self.stripe.valid & self.stripe.ready
        m.d.comb += [
            self.stripe.valid.eq(ready.bit_select(head, 1)),
            self.stripe.payload.eq(Mux(head, entries[1], entries[0])),
        ]
        with m.If(taken):
            m.d.sync += [
                head.eq(~head),
                ready.bit_select(head, 1).eq(0),
                self._bank_used.bit_select(head, 1).eq(0),
            ]
        with m.If(delay[-1]):
            m.d.sync += ready.bit_select(delay_bank[-1], 1).eq(1)
        return taken & self.stripe.payload.last
