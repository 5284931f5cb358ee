"""The performance counters: the RTL against the engines' C++ in every cycle, and the register window."""

from __future__ import annotations

import ctypes as ct
import random
import re
import subprocess
from pathlib import Path

import pytest
from amaranth.sim import Simulator

from rkcosim.engines import library as lib
from rkcosim.engines.block_counters import CountsC
from rkcosim.rtl.counters import WATCHED, CoreCounters, CounterWindow
from rkcosim.rtl.layouts import ReadClient, WriteClient
from rkcosim.spec.regs import counter_registers
from rkcosim.spec.regs.counters import (
    BUSY,
    IDLE,
    LEVEL_BITS,
    WINDOW_BYTES,
    counts,
    levels,
    state_blocks,
    states,
)
from tests import seeds
from tests.simulation import bound
from tests.twins.axi_model import EagerHost, axil_read, axil_write

SEED = seeds.seed(__name__)
ROOT = Path(__file__).resolve().parents[2]
HARNESS = ROOT / "cosim" / "engines" / "harness"
CONTROL = counter_registers()["CONTROL"]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ct.CDLL:
    """counters.h as a library."""
    target = tmp_path_factory.mktemp("counters") / "counters.so"
    options = ["-std=c++17", "-O1", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror", f"-I{HARNESS}"]
    subprocess.run(
        ["g++", *options, str(Path(__file__).with_name("counters_shared.cpp")), "-o", str(target)], check=True
    )
    functions = ct.CDLL(str(target))
    functions.counters_new.restype = ct.c_void_p
    functions.counters_size.restype = ct.c_uint64
    return functions


class Twin:
    """One core's counters in C++."""

    def __init__(self, library: ct.CDLL) -> None:
        self._library = library
        self._counters = ct.c_void_p(library.counters_new())
        self.pins_in, self.pins_out = lib.CoreIn(), lib.CoreOut()

    def close(self) -> None:
        self._library.counters_delete(self._counters)

    def set(self, pins: dict[str, int]) -> None:
        """Set the pins of a cycle through the core's port."""
        for port, value in pins.items():
            if port == "levels":
                for place in range(lib.LEVELS):
                    self.pins_out.levels[place] = value >> LEVEL_BITS * place & 0xFFFF
                continue
            name = port.replace("m_axi_", "m_")
            where = self.pins_in if hasattr(self.pins_in, name) else self.pins_out
            setattr(where, name, value)

    def observe(self) -> None:
        self._library.counters_observe(self._counters, ct.byref(self.pins_in), ct.byref(self.pins_out))

    def stand(self, cycles: int) -> None:
        pins = ct.byref(self.pins_in), ct.byref(self.pins_out)
        self._library.counters_stand(self._counters, *pins, ct.c_uint64(cycles))

    def clear(self) -> None:
        self._library.counters_clear(self._counters)

    def latch(self) -> None:
        self._library.counters_latch(self._counters)

    def read(self, *, kept: bool = False) -> dict[str, int]:
        raw = CountsC()
        self._library.counters_read(self._counters, int(kept), raw)
        return {register.path: raw[place] for place, register in enumerate(counts())}


def drawn(rng: random.Random) -> dict[str, int]:
    """Draw the pins of one cycle; busy phases of the bus are long, so that queues fill."""
    pins = {name: rng.getrandbits(width) for name, width in WATCHED.items()}
    pins["activity"] &= rng.getrandbits(48)
    pins["macs"] = rng.randrange(2049)
    pins["events"] &= 0x0FFC | rng.choice((0, 0, 0, 1, 2, 3))
    if rng.random() < 0.7:
        pins["m_axi_wlast"] = 0
    return pins


# ---------------------------------------------------------------------- RTL = twin


def test_the_harness_counts_what_the_rtl_counts(library: ct.CDLL):
    """The same random pins for both, while the switch is changed and counts are cleared and latched."""
    print(f"seed {SEED}")
    rng = random.Random(SEED)
    dut, twin = CoreCounters(), Twin(library)
    seen: list[dict[str, int]] = []

    async def bench(ctx):
        enable = 0
        for cycle in range(700):
            if rng.random() < 0.03:
                enable = int(rng.random() < 0.8)
            pins = drawn(rng) | {"counting": enable}
            clear, latch = rng.random() < 0.004, rng.random() < 0.02
            for name in WATCHED:
                ctx.set(getattr(dut, name), pins[name])
            ctx.set(dut.enable, enable)
            ctx.set(dut.clear, clear)
            ctx.set(dut.latch, latch)
            if latch:  # keeps the counts without those of this cycle
                twin.latch()
            await ctx.tick()
            twin.set(pins)
            twin.observe()
            if clear:
                twin.clear()
            if cycle % 7 == 0 or clear:
                found = {path: ctx.get(signal) for path, signal in dut.counts.items()}
                assert found == twin.read(), f"cycle {cycle}"
                seen.append(found)
                place = rng.randrange(len(counts()))
                register = counts()[place]
                for word in range(register.width // 32):
                    ctx.set(dut.local, register.offset + 4 * word)
                    kept = twin.read(kept=True)[register.path] >> 32 * word & 0xFFFFFFFF
                    assert ctx.get(dut.rdata) == kept, (cycle, register.path, word)

    simulator = Simulator(dut)
    simulator.add_clock(1e-9)
    simulator.add_testbench(bench)
    simulator.run()
    twin.close()
    largest = {path: max(found[path] for found in seen) for path in seen[0]}
    assert all(largest.values()), "something was never counted: " + ", ".join(
        path for path, most in largest.items() if not most
    )


def test_standing_still_counts_as_so_many_cycles(library: ct.CDLL):
    """The engines' shortcut for cores that they do not evaluate gives the same counts as single cycles."""
    rng = random.Random(SEED)
    for counting, before in ((1, 1), (1, 0), (0, 1), (0, 0)):
        slow, quick = Twin(library), Twin(library)
        still = {name: 0 for name in WATCHED} | {
            "activity": rng.getrandbits(48),
            "levels": rng.getrandbits(192),
        }
        for twin in (slow, quick):
            twin.set(still | {"counting": before, "events": 1})
            twin.observe()
            twin.observe()
            twin.set(still | {"counting": counting, "events": 0})
        for n in (1, 5, 0, 100):
            for _ in range(n):
                slow.observe()
            quick.stand(n)
            assert slow.read() == quick.read(), (counting, before, n)
        assert bool(slow.read()["CONTROL.CYCLES"]) == bool(counting or before)
        for twin in (slow, quick):
            twin.close()


# ---------------------------------------------------------------------- the description


def test_layout_of_the_counts_is_that_of_the_harness(library: ct.CDLL):
    assert library.counters_size() == ct.sizeof(CountsC)
    assert len(states()) == lib.STATES and len(levels()) == lib.LEVELS
    text = (HARNESS / "counters.h").read_text()
    sizes = re.search(r"BLOCK_STATES\[\] = \{([\d, ]+)\}", text)
    assert sizes is not None
    assert [int(n) for n in sizes[1].split(",")] == [len(block.registers) for block in state_blocks()]
    offsets = [register.offset for register in counts()]
    assert offsets == sorted(offsets) and offsets[-1] + 8 <= WINDOW_BYTES
    for block in state_blocks():
        assert next(iter(block)).name == IDLE and BUSY in block.registers, block.name
    clients = [f"{c.name}" for c in ReadClient] + [f"{c.name}_WRITE" for c in WriteClient]
    assert list(counter_registers()["BYTES"].registers)[: len(clients)] == clients


def test_window_of_three_cores():
    """IDENT, the switches, latching, and offsets without a register, over AXI4-Lite."""
    dut = CounterWindow(3)
    switch, cycles = CONTROL["SWITCH"], CONTROL["CYCLES"]
    idle = sum(1 << bit for bit, state in enumerate(states()) if state.name == IDLE)

    async def read(ctx, offset: int) -> int:
        value, response = await axil_read(ctx, dut.axil, offset)
        assert response == 0
        return value

    async def bench(ctx):
        ctx.set(dut.core1.activity, idle)
        base = WINDOW_BYTES
        assert await read(ctx, base + CONTROL["IDENT"].offset) == CONTROL["IDENT"].reset
        assert await read(ctx, base + switch.offset) == 0
        await axil_write(ctx, dut.axil, base + switch.offset, switch.encode(ENABLE=1))
        assert ctx.get(dut.core1.counting) and not ctx.get(dut.core0.counting)
        assert await read(ctx, base + switch.offset) == switch.encode(ENABLE=1)
        assert await read(ctx, base + cycles.offset) == 0, "nothing was latched"
        await axil_write(ctx, dut.axil, base + switch.offset, switch.encode(ENABLE=1, LATCH=1))
        first = await read(ctx, base + cycles.offset)
        assert first and first == await read(ctx, base + cycles.offset), "latched counts do not change"
        for block in state_blocks():
            held = {s.name: await read(ctx, base + s.offset) for s in block}
            assert held == {s.name: first if s.name == IDLE else 0 for s in block}
        await axil_write(ctx, dut.axil, base + switch.offset, switch.encode(ENABLE=1, CLEAR=1))
        assert await read(ctx, base + cycles.offset) == first, "clearing keeps latched counts"
        await axil_write(ctx, dut.axil, base + switch.offset, switch.encode(LATCH=1))
        assert 0 < await read(ctx, base + cycles.offset) < first
        assert not ctx.get(dut.core1.counting)
        for nowhere in (base + 0x40, base + WINDOW_BYTES - 4, 3 * WINDOW_BYTES):
            await axil_write(ctx, dut.axil, nowhere, 0xFFFFFFFF)
            assert await read(ctx, nowhere) == 0
        assert await read(ctx, cycles.offset) == 0, "core 0 was never on"

    simulator = Simulator(dut)
    simulator.add_clock(1e-9)
    simulator.add_testbench(bench)
    simulator.run()


@pytest.mark.parametrize("stall", [0.0, 0.5])
def test_the_window_under_requests_that_follow_each_other(stall: float):
    """Each write takes effect once, in the cycle of its response; reads are answered in order."""
    rng, dut, switch = random.Random(SEED), CounterWindow(3), CONTROL["SWITCH"]
    writes, enabled, expected = [], [0, 0, 0], []
    for _ in range(40):
        core = rng.randrange(3)
        enabled[core] ^= 1
        writes.append((core * WINDOW_BYTES + switch.offset, switch.encode(ENABLE=enabled[core]), 0xF))
        expected.append(tuple(enabled))
    reads = [rng.randrange(3) * WINDOW_BYTES + CONTROL["IDENT"].offset for _ in range(40)]
    host, axil = EagerHost(dut.axil, writes, reads, rng, stall), dut.axil
    shown = [dut.core0.counting, dut.core1.counting, dut.core2.counting]

    async def watch(ctx):
        answered, waiting, now = iter(expected), False, (0, 0, 0)
        async for _, _, valid, ready, *found in ctx.tick().sample(axil.bvalid, axil.bready, *shown):
            now = next(answered) if valid and not waiting else now
            assert tuple(found) == now
            waiting = valid and not ready

    simulator = Simulator(dut)
    simulator.add_clock(1e-9)
    for bench in host.benches():
        simulator.add_testbench(bench)
    for bench in (watch, bound(1_000)):
        simulator.add_testbench(bench, background=True)
    simulator.run()
    assert host.written == [0] * len(writes)
    assert host.read == [(CONTROL["IDENT"].reset, 0)] * len(reads)
