"""CORE: the array cell, and the drain of its accumulators to the DPU ([HW 6.2], [HW 6.3])."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from rkcosim.rtl import assertions
from rkcosim.rtl.counters import activity_layout, drive_activity
from rkcosim.rtl.layouts import (
    ACC_BITS,
    LANES,
    AccOctet,
    Clip,
    ControlPort,
    CorePort,
    DiagnosticCode,
    DiagnosticPort,
    StripeDone,
)
from rkcosim.rtl.npu.array import ArrayCell
from rkcosim.rtl.npu.array_integer import extended
from rkcosim.rtl.npu.checks import SPACING, Check, add_checker
from rkcosim.rtl.npu.cna_types import WIDE_GROUP, TypeOf
from rkcosim.rtl.npu.core_groups import MissingGroups
from rkcosim.rtl.regfile import config_signature

_FLOAT_BITS = 32

_RUN_BIT = 24
"""Bit of MAC_GATING without which the array does not operate [HW 2.3]."""

_HALF_BITS = (11, 23)
"""Bits of MAC_GATING that enable the clocks of the even and the odd octets [HW 6.4]."""


class CoreBlock(wiring.Component):
    """Accumulate the issued products and send the results to the DPU, eight channels per cycle.

    If DATAOUT_CHANNEL requires more groups than the sequence controller issues, they are sent as zeros.

    Parameters
    ----------
    external_cell : bool
        The array cell is the module `npu_array_cell` (see `rtl/npu/array.py`) instead of RTL.
    floats : bool
        Whether the array cell has the path of floats.  Without it the results of float types are 0, and a
        task of such a type raises NOT_BUILT.

    Members
    -------
    cfg : In(config_signature("CORE"))
    control : In(ControlPort()) : start and end of a task. It ends when the DPU accepts the last octet of the
        stripe marked `last`, or of the last group of zeros after it.
    feed : In(CorePort())       : stripes are accepted only while a task runs.
    acc : Out(stream of AccOctet) : for each pixel, all octets of the group.
    octets : Out(4)             : octets of a group while a task runs: 8 for depthwise and int4, 4
        for int8, 2 for the other types.
    activity : Out(layout)      : for the counters (spec/regs/counters.rdl).
    diag : Out(DiagnosticPort())
    """

    cfg: In(config_signature("CORE"))
    control: In(ControlPort())
    feed: In(CorePort())
    acc: Out(stream.Signature(AccOctet))
    octets: Out(4)
    activity: Out(activity_layout("CORE"))
    diag: Out(DiagnosticPort())

    def __init__(self, *, external_cell: bool = False, floats: bool = True) -> None:
        self._external_cell, self._floats = external_cell, floats
        super().__init__()

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.array_cell = cell = ArrayCell(external=self._external_cell, floats=self._floats)
        m.d.comb += cell.i.eq(self.feed.cell)

        misc, clip = self.cfg.MISC_CFG, self.cfg.CLIP_TRUNCATE
        of = TypeOf(misc.PROC_PRECISION)
        gates = self.cfg.MAC_GATING.SLCG_OP_EN
        runs, even_on, odd_on = (gates[bit] for bit in (_RUN_BIT, *_HALF_BITS))
        taken = self.feed.stripe.valid & self.feed.stripe.ready
        first = Signal()  # no stripe of the task has been accepted
        m.submodules.missing = missing = MissingGroups()
        check_busy = self._check(m, taken & first, runs, even_on & odd_on, missing.more)
        said = self.cfg.DATAOUT_SIZE_1.DATAOUT_CHANNEL + 1
        wanted = Signal(13, reset_less=True)  # number of groups that DATAOUT_CHANNEL requires

        # 1. Constants of the task.
        running = Signal()
        stands = Signal()  # the array has no clock: the task never ends
        off = Signal(2, reset_less=True)  # even and odd octets that read 0
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

        # 2. Reads: one octet per cycle while the previous one can be moved on.
        draining = Signal()
        current = Signal(StripeDone, reset_less=True)
        pixel, octet = Signal(4, reset_less=True), Signal(3, reset_less=True)
        read, stripe_end = Signal(), Signal()
        loaded = Signal()  # the cell shows an octet that the output register has not loaded
        advance = Signal()
        m.d.comb += [
            advance.eq(~self.acc.valid | self.acc.ready),
            read.eq(draining & (advance | ~loaded)),
            stripe_end.eq(read & (octet == last_octet) & (pixel == current.pixels_m1)),
            cell.d_valid.eq(read),
            cell.d_bank.eq(current.bank),
            cell.d_slot.eq(pixel),
            cell.d_octet.eq(octet),
            self.feed.stripe.ready.eq(running & ~stands & (~draining | (stripe_end & ~missing.repeats))),
            missing.wanted.eq(wanted),
            missing.size.eq(self.feed.size),
            missing.stripe.eq(self.feed.stripe.payload),
            missing.taken.eq(taken),
            missing.first.eq(first),
            missing.last.eq(current.last),
            missing.ends.eq(stripe_end),
        ]
        busy = Signal(2)
        m.d.comb += self.feed.bank_free.eq(~busy)
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
                current.eq(self.feed.stripe.payload),
                pixel.eq(0),
                octet.eq(0),
                busy.bit_select(self.feed.stripe.payload.bank, 1).eq(1),
                first.eq(0),
            ]

        # 3. Output of the cell: which lanes are real channels, and whether it is the last octet of the task.
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

        # 4. Output to the DPU, which reduces and rounds it.
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
                    number = cell.o_acc[lane][:_FLOAT_BITS] if self._floats else Const(0)
                    m.d.sync += result.eq(extended(number.as_signed(), ACC_BITS))
                with m.Else():
                    m.d.sync += result.eq(cell.o_acc[lane])
                m.d.sync += self.acc.payload.sum[lane].eq(Mux(with_sums & ~shown.off, cell.o_sum[lane], 0))

        # 5. The end.
        finished = Signal()
        with m.If(self.acc.valid & self.acc.ready & last):
            m.d.sync += [running.eq(0), finished.eq(1)]
        m.d.comb += self.control.done.eq(finished & ~check_busy)
        with m.If(self.control.done):
            m.d.sync += finished.eq(0)
        drive_activity(
            m,
            platform,
            "CoreBlock",
            self.activity,
            ~running & ~finished,
            DPU=self.acc.valid & ~self.acc.ready,
            BUSY=self.acc.valid | draining | loaded | finished,
            ARRAY=running,
        )
        assertions.ports(m, platform, self)
        return m

    def _check(self, m: Module, first_taken: Value, runs: Value, all_on: Value, more: Value) -> Value:
        """Report wrong settings of the registers; returns whether this is not finished.

        The checks run when the first stripe of the task is accepted, because CNA may start after CORE and the
        type and mode at the cell are valid only then; or at the start, if no stripe will ever be accepted.
        """
        C = DiagnosticCode
        misc, cell = self.cfg.MISC_CFG, self.feed.cell
        other = (Value.cast(misc.PROC_PRECISION) != cell.precision) | (misc.DW_EN != cell.depthwise)
        checks = [
            Check("MAC_GATING", ~(runs & all_on)),
            Check("MISC_CFG", runs & other),
            Check("DATAOUT_SIZE_1", runs & more, C.SIZE_MISMATCH),
        ]
        if not self._floats:
            checks.insert(0, Check("MISC_CFG", TypeOf(misc.PROC_PRECISION).is_float, C.NOT_BUILT))
        start = (self.control.start & ~runs) | first_taken
        return add_checker(m, "CORE", self.cfg, start, self.diag, checks, spacing=SPACING).busy
