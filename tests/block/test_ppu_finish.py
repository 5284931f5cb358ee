"""The PPU's last step against the naive model: averages with ties, fp16 averages, extrema with padding."""

from __future__ import annotations

import random

import pytest
from amaranth.sim import Simulator

from rkcosim.rtl.npu.ppu_finish import PpuFinish
from rkcosim.rtl.npu.ppu_lanes import FIXED_BITS, FLOAT_BITS, Lanes
from tests import seeds
from tests.streams import get, put
from tests.twins.ppu_model import average, float_average, half_value

SHAPES = ((1, 1), (2, 2), (3, 3), (2, 3), (4, 2), (6, 5), (7, 7), (16, 16), (8, 1), (12, 2))


def _pack(values: list[int], bits: int) -> int:
    return sum((v & (1 << bits) - 1) << (i * bits) for i, v in enumerate(values))


class _Bench:
    """One simulation for all runs, because building it takes longer than any of them."""

    def __init__(self) -> None:
        self.dut = PpuFinish()
        self.sim = Simulator(self.dut)
        self.sim.add_clock(1e-9)
        self.sim.add_testbench(self._feed)
        self.sim.add_testbench(self._drain)
        self.used = False

    def run(self, settings: dict, rows: list[dict], rng: random.Random) -> list[dict]:
        """Feed `rows` (Partial) and return the outputs, as dicts of Pooled."""
        if self.used:
            self.sim.reset()
        self.used = True
        self.settings, self.rows, self.rng, self.received = settings, rows, rng, []
        self.sim.run_until(1e-9 * (200 + 60 * len(rows)))
        assert len(self.received) == len(rows)
        return self.received

    async def _feed(self, ctx):
        for name, value in self.settings.items():
            ctx.set(getattr(self.dut, name), value)
        ctx.set(self.dut.start, 1)
        await ctx.tick()
        ctx.set(self.dut.start, 0)
        for row in self.rows:
            await put(ctx, self.dut.i, row, self.rng, 0.2)

    async def _drain(self, ctx):
        for _ in self.rows:
            value = await get(ctx, self.dut.o, self.rng, 0.2)
            self.received.append({"data": value.data, "index": value.index})


@pytest.fixture(scope="module")
def bench() -> _Bench:
    return _Bench()


@pytest.mark.parametrize(("kind", "bits"), ((Lanes.SUM8, 8), (Lanes.SUM16, 16)))
def test_average_with_ties(bench: _Bench, kind: Lanes, bits: int):
    seed = seeds.seed(__name__)
    print("seed", seed)
    rng = random.Random(seed)
    count = 128 // bits
    for kw, kh in SHAPES:
        limit = (1 << bits - 1) * kw * kh
        values = [rng.randint(-limit, limit - 1) for _ in range(count * 2)]
        half = kw * kh // 2
        values += [s * (q * kw * kh + half) for q in range(0, 8) for s in (1, -1)]
        pad = rng.randint(-(1 << 18), (1 << 18) - 1)
        rw, rh = round(65536 / kw), round(65536 / kh)
        rows, wanted = [], []
        for place in range(0, len(values), count):
            part = values[place : place + count]
            padded = rng.choice((0, 0, rng.randrange(kw * kh)))
            rows.append({"lanes": _pack(part, 256 // count), "padded": padded, "real": 1})
            wanted.append([average(v + padded * pad, kw, kh, rw, rh) for v in part])
        settings = {
            "kind": kind, "pad": pad & 0x7FFFF, "kernel_width": kw, "kernel_height": kh,
            "recip_width": rw, "recip_height": rh,
        }  # fmt: skip
        top = 1 << bits - 1
        for row, atom in zip(wanted, bench.run(settings, rows, rng), strict=True):
            assert atom["data"] == _pack([max(-top, min(top - 1, v)) for v in row], bits), (kw, kh, row)


def test_fp16_averages(bench: _Bench):
    seed = seeds.seed(__name__)
    print("seed", seed)
    rng = random.Random(seed)
    for _ in range(4):
        rw, rh = rng.choice((0x7800, 0x7555, 0x7C00)), rng.randrange(1 << 17)
        pad = rng.randrange(1 << 16)
        rows, wanted = [], []
        for _ in range(6):
            padded = rng.choice((0, rng.randint(0, 5)))
            lanes = []
            row = []
            for _ in range(8):
                halves = [rng.randrange(0x7C00) | rng.randrange(2) << 15 for _ in range(rng.randint(1, 9))]
                if rng.random() < 0.2:
                    halves.append(rng.choice((0x7C00, 0xFC00, 0x7C01)))
                fixed, flags = 0, 0
                for half in halves:
                    value = half_value(half)
                    flags |= {"nan": 1, "inf": 2, "-inf": 4}.get(value, 0)
                    fixed += 0 if isinstance(value, str) else int(value * (1 << 24))
                lanes.append(fixed & (1 << FIXED_BITS) - 1 | flags << FIXED_BITS)
                row.append(float_average(halves + [pad] * padded, rw, rh))
            rows.append({"lanes": _pack(lanes, FLOAT_BITS), "padded": padded, "real": 1})
            wanted.append(row)
        settings = {
            "kind": Lanes.SUM_FP16, "fp16": 1, "pad": pad, "recip_width": rw, "recip_height": rh,
        }  # fmt: skip
        for row, atom in zip(wanted, bench.run(settings, rows, rng), strict=True):
            got = [atom["data"] >> 16 * i & 0xFFFF for i in range(8)]
            assert got == row, (hex(pad), list(map(hex, got)), list(map(hex, row)))


def test_the_pad_value_counts_only_without_a_real_tap(bench: _Bench):
    rng = random.Random(5)
    values = [-128, 127, 0, -1, 1, 100, -100, 5] * 2
    for flip in (0, 1):
        lanes = _pack([~v if flip else v for v in values], 8) | _pack(list(range(16)), 6) << 128
        rows = [
            {"lanes": lanes, "padded": 0, "real": 1},
            {"lanes": lanes, "padded": 3, "real": 1},
            {"lanes": lanes, "padded": 3, "real": 0},
        ]
        settings = {"kind": Lanes.BEST8, "flip": flip, "indexed": 1, "pad": 3}
        plain, padded, only = bench.run(settings, rows, rng)
        assert plain["data"] == padded["data"] == _pack(values, 8)
        assert only["data"] == _pack([3] * 16, 8)
        assert plain["index"] == padded["index"] == _pack(list(range(16)), 8)
        assert only["index"] == 0
