"""Pixel walk of the sequence controller: the slots of a convolution in order, with their places."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from rkcosim.rtl import assertions
from rkcosim.rtl.layouts import SlotStatus, StripeDone
from rkcosim.rtl.npu.csc_places import InputPlace, OperandPlace
from rkcosim.rtl.npu.csc_task import SLOTS, TASK
from rkcosim.rtl.npu.csc_walk import ChannelWalk, StripeWalk, TapWalk
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


class StripeBanks(wiring.Component):
    """Accumulator bank of the stripe that is walked; the two banks take turns.

    A bank is in use from its first slot until CORE has accepted its stripe.

    Members
    -------
    go : In(1)         : pulse, the task begins, with bank 0.
    begins : In(1)     : pulse, the first slot of a stripe is issued.
    ends : In(1)       : pulse, the last slot of a stripe is issued: the other bank is next.
    bank_free : In(2)  : level, CORE is not draining accumulator bank b.
    taken, taken_bank : In(1) : CORE accepts a stripe of this bank in this cycle.
    bank : Out(1)      : the bank.
    free : Out(1)      : a stripe can begin in it.
    """

    go: In(1)
    begins: In(1)
    ends: In(1)
    bank_free: In(2)
    taken: In(1)
    taken_bank: In(1)
    bank: Out(1)
    free: Out(1)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        used = Signal(2)
        m.d.comb += self.free.eq((self.bank_free & ~used).bit_select(self.bank, 1))
        with m.If(self.taken):
            m.d.sync += used.bit_select(self.taken_bank, 1).eq(0)
        with m.If(self.begins):
            m.d.sync += used.bit_select(self.bank, 1).eq(1)
        with m.If(self.ends):
            m.d.sync += self.bank.eq(~self.bank)
        with m.If(self.go):
            m.d.sync += self.bank.eq(0)
        return m


class PixelWalk(wiring.Component):
    """Issue the slots of all groups, stripes, channel groups and kernel taps, 16 per tile.

    Members
    -------
    cfg : In(config_signature("CNA"))
    task : In(TASK)
    go : In(1)             : pulse, the task begins.
    rows_ready : In(12)    : number of feature rows in CBUF.
    loaded : In(32)        : bytes of the weight stream that have been loaded into CBUF.
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
    loaded: In(32)
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
        task, issued, status = self.task, self.issued, self.status
        m.submodules.stripe = stripe = StripeWalk()
        m.submodules.tap = tap = TapWalk()
        m.submodules.channels = channels = ChannelWalk()
        m.submodules.banks = banks = StripeBanks()
        m.submodules.input = place = InputPlace()
        m.submodules.operand = operand = OperandPlace()
        wiring.connect(m, wiring.flipped(self.cfg), *(p.cfg for p in (stripe, tap, channels, operand)))
        wiring.connect(
            m, wiring.flipped(self.task), *(p.task for p in (stripe, tap, channels, place, operand))
        )
        running, started = Signal(), Signal()
        first_rows_here, first_weights_here = Signal(), Signal()
        slot = Signal(4)

        # Whether a slot can be issued.
        first_slot, first_tile = Signal(), Signal()
        real, rows_here, bank_here, issue = Signal(), Signal(), Signal(), Signal()
        tile_ends, stripe_ends, last_stripe = Signal(), Signal(), Signal()
        m.d.comb += [
            first_slot.eq(slot == 0),
            first_tile.eq(channels.first & tap.first),
            real.eq(slot < stripe.left),
            rows_here.eq(started & ~(real & place.inside & (place.y >= self.rows_ready))),
            bank_here.eq(~(first_slot & first_tile) | banks.free),
            issue.eq(running & rows_here & bank_here & (self.tile_here | ~first_slot)),
            tile_ends.eq(issue & (slot == SLOTS - 1)),
            stripe_ends.eq(tile_ends & tap.last & channels.last),
            last_stripe.eq(stripe.last & channels.last_group),
            self.running.eq(running),
            self.swap.eq(issue & first_slot),
        ]
        m.d.comb += [
            first_rows_here.eq(self.rows_ready >= task.first_rows),
            first_weights_here.eq(self.loaded >= task.first_weights),
        ]
        with m.If(running & first_rows_here & first_weights_here):
            m.d.sync += started.eq(1)
        with m.If(issue):
            m.d.sync += slot.eq(slot + 1)
        with m.If(stripe_ends & last_stripe):
            m.d.sync += running.eq(0)
        with m.If(self.go):
            m.d.sync += [running.eq(1), started.eq(0), slot.eq(0)]
        m.d.comb += [
            banks.begins.eq(self.swap & first_tile),
            banks.ends.eq(stripe_ends),
            banks.bank_free.eq(self.bank_free),
            banks.taken.eq(self.taken),
            banks.taken_bank.eq(self.taken_bank),
        ]

        # The loops: pixels of a stripe, taps, channel groups; then stripes and kernel groups.
        m.d.comb += [part.go.eq(self.go) for part in (stripe, tap, channels, banks)]
        m.d.comb += [
            stripe.step.eq(issue),
            stripe.tile_ends.eq(tile_ends),
            stripe.stripe_ends.eq(stripe_ends),
            tap.step.eq(tile_ends),
            channels.step.eq(tile_ends & tap.last),
            channels.last_stripe.eq(stripe.last),
            place.pixel.eq(stripe.pixel),
            place.row_offset.eq(tap.row_offset),
            place.column_offset.eq(tap.column_offset),
            operand.en.eq(issue & real & place.inside),
            operand.line.eq(stripe.line + tap.line_offset),
            operand.x.eq(place.x),
            operand.channel_group.eq(channels.channel_group),
            operand.slab.eq(channels.slab),
            operand.slab_start.eq(channels.slab_start),
            operand.live.eq(channels.live),
        ]

        # The slot that is issued.
        m.d.comb += [
            issued.valid.eq(issue & real),
            issued.inside.eq(place.inside & operand.exists),
            issued.pad.eq(~place.inside),
            issued.two.eq(operand.two),
            issued.swap.eq(first_slot),
            issued.first.eq(first_tile),
            issued.bank.eq(banks.bank),
            issued.slot.eq(slot),
            issued.entry.eq(operand.entry),
            issued.word.eq(operand.word),
            issued.entry2.eq(operand.entry2),
            issued.word2.eq(operand.word2),
            issued.live.eq(channels.live),
            issued.stored.eq(channels.stored),
            issued.ends.eq(stripe_ends),
            issued.done.bank.eq(banks.bank),
            issued.done.pixels_m1.eq(Mux(stripe.last, stripe.left - 1, SLOTS - 1)),
            issued.done.kernels.eq(Mux(task.depthwise, channels.live, channels.kernels)),
            issued.done.last.eq(last_stripe),
        ]

        # What the cycle was spent on.
        awaits_weights = Signal()  # before the first slot
        m.d.comb += awaits_weights.eq(~started & first_rows_here & ~first_weights_here)
        macs = Mux(task.depthwise, channels.stored, channels.stored * channels.kernels)
        m.d.comb += [
            status.slot_valid.eq(issue),
            status.slot_real.eq(issue & real),
            status.stall_feature.eq(running & ~rows_here & ~awaits_weights),
            status.stall_weight.eq(running & (awaits_weights | (rows_here & first_slot & ~self.tile_here))),
            status.stall_acc.eq(running & rows_here & (self.tile_here | ~first_slot) & ~bank_here),
            status.macs.eq(Mux(issue & real, macs, 0)),
            status.array_macs.eq(Mux(issue, task.group_kernels * task.group_channels, 0)),
        ]
        loops = {
            "stripe.last": stripe.last,
            "tap.first": tap.first,
            "tap.last": tap.last,
            "channels.first": channels.first,
            "channels.last": channels.last,
            "channels.last_group": channels.last_group,
        }
        steps = self.go | tile_ends
        assertions.stable(m, platform, loops, "PixelWalk", during=running, after=steps)
        for name, here, entry in (
            ("exists", operand.exists & operand.en, operand.entry),
            ("two", operand.two, operand.entry2),
        ):
            beyond = here & (entry >= task.feature_entries)
            text = f"PixelWalk.operand.{name}: the entry has no features"
            assertions.always(m, platform, ~beyond, text)
        early = issued.valid & place.inside & (place.y >= self.rows_ready)
        assertions.always(m, platform, ~early, "PixelWalk.issued: a slot reads a row that has not arrived")
        drained = self.bank_free.bit_select(banks.bank, 1)
        early = banks.begins & ~drained
        assertions.always(m, platform, ~early, "PixelWalk.issued: a stripe begins in a bank that is not free")
        return m
