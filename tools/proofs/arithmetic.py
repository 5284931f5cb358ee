"""Proofs of arithmetic against the formulas of the hardware reference.

The formulas are written here with quotient and remainder, where the RTL adds just under half and shifts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Const, Mux, Signal, Value, signed

from rkcosim.rtl.npu import float32
from rkcosim.rtl.npu.arith import HIGHEST, LOWEST, clamp, rectifier_limits, round_shift, shift_of
from rkcosim.rtl.npu.dpu_frame import AluAlgo
from rkcosim.rtl.npu.dpu_scale import BnStages
from tools.proofs.bench import Bench


def _named(bench: Bench, name: str, value: Value) -> Signal:
    signal = Signal(value.shape(), name=name)
    bench.m.d.comb += signal.eq(value)
    return signal


def _rest(bench: Bench, value: Value, count: Value) -> tuple[Signal, Signal]:
    """Return whether the rest of value / 2^count, rounded down, is more than half, and whether it is half."""
    bits = len(value)
    unit = _named(bench, f"unit_{bits}", (Const(1, bits + 1) << count)[: bits + 1])
    rest = _named(bench, f"rest_{bits}", value & (unit - 1)[:bits])
    half = _named(bench, f"half_{bits}", unit >> 1)
    divides = unit != 1
    more = _named(bench, f"more_{bits}", divides & Mux(unit == 0, value[-1], rest > half))
    return more, _named(bench, f"tie_{bits}", (unit > 1) & (rest == half))


def rounded(bench: Bench, name: str, value: Value, count: Value, *, away: Value | int = 0) -> Signal:
    """Return value / 2^count, rounded half to even or half away from zero [HW 7.10]."""
    whole = _named(bench, f"{name}_whole", (value.as_signed() >> count)[: len(value)].as_signed())
    more, tie = _rest(bench, value, count)
    up = more | (tie & Mux(away, ~value[-1], whole[0]))
    return _named(bench, f"{name}_rounded", (whole + up)[: len(value) + 1].as_signed())


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
    result = _named(bench, "result", clamp(value, low, high))
    fits = _named(
        bench, "fits", Mux(value > HIGHEST, HIGHEST, Mux(value < LOWEST, LOWEST, value))[:32].as_signed()
    )
    positive = _named(bench, "positive", Mux(relu & fits[-1], 0, fits)[:32].as_signed())
    limited = Mux(relux & (positive > limit) & ~(limit < 0), limit, positive)
    expected = Mux(relu & relux & (limit < 0), limit, limited)
    bench.claim("saturation, ReLU, then ReLUX", (limit < 0) | (result == expected))
    bench.claim("a result is never above the limit of ReLUX", ~relux | (result <= limit))
    bench.claim("ReLU without ReLUX gives no negative number", ~relu | relux | (result >= 0))
    bench.reach(relu & (value < 0))
    bench.reach(relux & (value > limit) & (limit > 0))


VALUE_BITS = 10
"""Bits of values, 32 or 48 in the RTL."""

SHIFT_BITS = 3
"""Bits of shift counts, 6 in the RTL; the proof round_shift has all counts."""

FACTOR_BITS = 4
"""Bits of the multipliers' second operand, 16 in the RTL: solvers do not compare two large multipliers."""


def _age(bench: Bench) -> Signal:
    """Return the number of cycles since the first one, at most 7."""
    age = Signal(3, name="age")
    with bench.m.If(~age.all()):
        bench.m.d.sync += age.eq(age + 1)
    return age


def _flow(bench: Bench, flow: Any) -> None:
    """Start a task in the first cycle; from the second one on, every stage has an octet and moves on."""
    bench.m.d.comb += [flow.start.eq(bench.first), flow.advance.eq(1)]
    bench.m.d.comb += [flow.valid[n].eq(~bench.first) for n in range(len(flow.valid))]


def _stage(bench: Bench, value: Value, name: str) -> Signal:
    """Return a register that loads a value while the stages of the block do.

    Registers of block and formula are then equal in all cycles, and the solver need not compare multipliers.
    """
    return bench.when(~bench.first, value, name)


def _scaled(bench: Bench, name: str, product: Value, settings: _Scale) -> Value:
    """Return the product, shifted by the count for its sign with rounding half to even; 50 bits."""
    count = Mux(product[-1], settings.negative, settings.positive)
    return rounded(bench, name, product, _named(bench, f"{name}_count", count))


