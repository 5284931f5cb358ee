"""PC: words that wait for a block, with model blocks and with the register files of CNA and CORE."""

from __future__ import annotations

import pytest

from rkcosim.spec.regs import registers
from tests.makers.pc_bench import ALL_EVENTS, Bench, chain, word, write_word

R = registers()
CONV = 0x1D


def test_a_waiting_write_lets_the_host_through_and_ends_with_the_block():
    """Pointer ping-pong off: the second task's words target a group that is still enabled."""
    places = [0x1000, 0x2000]
    lists = chain(
        [([write_word("CNA.CONV_CON1", 1)], 0x01), ([write_word("CNA.CONV_CON1", 2)], 0x01)], places
    )
    bench = Bench(dict(zip(places, lists, strict=True)))

    async def host(ctx):
        ctx.set(bench.dut.blocks["CNA"].toggle, 0)
        ctx.set(bench.dut.blocks["CNA"].length, 600)
        await bench.kick(ctx, places[0], lists[0], 2)
        await bench.until(ctx, lambda: len(bench.seen.enables) == 1)
        await ctx.tick().repeat(150)
        begin = bench.cycle
        for _ in range(5):
            assert await bench.read(ctx, "CNA.S_STATUS") == 0xB10C
            assert (await bench.status(ctx))["FIRST_OPERATING"] == 1
            await bench.write(ctx, "PC.INTERRUPT_MASK", ALL_EVENTS)
        assert bench.cycle - begin < 200
        assert len(bench.seen.writes) == 1
        await bench.ended(ctx)

    seen = bench.run(host)
    assert [w[4] for w in seen.writes] == [1, 2] and seen.writes[1][0] > seen.block_done[0][0]
    assert len(seen.enables) == 2


def test_lut_access_waits_for_an_idle_dpu():
    lut = [r for r in R["DPU"] if r.name.startswith("LUT_ACCESS")]
    assert lut
    places = [0x1000, 0x2000]
    second = [write_word("DPU.DST_BASE_ADDR", 1), word("DPU", lut[0].offset, 2)]
    lists = chain([([], CONV), (second, CONV)], places)
    bench = Bench(dict(zip(places, lists, strict=True)))

    async def host(ctx):
        ctx.set(bench.dut.blocks["DPU"].length, 300)
        await bench.kick(ctx, places[0], lists[0], 2)
        await bench.ended(ctx)

    seen = bench.run(host)
    dpu_done = next(c for c, name in seen.block_done if name == "DPU")
    (plain, *_), (waited, *_) = seen.writes
    assert plain < dpu_done < waited


REAL = ("CNA", "CORE")
PING_PONG = {"CORE_INDEX": 2, "POINTER_PP_MODE": 1, "EXECUTER_PP_EN": 1, "POINTER_PP_EN": 1}


def real_chain(bench_seed, bodies, host_extra=None, length=150):
    places = [0x1000 + 0x400 * n for n in range(len(bodies))]
    lists = chain([(b, 0x05) for b in bodies], places)
    bench = Bench(dict(zip(places, lists, strict=True)), bench_seed, real=REAL)
    configs = []

    async def host(ctx):
        for name in REAL:
            ctx.set(bench.dut.blocks[name].length, length)
            await bench.write(ctx, f"{name}.S_POINTER", R[name]["S_POINTER"].encode(**PING_PONG))
        await bench.kick(ctx, places[0], lists[0], len(lists))
        cna = bench.dut.blocks["CNA"]
        for n in range(len(lists)):
            await bench.until(ctx, lambda: ctx.get(cna.start))
            cfg = cna.file.cfg
            configs.append((ctx.get(cfg.DCOMP_ADDR0.as_value()), ctx.get(cfg.FEATURE_DATA_ADDR.as_value())))
            await ctx.tick()
            if host_extra and n == 0:
                await host_extra(ctx, bench)
        await bench.ended(ctx)

    return bench.run(host), configs


@pytest.mark.parametrize("seed", [None, 21])
def test_real_register_files_take_a_chain_of_delta_tasks(seed):
    def weights(value):
        return write_word("CNA.DCOMP_ADDR0", value << 4)

    def feature(value):
        return write_word("CNA.FEATURE_DATA_ADDR", value)

    async def poll(ctx, bench):
        for _ in range(4):
            assert R["CNA"]["S_STATUS"].decode(await bench.read(ctx, "CNA.S_STATUS"))["STATUS_0"] == 1

    bodies = [[weights(1), feature(2)], [weights(3), feature(4)], [feature(5)], [weights(6)], []]
    seen, configs = real_chain(seed, bodies, poll)
    assert configs == [(1, 2), (3, 4), (1, 5), (6, 4), (1, 5)]
    assert seen.diagnostics == [] and len(seen.dones) == 5 and len(seen.irq) == 1


def test_a_pointer_clear_in_a_prefetched_list_waits_and_nothing_deadlocks():
    value = R["CORE"]["S_POINTER"].encode(**PING_PONG, EXECUTER_PP_CLEAR=1, POINTER_PP_CLEAR=1)
    clear = write_word("CORE.S_POINTER", value)
    seen, _ = real_chain(None, [[], [clear], [clear]])
    assert len(seen.dones) == 3 and seen.diagnostics == []
