"""Proofs of arithmetic against the formulas of the hardware reference.

The formulas are written here with quotient and remainder, where the RTL adds just under half and shifts.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from functools import reduce
from operator import or_
from types import ModuleType
from typing import Any
from unittest import mock

from amaranth.hdl import Cat, Const, Mux, Signal, Value, signed
from amaranth.lib import data

from rkcosim.rtl.layouts import ACC_BITS, IDLE
from rkcosim.rtl.npu import dpu_cvt, dpu_frame, dpu_scale, float32
from rkcosim.rtl.npu.arith import HIGHEST, LOWEST, clamp, rectifier_limits, round_shift, shift_of
from rkcosim.rtl.npu.dpu_cvt import OutputConverter
from rkcosim.rtl.npu.dpu_frame import AluAlgo
from rkcosim.rtl.npu.dpu_scale import BnStages, BsStages
from rkcosim.rtl.npu.dpu_types import Precision
from rkcosim.spec.types import INT8
from tools.proofs.bench import Bench, named


def _rest(bench: Bench, value: Value, count: Value) -> tuple[Signal, Signal]:
    """Return whether the rest of value / 2^count, rounded down, is more than half, and whether it is half."""
    bits = len(value)
    unit = named(bench, f"unit_{bits}", (Const(1, bits + 1) << count)[: bits + 1])
    rest = named(bench, f"rest_{bits}", value & (unit - 1)[:bits])
    half = named(bench, f"half_{bits}", unit >> 1)
    divides = unit != 1
    more = named(bench, f"more_{bits}", divides & Mux(unit == 0, value[-1], rest > half))
    return more, named(bench, f"tie_{bits}", (unit > 1) & (rest == half))


def rounded(bench: Bench, name: str, value: Value, count: Value, *, away: Value | int = 0) -> Signal:
    """Return value / 2^count, rounded half to even or half away from zero [HW 7.10]."""
    whole = named(bench, f"{name}_whole", (value.as_signed() >> count)[: len(value)].as_signed())
    more, tie = _rest(bench, value, count)
    up = more | (tie & Mux(away, ~value[-1], whole[0]))
    return named(bench, f"{name}_rounded", (whole + up)[: len(value) + 1].as_signed())


def rounding_shift(bench: Bench) -> None:
    """Shift with rounding of the products of BS and OUT_CVT, 49 bits, all counts."""
    bits = 49
    value, count = bench.free("value", signed(bits)), bench.free("count", 6)
    # As of a product of two signed numbers: at most 2^(bits - 2) in magnitude.
    bench.assume((value <= (1 << (bits - 2))) & (value >= -(1 << (bits - 2))))
    even = round_shift(value, shift_of(count))
    bench.claim("half to even", even[: bits + 1].as_signed() == rounded(bench, "even", value, count))
    away = round_shift(value, shift_of(count), away=Const(1))
    bench.claim(
        "half away from zero", away[: bits + 1].as_signed() == rounded(bench, "away", value, count, away=1)
    )
    bench.claim("the result fits", even == even[:bits].as_signed())
    bench.reach((count == 3) & (value[:3] == 4) & value[3])
    bench.reach(value[-1] & (count == 5))


def clamps(bench: Bench) -> None:
    """Saturation to limits, and the limits of ReLU and ReLUX."""
    value = bench.free("value", signed(50))
    relu, relux, limit = bench.free("relu"), bench.free("relux"), bench.free("limit", signed(32))
    low, high = rectifier_limits(relu, relux, limit)
    result = named(bench, "result", clamp(value, low, high))
    fits = named(
        bench, "fits", Mux(value > HIGHEST, HIGHEST, Mux(value < LOWEST, LOWEST, value))[:32].as_signed()
    )
    positive = named(bench, "positive", Mux(relu & fits[-1], 0, fits)[:32].as_signed())
    limited = Mux(relux & (positive > limit) & ~(limit < 0), limit, positive)
    expected = Mux(relu & relux & (limit < 0), limit, limited)
    bench.claim("saturation, ReLU, then ReLUX", (limit < 0) | (result == expected))
    bench.claim("a result is never above the limit of ReLUX", ~relux | (result <= limit))
    bench.claim("ReLU without ReLUX gives no negative number", ~relu | relux | (result >= 0))
    bench.reach(relu & (value < 0))
    bench.reach(relux & (value > limit) & (limit > 0))


@dataclass(frozen=True)
class _Cut:
    """A block of stages, cut at the registers of lane 0.

    What reads a register reads a free value instead; what the block stores into it is compared with a
    formula.  A claim about a stage that holds for every content of the registers before it holds for the
    content that the stage before stores: together the claims are about the block as it is, and none has both
    a multiplier and a shift in it.

    Members
    -------
    free : the value that is read instead of each register.
    stored : what each register loads.
    """

    free: dict[str, Signal]
    stored: dict[str, Value]


def _cut(
    bench: Bench,
    block: Any,
    module: ModuleType,
    registers: dict[str, Any],
    wires: dict[str, Any] | None = None,
) -> _Cut:
    """Elaborate a block with all stages valid, and cut it.

    Parameters
    ----------
    module : the module of the block.
    registers : shape of each register that `module.lanes` makes and that is cut.
    wires : shape of each wire that is cut in the same way; the first one of that shape is that of lane 0.

    The settings, which the block loads into registers at the start of a task, are read as they are: claims
    hold for settings that the solver chooses in every cycle, which include those that stay the same. So are
    the registers that the module makes itself, which are loaded with an octet: what they hold was loaded with
    some octet, whose settings the solver chooses.
    """
    found = {} if wires is None else dict(wires)
    free = {name: bench.free(f"{name}_cut", shape) for name, shape in (registers | found).items()}
    stored: dict[str, Value] = {}
    original = module.lanes

    def signal(shape: Any = None, **options: Any) -> Signal:
        name = next((name for name, wanted in found.items() if wanted == shape), None)
        if name is None and not options.get("reset_less"):
            return Signal(shape, **options)
        read, sink = Signal(shape, name=f"{name or 'octet'}_read"), Signal(shape, **options)

        def wired(value: Any) -> Any:
            return sink.eq(value)

        def loaded(value: Any) -> Any:
            bench.m.d.comb += Value.eq(read, value)
            return sink.eq(value)

        read.eq = loaded if name is None else wired
        if name is not None:
            del found[name]
            stored[name] = sink
            bench.m.d.comb += Value.eq(read, free[name])
        return read

    def lanes(wanted: str, shape: Any) -> list[Signal]:
        made: list[Signal] = original(wanted, shape)
        if wanted in free:
            sink, given = made[0], free[wanted]
            if sink.shape() != given.shape():
                raise ValueError(f"the register {wanted} has the shape {sink.shape()}")

            def store(value: Any) -> Any:
                stored[wanted] = Value.cast(value)
                return sink.eq(value)

            made[0] = Signal(shape, name=f"{wanted}_read")
            bench.m.d.comb += made[0].eq(given)
            made[0].eq = store
        return made

    def held(m: Any, when: Value, value: Any, shape: Any = None, name: str = "") -> Any:
        value = Value.cast(value)
        given = Signal(value.shape() if shape is None else shape)
        m.d.comb += given.eq(value)
        return given

    def held_flags(m: Any, when: Value, **flags: Any) -> Any:
        given = Signal(data.StructLayout(dict.fromkeys(flags, 1)))
        m.d.comb += [given[name].eq(flag) for name, flag in flags.items()]
        return given

    def held_shift(m: Any, when: Value, name: str, count: Value) -> Any:
        return shift_of(held(m, when, count, 6))

    bench.m.d.comb += block.flow.advance.eq(1)
    bench.m.d.comb += [block.flow.valid[n].eq(1) for n in range(len(block.flow.valid))]
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(module, "Signal", signal))
        for place in (module, dpu_frame):
            for function in (held, held_flags, held_shift, lanes):
                if hasattr(place, function.__name__) and (function is not lanes or place is module):
                    stack.enter_context(mock.patch.object(place, function.__name__, function))
        bench.m.submodules.block = block.elaborate(None)
    block._MustUse__used = True  # the elaborated module is used instead
    return _Cut(free, stored)


def _assume_product(bench: Bench, product: Signal) -> None:
    """Assume the magnitude of a product of two signed numbers of n bits together: at most 2^(n - 2)."""
    bits = len(product)
    bench.assume((product <= (1 << (bits - 2))) & (product >= -(1 << (bits - 2))))


@dataclass(frozen=True)
class _Scale:
    """Settings of BS or BN."""

    minus: Signal
    prelu: Signal
    relu: Signal
    addend: Signal
    factor: Signal
    positive: Signal
    negative: Signal

    @property
    def term(self) -> Value:
        """What the ALU adds."""
        return Mux(self.minus, -self.addend, self.addend)

    def shifted(self, bench: Bench, product: Signal, plain: Signal) -> Signal:
        """Return a value, shifted by the count for its sign with rounding half to even; saturated."""
        count = named(bench, "count", Mux(product[-1], self.negative, self.positive))
        near = rounded(bench, "scaled", product, count)
        return named(
            bench, "shifted", _saturated(named(bench, "kept", Mux(plain, product, near).as_signed()))
        )


def _scale(bench: Bench, cfg: Any, name: str) -> _Scale:
    """Set up BS or BN with operands of registers, adder, multiplier and ReLU in use, any values."""
    made = _Scale(
        bench.free("minus"),
        bench.free("prelu"),
        bench.free("relu"),
        bench.free("addend", signed(32)),
        bench.free("factor", signed(16)),
        bench.free("positive", 6),
        bench.free("negative", 6),
    )
    stage = getattr(cfg, f"{name}_CFG")
    bench.m.d.comb += [
        stage[f"{name}_ALU_ALGO"].eq(Mux(made.minus, AluAlgo.MINUS, AluAlgo.ADD)),
        stage[f"{name}_MUL_PRELU"].eq(made.prelu),
        stage[f"{name}_RELU_BYPASS"].eq(~made.relu),
        getattr(cfg, f"{name}_ALU_CFG")[f"{name}_ALU_OPERAND"].eq(made.addend),
        getattr(cfg, f"{name}_MUL_CFG")[f"{name}_MUL_OPERAND"].eq(made.factor),
        getattr(cfg, f"{name}_MUL_CFG")[f"{name}_MUL_SHIFT_VALUE"].eq(made.positive),
        cfg.DATA_FORMAT[f"{name}_MUL_SHIFT_VALUE_NEG"].eq(made.negative),
    ]
    return made


def _saturated(value: Value) -> Value:
    return Mux(value > HIGHEST, HIGHEST, Mux(value < LOWEST, LOWEST, value))[:32].as_signed()


def bn_stages(bench: Bench) -> None:
    """BN of integers: multiply, add, shift the sum with rounding by its sign, saturate, ReLU [HW 7.7]."""
    block = BnStages()
    settings, main = _scale(bench, block.cfg, "BN"), bench.free("main", signed(32))
    bench.m.d.comb += block.main[0].eq(main)
    cut = _cut(bench, block, dpu_scale, {"product": signed(48), "plain": 1, "operand": signed(33)})
    product, passed = cut.free["product"], cut.free["plain"]
    _assume_product(bench, product)
    plain = named(bench, "passes", settings.prelu & ~main[-1])
    bench.claim("PReLU lets a value pass that is not negative", cut.stored["plain"] == plain)
    bench.claim("the operand is added or subtracted", cut.stored["operand"] == settings.term)
    # The RTL has no factor for a value that passes; the solver does not compare other products.
    made = Mux(plain, main, main * Mux(plain, IDLE, settings.factor)[:16].as_signed())
    bench.claim("the product, or the value that passes", cut.stored["product"] == made)
    added = named(bench, "added", product + cut.free["operand"])
    limited = settings.shifted(bench, added, passed)
    expected = Mux(settings.relu & limited[-1], 0, limited)[:32]
    bench.claim(
        "sum, shift, saturation and ReLU of every product",
        block.value[0].as_unsigned() == expected,
    )
    bench.reach(passed & (expected == 3))
    bench.reach(~passed & (settings.negative == 5) & (expected[:8] == 0x81) & expected[31])


def bs_stages(bench: Bench) -> None:
    """BS of integers in flying mode: add, multiply, shift with rounding by sign, saturate, ReLU [HW 7.5]."""
    block = BsStages()
    settings, given = _scale(bench, block.cfg, "BS"), bench.free("given", signed(32))
    bench.m.d.comb += block.cfg.FEATURE_MODE_CFG.FLYING_MODE.eq(1)
    bench.m.d.comb += block.given.main[0].eq(given)
    shapes = {"main": signed(32), "total": signed(33), "factor": signed(16), "product": signed(49)}
    cut = _cut(bench, block, dpu_scale, {**shapes, "plain": 1, "held": signed(32)})
    main, total, product = (cut.free[name] for name in ("main", "total", "product"))
    _assume_product(bench, product)
    bench.claim("the value enters", cut.stored["main"] == given.as_unsigned())
    bench.claim("the operand is added or subtracted", cut.stored["total"] == main + settings.term)
    bench.claim("the factor is that of its register", cut.stored["factor"] == settings.factor)
    plain = named(bench, "passes", settings.prelu & ~total[-1])
    bench.claim("PReLU lets a sum pass that is not negative", cut.stored["plain"] == plain)
    made = Mux(plain, total, total * cut.free["factor"])
    bench.claim("the product of the sum, or the sum that passes", cut.stored["product"] == made)
    limited = settings.shifted(bench, product, cut.free["plain"])
    expected = named(bench, "expected", Mux(settings.relu & limited[-1], 0, limited)[:32].as_signed())
    bench.claim("shift, saturation and ReLU of every product", cut.stored["held"] == expected)
    bench.claim("the result is the last register", block.value[0] == cut.free["held"])
    bench.reach(cut.free["plain"] & (expected == 3))
    bench.reach(~cut.free["plain"] & (settings.negative == 5) & (expected[:8] == 0x81) & expected[31])


def cpend(bench: Bench) -> None:
    """CPEND and CLIP_TRUNCATE: correction, shift with rounding, saturation, and the sum of BS [HW 7.4]."""
    block = BsStages()
    settings, cfg = _scale(bench, block.cfg, "BS"), block.cfg
    flying, bypass, from_memory = bench.free("flying"), bench.free("bypass"), bench.free("from_memory")
    operand, value = bench.free("ow_op", signed(16)), bench.free("value", signed(16))
    count, up = bench.free("clip_shift", 5), bench.free("half_up")
    given = {
        "main": bench.free("given_main", 32),
        "high": bench.free("given_high", ACC_BITS - 32),
        "sum": bench.free("given_sum", 32),
    }
    bench.m.d.comb += [
        cfg.FEATURE_MODE_CFG.FLYING_MODE.eq(flying),
        cfg.BS_OW_CFG.OD_BYPASS.eq(bypass),
        cfg.BS_OW_CFG.OW_SRC.eq(from_memory),
        cfg.BS_OW_OP.OW_OP.eq(operand),
        block.operands.cpend[0].eq(value),
        block.given.clip.shift.eq(count),
        block.given.clip.half_up.eq(up),
        *(getattr(block.given, name)[0].eq(signal) for name, signal in given.items()),
    ]
    cut = _cut(
        bench,
        block,
        dpu_scale,
        {"main": signed(32), "high": signed(ACC_BITS - 32), "sum": 32, "total": signed(33)},
        {"window": signed(ACC_BITS), "short": signed(50), "before": signed(32)},
    )
    main, high, total, window, short, before = (
        cut.free[name] for name in ("main", "high", "sum", "window", "short", "before")
    )
    for name, text in {"main": "low bits of a sum", "high": "high bits of it", "sum": "window sum"}.items():
        signal = given[name]
        bench.claim(f"{text} as given", Value.cast(cut.stored[name]).as_unsigned() == signal)
    factor = named(bench, "factor", Mux(from_memory, value, operand).as_signed())
    correction = Mux(
        flying | bypass, 0, Mux(from_memory, total.as_signed() * value, total.as_signed() * operand)
    )
    bench.claim(
        "the correction is the window sum times OW_OP or the value of BRDMA",
        flying | (cut.stored["window"] == correction),
    )
    whole = named(bench, "whole", Cat(main, high).as_signed() + window)
    quotient = named(bench, "quotient", whole >> count)
    more, tie = _rest(bench, whole, count)
    near = named(bench, "near", quotient + (more | (tie & (up | quotient[0]))))
    bench.claim("shift with rounding half to even or half up", flying | (cut.stored["short"] == near))
    bench.claim(
        "saturation of sums, and elements as they are",
        cut.stored["before"] == Mux(flying, main, _saturated(short)).as_signed(),
    )
    bench.claim("the operand is added or subtracted", cut.stored["total"] == before + settings.term)
    bench.claim("values of BRDMA are wanted for OW_SRC", block.wanted == (from_memory & ~bypass))
    bench.reach((near == 3) & tie & up & ~flying)
    bench.reach((factor == -2) & (total == 5) & (cut.stored["window"] == -10))
    bench.reach((near == -4) & tie & ~up & (count == 31) & ~flying)


LIMITS: dict[Any, int] = {
    Precision.INT4: 7,
    Precision.INT8: 0x7F,
    Precision.INT16: 0x7FFF,
    Precision.INT32: HIGHEST,
}
"""Largest number of an integer type."""


def out_cvt(bench: Bench) -> None:
    """OUT_CVT of integers: scale, shift and offset with rounding, saturation to the type [HW 7.10]."""
    block = OutputConverter()
    offset, scale = bench.free("offset", signed(32)), bench.free("scale", signed(16))
    count, away, kind = bench.free("count", 6), bench.free("away"), bench.free("kind", 3)
    add_first, late = bench.free("add_first"), bench.free("late")
    live, main, pend = bench.free("live", 4), bench.free("main", signed(32)), bench.free("pend", signed(16))
    bench.assume(reduce(or_, (kind == code.value for code in LIMITS)))
    cfg = block.cfg
    bench.m.d.comb += [
        cfg.OUT_CVT_OFFSET.OUT_CVT_OFFSET.eq(offset),
        cfg.OUT_CVT_SCALE.OUT_CVT_SCALE.eq(scale),
        cfg.OUT_CVT_SHIFT.OUT_CVT_SHIFT.eq(count),
        cfg.OUT_CVT_SHIFT.CVT_TYPE.eq(add_first),
        cfg.OUT_CVT_SHIFT.CVT_ROUND.eq(away),
        cfg.DATA_FORMAT.OUT_PRECISION.eq(kind),
        cfg.OFFSET_PEND.OFFSET_PEND.eq(pend),
        block.late_offset.eq(late),
        block.live.eq(live),
        block.main[0].eq(main),
    ]
    cut = _cut(bench, block, dpu_cvt, {"scaled": signed(49), "held": 32})
    product = cut.free["scaled"]
    _assume_product(bench, product)
    before = Mux(add_first, offset, 0).as_signed()
    bench.claim(
        "the product of scale and value, with the offset where it comes first",
        cut.stored["scaled"] == (main + before) * scale,
    )
    after = named(bench, "after", Mux(add_first, 0, offset).as_signed())
    whole = named(bench, "whole", (product >> count)[:49].as_signed())
    more, tie = _rest(bench, product, count)
    total = named(bench, "total", whole + after)
    # A tie lies above `total`, so that a total of 0 or more is positive with it.
    even = Mux(late, whole[0], total[0])
    from_zero = Mux(late, ~product[-1], ~total[-1])
    # The order of the sums is that of the RTL: the solver does not exchange them.
    near = named(bench, "near", (whole + (more | (tie & Mux(away, from_zero, even))))[:50].as_signed())
    number = named(bench, "number", near + after)
    result: Value = number
    for code, largest in LIMITS.items():
        limited = Mux(number > largest, largest, Mux(number < -largest - 1, -largest - 1, number))
        result = Mux(kind == code.value, limited, result)
    expected = named(bench, "expected", Mux(live == 0, pend, result)[:32])
    bench.claim("shift, offset, saturation and padding of every product", cut.stored["held"] == expected)
    bench.claim("the result is the last register", block.value[0] == cut.free["held"])
    bench.reach(away & (count == 3) & (expected == 5))
    bench.reach(~away & ~late & (kind == INT8.dpu_code) & (expected == 0xFFFFFF80))


def float_formats(bench: Bench) -> None:
    """fp16, bf16 and integers up to 2^24 are the same after a conversion to binary32 and back."""
    half, brain = bench.free("half", 16), bench.free("brain", 16)
    number = bench.free("number", signed(32))
    m = bench.m
    wide = named(bench, "wide", float32.widen_fp16(m, half))
    back = named(bench, "back", float32.narrow_fp16(m, wide))
    nan = (half[10:15] == 31) & (half[:10] != 0)
    bench.claim("fp16 survives binary32", nan | (back == half))
    wide_brain = named(bench, "wide_brain", float32.widen_bf16(brain))
    nan = (brain[7:15] == 255) & (brain[:7] != 0)
    bench.claim("bf16 survives binary32", nan | (float32.narrow_bf16(m, wide_brain)[:16] == brain))
    made = named(bench, "made", float32.from_int32(m, number.as_unsigned()))
    again = named(bench, "again", float32.to_int32(m, made))
    small = (number <= (1 << 24)) & (number >= -(1 << 24))
    bench.claim("integers up to 2^24 survive binary32", ~small | (again[:32] == number.as_unsigned()))
    bench.reach(half[:10].any() & (half[10:15] == 0))
    bench.reach(small & (number == -(1 << 24)))
