"""AXI4-Lite slave, skid buffer, diagnostic merge and register fabric."""

from __future__ import annotations

import random

import pytest
from amaranth import Module
from amaranth.lib import wiring
from amaranth.sim import Simulator

from rkcosim.rtl.bus import AxiLiteSlave, DiagnosticMerge, Response, SkidBuffer
from rkcosim.rtl.layouts import DiagnosticCode
from rkcosim.rtl.regbus import BLOCKS, RegisterFabric, op_enable_fields
from rkcosim.spec.regs import registers
from tests.simulation import bound
from tests.streams import put
from tests.twins.axi_model import EagerHost, axil_read, axil_write

R = registers()


def simulate(dut, *benches, background=(), limit=20_000):
    sim = Simulator(dut)
    sim.add_clock(1e-6)
    for bench in benches:
        sim.add_testbench(bench)
    for bench in background:
        sim.add_testbench(bench, background=True)

    sim.add_testbench(bound(limit), background=True)
    sim.run()


# --- Streams and diagnostics


@pytest.mark.parametrize("stall", [0.0, 0.4])
def test_skid_buffer_keeps_order_and_rate(stall):
    dut, rng, count, got = SkidBuffer(16), random.Random(7), 200, []
    finish = {}

    async def feed(ctx):
        for n in range(count):
            await put(ctx, dut.i, n, rng, stall)

    async def drain(ctx):
        start = None
        async for _, _, valid, payload, ready in ctx.tick().sample(dut.o.valid, dut.o.payload, dut.o.ready):
            finish["cycles"] = finish.get("cycles", -1) + 1
            if valid and ready:
                start = start if start is not None else finish["cycles"]
                got.append(payload)
            if len(got) == count:
                finish["took"] = finish["cycles"] - start
                return
            ctx.set(dut.o.ready, rng.random() >= stall)

    simulate(dut, feed, drain)
    assert got == list(range(count))
    if not stall:
        assert finish["took"] == count - 1


def test_diagnostic_merge_keeps_one_event_of_each_input():
    dut, seen = DiagnosticMerge(3), []

    async def feed(ctx):
        for n in range(3):
            ctx.set(dut.i[n].valid, 1)
            ctx.set(dut.i[n].payload, {"code": n + 1, "register": 16 * n, "value": n})
        await ctx.tick()
        for n in range(3):
            ctx.set(dut.i[n].valid, 0)
        await ctx.tick().repeat(5)

    async def watch(ctx):
        async for _, _, valid, payload in ctx.tick().sample(dut.o.valid, dut.o.payload):
            if valid:
                seen.append((payload["code"], payload["register"], payload["value"]))

    simulate(dut, feed, background=[watch])
    assert seen == [(1, 0, 0), (2, 16, 1), (3, 32, 2)]


def test_diagnostic_merge_loses_nothing_of_two_inputs_that_tell_at_the_same_time():
    dut, seen = DiagnosticMerge(2), []

    async def feed(ctx):
        for step in range(6):
            for n in range(2):
                ctx.set(dut.i[n].valid, 1)
                ctx.set(dut.i[n].payload, {"code": n + 1, "register": step, "value": 0})
            await ctx.tick()
        for n in range(2):
            ctx.set(dut.i[n].valid, 0)
        await ctx.tick().repeat(12)

    async def watch(ctx):
        async for _, _, valid, payload in ctx.tick().sample(dut.o.valid, dut.o.payload):
            if valid:
                seen.append((payload["code"], payload["register"]))

    simulate(dut, feed, background=[watch])
    assert seen == [(n + 1, step) for n in range(2) for step in range(6)]


# --- AXI4-Lite


def register_model(port, rng, store, log, error=None):
    """A block with a RegisterPort or RegisterBus that is ready at random times."""

    async def serve(ctx):
        ready = 0
        while True:
            offset = ctx.get(port.offset)
            ctx.set(port.ready, ready)
            ctx.set(port.rdata, store.get(offset, 0))
            if error is not None:
                ctx.set(port.error, offset in error)
            _, _, write, read, offset, value = await ctx.tick().sample(
                port.write, port.read, port.offset, port.wdata
            )
            if ready and write:
                store[offset] = value
                log.append((offset, value))
            # Reads answer in the cycle after the next one at the earliest, as a register file may.
            ready = rng.random() < 0.5 and (write or read) and not ready

    return serve


