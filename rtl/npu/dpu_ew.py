"""The element-wise stage of the DPU's pipe: stages 7 and 8 and the fetch of their operand [HW 7.8]."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, signed, unsigned
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from rkcosim.rtl import assertions
from rkcosim.rtl.layouts import IDLE, LANES, ElementOctet
from rkcosim.rtl.npu.arith import (
    HIGHEST,
    LOWEST,
    clamp,
    extend,
    held_flags,
    held_shift,
    round_shift,
    wire,
)
from rkcosim.rtl.npu.dpu_frame import (
    AluAlgo,
    PipeFlow,
    copied,
    float_domain,
    into,
    lanes,
    lut_live,
    rectifier,
    scaled,
)
from rkcosim.rtl.regfile import config_signature


class EwOperand(wiring.Component):
    """Fetch and convert the second operand in two stages ahead of the EW stage.

    Members
    -------
    cfg : registers of the DPU.
    start : pulse, a task starts.
    active : a task runs; `ew` is not read outside of a task.
    ew : the elements, as ERDMA delivers them.
    operand_ready : the operand is valid, or none is used.
    take : an octet uses the operand.
    enters, slot : an octet comes to where it uses the operand from the next cycle on, and its pixel's place
        in the stripe. The pixel chooses one of the registers for all lanes [HW 7.8.2].
    value : the operand, for each lane.
    """

    cfg: In(config_signature("DPU"))
    start: In(1)
    active: In(1)
    ew: In(stream.Signature(ElementOctet))
    operand_ready: Out(1)
    take: In(1)
    enters: In(1)
    slot: In(4)
    value: Out(signed(32)).array(LANES)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        cfg, ew, start = self.cfg, self.ew, self.start
        live = ~cfg.EW_CFG.EW_OP_BYPASS & ~cfg.EW_CFG.EW_BYPASS
        uses = cfg.EW_CFG.EW_OP_SRC & live
        on = held_flags(
            m,
            start,
            fetch=uses,
            register=~cfg.EW_CFG.EW_OP_SRC & live,
            drop=~uses & cfg.FEATURE_MODE_CFG.FLYING_MODE,  # drop the remaining elements [HW 8.6]
            convert=~cfg.EW_CFG.EW_OP_CVT_BYPASS & ~(float_domain(cfg) & ~lut_live(cfg)),
            add_first=cfg.EW_CFG.EW_CVT_TYPE,
            away=cfg.EW_CFG.EW_CVT_ROUND,
        )
        offset = cfg.EW_CVT_OFFSET_VALUE.EW_OP_CVT_OFFSET
        scale = cfg.EW_CVT_SCALE_VALUE.EW_OP_CVT_SCALE
        shift = held_shift(m, start, "convert", cfg.EW_CVT_SCALE_VALUE.EW_OP_CVT_SHIFT)
        have1, have2, go1, go2 = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            go2.eq(~have2 | self.take),
            go1.eq(~have1 | go2),
            ew.ready.eq(self.active & (on.drop | (on.fetch & go1))),
            self.operand_ready.eq(have2 | ~on.fetch),
        ]
        with m.If(go1):
            m.d.sync += have1.eq(ew.valid & on.fetch & self.active)
        with m.If(go2):
            m.d.sync += have2.eq(have1)
        with m.If(start):
            m.d.sync += [have1.eq(0), have2.eq(0)]
        products, values = lanes("scaled", signed(49)), lanes("operand", signed(32))
        m.d.comb += copied(self.value, values)
        chosen = Signal(signed(32), init=IDLE)
        with m.If(on.register & self.enters):
            m.d.comb += chosen.eq(cfg.EW_OP_VALUE[self.slot[:3]].EW_OPERAND)
        for lane in range(LANES):
            element = ew.payload.data[lane].as_signed()
            fetched = Signal(signed(49), init=IDLE)
            with m.If(ew.valid & ew.ready):
                with m.If(~on.convert):
                    m.d.comb += fetched.eq(extend(element, 49))
                with m.Elif(on.add_first):
                    m.d.comb += fetched.eq((element + offset) * scale)
                with m.Else():
                    m.d.comb += fetched.eq(element * scale + offset)
                m.d.sync += products[lane].eq(fetched)
            rounded = Signal(signed(64), init=IDLE)
            with m.If(have1):
                with m.If(on.convert):
                    m.d.comb += rounded.eq(round_shift(products[lane], shift, on.away))
                with m.Else():
                    m.d.comb += rounded.eq(extend(products[lane], 64))
                limited = wire(m, clamp(rounded, LOWEST, HIGHEST))
            with m.If(on.register & self.enters):
                m.d.sync += values[lane].eq(chosen)
            with m.Elif(go2 & have1):
                m.d.sync += values[lane].eq(limited)
        assertions.ports(m, platform, self)
        return m


class EwStage(wiring.Component):
    """Stages 7 and 8: ALU or multiplier, then shift and ReLU, for integers.

    Members
    -------
    cfg : registers of the DPU.
    flow : control signals of all stages.
    main : values in stage 6, for each lane.
    operand : the second operand, for each lane.
    operand_ready : the operand is valid, or none is used.
    take : an octet uses the operand.
    may_advance : the octet in stage 6 has all of its operands.
    value : results in stage 8, for each lane.
    """

    cfg: In(config_signature("DPU"))
    flow: In(PipeFlow())
    main: In(signed(32)).array(LANES)
    operand: In(signed(32)).array(LANES)
    operand_ready: In(1)
    take: Out(1)
    may_advance: Out(1)
    value: Out(signed(32)).array(LANES)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        cfg, flow, valid, ew = self.cfg, self.flow, self.flow.valid, self.cfg.EW_CFG
        live = ~ew.EW_BYPASS & ~(float_domain(cfg) & ~lut_live(cfg))
        op = live & ~ew.EW_OP_BYPASS
        on = held_flags(
            m,
            flow.start,
            mul=op & ew.EW_OP_TYPE,
            alu=op & ~ew.EW_OP_TYPE,
            prelu=ew.EW_MUL_PRELU,
            binary=ew.EW_BINARY_EN,  # maximum and minimum say whether their first operand is chosen
        )
        positive = held_shift(m, flow.start, "positive", cfg.EW_CVT_SCALE_VALUE.EW_TRUNCATE)
        negative = held_shift(m, flow.start, "negative", cfg.DATA_FORMAT.EW_TRUNCATE_NEG)
        low, high = rectifier(m, cfg, flow.start, "EW", live)
        m.d.comb += [
            self.take.eq(~flow.late_floats & flow.advance & valid[6]),
            self.may_advance.eq(flow.late_floats | ~valid[6] | self.operand_ready),
        ]
        product, plain = lanes("product", signed(48)), lanes("plain", unsigned(1))
        values = lanes("held", signed(32))
        m.d.comb += copied(self.value, values)
        for lane, (v, e) in enumerate(zip(self.main, self.operand, strict=True)):
            result, skip = Signal(signed(48), init=IDLE), Signal()
            # The functions of two operands and of one; an unknown one leaves `v` unchanged.
            functions = {
                AluAlgo.MAX: v > e,
                AluAlgo.MIN: v < e,
                AluAlgo.ADD: v + e,
                AluAlgo.MINUS: v + (-e)[:32].as_signed(),
                AluAlgo.ABS: Mux(v[-1], (-v)[:32].as_signed(), v),
                AluAlgo.NEG: (-v)[:32].as_signed(),
            }
            with m.If(valid[6]):
                m.d.comb += skip.eq(~on.mul | (on.prelu & ~v[-1]))
                with m.If(~skip):
                    m.d.comb += result.eq(v * e[:16].as_signed())
                with m.Else():
                    m.d.comb += result.eq(extend(v, 48))
                    with m.If(on.alu), m.Switch(ew.EW_ALU_ALGO):
                        for algo, function in functions.items():
                            with m.Case(algo):
                                if algo in (AluAlgo.MAX, AluAlgo.MIN):  # whether it is `v`, and which it is
                                    chosen = wire(m, Mux(function, Cat(v, Const(1, 1)), e.as_unsigned()), 33)
                                    function = Mux(on.binary, chosen[32:], chosen[:32]).as_signed()
                                m.d.comb += result.eq(extend(function, 48))
            with into(m, flow, 7):
                m.d.sync += [product[lane].eq(result), plain[lane].eq(skip)]
            with m.If(valid[7]):
                shifted = scaled(m, product[lane], plain[lane], positive, negative)
                limited = wire(m, clamp(shifted, low, high))
            with into(m, flow, 8):
                m.d.sync += values[lane].eq(limited)
        return m
