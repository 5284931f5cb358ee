"""An engine: compiled cores, DRAM and bus drivers behind the protocol of `protocol.py`."""

from __future__ import annotations

import ctypes as ct
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rkcosim.base import progress
from rkcosim.engines import diagnostics as words
from rkcosim.engines import library as lib
from rkcosim.engines import waits
from rkcosim.engines.block_counters import BlockCounters, CounterWindow, read_all
from rkcosim.engines.diagnostics import Diagnostic
from rkcosim.engines.events import GAP, LIMIT, Recording
from rkcosim.engines.library import DramConfig
from rkcosim.engines.protocol import (
    AssertionFailed,
    BusError,
    DiagnosticError,
    EngineError,
    WaveformError,
    described,
    require,
)
from rkcosim.engines.records import EVENT_NAMES, CoreCounters, core_counters, open_bursts
from rkcosim.engines.snapshots.state import Snapshots
from rkcosim.engines.submissions import MAX_CYCLES, CoreWork, Submission, Submissions, T
from rkcosim.engines.system import Source, System
from rkcosim.engines.traces.engine import EngineTrace
from rkcosim.engines.traces.writing import TraceResult
from rkcosim.spec.interrupts import masked
from rkcosim.waves.events import EventLog
from rkcosim.waves.spec import TraceSpec

ACCESS_CYCLES = 1 << 20
"""Maximum number of cycles of one register access; a write may wait for its register group."""

IDLE_AFTER = 64
"""Number of cycles after an access within which a core that has nothing left to do reports idle."""

KINDS_SHOWN = 3
"""Maximum number of kinds of diagnostics, and of faults, in the text of a core's state."""

_CHUNK = 1 << 22  # maximum number of cycles per call into the library, so that Ctrl-C is handled

_ENDS = {lib.RUN_IRQ: "irq", lib.RUN_TASK: "task", lib.RUN_DIAGNOSTIC: "diagnostic"}
"""What ends `SocEngine.run_to` before its cycle."""


