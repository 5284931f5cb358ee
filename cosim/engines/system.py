"""The system behind an engine: cores of a built library with memory and bus, its counters and logs."""

from __future__ import annotations

import ctypes as ct
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rkcosim.base.numbered import Numbered
from rkcosim.engines import library as lib
from rkcosim.engines import records
from rkcosim.engines.complaints import ComplaintLog, Complaints, Place, read_log
from rkcosim.engines.diagnostics import Diagnostic, Fault
from rkcosim.engines.library import DramConfig
from rkcosim.engines.memory import PAGE, DeviceMemory
from rkcosim.engines.protocol import EngineError, capabilities
from rkcosim.engines.records import TaskLog, TaskRecord
from rkcosim.engines.settings import thread_count, threads_chosen
from rkcosim.spec.regs.options import chosen_options, options_mask

RESET_CYCLES = 16
"""Number of cycles for which `reset` holds a core's reset."""


@dataclass
class Source:
    """The origin of an engine's cores.

    Members
    -------
    library : function of `traced` that returns the path of the library.
    step : callback for cores outside of the library.
    failure : returns the exception that a callback raised, or None.
    trace : for cores outside of the library: starts a waveform (path), before the first cycle.
    close : called when the engine closes.
    raw_names : True if signals have the names of the design (CXXRTL) instead of those of a waveform.
    identity : function of `traced` that describes the build for snapshots: variant, geometry, build.
    """

    library: Callable[[bool], Path]
    step: Any = None
    failure: Callable[[], BaseException | None] = lambda: None
    trace: Callable[[str], None] | None = None
    close: Callable[[], None] = lambda: None
    raw_names: bool = False
    identity: Callable[[bool], Mapping[str, Any]] = lambda traced: {}


