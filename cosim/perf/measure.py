"""What an engine counted of each task, in the form that the compiler's reports take."""

from __future__ import annotations

from collections.abc import Callable

from cosim.engines.engine import Engine
from sw.compiler.runtime import TaskMeasure

COMMANDS = "PC"
"""AXI client whose bytes are command words, not data."""


def meter(engine: Engine) -> Callable[[], list[TaskMeasure]]:
    """A meter for `sw.compiler.CompiledModel.load`: measures of all ended tasks, oldest first."""
    measures: list[TaskMeasure] = []

    def read() -> list[TaskMeasure]:
        for record in engine.task_log()[len(measures) :]:
            if record.cycles is None:
                break
            counters = record.counters
            measures.append(
                TaskMeasure(
                    cycles=record.cycles,
                    bytes_read=sum(n for client, n in counters.bytes_read.items() if client != COMMANDS),
                    bytes_written=sum(counters.bytes_written.values()),
                    mac_busy=counters.events.get("mac_slots", 0),
                    events=counters.events,
                    read_by=counters.bytes_read,
                    written_by=counters.bytes_written,
                    core=record.core,
                    start=record.start,
                )
            )
        return measures

    return read