@pytest.mark.parametrize("seed", range(3))
def test_axi_lite_slave_reads_what_was_written(seed):
    print(f"seed {seed}")
    rng = random.Random(seed)
    dut, store, log = AxiLiteSlave(), {}, []

    async def host(ctx):
        model = {}
        for _ in range(60):
            address = 4 * rng.randrange(16)
            if rng.random() < 0.5:
                value = rng.getrandbits(32)
                assert await axil_write(ctx, dut.axil, address, value, rng) == Response.OKAY
                model[address] = value
            else:
                assert await axil_read(ctx, dut.axil, address, rng) == (model.get(address, 0), Response.OKAY)
        assert await axil_read(ctx, dut.axil, 0x2000, rng) == (0, Response.SLVERR)
        assert await axil_write(ctx, dut.axil, 0, 1, rng, strobe=0x3) == Response.SLVERR
        assert store == model

    serve = register_model(dut.bus, random.Random(seed + 9), store, log, error={0x2000})
    simulate(dut, host, background=[serve])


@pytest.mark.parametrize("stall", [0.0, 0.3, 0.7])
def test_axi_lite_requests_follow_each_other_on_all_channels(stall):
    """A host that does not wait for responses: each request is performed once, and answered in order."""
    dut, rng, log, performed = AxiLiteSlave(), random.Random(int(10 * stall)), [], []
    writes = [(4 * n, rng.getrandbits(32), rng.choice([0xF, 0xF, 0xF, 0x7])) for n in range(40)]
    reads = [0x400 + 4 * rng.randrange(64) for _ in range(40)]
    contents = {0x400 + 4 * n: rng.getrandbits(32) for n in range(64)}
    host = EagerHost(dut.axil, writes, reads, rng, stall)

    async def serve(ctx):
        async for _, _, read, ready, offset in ctx.tick().sample(dut.bus.read, dut.bus.ready, dut.bus.offset):
            performed.extend([offset] if read and ready else [])

    registers = register_model(dut.bus, random.Random(5), dict(contents), log)
    simulate(dut, *host.benches(), background=[registers, serve])
    assert log == [(offset, value) for offset, value, strobe in writes if strobe == 0xF]
    assert performed == reads
    assert host.read == [(contents[offset], Response.OKAY) for offset in reads]
    assert host.written == [Response.OKAY if strobe == 0xF else Response.SLVERR for _, _, strobe in writes]


def test_axi_lite_reads_and_writes_that_wait_together_take_turns():
    dut, order = AxiLiteSlave(), []

    async def writes(ctx):
        for n in range(8):
            await axil_write(ctx, dut.axil, 0x100, n)

    async def reads(ctx):
        for _ in range(8):
            await axil_read(ctx, dut.axil, 0x200)

    async def serve(ctx):
        ctx.set(dut.bus.ready, 1)
        async for _, _, write, read in ctx.tick().sample(dut.bus.write, dut.bus.read):
            order.extend(["w"] * write + ["r"] * read)

    simulate(dut, writes, reads, background=[serve])
    assert sorted(order) == ["r"] * 8 + ["w"] * 8
    assert "www" not in "".join(order) and "rrr" not in "".join(order)


# --- Fabric


class Wired(wiring.Component):
    """The fabric with the AXI4-Lite slave."""

    def __init__(self):
        super().__init__({})
        self.fabric = RegisterFabric()
        self.slave = AxiLiteSlave()

    def elaborate(self, platform):
        m = Module()
        m.submodules.fabric, m.submodules.slave = self.fabric, self.slave
        wiring.connect(m, self.slave.bus, self.fabric.host)
        return m


async def fetch_write(ctx, bus, offset, value):
    ctx.set(bus.offset, offset)
    ctx.set(bus.wdata, value)
    ctx.set(bus.write, 1)
    await ctx.tick().until(bus.ready)
    ctx.set(bus.write, 0)