class System:
    """The state shared by the parts of an engine: the library in use, its handle, memory, cycle and logs.

    Parameters
    ----------
    name, cell, source, cores, dram, threads, options : as for `rkcosim.engines.soc.SocEngine`.

    Members
    -------
    lib : functions of the library, or the log of the host's accesses in front of them.
    traced : True if the library can write waveforms.
    touched : True if the host has accessed the cores since the library was loaded.
    counting : True if performance counters are enabled.
    keeping_tasks : True if the records of all tasks are kept (see `keep_tasks`).
    reset_at : cycle of each core's last reset.
    reported : number of diagnostics raised so far.
    resumed_at : cycle of the snapshot from which the engine was resumed, 0 for none.
    reopened : called each time after a library was loaded and its cores were reset.
    """

    def __init__(
        self,
        name: str,
        cell: str,
        source: Source,
        cores: int,
        dram: DramConfig | None,
        threads: int | None,
        options: Iterable[str] | None,
    ) -> None:
        if not 1 <= cores <= lib.MAX_CORES:
            raise ValueError(f"cores must be 1..{lib.MAX_CORES}, not {cores}")
        self.name, self.cell, self.cores, self.source = name, cell, cores, source
        can = capabilities(name)
        self.has_cycles, self.can_trace, self.has_events = can.has_cycles, can.can_trace, can.has_events
        self.has_counters, self.has_snapshots = can.has_counters, can.has_snapshots
        self.has_probes = can.has_probes
        self.dram = dram if dram is not None else DramConfig()
        self.options = chosen_options(options)
        self.threads, self._threads_always = thread_count(threads), threads_chosen(threads)
        self._step = source.step if source.step is not None else lib.STEP()
        self._handle: int | None = None
        self._in_library = threading.RLock()  # another thread may close the engine during a run
        self._may_sleep, self._window = True, 0
        self.lib: Any = None
        self.traced = self.touched = self.counting = self.keeping_tasks = False
        self.reported = self.resumed_at = 0
        self.reset_at = [0] * cores
        self.reopened: list[Callable[[], None]] = []
        self._complaints = ComplaintLog(self._read_log, self.task_log)
        self.memory = DeviceMemory(self._mapping_changed)

    def load(self, traced: bool) -> None:
        """Load a library in place of the present one; all cores are reset."""
        self.lib = lib.load(self.source.library(traced))
        self.traced = traced
        config = lib.DramConfigC.of(self.dram)
        self._handle = self.lib.rk_create(self.cores, ct.byref(config), self.memory.address, self._step)
        for iova, size in self.memory.ranges.items():
            self._mapping_changed(iova // PAGE, size // PAGE, True)
        self.lib.rk_options(self._handle, options_mask(self.options))
        self.lib.rk_may_sleep(self._handle, int(self._may_sleep))
        self.lib.rk_threads(self._handle, self.threads, int(self._threads_always))
        self.lib.rk_window(self._handle, self._window)
        self.keep_tasks(self.keeping_tasks)
        if self.counting:
            self.count_blocks()
        self.reset((1 << self.cores) - 1)
        self.touched = False
        self.tasks = TaskLog()
        for work in self.reopened:
            work()

    def count_blocks(self, on: bool = True) -> None:
        """Enable the performance counters of all cores, from 0, or disable them."""
        self.counting = on
        for core in range(self.cores):
            self.lib.rk_count(self.opened(), core, int(on), int(on), 0)

    @property
    def irq(self) -> int:
        """Interrupt lines, one bit per core."""
        return self.lib.rk_irq(self.opened())

    @property
    def cycle(self) -> int:
        """Cycles since the engine was opened, including the first reset."""
        return self.lib.rk_cycle(self.opened())

    def reset(self, core_mask: int) -> None:
        """Hold the cores' reset for `RESET_CYCLES`; their open requests are dropped."""
        self.touched = True
        for core in range(self.cores):
            if core_mask >> core & 1:
                self.reset_at[core] = self.cycle
        self.lib.rk_reset(self.opened(), core_mask, RESET_CYCLES)
        self.raise_failure()

    def raw_counters(self, core: int) -> lib.CountersC:
        """Return the counters of a core since the library was loaded."""
        raw = lib.CountersC()
        self.lib.rk_counters(self.opened(), self.core_number(core), ct.byref(raw))
        return raw

    def task_log(self) -> Numbered[TaskRecord]:
        """Return the tasks in the order of their start; the latest `records.KEPT` are kept."""
        starts = ct.c_uint64()
        gone = self.lib.rk_tasks_gone(self.opened(), ct.byref(starts))
        if gone > self.tasks.events:
            self.tasks.skip(gone, starts.value)
        fresh = self.fetch("rk_tasks", lib.TaskEventC, self.tasks.events)
        return self.tasks.read(fresh, self.raw_counters, None if self.keeping_tasks else records.KEPT)

    def task_count(self) -> int:
        """Return the number of tasks that have started."""
        return len(self.task_log())

    def keep_tasks(self, every: bool) -> None:
        """Keep the records of all tasks from now on, or of the latest ones only."""
        self.keeping_tasks = every
        self.lib.rk_keep_tasks(self.opened(), 0 if every else 2 * records.KEPT)

    def diagnostics(self, first: int = 0, most: int | None = None) -> list[Diagnostic]:
        """Return the cores' diagnostics from number `first` on, at most `most`, oldest first.

        The oldest `complaints.MOST` are kept.
        """
        return self._complaints.diagnostics(first, most)

    def faults(self, first: int = 0, most: int | None = None) -> list[Fault]:
        """Return the accesses that memory refused, as `diagnostics`."""
        return self._complaints.faults(first, most)

    def complaints(self, since: tuple[int, int] = (0, 0)) -> Complaints:
        """Return each kind of diagnostics and faults after a position once, with its count."""
        return self._complaints.kinds(Place(*since))

    def may_sleep(self, on: bool) -> None:
        """Set whether idle cores may be skipped (for tests); the cycles do not depend on it."""
        self._may_sleep = on
        self.lib.rk_may_sleep(self.opened(), int(on))

    def window(self, cycles: int) -> None:
        """Set the maximum number of cycles for which awake cores are simulated independently (for tests).

        0 means as many as the memory's latency allows. Cycles, bytes and logs do not depend on it.
        """
        self._window = cycles
        self.lib.rk_window(self.opened(), cycles)

    def unload(self) -> None:
        """Free the cores; does nothing if there are none."""
        with self._in_library:
            if self._handle is not None:
                self.lib.rk_destroy(self._handle)
                self._handle = None

    def opened(self) -> int:
        """Return the handle of the library's system; raises EngineError after it was closed."""
        if self._handle is None:
            raise EngineError("the engine is closed")
        return self._handle

    def core_number(self, core: int) -> int:
        """Return the number of a core; raises ValueError if it does not exist."""
        if not 0 <= core < self.cores:
            raise ValueError(f"core must be 0..{self.cores - 1}, not {core}")
        return core

    def raise_failure(self) -> None:
        """Raise the exception that stopped a core outside of the library."""
        error = self.source.failure()
        if error is not None:
            raise error

    def _mapping_changed(self, page: int, pages: int, mapped: bool) -> None:
        if self._handle is not None:
            self.lib.rk_map(self._handle, page, pages, int(mapped))

    def _read_log(self, function: str, struct: type[ct.Structure], first: int) -> np.ndarray:
        """Return the records of a log from number `first` on."""
        call, handle = getattr(self.lib, function), self.opened()
        return read_log(lambda at, to, room: call(handle, at, to, room), struct, first)

    def fetch(self, function: str, struct: type[Any], first: int = 0) -> Iterable[Any]:
        """Return the events of a log from number `first` on."""
        call = getattr(self.lib, function)
        while True:
            buffer = (struct * 256)()
            count = call(self.opened(), first, buffer, 256)
            yield from buffer[:count]
            if count < 256:
                return
            first += count
