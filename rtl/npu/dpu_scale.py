"""CPEND, BS and BN of the DPU's pipe: stages 1 to 6 (docs 4.3 to 4.6)."""

from amaranth.hdl import Cat, Mux, Signal, Value, signed, unsigned

from rtl.layouts import LANES
from rtl.npu import float32
from rtl.npu.dpu_frame import IDLE, AluAlgo, Frame, Rectifier
from rtl.npu.dpu_math import HIGHEST, LOWEST, clamp, extend
from rtl.npu.dpu_table import OperandTable


class _Settings:
    """The settings that BS and BN have in common, held from the start of the task on."""

    def __init__(self, frame: Frame, name: str) -> None:
        cfg = frame.cfg
        stage, multiplier = getattr(cfg, f"{name}_CFG"), getattr(cfg, f"{name}_MUL_CFG")
        on = ~stage[f"{name}_BYPASS"]
        algo = stage[f"{name}_ALU_ALGO"]
        known = (algo == AluAlgo.ADD) | (algo == AluAlgo.MINUS)
        self.add = frame.flag(on & ~stage[f"{name}_ALU_BYPASS"] & known)
        self.minus = frame.flag(algo == AluAlgo.MINUS)
        self.alu_src = frame.flag(stage[f"{name}_ALU_SRC"])
        self.mul = frame.flag(on & ~stage[f"{name}_MUL_BYPASS"])
        self.prelu = frame.flag(stage[f"{name}_MUL_PRELU"])
        self.mul_src = frame.flag(multiplier[f"{name}_MUL_SRC"])
        self._alu_reg = getattr(cfg, f"{name}_ALU_CFG")[f"{name}_ALU_OPERAND"]
        self._mul_reg = multiplier[f"{name}_MUL_OPERAND"]
        self.positive = frame.shift(f"{name}_pos", multiplier[f"{name}_MUL_SHIFT_VALUE"])
        self.negative = frame.shift(f"{name}_neg", cfg.DATA_FORMAT[f"{name}_MUL_SHIFT_VALUE_NEG"])
        self.rectifier = Rectifier(frame, name, on)
        self.wanted = (self.add & self.alu_src) | (self.mul & self.mul_src)
        """Values of the read DMA are used."""

    def addend(self, table: OperandTable, lane: int) -> Value:
        """The ALU's operand, signed 32 bits or a binary32."""
        return Mux(self.alu_src, table.operands.alu[lane].as_signed(), self._alu_reg)

    def factor(self, table: OperandTable, lane: int) -> Value:
        """The multiplier's operand, signed 16 bits or an fp16."""
        return Mux(self.mul_src, table.operands.mul[lane].as_signed(), self._mul_reg)


def _signed_float(value: Value, flip: Value) -> Value:
    """The binary32 `value`, its sign flipped where `flip` is set."""
    return Cat(value[:31], value[31] ^ flip)


def bs_stages(
    frame: Frame, main: list[Signal], sums: list[Signal], table: OperandTable, load: object
) -> list[Signal]:
    """Stages 1 to 4: CPEND and the adder, the multiplier, shift with saturation and ReLU."""
    m, cfg, valid = frame.m, frame.cfg, frame.valid
    bs = _Settings(frame, "BS")
    flying = cfg.FEATURE_MODE_CFG.FLYING_MODE
    cpend = frame.flag(~cfg.BS_OW_CFG.OD_BYPASS & ~flying & ~frame.float_domain)
    cpend_src = frame.flag(cfg.BS_OW_CFG.OW_SRC)
    frame.table(table, load, (cpend & cpend_src) | bs.wanted, 0)

    total, factor = frame.lanes("bs_total", signed(48)), frame.lanes("bs_factor", signed(16))
    product, plain = frame.lanes("bs_product", signed(63)), frame.lanes("bs_plain", unsigned(1))
    value = frame.lanes("bs_value", signed(32))
    adds = frame.gate(valid[1], frame.floats, bs.add)
    multiplies = frame.gate(valid[2], frame.floats, bs.mul)
    rectifies = frame.gate(valid[3], frame.floats)
    for lane in range(LANES):
        window, sum_ = Signal(signed(48), init=IDLE), Signal(signed(48), init=IDLE)
        scale = Signal(signed(16), init=IDLE)
        with m.If(adds):
            operand = _signed_float(frame.wire(bs.addend(table, lane)), bs.minus)
            float_sum = float32.add(m, main[lane].as_unsigned(), operand)
        with m.If(valid[1]):
            with m.If(frame.floats):
                m.d.comb += sum_.eq(Mux(bs.add, float_sum, main[lane].as_unsigned()))
            with m.Else():
                with m.If(cpend & cpend_src):
                    m.d.comb += window.eq(sums[lane] * table.operands.cpend[lane].as_signed())
                with m.Elif(cpend):
                    m.d.comb += window.eq(sums[lane] * cfg.BS_OW_OP.OW_OP)
                with m.Else():
                    m.d.comb += window.eq(0)
                before = frame.wire(main[lane] + window)
                with m.If(bs.add):
                    operand = frame.wire(bs.addend(table, lane))
                    with m.If(bs.minus):
                        m.d.comb += sum_.eq(before - operand)
                    with m.Else():
                        m.d.comb += sum_.eq(before + operand)
                with m.Else():
                    m.d.comb += sum_.eq(before)
            with m.If(bs.mul):
                m.d.comb += scale.eq(bs.factor(table, lane))
        with frame.into(2):
            m.d.sync += [total[lane].eq(sum_), factor[lane].eq(scale)]

        result, skip = Signal(signed(63), init=IDLE), Signal()
        with m.If(multiplies):
            wide = float32.widen_fp16(m, factor[lane].as_unsigned())
            float_product = float32.multiply(m, total[lane][:32], wide)
        with m.If(valid[2]):
            with m.If(frame.floats):
                passes = ~bs.mul | (bs.prelu & ~total[lane][31])
                m.d.comb += result.eq(Mux(passes, total[lane][:32], float_product))
            with m.Else():
                m.d.comb += skip.eq(~bs.mul | (bs.prelu & ~total[lane][-1]))
                with m.If(skip):
                    m.d.comb += result.eq(extend(total[lane], 63))
                with m.Else():
                    m.d.comb += result.eq(total[lane] * factor[lane])
        with frame.into(3):
            m.d.sync += [product[lane].eq(result), plain[lane].eq(skip)]

        limited = Signal(signed(32), init=IDLE)
        with m.If(rectifies):
            float_limited = bs.rectifier.of_float(product[lane][:32])
        with m.If(valid[3]):
            with m.If(frame.floats):
                m.d.comb += limited.eq(float_limited)
            with m.Else():
                scaled = frame.scaled(product[lane], plain[lane], bs.positive, bs.negative)
                m.d.comb += limited.eq(clamp(scaled, bs.rectifier.low, bs.rectifier.high))
        with frame.into(4):
            m.d.sync += value[lane].eq(limited)
    return value


