"""When each word of a listing was written: the lines of a program with the cycles of a log or waveform."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rkcosim.regcmd.disassembler import Command, format_command
from rkcosim.regcmd.listing import task_heading
from rkcosim.regcmd.program import Program

if TYPE_CHECKING:
    from rkcosim.waves.events import EventLog

CYCLE_COLUMNS = 10
"""Width of the cycles before the lines of a listing."""

WAVE_SUFFIXES = (".vcd", ".fst")
EVENT_SUFFIXES = (".parquet", ".arrow", ".feather")


class TimingError(ValueError):
    """A log does not belong to the program; the message says what is missing."""


@dataclass(frozen=True)
class Write:
    """A register write by the PC: cycle, offset, value."""

    cycle: int
    offset: int
    value: int


@dataclass(frozen=True)
class Mark:
    """An event between writes: a task's start or end, or an interrupt."""

    cycle: int
    text: str


@dataclass
class Times:
    """The contents of a log for one core.

    Members
    -------
    writes : writes by the PC, in order.
    marks : task starts and ends, interrupts, in order.
    kicks : cycle of the first event of each kick, in order.
    """

    writes: list[Write] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    kicks: list[int] = field(default_factory=list)


def read_times(path: Path, core: int = 0, **opening: Any) -> Times:
    """Read an event log or a waveform.

    Parameters
    ----------
    opening : arguments of `rkcosim.waves.open` for a waveform.

    Raises
    ------
    EventsError, WaveError
        if it cannot be read.
    TimingError
        if the file is neither.
    FileNotFoundError
        if it does not exist.
    """
    if not path.is_file():
        raise FileNotFoundError(2, "No such file or directory", str(path))
    if path.suffix in WAVE_SUFFIXES:
        return _of_wave(path, core, opening)
    if path.suffix in EVENT_SUFFIXES:
        from rkcosim.waves.events import load

        return times_of(load(path), core)
    known = ", ".join((*EVENT_SUFFIXES, *WAVE_SUFFIXES))
    raise TimingError(f"{path}: neither an event log nor a waveform (endings: {known})")


def times_of(log: EventLog, core: int = 0) -> Times:
    """Return the writes, marks and kicks of a core in an event log."""
    times = Times()
    jobs: dict[int, int] = {}
    marks: list[Mark] = []
    for event in log:
        if event.core != core:
            continue
        if event.kind == "write" and event.reason != "host":
            times.writes.append(Write(event.cycle, event.address, event.value))
            jobs.setdefault(event.job, event.cycle)
        elif event.kind == "task":
            jobs.setdefault(event.job, event.cycle)
            marks.append(Mark(event.cycle, f"task {event.task} starts"))
            marks.append(Mark(event.end, f"task {event.task} ends"))
        elif event.kind == "irq":
            marks.append(Mark(event.cycle, "interrupt line rises"))
        elif event.kind in ("diagnostic", "fault"):
            marks.append(Mark(event.cycle, f"{event.kind}: {event.reason}"))
    times.marks = sorted(marks, key=lambda mark: mark.cycle)
    times.kicks = sorted(jobs.values())
    return times


def _of_wave(path: Path, core: int, opening: Mapping[str, Any]) -> Times:
    from rkcosim import waves

    wave = waves.open(path, **opening)
    times = Times()
    for write in wave.register_writes(core):
        if write.fetched:
            times.writes.append(Write(write.cycle, write.offset, write.value))
    marks = []
    jobs: dict[int, int] = {}
    try:
        tasks = wave.tasks()
    except waves.WaveError:  # a waveform of the bus only
        for job in wave.jobs(core):
            marks.append(Mark(job.start, f"job {job.number} starts"))
            if job.end is not None:
                marks.append(Mark(job.end, f"job {job.number} ends ({job.ended_by})"))
            jobs.setdefault(job.number, job.start)
        tasks = []
    for task in tasks:
        if task.core != core:
            continue
        marks.append(Mark(task.start, f"task {task.index} starts"))
        if task.end is not None:
            marks.append(Mark(task.end, f"task {task.index} ends"))
        jobs.setdefault(task.job, task.start)
    with suppress(waves.WaveError):
        marks += [Mark(irq.start, "interrupt line rises") for irq in wave.irqs(core)]
    with suppress(waves.WaveError):
        marks += [Mark(d.cycle, f"diagnostic: {d.code} {d.register}") for d in wave.diagnostics(core)]
    times.marks = sorted(marks, key=lambda mark: mark.cycle)
    # The words of a kick are written before its first task.
    times.kicks = sorted(jobs.values())
    return times


