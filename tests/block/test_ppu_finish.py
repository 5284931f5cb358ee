"""The PPU's division and tie rule against the naive twin."""

from __future__ import annotations

import random

from amaranth.sim import Simulator

from rtl.npu.ppu_finish import PpuFinish
from rtl.npu.ppu_windows import LANES, V_BITS
from tests.models.ppu_model import average
from tests.streams import get, put


def _run(kw: int, kh: int, method_average: bool, rows: list[list[int]], rng: random.Random) -> None:
    dut = PpuFinish()
    rw, rh = round(65536 / kw), round(65536 / kh)
    received = []

    async def feed(ctx):
        ctx.set(dut.average, method_average)
        ctx.set(dut.recip_width, rw)
        ctx.set(dut.recip_height, rh)
        ctx.set(dut.kernel_width, kw)
        ctx.set(dut.kernel_height, kh)
        for row in rows:
            packed = sum((v & (1 << V_BITS) - 1) << (i * V_BITS) for i, v in enumerate(row))
            await put(ctx, dut.i, packed, rng, 0.2)

    async def drain(ctx):
        for _ in rows:
            received.append(await get(ctx, dut.o, rng, 0.2))

    sim = Simulator(dut)
    sim.add_clock(1e-9)
    sim.add_testbench(feed)
    sim.add_testbench(drain)
    sim.run_until(1e-9 * (200 + 60 * len(rows)))
    assert len(received) == len(rows)
    for row, atom in zip(rows, received, strict=True):
        for lane, value in enumerate(row):
            want = average(value, kw, kh, rw, rh) if method_average else value
            want = max(-128, min(127, want))
            assert (atom.data >> (8 * lane)) & 0xFF == want & 0xFF, (kw, kh, value)


def test_average_with_ties():
    seed = random.randrange(1 << 32)
    print("seed", seed)
    rng = random.Random(seed)
    for kw, kh in ((1, 1), (2, 2), (3, 3), (2, 3), (4, 2), (6, 5), (7, 7), (16, 16), (8, 1), (12, 2)):
        limit = 128 * kw * kh
        values = [rng.randint(-limit, limit) for _ in range(LANES * 2)]
        half = kw * kh // 2
        values += [s * (q * kw * kh + half) for q in range(0, 8) for s in (1, -1)]
        rows = [values[i : i + LANES] for i in range(0, len(values), LANES)]
        _run(kw, kh, True, rows, rng)


def test_maximum_passes_and_saturates():
    rng = random.Random(5)
    _run(3, 3, False, [[-128, 127, 0, -1, 1, 200, -200, 5] * 2], rng)
