"""Breakpoints: where a run stops, and under which condition."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from rkcosim.base import Error
from rkcosim.debug.opening import Debugged
from rkcosim.debug.places import ListingPlace, SourceText
from rkcosim.regcmd.named import named
from rkcosim.regcmd.word import RegcmdError
from rkcosim.spec.regs import Field, Register, registers

KINDS = (
    "position",
    "job",
    "register",
    "memory",
    "interrupt",
    "diagnostic",
    "deviation",
    "difference",
    "cycle",
)


class BreakpointError(Error, ValueError):
    """A breakpoint cannot be set; the message says what is possible."""


@dataclass
class Breakpoint:
    """A place or an event at which a run stops.

    Members
    -------
    number : its number, from 1.
    kind : one of `KINDS`.
    text : what the user asked for.
    condition : expression that must be true, "" for none.
    place : the position, for kind "position".
    register, part : what is written, for kind "register".
    ranges : (first byte, number of bytes), for kind "memory".
    access : "write", "read" or "access", for kind "memory".
    cycle : the cycle, for kind "cycle".
    enabled, hits, temporary : whether it counts, how often it stopped, and whether it is deleted then.
    """

    number: int
    kind: str
    text: str
    condition: str = ""
    place: ListingPlace | None = None
    register: Register | None = None
    part: Field | None = None
    ranges: list[tuple[int, int]] = field(default_factory=list)
    access: str = "write"
    cycle: int = 0
    enabled: bool = True
    hits: int = 0
    temporary: bool = False

    @property
    def fine(self) -> bool:
        """Whether every word must be looked at."""
        return self.kind == "register" or (self.place is not None and self.place.word > 0)

    def __str__(self) -> str:
        condition = f" if {self.condition}" if self.condition else ""
        state = "" if self.enabled else ", disabled"
        return f"{self.text}{condition}{state}"


def parse_breakpoint(
    number: int,
    text: str,
    work: Debugged,
    source: SourceText,
    *,
    here: ListingPlace | None = None,
    cycles: bool = False,
) -> Breakpoint:
    """Return the breakpoint that a text describes.

    The text is `LINE`, `task N`, `task N@JOB`, `node NAME`, `BLOCK.REGISTER`, `BLOCK.REGISTER.FIELD`,
    `job`, `interrupt`, `diagnostic`, `deviation`, `cycle N`, or an address range (`watched`), and may end
    with `if EXPRESSION`.

    Parameters
    ----------
    here : the present position, whose job `task N` means.
    cycles : whether what runs has cycles.

    Raises
    ------
    BreakpointError
        if it is none of these.
    """
    asked, condition = _divided(text)
    made = Breakpoint(number, "position", asked, condition)
    if re.fullmatch(r"(line\s+)?\d+", asked):
        line = int(asked.split()[-1])
        found = source.place_of(line) if 1 <= line <= len(source.lines) else None
        if found is None:
            raise BreakpointError(
                f"line {line} has no command word at or after it; the listing has {len(source.lines)}"
            )
        made.place, made.text = found[0], f"line {found[1]}"
        return made
    if task := re.fullmatch(r"task[\s:]+(\d+)(?:@(\d+))?", asked):
        job = int(task[2]) if task[2] else 0 if here is None else here.job
        return _at_task(made, work, job, int(task[1]))
    if node := re.fullmatch(r"node[\s:]+(.+)", asked):
        return _at_node(made, work, node[1].strip())
    if asked in ("job", "interrupt", "diagnostic", "deviation") or (asked == "difference" and cycles):
        made.kind = asked
        return made
    if re.match(r"cycle\b", asked):
        return _at_cycle(made, asked, cycles)
    if re.fullmatch(r"[A-Z_]+\.\w+(\.\w+)?", asked):
        made.kind = "register"
        made.register, made.part = register_named(asked)
        made.text = f"write of {asked}"
        return made
    nodes = {name for job in work.jobs for name in job.nodes}
    if asked in nodes:
        return _at_node(made, work, asked)
    raise BreakpointError(
        f"{asked!r} is no place: give a line number, task N, task N@JOB, node NAME, BLOCK.REGISTER, "
        "BLOCK.REGISTER.FIELD, job, interrupt, diagnostic, deviation or cycle N"
    )


def _at_cycle(made: Breakpoint, asked: str, cycles: bool) -> Breakpoint:
    found = re.fullmatch(r"cycle\s+(\d+)", asked)
    if found is None:
        raise BreakpointError(f"{asked!r}: a cycle is a number, as in `cycle 4000`")
    if not cycles:
        raise BreakpointError(
            "the golden model counts no cycles: debug on the RTL with --engine verilator, or stop at a task "
            "and write the cycles from there on with `trace`"
        )
    made.kind, made.cycle = "cycle", int(found[1])
    return made


def _divided(text: str) -> tuple[str, str]:
    """Divide a text at its `if`."""
    found = re.search(r"(?:^|\s)if\s+(.+)$", text.strip())
    return (text.strip(), "") if found is None else (text.strip()[: found.start()].strip(), found[1].strip())


def register_named(path: str) -> tuple[Register, Field | None]:
    """Return the register and the field of `BLOCK.REGISTER`, `BLOCK.REGISTER.FIELD` or `BLOCK.FIELD`.

    Raises
    ------
    BreakpointError
        if there is none; the message has similar names.
    """
    parts = path.split(".")
    block = registers().blocks.get(parts[0])
    if block is not None and len(parts) == 2 and parts[1] not in block.registers:
        owners = [register for register in block if parts[1] in register.fields]
        if len(owners) == 1:
            return owners[0], owners[0].fields[parts[1]]
        if owners:
            text = ", ".join(f"{owner.path}.{parts[1]}" for owner in owners)
            raise BreakpointError(f"{path}: several registers have this field: {text}")
    try:
        return named(path)
    except RegcmdError as error:
        raise BreakpointError(str(error)) from None


def _at_task(made: Breakpoint, work: Debugged, job: int, task: int) -> Breakpoint:
    if job >= len(work.jobs):
        raise BreakpointError(f"there is no job {job}; there are {len(work.jobs)}, from 0 on")
    count = len(work.jobs[job].program.tasks)
    if task >= count:
        raise BreakpointError(f"job {job} has no task {task}; it has {count}, from 0 on")
    made.place, made.text = ListingPlace(job, task, 0), f"task {task}" + (f"@{job}" if job else "")
    return made


def _at_node(made: Breakpoint, work: Debugged, name: str) -> Breakpoint:
    for number, job in enumerate(work.jobs):
        if name in job.nodes:
            made.place, made.text = ListingPlace(number, job.nodes.index(name), 0), f"node {name}"
            return made
    known = list(dict.fromkeys(node for job in work.jobs for node in job.nodes if node))
    shown = ", ".join(known[:12]) + (", ..." if len(known) > 12 else "")
    raise BreakpointError(
        f"no node {name!r} runs on the NPU"
        + (f"; there are {shown}" if known else "; a stream has only tasks")
    )


def watched(number: int, text: str, access: str, work: Debugged) -> Breakpoint:
    """Return the breakpoint on accesses to memory: a tensor's name, a region's, `A..B` or `A+SIZE`.

    Raises
    ------
    BreakpointError
        if the text is none of these.
    """
    asked, condition = _divided(text)
    made = Breakpoint(number, "memory", f"{access} of {asked}", condition, access=access)
    if asked in work.tensors:
        first, end = work.tensors[asked].span
        made.ranges = [(first, end - first)]
        return made
    if asked in work.regions:
        region = work.regions[asked]
        made.ranges = [(region.address, region.data.size)]
        return made
    found = re.fullmatch(r"(0x[0-9A-Fa-f]+|\d+)\s*(\.\.|\+)\s*(0x[0-9A-Fa-f]+|\d+)", asked)
    if found is None and re.fullmatch(r"0x[0-9A-Fa-f]+|\d+", asked):
        made.ranges = [(int(asked, 0), 16)]
        return made
    if found is None:
        raise BreakpointError(
            f"{asked!r} is no memory: give a tensor, a region, FIRST..END, FIRST+SIZE or BLOCK.REGISTER"
        )
    first, other = int(found[1], 0), int(found[3], 0)
    size = other if found[2] == "+" else other - first
    if size <= 0 or first + size > 1 << 32:
        raise BreakpointError(f"{asked}: a range has at least one byte and ends at 2^32 at most")
    made.ranges = [(first, size)]
    return made


def overlaps(ranges: list[tuple[int, int]], others: Any) -> tuple[int, int] | None:
    """Return the first of `others`, (first byte, number of bytes), that overlaps one of `ranges`."""
    for first, size in others:
        for start, length in ranges:
            if first < start + length and start < first + size:
                return first, size
    return None
