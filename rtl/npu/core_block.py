"""CORE: the array cell, and the drain of its accumulators towards the DPU (docs/hardware.md 3.7, 3.8)."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from rtl.activity import activity_layout, tell
from rtl.layouts import (
    ACC_BITS,
    LANES,
    AccOctet,
    CellIn,
    Clip,
    ControlPort,
    DiagnosticCode,
    DiagnosticPort,
    StripeDone,
    TaskSize,
)
from rtl.npu.array import ArrayCell
from rtl.npu.array_integer import extended
from rtl.npu.cna_check import Check, Checker
from rtl.npu.cna_types import WIDE_GROUP, TypeOf
from rtl.npu.core_groups import MissingGroups
from rtl.regfile import config_signature
from rtl.regs import registers

_FLOAT_BITS = 32

_RUN_BIT = 24
"""Bit of MAC_GATING without which the array does not run (H 2.3)."""

_HALF_BITS = (11, 23)
"""Bits of MAC_GATING that clock the even and the odd octets (H 2.3)."""


class CoreBlock(wiring.Component):
    """Accumulate what the sequence controller issues and give it to the DPU, eight channels a cycle.

    Groups that DATAOUT_CHANNEL asks for behind those of the sequence controller are given as zeros.

    Parameters
    ----------
    external_cell : the array cell is the module `npu_array_cell` (see `rtl/npu/array.py`), not RTL.

    Members
    -------
    cfg : In(config_signature("CORE"))
    control : In(ControlPort()) : start and end of a task; the end is the DPU taking the last octet of the
        stripe marked `last`, or of the last group behind it.
    cell : In(CellIn)           : goes to the array cell as it comes.
    stripe : In(stream of StripeDone) : stripes to drain, in order; taken only while a task runs.
    size : In(TaskSize)         : of the task whose stripes are offered.
    bank_free : Out(2)          : level, bank b is not being drained; low from the cycle after a stripe of b
        is taken until the last read of it has been issued.
    acc : Out(stream of AccOctet) : pixel by pixel, all octets of the group of each.
    octets : Out(4)             : level while a task runs, octets of a group: 8 for depthwise and int4, 4
        for int8, 2 for the other types.
    activity : Out(layout)      : for the counters (rtl/regs/counters.rdl).
    diag : Out(DiagnosticPort())
    moves : Out(1)              : a register here but not in the cell may change (rtl/clock_groups.py).
    """

    def __init__(self, *, external_cell: bool = False) -> None:
        self._external_cell = external_cell
        super().__init__(
            {
                "cfg": In(config_signature("CORE")),
                "control": In(ControlPort()),
                "cell": In(CellIn),
                "stripe": In(stream.Signature(StripeDone)),
                "size": In(TaskSize),
                "bank_free": Out(2),
                "acc": Out(stream.Signature(AccOctet)),
                "octets": Out(4),
                "activity": Out(activity_layout("CORE")),
                "diag": Out(DiagnosticPort()),
                "moves": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.array_cell = cell = ArrayCell(external=self._external_cell)
        m.d.comb += cell.i.eq(self.cell)

        misc, clip = self.cfg.MISC_CFG, self.cfg.CLIP_TRUNCATE
        of = TypeOf(misc.PROC_PRECISION)
        gates = self.cfg.MAC_GATING.SLCG_OP_EN
        runs, even_on, odd_on = (gates[bit] for bit in (_RUN_BIT, *_HALF_BITS))
        taken = self.stripe.valid & self.stripe.ready
        first = Signal()  # no stripe of the task has been taken
        m.submodules.missing = missing = MissingGroups()
        check_busy = self._check(m, taken & first, runs, even_on & odd_on, missing.more)
        said = self.cfg.DATAOUT_SIZE_1.DATAOUT_CHANNEL + 1
        wanted = Signal(13, reset_less=True)  # groups that DATAOUT_CHANNEL needs

        # 1. Constants of the task.
        running = Signal()
        stands = Signal()  # the array has no clock: the task never ends
        off = Signal(2, reset_less=True)  # even, odd octets read 0
        is_float = Signal(reset_less=True)
        last_octet = Signal(3, reset_less=True)
        with_sums = Signal(reset_less=True)
        held = Signal(Clip, reset_less=True)
        with m.If(self.control.start):
            m.d.sync += [
                running.eq(1),
                stands.eq(~runs),
                off.eq(~Cat(even_on, odd_on)),
                is_float.eq(of.is_float),
                last_octet.eq((of.group_kernels >> 3) - 1),
                with_sums.eq(misc.QD_EN & ~of.is_float),
                held.shift.eq(Mux(of.is_float, 0, clip.CLIP_TRUNCATE)),
                held.half_up.eq(clip.ROUND_TYPE & ~of.is_float),
                wanted.eq(Mux(misc.DW_EN, (said + WIDE_GROUP - 1) // WIDE_GROUP, of.kernel_groups(said))),
                first.eq(1),
            ]
            with m.If(misc.DW_EN):
                m.d.sync += last_octet.eq(7)
        m.d.comb += [self.octets.eq(last_octet + 1), self.acc.payload.clip.eq(held)]

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
            self.stripe.ready.eq(running & ~stands & (~draining | (stripe_end & ~missing.repeats))),
            missing.wanted.eq(wanted),
            missing.size.eq(self.size),
            missing.stripe.eq(self.stripe.payload),
            missing.taken.eq(taken),
            missing.first.eq(first),
            missing.last.eq(current.last),
            missing.ends.eq(stripe_end),
        ]
        busy = Signal(2)
        m.d.comb += self.bank_free.eq(~busy)
        with m.If(read):
            m.d.sync += octet.eq(octet + 1)
            with m.If(octet == last_octet):
                m.d.sync += [octet.eq(0), pixel.eq(pixel + 1)]
        with m.If(stripe_end):
            m.d.sync += [draining.eq(missing.repeats), busy.bit_select(current.bank, 1).eq(0)]
            m.d.sync += [pixel.eq(0), current.pixels_m1.eq(missing.pixels_m1)]
        with m.If(taken):
            m.d.sync += [
                draining.eq(1),
                current.eq(self.stripe.payload),
                pixel.eq(0),
                octet.eq(0),
                busy.bit_select(self.stripe.payload.bank, 1).eq(1),
                first.eq(0),
            ]

        # 3. What the cell shows: which of its lanes are real, and whether it is the very last octet.
        shown = Signal(data.StructLayout({"real": 4, "off": 1, "last": 1}), reset_less=True)
        beyond = Signal(signed(8))
        m.d.comb += beyond.eq(current.kernels - (octet << 3))
        with m.If(read):
            m.d.sync += [
                loaded.eq(1),
                shown.real.eq(Mux(beyond < 0, 0, Mux(beyond > LANES, LANES, beyond))),
                shown.off.eq(off.bit_select(octet[0], 1) | missing.missing),
                shown.last.eq(stripe_end & current.last & ~missing.repeats),
            ]
        with m.Elif(advance):
            m.d.sync += loaded.eq(0)

        # 4. What goes to the DPU, which cuts and rounds it.
        last = Signal()
        with m.If(advance):
            m.d.sync += self.acc.valid.eq(loaded)
        with m.If(advance & loaded):
            m.d.sync += last.eq(shown.last)
            for lane in range(LANES):
                result = self.acc.payload.acc[lane]
                with m.If((shown.real <= lane) | shown.off):
                    m.d.sync += result.eq(0)
                with m.Elif(is_float):
                    m.d.sync += result.eq(extended(cell.o_acc[lane][:_FLOAT_BITS].as_signed(), ACC_BITS))
                with m.Else():
                    m.d.sync += result.eq(cell.o_acc[lane])
                m.d.sync += self.acc.payload.sum[lane].eq(Mux(with_sums & ~shown.off, cell.o_sum[lane], 0))

        # 5. The end.
        finished = Signal()
        with m.If(self.acc.valid & self.acc.ready & last):
            m.d.sync += [running.eq(0), finished.eq(1)]
        m.d.comb += [
            self.control.done.eq(finished & ~check_busy),
            self.moves.eq(self.stripe.valid | draining | loaded | self.acc.valid | finished | check_busy),
        ]
        with m.If(self.control.done):
            m.d.sync += finished.eq(0)
        tell(
            m,
            self.activity,
            ~running & ~finished,
            DPU=self.acc.valid & ~self.acc.ready,
            BUSY=self.acc.valid | draining | loaded | finished,
            ARRAY=running,
        )
        return m

    def _check(self, m: Module, first_taken: Value, runs: Value, all_on: Value, more: Value) -> Value:
        """Report what is wrong with the registers; returns whether that is still going on.

        That is when the task's first stripe is taken, since CNA may start after CORE and only then the
        cell's type and mode are the task's; or at the start, when no stripe will ever be taken.
        """
        R, C = registers()["CORE"], DiagnosticCode
        misc = self.cfg.MISC_CFG
        other = (Value.cast(misc.PROC_PRECISION) != self.cell.precision) | (misc.DW_EN != self.cell.depthwise)
        checks = [
            Check(~(runs & all_on), C.RESERVED_MODE, R["MAC_GATING"]),
            Check(runs & other, C.RESERVED_MODE, R["MISC_CFG"]),
            Check(runs & more, C.SIZE_MISMATCH, R["DATAOUT_SIZE_1"]),
        ]
        m.submodules.check = check = Checker(self.cfg, checks)
        wiring.connect(m, check.diag, wiring.flipped(self.diag))
        m.d.comb += check.start.eq((self.control.start & ~runs) | first_taken)
        return check.busy
