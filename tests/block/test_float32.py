"""rtl/npu/float32.py against numpy's binary32: every pair of special values, then random ones."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from amaranth.hdl import Const, Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator

from rkcosim.golden.task import dpu_float as fp
from rkcosim.rtl.npu import float32
from rkcosim.rtl.npu.dpu_divide import HalfDivider
from tests.extent import extent
from tests.twins.float_model import half_quotient

SEED = 20
SPECIALS = [
    0x00000000,  # 0
    0x00000001,  # the smallest subnormal
    0x00000003,
    0x00400000,
    0x007FFFFF,  # the largest subnormal
    0x00800000,  # the smallest normal
    0x00800001,
    0x00FFFFFF,
    0x0C000000,
    0x32FFFFFF,
    0x33000000,  # 2^-25
    0x33000001,
    0x33800000,  # 2^-24
    0x387FC000,  # the largest fp16 subnormal
    0x387FE000,
    0x387FF000,  # ties with the smallest fp16 normal
    0x38800000,
    0x3EFFFFFF,
    0x3F000000,  # 0.5
    0x3F7FFFFF,
    0x3F800000,  # 1
    0x3F800001,
    0x3F801000,  # tie of fp16
    0x3F803000,
    0x3F808000,  # tie of bf16
    0x3F818000,
    0x3FC00000,  # 1.5
    0x40200000,  # 2.5
    0x4B000000,  # 2^23
    0x4B000001,
    0x4AFFFFFF,  # 2^23 - 0.5
    0x4EFFFFFF,  # below 2^31
    0x4F000000,  # 2^31
    0x477FE000,  # 65504
    0x477FEFFF,
    0x477FF000,  # tie with fp16's infinity
    0x7F000000,
    0x7F7F7FFF,
    0x7F7F8000,  # tie with bf16's infinity
    0x7F7FFFFF,  # the largest
    0x7F800000,  # infinity
    0x7F800001,  # NaNs
    0x7FC00000,
]
VALUES = SPECIALS + [value | 1 << 31 for value in SPECIALS]


class Functions(wiring.Component):
    """All functions in parallel; `valid` gates them like a pipeline stage."""

    valid: In(1)
    a: In(32)
    b: In(32)
    add: Out(32)
    subtract: Out(32)
    multiply: Out(32)
    above: Out(1)
    special_sum: Out(32)
    special_difference: Out(32)
    from_int32: Out(32)
    to_int32: Out(32)
    widen_fp16: Out(32)
    widen_bf16: Out(32)
    narrow_fp16: Out(16)
    narrow_bf16: Out(16)
    floor: Out(32)
    ceil: Out(32)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        a, b, one = self.a, self.b, Const(1, 1)
        with m.If(self.valid):
            m.d.comb += [
                self.add.eq(float32.finish(m, float32.exact_sum(m, a, b))),
                self.subtract.eq(float32.finish(m, float32.exact_sum(m, a, float32.negate(b)))),
                self.multiply.eq(float32.multiply(m, a, b)),
                self.above.eq(float32.above(a, b)),
                self.special_sum.eq(float32.finish(m, float32.exact_sum(m, a, b, one, ~one))),
                self.special_difference.eq(
                    float32.finish(m, float32.exact_sum(m, a, float32.negate(b), ~one, one))
                ),
                self.from_int32.eq(float32.from_int32(m, a)),
                self.to_int32.eq(float32.to_int32(m, a)),
                self.widen_fp16.eq(float32.widen_fp16(m, a[:16])),
                self.widen_bf16.eq(float32.widen_bf16(a[:16])),
                self.narrow_fp16.eq(float32.narrow_fp16(m, a)),
                self.narrow_bf16.eq(float32.narrow_bf16(m, a)),
                self.floor.eq(float32.to_integral(m, a, Value.cast(0))),
                self.ceil.eq(float32.to_integral(m, a, Value.cast(1))),
            ]
        return m


TWO = ("add", "subtract", "multiply", "above", "special_sum", "special_difference")


def _nan(value: np.float32) -> bool:
    return bool(np.isnan(value))


def _bits(value: Any) -> int:
    """Return the bits of a binary32, with a single NaN."""
    value = np.float32(value)
    return float32.NAN if _nan(value) else int(value.view(np.uint32))


def _to_int32(value: np.float32) -> int:
    if _nan(value):
        return 0
    if np.isinf(value):
        return 0x7FFFFFFF if value > 0 else 0x80000000
    return max(-(1 << 31), min((1 << 31) - 1, round(float(value)))) % 2**32


def _half(value: np.float32) -> int:
    return float32.NAN_FP16 if _nan(value) else int(np.float16(value).view(np.uint16))


def _brain(bits: int, value: np.float32) -> int:
    """Convert to bf16 by comparing the distances of the two neighbours."""
    if _nan(value):
        return float32.NAN_BF16
    low, rest = bits >> 16, bits & 0xFFFF
    return low + (rest > 0x8000 or (rest == 0x8000 and low & 1))


def _place(bits: int) -> int:
    """Place in the order from -NaN to NaN."""
    magnitude = bits & 0x7FFFFFFF
    return -1 - magnitude if bits >> 31 else magnitude


def _difference(a: int, b: int) -> int:
    """EW's difference: infinities of the same sign give +infinity, others NaN."""
    x, y = (np.uint32(v).view(np.float32) for v in (a, b))
    if np.isinf(x) and np.isinf(y):
        return 0x7F800000 if a == b else float32.NAN
    return _bits(x - y)


