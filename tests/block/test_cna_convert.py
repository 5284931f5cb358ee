"""The converter of features alone: each beat against its formula, in order, with stalls on both sides."""

import random
from typing import Any

import pytest

from rkcosim.rtl.npu.cna_convert import AtomConverter
from tests import seeds
from tests.block.cna_bench import configure
from tests.block.dpu_bench import Bench
from tests.simulation import shared

SEED = seeds.seed(__name__)


@pytest.mark.parametrize("stall", [0.0, 0.5])
def test_beats_pass_in_order(stall: float) -> None:
    """Two stages: a beat a cycle without stalls, and nothing is lost, doubled or late with them."""
    dut = shared(AtomConverter)
    bench = Bench(dut, SEED, stall)
    rng = random.Random(SEED)
    beats = [
        {"data": rng.getrandbits(256), "low": rng.randrange(2), "high": rng.randrange(2)} for _ in range(80)
    ]
    got: list[dict[str, int]] = []
    cycles: list[int] = []

    def take(payload: Any) -> None:
        got.append({"data": payload.data, "low": payload.low, "high": payload.high})
        cycles.append(bench.cycle)

    entered: list[int] = []

    async def count(ctx: Any) -> None:
        async for _, _, valid, ready in ctx.tick().sample(dut.beat.valid, dut.beat.ready):
            if valid and ready:
                entered.append(bench.cycle)

    async def main(ctx: Any) -> None:
        ctx.set(dut.start, 1)  # no channel is converted
        await ctx.tick()
        ctx.set(dut.start, 0)
        configure(ctx, dut.cfg, {"CVT_CON0": {"DATA_SIGN": 1}})
        for _ in range(600):
            if len(got) == len(beats):
                break
            await ctx.tick()
        await ctx.tick().repeat(5)
        assert got == beats

    bench.source(dut.beat, beats, after=dut.cfg.CVT_CON0.DATA_SIGN)
    bench.sink(dut.result, take)
    bench.add(count)
    bench.run(main)
    assert len(entered) == len(beats)
    if not stall:
        assert all(after - before == 2 for before, after in zip(entered, cycles, strict=True))
