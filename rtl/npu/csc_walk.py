"""Loops of the pixel walk: pixels of a stripe, kernel taps, and groups of channels and kernels.

Each Component is one level of the loop. Its registers advance with a pulse and are valid in every cycle in
between; `go` sets them to the beginning of the task.
"""

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from rkcosim.rtl.npu.cna_types import WIDE_GROUP, at_most
from rkcosim.rtl.npu.csc_task import LINE_BITS, SLOTS, TASK
from rkcosim.rtl.regfile import config_signature


class OutputPixel(data.Struct):
    """An output pixel: its column, and its row and column times the stride, before padding is subtracted."""

    column: 11
    row_in: 25
    column_in: 14


class StripeWalk(wiring.Component):
    """Output pixel of each slot. Every tile of a stripe has the same 16 pixels, so it starts at the first.

    Members
    -------
    cfg : In(config_signature("CNA"))
    task : In(TASK)
    go : In(1)           : pulse, the task begins.
    step : In(1)         : pulse, a slot is issued.
    tile_ends : In(1)    : with `step`: the slot is the last one of its tile.
    stripe_ends : In(1)  : with `tile_ends`: the tile is the last one of its stripe.
    pixel : Out(OutputPixel) : the pixel of the slot.
    line : Out(42)       : row pitch of CBUF times `pixel.row_in`.
    left : Out(22)       : pixels of the group from the first one of this stripe on.
    last : Out(1)        : this stripe is the last one of its group.
    """

    cfg: In(config_signature("CNA"))
    task: In(TASK)
    go: In(1)
    step: In(1)
    tile_ends: In(1)
    stripe_ends: In(1)
    pixel: Out(OutputPixel)
    line: Out(LINE_BITS)
    left: Out(22)
    last: Out(1)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        task, cfg = self.task, self.cfg
        # Of this slot, of the first slot of the stripe, and of the next slot.
        pixel, origin = Signal(OutputPixel, reset_less=True), Signal(OutputPixel, reset_less=True)
        line, origin_line = Signal(LINE_BITS, reset_less=True), Signal(LINE_BITS, reset_less=True)
        following, following_line = Signal(OutputPixel), Signal(LINE_BITS)
        left = Signal(22, reset_less=True)
        m.d.comb += [
            self.pixel.eq(pixel),
            self.line.eq(line),
            self.left.eq(left),
            self.last.eq(left <= SLOTS),
            following.eq(pixel),
            following_line.eq(line),
        ]
        with m.If(pixel.column == cfg.DATA_SIZE2.DATAOUT_WIDTH - 1):
            m.d.comb += [
                following.column.eq(0),
                following.column_in.eq(0),
                following.row_in.eq(pixel.row_in + task.stride_y),
                following_line.eq(line + task.line_stride),
            ]
        with m.Else():
            m.d.comb += [
                following.column.eq(pixel.column + 1),
                following.column_in.eq(pixel.column_in + task.stride_x),
            ]
        with m.If(self.step):
            m.d.sync += [pixel.eq(following), line.eq(following_line)]
        with m.If(self.tile_ends):
            m.d.sync += [pixel.eq(origin), line.eq(origin_line)]
        with m.If(self.stripe_ends):
            m.d.sync += [
                origin.eq(following),
                pixel.eq(following),
                origin_line.eq(following_line),
                line.eq(following_line),
                left.eq(left - SLOTS),
            ]
        with m.If(self.go | (self.stripe_ends & self.last)):
            m.d.sync += [
                origin.eq(0),
                pixel.eq(0),
                origin_line.eq(0),
                line.eq(0),
                left.eq(cfg.DATA_SIZE3.DATAOUT_ATOMICS),
            ]
        return m


class TapWalk(wiring.Component):
    """Kernel tap of each tile, by columns and then rows, and its offset in the input.

    Members
    -------
    cfg : In(config_signature("CNA"))
    task : In(TASK)
    go : In(1)           : pulse, the task begins.
    step : In(1)         : pulse, the last slot of a tile is issued.
    row_offset, column_offset : Out(signed(12)) : offset of the tap from the output pixel times the stride,
        in rows and columns of the input with its inserted pixels; negative within the padding.
    line_offset : Out(42) : row pitch of CBUF times `row_offset`, modulo 2^42.
    first, last : Out(1) : the tap is the first one, the last one.
    """

    cfg: In(config_signature("CNA"))
    task: In(TASK)
    go: In(1)
    step: In(1)
    row_offset: Out(signed(12))
    column_offset: Out(signed(12))
    line_offset: Out(LINE_BITS)
    first: Out(1)
    last: Out(1)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        task, kernel, pads = self.task, self.cfg.WEIGHT_SIZE2, self.cfg.PAD_CON0
        row, column = Signal(5, reset_less=True), Signal(5, reset_less=True)
        row_offset, column_offset = Signal(signed(12), reset_less=True), Signal(signed(12), reset_less=True)
        line_offset = Signal(LINE_BITS, reset_less=True)
        last_row, last_column = Signal(), Signal()
        m.d.comb += [
            last_row.eq(row == kernel.WEIGHT_HEIGHT - 1),
            last_column.eq(column == kernel.WEIGHT_WIDTH - 1),
            self.first.eq((row == 0) & (column == 0)),
            self.last.eq(last_row & last_column),
            self.row_offset.eq(row_offset),
            self.column_offset.eq(column_offset),
            self.line_offset.eq(line_offset),
        ]
        with m.If(self.step):
            m.d.sync += [column.eq(column + 1), column_offset.eq(column_offset + task.step_x)]
        with m.If(self.go | (self.step & last_column)):
            m.d.sync += [column.eq(0), column_offset.eq(-pads.PAD_LEFT)]
        with m.If(self.step & last_column):
            m.d.sync += [
                row.eq(row + 1),
                row_offset.eq(row_offset + task.step_y),
                line_offset.eq(line_offset + task.line_step),
            ]
        with m.If(self.go | (self.step & self.last)):
            m.d.sync += [row.eq(0), row_offset.eq(-pads.PAD_TOP), line_offset.eq(-task.line_pad)]
        return m


