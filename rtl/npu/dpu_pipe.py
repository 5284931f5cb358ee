"""The DPU's arithmetic: CPEND, BS, BN, EW and OUT_CVT, eight lanes a cycle (H 5, docs section 4)."""

from amaranth.hdl import Cat, Module, Mux, Shape, Signal, Value, ValueLike, signed, unsigned
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from rtl.layouts import LANES, BsOctet, ElementOctet
from rtl.npu.dpu_math import (
    HIGHEST,
    LOWEST,
    Shift,
    clamp,
    extend,
    rectifier_limits,
    round_shift,
    shift_of,
)
from rtl.npu.dpu_table import OperandTable
from rtl.regfile import config_signature

STAGES = 10

IDLE = 1
"""What wires of a stage without an octet show.  Not 0: Verilator turns `valid ? x : 0` into a mask, which
always evaluates `x`."""


class Precision(enum.IntEnum):
    """Codes of the DPU's integer types (H 2.4); the other types come later."""

    INT8 = 0
    INT16 = 1
    INT32 = 4


class AluAlgo(enum.IntEnum):
    """BS_ALU_ALGO, BN_ALU_ALGO and EW_ALU_ALGO (H 5.3, 5.6)."""

    MAX = 0
    MIN = 1
    ADD = 2
    MINUS = 4
    ABS = 5
    NEG = 6


class OctetTag(data.Struct):
    """Where an octet belongs: its place in group and stripe, and what ends with it.

    `octet` in the channel group, `slot` the pixel in the stripe, `live` the lanes (0..8) that are
    real channels.
    """

    octet: 3
    slot: 4
    live: 4
    stripe_last: 1
    group_last: 1
    task_last: 1


class PipeIn(data.Struct):
    """Main data of eight channels of a pixel with their window sums."""

    main: data.ArrayLayout(32, LANES)
    sum: data.ArrayLayout(32, LANES)
    tag: OctetTag


class PipeOut(data.Struct):
    """Eight converted elements, each in the low bits of its 32."""

    data: data.ArrayLayout(32, LANES)
    tag: OctetTag