class SocEngine(System):
    """Up to three cores with memory and bus drivers; see `rkcosim.engines.protocol.Engine`.

    Parameters
    ----------
    name, cell : what the engine is, for reports.
    source : where the cores come from.
    cores : number of cores, 1..3.
    dram : memory timing.
    on_diagnostic : "stop" or "go on".
    traced : load the library that can write waveforms from the start.
    threads : threads that simulate busy cores in parallel, 1..3; None: one per processor, as long as that is
        faster.
    options : names of interpretations of the hardware (spec/regs/options.py); None: those of the environment.
    """

    def __init__(
        self,
        name: str,
        cell: str,
        source: Source,
        *,
        cores: int = 3,
        dram: DramConfig | None = None,
        on_diagnostic: str = "stop",
        traced: bool = False,
        threads: int | None = None,
        options: Iterable[str] | None = None,
    ) -> None:
        super().__init__(name, cell, source, cores, dram, threads, options)
        self.on_diagnostic = on_diagnostic
        self._chunks = progress.Chunks(_CHUNK)
        self.tracing = EngineTrace(self, self._forget_files)
        self.recording = Recording(self, self.tracing)
        self.snapshots = Snapshots(self, self.recording, self.tracing)
        self._submissions = Submissions(self)
        self.remember_host, self.order = self.snapshots.remember_host, self.snapshots.order
        self.save, self.restore, self.save_at = (
            self.snapshots.save,
            self.snapshots.restore,
            self.snapshots.save_at,
        )
        try:
            self.load(traced)
        except BaseException:
            self.unload()
            self.memory.close()
            raise

    # The device protocol

    def read32(self, core: int, offset: int) -> int:
        """Read a register by a bus transaction, which takes cycles.

        Raises
        ------
        BusError
            on an error response, or if there is none within `ACCESS_CYCLES`; names the register.
        DiagnosticError
            with `on_diagnostic` "stop".
        """
        self._check_access(core, offset)
        value = ct.c_uint32()
        with self._in_library:
            result = self.lib.rk_read(self.opened(), core, offset, ct.byref(value), ACCESS_CYCLES)
        self._after_access("read", core, offset, result)
        return value.value

    def write32(self, core: int, offset: int, value: int) -> None:
        """Write a register by a bus transaction; raises as `read32`."""
        self._check_access(core, offset)
        if not 0 <= value < 1 << 32:
            raise ValueError(f"write32: {value:#x} does not fit 32 bits")
        self.recording.kick(core, offset, value)
        with self._in_library:
            result = self.lib.rk_write(self.opened(), core, offset, value, ACCESS_CYCLES)
        self._after_access("write", core, offset, result)

    def run(self, cycles: int) -> None:
        """Simulate `cycles` cycles."""
        self._run(cycles, 0)

    def run_until_irq(self, core_mask: int, max_cycles: int) -> int:
        """Run until the interrupt line of a core in the mask is high.

        Returns
        -------
        int
            the lines that are high, within the mask; 0 if `max_cycles` have passed without one.
        """
        self._run(max_cycles, core_mask)
        return self.irq & core_mask

    def run_to(
        self, cycle: int, core_mask: int = 0, *, tasks: bool = False, diagnostics: bool = False
    ) -> str:
        """Run to a cycle, or to the first event of the given kinds before it.

        Parameters
        ----------
        core_mask : end when the interrupt line of one of these cores is high.
        tasks : end after each start and end of a task.
        diagnostics : end after each new diagnostic.

        Returns
        -------
        "irq", "task", "diagnostic", or "" in the cycle.
        """
        self.touched = True
        self.lib.rk_stop_at_tasks(self.opened(), int(tasks))
        try:
            while self.cycle < cycle:
                with self._in_library:
                    result = self.lib.rk_run(
                        self.opened(), min(cycle, self.cycle + _CHUNK), core_mask, int(diagnostics)
                    )
                self.raise_failure()
                if result == lib.RUN_MODEL_ERROR:
                    raise self._failure()
                if result != lib.RUN_BOUND:
                    return _ENDS[result]
            return ""
        finally:
            self.lib.rk_stop_at_tasks(self.opened(), 0)

    def submit(
        self, work: CoreWork[T], core: int | None = None, max_cycles: int = MAX_CYCLES
    ) -> Submission[T]:
        """Start a `Stream` or a `TaskList` on a core, or queue it there; see `Submissions.submit`."""
        self.opened()
        return self._submissions.submit(work, core, max_cycles)

    # Results

    def outputs(self, core: int) -> lib.CoreOut:
        """Return the outputs of a core in the present cycle."""
        pins_in, pins_out = lib.CoreIn(), lib.CoreOut()
        self.lib.rk_pins(self.opened(), self.core_number(core), ct.byref(pins_in), ct.byref(pins_out))
        return pins_out

    def core_diagnostics(self, core: int) -> list[Diagnostic]:
        """Return the diagnostics of one core, oldest first."""
        return [one for one in self.diagnostics() if one.core == core]

    def counters(self, core: int) -> CoreCounters:
        """Return the counters of a core since the engine was opened."""
        raw = self.raw_counters(core)
        return core_counters(raw, None, raw.read_requests, raw.write_requests, raw.cycles_evaluated)

    def probes(self, first: int = 0) -> list[Any]:
        """Return the records of the probed build from number `first` on (`ProbeEvent` of pins.h)."""
        return list(self.fetch("rk_probes", lib.ProbeEventC, first))

    def block_state(self, core: int) -> str:
        """Return lines about the running blocks, what they wait for, and the diagnostics.

        Reads each block's S_STATUS by a bus transaction, so it takes cycles. It is called when something went
        wrong, so it counts as an error for a waveform.
        """
        self.mark_error()
        lines: list[str] = []
        at_work: set[str] = set()
        for block in words.registers().blocks.values():
            if "S_STATUS" not in block:
                continue
            status = block["S_STATUS"]
            try:
                value = self.read32(core, status.offset)
            except BusError as error:
                lines.append(f"{block.name}: {error}")
                continue
            fields = status.decode(value)
            busy = [
                f"group {name[-1]} {status.fields[name].label(v) or v}" for name, v in fields.items() if v
            ]
            if busy:
                at_work.add(block.name)
                lines.append(f"{block.name}: {', '.join(busy)}")
        with self.snapshots.one_run():
            self.lib.rk_run(self.opened(), self.cycle + IDLE_AFTER, 0, 0)
        bursts = (ct.c_uint32 * (lib.READ_IDS + lib.WRITE_IDS))()
        self.lib.rk_open_bursts(self.opened(), self.core_number(core), bursts)
        lines += [f"memory: {count} open {what}" for what, count in open_bursts(bursts).items()]
        lines += self._co_work_waits(core)
        pins_in, pins_out = lib.CoreIn(), lib.CoreOut()
        self.lib.rk_pins(self.opened(), core, ct.byref(pins_in), ct.byref(pins_out))
        stalls = [n for bit, n in enumerate(EVENT_NAMES) if pins_out.events >> bit & 1]
        lines.append(
            f"task {pins_out.task_index}, interrupt {'high' if pins_out.irq else 'low'}, "
            f"{'idle' if pins_out.idle else 'not idle'}{', now: ' + ', '.join(stalls) if stalls else ''}"
        )
        if not at_work:
            lines += self._masked(core)
        reading, idle = any(bursts[: lib.READ_IDS]), bool(pins_out.idle)
        lines += waits.explain(at_work, stalls, reading, idle, self._sources(core, at_work))
        since = self._kick_since(core)
        found = self._complaints.kinds(core=core, cycle=since)
        lines += [f"diagnostic: {kind}" for kind in found.diagnostics[:KINDS_SHOWN]]
        lines += [f"fault: {kind}" for kind in found.faults[:KINDS_SHOWN]]
        return "\n".join(lines)

    def _co_work_waits(self, core: int) -> list[str]:
        """Return a line about the cores for which the PC waits because they compute one layer together."""
        pins = []
        for number in range(self.cores):
            one = lib.CoreIn(), lib.CoreOut()
            self.lib.rk_pins(self.opened(), number, ct.byref(one[0]), ct.byref(one[1]))
            pins.append(one)
        return waits.co_workers(core, [pin_out.step_report for _, pin_out in pins], pins[core][0].step_answer)

    def _sources(self, core: int, at_work: set[str]) -> dict[str, str]:
        """Return the blocks from which DPU and PPU take their data, where that can be read."""
        found = {}
        for name in sorted(waits.SOURCES.keys() & at_work):
            block = words.registers()[name]
            register, field, blocks = waits.SOURCES[name]
            try:
                pointer = self.read32(core, block["S_POINTER"].offset)
                if waits.executing(name, pointer):
                    value = self.read32(core, block[register].offset)
                    found[name] = blocks[block[register].decode(value)[field]]
            except BusError:
                continue
        return found

    def _masked(self, core: int) -> list[str]:
        """Return lines about the events that the interrupt mask suppresses."""
        pc = words.registers()["PC"]
        try:
            raw, mask, status, control = (
                self.read32(core, pc[name].offset)
                for name in ("INTERRUPT_RAW_STATUS", "INTERRUPT_MASK", "TASK_STATUS", "TASK_CON")
            )
        except BusError as error:
            return [f"PC: {error}"]
        ended = pc["TASK_STATUS"].decode(status)["TASK_COUNTER"]
        return masked(raw, mask, ended, pc["TASK_CON"].decode(control)["TASK_NUMBER"])

    def _kick_since(self, core: int) -> int:
        """Return the cycle from which on all belongs to the core's last kick: the end of the one before."""
        records = [record for record in self.task_log() if record.core == core]
        while records and records.pop().task != 0:
            pass
        end = records[-1].end if records else None
        return max(self.reset_at[core], end or 0)

    # Counters, events, waveforms, snapshots

    def counter_window(self, core: int) -> CounterWindow:
        """Return the registers of a core's performance counters (docs/counters.md)."""
        return CounterWindow(self, core)

    def block_counters(self, core: int) -> BlockCounters:
        """Return the values of a core's performance counters; raises ValueError for an unknown core."""
        return read_all(self, core)

    def trace(self, what: TraceSpec | str | Path, start: int = 0, stop: int | None = None) -> None:
        """Write a waveform (see `rkcosim.engines.traces.engine.EngineTrace.trace`).

        Raises
        ------
        WaveformError
            also if the engine writes none (`rkcosim.engines.protocol.Capabilities`).
        """
        require(self.name, "can_trace", "a waveform", WaveformError)
        self.tracing.trace(what, start, stop)

    def trace_bytes(self) -> int | None:
        """Return the size of the waveform so far, None without one."""
        found = self.tracing.result()
        return found.bytes if found else None

    def trace_result(self) -> TraceResult | None:
        """Return the state of the waveform, None without one; it is final after `close`."""
        return self.tracing.result()

    def watch_memory(self, address: int) -> None:
        """Record from now on when the cores write the byte at `address` (see `memory_writes`)."""
        self.lib.rk_watch_memory(self.opened(), address)

    def memory_writes(self) -> list[int]:
        """Return the cycles in which the byte of `watch_memory` was written, oldest first."""
        return list(self.fetch("rk_memory_writes", ct.c_uint64))

    def mark_error(self) -> None:
        """Report an error that only the host sees, as a time-out, to waveforms that wait for errors."""
        self.opened()
        self.tracing.error()

    def record(
        self,
        kinds: Iterable[str] | None = None,
        *,
        first: int = 0,
        last: int | None = None,
        limit: int = LIMIT,
        gap: int = GAP,
    ) -> None:
        """Record events from now on (see `rkcosim.engines.events.Recording.start`)."""
        self.recording.start(kinds, first=first, last=last, limit=limit, gap=gap)

    def annotate(self, core: int, layers: Sequence[tuple[int, int, str]]) -> None:
        """Assign tasks of a core's next job to layers: (first task, number of tasks, name)."""
        self.tracing.annotate(core, layers)
        self.recording.annotate(core, layers)

    def events(self) -> EventLog:
        """Return the events recorded so far; raises EngineError if `record` was never called."""
        return self.recording.log()

    def close(self) -> None:
        """End the waveform, write the events, and free the cores and the address space of the memory.

        Arrays returned by `memory.view` stay valid and keep that address space until they are freed.  A run
        in another thread ends with EngineError.
        """
        if self._handle is not None:
            self._submissions.close()
            with self._in_library:
                try:
                    self.recording.finish()
                finally:
                    self.tracing.end()
                    self.unload()
                    self.memory.close()
                    self.source.close()

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._handle is None

    def _forget_files(self) -> None:
        self.recording.files = []

    def __enter__(self) -> Self:
        return self

    def __repr__(self) -> str:
        return described(self, self.closed)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None:
            self.close()

    # Internals

    def _check_access(self, core: int, offset: int) -> None:
        self.opened()
        self.core_number(core)
        if not 0 <= offset < 1 << 16 or offset % 4:
            raise ValueError(f"register offset must be a multiple of 4 below 0x10000, not {offset:#x}")
        self.touched = True

    def _after_access(self, what: str, core: int, offset: int, result: int) -> None:
        self.raise_failure()
        if result == lib.LITE_MODEL_ERROR:
            raise self._failure()
        if result:
            reason = {
                lib.LITE_TIMEOUT: f"no response within {ACCESS_CYCLES} cycles",
                2: "SLVERR",
                3: "DECERR",
            }.get(result, f"response {result}")
            place = f"{words.register_name(offset)} ({offset:#06x})"
            raise BusError(f"{what} of {place} on core {core} at cycle {self.cycle}: {reason}")
        if self.on_diagnostic == "stop" and self.lib.rk_take_diagnostics(self.opened()):
            self._raise_diagnostic()

    def _run(self, cycles: int, mask: int) -> None:
        if cycles < 0:
            raise ValueError(f"cycles must not be negative, not {cycles}")
        self.touched = True
        with self.snapshots.one_run():
            self._run_chunks(cycles, mask)

    def _run_chunks(self, cycles: int, mask: int) -> None:
        end = self.cycle + cycles
        stop = int(self.on_diagnostic == "stop")
        chunks = self._chunks
        while True:
            now, begun = self.cycle, time.perf_counter()
            # Whole windows, so that the result does not depend on where the host interrupts the simulation.
            pause = max(now + chunks.cycles, now + lib.MAX_LOOKAHEAD) // lib.MAX_LOOKAHEAD * lib.MAX_LOOKAHEAD
            with self._in_library:
                result = self.lib.rk_run(self.opened(), min(end, pause), mask, stop)
            self.raise_failure()
            if result == lib.RUN_MODEL_ERROR:
                raise self._failure()
            chunks.took(self.cycle - now, time.perf_counter() - begun)
            progress.tick(self)
            if result == lib.RUN_TASK:
                self.snapshots.at_border()
            if result == lib.RUN_DIAGNOSTIC:
                self._raise_diagnostic()
            if result == lib.RUN_IRQ or self.cycle >= end:
                return

    def _failure(self) -> EngineError:
        text = self.lib.rk_failure(self.opened()).decode()
        if text:
            return AssertionFailed(f"an assertion of the RTL failed in {text}")
        return EngineError(f"the model of a core failed in cycle {self.cycle}")

    def _raise_diagnostic(self) -> None:
        fresh = self.diagnostics(self.reported)
        self.reported += len(fresh)
        if fresh:
            since = self._kick_since(fresh[0].core)
            faults = self._complaints.kinds(core=fresh[0].core, cycle=since).faults
            raise DiagnosticError(fresh, [kind.first for kind in faults[:1]])