@pytest.mark.parametrize("seed", range(2))
def test_every_block_gets_its_accesses_of_both_initiators(seed):
    print(f"seed {seed}")
    dut = Wired()
    stores = {b: {} for b in BLOCKS}
    logs = {b: [] for b in BLOCKS}
    servers = [
        register_model(getattr(dut.fabric, b.lower()), random.Random(seed * 50 + n), stores[b], logs[b])
        for n, b in enumerate(BLOCKS)
    ]
    expected = {b: {} for b in BLOCKS}
    rng_host, rng_fetch = random.Random(seed), random.Random(seed + 1)

    async def host(ctx):
        for _ in range(80):
            block = rng_host.choice(BLOCKS)
            local, value = 8 * rng_host.randrange(512), rng_host.getrandbits(32)
            code = await axil_write(ctx, dut.slave.axil, R[block].base + local, value, rng_host)
            expected[block][local] = value
            assert code == Response.OKAY
            assert await axil_read(ctx, dut.slave.axil, R[block].base + local) == (value, Response.OKAY)

    async def fetch(ctx):
        for _ in range(300):
            block = rng_fetch.choice(BLOCKS)
            local, value = 8 * rng_fetch.randrange(512) + 4, rng_fetch.getrandbits(32)
            await fetch_write(ctx, dut.fabric.fetch, R[block].base + local, value)
            expected[block][local] = value

    simulate(dut, host, fetch, background=servers)
    assert stores == expected


def test_a_waiting_fetch_write_does_not_shut_out_the_host():
    dut = Wired()
    log = []

    async def host(ctx):
        await ctx.tick().repeat(5)
        for n in range(5):
            # The same block that refuses the write, and another one.
            assert await axil_read(ctx, dut.slave.axil, R["CNA"].base) == (42, Response.OKAY)
            assert await axil_write(ctx, dut.slave.axil, R["DPU"].base + 4, n) == Response.OKAY
        ctx.set(dut.slave.axil.araddr, 0)
        log.append("host done")
        release.append(True)
        await ctx.tick().repeat(10)

    async def fetch(ctx):
        await fetch_write(ctx, dut.fabric.fetch, R["CNA"].base + 0x10, 1)
        log.append("fetch done")

    release = []

    async def cna(ctx):
        port = dut.fabric.cna
        answered = 0
        ctx.set(port.rdata, 42)
        while True:
            # as a register file does: a read is answered one cycle later, and only if it stays
            ctx.set(port.ready, answered or (bool(release) and ctx.get(port.write)))
            _, _, read = await ctx.tick().sample(port.read)
            answered = read and not answered

    async def dpu(ctx):
        ctx.set(dut.fabric.dpu.ready, 1)

    simulate(dut, host, fetch, background=[cna, dpu])
    assert log == ["host done", "fetch done"]


def test_a_waiting_host_write_does_not_shut_out_the_command_stream():
    dut = Wired()
    taken = []

    async def host(ctx):
        await axil_write(ctx, dut.slave.axil, R["CNA"].base + 0x10, 1)

    async def fetch(ctx):
        await ctx.tick().repeat(5)
        for n in range(10):
            await fetch_write(ctx, dut.fabric.fetch, R["DPU"].base + 0x10, n)
            taken.append(n)
        ctx.set(dut.fabric.cna.ready, 1)

    async def dpu(ctx):
        ctx.set(dut.fabric.dpu.ready, 1)

    simulate(dut, host, fetch, background=[dpu])
    assert taken == list(range(10))


def test_windows_without_a_block():
    dut = Wired()
    seen, enables = [], []

    async def host(ctx):
        axil = dut.slave.axil
        assert await axil_read(ctx, axil, 0x2004) == (0, Response.SLVERR)
        assert await axil_write(ctx, axil, 0x2008, 1) == Response.OKAY
        assert await axil_read(ctx, axil, 0xA000) == (0, Response.OKAY)
        assert await axil_write(ctx, axil, 0xE010, 2) == Response.OKAY
        assert await axil_write(ctx, axil, 0xF000, 3) == Response.OKAY
        assert await axil_write(ctx, axil, R["GLOBAL"]["OPERATION_ENABLE"].offset, 0x7D) == Response.OKAY
        assert await axil_read(ctx, axil, R["GLOBAL"]["OPERATION_ENABLE"].offset) == (0, Response.OKAY)

    async def watch(ctx):
        signals = (dut.fabric.diag.valid, dut.fabric.diag.payload, dut.fabric.op_enable)
        async for _, _, valid, payload, enable in ctx.tick().sample(*signals):
            if valid:
                seen.append((payload["code"], payload["register"], payload["value"]))
            if enable:
                enables.append(enable)

    simulate(dut, host, background=[watch])
    assert seen == [
        (DiagnosticCode.UNDECODED_ACCESS, 0x2004, 0),
        (DiagnosticCode.UNKNOWN_WRITE, 0x2008, 1),
        (DiagnosticCode.UNKNOWN_WRITE, 0xE010, 2),
        (DiagnosticCode.UNKNOWN_WRITE, 0xF000, 3),
    ]
    assert enables == [0x7D], "one pulse"


