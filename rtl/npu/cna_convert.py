"""Input converter for features of int8 in atoms [HW 4.3]."""

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from rkcosim.rtl import assertions
from rkcosim.rtl.layouts import AXI_BITS, IDLE
from rkcosim.rtl.npu.arith import held, wire
from rkcosim.rtl.npu.cna_argb import factors_of, limited, shifted
from rkcosim.rtl.npu.cna_fetch import AtomBeat
from rkcosim.rtl.regfile import config_signature

SETS = 4
"""Sets of factors; channel c takes set c mod 4."""


class AtomConverter(wiring.Component):
    """Convert the elements of beats, 32 of int8 per cycle, in two stages.

    Members
    -------
    cfg : In(config_signature("CNA"))
    start : In(1)                    : pulse, the settings are stored.
    beat : In(stream of AtomBeat)    : two atoms of 16 channels each.
    result : Out(stream of AtomBeat) : the converted atoms.
    """

    cfg: In(config_signature("CNA"))
    start: In(1)
    beat: In(stream.Signature(AtomBeat))
    result: Out(stream.Signature(AtomBeat))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        con0, start, result = self.cfg.CVT_CON0, self.start, self.result
        enabled = held(m, start, self.cfg.CVT_CON5.PER_CHANNEL_CVT_EN, 16)
        sign, first, half_up = (
            held(m, start, field, 1, name)
            for field, name in (
                (con0.DATA_SIGN, "sign"),
                (con0.CVT_TYPE, "add_first"),
                (con0.ROUND_TYPE, "half_up"),
            )
        )
        sets = []
        for number in range(SETS):
            scale, offset, shift = factors_of(self.cfg, number)
            sets.append(
                (
                    held(m, start, scale, signed(16), f"scale{number}"),
                    held(m, start, offset, signed(16), f"offset{number}"),
                    held(m, start, shift, 6, f"shift{number}"),
                    held(m, start, (1 << shift) >> 1, 40, f"half{number}"),
                )
            )

        # 1. Multiply and add; 2. shift, round and saturate.
        summed, step = Signal(), Signal()
        kept = Signal(AtomBeat, reset_less=True)
        m.d.comb += [step.eq(~result.valid | result.ready), self.beat.ready.eq(step)]
        with m.If(step):
            m.d.sync += [summed.eq(self.beat.valid), result.valid.eq(summed)]
        enters, leaves = Signal(), Signal()
        m.d.comb += [enters.eq(step & self.beat.valid), leaves.eq(step & summed)]
        with m.If(enters):
            m.d.sync += kept.eq(self.beat.payload)
        with m.If(leaves):
            m.d.sync += [result.payload.low.eq(kept.low), result.payload.high.eq(kept.high)]
        out = []
        for lane in range(AXI_BITS // 8):
            scale, offset, shift, half = sets[lane % SETS]
            x = Signal(signed(9), name=f"x_{lane}", init=IDLE)
            total = Signal(signed(34), name=f"total_{lane}", reset_less=True)
            element = Signal(8, name=f"element_{lane}", init=IDLE)
            with m.If(enters):
                byte = self.beat.payload.data.word_select(lane, 8)
                m.d.comb += x.eq(Cat(byte, byte[7] & sign).as_signed())
                m.d.sync += total.eq(wire(m, (x + Mux(first, offset, 0)) * scale))
            with m.If(leaves):
                m.d.comb += element.eq(kept.data.word_select(lane, 8))
                with m.If(enabled[lane % 16]):
                    rounded = shifted(m, str(lane), total, shift, half, half_up)
                    moved = Signal(signed(43), name=f"moved_{lane}", init=IDLE)
                    m.d.comb += [
                        moved.eq(rounded + Mux(first, 0, offset)),
                        element.eq(limited(moved, 8)),
                    ]
            out.append(element)
        with m.If(leaves):
            m.d.sync += result.payload.data.eq(Cat(*out))
        with m.If(start):
            m.d.sync += [summed.eq(0), result.valid.eq(0)]
        assertions.ports(m, platform, self, withdrawn=start)
        return m