def reference(a: int, b: int) -> dict[str, int]:
    """Return numpy's result for the operands."""
    x, y = (np.uint32(v).view(np.float32) for v in (a, b))
    with np.errstate(all="ignore"):
        half = np.uint16(a & 0xFFFF).view(np.float16)
        payload = (a >> 15 & 1) << 31 | 0x7F800000 | (a & 0x3FF) << 13
        return {
            "add": _bits(x + y),
            "subtract": _bits(x - y),
            "multiply": _bits(x * y),
            "above": int(_place(a) > _place(b)),
            "special_sum": 0 if a == b == 1 << 31 else _bits(x + y),
            "special_difference": _difference(a, b),
            "from_int32": _bits(np.float32(np.uint32(a).view(np.int32))),
            "to_int32": _to_int32(x),
            "widen_fp16": payload if np.isnan(half) else _bits(np.float32(half)),
            "widen_bf16": (a & 0xFFFF) << 16,
            "narrow_fp16": _half(x),
            "narrow_bf16": _brain(a, x),
            "floor": _bits(np.floor(x)),
            "ceil": _bits(np.ceil(x)),
        }


def random_value(rng: random.Random, near: int | None = None) -> int:
    """Any bits, a plain number, a half-precision number, or one whose exponent is close to `near`'s."""
    kind = rng.randrange(5)
    if kind == 0 and near is not None:
        exponent = min(255, max(0, (near >> 23 & 0xFF) + rng.randint(-30, 30)))
        return rng.getrandbits(1) << 31 | exponent << 23 | rng.getrandbits(23)
    if kind == 1:
        return int(np.float32(rng.uniform(-4, 4)).view(np.uint32))
    if kind == 2:
        return int(np.float32(rng.randint(-(1 << 24), 1 << 24) / 2 ** rng.randrange(30)).view(np.uint32))
    if kind == 3:  # few bits set: ties
        return rng.getrandbits(9) << 23 | (rng.getrandbits(2) << rng.randrange(22))
    return rng.getrandbits(32)


def _pairs(rng: random.Random, count: int) -> list[tuple[int, int]]:
    result = []
    for _ in range(count):
        a = random_value(rng)
        result.append((a, random_value(rng, a)))
    return result


def _simulate(dut: Any, main: Callable[[Any], Any], clocked: bool = False) -> None:
    sim = Simulator(dut)
    if clocked:
        sim.add_clock(1e-6)
    sim.add_testbench(main)
    sim.run()


def test_functions() -> None:
    """Pairs of special values, all single special values, and random pairs, bit for bit."""
    rng = random.Random(SEED)
    print(f"seed {SEED}")
    pairs = [(a, b) for a in VALUES for b in rng.sample(VALUES, extent(12, 24))]
    pairs += _pairs(rng, extent(1200, 2500))
    dut = Functions()

    async def main(ctx: Any) -> None:
        ctx.set(dut.valid, 1)
        for a, b in pairs:
            ctx.set(dut.a, a)
            ctx.set(dut.b, b)
            for name, wanted in reference(a, b).items():
                got = ctx.get(getattr(dut, name))
                assert got == wanted, f"{name}({a:#010x}, {b:#010x}) = {got:#x}, expected {wanted:#x}"

    _simulate(dut, main)


def test_every_fp16_survives() -> None:
    """Widening and narrowing returns every fp16 unchanged, and all NaNs as the single NaN."""
    wide = Signal(32)
    narrow = Signal(16)
    value = Signal(16)
    m = Module()
    m.d.comb += [wide.eq(float32.widen_fp16(m, value)), narrow.eq(float32.narrow_fp16(m, wide))]

    async def main(ctx: Any) -> None:
        for bits in [*range(0, 0x800), *range(0x800, 0x10000, 13)]:
            ctx.set(value, bits)
            nan = bits & 0x7FFF > 0x7C00
            assert ctx.get(narrow) == (float32.NAN_FP16 if nan else bits), hex(bits)

    _simulate(m, main)


def test_idle_functions_rest() -> None:
    """Without `valid` the outputs do not depend on the operands."""
    dut = Functions()

    async def main(ctx: Any) -> None:
        seen = []
        for a, b in [(0x3F800000, 0x40000000), (0x7F800000, 0xFF800000)]:
            ctx.set(dut.a, a)
            ctx.set(dut.b, b)
            seen.append([ctx.get(getattr(dut, name)) for name in TWO])
        assert seen[0] == seen[1]

    _simulate(dut, main)


