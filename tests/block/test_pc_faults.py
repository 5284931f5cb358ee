"""PC: malformed lists, kicks that cannot start, cores that are not addressed."""

from __future__ import annotations

from rkcosim.rtl.layouts import DiagnosticCode
from rkcosim.spec.regs import registers
from tests.makers.pc_bench import Bench, task, word, write_word

R = registers()
CONV = 0x1D
BAD = DiagnosticCode.BAD_COMMAND


def test_missing_link_ends_the_kick_after_its_task():
    words = task([], CONV, None)
    bench = Bench({0x1000: words})

    async def host(ctx):
        await bench.kick(ctx, 0x1000, words, 3)
        await bench.ended(ctx)
        assert (await bench.status(ctx))["TASK_COUNTER"] == 1

    seen = bench.run(host)
    assert [d[1:] for d in seen.diagnostics] == [(BAD, R["PC"]["BASE_ADDRESS"].offset, 0)]
    assert len(seen.enables) == 1 and seen.irq == [], "the last task by count has not run"


def test_missing_link_in_the_last_task_is_normal():
    words = task([], CONV, None)
    bench = Bench({0x1000: words})

    async def host(ctx):
        await bench.kick(ctx, 0x1000, words, 1)
        await bench.ended(ctx)

    assert bench.run(host).diagnostics == []


def test_list_without_op_enable_never_ends_but_the_host_is_served():
    words = task([write_word("DPU.DST_BASE_ADDR", 1)], None)
    bench = Bench({0x1000: words})

    async def host(ctx):
        await bench.kick(ctx, 0x1000, words, 1)
        await ctx.tick().repeat(500)
        assert ctx.get(bench.dut.pc.running)
        assert await bench.read(ctx, "CNA.S_STATUS") == 0xB10C
        assert (await bench.status(ctx))["TASK_COUNTER"] == 0

    seen = bench.run(host)
    assert [d[1:] for d in seen.diagnostics] == [(BAD, R["PC"]["OPERATION_ENABLE"].offset, 0)]
    assert seen.enables == [] and len(seen.writes) == 1


def test_malformed_words_are_dropped_with_offset_and_value():
    encode = R.word.encode
    cna, dpu = R["CNA"]["CONV_CON1"].offset, R["DPU"]["DST_BASE_ADDR"].offset
    targets = R.word.fields["TARGET"].enum
    bad = [
        encode(TARGET=targets["CNA"] | targets["DPU"], OFFSET=cna, VALUE=1),
        encode(TARGET=targets["CNA"], OFFSET=dpu, VALUE=2),
        encode(TARGET=0x0021, OFFSET=cna, VALUE=3),
        encode(TARGET="OP_ENABLE", OFFSET=cna, VALUE=CONV),
        encode(TARGET="PC", OFFSET=cna, VALUE=5),
        encode(TARGET="PC", OFFSET=R["PC"]["BASE_ADDRESS"].offset, VALUE=0x5001),
        encode(TARGET="DDMA", OFFSET=cna, VALUE=6),
    ]
    fine = [
        0,
        encode(TARGET=0x0001, OFFSET=cna, VALUE=9),
        encode(TARGET=targets["CNA"] & ~1, OFFSET=cna, VALUE=10),
        word("DDMA", R["DDMA"]["CFG_DMA_WSTRB"].offset, 11),
        word("CONFIG_END", 0x1234, 0x5678),
    ]
    words = task([x for pair in zip(bad, [*fine, 0, 0], strict=True) for x in pair], 0x01, None)
    bench = Bench({0x1000: words})

    async def host(ctx):
        await bench.kick(ctx, 0x1000, words, 1)
        await bench.ended(ctx)
        assert await bench.read(ctx, "DDMA.CFG_DMA_WSTRB") == 11

    seen = bench.run(host)
    expected = [(BAD, d["OFFSET"], d["VALUE"]) for d in map(R.word.decode, bad)]
    assert [d[1:] for d in seen.diagnostics] == expected
    assert [w[1:] for w in seen.writes] == [("CNA", 0, cna, 10)]
    assert [mask for _, mask in seen.enables] == [0x01]


def test_empty_mask_is_reported_and_counts_as_a_task():
    words = task([], 0)
    bench = Bench({0x1000: words})

    async def host(ctx):
        await bench.kick(ctx, 0x1000, words, 1)
        await bench.ended(ctx)
        assert (await bench.status(ctx))["TASK_COUNTER"] == 1

    assert [d[1:] for d in bench.run(host).diagnostics] == [(BAD, R["PC"]["OPERATION_ENABLE"].offset, 0)]


def test_a_kick_that_cannot_start_is_reported():
    words = task([], CONV)
    bench = Bench({0x1000: words})
    offset = R["PC"]["OPERATION_ENABLE"].offset

    async def host(ctx):
        await bench.kick(ctx, 0x1000, words, 0)
        await bench.kick(ctx, 0x1001, words, 1)
        assert not ctx.get(bench.dut.pc.running)
        assert bench.memory.reads == []
        for block in bench.dut.blocks.values():
            ctx.set(block.length, 100)
        await bench.kick(ctx, 0x1000, words, 1)
        await bench.write(ctx, "PC.OPERATION_ENABLE", 1)
        await bench.ended(ctx)
        assert len(bench.seen.enables) == 1
        for _ in range(4):
            await bench.kick(ctx, 0x1000, words, 1)
            await bench.ended(ctx)

    seen = bench.run(host)
    assert [d[1:] for d in seen.diagnostics] == [(BAD, offset, 0)] * 3
    assert len(seen.enables) == 5 and [n for _, n in seen.starts] == [0] * 5 and len(seen.irq) == 5


def test_a_foreign_core_index_hangs_the_kick_with_a_diagnostic():
    words = task([], 0x01)
    bench = Bench({0x1000: words}, real=("CNA", "CORE"))

    async def host(ctx):
        await bench.write(ctx, "CNA.S_POINTER", R["CNA"]["S_POINTER"].encode(CORE_INDEX=1))
        await bench.kick(ctx, 0x1000, words, 1)
        await ctx.tick().repeat(400)
        assert ctx.get(bench.dut.pc.running)
        assert (await bench.status(ctx))["FIRST_OPERATING"] == 1

    seen = bench.run(host)
    assert [d[1] for d in seen.diagnostics] == [DiagnosticCode.WRONG_CORE]
