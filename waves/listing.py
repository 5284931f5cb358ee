"""Everything that a waveform shows of a core's work, as lines of text and as values for JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from rkcosim.regcmd import format_command
from rkcosim.waves.accesses import Access
from rkcosim.waves.bursts import Burst, Region, regions
from rkcosim.waves.decode import DiagnosticSeen, Irq, RegisterWrite, Wave, WaveTask
from rkcosim.waves.files import WaveError
from rkcosim.waves.jobs import Job

T = TypeVar("T")


@dataclass
class Listed:
    """What is decoded from a waveform.

    Members
    -------
    tasks, jobs, accesses, writes, bursts, regions, irqs, diagnostics : as the methods of `Wave` return them;
        `writes` are those of command lists.
    lacking : name of each member that the waveform does not show, with the reason.
    """

    wave: Wave
    tasks: list[WaveTask] = field(default_factory=list)
    jobs: list[Job] = field(default_factory=list)
    accesses: list[Access] = field(default_factory=list)
    writes: list[RegisterWrite] = field(default_factory=list)
    bursts: list[Burst] = field(default_factory=list)
    regions: list[Region] = field(default_factory=list)
    irqs: list[Irq] = field(default_factory=list)
    diagnostics: list[DiagnosticSeen] = field(default_factory=list)
    lacking: dict[str, str] = field(default_factory=dict)


def listed(wave: Wave) -> Listed:
    """Decode everything that the waveform shows."""
    found = Listed(wave)

    def take(name: str, method: Callable[[], list[Any]]) -> None:
        try:
            setattr(found, name, method())
        except WaveError as error:
            found.lacking[name] = str(error).removeprefix(f"{wave.file}: ")

    take("tasks", wave.tasks)
    take("jobs", wave.jobs)
    take("accesses", wave.accesses)
    take("writes", lambda: [write for write in wave.register_writes() if write.fetched])
    take("bursts", wave.bursts)
    take("irqs", wave.irqs)
    take("diagnostics", wave.diagnostics)
    found.regions = regions(found.bursts)
    return found


def as_json(found: Listed) -> dict[str, Any]:
    """Return the listing as values for JSON; addresses and registers are numbers."""
    return {
        "jobs": [_job(job) for job in found.jobs],
        "accesses": [
            {**asdict(access), "register": access.path, "fields": access.fields, "text": access.text}
            for access in found.accesses
        ],
        "writes": [{**asdict(write), "text": write.text} for write in found.writes],
        "bursts": [asdict(burst) for burst in found.bursts],
        "regions": [asdict(region) for region in found.regions],
        "lacking": found.lacking,
    }


def _job(job: Job) -> dict[str, Any]:
    tasks = [
        {
            "task": task.index,
            "address": task.address,
            "words": list(task.words),
            "cycles": list(task.cycles),
            "blocks": list(task.blocks),
            "start": task.start,
            "end": task.end,
        }
        for task in job.tasks
    ]
    return {**asdict(job), "tasks": tasks, "registers": dict(job.registers)}


def lines(found: Listed) -> Iterator[str]:
    """Yield the listing as text: one part for each kind of thing, in the order of cycles."""
    yield from _part("jobs", found, found.jobs, _job_lines)
    yield from _part("host accesses", found, found.accesses, _access_lines, "accesses")
    yield from _part("command words", found, found.jobs, _word_lines, "jobs")
    yield from _part("bursts", found, found.bursts, _burst_lines)
    if found.regions:
        yield from _part("memory", found, found.regions, _region_lines)
    yield from _part("interrupts", found, found.irqs, _irq_lines, "irqs")
    if found.diagnostics:
        yield from _part("diagnostics", found, found.diagnostics, _diagnostic_lines)


def _part(
    title: str,
    found: Listed,
    items: Sequence[T],
    text: Callable[[Sequence[T]], Iterator[str]],
    member: str = "",
) -> Iterator[str]:
    yield f"{title}:"
    why = found.lacking.get(member or title)
    own = [f"  {why}"] if why else list(text(items))
    yield from own or ["  none"]


def _cycle(value: int | None) -> str:
    return f"{'-' if value is None else value:>9}"


def _job_lines(jobs: Sequence[Job]) -> Iterator[str]:
    for job in jobs:
        count = len(job.tasks)
        how = "blocks started by the host" if job.direct else f"{count} task{'s' * (count != 1)}"
        end = f"to {job.end} ({job.ended_by})" if job.end is not None else "without an end"
        status = "" if job.status is None else f", status 0x{job.status:05X}"
        cleared = "" if job.cleared is None else f", cleared at {job.cleared}"
        yield f"  job {job.number}, core {job.core}: {how}, cycles {job.start} {end}{status}{cleared}"
        for task in job.tasks:
            parts = [f"list at 0x{task.address:08X}"] if task.address is not None else []
            parts += [f"{len(task.words)} words"] if task.words else []
            parts += [" ".join(task.blocks)] if task.blocks else []
            if task.start is not None:
                ends = "without an end" if task.end is None else f"to {task.end}"
                parts.append(f"cycles {task.start} {ends}")
            yield f"    task {task.index}: {', '.join(parts) or 'its list is not in the waveform'}"
        if job.stopped:
            yield f"    {job.stopped}"


def _access_lines(accesses: Sequence[Access]) -> Iterator[str]:
    for access in accesses:
        wait = "no response" if access.end is None else f"{access.end - access.start} cycles"
        kind = "reads" if access.direction == "read" else "writes"
        yield f"{_cycle(access.accepted)}  core {access.core} {kind:6} {access.text}  [{wait}]"


def _word_lines(jobs: Sequence[Job]) -> Iterator[str]:
    for job in jobs:
        for task in job.tasks:
            if task.words:
                yield f"  job {job.number}, task {task.index}"
            for command, cycle in zip(task.commands, task.cycles, strict=True):
                yield f"{_cycle(cycle)}  {format_command(command)}"


def _burst_lines(bursts: Sequence[Burst]) -> Iterator[str]:
    for burst in bursts:
        kind = "reads" if burst.direction == "read" else "writes"
        rest = "  (error)" if burst.error else ""
        yield (
            f"{_cycle(burst.start)} to {_cycle(burst.end).strip():>9}  core {burst.core} "
            f"{burst.client:7} {kind:6} 0x{burst.address:08X}, {burst.beats} beats, {burst.bytes} bytes{rest}"
        )


def _region_lines(found: Sequence[Region]) -> Iterator[str]:
    for region in found:
        kind = "reads" if region.direction == "read" else "writes"
        yield (
            f"  core {region.core} {region.client:7} {kind:6} 0x{region.first:08X} to 0x{region.end:08X}: "
            f"{region.bursts} bursts, {region.bytes} bytes"
        )


def _irq_lines(irqs: Sequence[Irq]) -> Iterator[str]:
    for irq in irqs:
        yield f"{_cycle(irq.start)} to {_cycle(irq.end).strip():>9}  core {irq.core}"


def _diagnostic_lines(seen: Sequence[DiagnosticSeen]) -> Iterator[str]:
    for one in seen:
        yield f"{_cycle(one.cycle)}  core {one.core}  {one.code} at {one.register}, value {one.value:#x}"
