"""The DPU's float domain: BS, BN and the EW operation of binary32 in one unit (docs 0.3, 4.4 to 4.7)."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from rtl.layouts import LANES, BsOctet
from rtl.npu import float32
from rtl.npu.dpu_frame import AluAlgo, OctetTag, PipeIn
from rtl.npu.dpu_types import is_float
from rtl.regfile import config_signature


class FloatOctet(data.Struct):
    """Eight binary32 of a pixel."""

    data: data.ArrayLayout(32, LANES)
    tag: OctetTag


class Control(data.Struct):
    """What a step does: `add` or `mul` with its operand, or `other`; then ReLU and ReLUX.

    `minus` flips the operand's sign, `half` widens it from fp16, `prelu` keeps values without sign.
    """

    add: 1
    mul: 1
    other: 1
    minus: 1
    half: 1
    prelu: 1
    relu: 1
    relux: 1


STEPS = 5
"""BS addition and multiplication, BN multiplication and addition, the EW operation."""


def _control(**bits: Value) -> Value:
    """A `Control` from the bits that are not 0."""
    return Cat(bits.get(name, Const(0, 1)) for name in Control.as_shape().members)


class FloatUnit(wiring.Component):
    """Takes each octet through the steps that are on, one a cycle; at least one.

    ReLU and ReLUX of a stage belong to its last step.

    Members
    -------
    cfg : configuration of the DPU
    start : 1, in
        A task starts: settings are copied.
    active : 1, in
        A task of the float domain runs.
    source : stream of PipeIn, in
    wants_bs, wants_bn : 1, out
        Values of BRDMA and NRDMA are used.
    available : 1, in
        Those of the octet at `source` are there.
    take : 1, out
        They are looked up; `bs` and `bn` hold them from the next cycle until the next `take`.
    bs, bn : BsOctet, in
    ew : 32 bits a lane, in
        The EW operand.
    ew_there : 1, in
    ew_take : 1, out
    lacks : 1, out
        An octet waits for `available` or `ew_there`.
    result : stream of FloatOctet, out
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "cfg": In(config_signature("DPU")),
                "start": In(1),
                "active": In(1),
                "source": In(stream.Signature(PipeIn)),
                "wants_bs": Out(1),
                "wants_bn": Out(1),
                "available": In(1),
                "take": Out(1),
                "bs": In(BsOctet),
                "bn": In(BsOctet),
                "ew": In(32).array(LANES),
                "ew_there": In(1),
                "ew_take": Out(1),
                "lacks": Out(1),
                "result": Out(stream.Signature(FloatOctet)),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.divider = self._divider = float32.Divider(LANES)
        self._settings(m)
        full, left, tag = Signal(), Signal(STEPS, reset_less=True), Signal(OctetTag, reset_less=True)
        begun, go, last = Signal(), Signal(), Signal()
        step, control = Signal(STEPS), Signal(Control)
        with m.If(full):
            m.d.comb += [step.eq(left & -left), last.eq((left & (left - 1)) == 0)]
            for index, held in enumerate(self._controls):
                with m.If(step[index]):
                    m.d.comb += control.eq(held)
        divides = step[4] & self._divide
        operand_there = ~step[4] | self.ew_there
        m.d.comb += [
            go.eq(
                full
                & operand_there
                & (~divides | (begun & self._divider.done))
                & (~last | ~self.result.valid | self.result.ready)
            ),
            self._divider.start.eq(divides & self.ew_there & ~begun),
            self.ew_take.eq(go & step[4]),
            self.source.ready.eq(self.active & self.available & (~full | (go & last))),
            self.take.eq(self.source.valid & self.source.ready),
            self.lacks.eq(
                self.active
                & ((full & ~operand_there) | (self.source.valid & ~self.available & (~full | (go & last))))
            ),
        ]
        with m.If(go | self.start):
            m.d.sync += begun.eq(0)
        with m.Elif(self._divider.start):
            m.d.sync += begun.eq(1)

        values = [Signal(32, name=f"value_{lane}", reset_less=True) for lane in range(LANES)]
        results = self._results(m, full, step, control, values)
        with m.If(self.result.ready):
            m.d.sync += self.result.valid.eq(0)
        with m.If(go & last):
            m.d.sync += [self.result.valid.eq(1), full.eq(0), self.result.payload.tag.eq(tag)]
            m.d.sync += [self.result.payload.data[lane].eq(value) for lane, value in enumerate(results)]
        with m.Elif(go):
            m.d.sync += left.eq(left & (left - 1))
            m.d.sync += [values[lane].eq(value) for lane, value in enumerate(results)]
        with m.If(self.take):
            m.d.sync += [full.eq(1), tag.eq(self.source.payload.tag)]
            m.d.sync += left.eq(self._todo)
            m.d.sync += [values[lane].eq(self.source.payload.main[lane][:32]) for lane in range(LANES)]
        with m.If(self.start):
            m.d.sync += [full.eq(0), self.result.valid.eq(0)]
        return m

    # ---- settings

    def _settings(self, m: Module) -> None:
        """Which steps are taken and what they do, held from the start of a task on."""
        cfg, ew = self.cfg, self.cfg.EW_CFG
        bs, bn = self._stage("BS"), self._stage("BN")
        floats = is_float(cfg.DATA_FORMAT.PROC_PRECISION)
        on = ~ew.EW_BYPASS & ew.EW_LUT_BYPASS
        op = on & ~ew.EW_OP_BYPASS
        alu, mul, algo = op & ~ew.EW_OP_TYPE, op & ew.EW_OP_TYPE, ew.EW_ALU_ALGO
        two = (algo == AluAlgo.ADD) | (algo == AluAlgo.MINUS)
        relu, relux = on & ~ew.EW_RELU_BYPASS, on & ew.EW_RELUX_EN
        bs_second = bs["mul"] | (~bs["add"] & (bs["relu"] | bs["relux"]))
        bn_second = bn["add"] | (~bn["mul"] & (bn["relu"] | bn["relux"]))
        live = [bs["add"], bs_second, bn["mul"], bn_second, op | relu | relux]
        half = Const(1, 1)
        controls = [
            _control(
                add=bs["add"],
                minus=bs["minus"],
                relu=bs["relu"] & ~bs_second,
                relux=bs["relux"] & ~bs_second,
            ),
            _control(mul=bs["mul"], half=half, prelu=bs["prelu"], relu=bs["relu"], relux=bs["relux"]),
            _control(
                mul=bn["mul"],
                half=half,
                prelu=bn["prelu"],
                relu=bn["relu"] & ~bn_second,
                relux=bn["relux"] & ~bn_second,
            ),
            _control(add=bn["add"], minus=bn["minus"], relu=bn["relu"], relux=bn["relux"]),
            _control(
                add=alu & two,
                mul=mul,
                other=alu & ~two,
                minus=alu & (algo == AluAlgo.MINUS),
                half=mul & ~ew.EW_OP_SRC,
                prelu=mul & ew.EW_MUL_PRELU,
                relu=relu,
                relux=relux,
            ),
        ]
        self._controls = [Signal(Control, name=f"control_{k}", reset_less=True) for k in range(STEPS)]
        self._todo = Signal(STEPS, reset_less=True)
        self._divide, self._algo = Signal(reset_less=True), Signal(4, reset_less=True)
        sources = Signal(4, reset_less=True)
        self._from_dma = {"BS": sources[:2], "BN": sources[2:]}
        wanted = [(s["add"] & s["alu_src"]) | (s["mul"] & s["mul_src"]) for s in (bs, bn)]
        with m.If(self.start):
            m.d.sync += [held.eq(value) for held, value in zip(self._controls, controls, strict=True)]
            m.d.sync += [
                self._todo.eq(Mux(Cat(live) == 0, 1, Cat(live))),  # a step without settings only moves
                self._divide.eq(alu & (algo == AluAlgo.DIV)),
                self._algo.eq(algo),
                sources.eq(Cat(bs["alu_src"], bs["mul_src"], bn["alu_src"], bn["mul_src"])),
                self.wants_bs.eq(floats & wanted[0]),
                self.wants_bn.eq(floats & wanted[1]),
            ]

    def _stage(self, name: str) -> dict[str, Value]:
        """The switches of BS or BN."""
        stage = getattr(self.cfg, f"{name}_CFG")
        on, algo = ~stage[f"{name}_BYPASS"], stage[f"{name}_ALU_ALGO"]
        known = (algo == AluAlgo.ADD) | (algo == AluAlgo.MINUS)
        return {
            "add": on & ~stage[f"{name}_ALU_BYPASS"] & known,
            "minus": algo == AluAlgo.MINUS,
            "alu_src": stage[f"{name}_ALU_SRC"],
            "mul": on & ~stage[f"{name}_MUL_BYPASS"],
            "mul_src": getattr(self.cfg, f"{name}_MUL_CFG")[f"{name}_MUL_SRC"],
            "prelu": stage[f"{name}_MUL_PRELU"],
            "relu": on & ~stage[f"{name}_RELU_BYPASS"],
            "relux": on & stage[f"{name}_RELUX_EN"],
        }

    # ---- one step of all lanes

    def _results(
        self, m: Module, full: Signal, step: Signal, control: Signal, values: list[Signal]
    ) -> list[Value]:
        """What the step makes of the values; conditions and wires as `float32` wants them."""
        cfg = self.cfg
        others = Signal()
        m.d.comb += others.eq(full & control.other)
        limit = Signal(32, init=1)
        with m.If(full):
            bs_limit, bn_limit = (
                getattr(cfg, f"{name}_RELUX_CMP_VALUE")[f"{name}_RELUX_CMP_DAT"] for name in ("BS", "BN")
            )
            ew_limit = cfg.EW_RELUX_CMP_VALUE.EW_RELUX_CMP_DAT
            m.d.comb += limit.eq(Mux(step[:2] != 0, bs_limit, Mux(step[4], ew_limit, bn_limit)))
        results = []
        for lane, value in enumerate(values):
            with m.If(full):
                given = float32.wire(m, self._operand(step, lane), 32)
                wide = float32.widen_fp16(m, given[:16])
                turned = Cat(given[:31], given[31] ^ control.minus)
                operand = float32.wire(m, Mux(control.half, wide, turned), 32)
                total = float32.exact_sum(m, value, operand)
                product = float32.exact_product(m, value, operand)
                number = float32.finish(m, total.chosen(m, control.mul, product))
            with m.If(others):
                other = self._other(m, lane, value, operand)
            with m.If(full):
                moves = ~(control.add | control.mul | control.other) | (control.prelu & ~value[31])
                result = float32.wire(m, Mux(moves, value, Mux(control.other, other, number)), 32)
                below = control.relu & result[31] & (result[:31] <= float32.INFINITY)
                kept = float32.wire(m, Mux(below, 0, result), 32)
                above = control.relux & float32.greater(kept, limit)
                results.append(float32.wire(m, Mux(above, limit, kept), 32))
        return results

    def _operand(self, step: Signal, lane: int) -> Value:
        """The bits of the step's operand."""
        cfg, from_dma = self.cfg, self._from_dma
        alu, mul = [], []
        for name, table in (("BS", self.bs), ("BN", self.bn)):
            register = getattr(cfg, f"{name}_ALU_CFG")[f"{name}_ALU_OPERAND"]
            alu.append(Mux(from_dma[name][0], table.alu[lane], register.as_unsigned()))
            register = getattr(cfg, f"{name}_MUL_CFG")[f"{name}_MUL_OPERAND"]
            mul.append(Mux(from_dma[name][1], table.mul[lane], register.as_unsigned()))
        bs = Mux(step[0], alu[0], mul[0])
        bn = Mux(step[2], mul[1], alu[1])
        return Mux(step[4], self.ew[lane], Mux(step[:2] != 0, bs, bn))

    def _other(self, m: Module, lane: int, value: Value, operand: Value) -> Value:
        """EW's functions that neither add nor multiply; an unknown one leaves the value."""
        algo = self._algo
        v, e = float32.wire(m, value, 32), float32.wire(m, operand, 32)
        least = algo == AluAlgo.MIN
        high, low = float32.wire(m, Mux(least, e, v), 32), float32.wire(m, Mux(least, v, e), 32)
        best = Mux(float32.greater(high, low), v, e)
        whole = float32.to_integral(m, v, algo == AluAlgo.CEIL)
        result: Value = Mux((algo == AluAlgo.FLOOR) | (algo == AluAlgo.CEIL), whole, v)
        result = Mux(algo == AluAlgo.NEG, float32.negate(v), result)
        result = Mux(algo == AluAlgo.ABS, v[:31], result)
        result = Mux(algo == AluAlgo.DIV, self._divider.result[lane], result)
        m.d.comb += [self._divider.a[lane].eq(value), self._divider.b[lane].eq(operand)]
        return float32.wire(m, Mux(algo[1:] == 0, best, result), 32)  # max and min are 0 and 1