class DpuPipe(wiring.Component):
    """Ten registered stages that advance together; a bubble stays a bubble.

    Members
    -------
    cfg : configuration of the DPU
    start : 1, in
        A task starts: settings are copied, tables are emptied.
    active : 1, in
        A task runs.
    octets : 4, in
        Octets of a full channel group.
    source : stream of PipeIn, in
    bs, bn : streams of BsOctet, in
        Operands of BRDMA and NRDMA; dropped where the settings do not use them.
    ew : stream of ElementOctet, in
        Operands of ERDMA; left alone where the settings do not use them.
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
                "result": Out(stream.Signature(PipeOut)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        self._m = m
        self._flags = Signal(32, name="flags", reset_less=True)
        self._flag_values: list[Value] = []
        self.valid = [Signal(name=f"valid{k}") for k in range(STAGES + 1)]
        self.tag = [Signal(OctetTag, name=f"tag{k}", reset_less=True) for k in range(STAGES + 1)]
        self.advance = Signal()
        bs_table, bn_table = OperandTable(), OperandTable()
        m.submodules.bs_table, m.submodules.bn_table = bs_table, bn_table
        m.d.comb += [
            self.source.ready.eq(self.advance & bs_table.available),
            self.valid[0].eq(self.source.valid & bs_table.available),
            self.tag[0].eq(self.source.payload.tag),
        ]
        with m.If(self.result.ready):  # taken, even if the pipe waits for an operand
            m.d.sync += self.valid[STAGES].eq(0)
        for k in range(STAGES):
            with m.If(self.advance):
                m.d.sync += self.valid[k + 1].eq(self.valid[k])
            with self._into(k + 1):
                m.d.sync += self.tag[k + 1].eq(self.tag[k])

        main, sums = self._lanes("main", signed(32)), self._lanes("sum", signed(32))
        with self._into(1):
            for lane in range(LANES):
                m.d.sync += main[lane].eq(self.source.payload.main[lane])
                m.d.sync += sums[lane].eq(self.source.payload.sum[lane])
        value = self._bs(main, sums, bs_table)
        value = self._bn(value, bn_table)
        value, ew_ok = self._ew(value)
        self._out_cvt(value)
        with m.If(self.start):
            m.d.sync += self._flags.eq(Cat(*self._flag_values))
        # An octet that lacks its BN or EW operand stops the whole pipe.
        m.d.comb += self.advance.eq(
            (~self.valid[STAGES] | self.result.ready) & (~self.valid[3] | bn_table.available) & ew_ok
        )
        m.d.comb += [self.result.valid.eq(self.valid[STAGES]), self.result.payload.tag.eq(self.tag[STAGES])]
        return m

    # ---- helpers

    def _into(self, stage: int) -> object:
        """Condition under which the registers of `stage` load."""
        return self._m.If(self.advance & self.valid[stage - 1])

    def _lanes(self, name: str, shape: Shape) -> list[Signal]:
        return [Signal(shape, name=f"{name}_{lane}", reset_less=True) for lane in range(LANES)]

    def _flag(self, value: Value) -> Value:
        """One bit that holds `value` from the start of the task on; all share a register."""
        self._flag_values.append(value)
        return self._flags[len(self._flag_values) - 1]

    def _setting(self, name: str, value: ValueLike, shape: Shape) -> Signal:
        """A register that holds `value` from the start of the task on."""
        held = Signal(shape, name=f"set_{name}", reset_less=True)
        with self._m.If(self.start):
            self._m.d.sync += held.eq(value)
        return held

    def _shift(self, name: str, count: Value) -> Shift:
        """A `Shift` held from the start of the task on."""
        shift = shift_of(count)
        return Shift(
            self._setting(f"{name}_count", shift.count, unsigned(6)),
            self._setting(f"{name}_below", shift.below, unsigned(62)),
            self._setting(f"{name}_unit", shift.unit, unsigned(63)),
        )

    def _limits(self, name: str, on: Value, stage: object, limit: Value) -> tuple[Signal, Signal]:
        """Held limits of a stage's saturation, ReLU and ReLUX."""
        relu = on & ~stage[f"{name}_RELU_BYPASS"]
        low, high = rectifier_limits(relu, relu & stage[f"{name}_RELUX_EN"], limit)
        return self._setting(f"{name}_low", low, signed(32)), self._setting(f"{name}_high", high, signed(32))

    def _wire(self, value: Value) -> Signal:
        """`value` as a signal that is driven under the conditions around this call."""
        wire = Signal(value.shape(), init=IDLE)
        self._m.d.comb += wire.eq(value)
        return wire

    def _scaled(self, product: Signal, plain: Value, positive: Shift, negative: Shift) -> Signal:
        """The product shifted by its sign's count, unshifted where `plain`."""
        m = self._m
        result = Signal(signed(64), init=IDLE)
        with m.If(plain):
            m.d.comb += result.eq(extend(product, 64))
        with m.Elif(product[-1]):
            m.d.comb += result.eq(round_shift(product, negative))
        with m.Else():
            m.d.comb += result.eq(round_shift(product, positive))
        return result

    def _table(self, table: OperandTable, load: object, wanted: Value, stage: int) -> None:
        """Connect an operand table whose look-up takes place between `stage` and `stage` + 1."""
        wiring.connect(self._m, wiring.flipped(load), table.load)
        tag = self.tag[stage]
        self._m.d.comb += [
            table.clear.eq(self.start),
            table.active.eq(self.active),
            table.wanted.eq(wanted),
            table.octets.eq(self.octets),
            table.octet.eq(tag.octet),
            table.take.eq(self.advance & self.valid[stage]),
            table.release.eq(tag.group_last),
        ]

    # ---- stages
    #
    # What lies between two stages hangs on the valid bit of the first, so that a simulator skips it.

    def _bs(self, main: list[Signal], sums: list[Signal], table: OperandTable) -> list[Signal]:
        """Stages 1 to 4: CPEND and the BS adder, the multiplier, shift with saturation and ReLU."""
        m, cfg = self._m, self.cfg
        on = ~cfg.BS_CFG.BS_BYPASS
        algo = cfg.BS_CFG.BS_ALU_ALGO
        known = (algo == AluAlgo.ADD) | (algo == AluAlgo.MINUS)
        cpend = self._flag(~cfg.BS_OW_CFG.OD_BYPASS & ~cfg.FEATURE_MODE_CFG.FLYING_MODE)
        cpend_src = self._flag(cfg.BS_OW_CFG.OW_SRC)
        add = self._flag(on & ~cfg.BS_CFG.BS_ALU_BYPASS & known)
        minus = self._flag(algo == AluAlgo.MINUS)
        alu_src = self._flag(cfg.BS_CFG.BS_ALU_SRC)
        mul = self._flag(on & ~cfg.BS_CFG.BS_MUL_BYPASS)
        prelu = self._flag(cfg.BS_CFG.BS_MUL_PRELU)
        mul_src = self._flag(cfg.BS_MUL_CFG.BS_MUL_SRC)
        alu_reg, mul_reg = cfg.BS_ALU_CFG.BS_ALU_OPERAND, cfg.BS_MUL_CFG.BS_MUL_OPERAND
        positive = self._shift("bs_pos", cfg.BS_MUL_CFG.BS_MUL_SHIFT_VALUE)
        negative = self._shift("bs_neg", cfg.DATA_FORMAT.BS_MUL_SHIFT_VALUE_NEG)
        low, high = self._limits("BS", on, cfg.BS_CFG, cfg.BS_RELUX_CMP_VALUE.BS_RELUX_CMP_DAT)
        self._table(table, self.bs, (cpend & cpend_src) | (add & alu_src) | (mul & mul_src), 0)

        total, factor = self._lanes("bs_total", signed(48)), self._lanes("bs_factor", signed(16))
        product, plain = self._lanes("bs_product", signed(63)), self._lanes("bs_plain", unsigned(1))
        value = self._lanes("bs_value", signed(32))
        for lane in range(LANES):
            window, sum_ = Signal(signed(48), init=IDLE), Signal(signed(48), init=IDLE)
            scale = Signal(signed(16), init=IDLE)
            with m.If(self.valid[1]):
                with m.If(cpend & cpend_src):
                    m.d.comb += window.eq(sums[lane] * table.operands.cpend[lane].as_signed())
                with m.Elif(cpend):
                    m.d.comb += window.eq(sums[lane] * cfg.BS_OW_OP.OW_OP)
                with m.Else():
                    m.d.comb += window.eq(0)
                before = self._wire(main[lane] + window)
                with m.If(add):
                    operand = self._wire(Mux(alu_src, table.operands.alu[lane].as_signed(), alu_reg))
                    with m.If(minus):
                        m.d.comb += sum_.eq(before - operand)
                    with m.Else():
                        m.d.comb += sum_.eq(before + operand)
                with m.Else():
                    m.d.comb += sum_.eq(before)
                with m.If(mul):
                    m.d.comb += scale.eq(Mux(mul_src, table.operands.mul[lane].as_signed(), mul_reg))
            with self._into(2):
                m.d.sync += [total[lane].eq(sum_), factor[lane].eq(scale)]
            result, skip = Signal(signed(63), init=IDLE), Signal()
            with m.If(self.valid[2]):
                m.d.comb += skip.eq(~mul | (prelu & ~total[lane][-1]))
                with m.If(skip):
                    m.d.comb += result.eq(extend(total[lane], 63))
                with m.Else():
                    m.d.comb += result.eq(total[lane] * factor[lane])
            with self._into(3):
                m.d.sync += [product[lane].eq(result), plain[lane].eq(skip)]
            with m.If(self.valid[3]):
                scaled = self._scaled(product[lane], plain[lane], positive, negative)
                limited = self._wire(clamp(scaled, low, high))
            with self._into(4):
                m.d.sync += value[lane].eq(limited)
        return value

    def _bn(self, main: list[Signal], table: OperandTable) -> list[Signal]:
        """Stages 5 and 6: multiply, then shift, add, ReLU."""
        m, cfg = self._m, self.cfg
        on = ~cfg.BN_CFG.BN_BYPASS
        algo = cfg.BN_CFG.BN_ALU_ALGO
        known = (algo == AluAlgo.ADD) | (algo == AluAlgo.MINUS)
        add = self._flag(on & ~cfg.BN_CFG.BN_ALU_BYPASS & known)
        minus = self._flag(algo == AluAlgo.MINUS)
        alu_src = self._flag(cfg.BN_CFG.BN_ALU_SRC)
        mul = self._flag(on & ~cfg.BN_CFG.BN_MUL_BYPASS)
        prelu = self._flag(cfg.BN_CFG.BN_MUL_PRELU)
        mul_src = self._flag(cfg.BN_MUL_CFG.BN_MUL_SRC)
        alu_reg, mul_reg = cfg.BN_ALU_CFG.BN_ALU_OPERAND, cfg.BN_MUL_CFG.BN_MUL_OPERAND
        positive = self._shift("bn_pos", cfg.BN_MUL_CFG.BN_MUL_SHIFT_VALUE)
        negative = self._shift("bn_neg", cfg.DATA_FORMAT.BN_MUL_SHIFT_VALUE_NEG)
        low, high = self._limits("BN", on, cfg.BN_CFG, cfg.BN_RELUX_CMP_VALUE.BN_RELUX_CMP_DAT)
        self._table(table, self.bn, (add & alu_src) | (mul & mul_src), 3)

        product, plain = self._lanes("bn_product", signed(48)), self._lanes("bn_plain", unsigned(1))
        operand, value = self._lanes("bn_operand", signed(33)), self._lanes("bn_value", signed(32))
        for lane in range(LANES):
            result, skip = Signal(signed(48), init=IDLE), Signal()
            addend = Signal(signed(33), init=IDLE)
            skip = Signal()
            with m.If(self.valid[4]):
                m.d.comb += skip.eq(~mul | (prelu & ~main[lane][-1]))
                with m.If(skip):
                    m.d.comb += result.eq(extend(main[lane], 48))
                with m.Else():
                    factor = self._wire(Mux(mul_src, table.operands.mul[lane].as_signed(), mul_reg))
                    m.d.comb += result.eq(main[lane] * factor)
                with m.If(add):
                    term = self._wire(Mux(alu_src, table.operands.alu[lane].as_signed(), alu_reg))
                    with m.If(minus):
                        m.d.comb += addend.eq(-term)
                    with m.Else():
                        m.d.comb += addend.eq(extend(term, 33))
                with m.Else():
                    m.d.comb += addend.eq(0)
            with self._into(5):
                m.d.sync += [product[lane].eq(result), plain[lane].eq(skip), operand[lane].eq(addend)]
            with m.If(self.valid[5]):
                scaled = self._scaled(product[lane], plain[lane], positive, negative)
                total = self._wire(self._wire(clamp(scaled, LOWEST, HIGHEST)) + operand[lane])
                limited = self._wire(clamp(total, low, high))
            with self._into(6):
                m.d.sync += value[lane].eq(limited)
        return value

    def _ew_operand(self, take: Value) -> tuple[list[Signal], Value]:
        """Two stages of their own ahead of the EW stage: fetch and convert the second operand.

        Returns the operands and whether they are there.
        """
        m, cfg = self._m, self.cfg
        fetch = self._flag(cfg.EW_CFG.EW_OP_SRC & ~cfg.EW_CFG.EW_OP_BYPASS & ~cfg.EW_CFG.EW_BYPASS)
        convert = self._flag(~cfg.EW_CFG.EW_OP_CVT_BYPASS)
        add_first = self._flag(cfg.EW_CFG.EW_CVT_TYPE)
        away = self._flag(cfg.EW_CFG.EW_CVT_ROUND)
        offset = cfg.EW_CVT_OFFSET_VALUE.EW_OP_CVT_OFFSET
        scale = cfg.EW_CVT_SCALE_VALUE.EW_OP_CVT_SCALE
        shift = self._shift("ew_cvt", cfg.EW_CVT_SCALE_VALUE.EW_OP_CVT_SHIFT)
        have1, have2, go1, go2 = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            go2.eq(~have2 | take),
            go1.eq(~have1 | go2),
            self.ew.ready.eq(self.active & fetch & go1),
        ]
        with m.If(go1):
            m.d.sync += have1.eq(self.ew.valid & self.ew.ready)
        with m.If(go2):
            m.d.sync += have2.eq(have1)
        with m.If(self.start):
            m.d.sync += [have1.eq(0), have2.eq(0)]
        scaled, operand = self._lanes("ew_scaled", signed(49)), self._lanes("ew_operand", signed(32))
        for lane in range(LANES):
            element = self.ew.payload.data[lane].as_signed()
            register = getattr(cfg, f"EW_OP_VALUE_{lane}")[f"EW_OPERAND_{lane}"]
            fetched = Signal(signed(49), init=IDLE)
            with m.If(self.ew.valid & self.ew.ready):
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
                limited = self._wire(clamp(rounded, LOWEST, HIGHEST))
            with m.If(self.start & ~cfg.EW_CFG.EW_OP_SRC):
                m.d.sync += operand[lane].eq(register)
            with m.Elif(go2 & have1):
                m.d.sync += operand[lane].eq(limited)
        return operand, have2 | ~fetch

    def _ew(self, main: list[Signal]) -> tuple[list[Signal], Value]:
        """Stages 7 and 8: ALU or multiplier, then shift and ReLU."""
        m, cfg = self._m, self.cfg
        on = ~cfg.EW_CFG.EW_BYPASS
        op = on & ~cfg.EW_CFG.EW_OP_BYPASS
        mul = self._flag(op & cfg.EW_CFG.EW_OP_TYPE)
        alu = self._flag(op & ~cfg.EW_CFG.EW_OP_TYPE)
        prelu = self._flag(cfg.EW_CFG.EW_MUL_PRELU)
        positive = self._shift("ew_pos", cfg.EW_CVT_SCALE_VALUE.EW_TRUNCATE)
        negative = self._shift("ew_neg", cfg.DATA_FORMAT.EW_TRUNCATE_NEG)
        low, high = self._limits("EW", on, cfg.EW_CFG, cfg.EW_RELUX_CMP_VALUE.EW_RELUX_CMP_DAT)
        take = Signal()
        m.d.comb += take.eq(self.advance & self.valid[6])
        operand, there = self._ew_operand(take)

        product, plain = self._lanes("ew_product", signed(48)), self._lanes("ew_plain", unsigned(1))
        value = self._lanes("ew_value", signed(32))
        for lane in range(LANES):
            v, e = main[lane], operand[lane]
            result, skip = Signal(signed(48), init=IDLE), Signal()
            with m.If(self.valid[6]):
                m.d.comb += skip.eq(~mul | (prelu & ~v[-1]))
                with m.If(~skip):
                    m.d.comb += result.eq(v * e[:16].as_signed())
                with m.Else():
                    m.d.comb += result.eq(extend(v, 48))
                    with m.If(alu):
                        self._ew_alu(result, v, e)
            with self._into(7):
                m.d.sync += [product[lane].eq(result), plain[lane].eq(skip)]
            with m.If(self.valid[7]):
                scaled = self._scaled(product[lane], plain[lane], positive, negative)
                limited = self._wire(clamp(scaled, low, high))
            with self._into(8):
                m.d.sync += value[lane].eq(limited)
        return value, there | ~self.valid[6]

    def _ew_alu(self, result: Signal, v: Signal, e: Signal) -> None:
        """The two-operand and one-operand functions; an unknown one leaves `v`."""
        m = self._m
        results = {
            AluAlgo.MAX: Mux(v > e, v, e),
            AluAlgo.MIN: Mux(v < e, v, e),
            AluAlgo.ADD: v + e,
            AluAlgo.MINUS: v - e,
            AluAlgo.ABS: Mux(v[-1], (-v)[:32].as_signed(), v),
            AluAlgo.NEG: (-v)[:32].as_signed(),
        }
        with m.Switch(self.cfg.EW_CFG.EW_ALU_ALGO):
            for algo, value in results.items():
                with m.Case(algo):
                    m.d.comb += result.eq(extend(value, 48))

    def _out_cvt(self, main: list[Signal]) -> None:
        """Stages 9 and 10: scale, then shift, offset, saturation and the padding channels."""
        m, cfg = self._m, self.cfg
        away = self._flag(cfg.OUT_CVT_SHIFT.CVT_ROUND)
        offset, scale = cfg.OUT_CVT_OFFSET.OUT_CVT_OFFSET, cfg.OUT_CVT_SCALE.OUT_CVT_SCALE
        before = self._setting("out_before", Mux(cfg.OUT_CVT_SHIFT.CVT_TYPE, offset, 0), signed(32))
        pend = self._setting("out_pend", cfg.OFFSET_PEND.OFFSET_PEND, signed(32))
        after = self._setting("out_after", Mux(cfg.OUT_CVT_SHIFT.CVT_TYPE, 0, offset), signed(32))
        shift = self._shift("out", cfg.OUT_CVT_SHIFT.OUT_CVT_SHIFT)
        kind = cfg.DATA_FORMAT.OUT_PRECISION
        top = Mux(kind == Precision.INT32, HIGHEST, Mux(kind == Precision.INT16, 0x7FFF, 0x7F))
        bottom = Mux(kind == Precision.INT32, LOWEST, Mux(kind == Precision.INT16, -0x8000, -0x80))
        high = self._setting("out_high", top, signed(32))
        low = self._setting("out_low", bottom, signed(32))

        scaled, out = self._lanes("out_scaled", signed(49)), self._lanes("out", signed(32))
        for lane in range(LANES):
            multiplied = Signal(signed(49), init=IDLE)
            with m.If(self.valid[8]):
                m.d.comb += multiplied.eq((main[lane] + before) * scale)
            with self._into(9):
                m.d.sync += scaled[lane].eq(multiplied)
            final = Signal(signed(32), init=IDLE)
            with m.If(self.valid[9]):
                with m.If(self.tag[9].live > lane):
                    rounded = self._wire(round_shift(scaled[lane], shift, away)[:50].as_signed())
                    m.d.comb += final.eq(clamp(self._wire(rounded + after), low, high))
                with m.Else():
                    m.d.comb += final.eq(pend)
            with self._into(10):
                m.d.sync += out[lane].eq(final)
        m.d.comb += self.result.payload.data.eq(Cat(*out))
