"""PC: fetch, decode, chains, prefetch, serialisation."""

from __future__ import annotations

import random

import pytest
from amaranth.lib.wiring import Out
from amaranth.sim import Simulator

from rkcosim.rtl.layouts import ReadClient
from rkcosim.spec.regs import registers
from tests.makers.pc_bench import Bench, amount, body, chain, decoded, task, word

R = registers()
CONV, POOL = 0x1D, 0x60


@pytest.mark.parametrize(
    ("seed", "address", "count"),
    [
        (None, 0x1000, 1),
        (1, 0x1000, 24),
        (None, 0x1FF0, 103),
        (1, 0x1FF0, 1),
        (None, 0x3010, 24),
        (1, 0x3010, 103),
    ],
)
def test_single_task(seed, address, count):
    words = task(body(random.Random(count), count), CONV)
    bench = Bench({address: [*words, 0xFFFF_FFFF_FFFF_FFFF] if len(words) % 2 == 0 else words}, seed)
    final = {}

    async def host(ctx):
        await bench.kick(ctx, address, words, 1)
        await bench.ended(ctx)
        final.update(await bench.status(ctx))

    seen = bench.run(host)
    assert [w[1:2] + w[3:] for w in seen.writes] == decoded(words)
    assert [mask for _, mask in seen.enables] == [CONV]
    assert [n for _, n in seen.starts] == [n for _, n in seen.dones] == [0]
    assert seen.diagnostics == [] and len(seen.irq) == 1
    assert final["TASK_COUNTER"] == 1 and sum(final.values()) == 1
    assert all(client == ReadClient.PC for client, _, _ in bench.memory.reads)
    asked = sum(beats for _, _, beats in bench.memory.reads)
    assert asked == (address % 32 // 16 + amount(words) + 2) // 2, "fetches no more than the list"


@pytest.mark.parametrize("prefetch", [0, 1])
@pytest.mark.parametrize("seed", [None, 3])
def test_chain_of_tasks_with_a_dangling_link(prefetch, seed):
    rng = random.Random(seed)
    masks = [rng.choice([CONV, 0x0D, POOL, 0x18]) for _ in range(6)]
    bodies = [(body(rng, rng.randrange(1, 60)), mask) for mask in masks]
    places = [0x1000, 0x2010, 0x2FE0, 0x4000, 0x5F70, 0x7000]
    lists = chain(bodies, places)
    bench = Bench(dict(zip(places, lists, strict=True)), seed)
    lengths = {name: rng.randrange(1, 400) for name in bench.dut.blocks}

    async def host(ctx):
        for name, block in bench.dut.blocks.items():
            ctx.set(block.length, lengths[name])
        await bench.kick(ctx, places[0], lists[0], len(lists), prefetch)
        await bench.ended(ctx, 10_000)
        assert (await bench.status(ctx))["TASK_COUNTER"] == len(lists)
        assert await bench.read(ctx, "PC.INTERRUPT_RAW_STATUS") != 0

    seen = bench.run(host, 40_000)
    assert seen.diagnostics == []
    assert [w[1:2] + w[3:] for w in seen.writes] == [d for words in lists for d in decoded(words)]
    assert [mask for _, mask in seen.enables] == masks
    assert [n for _, n in seen.starts] == [n for _, n in seen.dones] == list(range(6))
    # Serialised: every op-enable comes after the end of the task before it.
    for (done, _), (start, _) in zip(seen.dones, seen.enables[1:], strict=False):
        assert start > done
    if prefetch == 0:
        for n in range(5):
            first = next(w for w in seen.writes if w[0] > seen.enables[n][0])
            assert first[0] > seen.dones[n][0], "registers were written early with TASK_PP_EN = 0"
    assert len(seen.irq) == 1 and seen.irq[0] > seen.enables[-1][0], "one interrupt, of the last task"


def test_delta_tasks_land_in_the_other_group_and_inherit():
    """A task that writes few registers keeps the values that its group had two tasks before [HW 1.6]."""
    register = R["CNA"]["CONV_CON1"].offset
    bodies = [([word("CNA", register, n)] if n < 3 else [], 0x01) for n in range(5)]
    places = [0x1000 + 0x100 * n for n in range(5)]
    lists = chain(bodies, places)
    bench = Bench(dict(zip(places, lists, strict=True)))

    async def host(ctx):
        await bench.kick(ctx, places[0], lists[0], 5)
        await bench.ended(ctx)

    seen = bench.run(host)
    assert [(group, value) for _, _, group, _, value in seen.writes] == [(0, 0), (1, 1), (0, 2)]
    assert len(seen.enables) == 5


def overlap(prefetch: int):
    rng = random.Random(5)
    bodies = [(body(rng, 60), CONV) for _ in range(4)]
    places = [0x1000, 0x2000, 0x3000, 0x4000]
    lists = chain(bodies, places)
    bench = Bench(dict(zip(places, lists, strict=True)), latency=100)

    async def host(ctx):
        for block in bench.dut.blocks.values():
            ctx.set(block.length, 500)
        await bench.kick(ctx, places[0], lists[0], 4, prefetch)
        await bench.until(ctx, lambda: len(bench.seen.starts) == 1)
        await ctx.tick().repeat(400)
        bench.fetched = len({a for _, a, _ in bench.memory.reads if a % 0x1000 == 0})
        await bench.ended(ctx, 10_000)

    seen = bench.run(host)
    gaps = [start - done for (done, _), (start, _) in zip(seen.dones, seen.enables[1:], strict=False)]
    return seen, gaps, bench


def test_prefetch_hides_fetch_and_writes():
    seen, gaps, bench = overlap(1)
    assert max(gaps) <= 4, gaps
    second = [w for w in seen.writes if seen.enables[0][0] < w[0] < seen.dones[0][0]]
    assert len(second) == 60, "the next task's words are written while the first runs"
    assert bench.fetched == 3, "the list after the next one is read while its op-enable word is held"
    _, gaps, bench = overlap(0)
    assert min(gaps) > 150, gaps
    assert bench.fetched == 1


def test_op_enable_waits_for_write_responses():
    places = [0x1000, 0x2000]
    lists = chain([([], CONV), ([], POOL)], places)
    bench = Bench(dict(zip(places, lists, strict=True)))
    released = []

    async def host(ctx):
        ctx.set(bench.dut.more_writes, 1)
        await bench.kick(ctx, places[0], lists[0], 2)
        await bench.until(ctx, lambda: len(bench.seen.block_done) == 4)
        await ctx.tick().repeat(100)
        assert len(bench.seen.enables) == 1 and not bench.seen.dones
        status = await bench.status(ctx)
        assert (status["FIRST_OPERATING"], status["LAST_OPERATING"], status["TASK_COUNTER"]) == (1, 0, 0)
        released.append(bench.cycle)
        ctx.set(bench.dut.more_writes, 0)
        await bench.until(ctx, lambda: len(bench.seen.enables) == 2)
        assert (await bench.status(ctx))["LAST_OPERATING"] == 1
        await bench.ended(ctx)

    seen = bench.run(host)
    assert released[0] < seen.dones[0][0] < seen.enables[1][0] < released[0] + 10


def test_relaxed_serialisation_overlaps_different_blocks():
    def run(relax):
        places = [0x1000, 0x2000, 0x3000]
        lists = chain([([], CONV), ([], POOL), ([], CONV)], places)
        bench = Bench(dict(zip(places, lists, strict=True)), relax=relax)

        async def host(ctx):
            for block in bench.dut.blocks.values():
                ctx.set(block.length, 300)
            await bench.kick(ctx, places[0], lists[0], 3)
            await bench.ended(ctx)
            assert (await bench.status(ctx))["TASK_COUNTER"] == 3

        return bench.run(host)

    seen = run(True)
    conv_done = next(c for c, name in seen.block_done if name == "CNA")
    assert seen.enables[1][0] < conv_done < seen.enables[2][0]
    strict = run(False)
    assert strict.enables[1][0] > next(c for c, name in strict.block_done if name == "CNA")


@pytest.mark.parametrize("seed", [None, 11])
def test_a_list_longer_than_the_fifo(seed):
    words = task(body(random.Random(2), 1500), CONV)
    bench = Bench({0x1010: words}, seed)

    async def host(ctx):
        await bench.kick(ctx, 0x1010, words, 1)
        await bench.ended(ctx, 9000)

    seen = bench.run(host)
    assert [w[1:2] + w[3:] for w in seen.writes] == decoded(words)
    if seed is None:
        took = seen.writes[-1][0] - seen.writes[0][0]
        assert took < 1.1 * 1500, "one word a cycle"


@pytest.mark.withdraws("all inputs are random in each cycle")
def test_outputs_of_the_core_do_not_follow_inputs_within_a_cycle():
    """Every top-level output comes from a register, including ready."""
    words = task(body(random.Random(2), 40), CONV)
    bench = Bench({0x1000: words})
    interfaces = (bench.dut.ddma.axi, bench.dut.slave.axil)
    inputs, outputs = [], [bench.dut.interrupt.irq]
    for interface in interfaces:
        for _, member, signal in interface.signature.flatten(interface):
            (outputs if member.flow is Out else inputs).append(signal)
    assert len(inputs) > 20 and len(outputs) > 30
    rng = random.Random(9)
    print("seed 9")

    async def host(ctx):
        before = [ctx.get(s) for s in outputs]
        for _ in range(400):
            await ctx.tick()
            before = [ctx.get(s) for s in outputs]
            for signal in inputs:
                ctx.set(signal, rng.getrandbits(len(signal)))
            assert [ctx.get(s) for s in outputs] == before

    sim = Simulator(bench.dut)
    sim.add_clock(1e-6)
    sim.add_testbench(host)
    sim.run()
