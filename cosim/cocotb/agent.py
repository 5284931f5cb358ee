"""`NpuAgent`: the complete environment of a core under test, connected in one line; also a driver device."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from dataclasses import replace
from itertools import groupby, pairwise
from typing import Any, TypeVar

import cocotb
import numpy as np
from cocotb.task import bridge, resume
from cocotb.triggers import ClockCycles, First, RisingEdge, Timer
from cocotbext.axi import AxiBus, AxiRam

from rkcosim.cocotb.host import AxiHost, EngineHost
from rkcosim.cocotb.memory import DramSlave
from rkcosim.cocotb.pins import EVENT_BITS, Clocking, event_samples, high, pulses
from rkcosim.cocotb.values import (
    DiagnosticFound,
    InterruptTimeout,
    Log,
    RegisterValue,
    RunResult,
    TaskSpan,
    event_names,
    words_stream,
)
from rkcosim.engines import waits
from rkcosim.engines.diagnostics import (
    DMA_ERRORS,
    LAG,
    Diagnostic,
    Fault,
    make_diagnostic,
    refused_at,
    task_at,
)
from rkcosim.engines.library import DramConfig
from rkcosim.engines.memory import PAGE
from rkcosim.engines.system import RESET_CYCLES
from rkcosim.regcmd import blocks_of_mask
from rkcosim.spec.port_codes import diagnostic_name
from rkcosim.spec.regs import Register, registers
from rkcosim.spec.regs.options import chosen_options, options_mask
from rkcosim.verify.crosscheck.kick import kick_writes
from rkcosim.verify.streams.stream import Stream

IRQ_CYCLES = 100_000
"""Default bound in cycles of a wait for the interrupt."""

INPUTS = """rst s_axil_awvalid s_axil_awaddr s_axil_awprot s_axil_wvalid s_axil_wdata s_axil_wstrb
s_axil_bready s_axil_arvalid s_axil_araddr s_axil_arprot s_axil_rready
options step_answer m_axi_rid m_axi_rdata m_axi_rresp m_axi_rlast m_axi_bid m_axi_bresp"""
"""Inputs that are 0 until they are driven; otherwise they would be X on Icarus."""

HOSTS = {"cocotbext": AxiHost, "engine": EngineHost}

_Result = TypeVar("_Result")


class NpuAgent:
    """Clock, reset, register access, memory and interrupt of one core.

    Parameters
    ----------
    dut : handle of a core (`rkcosim.rtl.core.NpuCore` in Verilog).
    dram : timing of the memory; the engines' default if None.
    host : "cocotbext" (cocotbext-axi's AXI-Lite master, as `agent.host.master`) or "engine" (every access
        takes the same cycles as on the compiled engines, so whole runs agree cycle for cycle).
    ram : None for the memory of `rkcosim.cocotb.memory`, or a number of bytes for cocotbext-axi's `AxiRam`
        from address 0 on (as `agent.ram`; simpler, with other timing, and completely mapped).
    core : number of the core.
    period_ps : period of the clock.
    on_diagnostic : "stop" (`wait_irq` and `run_stream` raise `DiagnosticFound`) or "go on" (diagnostics are
        only in `log`).

    Members
    -------
    memory : `map`, `read`, `write`, `view` of the device's memory.
    dram : the memory's AXI side: faults, bytes by client, open bursts.
    log : tasks and diagnostics so far.
    options : interpretations of the hardware, from RKCOSIM_OPTIONS (spec/regs/options.py).
    on_reset : functions that are called at each reset.
    """

    def __init__(
        self,
        dut: Any,
        *,
        dram: DramConfig | None = None,
        host: str = "cocotbext",
        ram: int | None = None,
        core: int = 0,
        period_ps: int = 1000,
        on_diagnostic: str = "stop",
    ) -> None:
        if host not in HOSTS:
            raise ValueError(f"host must be {' or '.join(map(repr, HOSTS))}, not {host!r}")
        if on_diagnostic not in ("stop", "go on"):
            raise ValueError(f"on_diagnostic must be 'stop' or 'go on', not {on_diagnostic!r}")
        if not 0 <= core <= 2:
            raise ValueError(f"core must be 0, 1 or 2, not {core}")
        absent = [name for name in INPUTS.split() if not hasattr(dut, name)]
        if absent:
            raise ValueError(f"an agent needs a whole core; {dut._name} has no port {absent[0]}")
        self.dut, self.core, self.on_diagnostic = dut, core, on_diagnostic
        self.log = Log()
        self.on_reset: list[Callable[[], object]] = []
        self._reported = 0
        for name in INPUTS.split():
            getattr(dut, name).value = 0
        dut.core_index.value = core
        self.options = chosen_options()
        dut.options.value = options_mask(self.options)
        self.clocking = Clocking(dut.clk, period_ps)
        self.host: Any = HOSTS[host](dut, self.clocking)
        self.dram: DramSlave | None = None
        if ram is None:
            self.dram = DramSlave(dut, self.clocking, dram)
            self.memory: Any = self.dram.memory
        else:
            self.ram = AxiRam(AxiBus.from_prefix(dut, "m_axi"), dut.clk, dut.rst, size=ram)
            self.memory = _RamMemory(self.ram, ram)
        cocotb.start_soon(self._watch_events())
        cocotb.start_soon(self._watch_diagnostics())

    # Time

    @property
    def cycle(self) -> int:
        """Cycles since the agent was made."""
        return self.clocking.cycle

    async def cycles(self, count: int) -> None:
        """Wait for `count` cycles."""
        await ClockCycles(self.dut.clk, count)

    async def reset(self, cycles: int = RESET_CYCLES) -> None:
        """Hold the core's reset; open transfers on its buses are dropped."""
        await RisingEdge(self.dut.clk)
        self.dut.rst.value = 1
        if self.dram is not None:
            self.dram.reset()
        for call in self.on_reset:
            call()
        await self.cycles(cycles)
        self._reported = len(self.log.diagnostics)  # earlier diagnostics do not count any more
        self.dut.rst.value = 0
        if self.dram is not None:
            self.dram.reset()

    # Registers

    async def write(self, register: str | int, value: int | None = None, **fields: int | str) -> None:
        """Write a register, given by name or offset: a value, or its fields (the others are 0).

        Raises
        ------
        KeyError, ValueError
            for a register, field or value that does not exist.
        BusError
            if the core responds with an error.
        """
        offset, item = _find(register)
        if (value is None) == (not fields):
            raise ValueError(f"write of {register}: give either a value or fields")
        if value is None:
            if item is None:
                raise ValueError(f"write of {register}: no register there, so it has no fields")
            value = item.encode(**fields)
        if not 0 <= value < 1 << 32:
            raise ValueError(f"write of {register}: {value:#x} does not fit 32 bits")
        await self.host.write(offset, value)

    async def read(self, register: str | int) -> RegisterValue:
        """Read a register by name or offset; the fields are `value["FIELD"]`. Raises as `write`."""
        offset, _ = _find(register)
        return RegisterValue(offset, await self.host.read(offset))

    # Streams

    def load(self, stream: Stream) -> None:
        """Map and fill the memory of a stream (pages that are already mapped are kept)."""
        have = {n for at, size in self.memory.ranges.items() for n in range(at // PAGE, (at + size) // PAGE)}
        wanted: set[int] = set()
        for region in stream.regions:
            last = (region.address + max(region.data.size, 1) - 1) // PAGE
            wanted |= set(range(region.address // PAGE, last + 1))
        for _, run in groupby(enumerate(sorted(wanted - have)), lambda place: place[1] - place[0]):
            pages = [page for _, page in run]
            self.memory.map(pages[0] * PAGE, len(pages) * PAGE)
        for region in stream.regions:  # page by page: they may lie in several mappings
            address, data = region.address, region.data.tobytes()
            cuts = [0, *range(-address % PAGE or PAGE, len(data), PAGE), len(data)]
            for begin, end in pairwise(cuts):
                self.memory.write(address + begin, data[begin:end])

    async def run_stream(
        self, stream: Stream | Iterable[int], bound_cycles: int = IRQ_CYCLES, *, load: bool = True
    ) -> RunResult:
        """Start a stream, or the words of one task, wait for its end and clear the interrupt.

        Parameters
        ----------
        stream : a `rkcosim.verify.streams.stream.Stream`, or words, which are placed at `COMMANDS`.
        load : write the stream's regions to memory first.

        Raises
        ------
        InterruptTimeout
            if it does not end within `bound_cycles`.
        DiagnosticFound
            if the core raised a diagnostic (see `on_diagnostic`).
        """
        if not isinstance(stream, Stream):
            stream, load = words_stream(stream, self.core), True
        if load:
            self.load(stream)
        first = len(self.log.tasks)
        start = await self.start(stream)
        kick = stream.kick
        what = (
            f"{kick.tasks} task{'s' if kick.tasks > 1 else ''} to end with {event_names(kick.interrupt_mask)}"
        )
        irq = await self.wait_irq(bound_cycles, what)
        status = await self.read("PC.INTERRUPT_STATUS")
        await self.write("PC.INTERRUPT_CLEAR", registers()["PC"]["INTERRUPT_CLEAR"].mask)
        return RunResult(int(status), start, irq, tuple(self.log.tasks[first:]))

    async def start(self, stream: Stream) -> int:
        """Write what starts a stream that is in memory, in the order of the vendor driver.

        Returns
        -------
        int
            the cycle before the op-enable.
        """
        before, starting = kick_writes(stream.kick, self.core, stream.writes)
        for offset, value in before:
            await self.host.write(offset, value)
        begun = self.cycle
        for offset, value in starting:
            await self.host.write(offset, value)
        return begun

    async def wait_irq(self, bound_cycles: int = IRQ_CYCLES, what: str = "the interrupt line") -> int:
        """Wait until the interrupt line is high.

        Returns
        -------
        int
            the first cycle in which it is high.

        Raises
        ------
        InterruptTimeout
            after `bound_cycles`; names the event, the running blocks and what they wait for.
        DiagnosticFound
            with `on_diagnostic` "stop", as soon as the core raises one.
        """
        began = self.cycle
        if not await self.poll_irq(bound_cycles):
            raise InterruptTimeout(
                f"waited {bound_cycles} cycles (from {began} to {self.cycle}) for {what}; "
                f"the interrupt line stayed low\n{await self.block_state()}"
            )
        return self.cycle

    async def poll_irq(self, bound_cycles: int) -> bool:
        """Wait like `wait_irq`, and return whether the line is high."""
        self._raise_diagnostics()
        if not high(self.dut.irq):
            bound = Timer(max(1, bound_cycles) * self.clocking.period_ps, "ps")
            suspicious = [RisingEdge(self.dut.diag_valid)] if self.on_diagnostic == "stop" else []
            fired = await First(RisingEdge(self.dut.irq), bound, *suspicious)
            if fired is bound:
                return False
            await RisingEdge(self.dut.clk)
            if suspicious and fired is suspicious[0]:
                await RisingEdge(self.dut.clk)  # logged now
            self._raise_diagnostics()
        return True

    async def software(self, function: Callable[[Any], _Result]) -> _Result:
        """Run blocking code on this core: a function of a device as `rkcosim.driver.Driver` takes it.

        The rest of the simulation continues meanwhile. Exceptions of the function are raised here.
        """
        device = AgentDevice(self)
        return await bridge(lambda: function(device))()

    async def block_state(self) -> str:
        """Return lines about the running blocks, what they wait for, and the diagnostics."""
        busy = blocks_of_mask(int(self.dut.busy_blocks.value))
        lines = [f"busy_blocks: {', '.join(busy) or 'none'}"]
        at_work = set()
        for block in registers():
            if "S_STATUS" in block:
                fields, value = block["S_STATUS"].fields, await self.read(f"{block.name}.S_STATUS")
                groups = {name[-1]: fields[name].label(v) or v for name, v in value.fields.items() if v}
                if groups:
                    at_work.add(block.name)
                    shown = ", ".join(f"group {number} {state}" for number, state in groups.items())
                    lines.append(f"{block.name}.S_STATUS: {shown}")
        raw = await self.read("PC.INTERRUPT_RAW_STATUS")
        mask = await self.read("PC.INTERRUPT_MASK")
        lines.append(f"interrupt events: raised {event_names(raw)}, mask {event_names(mask)}")
        open_bursts = self.dram.open_bursts if self.dram is not None else {}
        lines += [f"memory: {count} open {what}" for what, count in open_bursts.items()]
        events, idle = int(self.dut.events.value), high(self.dut.idle)
        stalls = [name for name, bit in EVENT_BITS.items() if events & bit]
        now = f", now: {', '.join(stalls)}" if stalls else ""
        lines.append(f"task {int(self.dut.task_index.value)}, {'idle' if idle else 'not idle'}{now}")
        reading = any("reads" in what for what in open_bursts)
        lines += waits.explain(at_work, stalls, reading, idle, await self._sources(at_work))
        lines += [f"diagnostic: {item}" for item in self.log.diagnostics[:3]]
        return "\n".join([*lines, *(f"fault: {item}" for item in self._faults()[:3])])

    async def _sources(self, at_work: Container[str]) -> dict[str, str]:
        """Return the blocks from which DPU and PPU take their data, where that can be read."""
        found = {}
        for name, (register, field, blocks) in waits.SOURCES.items():
            if name not in at_work:
                continue
            pointer = await self.read(f"{name}.S_POINTER")
            if waits.executing(name, pointer):
                value = await self.read(f"{name}.{register}")
                found[name] = blocks[registers()[name][register].decode(value)[field]]
        return found

    # Continuous observation

    def _faults(self) -> list[Fault]:
        return self.dram.faults if self.dram is not None else []

    def _raise_diagnostics(self) -> None:
        fresh = self.log.diagnostics[self._reported :]
        self._reported = len(self.log.diagnostics)
        if fresh and self.on_diagnostic == "stop":
            raise DiagnosticFound(fresh)

    async def _watch_events(self) -> None:
        async for value in event_samples(self.dut):
            tasks = self.log.tasks
            if value & EVENT_BITS["task_done"] and tasks:  # the next one may start in the same cycle
                tasks[-1] = replace(tasks[-1], end=self.cycle)
            if value & EVENT_BITS["task_start"]:
                tasks.append(TaskSpan(self.core, int(self.dut.task_index.value), self.cycle))

    async def _watch_diagnostics(self) -> None:
        async for _ in pulses(self.dut.diag_valid, self.dut.clk):
            self.log.diagnostics.append(self.diagnostic())

    def diagnostic(self) -> Diagnostic:
        """Return the diagnostic port in this cycle (valid while `diag_valid` is high)."""
        code, block, register, value = (
            int(getattr(self.dut, f"diag_{name}").value) for name in ("code", "block", "register", "value")
        )
        now, core, write = self.cycle, self.core, DMA_ERRORS.get(diagnostic_name(code))
        # The memory has one port, number 0, regardless of the core behind it.
        address = None if write is None else refused_at(self._faults(), 0, value, write, now)
        task = task_at(self.log.tasks, core, now - LAG)
        return make_diagnostic(now, core, code, block, register, value, task, address)


def _find(register: str | int) -> tuple[int, Register | None]:
    """Return the offset of a register, and the register (None if there is none), by name or by offset."""
    if isinstance(register, int):
        return register, registers().at(register)
    block, _, name = register.partition(".")
    item = registers()[block].registers[name]
    return item.offset, item


class AgentDevice:
    """A core in a simulation as a device for driver, runtime and `rknn_api`.

    It is `rkcosim.driver.device.Device` on an agent, only for functions that `NpuAgent.software` runs,
    because it blocks the thread of cocotb's bridge in which they run.

    Members
    -------
    cores : the number of the agent's core plus 1; accesses to other cores raise ValueError.
    memory, cycle : the agent's.
    """

    name = "cocotb"

    def __init__(self, agent: NpuAgent) -> None:
        self._agent = agent
        self.cores = agent.core + 1
        self.memory: Any = agent.memory

    @property
    def cycle(self) -> int:
        """Cycles since the agent was made."""
        return self._agent.cycle

    def read32(self, core: int, offset: int) -> int:
        """Read a register; `BusError` on an error response."""
        return resume(self._only(1 << core).host.read)(offset)

    def write32(self, core: int, offset: int, value: int) -> None:
        """Write a register; `BusError` on an error response."""
        resume(self._only(1 << core).host.write)(offset, value)

    def run_until_irq(self, core_mask: int, max_cycles: int) -> int:
        """Run until the interrupt line is high; return 0 if `max_cycles` have passed without it.

        Raises
        ------
        DiagnosticFound
            with the agent's `on_diagnostic` "stop".
        """
        return 1 << self._agent.core if resume(self._only(core_mask).poll_irq)(max_cycles) else 0

    def reset(self, core_mask: int) -> None:
        """Reset the core."""
        if core_mask >> self._agent.core & 1:
            resume(self._agent.reset)()

    def block_state(self, core: int) -> str:
        """Return lines about the running blocks and what they wait for."""
        return resume(self._only(1 << core).block_state)()

    def _only(self, core_mask: int) -> NpuAgent:
        if not core_mask >> self._agent.core & 1:
            raise ValueError(f"core mask {core_mask:#x}: there is only core {self._agent.core}")
        return self._agent


class _RamMemory:
    """cocotbext-axi's `AxiRam` with the interface of the other memory; completely mapped from 0 on."""

    def __init__(self, ram: Any, size: int) -> None:
        self._ram, self.ranges = ram, {0: size}

    def map(self, iova: int, size: int) -> None:
        raise ValueError(f"{iova:#x} lies outside the {self.ranges[0]:#x} bytes of AxiRam")

    def read(self, iova: int, size: int) -> bytes:
        return self._ram.read(iova, size)

    def write(self, iova: int, data: Any) -> None:
        self._ram.write(iova, bytes(data))

    def view(self, iova: int, size: int) -> Any:
        return np.frombuffer(self.read(iova, size), np.uint8)