def bn_stages(frame: Frame, main: list[Signal], table: OperandTable, load: object) -> list[Signal]:
    """Stages 5 and 6: multiply, then shift, add, ReLU."""
    m, valid = frame.m, frame.valid
    bn = _Settings(frame, "BN")
    frame.table(table, load, bn.wanted, 3)

    product, plain = frame.lanes("bn_product", signed(48)), frame.lanes("bn_plain", unsigned(1))
    operand, value = frame.lanes("bn_operand", signed(33)), frame.lanes("bn_value", signed(32))
    multiplies = frame.gate(valid[4], frame.floats, bn.mul)
    adds = frame.gate(valid[5], frame.floats, bn.add)
    rectifies = frame.gate(valid[5], frame.floats)
    for lane in range(LANES):
        result, skip = Signal(signed(48), init=IDLE), Signal()
        addend = Signal(signed(33), init=IDLE)
        with m.If(multiplies):
            wide = float32.widen_fp16(m, frame.wire(bn.factor(table, lane)).as_unsigned())
            float_product = float32.multiply(m, main[lane].as_unsigned(), wide)
        with m.If(valid[4]):
            # The sign bit of a binary32 is where that of an integer is.
            m.d.comb += skip.eq(~bn.mul | (bn.prelu & ~main[lane][-1]))
            with m.If(skip):
                m.d.comb += result.eq(extend(main[lane], 48))
            with m.Elif(frame.floats):
                m.d.comb += result.eq(float_product)
            with m.Else():
                factor = frame.wire(bn.factor(table, lane))
                m.d.comb += result.eq(main[lane] * factor)
            with m.If(bn.add):
                term = frame.wire(bn.addend(table, lane))
                with m.If(frame.floats):
                    m.d.comb += addend.eq(_signed_float(term, bn.minus))
                with m.Elif(bn.minus):
                    m.d.comb += addend.eq(-term)
                with m.Else():
                    m.d.comb += addend.eq(extend(term, 33))
            with m.Else():
                m.d.comb += addend.eq(0)
        with frame.into(5):
            m.d.sync += [product[lane].eq(result), plain[lane].eq(skip), operand[lane].eq(addend)]

        limited = Signal(signed(32), init=IDLE)
        with m.If(adds):
            float_sum = float32.add(m, product[lane][:32], operand[lane][:32])
        with m.If(rectifies):
            moved = float32.wire(m, Mux(bn.add, float_sum, product[lane][:32]))
            float_limited = bn.rectifier.of_float(moved)
        with m.If(valid[5]):
            with m.If(frame.floats):
                m.d.comb += limited.eq(float_limited)
            with m.Else():
                scaled = frame.scaled(product[lane], plain[lane], bn.positive, bn.negative)
                total = frame.wire(frame.wire(clamp(scaled, LOWEST, HIGHEST)) + operand[lane])
                m.d.comb += limited.eq(clamp(total, bn.rectifier.low, bn.rectifier.high))
        with frame.into(6):
            m.d.sync += value[lane].eq(limited)
    return value
