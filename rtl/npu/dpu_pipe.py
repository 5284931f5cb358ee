"""DPU arithmetic: CPEND, BS, BN, EW with LUT and OUT_CVT; eight lanes per cycle [HW 7]."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from rkcosim.rtl import assertions
from rkcosim.rtl.layouts import BsOctet, ElementOctet
from rkcosim.rtl.npu.arith import held
from rkcosim.rtl.npu.dpu_cell import external_stages, stages
from rkcosim.rtl.npu.dpu_ew import EwOperand
from rkcosim.rtl.npu.dpu_float import FloatUnit, NoFloatUnit
from rkcosim.rtl.npu.dpu_frame import (
    STAGES,
    OctetTag,
    PipeFlow,
    PipeIn,
    PipeOut,
    copied,
    float_domain,
    into,
    lut_live,
)
from rkcosim.rtl.npu.dpu_table import OperandTable
from rkcosim.rtl.regfile import LutPort, config_signature
from rkcosim.spec.regs.options import OPTION_BITS, option_bit


class DpuPipe(wiring.Component):
    """Registered stages that advance together; bubbles are not removed.

    Parameters
    ----------
    floats : bool
        Whether there is floating-point arithmetic.  Without it, values of the float domain take the way of
        integers and pass BS, BN and EW unchanged.
    external : bool
        The stages are an instance of `npu_dpu_cell` (`rkcosim.rtl.npu.dpu_cell`) and the lanes of the float
        unit one of `npu_dpu_float_cell` (`FloatUnit`), which the engine provides; only with `floats`.

    Members
    -------
    cfg : registers of the DPU.
    start : a task starts: the settings are stored, the operand tables are emptied.
    active : a task runs.
    octets : octets of a full channel group.
    source : main data.
    bs, bn : operands of BRDMA and NRDMA; dropped if the settings do not use them.
    ew : operands of ERDMA; not read if the settings do not use them.
    lut : access to the look-up tables: writes while no task runs; reads at any time.
    result : converted elements.
    stall : an octet waits for its BS, BN or EW operand.
    options : bits of `rkcosim.spec.regs.options`.
    """

    cfg: In(config_signature("DPU"))
    start: In(1)
    active: In(1)
    octets: In(4)
    source: In(stream.Signature(PipeIn))
    bs: In(stream.Signature(BsOctet))
    bn: In(stream.Signature(BsOctet))
    ew: In(stream.Signature(ElementOctet))
    lut: In(LutPort())
    result: Out(stream.Signature(PipeOut))
    stall: Out(1)
    options: In(OPTION_BITS)

    def __init__(self, *, floats: bool = True, external: bool = False) -> None:
        if external and not floats:
            raise ValueError("the cell of the DPU has floating-point arithmetic: external needs floats")
        self._floats, self._external = floats, external
        super().__init__()

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.bs_table = bs_table = OperandTable()
        m.submodules.bn_table = bn_table = OperandTable()
        unit = FloatUnit(external=self._external) if self._floats else NoFloatUnit()
        m.submodules.floats = floats = unit
        m.submodules.operand = operand = EwOperand()
        made = external_stages(m) if self._external else stages(m, floats=self._floats)
        bs, bn, lut, ew, output = made.bs, made.bn, made.lut, made.ew, made.output
        flow = PipeFlow().create(path=("stages",))
        wiring.connect(m, flow, *(stage.flow for stage in (bs, bn, lut, ew, output)))
        settings = (stage.cfg for stage in (floats, bs, bn, lut, operand, ew, output))
        wiring.connect(m, wiring.flipped(self.cfg), *settings)
        wiring.connect(m, wiring.flipped(self.lut), lut.lut)
        wiring.connect(m, wiring.flipped(self.ew), operand.ew)
        tag = [Signal(OctetTag, name=f"tag{k}", reset_less=True) for k in range(STAGES + 1)]
        valid, advance = flow.valid, flow.advance
        domain = float_domain(self.cfg) if self._floats else Const(0)
        in_floats = held(m, self.start, domain)
        late_floats = held(m, self.start, domain & ~lut_live(self.cfg))
        # Floats pass their own unit; all stages except LUT and OUT_CVT then leave them unchanged.
        given, by_unit = self.source.payload, floats.result.payload
        m.d.comb += [
            flow.start.eq(self.start),
            flow.floats.eq(in_floats),
            flow.late_floats.eq(late_floats),
            floats.start.eq(self.start),
            floats.active.eq(self.active & in_floats),
            floats.source.valid.eq(self.source.valid & in_floats),
            floats.source.payload.eq(given),
            floats.available.eq(bs_table.available & bn_table.available),
            floats.bs.eq(bs_table.operands),
            floats.bn.eq(bn_table.operands),
            floats.result.ready.eq(advance),
        ]
        with m.If(in_floats):
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
        with m.If(self.result.ready):  # accepted, even if the pipe waits for an operand
            m.d.sync += valid[STAGES].eq(0)
        for k in range(STAGES):
            with m.If(advance):
                m.d.sync += valid[k + 1].eq(valid[k])
            with into(m, flow, k + 1):
                m.d.sync += tag[k + 1].eq(tag[k])

        m.d.comb += [
            bs.given.eq(given),
            *copied(bs.floats, by_unit.data),
            bs.operands.eq(bs_table.operands),
            *copied(bn.main, bs.value),
            bn.operands.eq(bn_table.operands),
            *copied(lut.entering, bn.value),
            operand.start.eq(self.start),
            operand.active.eq(self.active),
            operand.take.eq(Mux(late_floats, floats.ew_take, ew.take)),
            operand.enters.eq(Mux(late_floats, floats.take, advance & valid[5])),
            operand.slot.eq(Mux(late_floats, given.tag.slot, tag[5].slot)),
            *copied(ew.main, lut.value),
            *copied(ew.operand, operand.value),
            ew.operand_ready.eq(operand.operand_ready),
            floats.ew_ready.eq(operand.operand_ready),
            *copied(floats.ew, operand.value),
            *copied(output.main, ew.value),
            output.live.eq(tag[9].live),
            output.late_offset.eq(self.options[option_bit("q1_zero_point_after_rounding")]),
        ]
        # The look-up in a table happens one stage before the one that uses the values.
        for table, load, stage, wanted in (
            (bs_table, self.bs, 0, Mux(in_floats, floats.wants_bs, bs.wanted)),
            (bn_table, self.bn, 3, Mux(in_floats, floats.wants_bn, bn.wanted)),
        ):
            place = Signal(OctetTag, name=f"place{stage}")
            wiring.connect(m, wiring.flipped(load), table.load)
            m.d.comb += [
                place.eq(Mux(in_floats, given.tag, tag[stage])),
                table.active.eq(self.active),
                table.octets.eq(self.octets),
                table.clear.eq(self.start),
                table.wanted.eq(wanted),
                table.octet.eq(place.octet),
                table.take.eq(Mux(in_floats, floats.take, advance & valid[stage])),
                table.release.eq(place.group_last),
            ]
        # The pipe stops while an octet waits for its BN or EW operand or for its LUT results.
        waits = Signal()
        stall_bn = valid[3] & ~bn_table.available & ~in_floats
        stall_bs = self.source.valid & ~bs_table.available & ~in_floats
        m.d.comb += [
            self.stall.eq(stall_bs | stall_bn | ~ew.may_advance | floats.stall),
            waits.eq(stall_bn | ~lut.may_advance | ~ew.may_advance),
            advance.eq((~valid[STAGES] | self.result.ready) & ~waits),
            self.result.valid.eq(valid[STAGES]),
            self.result.payload.tag.eq(tag[STAGES]),
            self.result.payload.data.eq(Cat(*output.value)),
        ]
        wanted = {
            "floats.wants_bs": floats.wants_bs,
            "floats.wants_bn": floats.wants_bn,
            "bs.wanted": bs.wanted,
            "bn.wanted": bn.wanted,
        }
        assertions.stable(m, platform, wanted, "DpuPipe", after=self.start)
        assertions.ports(m, platform, self)
        return m
