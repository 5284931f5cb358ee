"""Where in a waveform a moment of a run is (the words of `waves.spec.When`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from waves.errors import WaveError
from waves.spec import When

if TYPE_CHECKING:
    from waves.reader import Wave


def cycle_of(wave: Wave, when: When, *, end: bool = False) -> int:
    """Cycle of a moment; with `end` the end of a task or layer instead of its start.

    Raises
    ------
    WaveError
        if the waveform does not show it.
    """
    if when.kind == "cycle":
        return when.cycle
    if when.kind == "task":
        return _task(wave, when, end)
    if when.kind == "layer":
        return _layer(wave, when, end)
    if when.kind == "write":
        for write in wave.register_writes():
            if write.offset == when.offset and write.value & when.mask == when.value & when.mask:
                return write.cycle
    elif when.kind == "error":
        seen = wave.diagnostics()
        if seen:
            return seen[0].cycle
    else:
        raise WaveError(f"'{when.text}': a waveform does not tell; give a cycle, task or layer")
    raise WaveError(f"{wave.file}: '{when.text}' does not happen in this waveform")


def _layer(wave: Wave, when: When, end: bool) -> int:
    tasks = [task for task in wave.tasks() if task.layer == when.layer]
    if tasks:
        return max(wave.last if t.end is None else t.end for t in tasks) if end else tasks[0].start
    there = ", ".join(dict.fromkeys(task.layer for task in wave.tasks() if task.layer)) or "none"
    raise WaveError(f"{wave.file}: '{when.text}': no such layer (there are: {there})")


def _task(wave: Wave, when: When, end: bool) -> int:
    tasks = wave.tasks()
    for task in tasks:
        if task.index == when.task and when.job in (None, task.job):
            if not end:
                return task.start
            return wave.last if task.end is None else task.end
    there = ", ".join(f"{task.index}@{task.job}" for task in tasks[:8]) or "none"
    more = ", ..." if len(tasks) > 8 else ""
    raise WaveError(f"{wave.file}: '{when.text}': no such task (there are: {there}{more})")
