"""A debugging session on the RTL: positions are cycles."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any

import numpy as np

from rkcosim.debug.base import Stop, Unit, short_number
from rkcosim.debug.breakpoints import Breakpoint
from rkcosim.debug.deviations.against import Deviation, Reference, Tolerance, deviation
from rkcosim.debug.deviations.causes import MOST_TRIALS, Inquiry
from rkcosim.debug.golden.session import Session
from rkcosim.debug.golden.stepped import SteppedKick
from rkcosim.debug.opening import Debugged
from rkcosim.debug.places import ListingPlace, task_title
from rkcosim.debug.rtl.difference import (
    BEAT,
    WrongBytes,
    WrongWrite,
    compare,
    first_write,
    stage,
    written_pages,
)
from rkcosim.debug.rtl.held import contents
from rkcosim.debug.rtl.position import RtlPosition
from rkcosim.debug.rtl.run import Written
from rkcosim.engines.protocol import MemoryAccessError, require
from rkcosim.spec.regs import registers

LAST_CYCLE = 1 << 62
"""A cycle that no run reaches."""

FINE_SLICE, MOST_SLICE = 1 << 12, 1 << 16
"""Cycles between two looks at the recorded writes and bursts, at first and at most."""

LONG_SLICE = 1 << 17
"""Cycles between two looks for a request to pause."""


@dataclass(order=True)
class _Event:
    """Something in a run at which it could stop: its cycle, its rank in the cycle, and what it is."""

    cycle: int
    rank: int
    kind: str
    job: int
    data: Any = None


@dataclass(frozen=True)
class _Counted:
    """How much of everything that happens in a run is known: numbers, those of jobs by job."""

    cycle: int
    lines: int
    writes: dict[int, int]
    started: dict[int, int]
    ended: dict[int, int]
    bursts: int
    diagnostics: int


class RtlSession(RtlPosition):
    """A session on the RTL, with the parameters and errors of `RtlPosition`.

    Members
    -------
    wrong : the last wrong result of a task that was found.
    """

    def __init__(
        self,
        work: Debugged,
        references: Sequence[Reference] = (),
        tolerance: Tolerance | None = None,
        *,
        engine: str | None = None,
        opener: Callable[..., Any] | None = None,
        **bounds: int,
    ) -> None:
        super().__init__(work, references, tolerance, engine=engine, opener=opener, **bounds)
        self._goldens: dict[int, SteppedKick] = {}
        self.wrong: WrongBytes | None = None
        self.stop = Stop("entry", "the host has started the kick", self.place)
        if references:
            self.set_breakpoint("deviation")

    # -- forwards --------------------------------------------------------------------------------

    def proceed(self) -> Stop:
        """Run to the next breakpoint or to the end."""
        return self._forward(lambda event: "", LAST_CYCLE)

    def _step(self, unit: Unit, count: int) -> Stop:
        if unit == "cycle":
            return self._forward(lambda event: "", self.run.cycle + count)
        for _ in range(count):
            node = self.node

            def arrived(event: _Event, node: str = node) -> str:
                if event.job != self._shown:
                    return ""
                if unit == "word" and event.kind == "write" and event.data.place is not None:
                    return self._written_text(event.data)
                if unit in ("task", "node") and event.kind == "start":
                    there = self.node_of(ListingPlace(event.job, event.data, 0))
                    fits = unit == "task" or there != node or not there
                    return f"{task_title(self.work, event.job, event.data)} starts" if fits else ""
                return self._interrupt_text() if unit == "interrupt" and event.kind == "irq" else ""

            stop = self._forward(arrived, LAST_CYCLE, fine=unit == "word", tasks=True)
            if stop.reason not in ("step", "interrupt"):
                break
        return self.stop

    def run_to(self, place: ListingPlace) -> Stop:
        """Go to the start of a task, or to the write of a word, without regard to breakpoints."""
        self._enter(place.job)
        self.run.go_to(self.run.first_cycle)
        self._by_task = not place.word
        if place.task or place.word:
            for events in self._events(LAST_CYCLE, fine=bool(place.word)):
                if any(event.job == place.job and self._is_at(event, place) for event in events):
                    self.run.go_to(events[0].cycle)
                    break
        return self._stopped("step", self.position_text())

    def _is_at(self, event: _Event, place: ListingPlace) -> bool:
        """Whether an event is the start of a task, or the write of the word at a place or of the next one.

        Behind the last word with a write comes the one that starts the blocks: the start of the task.
        """
        words = self.run.cores[event.job].words
        word = next((w for task, w, _, _ in words if task == place.task and w >= place.word), None)
        if place.word and word is not None:
            return event.kind == "write" and event.data.place == (place.task, word)
        return event.kind == "start" and event.data == place.task

    def _enter(self, job: int) -> None:
        """Go to the start of the batch of a job, if another one is open; the job is shown."""
        batch = next(n for n, jobs in enumerate(self._batches) if job in jobs)
        if batch != self._batch:
            self._batch = batch
            self.run = self._started()
        self._shown = job

    def _forward(
        self, arrived: Callable[[_Event], str], limit: int, fine: bool = False, tasks: bool = False
    ) -> Stop:
        """Run until something stops the run, or to a cycle."""
        self.asked_to_pause.clear()
        active = self._active()
        fine = fine or any(one.fine or one.kind == "memory" for one in active)
        tasks = tasks or any(one.kind in ("position", "deviation", "difference") for one in active)
        self.run.record_bursts(any(one.kind == "memory" for one in active))
        cycles = [one.cycle for one in active if one.kind == "cycle" and one.cycle > self.run.cycle]
        while True:
            target = min([limit, *cycles])
            for events in self._events(target, fine, tasks):
                stop = self._stop_at(events, active, arrived)
                if stop is not None:
                    return stop
            if self.asked_to_pause.is_set():
                return self._stopped("pause", f"paused: {self.position_text()}")
            if self.run.end:
                if self.run.end == "hang" or self._batch + 1 >= len(self._batches):
                    return self._at_end()
                self._enter(self._batches[self._batch + 1][0])
                continue
            hits = [one for one in active if one.kind == "cycle" and one.cycle == self.run.cycle]
            hits = [one for one in hits if self._holds(one, {})]
            if hits:
                return self._stopped("breakpoint", self.position_text(), hits)
            if self.run.cycle >= limit:
                return self._stopped("step", self.position_text())
            cycles = [cycle for cycle in cycles if cycle > self.run.cycle]

    def _events(self, limit: int, fine: bool, tasks: bool = True) -> Iterator[list[_Event]]:
        """Run to a cycle, and yield what happens up to there: the events of a cycle together, in order.

        The run stands in the cycle of the events or behind it; the caller goes there if it stops.

        Parameters
        ----------
        fine : look at each write and burst, which needs short runs.
        tasks : end a run at each start and end of a task, so that there is no way back to it.
        """
        size = FINE_SLICE
        while not self.run.end and self.run.cycle < limit and not self.asked_to_pause.is_set():
            if fine:
                self.run.kept.keep()
            before = self._counted()
            found = self.run.run(
                min(limit, self.run.cycle + (size if fine else LONG_SLICE)),
                tasks=tasks and not fine,
                irq=not fine,
                diagnostics=not fine,
            )
            size = min(2 * size, MOST_SLICE)
            fresh = sorted(self._fresh(before, fine), key=lambda one: (one.cycle, one.rank))
            for _, together in groupby(fresh, key=lambda one: one.cycle):
                yield list(together)
            if found == "end":
                return

    def _counted(self) -> _Counted:
        """Return how much of everything that happens is known."""
        run = self.run
        tasks = {number: run.tasks(number) for number in run.cores}
        return _Counted(
            run.cycle,
            self.engine.irq,
            {number: one.writes for number, one in run.cores.items()},
            {number: len(some) for number, some in tasks.items()},
            {number: sum(one.end is not None for one in some) for number, some in tasks.items()},
            len(run.bursts()),
            len(self.engine.diagnostics()),
        )

    def _fresh(self, before: _Counted, fine: bool) -> Iterator[_Event]:
        """Yield what has happened since a count."""
        run, by_core = self.run, {one.core: number for number, one in self.run.cores.items()}
        for number, one in run.cores.items():
            for write in one.written[before.writes[number] :] if fine else ():
                yield _Event(write.cycle, 2, "write", number, write)
            tasks = run.tasks(number)
            for task in tasks[before.started[number] :]:
                yield _Event(task.start, 1, "start", number, task.task)
            for task in [task for task in tasks if task.end is not None][before.ended[number] :]:
                yield _Event(task.end or 0, 0, "end", number, task)
            if self.engine.irq & ~before.lines & (1 << one.core):
                yield _Event(self._irq_cycle(before.cycle, fine), 3, "irq", number)
        for burst in run.bursts()[before.bursts :]:
            if burst.core in by_core:
                yield _Event(burst.cycle, 2, "burst", by_core[burst.core], burst)
        for found in self.engine.diagnostics(before.diagnostics):
            yield _Event(found.cycle, 4, "diagnostic", by_core.get(found.core, self._shown), found)

    def _irq_cycle(self, began: int, fine: bool) -> int:
        """Return the cycle in which an interrupt line has risen, after a run from another cycle."""
        here, end = self.run.cycle, self.run.end
        if not fine:
            return here
        self.run.go_to(began)
        self.run.run(here, irq=True)
        cycle = self.run.cycle
        self.run.go_to(here)
        self.run.end = end
        return cycle

    def _stop_at(
        self, events: Sequence[_Event], active: Sequence[Breakpoint], arrived: Callable[[_Event], str]
    ) -> Stop | None:
        """Return the stop at the events of a cycle, None if the run goes on."""
        for event in events:
            found = self._wrong_result(event, active) if event.kind == "end" else None
            if found is not None:
                return found
        asked = [(one, event, text) for event in events for one in active if (text := self._hit(one, event))]
        reached = [(event, text) for event in events if (text := arrived(event))]
        if not asked and not reached:
            return None
        here, end = self.run.cycle, self.run.end
        event, text = reached[0] if reached else (asked[0][1], "")
        self._show(event)
        hits = [(one, text) for one, event, text in asked if self._holds(one, self._names(event))]
        if hits:
            kinds = {one.kind for one, _ in hits}
            reason = kinds.pop() if kinds in ({"interrupt"}, {"diagnostic"}) else "breakpoint"
            return self._stopped(reason, "; ".join(text for _, text in hits), [one for one, _ in hits])
        if text:
            return self._stopped("interrupt" if event.kind == "irq" else "step", text)
        self.run.go_to(here)
        self.run.end = end
        return None

    def _show(self, event: _Event) -> None:
        """Go to the cycle of an event, and show its job."""
        self._shown = event.job
        self._by_task = event.kind not in ("write",)
        self.run.go_to(event.cycle)

    def _names(self, event: _Event) -> dict[str, int]:
        if event.kind != "write":
            return {}
        return {"value": event.data.value, "old": self._old(event.data)}

    def _old(self, write: Written) -> int:
        """Return what a register held before a write, in the group to which the write went."""
        register = registers().at(write.offset)
        if register is None:
            return 0
        tasks = [task for task in self.run.tasks(self._shown) if task.start < write.cycle]
        held = contents(self.core_run, tasks, before=write.cycle)
        state = held.blocks.get(register.block)
        if state is None or not register.shadowed:
            return held.plain.get(write.offset, register.reset)
        return state.groups[state.pointer].get(write.offset, register.reset)

    def _hit(self, one: Breakpoint, event: _Event) -> str:
        """Return why a breakpoint stops the run at an event, "" if it does not."""
        if one.kind == "interrupt":
            return self._interrupt_text() if event.kind == "irq" else ""
        if one.kind == "diagnostic":
            return str(event.data) if event.kind == "diagnostic" else ""
        if one.kind == "register" and one.register is not None and event.kind == "write":
            if event.data.offset == one.register.offset:
                return self._written_text(event.data)
        if one.kind == "memory" and event.kind == "burst":
            return self._burst_text(one, event.data)
        if one.kind == "position" and one.place is not None and one.place.job == event.job:
            if self._is_at(event, one.place):
                return f"{task_title(self.work, event.job, one.place.task)}, cycle {event.cycle}"
        return ""

    @staticmethod
    def _burst_text(one: Breakpoint, burst: Any) -> str:
        size = BEAT * burst.value
        if one.access not in (burst.direction, "access"):
            return ""
        for first, length in one.ranges:
            if first < burst.address + size and burst.address < first + length:
                return (
                    f"cycle {burst.cycle}, task {burst.task}: {burst.client} requests a {burst.direction} of "
                    f"0x{burst.address:08X} to 0x{burst.address + size - 1:08X}"
                )
        return ""

    def _written_text(self, write: Written) -> str:
        register = registers().at(write.offset)
        name = f"0x{write.offset:04X}" if register is None else register.path
        by = "by the host" if write.place is None else ""
        if write.place is not None:
            by = f"line {self.source.line_of(ListingPlace(self._shown, *write.place))}"
        return f"cycle {write.cycle}, {by}: {name} = {short_number(write.value)}"

    def _interrupt_text(self) -> str:
        return f"the interrupt line rises: {self.position_text()}"

    def _at_end(self) -> Stop:
        self._by_task = True
        if self.run.end == "hang":
            text = "; ".join(self.waits()[-3:])
            return self._stopped("hang", f"nothing moves any more in cycle {self.run.cycle}: {text}")
        count = sum(len(job.program.tasks) for job in self.work.jobs)
        status = self.scope().register("PC.INTERRUPT_STATUS", None)
        return self._stopped(
            "end", f"all {count} tasks have run, cycle {self.run.cycle}, interrupt status 0x{status:X}"
        )

    # -- backwards -------------------------------------------------------------------------------

    def _step_back(self, unit: Unit, count: int) -> Stop:
        if unit == "interrupt":
            raise ValueError("there is no way back by interrupts: reverse-continue with `break interrupt`")
        if unit == "cycle":
            self.run.go_to(max(self.run.first_cycle, self.run.cycle - count))
            return self._stopped("step", self.position_text())
        self._by_task = unit != "word"
        for _ in range(count):
            target = self._cycle_before(unit)
            if target is None and self._batch:
                self._enter(self._batches[self._batch - 1][0])
                self.run.run(LAST_CYCLE)
                target = self._cycle_before(unit)
            if target is None:
                self.run.go_to(self.run.first_cycle)
                return self._stopped("start", "at the start of the first job; nothing ran before it")
            self.run.go_to(target)
        return self._stopped("step", self.position_text())

    def _cycle_before(self, unit: Unit) -> int | None:
        """Return the cycle of the last write of a word, or start of a task or node, before this one."""
        here = self.run.cycle
        if unit == "word":
            places = [one.cycle for one in self.core_run.written if one.place is not None]
        else:
            records, places = self.run.tasks(self._shown), []
            for record in records:
                before = self.node_of(ListingPlace(self._shown, max(record.task - 1, 0), 0))
                node = self.node_of(ListingPlace(self._shown, record.task, 0))
                if unit == "task" or not record.task or node != before or not node:
                    places.append(record.start)
        return max((cycle for cycle in places if cycle < here), default=None)

    def proceed_back(self) -> Stop:
        """Go back to the last breakpoint before the present position, or to the start."""
        limit = self.run.cycle
        while True:
            bounds = [*(cycle for cycle in self.run.kept.cycles if cycle < limit), limit]
            for begin, end in reversed(list(pairwise(bounds))):
                found = self._last_hit(begin, end - (end == limit))
                if found is not None:
                    return found
            if not self._batch:
                break
            self._enter(self._batches[self._batch - 1][0])
            self.run.run(LAST_CYCLE)
            limit = self.run.cycle + 1
        self.run.go_to(self.run.first_cycle)
        return self._stopped("start", "at the start of the first job; no breakpoint lies before it")

    def _last_hit(self, begin: int, last: int) -> Stop | None:
        """Go to the last stop after one cycle, up to another; None if there is none."""
        found: tuple[int, bool, int, Stop] | None = None
        counted = {one.number: one.hits for one in self.breakpoints.values()}
        self.run.go_to(begin)
        while self.run.cycle < last and not self.run.end:
            stop = self._forward(lambda event: "", last)
            if stop.reason in ("step", "end", "hang", "pause"):
                break
            found = self.run.cycle, self._by_task, self._shown, stop
        for number, hits in counted.items():
            if number in self.breakpoints:
                self.breakpoints[number].hits = hits
        if found is None:
            return None
        cycle, self._by_task, self._shown, stop = found
        self.run.go_to(cycle)
        return self._stopped(stop.reason, stop.text, found=stop.deviation)

    # -- wrong results ---------------------------------------------------------------------------

    def _wrong_result(self, event: _Event, active: Sequence[Breakpoint]) -> Stop | None:
        """Compare the result of a task that has ended with the references and the golden model."""
        kinds = {one.kind for one in active} & {"deviation", "difference"}
        if not kinds:
            return None
        here, end = self.run.cycle, self.run.end
        self._show(event)
        record = event.data
        if "deviation" in kinds:
            found = self._deviation(event.job, record)
            if found is not None:
                self.wrong = _wrong_elements(found, record)
                return self._stopped(
                    "deviation", f"task {record.task} deviates from the reference: {found}", found=found
                )
        if "difference" in kinds:
            self.wrong = self._difference(event.job, record)
            if self.wrong is not None:
                return self._stopped("difference", f"RTL and golden model differ after {self.wrong}")
        self.run.go_to(here)
        self.run.end = end
        return None

    def _golden_after(self, job: int, task: int) -> tuple[SteppedKick, list[tuple[int, int]]]:
        """Run the golden model of a job to the end of a task; return it, and what the task wrote."""
        if len(self.run.cores) > 1:
            raise ValueError(
                "several cores run at the same time, which the golden model of the debugger does not do: "
                "compare with references (`against`)"
            )
        golden = self._goldens.setdefault(job, SteppedKick(self.work.jobs[job].stream))
        golden.go_to(task)
        done = golden.step(whole=True)
        return golden, [piece for report in done.reports for one in report.writes for piece in one.ranges]

    def _deviation(self, job: int, record: Any) -> Deviation | None:
        if len(self.run.cores) > 1:
            ranges = [(iova, size) for iova, size in self.engine.memory.ranges.items()]
        else:
            _, ranges = self._golden_after(job, record.task)
        try:
            return deviation(
                self.memory, list(self.references.values()), job, record.task, ranges, self.tolerance
            )
        except MemoryAccessError:
            return None

    def _difference(self, job: int, record: Any) -> WrongBytes | None:
        golden, ranges = self._golden_after(job, record.task)
        pages = written_pages(self.run, ranges)
        addresses, got, want = compare(self.memory, golden.memory, pages)
        if not addresses.size:
            return None
        return WrongBytes(job, record.task, addresses, got, want, record.start, record.end)

    def first_wrong_write(self) -> WrongWrite:
        """Go to the first write of the last wrong result that was found; raises ValueError without one."""
        if self.wrong is None:
            raise ValueError(
                "no wrong result was found: set `break difference`, or read references with `against`"
            )
        self._enter(self.wrong.job)
        self._by_task = True
        found = first_write(self.run, self.wrong)
        self._stopped("step", str(found))
        return found

    def first_wrong_lines(self) -> list[str]:
        """Go to the first wrong write of a result; return it and the stage that made it, one line each."""
        write = self.first_wrong_write()
        lines = [str(write)]
        for name, place in self.work.tensors.items():
            at = place.index_of(write.address)
            if at is not None and self.wrong is not None:
                if (place.job, place.task) == (self.wrong.job, self.wrong.task):
                    lines.append(f"{name}: channel {at[0]}, row {at[1]}, column {at[2]}")
        if self.wrong is not None and self.wrong.against_golden:
            lines += self.stage_lines(write)
        return lines

    def stage_lines(self, write: WrongWrite) -> list[str]:
        """Return which stage made the first wrong write, one line each."""
        assert self.wrong is not None

        def opened(cores: int) -> Any:
            return self._opener(self._name, cores=cores, probed=True, on_diagnostic="go on")

        require(self._name, "has_probes", "the stage of a wrong byte")
        return stage(self.work.jobs[self.wrong.job], self.wrong, write, opened)

    def examine(self, found: Deviation, most_trials: int = MOST_TRIALS) -> Inquiry:
        """Describe a deviation, and try which fields of its task could be the cause, on the golden model."""
        golden = Session(self.work, list(self.references.values()), self.tolerance)
        return golden.examine(found, most_trials)


def _wrong_elements(found: Deviation, record: Any) -> WrongBytes:
    """Return the bytes of wrong elements."""
    place, size = found.reference.place, found.reference.place.dtype.itemsize
    flip = np.uint8(place.flipped)

    def as_bytes(values: Any) -> Any:
        chosen = np.ascontiguousarray(np.asarray(values)[found.wrong].astype(place.dtype))
        return chosen.reshape(-1).view(np.uint8) ^ flip

    addresses = (place.addresses[found.wrong].reshape(-1, 1) + np.arange(size)).reshape(-1)
    got, want = as_bytes(found.got), as_bytes(found.reference.want)
    wrong = np.flatnonzero(got != want)
    order = wrong[np.argsort(addresses[wrong], kind="stable")]
    return WrongBytes(
        found.job, found.task, addresses[order], got[order], want[order], record.start, record.end, False
    )
