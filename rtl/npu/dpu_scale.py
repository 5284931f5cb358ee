"""CPEND, BS and BN of integers: stages 1 to 6 of the DPU's pipe (docs 4.3 to 4.6)."""

from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Cat, Mux, Signal, Value, signed, unsigned

from rtl.layouts import ACC_BITS, LANES
from rtl.npu.dpu_frame import IDLE, AluAlgo, Frame, Rectifier
from rtl.npu.dpu_math import HIGHEST, LOWEST, clamp, extend
from rtl.npu.dpu_table import OperandTable


@dataclass(frozen=True)
class StageOut:
    """A stage's results, a register for each lane, and whether it uses values of the read DMA."""

    values: list[Signal]
    wanted: Value


class CoreSums:
    """What only sums of CORE have, of the octet in stage 1.

    Members
    -------
    live : Value
        held: main data are sums of CORE, integers.
    high, sums : list of Signal
        of each lane the bits above the low 32, and the window sum.
    shift, half, dropped, to_even : Signal
        CLIP_TRUNCATE: its shift, half a unit of the last place that stays, what goes, and how ties go.
    """

    def __init__(self, frame: Frame) -> None:
        self.live = frame.flag(~frame.cfg.FEATURE_MODE_CFG.FLYING_MODE & ~frame.float_domain)
        self.high = frame.lanes("high", signed(ACC_BITS - 32))
        self.sums = frame.lanes("sum", signed(32))
        self.shift = Signal(5, name="cut_shift", reset_less=True)
        self.half = Signal(31, name="cut_half", reset_less=True)
        self.dropped = Signal(31, name="cut_dropped", reset_less=True)
        self.to_even = Signal(name="cut_to_even", reset_less=True)

    def load(self, given: Any) -> list[Any]:
        """Statements that take a `PipeIn` over."""
        clip = given.clip
        unit = Value.cast(1) << clip.shift
        return [
            *(self.high[lane].eq(given.high[lane]) for lane in range(LANES)),
            *(self.sums[lane].eq(given.sum[lane]) for lane in range(LANES)),
            self.shift.eq(clip.shift),
            self.half.eq(unit >> 1),
            self.dropped.eq(unit - 1),
            self.to_even.eq(~clip.half_up),
        ]

    def cut(self, frame: Frame, value: Signal) -> Value:
        """A sum shifted and rounded; the shift is not 0."""
        biased = frame.wire(value + self.half)
        tie = self.to_even & ((biased[: len(self.dropped)] & self.dropped) == 0)
        shifted = biased >> self.shift
        return Cat(shifted[0] & ~tie, shifted[1:]).as_signed()


class _Settings:
    """The settings that BS and BN have in common, held from the start of the task on."""

    def __init__(self, frame: Frame, name: str) -> None:
        cfg = frame.cfg
        stage, multiplier = getattr(cfg, f"{name}_CFG"), getattr(cfg, f"{name}_MUL_CFG")
        on = ~stage[f"{name}_BYPASS"] & ~frame.float_domain
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
        """The ALU's operand, signed 32 bits."""
        return Mux(self.alu_src, table.operands.alu[lane].as_signed(), self._alu_reg)

    def factor(self, table: OperandTable, lane: int) -> Value:
        """The multiplier's operand, signed 16 bits."""
        return Mux(self.mul_src, table.operands.mul[lane].as_signed(), self._mul_reg)


