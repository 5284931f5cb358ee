"""CPEND, BS and BN for integers: stages 1 to 6 of the DPU's pipe ([HW 7.4] to [HW 7.7])."""

from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from rkcosim.rtl.layouts import ACC_BITS, IDLE, LANES, BsOctet
from rkcosim.rtl.npu.arith import HIGHEST, LOWEST, Shift, clamp, extend, held_flags, held_shift, wire
from rkcosim.rtl.npu.dpu_frame import (
    AluAlgo,
    PipeFlow,
    PipeIn,
    copied,
    float_domain,
    into,
    lanes,
    rectifier,
    scaled,
)
from rkcosim.rtl.regfile import config_signature


@dataclass(frozen=True)
class _Settings:
    """The settings that BS and BN have in common, held from the start of the task on.

    `on` has one enable bit for each part; `addend` and `factor` are the operand registers, signed.
    """

    on: Any
    wanted: Value
    addend: Value
    factor: Value
    positive: Shift
    negative: Shift
    low: Value
    high: Value

    def addend_of(self, operands: Any, lane: int) -> Value:
        """The ALU operand, signed 32 bits; `operands` is a BsOctet."""
        return Mux(self.on.alu_src, operands.alu[lane].as_signed(), self.addend)

    def factor_of(self, operands: Any, lane: int) -> Value:
        """The multiplier operand, signed 16 bits."""
        return Mux(self.on.mul_src, operands.mul[lane].as_signed(), self.factor)


def _settings(m: Module, cfg: Any, start: Value, name: str) -> _Settings:
    stage = cfg.stage(name)
    live = ~stage.CFG.BYPASS & ~float_domain(cfg)
    algo = stage.CFG.ALU_ALGO
    on = held_flags(
        m,
        start,
        add=live & ~stage.CFG.ALU_BYPASS & ((algo == AluAlgo.ADD) | (algo == AluAlgo.MINUS)),
        minus=algo == AluAlgo.MINUS,
        alu_src=stage.CFG.ALU_SRC,
        mul=live & ~stage.CFG.MUL_BYPASS,
        prelu=stage.CFG.MUL_PRELU,
        mul_src=stage.MUL_CFG.MUL_SRC,
    )
    return _Settings(
        on,
        (on.add & on.alu_src) | (on.mul & on.mul_src),
        stage.ALU_CFG.ALU_OPERAND,
        stage.MUL_CFG.MUL_OPERAND,
        held_shift(m, start, "positive", stage.MUL_CFG.MUL_SHIFT_VALUE),
        held_shift(m, start, "negative", stage.DATA_FORMAT.MUL_SHIFT_VALUE_NEG),
        *rectifier(m, cfg, start, name, live),
    )


