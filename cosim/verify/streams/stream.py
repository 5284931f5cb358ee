"""A register-command stream with its memory image: one file that any engine can run."""

from __future__ import annotations

import binascii
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rkcosim.base.files import UNKNOWN, GivenFileError, identify, json_of, kind_of_members, read_given, wrong
from rkcosim.base.html import table
from rkcosim.driver.core_port import Kick
from rkcosim.regcmd.disassembler import Command, disassemble, format_command
from rkcosim.regcmd.listing import Listing, Piece, blocks_text, parse_listing, program_lines, stream_lines
from rkcosim.regcmd.named import NamedRegisters
from rkcosim.regcmd.program import ListedTask, Program
from rkcosim.regcmd.word import WORD_BYTES, RegcmdError, words_to_bytes
from rkcosim.verify.streams.contents import (
    MOST_BYTES,
    MOST_TASKS,
    StreamContents,
    contradictions,
    expected_of,
    number_of,
    region_json,
    regions_of,
    word_of,
)
from rkcosim.verify.streams.contents import (
    PAGE as PAGE,
)
from rkcosim.verify.streams.contents import (
    Expected as Expected,
)
from rkcosim.verify.streams.contents import (
    Region as Region,
)
from rkcosim.verify.streams.contents import (
    StreamError as StreamError,
)
from rkcosim.verify.streams.programs import program_of_stream
from rkcosim.waves.whole_file import whole_file

if TYPE_CHECKING:
    from rkcosim.engines.engine import AnyEngine
    from rkcosim.engines.submissions import Submission
    from rkcosim.verify.streams.findings import LintFindings
    from rkcosim.verify.streams.runs import Shape, StreamResult, StreamRun, StreamVerdict

SCHEMA_VERSION = 1

MAX_CYCLES = 10_000_000
"""Default bound of a run in cycles."""

_SHOWN = 3
"""Errors of a task that the message about a hang shows."""


class StreamTask(NamedRegisters):
    """A task of a stream: its words in the stream's memory.

    `task["PPU.DATA_CUBE_IN_WIDTH"]` reads a register, `task["PPU.DATA_FORMAT.INDEX_ADD"] = 48` changes the
    field in the stream. The number of words remains, so a register that the task does not write cannot be
    added.

    Members
    -------
    index : number of the task in the chain.
    address : address of its first word.
    amount : amount code with which it is fetched.
    """

    def __init__(self, stream: Stream, index: int, listed: ListedTask) -> None:
        assert listed.address is not None
        self.index, self.address, self.amount = index, listed.address, listed.amount
        self._stream, self._count = stream, len(listed.words)

    @property
    def words(self) -> tuple[int, ...]:
        """The words as the PC fetches them, including the tail."""
        return self._listed.words

    @property
    def commands(self) -> list[Command]:
        """The decoded words."""
        return disassemble(self.words)

    @property
    def blocks(self) -> list[str]:
        """Blocks that the task starts."""
        return blocks_text(self._listed).split()

    @property
    def _listed(self) -> ListedTask:
        data, start = self._place()
        words = data[start : start + self._count * WORD_BYTES].tobytes()
        return ListedTask(tuple(np.frombuffer(words, "<u8").tolist()), self.address, self.amount)

    def _place(self) -> tuple[Any, int]:
        """Return the bytes of the first region that has the words, and the place of the first one."""
        for region in self._stream.regions:
            start = self.address - region.address
            if 0 <= start and start + self._count * WORD_BYTES <= region.data.size:
                return region.data, start
        raise StreamError(
            f"the words of task {self.index} at 0x{self.address:X} are in no region of the stream"
        )

    def _current(self) -> Sequence[int]:
        return self.words

    def _put(self, index: int | None, word: int, moves: bool) -> None:
        if index is None:
            name = disassemble([word])[0].name
            raise RegcmdError(
                f"task {self.index} does not write {name}, and a task of a stream cannot grow; make a "
                "TaskList of the stream"
            )
        place = self.address + index * WORD_BYTES
        fresh = np.frombuffer(words_to_bytes([word]), np.uint8)
        for region in self._stream.regions:  # regions may have bytes in common
            start = place - region.address
            if 0 <= start and start + fresh.size <= region.data.size:
                if not region.data.flags.writeable:
                    region.data = region.data.copy()
                region.data[start : start + fresh.size] = fresh

    def __str__(self) -> str:
        return "\n".join(format_command(command) for command in self.commands)

    def __repr__(self) -> str:
        return f"<task {self.index}: {self._count} words at 0x{self.address:08X}, {' '.join(self.blocks)}>"

    def _repr_html_(self) -> str:
        return listing_table(repr(self)[1:-1], [self.words])


