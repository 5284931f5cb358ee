"""An engine: compiled cores, DRAM and bus drivers behind the protocol of `engine.py`."""

from __future__ import annotations

import ctypes as ct
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from cosim import progress
from cosim.engines import diagnostics as words
from cosim.engines import library as lib
from cosim.engines import waits
from cosim.engines.block_counters import CountingEngine
from cosim.engines.diagnostics import Diagnostic, Fault
from cosim.engines.errors import BusError, DiagnosticError, EngineError
from cosim.engines.events import GAP, LIMIT, Recording
from cosim.engines.library import DramConfig
from cosim.engines.memory import PAGE, DeviceMemory
from cosim.engines.records import EVENT_NAMES, CoreCounters, TaskLog, TaskRecord, core_counters
from cosim.engines.snapshots.state import SnapshotEngine
from cosim.engines.threads import thread_count, threads_chosen
from cosim.engines.traces.engine import EngineTrace, TracedEngine
from rtl.regs.events import EVENTS
from rtl.regs.options import chosen_options, options_mask
from waves.events import EventLog

RESET_CYCLES = 16
"""Cycles for which `reset` holds a core's reset."""

ACCESS_CYCLES = 1 << 20
"""Bound of one register access: longer than a write that waits for its register group may take."""

IDLE_AFTER = 64
"""Cycles after an access in which a core with nothing left to do says so."""

_CHUNK = 1 << 22  # cycles per call into the library at most, so that Ctrl-C is heard


@dataclass
class Source:
    """Where the cores of an engine come from.

    Members
    -------
    library : function of `traced` that gives the path of the library.
    step : callback for cores outside the library.
    failure : gives what a callback raised, or None.
    trace : for cores outside the library: starts a waveform (path), before the first cycle.
    close : called when the engine closes.
    identity : function of `traced` that says of which build a snapshot is: variant, geometry, build.
    """

    library: Callable[[bool], Path]
    step: Any = None
    failure: Callable[[], BaseException | None] = lambda: None
    trace: Callable[[str], None] | None = None
    close: Callable[[], None] = lambda: None
    identity: Callable[[bool], Mapping[str, Any]] = lambda traced: {}


