"""Three cores as one design run cycle for cycle like three separate cores (Amaranth's simulator)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from amaranth.hdl import Cat, Signal
from amaranth.lib.wiring import In
from amaranth.sim import Simulator

from rkcosim.regcmd import words_to_bytes
from rkcosim.rtl.core import NpuCore
from rkcosim.rtl.layouts import DiagnosticCode
from rkcosim.rtl.soc import COUNTER_PREFIX, INNER_PORTS, NpuSoc, core_prefix
from rkcosim.spec.config import SMALL
from rkcosim.spec.regs import counter_registers, registers
from rkcosim.spec.regs.counters import WINDOW_BYTES
from tests.makers.small_tasks import pool_task
from tests.twins.axi_model import AxiMemory, axil_read, axil_write

pytestmark = pytest.mark.heavy  # the design of three whole cores takes a minute to simulate

R = registers()
COMMANDS, SOURCE, TARGET, SIZE = 0x0000, 0x1000, 0x1800, 0x2000
MAX_CYCLES = 1500
HEIGHT = 2


class Bus:
    """Signals of one bus of a component by their short names."""

    def __init__(self, component: Any, prefix: str) -> None:
        self._component, self._prefix = component, prefix

    def __getattr__(self, name: str) -> Signal:
        return getattr(self._component, self._prefix + name)


def directions(component: Any) -> dict[str, tuple[bool, int]]:
    """Map from port to (is an input, width)."""
    members = component.signature.members.items()
    return {name: (member.flow == In, len(getattr(component, name))) for name, member in members}


@pytest.fixture(scope="module")
def soc() -> NpuSoc:
    return NpuSoc(SMALL)


@pytest.fixture(scope="module")
def lone() -> LoneCore:
    return LoneCore()


def program(core: int, data: bytearray) -> list[tuple[str, str, int]]:
    """Memory and register writes for one core: a pool by the PC, then CNA started for core 1."""
    task = pool_task(SOURCE, TARGET, HEIGHT, 3 + core)
    words = words_to_bytes(task.words())
    data[COMMANDS : COMMANDS + len(words)] = words
    data[SOURCE : SOURCE + 0x400] = np.random.default_rng(core).integers(0, 256, 0x400, np.uint8).tobytes()
    pc, events = R["PC"], R["PC"]["INTERRUPT_MASK"].fields["int_mask"].enum
    return [
        ("PC", "BASE_ADDRESS", pc["BASE_ADDRESS"].encode(PC_SOURCE_ADDR=COMMANDS // 16)),
        ("PC", "REGISTER_AMOUNTS", pc["REGISTER_AMOUNTS"].encode(PC_DATA_AMOUNT=task.amount)),
        ("PC", "INTERRUPT_MASK", events["PPU_0"]),
        ("PC", "TASK_CON", pc["TASK_CON"].encode(TASK_COUNT_CLEAR=1, TASK_NUMBER=1)),
        ("CNA", "S_POINTER", R["CNA"]["S_POINTER"].encode(CORE_INDEX=1)),
        ("PC", "OPERATION_ENABLE", pc["OPERATION_ENABLE"].encode(OP_EN=1)),
    ]


class LoneCore:
    """One core; `record` runs a program on it and returns inputs and outputs cycle by cycle."""

    def __init__(self) -> None:
        self.core = core = NpuCore(SMALL)
        ports = directions(core)
        names = [name for name in ports if name not in INNER_PORTS]
        self.inputs = [name for name in names if ports[name][0]]
        self.outputs = [name for name in names if not ports[name][0]]
        self.log: list[tuple[int, int]] = []
        self.simulator = Simulator(core)
        self.simulator.add_clock(1e-9)
        self.simulator.add_testbench(self._host)
        self.simulator.add_testbench(self._watch, background=True)
        self.simulator.add_process(self._memory)

    def record(self, index: int) -> list[tuple[int, int]]:
        if self.log:  # a simulator that has not run yet must not be reset
            self.simulator.reset()
        self.index, self.data, self.log = index, bytearray(SIZE), []
        self.steps = program(index, self.data)
        self.simulator.run()
        return self.log

    def place(self, name: str) -> tuple[int, int]:
        """Lowest bit and width of an output in the log."""
        before = self.outputs[: self.outputs.index(name)]
        return sum(len(getattr(self.core, n)) for n in before), len(getattr(self.core, name))

    def seen(self, name: str) -> list[int]:
        """Values of an output in every cycle of the last record."""
        start, width = self.place(name)
        return [outputs >> start & ((1 << width) - 1) for _, outputs in self.log]

    async def _memory(self, ctx: Any) -> None:
        await AxiMemory(Bus(self.core, "m_axi_"), self.data, latency=6).process(ctx)

    async def _watch(self, ctx: Any) -> None:
        pins = [Cat(getattr(self.core, n) for n in names) for names in (self.inputs, self.outputs)]
        async for _, _, inputs, outputs in ctx.tick().sample(*pins):
            self.log.append((inputs, outputs))

    async def _host(self, ctx: Any) -> None:
        core, axil = self.core, Bus(self.core, "s_axil_")
        ctx.set(core.core_index, self.index)
        for _ in range(5 * self.index):
            await ctx.tick()
        for block, register, value in self.steps:
            await axil_write(ctx, axil, R[block][register].offset, value)
        for _ in range(MAX_CYCLES):
            if ctx.get(core.irq):
                break
            await ctx.tick()
        else:
            pytest.fail(f"core {self.index}: no interrupt in {MAX_CYCLES} cycles")
        status, _ = await axil_read(ctx, axil, R["PC"]["INTERRUPT_STATUS"].offset)
        assert status == R["PC"]["INTERRUPT_MASK"].fields["int_mask"].enum["PPU_0"]
        await axil_write(ctx, axil, R["CNA"]["OPERATION_ENABLE"].offset, 1)
        for _ in range(20):
            await ctx.tick()


def test_soc_is_three_cores(soc, lone):
    logs = []
    for k in range(3):
        logs.append(lone.record(k))
        width = 3 + k
        data = np.frombuffer(lone.data, np.int8)
        image = data[SOURCE:][: HEIGHT * width * 16].reshape(HEIGHT, width, 16)
        taps = [image[y : y + 1, x : x + width - 1] for y in (0, 1) for x in (0, 1)]
        assert data[TARGET:][: (width - 1) * 16].tobytes() == np.max(taps, axis=0).tobytes()
        codes = {
            code for code, valid in zip(lone.seen("diag_code"), lone.seen("diag_valid"), strict=True) if valid
        }
        assert (DiagnosticCode.WRONG_CORE in codes) == (k != 1)  # so the index matters

    inputs, outputs = (
        [Cat(getattr(soc, core_prefix(k) + name) for name in names) for k in range(3)]
        for names in (lone.inputs, lone.outputs)
    )
    cycles = max(len(log) for log in logs)
    compared = 0
    # Core 1 is counted meanwhile.
    window, base = Bus(soc, COUNTER_PREFIX), WINDOW_BYTES
    switch = counter_registers()["CONTROL"]["SWITCH"]
    blocks = ("PPU", "PPU_RDMA", "DDMA", "CSC")
    wanted = [state.path for block in blocks for state in counter_registers()[block]]
    wanted += ["CONTROL.CYCLES", "TASKS.DONE", "BYTES.PPU_WRITE"]
    counted: dict[str, int] = {}

    async def replay(ctx: Any) -> None:
        nonlocal compared
        for cycle in range(cycles):
            live = [k for k in range(3) if cycle < len(logs[k])]
            for k in live:
                ctx.set(inputs[k], logs[k][cycle][0])
            _, _, *found = await ctx.tick().sample(*outputs)
            for k in live:
                if found[k] != logs[k][cycle][1]:
                    pytest.fail(f"core {k}, cycle {cycle}: {differing(lone, found[k], logs[k][cycle][1])}")
                compared += 1
        await axil_write(ctx, window, base + switch.offset, switch.encode(LATCH=1))
        for path in wanted:
            block, _, name = path.partition(".")
            offset = base + counter_registers()[block][name].offset
            counted[path], _ = await axil_read(ctx, window, offset)

    async def count(ctx: Any) -> None:
        await axil_write(ctx, window, base + switch.offset, switch.encode(ENABLE=1))

    simulator = Simulator(soc)
    simulator.add_clock(1e-9)
    simulator.add_testbench(count)
    simulator.add_testbench(replay)
    simulator.run()
    assert compared == sum(len(log) for log in logs) > 400
    for block in blocks:
        states = {state.name: counted[state.path] for state in counter_registers()[block]}
        assert sum(states.values()) == counted["CONTROL.CYCLES"] > 100, (block, states)
        assert states["BUSY"] > 0, block
    assert (counted["TASKS.DONE"], counted["BYTES.PPU_WRITE"]) == (1, 3 * 16)


def differing(lone: LoneCore, left: int, right: int) -> str:
    """Names of the output ports that differ."""
    places = {name: lone.place(name) for name in lone.outputs}
    return ", ".join(n for n, (at, width) in places.items() if (left ^ right) >> at & ((1 << width) - 1))