@dataclass(repr=False)
class Stream(StreamContents):
    """A register-command stream: what a kick needs, in one file that any engine can run [HW 10.3].

    Members
    -------
    kick : what the host writes to start the chain of tasks.
    regions : the memory before the run.
    core : number of the core.
    writes : (offset, value) that the host writes before the start, or in slave mode instead of it.
    expected : bytes and registers that must be found after a run, None if nothing is known.
    name : name in messages, of a loaded stream that of its file.
    """

    expected: Expected | None = None
    name: str = "stream"

    # Files and text

    def save(self, path: str | Path, **more: Any) -> None:
        """Write the stream file atomically; `more` are further members of the format.

        Raises
        ------
        StreamError
            for more memory than `load` accepts.
        OSError
            if it cannot be written; an earlier file at `path` is unchanged then.
        """
        path = Path(path)
        size = sum(region.data.size for region in self.regions)
        if size > MOST_BYTES:
            raise StreamError(f"{path}: {size:,} bytes of memory are too many, at most {MOST_BYTES:,}")
        data = {
            "schema_version": SCHEMA_VERSION,
            "core": self.core,
            "kick": self.kick.settings,
            "writes": [[f"0x{offset:04X}", f"0x{value:08X}"] for offset, value in self.writes],
            "regions": [region_json(region) for region in self.regions],
        }
        if self.expected is not None and (self.expected.outputs or self.expected.registers):
            more = {"expected": self.expected.as_json(), **more}
        with whole_file(path) as part:
            part.write_text(json.dumps(data | more, indent=1) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> Stream:
        """Read a stream file.

        Raises
        ------
        StreamError
            if it is not a stream file, or a member is missing or out of range.
        FileNotFoundError
            if it does not exist.
        """
        path = Path(path)
        try:
            text = read_given(path)
        except GivenFileError as error:
            raise StreamError(str(error)) from error
        try:
            data = json_of(text, path, "a stream file")
        except GivenFileError as error:
            if identify(text) in ("text file", UNKNOWN):
                raise StreamError(str(error)) from error
            raise StreamError(str(wrong(path, text, "a stream file"))) from error
        if not isinstance(data, dict) or ("kick" not in data and kind_of_members(set(data)) != "stream file"):
            raise StreamError(str(wrong(path, text, "a stream file")))
        if data.get("schema_version") != SCHEMA_VERSION:
            raise StreamError(f"{path}: schema_version must be {SCHEMA_VERSION}")
        try:
            kick = Kick(**{key: word_of(value, f"kick.{key}") for key, value in data["kick"].items()})
            regions = regions_of(data["regions"], "regions")
            core = number_of(data.get("core", 0), "core")
            writes = [
                (word_of(offset, f"writes[{n}]"), word_of(value, f"writes[{n}]"))
                for n, (offset, value) in enumerate(data.get("writes", []))
            ]
        except KeyError as error:
            raise StreamError(f"{path}: member {error} is missing") from error
        except (TypeError, AttributeError, ValueError, binascii.Error) as error:
            raise StreamError(f"{path}: {error}") from error
        if kick.tasks > MOST_TASKS:
            raise StreamError(f"{path}: kick.tasks must be at most {MOST_TASKS}, not {kick.tasks}")
        if not 0 <= core <= 2:
            raise StreamError(f"{path}: core must be 0, 1 or 2, not {core}")
        for region in regions:
            if not 0 <= region.address <= (1 << 32) - max(region.data.size, 1):
                raise StreamError(f"{path}: region '{region.name}' exceeds 32-bit addresses")
        for one, other in contradictions(regions):
            raise StreamError(
                f"{path}: regions '{one.name}' and '{other.name}' give address "
                f"0x{max(one.address, other.address):08X} and those after it different bytes"
            )
        return cls(kick, regions, core, writes, expected_of(data, path), path.name)

    @classmethod
    def from_text(cls, text: str, name: str = "text", into: Stream | None = None) -> Stream:
        """Read the text form, as `dump` and `rkcosim regcmd dump` write it; `rkcosim regcmd asm` does this.

        Parameters
        ----------
        text : the text; without `into` it must have a `.stream` line.
        name : name in messages.
        into : a stream, in a copy of which the words of the text replace those at the same addresses.

        Raises
        ------
        RegcmdError
            if it cannot be read (the message has the line), a member is missing, or words are outside of the
            memory.
        """
        listing = parse_listing(text)
        if into is None and listing.settings is None:
            raise RegcmdError(f"{name}: no .stream line; words alone need `into`, or make a TaskList of them")
        return cls.from_listing(listing, name, into)

    @classmethod
    def from_listing(cls, listing: Listing, name: str, into: Stream | None = None) -> Stream:
        """Make a stream of a listing that was read; see `from_text`."""
        if into is not None:
            kept = _regions((r.name, r.address, r.data) for r in into.regions)
            stream = cls(into.kick, kept, into.core, list(into.writes), into.expected, into.name)
        else:
            settings = dict(listing.settings or {})
            core = settings.pop("core", 0)
            try:
                kick = Kick(**settings)
            except TypeError as error:
                raise RegcmdError(f"{name}: .stream: {error}") from error
            pieces = _regions((p.name, p.address, p.data) for p in listing.regions)
            outputs = _regions((p.name, p.address, p.data) for p in listing.outputs)
            expected = Expected(outputs, dict(listing.registers))
            stream = cls(kick, pieces, core, list(listing.writes), expected, name)
        for number, task in enumerate(listing.tasks):
            if task.address is None:
                raise RegcmdError(f"{name}: the words of task {number} have no .task line with an address")
            _place(stream, task, name, number, create=into is None and not listing.regions)
        return stream

    def lines(self, memory: bool = False) -> Iterator[str]:
        """Yield the lines of `dump`."""
        pieces = [Piece(r.name, r.address, r.data.tobytes()) for r in self.regions]
        outputs: list[Piece] = []
        values: Mapping[str, int] = {}
        if memory and self.expected is not None:
            outputs = [Piece(r.name, r.address, r.data.tobytes()) for r in self.expected.outputs]
            values = self.expected.registers
        settings = {"core": self.core, **self.kick.settings}
        yield from stream_lines(settings, self.writes, pieces if memory else [], outputs, dict(values))
        yield from program_lines(self.program(), places=pieces)

    def dump(self, memory: bool = False) -> str:
        """Return the stream as text, field by field, as `rkcosim regcmd dump` prints it.

        Parameters
        ----------
        memory : also write the memory and the expected result, so that `from_text` makes the same stream.
        """
        return "\n".join(self.lines(memory))

    def __str__(self) -> str:
        return self.dump()

    # Tasks

    def program(self) -> Program:
        """Return the tasks as the PC fetches them; `stopped` reports a damaged chain."""
        return program_of_stream(self, self.name)

    @property
    def tasks(self) -> list[StreamTask]:
        """The tasks of the chain, in the order in which they run.

        A change of one of their registers changes the stream. A damaged chain ends at its last task
        (`program().stopped` has the reason).
        """
        return [StreamTask(self, index, task) for index, task in enumerate(self.program().tasks)]

    def lint(self, only: Sequence[str] | None = None) -> LintFindings:
        """Check the rules that the hardware requires (docs/lint.md).

        Parameters
        ----------
        only : names of the rules to check; None: all.

        Returns
        -------
        The findings by task and word; true if there are any.
        """
        from rkcosim.regcmd.lint import lint
        from rkcosim.regcmd.machine import task_count
        from rkcosim.verify.streams.findings import LintFindings

        program = self.program()
        return LintFindings(lint(program, only), task_count(program))

    # Runs

    def begin(
        self,
        engine: Any,
        core: int,
        *,
        shapes: Mapping[str, Shape] | None = None,
        events: bool = False,
        keep: bool = False,
    ) -> StreamRun:
        """Start the stream on a core of an engine (for `engine.submit`); see `StreamRun`."""
        from rkcosim.verify.streams.runs import StreamRun

        return StreamRun(
            self, engine, core, shapes=shapes, events=events, keep=keep, broken=self._broken_rules
        )

    def _broken_rules(self, task: int) -> list[str]:
        """Return the errors that `lint` finds in one task, for the message about a hang; causes first."""
        errors = self.lint().errors
        here = [one for one in errors if one.task == task]
        causes = [one for one in errors if (one.set_in, one.word) in {other.follows for other in here}]
        found = list(dict.fromkeys(f"lint: {one}" for one in [*causes, *here]))
        more = len(found) - _SHOWN
        return found[:_SHOWN] + ([f"lint: {more} more errors in task {task}"] if more > 0 else [])

    def run(
        self,
        engine: AnyEngine | str | None = None,
        *,
        core: int | None = None,
        max_cycles: int = MAX_CYCLES,
        trace: Any = None,
        events: bool = False,
        keep: bool = False,
        **settings: Any,
    ) -> StreamResult:
        """Run the stream and wait for its end.

        Parameters
        ----------
        engine : an open engine; or the name of one that is opened for this run, None for the default.
        core : number of the core; None: that of the stream.
        max_cycles : bound of the run in cycles.
        trace : a waveform (file or `rkcosim.waves.spec.TraceSpec`) of an engine that is opened for
            the run; for an open engine give it to `open_engine`.
        events : record an event log (`StreamResult.events`, `writes`, `dump`), and discard earlier records of
            the engine.
        keep : leave the memory of the stream mapped after the run.
        settings : for an engine that is opened for the run, as for `open_engine`.

        Raises
        ------
        JobError
            if the device reports a diagnostic and the engine stops at it.
        JobTimeout
            if the core raises no interrupt within `max_cycles`; `state` tells what it waits for.
        MemoryAccessError
            if the memory of the stream is not free.
        """
        return run_work(WorkWithSettings(self, events, keep), engine, core, max_cycles, trace, settings)

    def compare(self, engine: AnyEngine | str | None = None, **how: Any) -> StreamVerdict:
        """Run the stream as `run` and compare all memory with the golden model."""
        return self.run(engine, **how).compare()

    def __repr__(self) -> str:
        program = self.program()
        words = sum(len(task.words) for task in program.tasks)
        size = sum(region.data.size for region in self.regions)
        tasks = f"{len(program.tasks)} task{'' if len(program.tasks) == 1 else 's'}"
        end = ", damaged chain" if program.stopped else ""
        return (
            f"<Stream {self.name!r}: {tasks}, {words:,} words, {len(self.regions)} regions with {size:,} "
            f"bytes, core {self.core}{end}>"
        )

    def _repr_html_(self) -> str:
        return listing_table(repr(self)[1:-1], [task.words for task in self.program().tasks])


@dataclass
class WorkWithSettings:
    """A stream or a task list with the settings of its run, as work for a core."""

    work: Any
    events: bool
    keep: bool

    @property
    def core(self) -> int:
        return int(self.work.core)

    def begin(self, engine: Any, core: int) -> StreamRun:
        begun: StreamRun = self.work.begin(engine, core, events=self.events, keep=self.keep)
        return begun


def run_work(
    work: WorkWithSettings,
    engine: AnyEngine | str | None,
    core: int | None,
    max_cycles: int,
    trace: Any,
    settings: Mapping[str, Any],
) -> StreamResult:
    """Run work on an engine that is open, or on one that is opened for it."""
    if engine is None or isinstance(engine, str):
        from rkcosim.engines.engine import open_engine

        least = 1 + (work.core if core is None else core)
        with open_engine(engine, trace=trace, **{"cores": least, **settings}) as opened:
            return _waited(opened.submit(work, core, max_cycles))
    given = {"trace": trace is not None, **dict.fromkeys(settings, True)}
    if wrong := [name for name, there in given.items() if there]:
        raise ValueError(f"{wrong[0]} is for an engine that is opened for the run; this one is open")
    return _waited(engine.submit(work, core, max_cycles))


def _waited(job: Submission[StreamResult]) -> StreamResult:
    """Return the result of a job, which does not go on after an interruption (Ctrl-C)."""
    try:
        return job.result()
    finally:
        job.cancel()


def listing_table(caption: str, tasks: Sequence[Sequence[int]]) -> str:
    """Return the words of tasks as a table in HTML: task, word, register, fields."""
    rows = []
    for number, words in enumerate(tasks):
        for command in disassemble(words):
            name, _, fields = format_command(command).partition(" ")
            rows.append((number, command.index, name, fields))
    return table(caption, ("task", "word", "register", "fields"), rows)


def _regions(parts: Any) -> list[Region]:
    """Make regions with copied bytes from names, addresses and buffers."""
    return [Region(name, address, np.frombuffer(data, np.uint8).copy()) for name, address, data in parts]


def _place(stream: Stream, task: ListedTask, name: str, number: int, create: bool) -> None:
    assert task.address is not None
    data = np.frombuffer(words_to_bytes(task.words), np.uint8)
    for region in stream.regions:
        start = task.address - region.address
        if 0 <= start and start + data.size <= region.data.size:
            region.data[start : start + data.size] = data
            return
    if not create:
        raise RegcmdError(
            f"{name}: the {len(task.words)} words of task {number} at 0x{task.address:X} do not fit the "
            "stream's memory"
        )
    stream.regions.append(Region(f"commands {number}", task.address, data.copy()))