class SocEngine(TracedEngine, SnapshotEngine, CountingEngine):
    """Up to three cores with memory and bus drivers; see `cosim.engines.engine.Engine`.

    Parameters
    ----------
    name, cell : what the engine is, for reports.
    source : where the cores come from.
    cores : number of cores, 1..3.
    dram : memory timing.
    on_diagnostic : "stop" or "go on".
    traced : load the library that can write waveforms at once.
    threads : threads that simulate cores at work together, 1..3; None: one a processor, while that is faster.
    options : names of readings of the hardware (rtl/regs/options.py); None: those of the environment.
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
        if not 1 <= cores <= lib.MAX_CORES:
            raise ValueError(f"cores must be 1..{lib.MAX_CORES}, not {cores}")
        self.name, self.cell, self.cores = name, cell, cores
        self.dram = dram if dram is not None else DramConfig()
        self.options = chosen_options(options)
        self.on_diagnostic = on_diagnostic
        self._source = source
        self._step = source.step if source.step is not None else lib.STEP()
        self._handle: int | None = None
        self._reported = 0
        self._reset_at = [0] * cores
        self._may_sleep, self._window = True, 0
        self.threads, self._threads_always = thread_count(threads), threads_chosen(threads)
        self.recording = Recording(self)
        self._chunks = progress.Chunks(_CHUNK)
        self.memory = DeviceMemory(self._mapping_changed)
        raw = name == "cxxrtl"
        self.tracing = EngineTrace(lambda: self._lib, self._opened, cores, EVENT_NAMES[: len(EVENTS)], raw)
        self._prepare_snapshots(lambda: source.identity(self._traced))
        self._open(traced)

    def _open(self, traced: bool) -> None:
        self._lib: Any = lib.load(self._source.library(traced))
        self._traced = traced
        config = lib.DramConfigC.of(self.dram)
        self._handle = self._lib.rk_create(self.cores, ct.byref(config), self.memory.address, self._step)
        for iova, size in self.memory.ranges.items():
            self._mapping_changed(iova // PAGE, size // PAGE, True)
        self._lib.rk_options(self._handle, options_mask(self.options))
        self._lib.rk_may_sleep(self._handle, int(self._may_sleep))
        self._lib.rk_threads(self._handle, self.threads, int(self._threads_always))
        self._lib.rk_window(self._handle, self._window)
        if self._counting:
            self.count_blocks()
        self.reset((1 << self.cores) - 1)
        self._touched = False
        self.recording.arm()
        self._tasks = TaskLog()
        self._go_on_logging()

    # The device protocol

    def read32(self, core: int, offset: int) -> int:
        """Read a register by a bus transaction, which takes its cycles.

        Raises
        ------
        BusError
            on an error response, or none within `ACCESS_CYCLES`; names the register.
        DiagnosticError
            with `on_diagnostic` "stop".
        """
        self._check_access(core, offset)
        value = ct.c_uint32()
        result = self._lib.rk_read(self._handle, core, offset, ct.byref(value), ACCESS_CYCLES)
        self._after_access("read", core, offset, result)
        return value.value

    def write32(self, core: int, offset: int, value: int) -> None:
        """Write a register by a bus transaction; raises as `read32`."""
        self._check_access(core, offset)
        if not 0 <= value < 1 << 32:
            raise ValueError(f"write32: {value:#x} does not fit 32 bits")
        self.recording.kick(core, offset, value)
        result = self._lib.rk_write(self._handle, core, offset, value, ACCESS_CYCLES)
        self._after_access("write", core, offset, result)

    def run(self, cycles: int) -> None:
        """Let `cycles` cycles pass."""
        self._run(cycles, 0)

    def run_until_irq(self, core_mask: int, max_cycles: int) -> int:
        """Run until a core of the mask holds its interrupt line high.

        Returns
        -------
        int
            the lines that are high, within the mask; 0 when `max_cycles` have passed without one.
        """
        self._run(max_cycles, core_mask)
        return self.irq & core_mask

    @property
    def irq(self) -> int:
        """Interrupt lines, a bit for each core."""
        return self._lib.rk_irq(self._opened())

    @property
    def cycle(self) -> int:
        """Cycles since the engine was opened, the first reset included."""
        return self._lib.rk_cycle(self._opened())

    def reset(self, core_mask: int) -> None:
        """Hold the cores' reset for `RESET_CYCLES`; their requests under way are dropped."""
        self._touched = True
        for core in range(self.cores):
            if core_mask >> core & 1:
                self._reset_at[core] = self.cycle
        self._lib.rk_reset(self._opened(), core_mask, RESET_CYCLES)
        self._raise_failure()

    # What happened

    def counters(self, core: int) -> CoreCounters:
        """Counters of a core since the engine was opened."""
        raw = self._raw_counters(core)
        return core_counters(raw, None, raw.read_requests, raw.write_requests, raw.cycles_evaluated)

    def _raw_counters(self, core: int) -> lib.CountersC:
        raw = lib.CountersC()
        self._lib.rk_counters(self._opened(), self._core(core), ct.byref(raw))
        return raw

    def task_log(self) -> list[TaskRecord]:
        """Tasks in the order in which they began."""
        return self._tasks.read(
            self._fetch("rk_tasks", lib.TaskEventC, self._tasks.events), self._raw_counters
        )

    def diagnostics(self, first: int = 0) -> list[Diagnostic]:
        """Everything the cores found suspicious from number `first` on, oldest first."""
        raw = list(self._fetch("rk_diagnostics", lib.DiagnosticEventC, first))
        log, faults = (self.task_log(), self.faults()) if raw else ([], [])
        return [
            words.make_diagnostic(e.cycle, e.core, e.code, e.block, e.reg, e.value, log, faults) for e in raw
        ]

    def faults(self) -> list[Fault]:
        """Every access that memory refused, oldest first."""
        raw = list(self._fetch("rk_faults", lib.FaultEventC))
        log = self.task_log() if raw else []
        return [words.make_fault(e.cycle, e.core, e.client, e.address, e.kind, log) for e in raw]

    def probes(self, first: int = 0) -> list[Any]:
        """What the probed build has recorded, from number `first` on (`ProbeEvent` of pins.h)."""
        return list(self._fetch("rk_probes", lib.ProbeEventC, first))

    def block_state(self, core: int) -> str:
        """Lines that say which blocks are at work, what they wait for, and what was found suspicious.

        Reads each block's S_STATUS by a bus transaction, so it takes cycles.  Whoever asks has found
        something wrong: for a waveform this is an error.
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
        with self._one_run():
            self._lib.rk_run(self._opened(), self.cycle + IDLE_AFTER, 0, 0)
        bursts = (ct.c_uint32 * (lib.READ_IDS + lib.WRITE_IDS))()
        self._lib.rk_open_bursts(self._opened(), self._core(core), bursts)
        for number, count in enumerate(bursts):
            if count:
                write = number >= lib.READ_IDS
                client = words.client_name(number - lib.READ_IDS if write else number, write=write)
                lines.append(f"memory: {count} {'writes' if write else 'reads'} of {client} under way")
        pins_in, pins_out = lib.CoreIn(), lib.CoreOut()
        self._lib.rk_pins(self._opened(), core, ct.byref(pins_in), ct.byref(pins_out))
        stalls = [n for bit, n in enumerate(EVENT_NAMES) if pins_out.events >> bit & 1]
        lines.append(
            f"task {pins_out.task_index}, interrupt {'high' if pins_out.irq else 'low'}, "
            f"{'idle' if pins_out.idle else 'not idle'}{', now: ' + ', '.join(stalls) if stalls else ''}"
        )
        lines += waits.explain(at_work, stalls, any(bursts[: lib.READ_IDS]), bool(pins_out.idle))
        since = self._kick_since(core)
        found = [d for d in self.diagnostics() if d.core == core and d.cycle >= since]
        lines += [f"diagnostic: {diagnostic}" for diagnostic in found[:3]]
        faults = [fault for fault in self.faults() if fault.core == core and fault.cycle >= since]
        lines += [f"fault: {fault}" for fault in faults[:3]]
        return "\n".join(lines)

    def _kick_since(self, core: int) -> int:
        """Cycle from which on everything belongs to the core's last kick: the end of the one before."""
        records = [record for record in self.task_log() if record.core == core]
        while records and records.pop().task != 0:
            pass
        end = records[-1].end if records else None
        return max(self._reset_at[core], end or 0)

    def may_sleep(self, on: bool) -> None:
        """Whether idle cores may go without evaluation; cycles are the same either way (a test knob)."""
        self._may_sleep = on
        self._lib.rk_may_sleep(self._opened(), int(on))

    def window(self, cycles: int) -> None:
        """Most cycles that cores awake together are simulated apart; 0: what the memory's latency allows.

        Cycles, bytes and logs are the same either way (a test knob).
        """
        self._window = cycles
        self._lib.rk_window(self._opened(), cycles)

    # Events

    def record(
        self,
        kinds: Iterable[str] | None = None,
        *,
        first: int = 0,
        last: int | None = None,
        limit: int = LIMIT,
        gap: int = GAP,
    ) -> None:
        """Record events from now on (see `cosim.engines.events.Recording.start`)."""
        self.recording.start(kinds, first=first, last=last, limit=limit, gap=gap)

    def annotate(self, core: int, layers: Sequence[tuple[int, int, str]]) -> None:
        """Say which tasks of a core's next job are which layer's: (first task, number of tasks, name)."""
        super().annotate(core, layers)
        self.recording.annotate(core, layers)

    def events(self) -> EventLog:
        """What has been recorded so far; raises EngineError if `record` was never called."""
        return self.recording.log()

    def close(self) -> None:
        """End the waveform, write the events, and free the cores; memory views stay valid."""
        if self._handle is not None:
            try:
                self.recording.finish()
            finally:
                self._close_handle()
                self._source.close()

    def _close_handle(self) -> None:
        if self._handle is not None:
            self.tracing.end()
            self._lib.rk_destroy(self._handle)
            self._handle = None

    def __enter__(self) -> SocEngine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None:
            self.close()

    # Inside

    def _opened(self) -> int:
        if self._handle is None:
            raise EngineError("the engine is closed")
        return self._handle

    def _core(self, core: int) -> int:
        if not 0 <= core < self.cores:
            raise ValueError(f"core must be 0..{self.cores - 1}, not {core}")
        return core

    def _check_access(self, core: int, offset: int) -> None:
        self._opened()
        self._core(core)
        if not 0 <= offset < 1 << 16 or offset % 4:
            raise ValueError(f"register offset must be a multiple of 4 below 0x10000, not {offset:#x}")
        self._touched = True

    def _after_access(self, what: str, core: int, offset: int, result: int) -> None:
        self._raise_failure()
        if result:
            reason = {
                lib.LITE_TIMEOUT: f"no response within {ACCESS_CYCLES} cycles",
                2: "SLVERR",
                3: "DECERR",
            }.get(result, f"response {result}")
            place = f"{words.register_name(offset)} ({offset:#06x})"
            raise BusError(f"{what} of {place} on core {core} at cycle {self.cycle}: {reason}")
        if self.on_diagnostic == "stop" and self._lib.rk_take_diagnostics(self._opened()):
            self._raise_diagnostic()

    def _run(self, cycles: int, mask: int) -> None:
        if cycles < 0:
            raise ValueError(f"cycles must not be negative, not {cycles}")
        self._touched = True
        with self._one_run():
            self._run_chunks(cycles, mask)

    def _run_chunks(self, cycles: int, mask: int) -> None:
        end = self.cycle + cycles
        stop = int(self.on_diagnostic == "stop")
        chunks = self._chunks
        while True:
            now, begun = self.cycle, time.perf_counter()
            # Whole windows, so that where the host looks up is nothing that the simulation depends on.
            pause = max(now + chunks.cycles, now + lib.MAX_LOOKAHEAD) // lib.MAX_LOOKAHEAD * lib.MAX_LOOKAHEAD
            result = self._lib.rk_run(self._opened(), min(end, pause), mask, stop)
            self._raise_failure()
            if result == lib.RUN_MODEL_ERROR:
                raise EngineError(f"the model of a core failed at cycle {self.cycle}")
            chunks.took(self.cycle - now, time.perf_counter() - begun)
            progress.tick(self)
            if result == lib.RUN_TASK:
                self._at_border()
            if result == lib.RUN_DIAGNOSTIC:
                self._raise_diagnostic()
            if result == lib.RUN_IRQ or self.cycle >= end:
                return

    def _raise_failure(self) -> None:
        error = self._source.failure()
        if error is not None:
            raise error

    def _raise_diagnostic(self) -> None:
        found = self.diagnostics()
        fresh, self._reported = found[self._reported :], len(found)
        if fresh:
            since = self._kick_since(fresh[0].core)
            raise DiagnosticError(fresh, [fault for fault in self.faults() if fault.cycle >= since])

    def _mapping_changed(self, page: int, pages: int, mapped: bool) -> None:
        if self._handle is not None:
            self._lib.rk_map(self._handle, page, pages, int(mapped))

    def _fetch(self, function: str, struct: type[ct.Structure], first: int = 0) -> Iterable[Any]:
        """Events of a log from number `first` on."""
        call = getattr(self._lib, function)
        while True:
            buffer = (struct * 256)()
            count = call(self._opened(), first, buffer, 256)
            yield from buffer[:count]
            if count < 256:
                return
            first += count
