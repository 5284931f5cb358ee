"""Kicks on the RTL that run at the same time, each on its core, in cycles, forwards and backwards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rkcosim.base.numbered import Numbered
from rkcosim.debug.opening import DebuggedJob
from rkcosim.debug.rtl.states import KeptStates
from rkcosim.engines.events import RECORDED
from rkcosim.engines.memory import PAGE
from rkcosim.spec.co_work import PATIENCE_CYCLES
from rkcosim.verify.crosscheck.kick import start
from rkcosim.waves.events import Event

if TYPE_CHECKING:
    from rkcosim.engines.records import TaskRecord
    from rkcosim.engines.soc import SocEngine

SETTLES = 64
"""Cycles after an interrupt within which the end of the last task is visible and the core is idle."""

FETCHED = 1
"""Bit of `flags` of a record of a write that the PC has done."""

LONG_WAIT = 1 << 17
"""Cycles of one look for the end: more than those after which the engine knows that nothing can move."""


@dataclass(frozen=True)
class Written:
    """A register write on the core's bus.

    Members
    -------
    cycle : the cycle in which it takes place.
    offset, value : the register, and what is written.
    place : (task, word) of the command word; None for a write of the host.
    """

    cycle: int
    offset: int
    value: int
    place: tuple[int, int] | None


class CoreRun:
    """One of the kicks: its words, and the writes that its core has done so far.

    Parameters
    ----------
    number : number of the job.
    job : the kick.
    """

    def __init__(self, number: int, job: DebuggedJob) -> None:
        self.number, self.job, self.core = number, job, job.stream.core
        self.words = [
            (task, word, command.offset, command.value)
            for task, listed in enumerate(job.program.tasks)
            for word, command in enumerate(listed.commands)
            if command.register is not None and command.register.block != "PC"
        ]
        """Words that write a register over the bus: (task, word, offset, value)."""
        self._writing = np.array([one[2:] for one in self.words], np.uint32).reshape(-1, 2)
        self._raw: list[NDArray[Any]] = []
        self._written: list[Written] | None = []

    def take(self, records: NDArray[Any]) -> None:
        """Take the next writes of the core, as `rkcosim.engines.events.Recording.since` returns them."""
        if records.size:
            self._raw.append(records)
            self._written = None

    def forget_from(self, cycle: int) -> None:
        """Forget the writes in a cycle and after it."""
        while self._raw and int(self._raw[-1]["cycle"][0]) >= cycle:
            self._raw.pop()
        if self._raw and int(self._raw[-1]["cycle"][-1]) >= cycle:
            self._raw[-1] = self._raw[-1][self._raw[-1]["cycle"] < cycle]
        self._written = None

    @property
    def writes(self) -> int:
        """Number of the writes."""
        return sum(part.size for part in self._raw)

    @property
    def written(self) -> list[Written]:
        """The writes, each with the command word that it belongs to."""
        if self._written is None:
            self._written, ahead = [], 0
            for record in (record for part in self._raw for record in part.tolist()):
                row = dict(zip(self._raw[0].dtype.names or (), record, strict=True))
                offset, value, place = row["address"], row["value"], None
                if row["flags"] & FETCHED:
                    for number in range(ahead, len(self.words)):
                        if self.words[number][2:] == (offset, value):
                            place, ahead = self.words[number][:2], number + 1
                            break
                self._written.append(Written(row["cycle"], offset, value, place))
        return self._written

    def _last(self) -> int:
        """Return the number of the last word that was written, in `words`; -1 for none."""
        parts = [part[part["flags"] & FETCHED != 0] for part in self._raw]
        count = sum(part.size for part in parts)
        if count and count <= len(self.words):
            found = np.concatenate(parts)
            pairs = np.stack([found["address"], found["value"]], 1)
            if (pairs == self._writing[:count]).all():  # nothing but the words of the lists, in their order
                return count - 1
        place = next((one.place for one in reversed(self.written) if one.place is not None), None)
        return -1 if place is None else next(n for n, one in enumerate(self.words) if one[:2] == place)

    def fetched_place(self, started: int) -> tuple[int, int]:
        """Return (task, word) of the word that the PC executes next.

        Words without a write over the bus (links, and the end of a list) count as done with the word before
        them, up to the word that starts the blocks; that counts as done when they have started.

        Parameters
        ----------
        started : number of tasks that have started.
        """
        last = self._last()
        if last < 0:
            return 0, 0
        task, word = self.words[last][:2]
        enable = self.enable_word(task)
        ahead = next((w for t, w, _, _ in self.words[last + 1 :] if t == task), enable)
        if word < enable and started <= task:
            return task, min(ahead, enable)
        return (task + 1, 0) if task + 1 < len(self.job.program.tasks) else (task, enable)

    def enable_word(self, task: int) -> int:
        """Return the index of the word that starts the blocks of a task, or of its last word."""
        words = self.job.program.tasks[task].commands
        return next((n for n, one in enumerate(words) if one.kind == "op_enable"), max(len(words) - 1, 0))


class RtlRun:
    """Kicks that run at the same time on an engine with cycles.

    The run begins when the host has written the registers and started each of the kicks.

    Parameters
    ----------
    engine : an engine in its initial state, opened with `on_diagnostic="go on"`.
    jobs : (number, kick) on different cores; the memory at the start is that of the first.

    Members
    -------
    kept : the kept states.
    cores : the kicks by number of the job.
    end : why the run goes no further, "" while it does: "done" or "hang".
    """

    def __init__(self, engine: SocEngine, jobs: Sequence[tuple[int, DebuggedJob]], **bounds: int) -> None:
        self.engine = engine
        self.cores = {number: CoreRun(number, job) for number, job in jobs}
        self.end = ""
        self._wants_bursts = False
        self._bursts: list[Event] = []
        self._seen = 0
        self._begin()
        self.kept = KeptStates(engine, self._original, **bounds)
        self.first_cycle = engine.cycle

    def _begin(self) -> None:
        """Start the kicks on a fresh engine."""
        engine = self.engine
        for iova in engine.memory.ranges:
            engine.memory.unmap(iova)
        engine.unload()
        engine.recording.kicks = Numbered()
        engine.load(engine.traced)
        for run in self.cores.values():
            run.forget_from(0)
        self.end = ""
        first = next(iter(self.cores.values())).job.stream
        first.load_into(engine.memory)
        self._record()
        for run in self.cores.values():
            stream = run.job.stream
            start(engine, stream.kick, stream.core, stream.writes)
        self._collect()

    def _record(self) -> None:
        """Record writes of registers (and bursts, if they are wanted) from the present cycle on."""
        self._seen, self._bursts = 0, []
        kinds = ("write", "burst") if self._wants_bursts else ("write",)
        self.engine.record(kinds, first=self.engine.cycle)
        self._collect()  # those of the present cycle, which is no news for whoever waits for later ones

    def record_bursts(self, on: bool) -> None:
        """Record the bursts of the memory as well, from the present cycle on; see `bursts`."""
        if on != self._wants_bursts:
            self._collect()
            self._wants_bursts = on
            for run in self.cores.values():
                run.forget_from(self.cycle)
            self._record()

    def _original(self, page: int) -> NDArray[np.uint8]:
        """Return the contents of a page at the start, uint8 [4096]."""
        found, first = np.zeros(PAGE, np.uint8), page * PAGE
        for region in next(iter(self.cores.values())).job.stream.regions:
            low, high = max(first, region.address), min(first + PAGE, region.address + region.data.size)
            if low < high:
                found[low - first : high - first] = region.data[low - region.address : high - region.address]
        return found

    # -- where it stands -------------------------------------------------------------------------

    @property
    def cycle(self) -> int:
        """The cycle, as in logs and waveforms of a run of its own."""
        return self.engine.cycle

    def tasks(self, number: int) -> list[TaskRecord]:
        """Return the tasks of a job that have started, in their order."""
        core = self.cores[number].core
        return [record for record in self.engine.task_log() if record.core == core and record.job >= 0]

    def running_task(self, number: int) -> int | None:
        """Return the task whose blocks run, None between two tasks."""
        records = self.tasks(number)
        return records[-1].task if records and records[-1].end is None else None

    def ended(self, number: int) -> bool:
        """Whether all tasks of a job have ended, with their interrupt or without."""
        return len(self.tasks(number)) >= len(self.cores[number].job.program.tasks) and (
            self.running_task(number) is None
        )

    def bursts(self) -> list[Event]:
        """Return the bursts that were recorded since `record_bursts` or the last step back, by cycle."""
        return self._bursts

    def _collect(self) -> None:
        """Take the records of the engine."""
        raw = self.engine.recording.since(self._seen)
        self._seen += len(raw)
        bursts = raw["kind"] == RECORDED.index("burst")
        for run in self.cores.values():
            run.take(raw[~bursts & (raw["core"] == run.core)])
        if bursts.any():
            self._bursts += list(self.engine.recording.decoded(raw[bursts]))
            self._bursts.sort(key=lambda event: event.cycle)

    # -- forwards --------------------------------------------------------------------------------

    def run(self, cycle: int, *, tasks: bool = False, irq: bool = False, diagnostics: bool = False) -> str:
        """Run to a cycle at most, or to the first event of the wanted kinds, or to the end.

        Returns
        -------
        "irq" (a line rises), "task" (a task starts or ends), "diagnostic", "end", or "" in the cycle.
        """
        engine = self.engine
        if self.end:
            return "end"
        while engine.cycle < cycle:
            low = ~engine.irq & sum(1 << run.core for run in self.cores.values())
            evaluated = self._evaluated()
            began = engine.cycle
            found = engine.run_to(
                min(cycle, self.kept.next_cycle, began + (LONG_WAIT if low else SETTLES)),
                low,
                tasks=tasks or not low,
                diagnostics=diagnostics,
            )
            if engine.cycle >= self.kept.next_cycle:
                self._collect()
                self.kept.keep()
            over = self._at_end(engine.cycle - began, evaluated)
            if over or found == "diagnostic" or (found == "task" and tasks) or (found == "irq" and irq):
                self._collect()
                return "end" if over else found
        self._collect()
        return ""

    def _evaluated(self) -> int:
        return sum(self.engine.raw_counters(core).cycles_evaluated for core in range(self.engine.cores))

    def _at_end(self, passed: int, evaluated: int) -> bool:
        """Look whether the run is over: all jobs have ended, or nothing can move any more."""
        if all(self.ended(number) for number in self.cores):
            self.end = "done"
        elif passed and self._evaluated() == evaluated and not self._moves():
            self.end = "hang"
        return bool(self.end)

    def _moves(self) -> bool:
        """Whether cores of which none can move now will: one that waits for others gives up some time."""
        if len(self.cores) < 2:
            return False
        evaluated = self._evaluated()

        def later() -> bool:
            self.engine.run_to(self.cycle + PATIENCE_CYCLES + LONG_WAIT, (1 << self.engine.cores) - 1)
            return self._evaluated() != evaluated

        return bool(self.aside(later))

    # -- backwards -------------------------------------------------------------------------------

    def go_to(self, cycle: int) -> None:
        """Go to a cycle, before the present one or after it."""
        if cycle < self.cycle or (self.end and cycle == self.cycle):
            at = self.kept.go_back(cycle)
            for run in self.cores.values():
                run.forget_from(at)
            self._record()
            self.end = ""
        if cycle > self.cycle:
            self.run(cycle)

    def aside(self, work: Callable[[], Any]) -> Any:
        """Return what some work on the engine returns, and put the engine back to where it stands."""
        here, end = self.cycle, self.end
        self.kept.keep()
        try:
            return work()
        finally:
            with suppress(ValueError):
                self.go_to(here)
            self.end = end
