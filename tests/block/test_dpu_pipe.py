"""The DPU's arithmetic: shift, rounding and saturation at the corners, and the pipe with random settings."""

import random
from typing import Any

import pytest
from amaranth.hdl import Module, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator

from rtl.npu.dpu_math import clamp, rectifier_limits, round_shift, shift_of
from rtl.npu.dpu_pipe import DpuPipe
from tests.block.dpu_bench import Bench
from tests.block.dpu_tasks import operand, random_task
from tests.block.test_dpu import configure
from tests.models.dpu_model import Fields, Operands, RdmaData, element_value, shift_round

LIMIT = 3000


class Rounder(wiring.Component):
    """The functions of dpu_math as one component."""

    value: In(signed(63))
    shift: In(6)
    away: In(1)
    even: Out(signed(64))
    either: Out(signed(64))
    sat8: Out(signed(32))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        shift = shift_of(self.shift)
        m.d.comb += [
            self.even.eq(round_shift(self.value, shift)),
            self.either.eq(round_shift(self.value, shift, self.away)),
            self.sat8.eq(clamp(self.either, -128, 127)),
        ]
        return m


def _clamp(value: int, bits: int) -> int:
    return min(max(value, -(1 << bits - 1)), (1 << bits - 1) - 1)


def test_rounding_at_every_shift() -> None:
    """Ties, their neighbours, limits and both signs at shifts 0 to 63, both rounding rules."""
    rng = random.Random(5)
    top = (1 << 62) - 2
    dut = Rounder()
    sim = Simulator(dut)

    async def main(ctx: Any) -> None:
        for shift in range(64):
            half, unit = (1 << shift) >> 1, 1 << shift
            values = {0, 1, -1, top, -top - 1, top - 1, -top, 1 << 31, -(1 << 31) - 1, 127, -129}
            for count in (0, 1, 2, 3, 126, 127, 128, (1 << 31) - 1, 1 << 31):
                for near in (-1, 0, 1):
                    values |= {count * unit + half + near, -(count * unit + half) + near, count * unit + near}
            values |= {rng.randint(-top, top) >> rng.randrange(62) for _ in range(8)}
            for value in values:
                if abs(value) > top:
                    continue
                for away in (False, True):
                    ctx.set(dut.value, value)
                    ctx.set(dut.shift, shift)
                    ctx.set(dut.away, away)
                    wanted = shift_round(value, shift, away)
                    got = ctx.get(dut.even), ctx.get(dut.either), ctx.get(dut.sat8)
                    case = f"value {value} shift {shift} away {away}"
                    assert got == (shift_round(value, shift), wanted, _clamp(wanted, 8)), case

    sim.add_testbench(main)
    sim.run()


def test_rounding_rules_of_the_model() -> None:
    """The reference itself, by hand: 2.5, 3.5 and their negatives, one above and below."""
    assert [shift_round(v, 1) for v in (5, 7, -5, -7)] == [2, 4, -2, -4]
    assert [shift_round(v, 1, True) for v in (5, 7, -5, -7)] == [3, 4, -3, -4]
    assert [shift_round(v, 2) for v in (9, 10, 11, -9, -10, -11)] == [2, 2, 3, -2, -2, -3]
    assert shift_round(-7, 0) == -7


def test_rectify() -> None:
    """Saturation, ReLU and ReLUX with a limit of either sign in one clamp."""

    class Unit(wiring.Component):
        value: In(signed(64))
        limit: In(signed(32))
        relu: In(1)
        relux: In(1)
        out: Out(signed(32))

        def elaborate(self, platform: object) -> Module:
            m = Module()
            m.d.comb += self.out.eq(clamp(self.value, *rectifier_limits(self.relu, self.relux, self.limit)))
            return m

    dut = Unit()
    sim = Simulator(dut)

    async def main(ctx: Any) -> None:
        limits = [-(1 << 31), -6, -1, 0, 1, 5, 6, 7, (1 << 31) - 1]
        for value in [*limits, -(1 << 31) - 1, 1 << 31, -(1 << 61), 1 << 61]:
            for limit in limits:
                for relu, relux in ((0, 0), (1, 0), (1, 1)):
                    for port, to in ((dut.value, value), (dut.limit, limit), (dut.relu, relu)):
                        ctx.set(port, to)
                    ctx.set(dut.relux, relux)
                    wanted = max(_clamp(value, 32), 0) if relu else _clamp(value, 32)
                    wanted = min(wanted, limit) if relux else wanted
                    assert ctx.get(dut.out) == wanted, (value, limit, relu, relux)

    sim.add_testbench(main)
    sim.run()


