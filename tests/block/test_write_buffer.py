"""The write buffer: direct, or only complete bursts."""

from __future__ import annotations

import random

import pytest
from amaranth.sim import Simulator

from rkcosim.rtl.npu.write_buffer import WriteBuffer
from tests.simulation import bound

SEED = 7
LIMIT = 5_000


@pytest.mark.parametrize("whole", [0, 1])
def test_bursts_pass_unchanged_and_whole_ones_only_when_complete(whole: int) -> None:
    rng = random.Random(SEED)
    dut = WriteBuffer()
    bursts = [(32 * n, rng.randint(1, 16)) for n in range(40)]
    asked: list[tuple[int, int]] = []
    beats: list[tuple[int, int]] = []
    given = [0]
    early = [0]

    async def ask(ctx) -> None:  # type: ignore[no-untyped-def]
        ctx.set(dut.whole, whole)
        await ctx.tick().repeat(2)
        for addr, count in bursts:
            ctx.set(dut.client.req.payload, {"addr": addr, "beats_m1": count - 1})
            ctx.set(dut.client.req.valid, 1)
            await ctx.tick().until(dut.client.req.ready)
            ctx.set(dut.client.req.valid, 0)

    async def fill(ctx) -> None:  # type: ignore[no-untyped-def]
        await ctx.tick().repeat(2)
        for n, (_, count) in enumerate(bursts):
            for beat in range(count):
                await ctx.tick().repeat(rng.choice((0, 0, 3)) + 1)
                value = {"data": 100 * n + beat, "strb": 1, "last": int(beat == count - 1)}
                ctx.set(dut.client.data.payload, value)
                ctx.set(dut.client.data.valid, 1)
                await ctx.tick().until(dut.client.data.ready)
                ctx.set(dut.client.data.valid, 0)
                given[0] += 1

    async def take(ctx) -> None:  # type: ignore[no-untyped-def]
        for n, (_, count) in enumerate(bursts):
            ctx.set(dut.port.req.ready, 1)
            (payload,) = await ctx.tick().sample(dut.port.req.payload).until(dut.port.req.valid)
            ctx.set(dut.port.req.ready, 0)
            asked.append((payload["addr"], payload["beats_m1"] + 1))
            early[0] += given[0] < sum(c for _, c in bursts[: n + 1])
            for _ in range(count):
                await ctx.tick().repeat(rng.choice((0, 0, 2)) + 1)
                ctx.set(dut.port.data.ready, 1)
                (payload,) = await ctx.tick().sample(dut.port.data.payload).until(dut.port.data.valid)
                ctx.set(dut.port.data.ready, 0)
                beats.append((payload["data"], payload["last"]))

    async def watch(ctx) -> None:  # type: ignore[no-untyped-def]
        """The end of a burst passes in the same cycle; `beats` counts those that are buffered."""
        level, data, port = 0, dut.client.data, dut.port.data
        members = (dut.port.done, dut.client.done, dut.beats, data.valid, data.ready, port.valid, port.ready)
        async for _, _, ended, told, beats, offers, takes, shows, taken in ctx.tick().sample(*members):
            assert ended == told and beats == level
            level += (offers and takes) - (shows and taken) if whole else 0
            ctx.set(dut.port.done, rng.random() < 0.3)

    def reached() -> str:
        return f": {len(asked)} bursts, {len(beats)} beats"

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(ask)
    simulator.add_testbench(fill)
    simulator.add_testbench(take)
    simulator.add_testbench(watch, background=True)
    simulator.add_testbench(bound(LIMIT, reached), background=True)
    simulator.run()
    assert asked == bursts, f"seed {SEED}"
    assert beats == [(100 * n + b, int(b == c - 1)) for n, (_, c) in enumerate(bursts) for b in range(c)]
    assert (early[0] == 0) == bool(whole), "whole bursts have all their beats when they are requested"
