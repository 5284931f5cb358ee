"""CORE: the array cell, and the drain of its accumulators towards the DPU (docs/hardware.md 3.7, 3.8)."""

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from rtl.layouts import LANES, AccOctet, CellIn, ControlPort, DiagnosticCode, DiagnosticPort, StripeDone
from rtl.npu.array import ACC_BITS, ArrayCell
from rtl.npu.cna_check import Check, Checker
from rtl.regfile import config_signature
from rtl.regs import registers

_OUT_BITS = 32


class CoreBlock(wiring.Component):
    """Accumulate what the sequence controller issues and give it to the DPU, eight channels a cycle.

    Parameters
    ----------
    external_cell : the array cell is the module `npu_array_cell` (see `rtl/npu/array.py`), not RTL.

    Members
    -------
    cfg : In(config_signature("CORE"))
    control : In(ControlPort()) : start and end of a task; the end is the DPU taking the last octet of the
        stripe marked `last`.
    cell : In(CellIn)           : goes to the array cell as it comes.
    stripe : In(stream of StripeDone) : stripes to drain, in order; taken only while a task runs.
    bank_free : Out(2)          : level, bank b is not being drained; low from the cycle after a stripe of b
        is taken until the last read of it has been issued.
    acc : Out(stream of AccOctet) : pixel by pixel, all octets of the group (4, with DW_EN 8) of each.
    diag : Out(DiagnosticPort())
    """

    def __init__(self, *, external_cell: bool = False) -> None:
        self._external_cell = external_cell
        super().__init__(
            {
                "cfg": In(config_signature("CORE")),
                "control": In(ControlPort()),
                "cell": In(CellIn),
                "stripe": In(stream.Signature(StripeDone)),
                "bank_free": Out(2),
                "acc": Out(stream.Signature(AccOctet)),
                "diag": Out(DiagnosticPort()),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.array_cell = cell = ArrayCell(external=self._external_cell)
        m.d.comb += cell.i.eq(self.cell)

        misc, clip = self.cfg.MISC_CFG, self.cfg.CLIP_TRUNCATE
        precision = Check(
            misc.PROC_PRECISION != 0, DiagnosticCode.RESERVED_MODE, registers()["CORE"]["MISC_CFG"]
        )
        m.submodules.check = check = Checker(self.cfg, [precision])
        m.d.comb += check.start.eq(self.control.start)
        wiring.connect(m, check.diag, wiring.flipped(self.diag))

        # 1. Constants of the task: half a unit of the last place that stays, and the bits that go.
        running = Signal()
        last_octet = Signal(3, reset_less=True)
        with_sums = Signal(reset_less=True)
        shift = Signal(5, reset_less=True)
        half, dropped = Signal(31, reset_less=True), Signal(31, reset_less=True)
        ties_to_even = Signal(reset_less=True)
        with m.If(self.control.start):
            m.d.sync += [
                running.eq(1),
                last_octet.eq(Mux(misc.DW_EN, 7, 3)),
                with_sums.eq(misc.QD_EN),
                shift.eq(clip.CLIP_TRUNCATE),
                half.eq((1 << clip.CLIP_TRUNCATE) >> 1),
                dropped.eq((1 << clip.CLIP_TRUNCATE) - 1),
                ties_to_even.eq(~clip.ROUND_TYPE & (clip.CLIP_TRUNCATE != 0)),
            ]

        # 2. Reads: one octet a cycle while the one before has a place to go to.
        draining = Signal()
        current = Signal(StripeDone, reset_less=True)
        pixel, octet = Signal(4, reset_less=True), Signal(3, reset_less=True)
        read, stripe_end = Signal(), Signal()
        loaded = Signal()  # the cell shows an octet that the output register has not taken
        advance = Signal()
        m.d.comb += [
            advance.eq(~self.acc.valid | self.acc.ready),
            read.eq(draining & (advance | ~loaded)),
            stripe_end.eq(read & (octet == last_octet) & (pixel == current.pixels_m1)),
            cell.d_valid.eq(read),
            cell.d_bank.eq(current.bank),
            cell.d_slot.eq(pixel),
            cell.d_octet.eq(octet),
            self.stripe.ready.eq(running & (~draining | stripe_end)),
        ]
        busy = Signal(2)
        m.d.comb += self.bank_free.eq(~busy)
        with m.If(read):
            m.d.sync += octet.eq(octet + 1)
            with m.If(octet == last_octet):
                m.d.sync += [octet.eq(0), pixel.eq(pixel + 1)]
        with m.If(stripe_end):
            m.d.sync += [draining.eq(0), busy.bit_select(current.bank, 1).eq(0)]
        taken = self.stripe.valid & self.stripe.ready
        with m.If(taken):
            m.d.sync += [
                draining.eq(1),
                current.eq(self.stripe.payload),
                pixel.eq(0),
                octet.eq(0),
                busy.bit_select(self.stripe.payload.bank, 1).eq(1),
            ]

        # 3. What the cell shows: which of its lanes are real, and whether it is the very last octet.
        shown = Signal(data.StructLayout({"real": 4, "last": 1}), reset_less=True)
        beyond = Signal(signed(8))
        m.d.comb += beyond.eq(current.kernels - (octet << 3))
        with m.If(read):
            m.d.sync += [
                loaded.eq(1),
                shown.real.eq(Mux(beyond < 0, 0, Mux(beyond > LANES, LANES, beyond))),
                shown.last.eq(stripe_end & current.last),
            ]
        with m.Elif(advance):
            m.d.sync += loaded.eq(0)

        # 4. CLIP_TRUNCATE, rounding and saturation to 32 bits.
        last = Signal()
        with m.If(advance):
            m.d.sync += self.acc.valid.eq(loaded)
        with m.If(advance & loaded):
            m.d.sync += last.eq(shown.last)
            for lane in range(LANES):
                biased, rounded = Signal(signed(ACC_BITS + 1)), Signal(signed(ACC_BITS + 1))
                tie = ties_to_even & ((biased[: len(dropped)] & dropped) == 0)
                shifted = biased >> shift
                m.d.comb += [
                    biased.eq(cell.o_acc[lane] + half),
                    rounded.eq(Cat(shifted[0] & ~tie, shifted[1:])),
                ]
                overflow = (rounded >= (1 << (_OUT_BITS - 1))) | (rounded < -(1 << (_OUT_BITS - 1)))
                limit = Mux(rounded < 0, 1 << (_OUT_BITS - 1), (1 << (_OUT_BITS - 1)) - 1)
                m.d.sync += [
                    self.acc.payload.acc[lane].eq(
                        Mux(shown.real > lane, Mux(overflow, limit, rounded[:_OUT_BITS]), 0)
                    ),
                    self.acc.payload.sum[lane].eq(Mux(with_sums, cell.o_sum[lane], 0)),
                ]

        # 5. The end.
        finished = Signal()
        with m.If(self.acc.valid & self.acc.ready & last):
            m.d.sync += [running.eq(0), finished.eq(1)]
        m.d.comb += self.control.done.eq(finished & ~check.busy)
        with m.If(self.control.done):
            m.d.sync += finished.eq(0)
        return m
