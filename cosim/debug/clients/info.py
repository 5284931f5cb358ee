"""What the command `info` of the terminal shows: one function for each of its words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from rkcosim.base import Error
from rkcosim.debug.base import BaseSession
from rkcosim.debug.layout import atom_addresses, held_atoms
from rkcosim.debug.places import task_title
from rkcosim.debug.texts import register_lines
from rkcosim.spec.regs import registers

MOST_SIGNALS = 200
"""Signals of a block that are printed."""


class CommandError(Error, ValueError):
    """A command cannot be carried out; the message says why."""


def _breakpoints(session: BaseSession, _: str) -> Iterator[str]:
    for one in session.breakpoints.values():
        times = "once" if one.hits == 1 else f"{one.hits} times"
        yield f"{one.number:3}  {one}, stopped {times}"
    if not session.breakpoints:
        yield "no breakpoints"


def _registers(session: BaseSession, text: str) -> Iterator[str]:
    words = text.split()
    blocks = registers().blocks
    named = [words[0].upper()] if words else session.title.partition(": ")[2].split()
    if wrong := [name for name in named if name not in blocks]:
        raise CommandError(f"no block {wrong[0]}; there are {', '.join(blocks)}")
    if len(words) > 1 and words[1] not in ("0", "1"):
        raise CommandError(f"a block has the register groups 0 and 1, not {words[1]!r}")
    group = int(words[1]) if len(words) > 1 else None
    for name in named:
        yield from register_lines(session, name, group)


def _tensors(session: BaseSession, _: str) -> Iterator[str]:
    for name, place in session.work.tensors.items():
        made = "input"
        if place.task is not None:
            made = f"of task {place.task}" + (f"@{place.job}" if place.job else "")
        right = ", has a reference" if name in session.references else ""
        yield (
            f"{name}: {'x'.join(map(str, place.cube))} {place.dtype} at 0x{place.span[0]:08X}, {made}{right}"
        )


def _layout(session: BaseSession, text: str) -> Iterator[str]:
    found = re.fullmatch(r"(\S+|'[^']+')(?:\s+(\d+))?(?:\s+(\d+))?", text.strip())
    name = "" if found is None else found[1].strip("'")
    if found is None or name not in session.work.tensors:
        known = ", ".join(session.work.tensors) or "none"
        raise CommandError(f"info layout TENSOR [FIRST [COUNT]]: there are the tensors {known}")
    place = session.work.tensors[name]
    first, count = int(found[2] or 0), int(found[3] or 16)
    atoms = held_atoms(place, session.memory, first, count)
    yield from map(str, atoms)
    total, end = atom_addresses(place).size, first + len(atoms)
    if end < total:
        yield f"{total - end} of {total} atoms follow: info layout {found[1]} {end}"


def _regions(session: BaseSession, _: str) -> Iterator[str]:
    for name, region in session.work.regions.items():
        yield f"{name}: {region.data.size} bytes at 0x{region.address:08X}"


def _tasks(session: BaseSession, _: str) -> Iterator[str]:
    here = session.place
    for number, job in enumerate(session.work.jobs):
        for task in range(len(job.program.tasks)):
            mark = "*" if (number, task) == (here.job, here.task) else " "
            head = f"job {number}, " if len(session.work.jobs) > 1 else ""
            yield f"{mark} {head}{task_title(session.work, number, task)}"


def _nodes(session: BaseSession, _: str) -> Iterator[str]:
    for number, job in enumerate(session.work.jobs):
        for node in dict.fromkeys(job.nodes):
            tasks = [str(task) for task, name in enumerate(job.nodes) if name == node]
            yield f"{node or '(no node)'}: job {number}, tasks {', '.join(tasks)}"


def _threads(session: BaseSession, _: str) -> Iterator[str]:
    running = session.running_jobs
    for number, job in enumerate(session.work.jobs):
        mark = "*" if number == session.job else "+" if number in running else " "
        here = f", {session.position_of(number)}" if number in running and len(running) > 1 else ""
        yield f"{mark} job {number}: core {job.stream.core}, {len(job.program.tasks)} tasks{here}"


def _line(session: BaseSession, _: str) -> Iterator[str]:
    more = session.position_text()
    yield f"line {session.line}, {session.place}" + (f", {more}" if more else "")


def _block(session: BaseSession, text: str) -> Iterator[str]:
    name, _, part = text.strip().partition(".")
    if not name:
        raise CommandError(
            f"info block needs a name: {', '.join(session.signal_blocks()) or 'none is known'}"
        )
    signals = [one for one in session.inside(name.upper()) if one[0].startswith(part)]
    if not signals:
        raise CommandError(f"{name} has no signals that begin with {part!r}")
    yield f"{text.strip()}:"
    for signal, value in signals[:MOST_SIGNALS]:
        yield f"  {signal} = {value if value < 10 else f'0x{value:X}'}"
    if len(signals) > MOST_SIGNALS:
        yield f"  ... and {len(signals) - MOST_SIGNALS} more: name a part, as in `info block DPU.pipe`"


KNOWN: dict[str, Callable[[BaseSession, str], Iterator[str]]] = {
    "breakpoints": _breakpoints,
    "registers": _registers,
    "block": _block,
    "state": lambda session, _: iter(session.state_lines()),
    "tensors": _tensors,
    "regions": _regions,
    "layout": _layout,
    "tasks": _tasks,
    "nodes": _nodes,
    "threads": _threads,
    "line": _line,
    "counters": lambda session, _: iter(session.counter_lines()),
    "history": lambda session, _: iter(session.history_lines()),
}
"""Function of each word: (session, what follows the word) -> lines."""
