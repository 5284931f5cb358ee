"""The DPU's float domain: BS, BN and the EW operation on binary32 in one unit ([HW 3], [HW 7])."""

from amaranth.hdl import Cat, ClockSignal, Const, Instance, Module, Mux, ResetSignal, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from rkcosim.rtl import assertions
from rkcosim.rtl.layouts import LANES, BsOctet
from rkcosim.rtl.npu import float32
from rkcosim.rtl.npu.arith import Shift, extend, round_shift, shift_of, wire
from rkcosim.rtl.npu.dpu_divide import HalfDivider
from rkcosim.rtl.npu.dpu_frame import HALVES, AluAlgo, OctetTag, PipeIn
from rkcosim.rtl.npu.dpu_types import Precision, is_float
from rkcosim.rtl.regfile import config_signature

FLOAT_CELL_MODULE = "npu_dpu_float_cell"
"""Name of the module that an engine provides (cosim/engines/harness/cell)."""


class FloatOctet(data.Struct):
    """Eight binary32 values of a pixel."""

    data: data.ArrayLayout(32, LANES)
    tag: OctetTag


class Control(data.Struct):
    """Operation of a step: `add` or `mul` with its operand, `other` or `cut`; then ReLU and ReLUX.

    Members
    -------
    add, mul, other : the operation.
    cut : shift the bits of the step before, as a signed integer.
    minus : invert the operand's sign.
    half : widen the operand from 16 bits.
    ew : a sum of the EW stage, with its special values.
    prelu : leave values whose sign bit is clear unchanged.
    relu, relux : limits after the operation.
    """

    add: 1
    mul: 1
    other: 1
    cut: 1
    minus: 1
    half: 1
    ew: 1
    prelu: 1
    relu: 1
    relux: 1


STEPS = 6
"""Number of steps: BS addition and multiplication, BN multiplication and addition, the EW operation and the
shift of its product."""


class Settings(data.Struct):
    """Settings of a task.

    Members
    -------
    controls : a `Control` for each step.
    todo : the steps that are active, one bit each.
    divide, algo, binary : operation of EW, and whether maximum and minimum compare only.
    brain : 16-bit operands are bf16 instead of fp16.
    bs, bn : one bit each for ALU and multiplier, set if the operand comes from the read DMA.
    """

    controls: data.ArrayLayout(Control, STEPS)
    todo: STEPS
    divide: 1
    algo: 4
    binary: 1
    brain: 1
    bs: 2
    bn: 2


def _control(**bits: Value) -> Value:
    """A `Control` from the bits that are not 0."""
    return Cat(bits.get(name, Const(0, 1)) for name in Control.as_shape().members)


