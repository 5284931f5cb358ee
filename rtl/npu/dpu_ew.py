"""The element-wise stage of the DPU's pipe: stages 7 and 8 and the fetch of their operand (docs 4.7)."""

from amaranth.hdl import Mux, Signal, signed, unsigned

from rtl.layouts import LANES
from rtl.npu.dpu_frame import IDLE, AluAlgo, Frame, Rectifier
from rtl.npu.dpu_math import HIGHEST, LOWEST, clamp, extend, round_shift


class EwOperand:
    """Two stages of their own ahead of the EW stage: fetch and convert the second operand.

    `values` are the operands; `there` tells whether they are. `take` is high when an octet uses them.
    """

    def __init__(self, frame: Frame, ew: object, active: Signal) -> None:
        m, cfg = frame.m, frame.cfg
        self.take = Signal()
        uses = cfg.EW_CFG.EW_OP_SRC & ~cfg.EW_CFG.EW_OP_BYPASS & ~cfg.EW_CFG.EW_BYPASS
        fetch = frame.flag(uses)
        drop = frame.flag(~uses & cfg.FEATURE_MODE_CFG.FLYING_MODE)  # what is left over (docs 5.6)
        floats = frame.float_domain & ~frame.lut_live
        convert = frame.flag(~cfg.EW_CFG.EW_OP_CVT_BYPASS & ~floats)
        add_first = frame.flag(cfg.EW_CFG.EW_CVT_TYPE)
        away = frame.flag(cfg.EW_CFG.EW_CVT_ROUND)
        offset = cfg.EW_CVT_OFFSET_VALUE.EW_OP_CVT_OFFSET
        scale = cfg.EW_CVT_SCALE_VALUE.EW_OP_CVT_SCALE
        shift = frame.shift("ew_cvt", cfg.EW_CVT_SCALE_VALUE.EW_OP_CVT_SHIFT)
        have1, have2, go1, go2 = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            go2.eq(~have2 | self.take),
            go1.eq(~have1 | go2),
            ew.ready.eq(active & (drop | (fetch & go1))),
        ]
        with m.If(go1):
            m.d.sync += have1.eq(ew.valid & fetch & active)
        with m.If(go2):
            m.d.sync += have2.eq(have1)
        with m.If(frame.start):
            m.d.sync += [have1.eq(0), have2.eq(0)]
        scaled = frame.lanes("ew_scaled", signed(49))
        self.values = frame.lanes("ew_operand", signed(32))
        for lane in range(LANES):
            element = ew.payload.data[lane].as_signed()
            register = getattr(cfg, f"EW_OP_VALUE_{lane}")[f"EW_OPERAND_{lane}"]
            fetched = Signal(signed(49), init=IDLE)
            with m.If(ew.valid & ew.ready):
                with m.If(~convert):
                    m.d.comb += fetched.eq(extend(element, 49))
                with m.Elif(add_first):
                    m.d.comb += fetched.eq((element + offset) * scale)
                with m.Else():
                    m.d.comb += fetched.eq(element * scale + offset)
                m.d.sync += scaled[lane].eq(fetched)
            rounded = Signal(signed(64), init=IDLE)
            with m.If(have1):
                with m.If(convert):
                    m.d.comb += rounded.eq(round_shift(scaled[lane], shift, away))
                with m.Else():
                    m.d.comb += rounded.eq(extend(scaled[lane], 64))
                limited = frame.wire(clamp(rounded, LOWEST, HIGHEST))
            with m.If(frame.start & ~cfg.EW_CFG.EW_OP_SRC):
                m.d.sync += self.values[lane].eq(register)
            with m.Elif(go2 & have1):
                m.d.sync += self.values[lane].eq(limited)
        self.there = have2 | ~fetch


class EwStage:
    """Stages 7 and 8: ALU or multiplier, then shift and ReLU, of integers.

    `values` are the results, `take` tells that an octet uses its operand, and `may_advance` whether the one
    in stage 6 has what it needs.
    """

    def __init__(self, frame: Frame, main: list[Signal], operand: EwOperand) -> None:
        m, cfg, valid = frame.m, frame.cfg, frame.valid
        self._frame = frame
        on = ~cfg.EW_CFG.EW_BYPASS & ~(frame.float_domain & ~frame.lut_live)
        op = on & ~cfg.EW_CFG.EW_OP_BYPASS
        mul = frame.flag(op & cfg.EW_CFG.EW_OP_TYPE)
        alu = frame.flag(op & ~cfg.EW_CFG.EW_OP_TYPE)
        prelu = frame.flag(cfg.EW_CFG.EW_MUL_PRELU)
        positive = frame.shift("ew_pos", cfg.EW_CVT_SCALE_VALUE.EW_TRUNCATE)
        negative = frame.shift("ew_neg", cfg.DATA_FORMAT.EW_TRUNCATE_NEG)
        rectifier = Rectifier(frame, "EW", on)
        mine = ~frame.late_floats
        self.take = mine & frame.advance & valid[6]
        self.may_advance = ~(mine & valid[6]) | operand.there

        product, plain = frame.lanes("ew_product", signed(48)), frame.lanes("ew_plain", unsigned(1))
        self.values = frame.lanes("ew_value", signed(32))
        for lane in range(LANES):
            v, e = main[lane], operand.values[lane]
            result, skip = Signal(signed(48), init=IDLE), Signal()
            with m.If(valid[6]):
                m.d.comb += skip.eq(~mul | (prelu & ~v[-1]))
                with m.If(~skip):
                    m.d.comb += result.eq(v * e[:16].as_signed())
                with m.Else():
                    m.d.comb += result.eq(extend(v, 48))
                    with m.If(alu):
                        self._alu(result, v, e)
            with frame.into(7):
                m.d.sync += [product[lane].eq(result), plain[lane].eq(skip)]
            with m.If(valid[7]):
                scaled = frame.scaled(product[lane], plain[lane], positive, negative)
                limited = frame.wire(clamp(scaled, rectifier.low, rectifier.high))
            with frame.into(8):
                m.d.sync += self.values[lane].eq(limited)

    def _alu(self, result: Signal, v: Signal, e: Signal) -> None:
        """The two-operand and one-operand functions; an unknown one leaves `v`."""
        m = self._frame.m
        results = {
            AluAlgo.MAX: Mux(v > e, v, e),
            AluAlgo.MIN: Mux(v < e, v, e),
            AluAlgo.ADD: v + e,
            AluAlgo.MINUS: v - e,
            AluAlgo.ABS: Mux(v[-1], (-v)[:32].as_signed(), v),
            AluAlgo.NEG: (-v)[:32].as_signed(),
        }
        with m.Switch(self._frame.cfg.EW_CFG.EW_ALU_ALGO):
            for algo, value in results.items():
                with m.Case(algo):
                    m.d.comb += result.eq(extend(value, 48))
