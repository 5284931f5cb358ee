"""The DPU's arithmetic: CPEND, BS, BN, EW with LUT and OUT_CVT, eight lanes a cycle (H 5, docs section 4)."""

from amaranth.hdl import Cat, Module, Signal, signed
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from rtl.layouts import LANES, BsOctet, ElementOctet
from rtl.npu.dpu_cvt import OutputConverter
from rtl.npu.dpu_ew import EwOperand, EwStage
from rtl.npu.dpu_frame import STAGES, AluAlgo, Frame, OctetTag, PipeIn, PipeOut
from rtl.npu.dpu_lut import LutStage, LutUnit
from rtl.npu.dpu_scale import bn_stages, bs_stages
from rtl.npu.dpu_table import OperandTable
from rtl.npu.dpu_types import Precision
from rtl.npu.float32 import Divider
from rtl.regfile import LutPort, config_signature

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
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        frame = Frame(m, self.cfg, self.start)
        valid, tag, advance = frame.valid, frame.tag, frame.advance
        m.submodules.bs_table = bs_table = OperandTable()
        m.submodules.bn_table = bn_table = OperandTable()
        m.submodules.lut = unit = LutUnit()
        m.submodules.divider = divider = Divider(LANES)
        wiring.connect(m, wiring.flipped(self.cfg), unit.cfg)
        wiring.connect(m, wiring.flipped(self.lut), unit.lut)
        for table in (bs_table, bn_table):
            m.d.comb += [table.active.eq(self.active), table.octets.eq(self.octets)]
        m.d.comb += [
            self.source.ready.eq(advance & bs_table.available),
            valid[0].eq(self.source.valid & bs_table.available),
            tag[0].eq(self.source.payload.tag),
        ]
        with m.If(self.result.ready):  # taken, even if the pipe waits for an operand
            m.d.sync += valid[STAGES].eq(0)
        for k in range(STAGES):
            with m.If(advance):
                m.d.sync += valid[k + 1].eq(valid[k])
            with frame.into(k + 1):
                m.d.sync += tag[k + 1].eq(tag[k])

        main, sums = frame.lanes("main", signed(32)), frame.lanes("sum", signed(32))
        with frame.into(1):
            for lane in range(LANES):
                m.d.sync += main[lane].eq(self.source.payload.main[lane])
                m.d.sync += sums[lane].eq(self.source.payload.sum[lane])
        value = bs_stages(frame, main, sums, bs_table, self.bs)
        value = bn_stages(frame, value, bn_table, self.bn)
        lut = LutStage(frame, unit, value)
        operand = EwOperand(frame, self.ew, self.active)
        ew = EwStage(frame, lut.values, operand, divider)
        output = OutputConverter(frame, ew.values)
        frame.finish()
        # An octet that lacks its BN or EW operand, or whose look-up or division goes on, stops the pipe.
        waits = Signal()
        m.d.comb += [
            waits.eq((valid[3] & ~bn_table.available) | ~lut.may_advance | ~ew.may_advance),
            advance.eq((~valid[STAGES] | self.result.ready) & ~waits),
            self.result.valid.eq(valid[STAGES]),
            self.result.payload.tag.eq(tag[STAGES]),
            self.result.payload.data.eq(Cat(*output.values)),
        ]
        return m