@dataclass(frozen=True)
class Line:
    """A word of a program with the cycle in which it was written, None if it was not."""

    task: int
    command: Command
    cycle: int | None


def align(program: Program, times: Times, job: int = 0) -> list[Line]:
    """Return every word of a program with its cycle.

    Parameters
    ----------
    job : number of the kick in the log, from 0, that ran the program.

    Raises
    ------
    TimingError
        if none of the words is in the log.
    """
    writes = _of_job(times, job)
    begun = _starts(times, job)
    lines: list[Line] = []
    at = found = 0
    for index, task in enumerate(program.tasks):
        for command in task.commands:
            cycle = None
            if command.register is not None:
                at, cycle = _next(writes, at, command)
            found += cycle is not None
            if cycle is None and command.kind == "op_enable":  # its effect is the task's start
                cycle = begun.get(index)
            lines.append(Line(index, command, cycle))
    if not found and any(line.command.register is not None for line in lines):
        raise TimingError(f"none of the words of {program.name} is among the {len(writes)} writes of the log")
    return lines


def _starts(times: Times, job: int) -> dict[int, int]:
    """Return the cycle of each task's start in a kick."""
    first = times.kicks[job] if times.kicks and job else 0
    starts: dict[int, int] = {}
    for mark in times.marks:
        words = mark.text.split()
        if mark.cycle >= first and words[0] == "task" and words[-1] == "starts":
            if int(words[1]) in starts:
                break  # the next kick
            starts[int(words[1])] = mark.cycle
    return starts


_AHEAD = 64
"""Maximum number of writes by others that may be skipped to find a word."""


def _next(writes: list[Write], at: int, command: Command) -> tuple[int, int | None]:
    for number in range(at, min(len(writes), at + _AHEAD)):
        write = writes[number]
        if write.value == command.value and write.offset == command.offset:
            return number + 1, write.cycle
    return at, None


def _of_job(times: Times, job: int) -> list[Write]:
    """Return the writes of a kick: from the end of the kick before to its end."""
    if job < 0 or (times.kicks and job >= len(times.kicks)):
        raise TimingError(f"the log has {len(times.kicks)} jobs, none of them has the number {job}")
    if not job:
        return times.writes
    ends = [mark.cycle for mark in times.marks if mark.text.startswith("interrupt")]
    before = [cycle for cycle in ends if cycle <= times.kicks[job]]
    start = before[-1] if before else 0
    return [write for write in times.writes if write.cycle >= start]


def interleaved(lines: Iterable[Line], marks: Iterable[Mark]) -> list[Line | Mark]:
    """Return lines with the marks between them, ordered by cycle."""
    left = list(marks)
    out: list[Line | Mark] = []
    for line in lines:
        while line.cycle is not None and left and left[0].cycle <= line.cycle:
            out.append(left.pop(0))
        out.append(line)
    return out + left


def timed_line(line: Line, mark: str = " ") -> str:
    """Return a line of a listing behind its cycle and a mark."""
    cycle = "-" if line.cycle is None else str(line.cycle)
    return f"{mark}{cycle:>{CYCLE_COLUMNS}}  {format_command(line.command)}"


def timed_lines(program: Program, times: Times, job: int = 0) -> list[str]:
    """Return a listing with the cycle in which each word was written, and the events between the words.

    Parameters and errors are those of `align`.
    """
    lines, text, last = align(program, times, job), [], -1
    written = [line.cycle for line in lines if line.cycle is not None]
    shown = [mark for mark in times.marks if not written or mark.cycle >= written[0]]
    for item in interleaved(lines, shown):
        if isinstance(item, Line):
            if item.task != last:
                task = program.tasks[item.task]
                text.append(task_heading(item.task, task))
                text += [] if task.address is None else [f".task 0x{task.address:08X}"]
                last = item.task
            text.append(timed_line(item))
        else:
            text.append(f"# ---- cycle {item.cycle}: {item.text}")
    # The log does not contain link and amount words, because they do not leave the PC.
    named = (line.command.register for line in lines if line.cycle is None)
    if missing := sum(register is not None and register.block != "PC" for register in named):
        text.append(f"# {missing} register words of the listing are not in the log")
    return text


def around(lines: list[Line], cycle: int, context: int) -> tuple[int, list[Line]]:
    """Return the last line written up to a cycle, with some lines before and after it.

    Returns
    -------
    Index of that line in the result (-1: none was written yet), and the lines.
    """
    at = -1
    for number, line in enumerate(lines):
        if line.cycle is not None and line.cycle <= cycle:
            at = number
    first = max(0, at - context)
    return at - first if at >= 0 else -1, lines[first : max(at, 0) + context + 1]
