"""Pixel walk of the sequence controller: the slots of a convolution in order, with their places."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from rkcosim.rtl.layouts import IDLE, SlotStatus, StripeDone
from rkcosim.rtl.npu.cna_types import WIDE_GROUP, at_most
from rkcosim.rtl.npu.csc_task import LINE_BITS, SLOTS, TASK
from rkcosim.rtl.regfile import config_signature


class Slot(data.Struct):
    """A slot of a stripe: one pixel at one kernel tap and channel group.

    Members
    -------
    valid : the slot holds a pixel (empty slots do not).
    inside, pad : the operands are in CBUF; they are pad values, outside of the input or between the pixels
        of a transposed convolution. If both are clear, they are zeros in place of entries without features.
    entry, word : place of the operands in CBUF: the entry, and the 4-byte word in it.
    two, entry2, word2 : channels from 32 on are at `word2` of `entry2` (depthwise 16-bit types).
    swap, first : first slot of a tile; slot of the stripe's first tile.
    bank, slot : accumulator bank, and number of the slot in the stripe.
    live, stored : number of channels that are used; number of those that are in CBUF.
    ends : last slot of the stripe that `done` describes, also if it is empty.
    """

    valid: 1
    inside: 1
    pad: 1
    two: 1
    swap: 1
    first: 1
    bank: 1
    slot: 4
    entry: 13
    word: 4
    entry2: 13
    word2: 4
    live: 7
    stored: 7
    ends: 1
    done: StripeDone


class PixelWalk(wiring.Component):
    """Issue the slots of all groups, stripes, channel groups and kernel taps, 16 per tile.

    Members
    -------
    cfg : In(config_signature("CNA"))
    task : In(TASK)
    go : In(1)             : pulse, the task begins.
    rows_ready : In(12)    : number of feature rows in CBUF.
    tile_here : In(1)      : the next tile will be in the shadow registers when a slot issued now needs it.
    bank_free : In(2)      : level, CORE is not draining accumulator bank b.
    taken, taken_bank : In(1) : CORE accepts a stripe of this bank in this cycle.
    swap : Out(1)          : a slot is issued that makes the next tile active.
    issued : Out(Slot)     : the slot issued in this cycle.
    status : Out(SlotStatus())
    running : Out(1)       : slots of the task are still to be issued.
    """

    cfg: In(config_signature("CNA"))
    task: In(TASK)
    go: In(1)
    rows_ready: In(12)
    tile_here: In(1)
    bank_free: In(2)
    taken: In(1)
    taken_bank: In(1)
    swap: Out(1)
    issued: Out(Slot)
    status: Out(SlotStatus())
    running: Out(1)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        task, cfg, kernel, size = self.task, self.cfg, self.cfg.WEIGHT_SIZE2, self.cfg.DATA_SIZE0
        pad_top, pad_left = cfg.PAD_CON0.PAD_TOP, cfg.PAD_CON0.PAD_LEFT
        running, started = Signal(), Signal()
        slot, bank, bank_used = Signal(4), Signal(), Signal(2)
        # Output pixel: its column, and its row and column times the stride; `origin` is that of slot 0.
        at = {"column": 11, "row_in": 25, "column_in": 14}
        pixel = Signal(data.StructLayout(at), reset_less=True)
        origin = Signal(data.StructLayout(at), reset_less=True)
        following = Signal(data.StructLayout(at))
        # Row pitch of CBUF times `row_in`, and times `row_offset`.
        pixel_line, origin_line = Signal(LINE_BITS, reset_less=True), Signal(LINE_BITS, reset_less=True)
        following_line, tap_line = Signal(LINE_BITS), Signal(LINE_BITS, reset_less=True)
        # Kernel tap, and its offset in the input.
        row, column = Signal(5, reset_less=True), Signal(5, reset_less=True)
        row_offset, column_offset = Signal(signed(12), reset_less=True), Signal(signed(12), reset_less=True)
        channel_group, group = Signal(13, reset_less=True), Signal(11, reset_less=True)
        slab, slab_start = Signal(13, reset_less=True), Signal(24, reset_less=True)
        pixels_left = Signal(22, reset_less=True)
        kernels_left, channels_left = Signal(14, reset_less=True), Signal(16, reset_less=True)

        # 1. Whether a slot can be issued.
        first_slot, first_tile = Signal(), Signal()
        # Place in the input with inserted pixels, and row and column of the stored input for it.
        wide_y, wide_x = Signal(signed(26)), Signal(signed(16))
        y, x = Signal(11), Signal(11)
        within, between, inside = Signal(), Signal(), Signal()
        real, rows_here, bank_here, issue = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            first_slot.eq(slot == 0),
            first_tile.eq((channel_group == 0) & (row == 0) & (column == 0)),
            wide_y.eq(pixel.row_in + row_offset),
            wide_x.eq(pixel.column_in + column_offset),
            real.eq(slot < pixels_left),
            within.eq((wide_y >= 0) & (wide_y <= task.last_y) & (wide_x >= 0) & (wide_x <= task.last_x)),
            inside.eq(within & ~between),
            rows_here.eq(started & ~(real & inside & (y >= self.rows_ready))),
            bank_here.eq(~(first_slot & first_tile) | (self.bank_free & ~bank_used).bit_select(bank, 1)),
            issue.eq(running & rows_here & bank_here & (self.tile_here | ~first_slot)),
            self.swap.eq(issue & first_slot),
            self.status.slot_valid.eq(issue),
            self.status.slot_real.eq(issue & real),
            self.status.stall_feature.eq(running & ~rows_here),
            self.status.stall_weight.eq(running & rows_here & first_slot & ~self.tile_here),
            self.status.stall_acc.eq(running & rows_here & (self.tile_here | ~first_slot) & ~bank_here),
        ]
        with m.If(running & (self.rows_ready >= task.first_rows)):
            m.d.sync += started.eq(1)

        with m.If((task.spread_y | task.spread_x) != 0):
            ones = Const(7, 3)
            m.d.comb += [
                y.eq(wide_y[:14] >> task.spread_y),
                x.eq(wide_x[:14] >> task.spread_x),
                between.eq((wide_y[:3] & ~(ones << task.spread_y)[:3]).any()),
            ]
            with m.If((wide_x[:3] & ~(ones << task.spread_x)[:3]).any()):
                m.d.comb += between.eq(1)
        with m.Else():
            m.d.comb += [y.eq(wide_y), x.eq(wide_x)]

        # 2. Place of the operands: entry and 4-byte word ([HW 4.5], [HW 4.6]).
        entry, line, at_entry = Signal(40, init=IDLE), Signal(39, init=IDLE), Signal(13, init=IDLE)
        word, column_atom = Signal(4), Signal(2)
        placing = Signal()
        m.d.comb += placing.eq(issue & real & inside)
        with m.If(placing):
            m.d.comb += [line.eq((pixel_line + tap_line)[:LINE_BITS] >> task.spread_y), at_entry.eq(entry)]
        # First atom of the tile in its slab: tiles of one and two atoms share a slab.
        with m.If(~task.depthwise):
            with m.Switch(task.tile_atoms):
                with m.Case(0):
                    m.d.comb += column_atom.eq(channel_group)
                with m.Case(1):
                    m.d.comb += column_atom.eq(channel_group << 1)
        with m.If(placing & task.argb):
            place = Signal(40, init=IDLE)
            m.d.comb += place.eq(line + x)
            with m.Switch(task.pixel_shift):
                for shift in range(4):
                    with m.Case(shift):
                        m.d.comb += [entry.eq(place >> (4 - shift)), word.eq(place << shift)]
        with m.Elif(placing):
            within_slab, shared = self._in_slab(slab, x)
            m.d.comb += [
                entry.eq(line + slab_start + within_slab),
                word.eq(Cat(Const(0, 2), shared | column_atom)),
            ]

        # 3. Channels of the tile that are used; in ARGB mode fewer of them come from CBUF.
        live, stored = Signal(7), Signal(7)
        m.d.comb += live.eq(at_most(channels_left, Mux(task.depthwise, WIDE_GROUP, task.group_channels)))
        with m.If(task.argb):
            first_channels = Mux(task.depthwise, group, channel_group) == 0
            m.d.comb += stored.eq(Mux(first_channels, at_most(live, task.image_channels), 0))
        with m.Else():
            m.d.comb += stored.eq(live)
        with m.If(placing & task.two_blocks & ~task.argb):
            within_slab, shared = self._in_slab(slab + 1, x)
            entry2 = Signal(40, init=IDLE)
            m.d.comb += [
                entry2.eq(line + slab_start + size.DATAIN_WIDTH + within_slab),
                self.issued.two.eq((live > WIDE_GROUP // 2) & (entry2 < task.feature_entries)),
                self.issued.entry2.eq(entry2),
                self.issued.word2.eq(Cat(Const(0, 2), shared)),
            ]

        # 4. Next slot, tile, stripe, group.
        last_tap = (row == kernel.WEIGHT_HEIGHT - 1) & (column == kernel.WEIGHT_WIDTH - 1)
        last_tile, last_stripe, last_group = Signal(), Signal(), Signal()
        m.d.comb += [
            last_tile.eq(last_tap & (channel_group == task.channel_groups - 1)),
            last_stripe.eq(pixels_left <= SLOTS),
            last_group.eq(group == task.groups - 1),
            following.eq(pixel),
            following_line.eq(pixel_line),
        ]
        with m.If(pixel.column == cfg.DATA_SIZE2.DATAOUT_WIDTH - 1):
            m.d.comb += [
                following.column.eq(0),
                following.column_in.eq(0),
                following.row_in.eq(pixel.row_in + task.stride_y),
                following_line.eq(pixel_line + task.line_stride),
            ]
        with m.Else():
            m.d.comb += [
                following.column.eq(pixel.column + 1),
                following.column_in.eq(pixel.column_in + task.stride_x),
            ]
        with m.If(issue):
            m.d.sync += [slot.eq(slot + 1), pixel.eq(following), pixel_line.eq(following_line)]
        with m.If(issue & (slot == SLOTS - 1)):
            m.d.sync += [
                pixel.eq(origin),
                pixel_line.eq(origin_line),
                column.eq(column + 1),
                column_offset.eq(column_offset + task.step_x),
            ]
            with m.If(column == kernel.WEIGHT_WIDTH - 1):
                m.d.sync += [
                    column.eq(0),
                    column_offset.eq(-pad_left),
                    row.eq(row + 1),
                    row_offset.eq(row_offset + task.step_y),
                    tap_line.eq(tap_line + task.line_step),
                ]
            with m.If(last_tap):
                m.d.sync += [
                    row.eq(0),
                    row_offset.eq(-pad_top),
                    tap_line.eq(-task.line_pad),
                    channel_group.eq(channel_group + 1),
                    channels_left.eq(channels_left - task.group_channels),
                ]
                ends_slab = Mux(
                    task.tile_atoms[1], 1, channel_group[0] & (task.tile_atoms[0] | channel_group[1])
                )
                with m.If(ends_slab):
                    m.d.sync += [slab.eq(slab + 1), slab_start.eq(slab_start + size.DATAIN_WIDTH)]
            with m.If(last_tile):
                m.d.sync += [
                    channel_group.eq(0),
                    origin.eq(following),
                    pixel.eq(following),
                    Cat(origin_line, pixel_line).eq(following_line.replicate(2)),
                    pixels_left.eq(pixels_left - SLOTS),
                    bank.eq(~bank),
                ]
                # The same channels again, or the next 64 in a depthwise layer.
                with m.If(~task.depthwise):
                    m.d.sync += [
                        slab.eq(0),
                        slab_start.eq(0),
                        channels_left.eq(cfg.DATA_SIZE1.DATAIN_CHANNEL),
                    ]
                with m.Elif(last_stripe):
                    m.d.sync += [
                        slab.eq(Mux(task.two_blocks, slab + 2, slab + 1)),
                        slab_start.eq(slab_start + (size.DATAIN_WIDTH << task.two_blocks)),
                        channels_left.eq(channels_left - WIDE_GROUP),
                    ]
                with m.Else():
                    m.d.sync += [
                        slab.eq(slab),
                        slab_start.eq(slab_start),
                        channels_left.eq(channels_left),
                    ]
                with m.If(last_stripe):
                    m.d.sync += [
                        Cat(origin, pixel, origin_line, pixel_line).eq(0),
                        pixels_left.eq(cfg.DATA_SIZE3.DATAOUT_ATOMICS),
                        group.eq(group + 1),
                        kernels_left.eq(kernels_left - task.group_kernels),
                        running.eq(~last_group),
                    ]
        with m.If(self.go):
            m.d.sync += [
                running.eq(1),
                started.eq(0),
                Cat(origin_line, pixel_line).eq(0),
                Cat(slot, bank, pixel, origin, row, column, channel_group, group, slab, slab_start).eq(0),
                row_offset.eq(-pad_top),
                tap_line.eq(-task.line_pad),
                column_offset.eq(-pad_left),
                pixels_left.eq(cfg.DATA_SIZE3.DATAOUT_ATOMICS),
                kernels_left.eq(kernel.WEIGHT_KERNELS),
                channels_left.eq(cfg.DATA_SIZE1.DATAIN_CHANNEL),
            ]

        issued = self.issued
        m.d.comb += [
            issued.valid.eq(issue & real),
            issued.inside.eq(inside & (entry < task.feature_entries)),
            issued.pad.eq(~inside),
            issued.swap.eq(first_slot),
            issued.first.eq(first_tile),
            issued.bank.eq(bank),
            issued.slot.eq(slot),
            issued.entry.eq(at_entry),
            issued.word.eq(word),
            issued.live.eq(live),
            issued.stored.eq(stored),
            issued.ends.eq(issue & (slot == SLOTS - 1) & last_tile),
            issued.done.bank.eq(bank),
            issued.done.pixels_m1.eq(Mux(last_stripe, pixels_left - 1, SLOTS - 1)),
            issued.done.kernels.eq(Mux(task.depthwise, live, at_most(kernels_left, task.group_kernels))),
            issued.done.last.eq(last_stripe & last_group),
        ]
        kernels = at_most(kernels_left, task.group_kernels)
        m.d.comb += [
            self.running.eq(running),
            self.status.macs.eq(Mux(issue & real, Mux(task.depthwise, stored, stored * kernels), 0)),
            self.status.array_macs.eq(Mux(issue, task.group_kernels * task.group_channels, 0)),
        ]
        # A bank is in use from its first slot until CORE has accepted its stripe.
        with m.If(self.taken):
            m.d.sync += bank_used.bit_select(self.taken_bank, 1).eq(0)
        with m.If(self.swap & first_tile):
            m.d.sync += bank_used.bit_select(bank, 1).eq(1)
        return m

    def _in_slab(self, slab: Value, x: Value) -> tuple[Value, Value]:
        """Entry of pixel `x` relative to the first entry of the slab, and its first atom in that entry."""
        rest = slab == self.task.full_slabs
        one, two = rest & (self.task.rest_atoms == 1), rest & (self.task.rest_atoms == 2)
        entry = Mux(one, x >> 2, Mux(two, x >> 1, x))
        return entry, Mux(one, x[:2], Mux(two, Cat(Const(0, 1), x[0]), 0))
