"""Counters of an engine's cores and tasks, from the records of the harness."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from rkcosim.base.numbered import Numbered
from rkcosim.engines import library as lib
from rkcosim.spec.port_codes import client_name
from rkcosim.spec.regs.events import COUNTERS

EVENT_NAMES = COUNTERS
"""Names of the counts of a core's `events`, by bit: cycles in which each was high (spec/regs/events.py)."""


@dataclass(frozen=True)
class CoreCounters:
    """Activity of a core since the engine was opened.

    Members
    -------
    events : cycles by name (`EVENT_NAMES`).
    bytes_read, bytes_written : bytes by name of the AXI client.
    read_requests, write_requests : numbers of bursts.
    evaluated : cycles that the host computed.
    """

    events: dict[str, int]
    bytes_read: dict[str, int]
    bytes_written: dict[str, int]
    read_requests: int = 0
    write_requests: int = 0
    evaluated: int = 0


@dataclass(frozen=True)
class TaskRecord:
    """One task that a core ran.

    Members
    -------
    start, end : first cycle, and the cycle of its end (None: not ended).
    counters : activity between `start` and `end` (or since `start`).
    job : number of the kick, counted from 0 over all cores (-1: the host set the blocks up without a kick).
    """

    core: int
    task: int
    start: int
    end: int | None
    counters: CoreCounters
    job: int = -1

    @property
    def cycles(self) -> int | None:
        """Cycles from start to end."""
        return None if self.end is None else self.end - self.start


KEPT = 1 << 14
"""Latest tasks whose records an engine keeps; with four times as many at most, and all while it records
events. A job has at most 4,095 tasks on each core."""


class TaskLog:
    """Tasks of all cores, assembled from the events that the library keeps.

    Members
    -------
    events : number of events read so far.
    """

    def __init__(self) -> None:
        self.events = 0
        self._records: Numbered[TaskRecord] = Numbered()
        self._running: dict[int, tuple[int, lib.TaskEventC]] = {}  # by core, with the number of the record

    def skip(self, events: int, tasks: int) -> None:
        """Forget everything, as the library no longer has the next events.

        Parameters
        ----------
        events, tasks : numbers of events and of starts among them that are gone.
        """
        self.events, self._records, self._running = events, Numbered((), tasks), {}

    def read(
        self,
        fresh: Iterable[lib.TaskEventC],
        counters: Callable[[int], lib.CountersC],
        kept: int | None = None,
    ) -> Numbered[TaskRecord]:
        """Return the tasks in the order of their start.

        Parameters
        ----------
        fresh : the library's events from number `events` on.
        counters : returns the present counters of a core.
        kept : number of records that are kept at least; None: all of them.
        """
        for event in fresh:
            self.events += 1
            if event.kind == 0:
                self._running[event.core] = (len(self._records), event)
                self._records.append(_task(event, None, event))
            elif event.core in self._running:
                place, start = self._running.pop(event.core)
                self._records[place] = _task(start, event.cycle, event)
        if kept is not None:
            self._records.trim(kept)
        records = self._records.copy()
        for core, (place, start) in self._running.items():
            records[place] = _task(start, None, counters(core))
        return records


def _task(start: Any, end: int | None, now: Any) -> TaskRecord:
    job = -1 if start.job == lib.NO_JOB else start.job
    return TaskRecord(start.core, start.task, start.cycle, end, core_counters(now, start), job)


def core_counters(
    now: Any, before: Any, read_requests: int = 0, write_requests: int = 0, evaluated: int = 0
) -> CoreCounters:
    """Return the counters `now` minus those of `before` (None or the same object: zero)."""

    def less(name: str, index: int) -> int:
        return getattr(now, name)[index] - (getattr(before, name)[index] if before is not None else 0)

    def clients(name: str, *, write: bool) -> dict[str, int]:
        room = len(getattr(before if before is not None else now, name))
        values = {client_name(index, write=write): less(name, index) for index in range(room)}
        return {client: count for client, count in values.items() if count}

    return CoreCounters(
        {event: less("events", bit) for bit, event in enumerate(EVENT_NAMES) if less("events", bit)},
        clients("bytes_read", write=False),
        clients("bytes_written", write=True),
        read_requests,
        write_requests,
        evaluated,
    )


def open_bursts(counts: Iterable[int]) -> dict[str, int]:
    """Return open bursts by name ("reads of FEATURE"), from their counts by id of reads, then of writes."""
    found = {}
    for number, count in enumerate(counts):
        write = number >= lib.READ_IDS
        if count:
            client = client_name(number - lib.READ_IDS if write else number, write=write)
            found[f"{'writes' if write else 'reads'} of {client}"] = count
    return found