@pytest.mark.parametrize("lanes", [4])
def test_divider(lanes: int) -> None:
    """Quotients bit for bit; `done` falls with the start and rises once."""
    rng = random.Random(SEED)
    print(f"seed {SEED}")
    pairs = [(a, b) for a in VALUES for b in rng.sample(VALUES, 6)] + _pairs(rng, 700)
    dut = float32.Divider(lanes)

    async def main(ctx: Any) -> None:
        assert not ctx.get(dut.done)
        for first in range(0, len(pairs) - lanes + 1, lanes):
            chosen = pairs[first : first + lanes]
            if first % 64 == 0:  # a division in progress is aborted
                ctx.set(dut.start, 1)
                await ctx.tick()
                ctx.set(dut.start, 0)
                await ctx.tick().repeat(1 + rng.randrange(float32.DIVIDE_STEPS))
            for lane, (a, b) in enumerate(chosen):
                ctx.set(dut.a[lane], a)
                ctx.set(dut.b[lane], b)
            ctx.set(dut.start, 1)
            await ctx.tick()
            ctx.set(dut.start, 0)
            for lane in range(lanes):
                ctx.set(dut.a[lane], rng.getrandbits(32))
            for _ in range(float32.DIVIDE_STEPS + 1):
                assert not ctx.get(dut.done)
                await ctx.tick()
            assert ctx.get(dut.done)
            for lane, (a, b) in enumerate(chosen):
                x, y = (np.uint32(v).view(np.float32) for v in (a, b))
                with np.errstate(all="ignore"):
                    wanted = _bits(x / y)
                got = ctx.get(dut.result[lane])
                assert got == wanted, f"{a:#010x} / {b:#010x} = {got:#010x}, expected {wanted:#010x}"

    _simulate(dut, main, clocked=True)


HALVES = [0, 1, 3, 0x3FF, 0x400, 0x3555, 0x3C00, 0x3C01, 0x4248, 0x7BFF, 0x7C00, 0x7C01, 0x7E00]


def test_half_divider() -> None:
    """All pairs of special fp16 numbers, with the quotients of boards, and random ones."""
    lanes, rng = 8, random.Random(SEED)
    values = HALVES + [value | 1 << 15 for value in HALVES]
    pairs = [(a, b) for a in values for b in values] + [
        (rng.getrandbits(16), rng.getrandbits(16)) for _ in range(500)
    ]
    dut = HalfDivider(lanes)
    cycles: set[int] = set()

    async def main(ctx: Any) -> None:
        ctx.set(dut.use, 1)
        assert not ctx.get(dut.done)
        for first in range(0, len(pairs) - lanes + 1, lanes):
            chosen = pairs[first : first + lanes]
            for lane, (a, b) in enumerate(chosen):
                ctx.set(dut.a[lane], a)
                ctx.set(dut.b[lane], b)
            ctx.set(dut.start, 1)
            await ctx.tick()
            ctx.set(dut.start, 0)
            waited = 0
            while not ctx.get(dut.done) and waited < 40:
                await ctx.tick()
                waited += 1
            cycles.add(waited)
            for _ in range(rng.randrange(3)):  # valid until the next start
                await ctx.tick()
                assert ctx.get(dut.done)
            for lane, (a, b) in enumerate(chosen):
                got = ctx.get(dut.result[lane])
                assert got == half_quotient(a, b), f"{a:#06x} / {b:#06x} = {got:#06x}"

    _simulate(dut, main, clocked=True)
    assert cycles == {float32.DIVIDE_STEPS + 1}, "every division takes as long"


# Of 81 pairs of special values on a board (remaining-ops, tinygrad-backend of docs/reference/15-sources.md):
# what differs from IEEE 754, and the NaN of +0 / +0, which a task printed as 4.448422e-41.
BOARD = [
    (0x0000, 0xC000, 0x0000),
    (0x8000, 0xC000, 0x8000),
    (0x3C00, 0x8000, 0x7C00),
    (0x3C00, 0xFC00, 0x0000),
    (0x7C00, 0xBC00, 0x7C00),
    (0x0000, 0x0000, 0x7C01),
]


@pytest.mark.parametrize(("a", "b", "quotient"), BOARD)
def test_quotients_of_a_board(a: int, b: int, quotient: int) -> None:
    assert half_quotient(a, b) == quotient
    assert int(fp.divide16(np.int64(a), np.int64(b))) == quotient


def test_invalid_quotients_of_a_board() -> None:
    """Zeros of which one has its sign bit, and infinities, gave infinities of an unknown sign."""
    for a, b in [(0, 0x8000), (0x8000, 0), (0x8000, 0x8000)] + [
        (x, y) for x in (0x7C00, 0xFC00) for y in (0x7C00, 0xFC00)
    ]:
        assert half_quotient(a, b) & 0x7FFF == int(fp.divide16(np.int64(a), np.int64(b))) & 0x7FFF == 0x7C00