class ChannelWalk(wiring.Component):
    """Channel group and kernel group of each tile, and the slab of CBUF with its channels.

    A slab has the entries of four atoms of each pixel of a row.

    Members
    -------
    cfg : In(config_signature("CNA"))
    task : In(TASK)
    go : In(1)            : pulse, the task begins.
    step : In(1)          : pulse, the last slot of the last tap is issued.
    last_stripe : In(1)   : the stripe is the last one of its kernel group.
    channel_group, group : Out(13), Out(11) : numbers of the channel group in the kernel group, and of the
        kernel group; in a depthwise layer `group` is a group of 64 channels.
    first, last, last_group : Out(1) : the channel group is the first one, the last one; the kernel group is
        the last one.
    slab, slab_start : Out(13), Out(24) : number of the slab, and its first entry in the row.
    live : Out(7)         : channels of the tile that are used.
    stored : Out(7)       : those of them that are in CBUF; fewer than `live` only in ARGB mode.
    kernels : Out(7)      : kernels of the group.
    """

    cfg: In(config_signature("CNA"))
    task: In(TASK)
    go: In(1)
    step: In(1)
    last_stripe: In(1)
    channel_group: Out(13)
    group: Out(11)
    first: Out(1)
    last: Out(1)
    last_group: Out(1)
    slab: Out(13)
    slab_start: Out(24)
    live: Out(7)
    stored: Out(7)
    kernels: Out(7)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        task, width, channels = (
            self.task,
            self.cfg.DATA_SIZE0.DATAIN_WIDTH,
            self.cfg.DATA_SIZE1.DATAIN_CHANNEL,
        )
        channel_group, group = Signal(13, reset_less=True), Signal(11, reset_less=True)
        slab, slab_start = Signal(13, reset_less=True), Signal(24, reset_less=True)
        channels_left, kernels_left = Signal(16, reset_less=True), Signal(14, reset_less=True)
        again, next_group, ends_slab = Signal(), Signal(), Signal()
        m.d.comb += [
            self.channel_group.eq(channel_group),
            self.group.eq(group),
            self.first.eq(channel_group == 0),
            self.last.eq(channel_group == task.channel_groups - 1),
            self.last_group.eq(group == task.groups - 1),
            self.slab.eq(slab),
            self.slab_start.eq(slab_start),
            self.live.eq(at_most(channels_left, Mux(task.depthwise, WIDE_GROUP, task.group_channels))),
            self.kernels.eq(at_most(kernels_left, task.group_kernels)),
            again.eq(self.step & self.last),
            next_group.eq(again & self.last_stripe),
            # Tiles of one atom share a slab in fours, those of two atoms in pairs.
            ends_slab.eq(
                Mux(task.tile_atoms[1], 1, channel_group[0] & (task.tile_atoms[0] | channel_group[1]))
            ),
        ]
        with m.If(task.argb):
            first_channels = Mux(task.depthwise, group, channel_group) == 0
            m.d.comb += self.stored.eq(Mux(first_channels, at_most(self.live, task.image_channels), 0))
        with m.Else():
            m.d.comb += self.stored.eq(self.live)

        with m.If(self.step & ~self.last):
            m.d.sync += [
                channel_group.eq(channel_group + 1),
                channels_left.eq(channels_left - task.group_channels),
            ]
            with m.If(ends_slab):
                m.d.sync += [slab.eq(slab + 1), slab_start.eq(slab_start + width)]
        with m.If(next_group):
            m.d.sync += [group.eq(group + 1), kernels_left.eq(kernels_left - task.group_kernels)]
            with m.If(task.depthwise):  # the next 64 channels
                m.d.sync += [
                    slab.eq(Mux(task.two_blocks, slab + 2, slab + 1)),
                    slab_start.eq(slab_start + (width << task.two_blocks)),
                    channels_left.eq(channels_left - WIDE_GROUP),
                ]
        with m.If(self.go | again):
            m.d.sync += channel_group.eq(0)
        with m.If(self.go | (again & ~task.depthwise)):  # the same channels again
            m.d.sync += [slab.eq(0), slab_start.eq(0), channels_left.eq(channels)]
        with m.If(self.go):
            m.d.sync += [group.eq(0), kernels_left.eq(self.cfg.WEIGHT_SIZE2.WEIGHT_KERNELS)]
        return m
