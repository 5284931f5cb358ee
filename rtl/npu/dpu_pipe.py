"""The DPU's arithmetic: CPEND, BS, BN, EW with LUT and OUT_CVT, eight lanes a cycle (H 5, docs section 4)."""

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from rtl.layouts import LANES, BsOctet, ElementOctet
from rtl.npu.dpu_cvt import OutputConverter
from rtl.npu.dpu_ew import EwOperand, EwStage
from rtl.npu.dpu_float import FloatUnit
from rtl.npu.dpu_frame import STAGES, AluAlgo, Frame, OctetTag, PipeIn, PipeOut
from rtl.npu.dpu_lut import LutStage, LutUnit
from rtl.npu.dpu_scale import CoreSums, bn_stages, bs_stages
from rtl.npu.dpu_table import OperandTable
from rtl.npu.dpu_types import Precision
from rtl.regfile import LutPort, config_signature
from rtl.regs.options import OPTION_BITS, option_bit

__all__ = ["STAGES", "AluAlgo", "DpuPipe", "OctetTag", "PipeIn", "PipeOut", "Precision"]


class DpuPipe(wiring.Component):
    """Registered stages that advance together; a bubble stays a bubble.

    Members
    -------
    cfg : configuration of the DPU
    start : 1, in
        A task starts: settings are copied, operand tables are emptied.
    active : 1, in
        A task runs.
    octets : 4, in
        Octets of a full channel group.
    source : stream of PipeIn, in
    bs, bn : streams of BsOctet, in
        Operands of BRDMA and NRDMA; dropped where the settings do not use them.
    ew : stream of ElementOctet, in
        Operands of ERDMA; left alone where the settings do not use them.
    lut : LutPort, in
        Access to the look-up tables while no task runs; reads at any time.
    result : stream of PipeOut, out
    lacks : 1, out
        An octet waits for its BS, BN or EW operand.
    options : 8, in
        Options of `rtl.regs.options`.
    moves, float_task : 1, out
        There is an octet in the pipe; a task of the float domain runs (rtl/clock_groups.py).
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "cfg": In(config_signature("DPU")),
                "start": In(1),
                "active": In(1),
                "octets": In(4),
                "source": In(stream.Signature(PipeIn)),
                "bs": In(stream.Signature(BsOctet)),
                "bn": In(stream.Signature(BsOctet)),
                "ew": In(stream.Signature(ElementOctet)),
                "lut": In(LutPort()),
                "result": Out(stream.Signature(PipeOut)),
                "lacks": Out(1),
                "options": In(OPTION_BITS),
                "moves": Out(1),
                "float_task": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        frame = Frame(m, self.cfg, self.start)
        valid, tag, advance = frame.valid, frame.tag, frame.advance
        m.submodules.bs_table = bs_table = OperandTable()
        m.submodules.bn_table = bn_table = OperandTable()
        m.submodules.lut = unit = LutUnit()
        m.submodules.floats = floats = FloatUnit()
        wiring.connect(m, wiring.flipped(self.cfg), unit.cfg)
        wiring.connect(m, wiring.flipped(self.cfg), floats.cfg)
        wiring.connect(m, wiring.flipped(self.lut), unit.lut)
        # Floats pass their unit, and then all stages but LUT and OUT_CVT leave them alone.
        given, by_unit = self.source.payload, floats.result.payload
        m.d.comb += [
            floats.start.eq(self.start),
            floats.active.eq(self.active & frame.floats),
            floats.source.valid.eq(self.source.valid & frame.floats),
            floats.source.payload.eq(given),
            floats.available.eq(bs_table.available & bn_table.available),
            floats.bs.eq(bs_table.operands),
            floats.bn.eq(bn_table.operands),
            floats.result.ready.eq(advance),
        ]
        with m.If(frame.floats):
            m.d.comb += [
                self.source.ready.eq(floats.source.ready),
                valid[0].eq(floats.result.valid),
                tag[0].eq(by_unit.tag),
            ]
        with m.Else():
            m.d.comb += [
                self.source.ready.eq(advance & bs_table.available),
                valid[0].eq(self.source.valid & bs_table.available),
                tag[0].eq(given.tag),
            ]
        with m.If(self.result.ready):  # taken, even if the pipe waits for an operand
            m.d.sync += valid[STAGES].eq(0)
        for k in range(STAGES):
            with m.If(advance):
                m.d.sync += valid[k + 1].eq(valid[k])
            with frame.into(k + 1):
                m.d.sync += tag[k + 1].eq(tag[k])

        main = frame.lanes("main", signed(32))
        core = CoreSums(frame)
        with frame.into(1):
            for lane in range(LANES):
                m.d.sync += main[lane].eq(Mux(frame.floats, by_unit.data[lane], given.main[lane]))
            with m.If(core.live):
                m.d.sync += core.load(given)
        bs = bs_stages(frame, main, core, bs_table)
        bn, entering = bn_stages(frame, bs.values, bn_table)
        lut = LutStage(frame, unit, bn.values, entering)
        operand = EwOperand(frame, self.ew, self.active)
        ew = EwStage(frame, lut.values, operand)
        late_offset = self.options[option_bit("q1_zero_point_after_rounding")]
        output = OutputConverter(frame, ew.values, late_offset)
        m.d.comb += [
            operand.take.eq(Mux(frame.late_floats, floats.ew_take, ew.take)),
            floats.ew_there.eq(operand.there),
            *(floats.ew[lane].eq(operand.values[lane]) for lane in range(LANES)),
        ]
        # A table's look-up takes place ahead of the stage after the one named.
        for table, load, stage, wanted in (
            (bs_table, self.bs, 0, Mux(frame.floats, floats.wants_bs, bs.wanted)),
            (bn_table, self.bn, 3, Mux(frame.floats, floats.wants_bn, bn.wanted)),
        ):
            place = Signal(OctetTag, name=f"place{stage}")
            wiring.connect(m, wiring.flipped(load), table.load)
            m.d.comb += [
                place.eq(Mux(frame.floats, given.tag, tag[stage])),
                table.active.eq(self.active),
                table.octets.eq(self.octets),
                table.clear.eq(self.start),
                table.wanted.eq(wanted),
                table.octet.eq(place.octet),
                table.take.eq(Mux(frame.floats, floats.take, advance & valid[stage])),
                table.release.eq(place.group_last),
            ]
        frame.finish()
        loads = [table.load.valid & table.load.ready for table in (bs_table, bn_table)]
        m.d.comb += [
            self.float_task.eq(floats.active),
            self.moves.eq(Cat(*valid, floats.active, *loads).any()),
        ]
        # An octet that lacks its BN or EW operand, or whose look-up goes on, stops the pipe.
        waits = Signal()
        lacks_bn = valid[3] & ~bn_table.available & ~frame.floats
        lacks_bs = self.source.valid & ~bs_table.available & ~frame.floats
        m.d.comb += [
            self.lacks.eq(lacks_bs | lacks_bn | ~ew.may_advance | floats.lacks),
            waits.eq(lacks_bn | ~lut.may_advance | ~ew.may_advance),
            advance.eq((~valid[STAGES] | self.result.ready) & ~waits),
            self.result.valid.eq(valid[STAGES]),
            self.result.payload.tag.eq(tag[STAGES]),
            self.result.payload.data.eq(Cat(*output.values)),
        ]
        return m
