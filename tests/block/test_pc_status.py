"""PC: its registers, the contents of TASK_STATUS, slave mode."""

from __future__ import annotations

import pytest

from rkcosim.rtl.layouts import DiagnosticCode
from rkcosim.spec.regs import registers
from tests.makers.pc_bench import Bench, amount, chain, task

R = registers()
CONV, POOL = 0x1D, 0x60


def test_the_counter_runs_on_until_it_is_cleared():
    """TASK_COUNT_CLEAR clears; without it the counter continues over kicks."""
    places = [0x1000, 0x2000]
    lists = chain([([], CONV), ([], POOL)], places)
    bench = Bench(dict(zip(places, lists, strict=True)))
    counts = []

    async def host(ctx):
        await bench.kick(ctx, places[0], lists[0], 2)
        await bench.ended(ctx)
        counts.append((await bench.status(ctx))["TASK_COUNTER"])
        await bench.write(ctx, "PC.TASK_CON", R["PC"]["TASK_CON"].encode(TASK_NUMBER=1))
        await bench.write(ctx, "PC.BASE_ADDRESS", places[0])
        await bench.write(ctx, "PC.REGISTER_AMOUNTS", amount(lists[0]))
        await bench.write(ctx, "PC.OPERATION_ENABLE", 1)
        await bench.ended(ctx)
        counts.append((await bench.status(ctx))["TASK_COUNTER"])
        clear = R["PC"]["TASK_CON"].encode(TASK_COUNT_CLEAR=1, TASK_NUMBER=1)
        await bench.write(ctx, "PC.TASK_CON", clear)
        counts.append((await bench.status(ctx))["TASK_COUNTER"])

    bench.run(host)
    assert counts == [2, 3, 0]


@pytest.mark.parametrize("prefetch", [0, 1])
def test_status_tells_the_first_and_the_last_task_apart(prefetch):
    """Bits 12..15: first or last task operating or being fetched [HW 13.12]."""
    places = [0x1000, 0x2000, 0x3000]
    lists = chain([([], CONV)] * 3, places)
    bench = Bench(dict(zip(places, lists, strict=True)), latency=200)
    seen_states: list[tuple[str, ...]] = []

    async def host(ctx):
        for block in bench.dut.blocks.values():
            ctx.set(block.length, 500)
        await bench.kick(ctx, places[0], lists[0], 3, prefetch)
        while ctx.get(bench.dut.pc.running):
            state = await bench.status(ctx)
            del state["TASK_COUNTER"]
            now = tuple(sorted(name for name, value in state.items() if value))
            if now and (not seen_states or seen_states[-1] != now):
                seen_states.append(now)

    bench.run(host)
    fetch, first = ("FIRST_FETCHING",), ("FIRST_OPERATING",)
    last, fetch_last = ("LAST_OPERATING",), ("LAST_FETCHING",)
    if prefetch:
        # The third list is fetched while the first task runs and the second one's op-enable waits.
        assert seen_states == [fetch, first, ("FIRST_OPERATING", "LAST_FETCHING"), first, last]
    else:
        assert seen_states == [fetch, first, fetch_last, last]


def test_one_task_is_first_and_last():
    words = task([], CONV)
    bench = Bench({0x1000: words})

    async def host(ctx):
        for block in bench.dut.blocks.values():
            ctx.set(block.length, 100)
        await bench.kick(ctx, 0x1000, words, 1)
        await bench.until(ctx, lambda: bench.seen.starts)
        state = await bench.status(ctx)
        assert (state["FIRST_OPERATING"], state["LAST_OPERATING"], state["LAST_FETCHING"]) == (1, 1, 0)
        await bench.ended(ctx)

    bench.run(host)


def test_registers_of_the_window():
    bench = Bench({})

    async def host(ctx):
        assert await bench.read(ctx, "PC.VERSION") == R["PC"]["VERSION"].reset
        for name in ("BASE_ADDRESS", "REGISTER_AMOUNTS", "TASK_DMA_BASE_ADDR", "INTERRUPT_MASK", "TASK_CON"):
            register = R["PC"][name]
            assert await bench.read(ctx, f"PC.{name}") == register.reset
            await bench.write(ctx, f"PC.{name}", 0xFFFF_FFEF)
            assert await bench.read(ctx, f"PC.{name}") == 0xFFFF_FFEF & register.mask
        assert ctx.get(bench.dut.pc.dma_base) == 0xFFFF_FFE0
        await bench.write(ctx, "PC.TASK_DMA_BASE_ADDR", 0x110)
        assert await axil(ctx, 0x0FF0) == 0
        assert await bench.read(ctx, "PC.OPERATION_ENABLE") == 0
        await bench.write(ctx, "PC.VERSION", 5)
        assert await bench.read(ctx, "PC.VERSION") == R["PC"]["VERSION"].reset

    async def axil(ctx, offset):
        from tests.twins.axi_model import axil_read, axil_write

        assert await axil_write(ctx, bench.dut.slave.axil, offset, 3) == 0
        return (await axil_read(ctx, bench.dut.slave.axil, offset))[0]

    seen = bench.run(host)
    assert [d[1:] for d in seen.diagnostics] == [
        (DiagnosticCode.UNALIGNED_ADDRESS, R["PC"]["TASK_DMA_BASE_ADDR"].offset, 0x110),
        (DiagnosticCode.UNKNOWN_WRITE, 0x0FF0, 3),
    ]


def test_slave_mode_starts_blocks_through_global_and_raises_the_line():
    bench = Bench({})

    async def host(ctx):
        await bench.write(ctx, "PC.BASE_ADDRESS", 1)
        await bench.write(ctx, "PC.INTERRUPT_MASK", 0x300)
        await bench.write(ctx, "CNA.CONV_CON1", 3)
        await bench.write(ctx, "GLOBAL.OPERATION_ENABLE", 0x0D)
        await ctx.tick().repeat(60)
        assert await bench.read(ctx, "PC.INTERRUPT_STATUS") == 0x100

    seen = bench.run(host)
    assert sorted(name for _, name in seen.block_done) == ["CNA", "CORE", "DPU"]
    assert len(seen.irq) == 1