@dataclass(frozen=True)
class _Scale:
    """Settings of BN, constant during a run."""

    minus: Signal
    prelu: Signal
    relu: Signal
    addend: Signal
    factor: Signal
    positive: Signal
    negative: Signal


def _scale(bench: Bench, cfg: Any) -> _Scale:
    """Set up BN with operands of registers, adder, multiplier and ReLU in use, any values."""
    made = _Scale(
        bench.constant("minus"),
        bench.constant("prelu"),
        bench.constant("relu"),
        bench.constant("addend", signed(32)),
        bench.constant("factor", signed(FACTOR_BITS)),
        bench.constant("positive", SHIFT_BITS),
        bench.constant("negative", SHIFT_BITS),
    )
    bench.m.d.comb += [
        cfg.BN_CFG.BN_ALU_ALGO.eq(Mux(made.minus, AluAlgo.MINUS, AluAlgo.ADD)),
        cfg.BN_CFG.BN_MUL_PRELU.eq(made.prelu),
        cfg.BN_CFG.BN_RELU_BYPASS.eq(~made.relu),
        cfg.BN_ALU_CFG.BN_ALU_OPERAND.eq(made.addend),
        cfg.BN_MUL_CFG.BN_MUL_OPERAND.eq(made.factor),
        cfg.BN_MUL_CFG.BN_MUL_SHIFT_VALUE.eq(made.positive),
        cfg.DATA_FORMAT.BN_MUL_SHIFT_VALUE_NEG.eq(made.negative),
    ]
    return made


def _saturated(value: Value) -> Value:
    return Mux(value > HIGHEST, HIGHEST, Mux(value < LOWEST, LOWEST, value))[:32].as_signed()


def bn_stages(bench: Bench) -> None:
    """BN of integers: multiply, shift with rounding by sign, saturate, add, saturate, ReLU [HW 7.6]."""
    block = BnStages()
    bench.m.submodules.block = block
    age = _age(bench)
    _flow(bench, block.flow)
    settings = _scale(bench, block.cfg)
    main = bench.free("main", signed(VALUE_BITS))
    bench.m.d.comb += block.main[0].eq(main)
    plain = settings.prelu & ~main[-1]
    product = _stage(bench, (main * settings.factor)[:48].as_signed(), name="product")
    kept, unscaled = _stage(bench, main, name="kept"), _stage(bench, plain, name="plain")
    shifted = _named(
        bench, "shifted", Mux(unscaled, kept, _scaled(bench, "scaled", product, settings)).as_signed()
    )
    term = Mux(settings.minus, -settings.addend, settings.addend)
    limited = _named(
        bench, "limited", _saturated(_named(bench, "added", (_saturated(shifted) + term).as_signed()))
    )
    expected = Mux(settings.relu & limited[-1], 0, limited)[:32]
    bench.claim("the value is that of the formula", (age < 3) | (block.value[0].as_unsigned() == expected))
    bench.reach((age == 7) & settings.prelu & (expected == 3))
    bench.reach((age == 7) & settings.prelu & (expected[:8] == 0x81) & expected[31])


def float_formats(bench: Bench) -> None:
    """fp16, bf16 and integers up to 2^24 are the same after a conversion to binary32 and back."""
    half, brain = bench.free("half", 16), bench.free("brain", 16)
    number = bench.free("number", signed(32))
    m = bench.m
    wide = _named(bench, "wide", float32.widen_fp16(m, half))
    back = _named(bench, "back", float32.narrow_fp16(m, wide))
    nan = (half[10:15] == 31) & (half[:10] != 0)
    bench.claim("fp16 survives binary32", nan | (back == half))
    wide_brain = _named(bench, "wide_brain", float32.widen_bf16(brain))
    nan = (brain[7:15] == 255) & (brain[:7] != 0)
    bench.claim("bf16 survives binary32", nan | (float32.narrow_bf16(m, wide_brain)[:16] == brain))
    made = _named(bench, "made", float32.from_int32(m, number.as_unsigned()))
    again = _named(bench, "again", float32.to_int32(m, made))
    small = (number <= (1 << 24)) & (number >= -(1 << 24))
    bench.claim("integers up to 2^24 survive binary32", ~small | (again[:32] == number.as_unsigned()))
    bench.reach(half[:10].any() & (half[10:15] == 0))
    bench.reach(small & (number == -(1 << 24)))
