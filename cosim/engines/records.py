"""What an engine counts of its cores and their tasks, from the records of the harness."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from cosim.engines import diagnostics as words
from cosim.engines import library as lib
from rtl.regs.events import COUNTERS

EVENT_NAMES = COUNTERS
"""Names of the counts of a core's `events`, by bit: cycles in which each was high (rtl/regs/events.py)."""


@dataclass(frozen=True)
class CoreCounters:
    """What a core has done since the engine was opened.

    `events` cycles by name (`EVENT_NAMES`), `bytes_read` and `bytes_written` by AXI client's name,
    `read_requests` and `write_requests` in bursts, `evaluated` cycles that the host computed.
    """

    events: dict[str, int]
    bytes_read: dict[str, int]
    bytes_written: dict[str, int]
    read_requests: int = 0
    write_requests: int = 0
    evaluated: int = 0


@dataclass(frozen=True)
class TaskRecord:
    """One task that a core ran, from the cycle `start` to `end` (None: not ended).

    `counters` holds what happened in between (or since the start); `job` is the number of the kick, from
    0, counted over all cores (-1: none, the host set the blocks up itself).
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


class TaskLog:
    """Tasks of all cores, put together from the events that the library keeps.

    Members
    -------
    events : events read so far.
    """

    def __init__(self) -> None:
        self.events = 0
        self._records: list[TaskRecord] = []
        self._running: dict[int, tuple[int, lib.TaskEventC]] = {}  # by core, with the place in the records

    def read(
        self, fresh: Iterable[lib.TaskEventC], counters: Callable[[int], lib.CountersC]
    ) -> list[TaskRecord]:
        """All tasks in the order in which they began.

        Parameters
        ----------
        fresh : the library's events from number `events` on.
        counters : gives those of a core as they stand.
        """
        for event in fresh:
            self.events += 1
            if event.kind == 0:
                self._running[event.core] = (len(self._records), event)
                self._records.append(_task(event, None, event))
            elif event.core in self._running:
                place, start = self._running.pop(event.core)
                self._records[place] = _task(start, event.cycle, event)
        records = list(self._records)
        for core, (place, start) in self._running.items():
            records[place] = _task(start, None, counters(core))
        return records


def _task(start: Any, end: int | None, now: Any) -> TaskRecord:
    job = -1 if start.job == lib.NO_JOB else start.job
    return TaskRecord(start.core, start.task, start.cycle, end, core_counters(now, start), job)


def core_counters(
    now: Any, before: Any, read_requests: int = 0, write_requests: int = 0, evaluated: int = 0
) -> CoreCounters:
    """Counters `now` less those `before` (None or the same object: zero)."""

    def less(name: str, index: int) -> int:
        return getattr(now, name)[index] - (getattr(before, name)[index] if before is not None else 0)

    def clients(name: str, *, write: bool) -> dict[str, int]:
        room = len(getattr(before if before is not None else now, name))
        values = {words.client_name(index, write=write): less(name, index) for index in range(room)}
        return {client: count for client, count in values.items() if count}

    return CoreCounters(
        {event: less("events", bit) for bit, event in enumerate(EVENT_NAMES) if less("events", bit)},
        clients("bytes_read", write=False),
        clients("bytes_written", write=True),
        read_requests,
        write_requests,
        evaluated,
    )