def test_op_enable_bits_are_those_of_the_mask():
    assert op_enable_fields() == {"CNA": 0, "CORE": 2, "DPU": 3, "DPU_RDMA": 4, "PPU": 5, "PPU_RDMA": 6}


@pytest.mark.parametrize("busy", [0.4, 1.0])
def test_every_output_of_the_fabric_follows_one_initiator(busy):
    """In each cycle the blocks see the access of one initiator, which sees their answer; the other waits."""
    rng, dut = random.Random(9), RegisterFabric()
    names = [block.lower() for block in BLOCKS]
    windows = {R[block].base >> 12: block.lower() for block in BLOCKS}
    initiators = {"host": dut.host, "fetch": dut.fetch}
    enable = R["GLOBAL"]["OPERATION_ENABLE"].offset
    places = [*(window << 12 for window in range(16)), enable]
    outputs = {
        f"{one}.{name}": getattr(initiators[one], name)
        for one in initiators
        for name in ("ready", "rdata", "error")
    }
    for block in names:
        port = getattr(dut, block)
        outputs |= {f"{block}.{name}": getattr(port, name) for name in ("write", "read", "offset", "wdata")}
    outputs |= {"op_enable": dut.op_enable, "diag": dut.diag.valid, "watch": dut.watch.valid}
    outputs["watch.fetched"] = dut.watch.fetched

    def expected(chosen, wants, answers):
        write, read, offset, wdata = wants[chosen]
        window = offset >> 12
        block = windows.get(window)
        ready, rdata = answers[block] if block else (1, 0)
        hanging = window == 2
        error, none = hanging and read, not block and offset != enable
        want = {f"{one}.ready": one == chosen and bool(ready) for one in initiators}
        want |= {f"{one}.rdata": rdata for one in initiators} | {f"{one}.error": error for one in initiators}
        for name in names:
            here = name == block
            want |= {f"{name}.write": write and here, f"{name}.read": read and here}
            want |= {f"{name}.offset": offset & 0xFFF, f"{name}.wdata": wdata}
        want["op_enable"] = wdata & 127 if write and offset == enable else 0
        want["diag"] = none and (write or (read and hanging))
        want["watch"] = write and bool(ready)
        want["watch.fetched"] = want["watch"] and chosen == "fetch"
        return want

    async def bench(ctx):
        wants = {one: (0, 0, 0, 0) for one in initiators}
        waits = dict.fromkeys(initiators, False)
        for cycle in range(600):
            for one, port in initiators.items():
                if not waits[one]:
                    kind = rng.choice([(1, 0), (0, 1)]) if rng.random() < busy else (0, 0)
                    wants[one] = (
                        *kind,
                        rng.choice(places) + rng.choice([0, 0, 4, 0x10]),
                        rng.getrandbits(32),
                    )
                for name, value in zip(("write", "read", "offset", "wdata"), wants[one], strict=True):
                    ctx.set(getattr(port, name), value)
            answers = {name: (rng.random() < 0.6, rng.getrandbits(32)) for name in names}
            for name, (ready, rdata) in answers.items():
                ctx.set(getattr(dut, name).ready, ready)
                ctx.set(getattr(dut, name).rdata, rdata)
            _, _, *found = await ctx.tick().sample(*outputs.values())
            active = [one for one in initiators if any(wants[one][:2])] or ["host"]
            seen = dict(zip(outputs, map(int, found), strict=True))
            fits = [one for one in active if expected(one, wants, answers) == seen]
            assert fits, f"cycle {cycle}: {wants}, {answers}: {seen}"
            for one in initiators:
                waits[one] = any(wants[one][:2]) and not seen[f"{one}.ready"]

    simulate(dut, bench)