class FloatUnit(wiring.Component):
    """Pass each octet through the active steps, one per cycle; at least one cycle.

    ReLU and ReLUX of a stage belong to the last step of the stage.

    Parameters
    ----------
    external : bool
        The values of the lanes are in an instance of `npu_dpu_float_cell`, which the engine provides; it has
        their cycles and their values. The control of the steps is here in both cases.

    Members
    -------
    cfg : registers of the DPU.
    start : a task starts: the settings are stored.
    active : a task of the float domain runs.
    source : main data.
    wants_bs, wants_bn : values of BRDMA and NRDMA are used.
    available : the values for the octet at `source` are in the tables.
    take : look the values up; `bs` and `bn` hold them from the next cycle until the next `take`.
    bs, bn : operands of the current octet.
    ew : EW operand of the current octet, for each lane.
    ew_ready : the EW operand is valid, or none is used.
    ew_take : the octet uses the EW operand.
    stall : an octet waits for `available` or `ew_ready`.
    result : octets that have passed all steps.
    """

    cfg: In(config_signature("DPU"))
    start: In(1)
    active: In(1)
    source: In(stream.Signature(PipeIn))
    wants_bs: Out(1)
    wants_bn: Out(1)
    available: In(1)
    take: Out(1)
    bs: In(BsOctet)
    bn: In(BsOctet)
    ew: In(32).array(LANES)
    ew_ready: In(1)
    ew_take: Out(1)
    stall: Out(1)
    result: Out(stream.Signature(FloatOctet))

    def __init__(self, *, external: bool = False) -> None:
        self._external = external
        super().__init__()

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.divider = divider = HalfDivider(0 if self._external else LANES)
        settings = self._settings(m)
        full, left, tag = Signal(), Signal(STEPS, reset_less=True), Signal(OctetTag, reset_less=True)
        begun, go, last = Signal(), Signal(), Signal()
        step, control = Signal(STEPS), Signal(Control)
        with m.If(full):
            m.d.comb += [step.eq(left & -left), last.eq((left & (left - 1)) == 0)]
            for index, held in enumerate(settings.controls):
                with m.If(step[index]):
                    m.d.comb += control.eq(held)
        divides = step[4] & settings.divide
        operand_ready = ~step[4] | self.ew_ready
        m.d.comb += [
            go.eq(
                full
                & operand_ready
                & (~divides | (begun & divider.done))
                & (~last | ~self.result.valid | self.result.ready)
            ),
            divider.start.eq(divides & self.ew_ready & ~begun),
            divider.use.eq(divides & begun),
            self.ew_take.eq(go & step[4]),
            self.source.ready.eq(self.active & self.available & (~full | (go & last))),
            self.take.eq(self.source.valid & self.source.ready),
            self.stall.eq(
                self.active
                & ((full & ~operand_ready) | (self.source.valid & ~self.available & (~full | (go & last))))
            ),
        ]
        with m.If(go | self.start):
            m.d.sync += begun.eq(0)
        with m.Elif(divider.start):
            m.d.sync += begun.eq(1)

        if self._external:
            self._instance(m, settings, go, last, step, control)
            values: list[Signal] = []
            results: list[Value] = []
        else:
            values, results = self._lanes(m, settings, full, go, step, control, divider)
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
            m.d.sync += left.eq(settings.todo)
            m.d.sync += [value.eq(self.source.payload.main[lane][:32]) for lane, value in enumerate(values)]
        with m.If(self.start):
            m.d.sync += [full.eq(0), self.result.valid.eq(0)]
        assertions.ports(m, platform, self)
        return m

    def _lanes(
        self,
        m: Module,
        settings: data.View,
        full: Value,
        go: Value,
        step: Value,
        control: Value,
        divider: HalfDivider,
    ) -> tuple[list[Signal], list[Value]]:
        """The registers of the values, and the results of the step, one for each lane."""
        values = [Signal(32, name=f"value_{lane}", reset_less=True) for lane in range(LANES)]
        others, limit = Signal(), Signal(32, init=1)
        m.d.comb += others.eq(full & control.other)
        cfg = self.cfg
        with m.If(full):
            bs_limit, bn_limit, ew_limit = (
                cfg.stage(name).RELUX_CMP_VALUE.RELUX_CMP_DAT for name in ("BS", "BN", "EW")
            )
            m.d.comb += limit.eq(Mux(step[:2] != 0, bs_limit, Mux(step[4:] != 0, ew_limit, bn_limit)))
        # The shifts of the EW product; a value that PReLU passes is not shifted.
        passed = Signal(LANES, reset_less=True)
        counts = (cfg.EW_CVT_SCALE_VALUE.EW_TRUNCATE, cfg.DATA_FORMAT.EW_TRUNCATE_NEG)
        cuts = Signal()
        m.d.comb += cuts.eq(full & control.cut)
        with m.If(cuts):
            shifts = [shift_of(count) for count in counts]
            positive, negative = (
                Shift(wire(m, s.count, 6), wire(m, s.below, 62), wire(m, s.unit, 63)) for s in shifts
            )
        results = []
        for lane, value in enumerate(values):
            with m.If(full):
                operand = self._operand(m, settings, step, control, lane)
                total = float32.exact_sum(
                    m, value, operand, control.ew & ~control.minus, control.ew & control.minus
                )
                product = float32.exact_product(m, value, operand)
                number = float32.finish(m, total.chosen(m, control.mul, product))
            m.d.comb += [divider.a[lane].eq(value[:16]), divider.b[lane].eq(operand[:16])]
            with m.If(others):
                other = _other(m, settings, value, operand, divider.result[lane])
            with m.If(cuts):
                number_cut = _cut(m, value, passed[lane], positive, negative)
            with m.If(go & step[4]):
                m.d.sync += passed[lane].eq(control.prelu & ~value[31])
            with m.If(full):
                moves = ~(control.add | control.mul | control.other | control.cut)
                moves = moves | (control.prelu & ~value[31])
                made = Mux(control.cut, number_cut, Mux(control.other, other, number))
                result = wire(m, Mux(moves, value, made), 32)
                below = control.relu & result[31] & (result[:31] <= float32.INFINITY)
                kept = wire(m, Mux(below, 0, result), 32)
                above = control.relux & float32.above(kept, limit)
                results.append(wire(m, Mux(above, limit, kept), 32))
        return values, results

    def _instance(
        self, m: Module, settings: data.View, go: Value, last: Value, step: Value, control: Value
    ) -> None:
        """The lanes as a module of the engine, whose output is the register of the result."""
        cfg, payload = self.cfg, self.result.payload
        registers = [
            part
            for stage in (cfg.stage(name) for name in ("BS", "BN"))
            for part in (stage.ALU_CFG.ALU_OPERAND, stage.MUL_CFG.MUL_OPERAND)
        ]
        registers += [cfg.stage(name).RELUX_CMP_VALUE.RELUX_CMP_DAT for name in ("BS", "BN", "EW")]
        registers += [cfg.EW_CVT_SCALE_VALUE.EW_TRUNCATE[:6], cfg.DATA_FORMAT.EW_TRUNCATE_NEG[:6]]
        inputs = {
            "clk": ClockSignal(),
            "rst": ResetSignal(),
            "take": self.take,
            "main": self.source.payload.main,
            "go": go,
            "last": last,
            "step": step,
            "control": control,
            "algo": settings.algo,
            "binary": settings.binary,
            "brain": settings.brain,
            "bs_source": settings.bs,
            "bn_source": settings.bn,
            "bs": self.bs,
            "bn": self.bn,
            "ew": Cat(self.ew),
            "settings": Cat(registers),
        }
        ports = {f"i_{name}": Value.cast(value) for name, value in inputs.items()}
        m.submodules.cell = Instance(FLOAT_CELL_MODULE, **ports, o_result=Value.cast(payload.data))

    def _settings(self, m: Module) -> data.View:
        """The `Settings` of a task, held from its start on."""
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
        cut = mul & ((cfg.EW_CVT_SCALE_VALUE.EW_TRUNCATE[:6] | cfg.DATA_FORMAT.EW_TRUNCATE_NEG[:6]) != 0)
        live = Cat(bs["add"], bs_second, bn["mul"], bn_second, op | relu | relux, cut)
        half = Const(1, 1)
        converted = ew.EW_OP_SRC & ~ew.EW_OP_CVT_BYPASS & (ew.EDATA_SIZE == HALVES)
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
                half=mul | (alu & (algo != AluAlgo.DIV) & converted),
                ew=alu & two,
                prelu=mul & ew.EW_MUL_PRELU,
                relu=relu & ~cut,
                relux=relux & ~cut,
            ),
            _control(cut=cut, relu=relu, relux=relux),
        ]
        settings = Signal(Settings, reset_less=True)
        wanted = [(s["add"] & s["alu_src"]) | (s["mul"] & s["mul_src"]) for s in (bs, bn)]
        with m.If(self.start):
            m.d.sync += [held.eq(value) for held, value in zip(settings.controls, controls, strict=True)]
            m.d.sync += [
                settings.todo.eq(Mux(live == 0, 1, live)),  # without any setting, a step only moves the value
                settings.divide.eq(alu & (algo == AluAlgo.DIV)),
                settings.algo.eq(algo),
                settings.binary.eq(ew.EW_BINARY_EN),
                settings.brain.eq(cfg.DATA_FORMAT.PROC_PRECISION == Precision.BF16),
                settings.bs.eq(Cat(bs["alu_src"], bs["mul_src"])),
                settings.bn.eq(Cat(bn["alu_src"], bn["mul_src"])),
                self.wants_bs.eq(floats & wanted[0]),
                self.wants_bn.eq(floats & wanted[1]),
            ]
        return settings

    def _stage(self, name: str) -> dict[str, Value]:
        """The bits of BS or BN that enable its parts."""
        registers = self.cfg.stage(name)
        stage = registers.CFG
        on, algo = ~stage.BYPASS, stage.ALU_ALGO
        known = (algo == AluAlgo.ADD) | (algo == AluAlgo.MINUS)
        return {
            "add": on & ~stage.ALU_BYPASS & known,
            "minus": algo == AluAlgo.MINUS,
            "alu_src": stage.ALU_SRC,
            "mul": on & ~stage.MUL_BYPASS,
            "mul_src": registers.MUL_CFG.MUL_SRC,
            "prelu": stage.MUL_PRELU,
            "relu": on & ~stage.RELU_BYPASS,
            "relux": on & stage.RELUX_EN,
        }

    def _operand(self, m: Module, settings: data.View, step: Value, control: Value, lane: int) -> Value:
        """Operand of a step for a lane, binary32."""
        alu, mul = [], []
        for name, source, table in (("BS", settings.bs, self.bs), ("BN", settings.bn, self.bn)):
            registers = self.cfg.stage(name)
            alu.append(Mux(source[0], table.alu[lane], registers.ALU_CFG.ALU_OPERAND.as_unsigned()))
            mul.append(Mux(source[1], table.mul[lane], registers.MUL_CFG.MUL_OPERAND.as_unsigned()))
        bs, bn = Mux(step[0], alu[0], mul[0]), Mux(step[2], mul[1], alu[1])
        given = wire(m, Mux(step[4], self.ew[lane], Mux(step[:2] != 0, bs, bn)), 32)
        half = Mux(settings.brain, float32.widen_bf16(given), float32.widen_fp16(m, given[:16]))
        wide = wire(m, Mux(control.half, half, given), 32)
        return wire(m, Cat(wide[:31], wide[31] ^ control.minus), 32)


