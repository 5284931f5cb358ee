"""Runs of a stream on an engine: their results, and the comparison with the golden model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from rkcosim.base.html import table
from rkcosim.engines.arrays import PAGE
from rkcosim.engines.protocol import (
    DiagnosticError,
    EngineError,
    JobError,
    JobTimeout,
    MemoryAccessError,
)
from rkcosim.golden.task import GoldenError
from rkcosim.regcmd.named import named
from rkcosim.spec.interrupts import interrupt_names
from rkcosim.spec.regs import registers
from rkcosim.verify.crosscheck.kick import start
from rkcosim.verify.streams.contents import Region, StreamContents, runs_of

if TYPE_CHECKING:
    from rkcosim.waves.events import EventLog

Shape = tuple[tuple[int, ...], np.dtype[Any]]
"""Shape and type of a named array."""


class TaskTime(NamedTuple):
    """One task of a run: its index, and the cycles of its start and end (None: not known, or not ended)."""

    task: int
    start: int | None
    end: int | None

    @property
    def cycles(self) -> int | None:
        """Cycles from start to end, None if the engine counts none or the task has not ended."""
        return None if self.start is None or self.end is None else self.end - self.start


class RegisterChange(NamedTuple):
    """A write of a register in a run: its cycle, and the 32 bits written."""

    cycle: int
    value: int


@dataclass(frozen=True)
class StreamVerdict:
    """Result of a comparison; it is true if everything is equal.

    Members
    -------
    match : whether all compared bytes are equal.
    text : one line for people.
    where : what differs, as text; "" for nothing.
    difference : the first difference: `task`, `block`, `surface`, `row`, `column`, `channel`, `address`,
        `ours`, `theirs` and `differing` (the number of bytes of that output), as far as known; {} for none.
    """

    match: bool
    text: str
    where: str = ""
    difference: Mapping[str, Any] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return self.match

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<{self.text}>"


class RegionImage:
    """Regions as a memory that can be read."""

    def __init__(self, regions: list[Region]) -> None:
        self.regions = regions

    @property
    def ranges(self) -> dict[int, int]:
        """Size of each region by its first address."""
        return {region.address: region.data.size for region in self.regions}

    def view(self, iova: int, size: int, /) -> npt.NDArray[np.uint8]:
        """Return bytes of one region; raises MemoryAccessError for others."""
        for region in self.regions:
            first = iova - region.address
            if 0 <= first and first + size <= region.data.size:
                return region.data[first : first + size]
        raise MemoryAccessError(f"{size:#x} bytes at {iova:#x} are in no region of the stream")


@dataclass(frozen=True, repr=False)
class StreamResult:
    """What a run of a stream or a task list has done.

    `result["output"]` is an array of its memory after the run: of a buffer of a `TaskList` with the buffer's
    shape and type, of a region of a stream its bytes, uint8 of shape (size,).

    Members
    -------
    stream : what was run.
    engine : name of the engine.
    core : number of the core.
    done : whether the core raised its interrupt.
    cycles : cycles from the start to the interrupt; None if the engine counts none.
    status : PC.INTERRUPT_STATUS after the run.
    tasks : times of the tasks, in the order of their starts; without times if the engine counts no cycles.
    diagnostics : diagnostics of the core in this run, oldest first.
    regions : memory after the run.
    events : the event log of the run, if it was asked for.
    """

    stream: StreamContents
    engine: str
    core: int
    done: bool
    cycles: int | None
    status: int
    state: str
    tasks: tuple[TaskTime, ...]
    diagnostics: tuple[Any, ...]
    regions: list[Region]
    options: frozenset[str] = frozenset()
    shapes: Mapping[str, Shape] = field(default_factory=dict)
    events: EventLog | None = None

    @property
    def interrupts(self) -> tuple[str, ...]:
        """Names of the events in `status`, as "PPU_0"."""
        return tuple(interrupt_names(self.status))

    def keys(self) -> list[str]:
        """Names of the arrays."""
        return [region.name for region in self.regions]

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        """Return an array; raises KeyError that names the existing ones."""
        for region in self.regions:
            if region.name == name:
                if name in self.shapes:
                    shape, dtype = self.shapes[name]
                    return region.data.view(dtype).reshape(shape)
                return region.data
        raise KeyError(
            f"the run has no buffer or region {name!r}; it has {', '.join(map(repr, self.keys()))}"
        )

    def writes(self, path: str) -> list[RegisterChange]:
        """Return every write of a register in this run, by the host and by the PC.

        Parameters
        ----------
        path : `BLOCK.REGISTER`.

        Raises
        ------
        ValueError
            if the run recorded no events, or for an unknown register.
        """
        if self.events is None:
            raise ValueError("the run recorded no events: run(events=True) does")
        register, _ = named(path)
        rows = self.events.where(kind="write", core=self.core)
        return [RegisterChange(row.cycle, row.value) for row in rows if row.address == register.offset]

    def dump(self) -> str:
        """Return the listing with the cycle of each word, as `rkcosim regcmd dump --events`.

        Raises
        ------
        ValueError
            if the run recorded no events.
        """
        from rkcosim.verify.streams.programs import program_of_stream
        from rkcosim.verify.streams.timing import timed_lines, times_of

        if self.events is None:
            raise ValueError("the run recorded no events: run(events=True) does")
        program = program_of_stream(self.stream)
        return "\n".join(timed_lines(program, times_of(self.events, self.core)))

    def compare(self, against: StreamResult | None = None) -> StreamVerdict:
        """Compare all memory after the run with the golden model, or with another run.

        Parameters
        ----------
        against : the result of another run; None: the stream is run on the golden model.

        Raises
        ------
        GoldenError
            if the golden model refuses the stream, which an engine with `on_diagnostic="go on"` runs.
        """
        if against is not None:
            return _compared(self, RegionImage(against.regions), against.engine, against.engine)
        from rkcosim.golden.task import GoldenNpu
        from rkcosim.verify.crosscheck.kick import run_kick

        golden = GoldenNpu(self.core + 1, options=self.options)
        self.stream.load_into(golden.memory)
        if not run_kick(golden, self.stream.kick, self.core, writes=self.stream.writes).done:
            hang = "the golden model hangs"
            return StreamVerdict(False, f"MISMATCH: {hang}, the engine does not", hang)
        return _compared(self, golden.memory, "golden", "task golden")

    def __repr__(self) -> str:
        count = len(self.tasks)
        end = ", ".join(self.interrupts) if self.done else "not ended"
        time = "no cycles" if self.cycles is None else f"{self.cycles:,} cycles"
        more = f", {len(self.diagnostics)} diagnostics" if self.diagnostics else ""
        return f"<run on {self.engine}: {count} task{'' if count == 1 else 's'}, {time}, {end}{more}>"

    def _repr_html_(self) -> str:
        rows = [(t.task, t.start, t.end, t.cycles) for t in self.tasks]
        shown = [["-" if value is None else f"{value:,}" for value in row] for row in rows]
        return table(repr(self)[1:-1], ("task", "start", "end", "cycles"), shown)


def _compared(result: StreamResult, theirs: Any, short: str, name: str) -> StreamVerdict:
    """Compare the memory of a run, region by region."""
    from rkcosim.verify.crosscheck.compare import compare_images
    from rkcosim.verify.differences.streams import first_byte
    from rkcosim.verify.streams.contents import Expected

    ours, total = RegionImage(result.regions), 0
    for region in result.regions:
        total += region.data.size
        first = compare_images(ours, theirs, [(region.address, region.data.size)])
        if first is None:
            continue
        where = (
            f"region '{region.name}': {first.count} bytes differ, first at 0x{first.address:08X}: "
            f"{result.engine} {first.rtl}, {short} {first.golden}"
        )
        wanted = [Region(r.name, r.address, theirs.view(r.address, r.data.size)) for r in result.regions]
        finding = first_byte(result.stream, ours, Expected(wanted), result.engine, short)
        facts = dict(finding.data) if finding is not None else {}
        return StreamVerdict(
            False, f"MISMATCH: {where}", where, {**facts, "region": region.name, "first": first.address}
        )
    count = len(result.regions)
    return StreamVerdict(True, f"match: {result.engine} = {name} in all {total} bytes of {count} regions")


_placed: WeakKeyDictionary[Any, dict[int, int]] = WeakKeyDictionary()
"""By memory: the ranges that runs in progress have mapped, with the core of each."""


def place(contents: StreamContents, memory: Any, core: int) -> list[int]:
    """Map and fill the regions of a stream; returns the first addresses of the new ranges.

    Memory that the host has mapped before is used as it is.

    Raises
    ------
    MemoryAccessError
        if a part of it is mapped and another is not, or another run uses it.
    """
    owners = _placed.setdefault(memory, {})
    mapped: list[int] = []
    pages: set[int] = set()
    for region in contents.regions:
        last = region.address + max(region.data.size, 1) - 1
        pages |= set(range(region.address // PAGE, last // PAGE + 1))
    try:
        for page, count in runs_of(sorted(pages)):
            first, end = page * PAGE, (page + count) * PAGE
            known = {at: size for at, size in memory.ranges.items() if at < end and first < at + size}
            for at in known:
                if at in owners:
                    raise MemoryAccessError(
                        f"the memory 0x{first:08X}..0x{end:08X} of the stream is used by a run on core "
                        f"{owners[at]}; a TaskList finds another place"
                    )
            if any(at <= first and end <= at + size for at, size in known.items()):
                continue
            if known:
                text = ", ".join(f"0x{at:08X}..0x{at + size:08X}" for at, size in known.items())
                raise MemoryAccessError(
                    f"the memory 0x{first:08X}..0x{end:08X} of the stream overlaps what is mapped: {text}"
                )
            memory.map(first, end - first)
            mapped.append(first)
            owners[first] = core
        for region in contents.regions:
            memory.write(region.address, region.data)
    except BaseException:
        remove(memory, mapped)
        raise
    return mapped


def remove(memory: Any, mapped: list[int]) -> None:
    """Unmap the ranges of `place`."""
    owners = _placed.setdefault(memory, {})
    for first in mapped:
        owners.pop(first, None)
        with suppress(EngineError):  # the engine is closed
            memory.unmap(first)


def _unfinished(result: StreamResult) -> int | None:
    """Return the number of the last task that has not ended, None if all have."""
    return next((one.task for one in reversed(result.tasks) if one.end is None), None)


class StreamRun:
    """A stream that a core runs; see `rkcosim.engines.submissions.BegunWork`.

    Parameters
    ----------
    contents, engine, core : what runs where.
    shapes : shapes and types of named arrays.
    events : record an event log.
    keep : leave the memory mapped after the run, and a core that failed as it is.
    broken : returns the rules that a task breaks (docs/lint.md), one line each, for the message about a hang.

    Raises
    ------
    JobError
        for a diagnostic while the host writes the registers.
    MemoryAccessError, ValueError
        for memory that is not free, and for events on an engine that records none.
    """

    def __init__(
        self,
        contents: StreamContents,
        engine: Any,
        core: int,
        *,
        shapes: Mapping[str, Shape] | None = None,
        events: bool = False,
        keep: bool = False,
        broken: Callable[[int], list[str]] = lambda task: [],
    ) -> None:
        self.contents, self.engine, self.core, self._broken = contents, engine, core, broken
        self.shapes, self.recorded, self.keep = shapes or {}, events, keep
        self._known = len(engine.core_diagnostics(core))
        self._tasks = 0 if engine.has_cycles else engine.reports[core].total
        if events:
            engine.record(["task", "write", "irq", "diagnostic", "fault"])
        self._mapped = place(contents, engine.memory, core)
        self.before = self.begun = self.waiting = engine.cycle
        try:
            self.begun = start(engine, contents.kick, core, contents.writes)
        except (EngineError, GoldenError) as error:
            raise self.failed(error) from error
        except BaseException:
            self._leave(failed=True)
            raise
        self.waiting = engine.cycle

    def end(self, raised: bool) -> StreamResult:
        """Return the result; raises JobTimeout if the core raised no interrupt."""
        engine, pc = self.engine, registers()["PC"]
        cycles, waited = engine.cycle - self.begun, engine.cycle - self.waiting
        status = engine.read32(self.core, pc["INTERRUPT_STATUS"].offset)
        if raised:
            engine.write32(self.core, pc["INTERRUPT_CLEAR"].offset, pc["INTERRUPT_CLEAR"].mask)
            result = self._result(True, cycles, status)
            self._leave()
            return result
        state = engine.block_state(self.core)
        cause = getattr(engine, "hang", {self.core: None})[self.core]
        result = self._result(False, cycles, status, state)
        hanging = _unfinished(result)
        if engine.has_cycles and hanging is not None:  # the golden model says by itself what is wrong
            state = "\n".join([*state.splitlines(), *self._broken(hanging)])
            result = replace(result, state=state)
        engine.reset(1 << self.core)
        self._leave()
        text = f"no interrupt within {waited} cycles" + (f":\n{state}" if state else "")
        raise self._error(JobTimeout, text, cause, result) from cause

    def failed(self, error: Exception) -> JobError:
        """Return the error for a job that the engine ended."""
        engine = self.engine
        cycles, status, state = engine.cycle - self.before, 0, ""
        with suppress(EngineError, GoldenError):  # an engine that failed completely gives no state
            status = engine.read32(self.core, registers()["PC"]["INTERRUPT_STATUS"].offset)
            state = engine.block_state(self.core)
        found = self._error(JobError, str(error), error, self._result(False, cycles, status, state))
        found.__cause__ = error
        self._leave(failed=True)
        return found

    def cancel(self) -> None:
        """Reset the core and unmap the memory."""
        self._leave(failed=True)

    def _leave(self, failed: bool = False) -> None:
        if self.keep:
            return
        if failed:
            with suppress(EngineError, GoldenError):
                self.engine.reset(1 << self.core)
        remove(self.engine.memory, self._mapped)

    def _error(self, kind: type[JobError], text: str, cause: Any, result: StreamResult) -> JobError:
        first = cause
        if isinstance(cause, DiagnosticError):
            first = next((one for one in cause.diagnostics if one.core == self.core), cause.diagnostics[0])
        elif not isinstance(cause, GoldenError):
            first = result.diagnostics[0] if result.diagnostics else None
        task = getattr(first, "task", None)
        if task is None:
            task = _unfinished(result)
        register = getattr(first, "register", "") or ""
        block = getattr(first, "block", "")
        if register and block and not register.startswith(f"{block}."):
            register = f"{block}.{register}"
        return kind(
            text,
            core=self.core,
            cycle=self.engine.cycle if self.engine.has_cycles else None,
            task=task,
            register=register or None,
            value=getattr(first, "value", None),
            code=getattr(first, "code", ""),
            diagnostics=result.diagnostics,
            state=result.state,
            result=result,
        )

    def _result(self, done: bool, cycles: int, status: int, state: str = "") -> StreamResult:
        engine = self.engine
        regions = []
        for region in self.contents.regions:
            now = engine.memory.view(region.address, region.data.size)
            same = np.array_equal(now, region.data)
            regions.append(Region(region.name, region.address, region.data if same else now.copy()))
        log = None
        if self.recorded:
            log = engine.events()
        return StreamResult(
            self.contents,
            engine.name,
            self.core,
            done,
            cycles if engine.has_cycles else None,
            status,
            state,
            self._times(),
            tuple(engine.core_diagnostics(self.core)[self._known :]),
            regions,
            engine.options,
            self.shapes,
            log,
        )

    def _times(self) -> tuple[TaskTime, ...]:
        """Return the times of the tasks of this run."""
        if not self.engine.has_cycles:
            fresh = self.engine.reports[self.core].since(self._tasks)
            return tuple(TaskTime(report.index, None, None) for report in fresh)
        return tuple(
            TaskTime(record.task, record.start, record.end)
            for record in self.engine.task_log()
            if record.core == self.core and record.start >= self.begun
        )
