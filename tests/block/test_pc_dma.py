"""PC: fetch, decode, chains, prefetch, serialisation, bad lists."""

from __future__ import annotations

import random

import pytest
from amaranth.lib.wiring import Out
from amaranth.sim import Simulator

from rtl.layouts import DiagnosticCode, ReadClient
from rtl.regs import registers
from tests.models.pc_bench import ALL_EVENTS, Bench, amount, chain, task, word, write_word

R = registers()
CONV, POOL = 0x1D, 0x60
BAD = DiagnosticCode.BAD_COMMAND


def body(rng: random.Random, count: int, blocks=("CNA", "CORE", "DPU", "PPU")) -> list[int]:
    """Random register writes, none of which stops or starts anything."""
    words = []
    while len(words) < count:
        register = rng.choice([r for r in R[rng.choice(blocks)] if r.shadowed and r.local > 8])
        if not register.name.startswith("LUT"):
            words.append(word(register.block, register.offset, rng.getrandbits(32)))
    return words


def decoded(words: list[int]) -> list[tuple[str, int, int]]:
    """(block, offset, value) of the register writes of a list, without the tail."""
    out = []
    for value in words:
        fields = R.word.decode(value)
        block = R.block_of_target(fields["TARGET"])
        if block is not None and block.name not in ("PC",):
            out.append((block.name, fields["OFFSET"], fields["VALUE"]))
    return out


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
            assert first[0] > seen.dones[n][0], "TASK_PP_EN = 0 wrote ahead"
    assert len(seen.irq) == 1 and seen.irq[0] > seen.enables[-1][0], "one interrupt, of the last task"


def test_delta_tasks_land_in_the_other_group_and_inherit():
    """A task that writes little keeps what its group held two tasks before (H 1.6)."""
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
        await bench.kick(ctx, 0x1000, words, 1)
        await bench.ended(ctx)

    seen = bench.run(host)
    assert [d[1:] for d in seen.diagnostics] == [(BAD, offset, 0)] * 3
    assert len(seen.enables) == 2 and [n for _, n in seen.starts] == [0, 0] and len(seen.irq) == 2


def test_a_waiting_write_lets_the_host_through_and_ends_with_the_block():
    """Pointer ping-pong off: the second task's words meet a group that is still enabled."""
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


def test_outputs_of_the_core_do_not_follow_inputs_within_a_cycle():
    """DESIGN 4: every top-level signal comes from a register, ready included."""
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


# --- With the register files of CNA and CORE

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


def test_a_foreign_core_index_hangs_the_kick_with_a_diagnostic():
    words = task([], 0x01)
    bench = Bench({0x1000: words}, real=REAL)

    async def host(ctx):
        await bench.write(ctx, "CNA.S_POINTER", R["CNA"]["S_POINTER"].encode(CORE_INDEX=1))
        await bench.kick(ctx, 0x1000, words, 1)
        await ctx.tick().repeat(400)
        assert ctx.get(bench.dut.pc.running)
        assert (await bench.status(ctx))["FIRST_OPERATING"] == 1

    seen = bench.run(host)
    assert [d[1] for d in seen.diagnostics] == [DiagnosticCode.WRONG_CORE]
