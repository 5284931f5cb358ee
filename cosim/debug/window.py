"""A waveform of the cycles from a task on, and the comparison of RTL and golden model in lock step."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

from rkcosim.base import Error
from rkcosim.verify.crosscheck.kick import start
from rkcosim.verify.streams.contents import StreamContents
from rkcosim.waves.spec import TraceSpec, When

CHUNK = 4096
"""Cycles between two looks at the log of tasks."""

MAX_CYCLES = 10_000_000
"""Bound of the cycles until the task starts, and of those of a window."""


class WindowError(Error, ValueError):
    """No waveform can be written; the message gives the reason."""


def write_window(
    stream: StreamContents,
    task: int,
    cycles: int,
    path: Path,
    *,
    engine: str | None = None,
    max_cycles: int = MAX_CYCLES,
    scopes: tuple[str, ...] = (),
) -> tuple[int, int]:
    """Run a kick on an engine with cycles, and write a waveform from the start of a task on.

    The kick runs twice up to there: once to find the cycle of the start, and once with the waveform.

    Parameters
    ----------
    engine : name of the engine; None: the default.
    max_cycles : bound of the cycles up to the start of the task.

    Returns
    -------
    The first cycle, and the one after the last.

    Raises
    ------
    WindowError
        if the task does not start.
    SpecError, WaveformError
        for a file or an engine with which no waveform can be written.
    """
    check_window(cycles, path, max_cycles)
    with closing(_opened(engine, stream, traced=True)) as device:
        first = _start_of(device, stream, task, max_cycles)
    spec = TraceSpec(path, scopes=scopes, start=When.parse(first), stop=When.parse(first + cycles))
    with closing(_opened(engine, stream, trace=spec)) as device:
        _load(device, stream)
        while device.cycle < first + cycles:
            if device.run_until_irq(1 << stream.core, first + cycles - device.cycle):
                device.run(max(0, first + cycles - device.cycle))
    return first, first + cycles


def check_window(cycles: int, path: Path, max_cycles: int = MAX_CYCLES) -> None:
    """Raise WindowError or SpecError for a window that cannot be written, before anything runs."""
    if not 1 <= cycles <= max_cycles:
        raise WindowError(f"a window has 1 to {max_cycles} cycles, not {cycles}")
    TraceSpec(path)


def _opened(engine: str | None, stream: StreamContents, **settings: Any) -> Any:
    from rkcosim.engines.engine import open_engine

    return open_engine(engine, cores=stream.core + 1, on_diagnostic="go on", **settings)


def _load(device: Any, stream: StreamContents) -> None:
    stream.load_into(device.memory)
    start(device, stream.kick, stream.core, stream.writes)


def _start_of(device: Any, stream: StreamContents, task: int, max_cycles: int) -> int:
    """Run until a task has started; return the cycle of its start."""
    _load(device, stream)
    while True:
        for record in device.task_log():
            if (record.core, record.task) == (stream.core, task):
                return int(record.start)
        if device.cycle >= max_cycles or device.run_until_irq(1 << stream.core, CHUNK):
            records = device.task_log()
            if not any((record.core, record.task) == (stream.core, task) for record in records):
                state = device.block_state(stream.core)
                raise WindowError(
                    f"task {task} has not started up to cycle {device.cycle}, {len(records)} tasks "
                    f"have:\n{state}"
                )
