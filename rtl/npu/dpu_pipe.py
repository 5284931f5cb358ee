"""The DPU's arithmetic: CPEND, BS, BN, EW and OUT_CVT, eight lanes a cycle (H 5, docs section 4)."""

from amaranth.hdl import Cat, Module, Mux, Shape, Signal, Value, ValueLike, signed, unsigned
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from rtl.layouts import LANES, BsOctet, ElementOctet
from rtl.npu.dpu_math import rectify, round_shift, saturate, saturate32, shift_mask
from rtl.npu.dpu_table import OperandTable
from rtl.regfile import config_signature

STAGES = 10


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
    trailing : 1, in
        The task has ended, but BS or BN data that it does not use may still come.
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
                "trailing": In(1),
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

    def _setting(self, name: str, value: ValueLike, shape: Shape | None = None) -> Signal:
        """A register that holds `value` from the start of the task on."""
        value = Value.cast(value)
        held = Signal(value.shape() if shape is None else shape, name=f"set_{name}", reset_less=True)
        with self._m.If(self.start):
            self._m.d.sync += held.eq(value)
        return held

    def _shifts(self, name: str, positive: Value, negative: Value) -> dict[str, Signal]:
        """Held shift counts and masks for products >= 0 and < 0."""
        return {
            "pos": self._setting(f"{name}_pos", positive[:6]),
            "neg": self._setting(f"{name}_neg", negative[:6]),
            "pos_mask": self._setting(f"{name}_pos_mask", shift_mask(positive)),
            "neg_mask": self._setting(f"{name}_neg_mask", shift_mask(negative)),
        }

    def _scaled(self, product: Value, plain: Value, used: Value, shifts: dict[str, Signal]) -> Signal:
        """sat32 of the product shifted by its sign's count, unshifted where `plain` or not `used`."""
        m = self._m
        total = Signal(signed(63))
        m.d.comb += total.eq(product)
        with m.If(used):
            with m.If(~plain):
                shift, mask = Signal(6), Signal(63)
                m.d.comb += shift.eq(Mux(product[-1], shifts["neg"], shifts["pos"]))
                m.d.comb += mask.eq(Mux(product[-1], shifts["neg_mask"], shifts["pos_mask"]))
                m.d.comb += total.eq(round_shift(m, product, shift, mask, 0))
        return saturate32(m, total)

    def _table(self, table: OperandTable, load: object, wanted: Value, stage: int) -> None:
        """Connect an operand table whose look-up takes place between `stage` and `stage` + 1."""
        wiring.connect(self._m, wiring.flipped(load), table.load)
        tag = self.tag[stage]
        self._m.d.comb += [
            table.clear.eq(self.start),
            table.active.eq(self.active | (self.trailing & ~wanted)),
            table.wanted.eq(wanted),
            table.octets.eq(self.octets),
            table.octet.eq(tag.octet),
            table.take.eq(self.advance & self.valid[stage]),
            table.release.eq(tag.group_last),
        ]

    # ---- stages

    def _bs(self, main: list[Signal], sums: list[Signal], table: OperandTable) -> list[Signal]:
        """Stages 1 to 4: CPEND and the BS adder, the multiplier, shift with saturation and ReLU."""
        m, cfg = self._m, self.cfg
        on = ~cfg.BS_CFG.BS_BYPASS
        algo = cfg.BS_CFG.BS_ALU_ALGO
        known = (algo == AluAlgo.ADD) | (algo == AluAlgo.MINUS)
        cpend = self._setting("cpend", ~cfg.BS_OW_CFG.OD_BYPASS & ~cfg.FEATURE_MODE_CFG.FLYING_MODE)
        cpend_src = self._setting("cpend_src", cfg.BS_OW_CFG.OW_SRC)
        cpend_reg = self._setting("cpend_reg", cfg.BS_OW_OP.OW_OP)
        add = self._setting("bs_add", on & ~cfg.BS_CFG.BS_ALU_BYPASS & known)
        minus = self._setting("bs_minus", algo == AluAlgo.MINUS)
        alu_src = self._setting("bs_alu_src", cfg.BS_CFG.BS_ALU_SRC)
        alu_reg = self._setting("bs_alu_reg", cfg.BS_ALU_CFG.BS_ALU_OPERAND)
        mul = self._setting("bs_mul", on & ~cfg.BS_CFG.BS_MUL_BYPASS)
        prelu = self._setting("bs_prelu", cfg.BS_CFG.BS_MUL_PRELU)
        mul_src = self._setting("bs_mul_src", cfg.BS_MUL_CFG.BS_MUL_SRC)
        mul_reg = self._setting("bs_mul_reg", cfg.BS_MUL_CFG.BS_MUL_OPERAND)
        relu = self._setting("bs_relu", on & ~cfg.BS_CFG.BS_RELU_BYPASS)
        relux = self._setting("bs_relux", on & ~cfg.BS_CFG.BS_RELU_BYPASS & cfg.BS_CFG.BS_RELUX_EN)
        limit = self._setting("bs_limit", cfg.BS_RELUX_CMP_VALUE.BS_RELUX_CMP_DAT)
        shifts = self._shifts(
            "bs_shift", cfg.BS_MUL_CFG.BS_MUL_SHIFT_VALUE, cfg.DATA_FORMAT.BS_MUL_SHIFT_VALUE_NEG
        )
        self._table(table, self.bs, (cpend & cpend_src) | (add & alu_src) | (mul & mul_src), 0)

        total, factor = self._lanes("bs_total", signed(48)), self._lanes("bs_factor", signed(16))
        product, plain = self._lanes("bs_product", signed(63)), self._lanes("bs_plain", unsigned(1))
        value = self._lanes("bs_value", signed(32))
        for lane in range(LANES):
            with m.If(self.valid[1]):
                window, term = Signal(signed(48)), Signal(signed(33))
                with m.If(cpend):
                    weight = Signal(signed(16))
                    m.d.comb += weight.eq(Mux(cpend_src, table.operands.cpend[lane].as_signed(), cpend_reg))
                    m.d.comb += window.eq(sums[lane] * weight)
                with m.If(add):
                    operand = Signal(signed(32))
                    m.d.comb += operand.eq(Mux(alu_src, table.operands.alu[lane].as_signed(), alu_reg))
                    m.d.comb += term.eq(Mux(minus, -operand, operand))
            with self._into(2):
                m.d.sync += total[lane].eq(main[lane] + window + term)
                with m.If(mul):
                    m.d.sync += factor[lane].eq(Mux(mul_src, table.operands.mul[lane].as_signed(), mul_reg))
            skip = Signal()
            with m.If(self.valid[2]):
                m.d.comb += skip.eq(~mul | (prelu & ~total[lane][-1]))
            with self._into(3):
                with m.If(skip):
                    m.d.sync += product[lane].eq(total[lane])
                with m.Else():
                    m.d.sync += product[lane].eq(total[lane] * factor[lane])
                m.d.sync += plain[lane].eq(skip)
            with m.If(self.valid[3]):
                rectified = rectify(
                    m, self._scaled(product[lane], plain[lane], mul, shifts), relu, relux, limit
                )
            with self._into(4):
                m.d.sync += value[lane].eq(rectified)
        return value

    def _bn(self, main: list[Signal], table: OperandTable) -> list[Signal]:
        """Stages 5 and 6: multiply, then shift, add, ReLU."""
        m, cfg = self._m, self.cfg
        on = ~cfg.BN_CFG.BN_BYPASS
        algo = cfg.BN_CFG.BN_ALU_ALGO
        known = (algo == AluAlgo.ADD) | (algo == AluAlgo.MINUS)
        add = self._setting("bn_add", on & ~cfg.BN_CFG.BN_ALU_BYPASS & known)
        minus = self._setting("bn_minus", algo == AluAlgo.MINUS)
        alu_src = self._setting("bn_alu_src", cfg.BN_CFG.BN_ALU_SRC)
        alu_reg = self._setting("bn_alu_reg", cfg.BN_ALU_CFG.BN_ALU_OPERAND)
        mul = self._setting("bn_mul", on & ~cfg.BN_CFG.BN_MUL_BYPASS)
        prelu = self._setting("bn_prelu", cfg.BN_CFG.BN_MUL_PRELU)
        mul_src = self._setting("bn_mul_src", cfg.BN_MUL_CFG.BN_MUL_SRC)
        mul_reg = self._setting("bn_mul_reg", cfg.BN_MUL_CFG.BN_MUL_OPERAND)
        relu = self._setting("bn_relu", on & ~cfg.BN_CFG.BN_RELU_BYPASS)
        relux = self._setting("bn_relux", on & ~cfg.BN_CFG.BN_RELU_BYPASS & cfg.BN_CFG.BN_RELUX_EN)
        limit = self._setting("bn_limit", cfg.BN_RELUX_CMP_VALUE.BN_RELUX_CMP_DAT)
        shifts = self._shifts(
            "bn_shift", cfg.BN_MUL_CFG.BN_MUL_SHIFT_VALUE, cfg.DATA_FORMAT.BN_MUL_SHIFT_VALUE_NEG
        )
        self._table(table, self.bn, (add & alu_src) | (mul & mul_src), 3)

        product, plain = self._lanes("bn_product", signed(48)), self._lanes("bn_plain", unsigned(1))
        operand, value = self._lanes("bn_operand", signed(33)), self._lanes("bn_value", signed(32))
        for lane in range(LANES):
            skip = Signal()
            with m.If(self.valid[4]):
                m.d.comb += skip.eq(~mul | (prelu & ~main[lane][-1]))
                with m.If(mul):
                    factor = Signal(signed(16))
                    m.d.comb += factor.eq(Mux(mul_src, table.operands.mul[lane].as_signed(), mul_reg))
                with m.If(add):
                    term = Signal(signed(32))
                    m.d.comb += term.eq(Mux(alu_src, table.operands.alu[lane].as_signed(), alu_reg))
            with self._into(5):
                with m.If(skip):
                    m.d.sync += product[lane].eq(main[lane])
                with m.Else():
                    m.d.sync += product[lane].eq(main[lane] * factor)
                m.d.sync += plain[lane].eq(skip)
                with m.If(add):
                    m.d.sync += operand[lane].eq(Mux(minus, -term, term))
            with m.If(self.valid[5]):
                total = Signal(signed(32))
                scaled = self._scaled(product[lane], plain[lane], mul, shifts)
                m.d.comb += total.eq(scaled)
                with m.If(add):
                    m.d.comb += total.eq(saturate32(m, scaled + operand[lane]))
                rectified = rectify(m, total, relu, relux, limit)
            with self._into(6):
                m.d.sync += value[lane].eq(rectified)
        return value

    def _ew_operand(self, take: Value) -> tuple[list[Signal], Value]:
        """Two stages of their own ahead of the EW stage: fetch and convert the second operand.

        Returns the operands and whether they are there.
        """
        m, cfg = self._m, self.cfg
        fetch = self._setting(
            "ew_fetch", cfg.EW_CFG.EW_OP_SRC & ~cfg.EW_CFG.EW_OP_BYPASS & ~cfg.EW_CFG.EW_BYPASS
        )
        convert = self._setting("ew_convert", ~cfg.EW_CFG.EW_OP_CVT_BYPASS)
        add_first = self._setting("ew_add_first", cfg.EW_CFG.EW_CVT_TYPE)
        away = self._setting("ew_away", cfg.EW_CFG.EW_CVT_ROUND)
        offset = self._setting("ew_offset", cfg.EW_CVT_OFFSET_VALUE.EW_OP_CVT_OFFSET)
        scale = self._setting("ew_scale", cfg.EW_CVT_SCALE_VALUE.EW_OP_CVT_SCALE)
        shift = self._setting("ew_cvt_shift", cfg.EW_CVT_SCALE_VALUE.EW_OP_CVT_SHIFT)
        mask = self._setting("ew_cvt_mask", shift_mask(cfg.EW_CVT_SCALE_VALUE.EW_OP_CVT_SHIFT))
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
            with m.If(go1 & self.ew.valid & self.ew.ready):
                with m.If(~convert):
                    m.d.sync += scaled[lane].eq(element)
                with m.Elif(add_first):
                    m.d.sync += scaled[lane].eq((element + offset) * scale)
                with m.Else():
                    m.d.sync += scaled[lane].eq(element * scale + offset)
            converted = Signal(signed(32))
            with m.If(have1):
                m.d.comb += converted.eq(scaled[lane])
                with m.If(convert):
                    m.d.comb += converted.eq(saturate32(m, round_shift(m, scaled[lane], shift, mask, away)))
            with m.If(self.start & ~cfg.EW_CFG.EW_OP_SRC):
                m.d.sync += operand[lane].eq(register)
            with m.Elif(go2 & have1):
                m.d.sync += operand[lane].eq(converted)
        return operand, have2 | ~fetch

    def _ew(self, main: list[Signal]) -> tuple[list[Signal], Value]:
        """Stages 7 and 8: ALU or multiplier, then shift and ReLU."""
        m, cfg = self._m, self.cfg
        on = ~cfg.EW_CFG.EW_BYPASS
        op = on & ~cfg.EW_CFG.EW_OP_BYPASS
        mul = self._setting("ew_mul", op & cfg.EW_CFG.EW_OP_TYPE)
        alu = self._setting("ew_alu", op & ~cfg.EW_CFG.EW_OP_TYPE)
        algo = self._setting("ew_algo", cfg.EW_CFG.EW_ALU_ALGO)
        prelu = self._setting("ew_prelu", cfg.EW_CFG.EW_MUL_PRELU)
        relu = self._setting("ew_relu", on & ~cfg.EW_CFG.EW_RELU_BYPASS)
        relux = self._setting("ew_relux", on & ~cfg.EW_CFG.EW_RELU_BYPASS & cfg.EW_CFG.EW_RELUX_EN)
        limit = self._setting("ew_limit", cfg.EW_RELUX_CMP_VALUE.EW_RELUX_CMP_DAT)
        shifts = self._shifts("ew_shift", cfg.EW_CVT_SCALE_VALUE.EW_TRUNCATE, cfg.DATA_FORMAT.EW_TRUNCATE_NEG)
        take = Signal()
        m.d.comb += take.eq(self.advance & self.valid[6])
        operand, there = self._ew_operand(take)

        product, plain = self._lanes("ew_product", signed(48)), self._lanes("ew_plain", unsigned(1))
        value = self._lanes("ew_value", signed(32))
        for lane in range(LANES):
            v, e = main[lane], operand[lane]
            result, skip = Signal(signed(48)), Signal()
            with m.If(self.valid[6]):
                m.d.comb += skip.eq(~mul | (prelu & ~v[-1]))
                m.d.comb += result.eq(v)
                with m.If(~skip):
                    m.d.comb += result.eq(v * e[:16].as_signed())
                with m.Elif(alu):
                    self._ew_alu(result, algo, v, e)
            with self._into(7):
                m.d.sync += [product[lane].eq(result), plain[lane].eq(skip)]
            with m.If(self.valid[7]):
                rectified = rectify(
                    m, self._scaled(product[lane], plain[lane], mul, shifts), relu, relux, limit
                )
            with self._into(8):
                m.d.sync += value[lane].eq(rectified)
        return value, there | ~self.valid[6]

    def _ew_alu(self, result: Signal, algo: Signal, v: Signal, e: Signal) -> None:
        """The two-operand and one-operand functions; an unknown one leaves `v`."""
        m = self._m
        with m.Switch(algo):
            with m.Case(AluAlgo.MAX):
                m.d.comb += result.eq(Mux(v > e, v, e))
            with m.Case(AluAlgo.MIN):
                m.d.comb += result.eq(Mux(v < e, v, e))
            with m.Case(AluAlgo.ADD):
                m.d.comb += result.eq(v + e)
            with m.Case(AluAlgo.MINUS):
                m.d.comb += result.eq(v - e)
            with m.Case(AluAlgo.ABS):
                m.d.comb += result.eq(Mux(v < 0, (-v)[:32].as_signed(), v))
            with m.Case(AluAlgo.NEG):
                m.d.comb += result.eq((-v)[:32].as_signed())

    def _out_cvt(self, main: list[Signal]) -> None:
        """Stages 9 and 10: scale, then shift, offset, saturation and the padding channels."""
        m, cfg = self._m, self.cfg
        add_first = self._setting("out_add_first", cfg.OUT_CVT_SHIFT.CVT_TYPE)
        away = self._setting("out_away", cfg.OUT_CVT_SHIFT.CVT_ROUND)
        offset = self._setting("out_offset", cfg.OUT_CVT_OFFSET.OUT_CVT_OFFSET)
        after = self._setting(
            "out_after", Mux(cfg.OUT_CVT_SHIFT.CVT_TYPE, 0, cfg.OUT_CVT_OFFSET.OUT_CVT_OFFSET)
        )
        scale = self._setting("out_scale", cfg.OUT_CVT_SCALE.OUT_CVT_SCALE)
        shift = self._setting("out_shift", cfg.OUT_CVT_SHIFT.OUT_CVT_SHIFT[:6])
        mask = self._setting("out_mask", shift_mask(cfg.OUT_CVT_SHIFT.OUT_CVT_SHIFT))
        pend = self._setting("out_pend", cfg.OFFSET_PEND.OFFSET_PEND)
        kind = cfg.DATA_FORMAT.OUT_PRECISION
        top = Mux(kind == Precision.INT32, 0x7FFF_FFFF, Mux(kind == Precision.INT16, 0x7FFF, 0x7F))
        high = self._setting("out_high", top, signed(32))
        bottom = Mux(kind == Precision.INT32, -(1 << 31), Mux(kind == Precision.INT16, -(1 << 15), -(1 << 7)))
        low = self._setting("out_low", bottom, signed(32))

        scaled, out = self._lanes("out_scaled", signed(49)), self._lanes("out", signed(32))
        for lane in range(LANES):
            with self._into(9):
                with m.If(add_first):
                    m.d.sync += scaled[lane].eq((main[lane] + offset) * scale)
                with m.Else():
                    m.d.sync += scaled[lane].eq(main[lane] * scale)
            final, total = Signal(signed(32)), Signal(signed(50))
            with m.If(self.valid[9]):
                with m.If(self.tag[9].live > lane):
                    m.d.comb += total.eq(round_shift(m, scaled[lane], shift, mask, away) + after)
                    m.d.comb += final.eq(saturate(m, total, low, high))
                with m.Else():
                    m.d.comb += final.eq(pend)
            with self._into(10):
                m.d.sync += out[lane].eq(final)
        m.d.comb += self.result.payload.data.eq(Cat(*out))