class BsStages(wiring.Component):
    """Stages 1 to 4: CPEND and the adder, the multiplier, shift with saturation and ReLU.

    Parameters
    ----------
    floats : bool
        Whether values of the float domain come in `floats`; otherwise all come in `given`.

    Members
    -------
    cfg : registers of the DPU.
    flow : control signals of all stages.
    given : the octet ahead of stage 1, for integers.
    floats : the same octet for floats, binary32.
    operands : operands of the octet in stage 1.
    wanted : values of BRDMA are used.
    value : results in stage 4, for each lane.
    """

    cfg: In(config_signature("DPU"))
    flow: In(PipeFlow())
    given: In(PipeIn)
    floats: In(32).array(LANES)
    operands: In(BsOctet)
    wanted: Out(1)
    value: Out(signed(32)).array(LANES)

    def __init__(self, *, floats: bool = True) -> None:
        self._floats = floats
        super().__init__()

    def elaborate(self, platform: object) -> Module:
        m = Module()
        cfg, flow, valid, operands = self.cfg, self.flow, self.flow.valid, self.operands
        bs = _settings(m, cfg, flow.start, "BS")
        live = ~cfg.BS_OW_CFG.OD_BYPASS & ~float_domain(cfg)
        sums = ~cfg.FEATURE_MODE_CFG.FLYING_MODE & ~float_domain(cfg)
        core = held_flags(
            m,
            flow.start,
            sums=sums,  # main data are sums of CORE
            cpend=sums & ~cfg.BS_OW_CFG.OD_BYPASS,  # CPEND adds window sums to the main data
            cpend_src=cfg.BS_OW_CFG.OW_SRC,
            wanted=live & cfg.BS_OW_CFG.OW_SRC,  # also in flying mode, where nothing uses it [HW 7.4]
        )
        m.d.comb += self.wanted.eq(core.wanted | bs.wanted)

        # The octet in stage 1.  Sums of CORE also have bits above the low 32, window sums, and CLIP_TRUNCATE:
        # its shift, half a unit of the last place that is kept, the mask of dropped bits, the rounding of
        # ties.
        main, high, sum_ = lanes("main", signed(32)), lanes("high", signed(ACC_BITS - 32)), lanes("sum", 32)
        cut_shift, cut_half = Signal(5, reset_less=True), Signal(31, reset_less=True)
        cut_dropped, cut_to_even = Signal(31, reset_less=True), Signal(reset_less=True)
        clip = self.given.clip
        with into(m, flow, 1):
            for lane in range(LANES):
                entering = self.given.main[lane]
                if self._floats:
                    entering = Mux(flow.floats, self.floats[lane], entering)
                m.d.sync += main[lane].eq(entering)
            with m.If(core.sums):
                unit = Value.cast(1) << clip.shift
                m.d.sync += copied(high, self.given.high)
                m.d.sync += [cut_shift.eq(clip.shift), cut_to_even.eq(~clip.half_up)]
                m.d.sync += [cut_half.eq(unit >> 1), cut_dropped.eq(unit - 1)]
            with m.If(core.cpend):
                m.d.sync += copied(sum_, self.given.sum)
        cuts = Signal()
        m.d.comb += cuts.eq(valid[1] & core.sums & (cut_shift != 0))

        total, factor = lanes("total", signed(33)), lanes("factor", signed(16))
        product, plain = lanes("product", signed(49)), lanes("plain", unsigned(1))
        value = lanes("held", signed(32))
        m.d.comb += copied(self.value, value)
        for lane in range(LANES):
            window, added = Signal(signed(ACC_BITS), init=IDLE), Signal(signed(33), init=IDLE)
            scale, short = Signal(signed(16), init=IDLE), Signal(signed(50), init=IDLE)
            before = Signal(signed(32), init=IDLE)
            with m.If(valid[1] & core.sums):
                with m.If(core.cpend & core.cpend_src):
                    m.d.comb += window.eq(sum_[lane].as_signed() * operands.cpend[lane].as_signed())
                with m.Elif(core.cpend):
                    m.d.comb += window.eq(sum_[lane].as_signed() * cfg.BS_OW_OP.OW_OP)
                with m.Else():
                    m.d.comb += window.eq(0)
                whole = wire(m, Cat(main[lane], high[lane]).as_signed() + window)
                with m.If(cuts):
                    biased = wire(m, whole + cut_half)
                    tie = cut_to_even & ((biased[:31] & cut_dropped) == 0)
                    shifted = biased >> cut_shift
                    m.d.comb += short.eq(Cat(shifted[0] & ~tie, shifted[1:]).as_signed())
                with m.Else():
                    m.d.comb += short.eq(extend(whole, 50))
                m.d.comb += before.eq(clamp(short, LOWEST, HIGHEST))
            with m.Else():
                m.d.comb += before.eq(main[lane])
            with m.If(valid[1]):
                with m.If(bs.on.add):
                    operand = wire(m, bs.addend_of(operands, lane))
                    with m.If(bs.on.minus):
                        m.d.comb += added.eq(before - operand)
                    with m.Else():
                        m.d.comb += added.eq(before + operand)
                with m.Else():
                    m.d.comb += added.eq(extend(before, 33))
                with m.If(bs.on.mul):
                    m.d.comb += scale.eq(bs.factor_of(operands, lane))
            with into(m, flow, 2):
                m.d.sync += [total[lane].eq(added), factor[lane].eq(scale)]

            result, skip = Signal(signed(49), init=IDLE), Signal()
            with m.If(valid[2]):
                m.d.comb += skip.eq(~bs.on.mul | (bs.on.prelu & ~total[lane][-1]))
                with m.If(skip):
                    m.d.comb += result.eq(extend(total[lane], 49))
                with m.Else():
                    m.d.comb += result.eq(total[lane] * factor[lane])
            with into(m, flow, 3):
                m.d.sync += [product[lane].eq(result), plain[lane].eq(skip)]

            with m.If(valid[3]):
                shifted = scaled(m, product[lane], plain[lane], bs.positive, bs.negative)
                limited = wire(m, clamp(shifted, bs.low, bs.high))
            with into(m, flow, 4):
                m.d.sync += value[lane].eq(limited)
        return m


class BnStages(wiring.Component):
    """Stages 5 and 6: multiply, then add, shift, ReLU.

    Members
    -------
    cfg : registers of the DPU.
    flow : control signals of all stages.
    main : values in stage 4, for each lane.
    operands : operands of the octet in stage 4.
    wanted : values of NRDMA are used.
    value : values that stage 6 loads with the octet in stage 5.
    """

    cfg: In(config_signature("DPU"))
    flow: In(PipeFlow())
    main: In(signed(32)).array(LANES)
    operands: In(BsOctet)
    wanted: Out(1)
    value: Out(signed(32), init=IDLE).array(LANES)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        flow, valid = self.flow, self.flow.valid
        bn = _settings(m, self.cfg, flow.start, "BN")
        m.d.comb += self.wanted.eq(bn.wanted)
        product, plain = lanes("product", signed(48)), lanes("plain", unsigned(1))
        operand = lanes("operand", signed(33))
        for lane, main in enumerate(self.main):
            result, skip = Signal(signed(48), init=IDLE), Signal()
            addend = Signal(signed(33), init=IDLE)
            with m.If(valid[4]):
                m.d.comb += skip.eq(~bn.on.mul | (bn.on.prelu & ~main[-1]))
                with m.If(skip):
                    m.d.comb += result.eq(extend(main, 48))
                with m.Else():
                    factor = wire(m, bn.factor_of(self.operands, lane))
                    m.d.comb += result.eq(main * factor)
                with m.If(bn.on.add):
                    term = wire(m, bn.addend_of(self.operands, lane))
                    with m.If(bn.on.minus):
                        m.d.comb += addend.eq(-term)
                    with m.Else():
                        m.d.comb += addend.eq(extend(term, 33))
                with m.Else():
                    m.d.comb += addend.eq(0)
            with into(m, flow, 5):
                m.d.sync += [product[lane].eq(result), plain[lane].eq(skip), operand[lane].eq(addend)]
            with m.If(valid[5]):
                total = wire(m, product[lane] + operand[lane])
                shifted = scaled(m, total, plain[lane], bn.positive, bn.negative)
                m.d.comb += self.value[lane].eq(clamp(shifted, bn.low, bn.high))
        return m