def _cut(m: Module, value: Value, passed: Value, positive: Shift, negative: Shift) -> Value:
    """The bits of a product, shifted as a signed integer by the count for its sign, or as they are."""
    number = extend(value.as_signed(), 34)
    down = wire(m, Mux(value[31], round_shift(number, negative), round_shift(number, positive))[:32], 32)
    return wire(m, Mux(passed, value, down), 32)


def _other(m: Module, settings: data.View, value: Value, operand: Value, quotient: Value) -> Value:
    """EW functions other than addition and multiplication; an unknown one leaves the value unchanged."""
    v, e, algo = wire(m, value, 32), wire(m, operand, 32), settings.algo
    least = algo == AluAlgo.MIN
    high, low = wire(m, Mux(least, e, v), 32), wire(m, Mux(least, v, e), 32)
    chosen = wire(m, Mux(float32.above(high, low), Cat(v, Const(1, 1)), e), 33)  # whether it is `v`
    best = Mux(settings.binary, chosen[32:], chosen[:32])
    whole = float32.to_integral(m, v, algo == AluAlgo.CEIL)
    result: Value = Mux((algo == AluAlgo.FLOOR) | (algo == AluAlgo.CEIL), whole, v)
    result = Mux(algo == AluAlgo.NEG, float32.negate(v), result)
    result = Mux(algo == AluAlgo.ABS, v[:31], result)
    result = Mux(algo == AluAlgo.DIV, quotient, result)
    return wire(m, Mux(algo[1:] == 0, best, result), 32)  # max and min are 0 and 1


class NoFloatUnit(FloatUnit):
    """Takes the place of `FloatUnit` in a DPU without floats: all outputs are 0."""

    def elaborate(self, platform: object) -> Module:
        return Module()
