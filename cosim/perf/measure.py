"""What an engine counted of each task, in the form that the compiler's reports take."""

from __future__ import annotations

from collections.abc import Callable

from cosim.engines.engine import Engine
from cosim.engines.soc import TaskRecord
from sw.compiler.runtime import TaskMeasure

COMMANDS = "PC"
"""AXI client whose bytes are command words, not data."""


def measure(record: TaskRecord, cycles: int) -> TaskMeasure:
    """What an engine's record says of a task that took (or has taken so far) `cycles`."""
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


def meter(engine: Engine) -> Callable[[], list[TaskMeasure]]:
    """A meter for `sw.compiler.CompiledModel.load`: measures of all ended tasks, oldest first."""
    measures: list[TaskMeasure] = []

    def read() -> list[TaskMeasure]:
        for record in engine.task_log()[len(measures) :]:
            if record.cycles is None:
                break
            measures.append(measure(record, record.cycles))
        return measures

    return read


def unended(engine: Engine) -> list[TaskMeasure]:
    """What tasks that have not ended have done up to now."""
    return [measure(r, engine.cycle - r.start) for r in engine.task_log() if r.cycles is None]