def bs_stages(frame: Frame, main: list[Signal], core: CoreSums, table: OperandTable) -> StageOut:
    """Stages 1 to 4: CPEND and the adder, the multiplier, shift with saturation and ReLU."""
    m, cfg, valid = frame.m, frame.cfg, frame.valid
    bs = _Settings(frame, "BS")
    flying = cfg.FEATURE_MODE_CFG.FLYING_MODE
    live = ~cfg.BS_OW_CFG.OD_BYPASS & ~frame.float_domain
    cpend = frame.flag(live & ~flying)
    cpend_src = frame.flag(cfg.BS_OW_CFG.OW_SRC)
    wanted = frame.flag(live & cfg.BS_OW_CFG.OW_SRC)  # also flying, where nothing uses it (docs 4.3)
    cuts = Signal()
    m.d.comb += cuts.eq(valid[1] & core.live & (core.shift != 0))

    total, factor = frame.lanes("bs_total", signed(33)), frame.lanes("bs_factor", signed(16))
    product, plain = frame.lanes("bs_product", signed(49)), frame.lanes("bs_plain", unsigned(1))
    value = frame.lanes("bs_value", signed(32))
    for lane in range(LANES):
        window, sum_ = Signal(signed(ACC_BITS), init=IDLE), Signal(signed(33), init=IDLE)
        scale, short = Signal(signed(16), init=IDLE), Signal(signed(50), init=IDLE)
        before = Signal(signed(32), init=IDLE)
        with m.If(valid[1] & core.live):
            with m.If(cpend & cpend_src):
                m.d.comb += window.eq(core.sums[lane] * table.operands.cpend[lane].as_signed())
            with m.Elif(cpend):
                m.d.comb += window.eq(core.sums[lane] * cfg.BS_OW_OP.OW_OP)
            with m.Else():
                m.d.comb += window.eq(0)
            whole = frame.wire(Cat(main[lane], core.high[lane]).as_signed() + window)
            with m.If(cuts):
                m.d.comb += short.eq(core.cut(frame, whole))
            with m.Else():
                m.d.comb += short.eq(extend(whole, 50))
            m.d.comb += before.eq(clamp(short, LOWEST, HIGHEST))
        with m.Else():
            m.d.comb += before.eq(main[lane])
        with m.If(valid[1]):
            with m.If(bs.add):
                operand = frame.wire(bs.addend(table, lane))
                with m.If(bs.minus):
                    m.d.comb += sum_.eq(before - operand)
                with m.Else():
                    m.d.comb += sum_.eq(before + operand)
            with m.Else():
                m.d.comb += sum_.eq(extend(before, 33))
            with m.If(bs.mul):
                m.d.comb += scale.eq(bs.factor(table, lane))
        with frame.into(2):
            m.d.sync += [total[lane].eq(sum_), factor[lane].eq(scale)]

        result, skip = Signal(signed(49), init=IDLE), Signal()
        with m.If(valid[2]):
            m.d.comb += skip.eq(~bs.mul | (bs.prelu & ~total[lane][-1]))
            with m.If(skip):
                m.d.comb += result.eq(extend(total[lane], 49))
            with m.Else():
                m.d.comb += result.eq(total[lane] * factor[lane])
        with frame.into(3):
            m.d.sync += [product[lane].eq(result), plain[lane].eq(skip)]

        with m.If(valid[3]):
            scaled = frame.scaled(product[lane], plain[lane], bs.positive, bs.negative)
            limited = frame.wire(clamp(scaled, bs.rectifier.low, bs.rectifier.high))
        with frame.into(4):
            m.d.sync += value[lane].eq(limited)
    return StageOut(value, wanted | bs.wanted)


def bn_stages(frame: Frame, main: list[Signal], table: OperandTable) -> tuple[StageOut, list[Signal]]:
    """Stages 5 and 6: multiply, then shift, add, ReLU; also what the registers load with the next octet."""
    m, valid = frame.m, frame.valid
    bn = _Settings(frame, "BN")
    product, plain = frame.lanes("bn_product", signed(48)), frame.lanes("bn_plain", unsigned(1))
    operand, value = frame.lanes("bn_operand", signed(33)), frame.lanes("bn_value", signed(32))
    entering: list[Signal] = []
    for lane in range(LANES):
        result, skip = Signal(signed(48), init=IDLE), Signal()
        addend = Signal(signed(33), init=IDLE)
        with m.If(valid[4]):
            m.d.comb += skip.eq(~bn.mul | (bn.prelu & ~main[lane][-1]))
            with m.If(skip):
                m.d.comb += result.eq(extend(main[lane], 48))
            with m.Else():
                factor = frame.wire(bn.factor(table, lane))
                m.d.comb += result.eq(main[lane] * factor)
            with m.If(bn.add):
                term = frame.wire(bn.addend(table, lane))
                with m.If(bn.minus):
                    m.d.comb += addend.eq(-term)
                with m.Else():
                    m.d.comb += addend.eq(extend(term, 33))
            with m.Else():
                m.d.comb += addend.eq(0)
        with frame.into(5):
            m.d.sync += [product[lane].eq(result), plain[lane].eq(skip), operand[lane].eq(addend)]
        with m.If(valid[5]):
            scaled = frame.scaled(product[lane], plain[lane], bn.positive, bn.negative)
            total = frame.wire(frame.wire(clamp(scaled, LOWEST, HIGHEST)) + operand[lane])
            limited = frame.wire(clamp(total, bn.rectifier.low, bn.rectifier.high))
        entering.append(limited)
        with frame.into(6):
            m.d.sync += value[lane].eq(limited)
    return StageOut(value, bn.wanted), entering
