"""The element-wise stage of the DPU's pipe: stages 8 and 9 and the fetch of their operand (docs 4.7)."""

from amaranth.hdl import Cat, Const, Mux, Signal, Value, signed, unsigned

from rtl.layouts import LANES
from rtl.npu import float32
from rtl.npu.dpu_frame import IDLE, AluAlgo, Frame, Rectifier
from rtl.npu.dpu_math import HIGHEST, LOWEST, clamp, extend, round_shift


class EwOperand:
    """Two stages of their own ahead of the EW stage: fetch and convert the second operand.

    `values` are the operands; `there` tells whether they are. `take` is high when an octet uses them.
    """

    def __init__(self, frame: Frame, ew: object, active: Signal) -> None:
        m, cfg = frame.m, frame.cfg
        self.take = Signal()
        fetch = frame.flag(cfg.EW_CFG.EW_OP_SRC & ~cfg.EW_CFG.EW_OP_BYPASS & ~cfg.EW_CFG.EW_BYPASS)
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
            ew.ready.eq(active & fetch & go1),
        ]
        with m.If(go1):
            m.d.sync += have1.eq(ew.valid & ew.ready)
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
                with m.If(floats & cfg.EW_CFG.EW_OP_TYPE):
                    m.d.sync += self.values[lane].eq(float32.widen_fp16(m, register.as_unsigned()[:16]))
                with m.Else():
                    m.d.sync += self.values[lane].eq(register)
            with m.Elif(go2 & have1):
                m.d.sync += self.values[lane].eq(limited)
        self.there = have2 | ~fetch