def _operands(rng: random.Random, use: int) -> tuple[Operands, list[dict[str, list[int]]]]:
    """Operands of one group of 32 channels, 0 where `use` lacks their kind, and their octets."""
    kinds: dict[str, dict[int, int]] = {"alu": {}, "cpend": {}, "mul": {}}
    for bit, (name, bits) in enumerate((("alu", 32), ("cpend", 16), ("mul", 16))):
        kinds[name] = {c: operand(rng, bits) if use >> bit & 1 else 0 for c in range(32)}
    octets = [
        {name: [values[c] for c in range(first, first + 8)] for name, values in kinds.items()}
        for first in range(0, 32, 8)
    ]
    return Operands(**kinds), octets


@pytest.mark.parametrize("seed", range(24))
def test_random_settings(seed: int) -> None:
    """Eight lanes of extreme values through random settings, stalled on every stream."""
    rng = random.Random(1000 + seed)
    task = random_task(rng, flying=False, cube=(32, 1, 1))
    f = Fields(task.dpu)
    out_bits = 8 << {0: 0, 1: 1, 4: 2}[f("DATA_FORMAT", "OUT_PRECISION")]
    b_use = f_rdma(task.rdma, "BRDMA_CFG", "BRDMA_DATA_USE")
    n_use = f_rdma(task.rdma, "NRDMA_CFG", "NRDMA_DATA_USE")
    bs, bs_octets = _operands(rng, b_use)
    bn, bn_octets = _operands(rng, n_use)
    data = RdmaData(bs=bs, bn=bn)
    source, expected, ew = [], [], []
    pixels = 6
    for pixel in range(pixels):
        for octet in range(4):
            main = [operand(rng, 32) for _ in range(8)]
            sums = [operand(rng, 32) for _ in range(8)]
            second = [operand(rng, 32) for _ in range(8)]
            live = rng.choice([8, 8, rng.randrange(9)])
            tag = {
                "octet": octet,
                "slot": pixel,
                "live": live,
                "group_last": octet == 3 and pixel == pixels - 1,
            }
            source.append({"main": main, "sum": sums, "tag": tag})
            ew.append({"data": [e % 2**32 for e in second]})
            lanes = zip(main, sums, second, strict=True)
            values = [
                element_value(f, a, s, 8 * octet + lane, data, e)
                if lane < live
                else f("OFFSET_PEND", "OFFSET_PEND")
                for lane, (a, s, e) in enumerate(lanes)
            ]
            expected.append([v % (1 << out_bits) for v in values])
            for item in (source[-1]["main"], source[-1]["sum"]):
                item[:] = [v % 2**32 for v in item]
    for octets in (bs_octets, bn_octets):
        for octet in octets:
            octet.update(
                {name: [v % (1 << (32 if name == "alu" else 16)) for v in octet[name]] for name in octet}
            )

    dut = DpuPipe()
    bench = Bench(dut, seed, stall=rng.choice([0.0, 0.3, 0.6]))
    got: list[list[int]] = []
    bench.sink(dut.result, lambda p: got.append([v % (1 << out_bits) for v in p.data]))

    async def main_bench(ctx: Any) -> None:
        configure(ctx, dut.cfg, "DPU", task.dpu)
        ctx.set(dut.octets, 4)
        ctx.set(dut.start, 1)
        await ctx.tick()
        ctx.set(dut.start, 0)
        ctx.set(dut.active, 1)
        for _ in range(LIMIT):
            await ctx.tick()
            if len(got) == len(expected):
                return
        raise AssertionError(f"{len(got)} of {len(expected)} octets after {LIMIT} cycles")

    bench.source(dut.source, source, after=dut.active)
    bench.source(dut.bs, bs_octets, after=dut.active)
    bench.source(dut.bn, bn_octets, after=dut.active)
    bench.source(dut.ew, ew, after=dut.active)
    bench.run(main_bench)
    assert got == expected, f"settings {task.dpu}"


def f_rdma(registers: dict[str, dict[str, int]], register: str, name: str) -> int:
    """A field of DPU_RDMA."""
    return Fields(registers)(register, name)
