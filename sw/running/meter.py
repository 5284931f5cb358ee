"""Measurements of tasks by the engine, in the form in which the compiler's runtime takes them."""

from __future__ import annotations

from collections.abc import Callable

from rkcosim.base.numbered import Numbered
from rkcosim.compiler.runtime import TaskMeasure
from rkcosim.engines.protocol import Engine
from rkcosim.engines.records import KEPT, TaskRecord

COMMANDS = "PC"
"""AXI client that reads command words, which are not data."""


def measure(record: TaskRecord, cycles: int) -> TaskMeasure:
    """Return the engine's record of a task that took (or has taken so far) `cycles`."""
    counters = record.counters
    return TaskMeasure(
        cycles=cycles,
        bytes_read=sum(n for client, n in counters.bytes_read.items() if client != COMMANDS),
        bytes_written=sum(counters.bytes_written.values()),
        mac_busy=counters.events.get("mac_slots", 0),
        events=counters.events,
        read_by=counters.bytes_read,
        written_by=counters.bytes_written,
        core=record.core,
        start=record.start,
    )


def meter(engine: Engine) -> Callable[[], Numbered[TaskMeasure]]:
    """Return a meter for `rkcosim.compiler.LoadedModel`: measurements of ended tasks, oldest first."""
    measures: Numbered[TaskMeasure] = Numbered()

    def read() -> Numbered[TaskMeasure]:
        nonlocal measures
        log = engine.task_log()
        if (gone := getattr(log, "gone", 0)) > len(measures):
            measures = Numbered((), gone)
        for record in log[len(measures) :]:
            if record.cycles is None:
                break
            measures.append(measure(record, record.cycles))
        measures.trim(KEPT)
        return measures

    return read


def unended(engine: Engine) -> list[TaskMeasure]:
    """Return the measurements up to now of tasks that have not ended."""
    return [measure(r, engine.cycle - r.start) for r in engine.task_log() if r.cycles is None]
