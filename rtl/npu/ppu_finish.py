"""The PPU's last step: average by reciprocals with the silicon's tie rule, saturation to int8."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from rtl.layouts import PpuAtom
from rtl.npu.ppu_windows import LANES, V_BITS

_STEP = 8
"""Lanes a cycle: an output atom takes LANES / _STEP cycles."""


class PpuFinish(wiring.Component):
    """Turn window results into int8 atoms (docs/hardware.md 6.2, 6.3).

    Members
    -------
    i : In(stream of 16 x 27 bits)   : window maxima, minima or sums.
    o : Out(stream of PpuAtom)
    average : In(1), recip_width, recip_height : In(17), kernel_width, kernel_height : In(5)
        static while atoms are under way.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "i": In(stream.Signature(LANES * V_BITS)),
                "o": Out(stream.Signature(PpuAtom)),
                "average": In(1),
                "recip_width": In(17),
                "recip_height": In(17),
                "kernel_width": In(5),
                "kernel_height": In(5),
            }
        )

    def elaborate(self, platform) -> Module:
        m = Module()
        busy = Signal()
        held = Signal(LANES * V_BITS, reset_less=True)
        step = Signal(range(LANES // _STEP))

        # Static facts of the task.
        taps = Signal(9)
        exact = Signal()
        powers = [Const(1 << n, 5) for n in range(5)]
        m.d.comb += [
            taps.eq(self.kernel_width * self.kernel_height),
            exact.eq(
                Cat(*(self.kernel_width == p for p in powers)).any()
                & Cat(*(self.kernel_height == p for p in powers)).any()
            ),
        ]

        valid = [Signal(name=f"stage{n}") for n in range(3)]
        full = Signal()
        go = Signal()
        m.d.comb += go.eq(~full | self.o.ready)
        feed = Signal()
        last = Signal()
        m.d.comb += [
            feed.eq(busy & go),
            last.eq(feed & (step == LANES // _STEP - 1)),
            self.i.ready.eq(~busy | last),
        ]
        with m.If(feed):
            m.d.sync += [step.eq(step + 1), held.eq(held[_STEP * V_BITS :])]
        with m.If(self.i.ready):
            m.d.sync += busy.eq(self.i.valid)
            with m.If(self.i.valid):
                m.d.sync += [held.eq(self.i.payload), step.eq(0)]
        with m.If(go):
            m.d.sync += [valid[0].eq(feed), valid[1].eq(valid[0]), valid[2].eq(valid[1])]

        results = []
        for lane in range(_STEP):
            value = held.word_select(lane, V_BITS).as_signed()
            # stage 0: magnitude times 1/width
            negative0 = Signal(name=f"negative0_{lane}", reset_less=True)
            sum0 = Signal(V_BITS, name=f"sum0_{lane}", reset_less=True)
            part0 = Signal(44, name=f"part0_{lane}", reset_less=True)
            magnitude = Signal(V_BITS, name=f"magnitude_{lane}")
            m.d.comb += magnitude.eq(Mux(value < 0, -value, value))
            # stage 1: times 1/height
            negative1 = Signal(name=f"negative1_{lane}", reset_less=True)
            sum1 = Signal(V_BITS, name=f"sum1_{lane}", reset_less=True)
            part1 = Signal(61, name=f"part1_{lane}", reset_less=True)
            # stage 2: round, look for a tie
            out2 = Signal(8, name=f"out2_{lane}", reset_less=True)
            nearest = Signal(30, name=f"nearest_{lane}")
            twice = Signal(V_BITS + 1, name=f"twice_{lane}")
            below = Signal(30, name=f"below_{lane}")
            tie_below = Signal(name=f"tie_below_{lane}")
            tie_here = Signal(name=f"tie_here_{lane}")
            chosen = Signal(30, name=f"chosen_{lane}")
            lower = Signal(30, name=f"lower_{lane}")
            signed_result = Signal(31, name=f"signed_{lane}")
            m.d.comb += [
                nearest.eq((part1 + (1 << 31))[32:]),
                below.eq(nearest - 1),
                twice.eq(sum1 << 1),
                tie_below.eq(~taps[0] & (nearest != 0) & (twice == ((below << 1) + 1) * taps)),
                tie_here.eq(~taps[0] & (twice == ((nearest << 1) + 1) * taps)),
                lower.eq(Mux(tie_below, below, nearest)),
                chosen.eq(Mux(tie_below | tie_here, lower + (exact & lower[0]), nearest)),
                signed_result.eq(
                    Mux(
                        self.average,
                        Mux(negative1, -chosen.as_signed(), chosen.as_signed()),
                        Mux(negative1, -sum1.as_signed(), sum1.as_signed()),
                    )
                ),
            ]
            wide = signed_result.as_signed()
            saturated = Mux(wide > 127, 127, Mux(wide < -128, -128, wide))
            with m.If(go):
                m.d.sync += [
                    negative0.eq(value < 0),
                    sum0.eq(magnitude),
                    part0.eq(magnitude * self.recip_width),
                    negative1.eq(negative0),
                    sum1.eq(sum0),
                    part1.eq(part0 * self.recip_height),
                    out2.eq(saturated),
                ]
            results.append(out2)

        # Collect the steps into an atom.
        place = Signal(range(LANES // _STEP))
        parts = Signal(128 - 8 * _STEP, reset_less=True)
        atom = Signal(128, reset_less=True)
        m.d.comb += [self.o.valid.eq(full), self.o.payload.data.eq(atom)]
        with m.If(go):
            m.d.sync += full.eq(0)
            with m.If(valid[2]):
                m.d.sync += [place.eq(place + 1), parts.eq(Cat(parts, *results)[8 * _STEP :])]
                with m.If(place == LANES // _STEP - 1):
                    m.d.sync += [full.eq(1), atom.eq(Cat(parts, *results))]
        return m
