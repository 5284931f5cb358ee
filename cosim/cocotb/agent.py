"""`NpuAgent`: everything around a core under test, bound in one line."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import cocotb
import numpy as np
from cocotb.task import bridge
from cocotb.triggers import First, RisingEdge, Timer, ValueChange

from cosim.cocotb.host import AxiHost, EngineHost, Host
from cosim.cocotb.memory import DramSlave
from cosim.cocotb.pins import Clocking, high, pulses
from cosim.cocotb.values import (
    DiagnosticFound,
    InterruptTimeout,
    Log,
    RegisterValue,
    RunResult,
    TaskSpan,
    event_names,
    find_register,
    words_stream,
)
from cosim.crosscheck.kick import kick_writes
from cosim.engines import waits
from cosim.engines.diagnostics import Diagnostic, make_diagnostic
from cosim.engines.library import DramConfig
from cosim.engines.memory import PAGE
from cosim.engines.soc import EVENT_NAMES, RESET_CYCLES
from cosim.streams.stream import Stream
from rtl.regs import registers
from rtl.regs.options import chosen_options, options_mask
from sw.regcmd import blocks_of_mask

IRQ_CYCLES = 100_000
"""Bound of a wait for the interrupt unless another one is given."""

INPUTS = """rst s_axil_awvalid s_axil_awaddr s_axil_awprot s_axil_wvalid s_axil_wdata s_axil_wstrb
s_axil_bready s_axil_arvalid s_axil_araddr s_axil_arprot s_axil_rready
options m_axi_rid m_axi_rdata m_axi_rresp m_axi_rlast m_axi_bid m_axi_bresp"""
"""What is 0 until somebody drives it: otherwise X on Icarus."""

HOSTS: dict[str, Any] = {"cocotbext": AxiHost, "engine": EngineHost}


_Result = TypeVar("_Result")


class NpuAgent:
    """Clock, reset, register access, memory and interrupt of one core.

    Parameters
    ----------
    dut
        handle of a core (`rtl.core.NpuCore` in Verilog).
    dram
        timing of the memory; the engines' default if None.
    host
        "cocotbext" (cocotbext-axi's AXI-Lite master, as `agent.host.master`) or "engine" (every access
        takes the cycles that it takes on the compiled engines, so whole runs agree cycle for cycle).
    ram
        None for the memory of `cosim.cocotb.memory`, or a number of bytes for cocotbext-axi's `AxiRam`
        from address 0 on (as `agent.ram`; simpler, with other timing, and all of it is mapped).
    core
        number of the core.
    period_ps
        of the clock.
    on_diagnostic
        "stop" (`wait_irq` and `run_stream` raise `DiagnosticFound`) or "go on" (only `log` has them).

    Members
    -------
    memory : `map`, `read`, `write`, `view` of the device's memory.
    dram : the memory's AXI side: faults, bytes by client, open bursts.
    log : tasks and diagnostics so far.
    options : readings of the hardware, from RKCOSIM_OPTIONS (rtl/regs/options.py).
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
        self.host: Host = HOSTS[host](dut, self.clocking)
        self.dram: DramSlave | None = None
        if ram is None:
            self.dram = DramSlave(dut, self.clocking, dram)
            self.memory: Any = self.dram.memory
        else:
            from cocotbext.axi import AxiBus, AxiRam

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
        """Let `count` cycles pass."""
        await self.clocking.edges(count)

    async def reset(self, cycles: int = RESET_CYCLES) -> None:
        """Hold the core's reset; what is under way on its buses is dropped."""
        await RisingEdge(self.dut.clk)
        self.dut.rst.value = 1
        if self.dram is not None:
            self.dram.reset()
        for call in self.on_reset:
            call()
        await self.cycles(cycles)
        self._reported = len(self.log.diagnostics)  # what was found before it is over
        self.dut.rst.value = 0
        if self.dram is not None:
            self.dram.reset()

    # Registers

    async def write(self, register: str | int, value: int | None = None, **fields: int | str) -> None:
        """Write a register: by name or offset, a value or its fields (the others are 0).

        Raises
        ------
        KeyError, ValueError
            for a register, field or value that does not exist.
        BusError
            when the core answers with an error.
        """
        offset, item = find_register(register)
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
        """Read a register by name or offset; the fields are `value["FIELD"]`.  Raises as `write`."""
        offset, _ = find_register(register)
        return RegisterValue(offset, await self.host.read(offset))

    # Streams

    def load(self, stream: Stream) -> None:
        """Map and fill the memory of a stream (pages that are mapped already stay)."""
        have = {n for at, size in self.memory.ranges.items() for n in range(at // PAGE, (at + size) // PAGE)}
        wanted: set[int] = set()
        for region in stream.regions:
            last = (region.address + max(region.data.size, 1) - 1) // PAGE
            wanted |= set(range(region.address // PAGE, last + 1))
        runs: list[list[int]] = []
        for page in sorted(wanted - have):
            if runs and runs[-1][1] == page:
                runs[-1][1] = page + 1
            else:
                runs.append([page, page + 1])
        for first, end in runs:
            self.memory.map(first * PAGE, (end - first) * PAGE)
        for region in stream.regions:
            _write_pages(self.memory, region.address, region.data.tobytes())

    async def run_stream(
        self, stream: Stream | Iterable[int], bound_cycles: int = IRQ_CYCLES, *, load: bool = True
    ) -> RunResult:
        """Start a stream, or the words of one task, wait for its end and clear the interrupt.

        Parameters
        ----------
        stream
            a `cosim.streams.stream.Stream`, or words, which are placed at `COMMANDS`.
        load
            put the stream's regions into memory first.

        Raises
        ------
        InterruptTimeout
            when it does not end within `bound_cycles`.
        DiagnosticFound
            when the core found something suspicious (see `on_diagnostic`).
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
            the cycle in which it is.

        Raises
        ------
        InterruptTimeout
            after `bound_cycles`; says what was waited for, which blocks are at work and what they wait for.
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
        """Wait as `wait_irq` does, and say whether the line is high."""
        self._raise_diagnostics()
        if not high(self.dut.irq):
            bound = Timer(self.clocking.time_ps(max(1, bound_cycles)), "ps")
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
        """Run blocking code on this core: a function of a device as `sw.driver.Driver` takes it.

        The rest of the simulation goes on meanwhile.  What the function raises is raised here.
        """
        from cosim.cocotb.device import AgentDevice

        device = AgentDevice(self)
        return await bridge(lambda: function(device))()

    async def block_state(self) -> str:
        """Lines that say which blocks are at work, what they wait for, and what was found suspicious."""
        busy = blocks_of_mask(int(self.dut.busy_blocks.value))
        lines = [f"busy_blocks: {', '.join(busy) or 'none'}"]
        at_work = set()
        for block in registers().blocks.values():
            if "S_STATUS" not in block:
                continue
            value = await self.read(f"{block.name}.S_STATUS")
            shown = [
                f"group {name[-1]} {block['S_STATUS'].fields[name].label(v) or v}"
                for name, v in value.fields.items()
                if v
            ]
            if shown:
                at_work.add(block.name)
                lines.append(f"{block.name}.S_STATUS: {', '.join(shown)}")
        raw = await self.read("PC.INTERRUPT_RAW_STATUS")
        mask = await self.read("PC.INTERRUPT_MASK")
        lines.append(f"interrupt events: raised {event_names(raw)}, mask {event_names(mask)}")
        open_bursts = self.dram.open_bursts if self.dram is not None else {}
        lines += [f"memory: {count} {what} under way" for what, count in open_bursts.items()]
        events = int(self.dut.events.value)
        stalls = [name for bit, name in enumerate(EVENT_NAMES) if events >> bit & 1]
        now = f", now: {', '.join(stalls)}" if stalls else ""
        lines.append(
            f"task {int(self.dut.task_index.value)}, {'idle' if high(self.dut.idle) else 'not idle'}{now}"
        )
        reading = any("reads" in what for what in open_bursts)
        lines += waits.explain(at_work, stalls, reading, high(self.dut.idle))
        lines += [f"diagnostic: {item}" for item in self.log.diagnostics[:3]]
        faults = self.dram.faults if self.dram is not None else []
        return "\n".join([*lines, *(f"fault: {item}" for item in faults[:3])])

    # What is seen all the time

    def _raise_diagnostics(self) -> None:
        fresh = self.log.diagnostics[self._reported :]
        self._reported = len(self.log.diagnostics)
        if fresh and self.on_diagnostic == "stop":
            raise DiagnosticFound(fresh)

    async def _watch_events(self) -> None:
        start, done = (1 << EVENT_NAMES.index(name) for name in ("task_start", "task_done"))
        async for value in event_samples(self.dut):
            if value & start:
                task = int(self.dut.task_index.value)
                self.log.tasks.append(TaskSpan(self.core, task, self.cycle))
            if value & done and self.log.tasks:
                last = self.log.tasks[-1]
                self.log.tasks[-1] = TaskSpan(self.core, last.task, last.start, self.cycle)

    async def _watch_diagnostics(self) -> None:
        async for _ in pulses(self.dut.diag_valid, self.dut.clk):
            self.log.diagnostics.append(self.diagnostic())

    def diagnostic(self) -> Diagnostic:
        """What is on the diagnostic port in this cycle (meaningful while `diag_valid` is high)."""
        code, block, register, value = (
            int(getattr(self.dut, f"diag_{name}").value) for name in ("code", "block", "register", "value")
        )
        faults = self.dram.faults if self.dram is not None else []
        return make_diagnostic(self.cycle, self.core, code, block, register, value, self.log.tasks, faults)


async def event_samples(dut: Any) -> Any:
    """The value of the core's `events` at every rising edge at which it is not 0."""
    change, edge = ValueChange(dut.events), RisingEdge(dut.clk)
    while True:
        await change
        await edge
        while value := int(dut.events.value):
            yield value
            await edge


def _write_pages(memory: Any, address: int, data: bytes) -> None:
    """Write bytes across mappings."""
    at = 0
    while at < len(data):
        size = min(PAGE - (address + at) % PAGE, len(data) - at)
        memory.write(address + at, data[at : at + size])
        at += size


class _RamMemory:
    """cocotbext-axi's `AxiRam` as the other memory: mapped from 0 on, all of it."""

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
