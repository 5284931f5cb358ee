"""What an engine counted of each task, in the form that the compiler's reports take."""

from __future__ import annotations

from collections.abc import Callable

from cosim.engines.engine import Engine
from sw.compiler.runtime import TaskMeasure

COMMANDS = "PC"
"""AXI client whose bytes are command words, not data."""


def task_measures(engine: Engine) -> list[TaskMeasure]:
    """Measures of all ended tasks since the engine was opened, oldest first."""
    return [
        TaskMeasure(
            cycles=record.cycles,
            bytes_read=sum(n for client, n in record.counters.bytes_read.items() if client != COMMANDS),
            bytes_written=sum(record.counters.bytes_written.values()),
            mac_busy=record.counters.events.get("mac_slots", 0),
        )
        for record in engine.task_log()
        if record.cycles is not None
    ]


def meter(engine: Engine) -> Callable[[], list[TaskMeasure]]:
    """A meter for `sw.compiler.CompiledModel.load`."""
    return lambda: task_measures(engine)
