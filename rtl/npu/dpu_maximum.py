"""The maximum over the channels of each pixel, which the DPU writes as one row of numbers [HW 7.16]."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from rkcosim.rtl import assertions
from rkcosim.rtl.layouts import IDLE, LANES
from rkcosim.rtl.npu.arith import held, wire
from rkcosim.rtl.npu.dpu_frame import PipeOut
from rkcosim.rtl.npu.dpu_modes import reduces
from rkcosim.rtl.regfile import config_signature
from rkcosim.spec.types import STRIPE

BITS = 16
"""Bits of an element."""


def _turned(bits: Value) -> Value:
    """The bits of an fp16 number as a signed number of the same order [HW 3.5], and back."""
    return Cat(bits[: BITS - 1] ^ bits[BITS - 1].replicate(BITS - 1), bits[BITS - 1])


class MaximumRow(wiring.Component):
    """Pass octets on, or in a task that reduces collect the maxima of its pixels and pass them on at its end.

    The maxima of up to 128 pixels fill the atoms of one stripe: pixel p is element p mod 8 of atom p div 8,
    which the writer takes for pixels of a cube of eight channels. The elements behind the last one are 0.

    Members
    -------
    cfg : registers of the DPU.
    start : a task starts.
    source : converted elements.
    result : the same elements, or those of the row.
    """

    cfg: In(config_signature("DPU"))
    start: In(1)
    source: In(stream.Signature(PipeOut))
    result: Out(stream.Signature(PipeOut))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.row = row = Memory(shape=data.ArrayLayout(BITS, LANES), depth=STRIPE, init=[])
        source, result, tag = self.source, self.result, self.source.payload.tag
        on = held(m, self.start, reduces(self.cfg))
        last = held(m, self.start, self.cfg.DATA_CUBE_WIDTH.WIDTH[:7])  # pixel

        # 1. The maximum of an octet.
        opening, stripe = Signal(), Signal(3)  # the first group of channels; number of the stripe
        best, pixel, first = Signal(BITS, reset_less=True), Signal(7, reset_less=True), Signal()
        taken, ends, emits = Signal(), Signal(), Signal()
        take = Signal()
        m.d.comb += take.eq(on & source.valid & source.ready)
        m.d.sync += [taken.eq(take), ends.eq(take & tag.task_last)]
        with m.If(take):
            found = [_turned(lane[:BITS]).as_signed() for lane in source.payload.data]
            while len(found) > 1:
                level = []
                for low, high in zip(found[::2], found[1::2], strict=True):
                    larger = Signal(BITS, init=IDLE)
                    m.d.comb += larger.eq(Mux(high > low, high, low))
                    level.append(larger.as_signed())
                found = level
            m.d.sync += [
                best.eq(found[0]),
                pixel.eq(Cat(tag.slot, stripe)),
                first.eq(opening & (tag.octet == 0)),
            ]
            with m.If(tag.stripe_last):
                m.d.sync += stripe.eq(stripe + 1)
            with m.If(tag.group_last):
                m.d.sync += [stripe.eq(0), opening.eq(0)]

        # 2. The maximum of the pixel so far.
        read, write = row.read_port(domain="comb"), row.write_port()
        place, lane = Signal(4), pixel[:3]
        before = Signal(BITS, init=IDLE)
        m.d.comb += [read.addr.eq(Mux(emits, place, pixel[3:])), write.addr.eq(pixel[3:])]
        with m.If(taken):
            m.d.comb += [before.eq(Value.cast(read.data).word_select(lane, BITS)), write.en.eq(1)]
            larger = wire(m, Mux(first | (best.as_signed() > before.as_signed()), best, before), BITS)
            for number in range(LANES):
                kept = Value.cast(read.data[number])
                m.d.comb += Value.cast(write.data[number]).eq(Mux(lane == number, larger, kept))

        # 3. The row, once the last octet is in it.
        with m.If(ends):
            m.d.sync += emits.eq(1)
        with m.If(on):
            m.d.comb += [source.ready.eq(~emits & ~ends), result.valid.eq(emits)]
            with m.If(emits):
                final, out = Signal(), result.payload
                m.d.comb += [
                    final.eq(place == last[3:]),
                    out.tag.slot.eq(place),
                    out.tag.live.eq(LANES),
                    out.tag.stripe_last.eq(final),
                    out.tag.group_last.eq(final),
                    out.tag.task_last.eq(final),
                ]
                for number in range(LANES):
                    with m.If(~final | (number <= last[:3])):
                        m.d.comb += out.data[number].eq(_turned(Value.cast(read.data[number])))
                with m.If(result.ready):
                    m.d.sync += [place.eq(place + 1), emits.eq(~final)]
        with m.Else():
            m.d.comb += [
                source.ready.eq(result.ready),
                result.valid.eq(source.valid),
                result.payload.eq(source.payload),
            ]
        with m.If(self.start):
            m.d.sync += [opening.eq(1), stripe.eq(0), place.eq(0), emits.eq(0)]
        assertions.ports(m, platform, self)
        return m
