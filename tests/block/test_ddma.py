"""DDMA against a strict AXI memory: order, division of bursts, limits, rates, errors."""

from __future__ import annotations

import random

import pytest
from amaranth.sim import Simulator

from rkcosim.rtl.layouts import DiagnosticCode, ReadClient, WriteClient
from rkcosim.rtl.npu.ddma import Ddma
from rkcosim.spec.regs import registers
from tests.twins.axi_model import BEAT, AxiMemory

SIZE = 64 * 1024


def image(seed: int, size: int = SIZE) -> bytearray:
    return bytearray(random.Random(seed).randbytes(size))


async def cycles(ctx, count):
    for _ in range(count):
        await ctx.tick()


def late(bench):
    """The same bench, three cycles later, when `setup` has finished."""

    async def wait(ctx):
        await cycles(ctx, 3)
        await bench(ctx)

    return wait


def reader(port, jobs, got, rng=None):
    """Testbenches that request `jobs` [(addr, beats)] and collect [bytes, ...] in `got`."""

    async def ask(ctx):
        for addr, beats in jobs:
            while rng is not None and rng.random() < 0.3:
                await ctx.tick()
            ctx.set(port.req.valid, 1)
            ctx.set(port.req.payload.addr, addr)
            ctx.set(port.req.payload.beats_m1, beats - 1)
            await ctx.tick().until(port.req.ready)
            ctx.set(port.req.valid, 0)

    async def take(ctx):
        current = b""
        async for _, _, valid, payload in ctx.tick().sample(port.rsp.valid, port.rsp.payload):
            if valid:
                current += payload["data"].to_bytes(BEAT, "little")
                if payload["last"]:
                    got.append(current)
                    current = b""

    return ask, take


def writer(port, jobs, done, rng=None):
    """Testbenches that write `jobs` [(addr, [(data, strobe)])] and count done pulses in done[0]."""

    async def ask(ctx):
        for addr, beats in jobs:
            while rng is not None and rng.random() < 0.3:
                await ctx.tick()
            ctx.set(port.req.valid, 1)
            ctx.set(port.req.payload.addr, addr)
            ctx.set(port.req.payload.beats_m1, len(beats) - 1)
            await ctx.tick().until(port.req.ready)
            ctx.set(port.req.valid, 0)

    async def give(ctx):
        for _, beats in jobs:
            for n, (value, strobe) in enumerate(beats):
                while rng is not None and rng.random() < 0.3:
                    await ctx.tick()
                ctx.set(port.data.valid, 1)
                ctx.set(port.data.payload.data, value)
                ctx.set(port.data.payload.strb, strobe)
                ctx.set(port.data.payload.last, n == len(beats) - 1)
                await ctx.tick().until(port.data.ready)
                ctx.set(port.data.valid, 0)

    async def count(ctx):
        async for _, _, pulse in ctx.tick().sample(port.done):
            done[0] += pulse

    return ask, give, count


async def access(ctx, port, register, write=None):
    ctx.set(port.offset, registers()["DDMA"][register].local)
    ctx.set(port.write, write is not None)
    ctx.set(port.read, write is None)
    ctx.set(port.wdata, write or 0)
    value = ctx.get(port.rdata)
    await ctx.tick()
    ctx.set(port.write, 0)
    ctx.set(port.read, 0)
    return value


def simulate(dut, memory, finished, benches, background=(), limit=5_000, setup=None, after=None):
    sim = Simulator(dut)
    sim.add_clock(1e-6)
    sim.add_process(memory.process)
    for bench in benches:
        sim.add_testbench(bench)
    for bench in background:
        sim.add_testbench(bench, background=True)

    async def watch(ctx):
        if setup:
            await setup(ctx)
        for _ in range(limit):
            await ctx.tick()
            if finished() and ctx.get(dut.idle):
                break
        else:
            pytest.fail(f"not finished after {limit} cycles")
        if after:
            await after(ctx)

    sim.add_testbench(watch)
    sim.run()