class EwStage:
    """Stages 8 and 9: ALU or multiplier, then shift and ReLU; a float division takes its time.

    `values` are the results, `may_advance` tells whether an octet in stage 7 has what it needs.
    """

    def __init__(
        self, frame: Frame, main: list[Signal], operand: EwOperand, divider: float32.Divider
    ) -> None:
        m, cfg, valid = frame.m, frame.cfg, frame.valid
        self._frame, self._divider = frame, divider
        on = ~cfg.EW_CFG.EW_BYPASS
        op = on & ~cfg.EW_CFG.EW_OP_BYPASS
        floats = frame.late_floats
        self._alu = frame.flag(op & ~cfg.EW_CFG.EW_OP_TYPE)
        mul = frame.flag(op & cfg.EW_CFG.EW_OP_TYPE)
        prelu = frame.flag(cfg.EW_CFG.EW_MUL_PRELU)
        positive = frame.shift("ew_pos", cfg.EW_CVT_SCALE_VALUE.EW_TRUNCATE)
        negative = frame.shift("ew_neg", cfg.DATA_FORMAT.EW_TRUNCATE_NEG)
        rectifier = Rectifier(frame, "EW", on)
        m.d.comb += operand.take.eq(frame.advance & valid[7])
        divided = self._divide(main, operand)
        self.may_advance = ~valid[7] | (operand.there & divided)

        algo = cfg.EW_CFG.EW_ALU_ALGO
        two = (algo == AluAlgo.ADD) | (algo == AluAlgo.MINUS)
        whole = (algo == AluAlgo.FLOOR) | (algo == AluAlgo.CEIL)
        adds = frame.gate(valid[7], floats, frame.flag(op & ~cfg.EW_CFG.EW_OP_TYPE & two))
        rounds = frame.gate(valid[7], floats, frame.flag(op & ~cfg.EW_CFG.EW_OP_TYPE & whole))
        best = (algo == AluAlgo.MAX) | (algo == AluAlgo.MIN)
        compares = frame.gate(valid[7], floats, frame.flag(op & ~cfg.EW_CFG.EW_OP_TYPE & best))
        least = frame.flag(algo == AluAlgo.MIN)
        multiplies, rectifies = frame.gate(valid[7], floats, mul), frame.gate(valid[8], floats)
        minus, up = frame.flag(algo == AluAlgo.MINUS), frame.flag(algo == AluAlgo.CEIL)
        product, plain = frame.lanes("ew_product", signed(48)), frame.lanes("ew_plain", unsigned(1))
        self.values = frame.lanes("ew_value", signed(32))
        for lane in range(LANES):
            v, e = main[lane], operand.values[lane]
            result, skip = Signal(signed(48), init=IDLE), Signal()
            bits, other = v.as_unsigned(), e.as_unsigned()
            with m.If(adds):
                float_sum = float32.add(m, bits, Cat(other[:31], other[31] ^ minus))
            with m.If(multiplies):
                float_product = float32.multiply(m, bits, other)
            with m.If(rounds):
                float_whole = float32.to_integral(m, bits, up)
            with m.If(compares):
                first, second = float32.wire(m, bits, 32), float32.wire(m, other, 32)
                high, low = Mux(least, second, first), Mux(least, first, second)
                above = float32.greater(float32.wire(m, high, 32), float32.wire(m, low, 32))
                float_best = float32.wire(m, Mux(above, first, second), 32)
            with m.If(valid[7]):
                m.d.comb += skip.eq(~mul | (prelu & ~v[-1]))
                with m.If(floats):
                    with m.If(~skip):
                        m.d.comb += result.eq(float_product)
                    with m.Elif(self._alu):
                        m.d.comb += result.eq(v)
                        results = (float_best, float_sum, float_whole, divider.result[lane])
                        self._float_alu(result, bits, *results)
                    with m.Else():
                        m.d.comb += result.eq(v)
                with m.Elif(~skip):
                    m.d.comb += result.eq(v * e[:16].as_signed())
                with m.Else():
                    m.d.comb += result.eq(extend(v, 48))
                    with m.If(self._alu):
                        self._integer_alu(result, v, e)
            with frame.into(8):
                m.d.sync += [product[lane].eq(result), plain[lane].eq(skip)]

            limited = Signal(signed(32), init=IDLE)
            with m.If(rectifies):
                float_limited = rectifier.of_float(product[lane][:32])
            with m.If(valid[8]):
                with m.If(floats):
                    m.d.comb += limited.eq(float_limited)
                with m.Else():
                    scaled = frame.scaled(product[lane], plain[lane], positive, negative)
                    m.d.comb += limited.eq(clamp(scaled, rectifier.low, rectifier.high))
            with frame.into(9):
                m.d.sync += self.values[lane].eq(limited)

    def _divide(self, main: list[Signal], operand: EwOperand) -> Value:
        """Start a division once for each octet that needs one; whether nothing is left to wait for."""
        frame, divider = self._frame, self._divider
        m, cfg = frame.m, frame.cfg.EW_CFG
        wanted = ~cfg.EW_BYPASS & ~cfg.EW_OP_BYPASS & ~cfg.EW_OP_TYPE & (cfg.EW_ALU_ALGO == AluAlgo.DIV)
        divides = frame.flag(wanted & frame.float_domain & ~frame.lut_live)
        begun = Signal()
        m.d.comb += divider.start.eq(divides & frame.valid[7] & operand.there & ~begun)
        with m.If(frame.start | frame.advance):
            m.d.sync += begun.eq(0)
        with m.Elif(divider.start):
            m.d.sync += begun.eq(1)
        for lane in range(LANES):
            m.d.comb += [divider.a[lane].eq(main[lane]), divider.b[lane].eq(operand.values[lane])]
        return ~divides | (begun & divider.done)

    def _integer_alu(self, result: Signal, v: Signal, e: Signal) -> None:
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

    def _float_alu(
        self, result: Signal, v: Value, best: Value, total: Value, whole: Value, quotient: Value
    ) -> None:
        """The same of binary32, with the functions that only floats have; the dear ones are given."""
        m, algo = self._frame.m, self._frame.cfg.EW_CFG.EW_ALU_ALGO
        with m.Switch(algo):
            with m.Case(AluAlgo.MAX, AluAlgo.MIN):
                m.d.comb += result.eq(best)
            with m.Case(AluAlgo.ADD, AluAlgo.MINUS):
                m.d.comb += result.eq(total)
            with m.Case(AluAlgo.DIV):
                m.d.comb += result.eq(quotient)
            with m.Case(AluAlgo.ABS):
                m.d.comb += result.eq(Cat(v[:31], Const(0, 1)))
            with m.Case(AluAlgo.NEG):
                m.d.comb += result.eq(float32.negate(v))
            with m.Case(AluAlgo.FLOOR, AluAlgo.CEIL):
                m.d.comb += result.eq(whole)