def at_work(dut):
    """A testbench: DDMA is busy from an offered request on until the answer, and then no longer."""

    async def watch(ctx):
        reads = [(p.req.valid, p.req.ready, p.rsp.valid, p.rsp.payload) for p in dut.reads]
        writes = [(p.req.valid, p.req.ready, p.done) for p in dut.writes]
        ports = [signal for one in (*reads, *writes) for signal in one]
        open_reads = open_writes = quiet = 0
        async for _, _, idle, pending, *seen in ctx.tick().sample(dut.idle, dut.writes_pending, *ports):
            asked = [seen[4 * n : 4 * n + 4] for n in range(len(reads))]
            written = [seen[4 * len(reads) + 3 * n :][:3] for n in range(len(writes))]
            writing = open_writes or any(valid for valid, *_ in written)
            busy = open_reads or writing or any(valid for valid, *_ in asked)
            assert not (busy and idle) and (pending or not writing)
            quiet = 0 if busy else quiet + 1
            assert idle or not quiet
            open_reads += sum(valid and ready for valid, ready, *_ in asked)
            open_reads -= sum(valid and payload.last for *_, valid, payload in asked)
            open_writes += sum(valid and ready for valid, ready, _ in written) - sum(
                row[2] for row in written
            )

    return watch


def test_it_is_busy_with_single_requests():
    """Requests that follow the answer of the one before, of readers and writers in turn."""
    dut = Ddma()
    memory = AxiMemory(dut.axi, image(2))
    done = [0]

    async def ask(ctx):
        for n in range(12):
            port = dut.writes[n % 2] if n % 3 == 0 else dut.reads[n % 8]
            ctx.set(port.req.payload, {"addr": 64 * n, "beats_m1": 0})
            ctx.set(port.req.valid, 1)
            await ctx.tick().until(port.req.ready)
            ctx.set(port.req.valid, 0)
            if n % 3 == 0:
                ctx.set(port.data.payload, {"data": n, "strb": 1, "last": 1})
                ctx.set(port.data.valid, 1)
                await ctx.tick().until(port.data.ready)
                ctx.set(port.data.valid, 0)
            await ctx.tick().until(port.done if n % 3 == 0 else port.rsp.valid)
            await cycles(ctx, n % 4 + 1)
            done[0] += 1

    simulate(dut, memory, lambda: done[0] == 12, [ask], [at_work(dut)])


@pytest.mark.parametrize("seed", range(3))
def test_random_traffic_of_all_clients(seed):
    print(f"seed {seed}")
    rng = random.Random(seed)
    dut = Ddma()
    base = rng.randrange(0, 0x100) * BEAT
    content = image(seed)
    memory = AxiMemory(dut.axi, bytearray(content), random.Random(seed + 100), latency=rng.randrange(1, 30))
    benches, background, expected, got = [], [], {}, {}
    for client in ReadClient:
        jobs = [(rng.randrange(0, 0x6000 // BEAT) * BEAT, rng.randrange(1, 17)) for _ in range(25)]
        offset = 0 if client is ReadClient.PC else base
        expected[client] = [bytes(content[a + offset : a + offset + n * BEAT]) for a, n in jobs]
        got[client] = []
        ask, take = reader(dut.reads[client], jobs, got[client], rng)
        benches.append(ask)
        background.append(take)
    final = bytearray(content)
    dones, counts = {}, {}
    for client in WriteClient:
        jobs = []
        place = 0x9000 + 0x3000 * client
        for _ in range(25):
            place += rng.randrange(0, 3) * BEAT
            beats = [(rng.getrandbits(256), rng.getrandbits(32)) for _ in range(rng.randrange(1, 17))]
            jobs.append((place - base, beats))
            for value, strobe in beats:
                for byte in range(BEAT):
                    if strobe >> byte & 1:
                        final[place + byte] = value >> 8 * byte & 0xFF
                place += BEAT
        counts[client], dones[client] = len(jobs), [0]
        ask, give, count = writer(dut.writes[client], [(a % 2**32, b) for a, b in jobs], dones[client], rng)
        benches += [ask, give]
        background.append(count)

    async def setup(ctx):
        ctx.set(dut.dma_base, base)

    background.append(at_work(dut))
    simulate(
        dut,
        memory,
        lambda: (
            all(len(got[c]) >= len(expected[c]) for c in got) and all(dones[c][0] >= counts[c] for c in dones)
        ),
        benches,
        background,
        setup=setup,
    )
    for client in got:
        assert got[client] == expected[client], client.name
    assert {c: d[0] for c, d in dones.items()} == counts
    assert memory.data == final
    assert memory.peak_writes <= 15
    assert any(a % 4096 == 0 for _, a, _ in memory.reads) and len(memory.reads) > 8 * 25


def test_a_request_over_a_page_is_two_bursts_and_one_answer():
    dut = Ddma()
    memory = AxiMemory(dut.axi, image(1))
    got, done = [], [0]
    ask, take = reader(dut.reads[ReadClient.FEATURE], [(0x1FC0, 16), (0x2FE0, 1), (0x2E00, 16)], got)
    beats = [(n + 1, 2**32 - 1) for n in range(4)]
    ask_w, give, count = writer(dut.writes[WriteClient.PPU], [(0x4FE0, beats)], done)
    simulate(dut, memory, lambda: len(got) == 3 and done[0] == 1, [ask, ask_w, give], [take, count])
    assert memory.reads == [(0, 0x1FC0, 2), (0, 0x2000, 14), (0, 0x2FE0, 1), (0, 0x2E00, 16)]
    assert memory.writes == [(1, 0x4FE0, 1), (1, 0x5000, 3)]
    assert [len(g) // BEAT for g in got] == [16, 1, 16]
    assert done == [1]


def test_addresses_wrap_at_32_bits_and_the_pc_has_no_base():
    dut = Ddma()
    memory = AxiMemory(dut.axi, image(2))
    got, pc = [], []
    ask, take = reader(dut.reads[ReadClient.WEIGHT], [(0xFFFF_FF00, 1)], got)
    ask_pc, take_pc = reader(dut.reads[ReadClient.PC], [(0x0200, 1)], pc)

    async def setup(ctx):
        ctx.set(dut.dma_base, 0x1100)

    simulate(
        dut,
        memory,
        lambda: got and pc,
        [late(ask), late(ask_pc)],
        [take, take_pc],
        setup=setup,
    )
    assert sorted(memory.reads) == [(ReadClient.WEIGHT, 0x1000, 1), (ReadClient.PC, 0x0200, 1)]


def test_sustained_rates():
    """One read beat and one write beat per cycle; one address per cycle for bursts of one beat."""
    dut = Ddma()
    memory = AxiMemory(dut.axi, image(3), latency=40)
    got, done = [], [0]
    ask, take = reader(dut.reads[ReadClient.FEATURE], [(n * 512, 16) for n in range(16)], got)
    jobs = [(0x8000 + n * 512, [(n, 2**32 - 1)] * 16) for n in range(16)]
    ask_w, give, count = writer(dut.writes[WriteClient.DPU], jobs, done)
    simulate(dut, memory, lambda: len(got) == 16 and done[0] == 16, [ask, ask_w, give], [take, count])
    assert memory.cycles_r[-1] - memory.cycles_r[0] == 255
    assert memory.cycles_w[-1] - memory.cycles_w[0] == 255

    dut = Ddma()
    memory = AxiMemory(dut.axi, image(3), latency=40)
    one, two, done = [], [], [0]
    ask, take = reader(dut.reads[ReadClient.FEATURE], [(n * 64, 1) for n in range(50)], one)
    ask_2, take_2 = reader(dut.reads[ReadClient.ERDMA], [(n * 64, 1) for n in range(50)], two)
    ask_w, give, count = writer(dut.writes[WriteClient.DPU], [(n * 32, [(n, 1)]) for n in range(14)], done)
    simulate(
        dut,
        memory,
        lambda: len(one) == len(two) == 50 and done[0] == 14,
        [ask, ask_2, ask_w, give],
        [take, take_2, count],
    )
    assert memory.cycles_ar[-1] - memory.cycles_ar[0] == 99
    assert memory.cycles_w[-1] - memory.cycles_w[0] == 13
    ids = [r[0] for r in memory.reads]
    assert abs(ids[:20].count(ReadClient.FEATURE) - 10) <= 1, "the clients do not take turns"


def test_data_never_overtakes_its_address():
    dut = Ddma()
    memory = AxiMemory(dut.axi, image(3), random.Random(1), aw_chance=0.1)
    done = [0]
    jobs = [(n * 64, [(n, 1), (n, 2)]) for n in range(20)]
    ask, give, count = writer(dut.writes[WriteClient.PPU], jobs, done)
    simulate(dut, memory, lambda: done[0] == 20, [ask, give], [count])  # the memory checks it


def test_outstanding_limits_follow_the_register():
    dut = Ddma()
    memory = AxiMemory(dut.axi, image(4), latency=60)
    got, done = [], [0]
    ask, take = reader(dut.reads[ReadClient.FEATURE], [(n * 32, 1) for n in range(40)], got)
    ask_w, give, count = writer(dut.writes[WriteClient.DPU], [(n * 32, [(n, 1)]) for n in range(20)], done)

    async def setup(ctx):
        value = registers()["DDMA"]["CFG_OUTSTANDING"].encode(RD_OS_CNT=7, WR_OS_CNT=3)
        await access(ctx, dut.port, "CFG_OUTSTANDING", value)

    simulate(
        dut,
        memory,
        lambda: len(got) == 40 and done[0] == 20,
        [late(ask), late(ask_w), give],
        [take, count],
        setup=setup,
    )
    assert (memory.peak_reads, memory.peak_writes) == (7, 3)


def test_errors_are_reported_once_a_burst_and_data_still_arrives():
    dut = Ddma()
    memory = AxiMemory(dut.axi, image(5), bad=range(0x1000, 0x2000))
    got, done, seen, pulses = [], [0], [], [0, 0]
    ask, take = reader(dut.reads[ReadClient.BRDMA], [(0x0F00, 16), (0x0000, 4), (0x1400, 3)], got)
    jobs = [(0x1800, [(1, 1)]), (0x3000, [(2, 1)]), (0x1900, [(3, 1)])]
    ask_w, give, count = writer(dut.writes[WriteClient.PPU], jobs, done)
    values = {}

    async def watch(ctx):
        axi, bad, due = dut.axi, set(), (False, False)
        signals = (dut.read_error, dut.write_error, dut.diag.valid, dut.diag.payload)
        beats = (axi.rvalid, axi.rid, axi.rresp, axi.rlast, axi.bvalid, axi.bresp)
        sampled = ctx.tick().sample(*signals, *beats)
        async for _, _, read, write, valid, payload, comes, rid, resp, last, ends, answer in sampled:
            assert (read, write) == due, "errors are told in the cycle after the beat or answer"
            due = bool(comes and resp > 1 and rid not in bad), bool(ends and answer > 1)
            if comes:
                bad = bad - {rid} if last else bad | {rid} if resp > 1 else bad
            pulses[0] += read
            pulses[1] += write
            if valid:
                seen.append((payload["code"], payload["value"]))

    async def after(ctx):
        values["error"] = registers()["DDMA"]["CFG_ID_ERROR"].decode(
            await access(ctx, dut.port, "CFG_ID_ERROR")
        )
        await cycles(ctx, 3)

    simulate(
        dut,
        memory,
        lambda: len(got) == 3 and done[0] == 3,
        [ask, ask_w, give],
        [take, count, watch],
        after=after,
    )
    assert pulses == [2, 2]
    assert sorted(seen) == [
        (DiagnosticCode.READ_ERROR, ReadClient.BRDMA),
        (DiagnosticCode.READ_ERROR, ReadClient.BRDMA),
        (DiagnosticCode.WRITE_ERROR, WriteClient.PPU),
        (DiagnosticCode.WRITE_ERROR, WriteClient.PPU),
    ]
    assert values["error"] == {"RD_RESP_ID": ReadClient.BRDMA, "WR_RESP_ID": WriteClient.PPU}
    assert memory.data[0x1800] == 1 and [len(g) // BEAT for g in got] == [16, 4, 3]


@pytest.mark.parametrize("code", [2, 3], ids=["SLVERR", "DECERR"])
def test_every_client_gets_its_errors_told_with_its_id(code):
    """Each master alone: pulse, CFG_ID_ERROR, diagnostic, and the transfer still ends."""
    field = registers()["DDMA"]["CFG_ID_ERROR"]
    for client in (*ReadClient, *WriteClient):
        write = isinstance(client, WriteClient)
        dut = Ddma()
        memory = AxiMemory(dut.axi, image(5), bad=range(0x1000, 0x2000), bad_code=code)
        got, done, seen, pulses, ids = [], [0], [], [0, 0], {}
        if write:
            ask, give, count = writer(dut.writes[client], [(0x1800, [(1, 1)]), (0x3000, [(2, 1)])], done)
            benches, background = [ask, give], [count]
        else:
            ask, take = reader(dut.reads[client], [(0x0F00, 2), (0x1400, 3), (0x2000, 1)], got)
            benches, background = [ask], [take]

        async def watch(ctx, dut=dut, pulses=pulses, seen=seen):
            signals = (dut.read_error, dut.write_error, dut.diag.valid, dut.diag.payload)
            async for _, _, read, wrote, valid, payload in ctx.tick().sample(*signals):
                pulses[0] += read
                pulses[1] += wrote
                if valid:
                    seen.append((DiagnosticCode(payload["code"]), payload["value"]))

        async def after(ctx, dut=dut, ids=ids):
            ids.update(field.decode(await access(ctx, dut.port, "CFG_ID_ERROR")))
            await cycles(ctx, 3)

        ended = (lambda done=done: done[0] == 2) if write else (lambda got=got: len(got) == 3)
        simulate(dut, memory, ended, benches, [*background, watch], after=after)
        kind = DiagnosticCode.WRITE_ERROR if write else DiagnosticCode.READ_ERROR
        assert pulses == [not write, write] and seen == [(kind, client)], client
        assert ids["WR_RESP_ID" if write else "RD_RESP_ID"] == client


def test_registers_read_as_on_silicon_and_unknown_offsets_are_reported():
    dut = Ddma()
    memory = AxiMemory(dut.axi, image(6))
    values, seen = {}, []

    async def after(ctx):
        for register in registers()["DDMA"]:
            values[register.name] = await access(ctx, dut.port, register.name)
        await access(ctx, dut.sdma_port, "CFG_DMA_WSTRB", 0xFFFF_FFFF)
        values["sdma"] = await access(ctx, dut.sdma_port, "CFG_DMA_WSTRB")
        values["ddma"] = await access(ctx, dut.port, "CFG_DMA_WSTRB")
        await access(ctx, dut.port, "CFG_ID_ERROR", 0xFFFF_FFFF)
        values["read only"] = await access(ctx, dut.port, "CFG_ID_ERROR")
        for offset in (0x100, 0, 0x104, 0, 0x108, 0, 0x10C, 0, 0x110, *[0] * 4):
            ctx.set(dut.port.offset, offset)
            ctx.set(dut.port.write, offset != 0)
            ctx.set(dut.port.wdata, 77 + offset)
            if ctx.get(dut.diag.valid):
                seen.append(tuple(ctx.get(dut.diag.payload[n]) for n in ("code", "register", "value")))
            await ctx.tick()

    simulate(dut, memory, lambda: True, [], after=after)
    assert values["CFG_OUTSTANDING"] == 0x0FFF
    assert values["RD_WEIGHT_0"] == 0x01010101
    assert values["WR_WEIGHT_0"] == 0x00010101
    assert values["RD_WEIGHT_1"] == 0x101
    assert values["CFG_STATUS"] == 0x100
    assert (values["sdma"], values["ddma"], values["read only"]) == (0xFFFF_FFFF, 0, 0)
    offsets = range(0x100, 0x114, 4)
    assert seen == [(DiagnosticCode.UNKNOWN_WRITE, 0x8000 + offset, 77 + offset) for offset in offsets]
