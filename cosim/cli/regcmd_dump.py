"""`rkcosim regcmd dump`, `asm` and `lint`: command lists as text, back to words, and checked."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from dataclasses import MISSING, dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from rkcosim.base.files import read_given
from rkcosim.cli.app import Options, argument, command, option
from rkcosim.cli.exits import MISMATCH, OK
from rkcosim.cli.options import Share, WaveOptions
from rkcosim.cli.results import write_bytes, write_text

if TYPE_CHECKING:
    from rkcosim.verify.streams.sources import Source
    from rkcosim.verify.streams.timing import Times


@dataclass(frozen=True, kw_only=True)
class SourceOptions(Options):
    """Command lists, and their position in a binary file."""

    inputs: tuple[str, ...] = argument(
        "A stream file, a capture's manifest, a model (.onnx, .tflite, .rknn, compiled), a text file of "
        "`dump`, a binary file of words or of a whole buffer, literal words, or - for standard input.",
        metavar="INPUT...",
        default=(),
    )
    address: str | None = option("Device address of a binary file's first byte.")
    offset: int = option("Number of bytes to skip at the start of a binary file.", low=0, default=0)
    count: int | None = option("Number of words to read from a binary file; default: all.", low=1)
    records: bool = option("The file holds struct rknpu_task records.", default=False)
    memory: tuple[str, ...] = option(
        "File with the command lists that --records points to, and its device address.",
        metavar="FILE@ADDRESS",
        default=(),
    )
    cores: Share = 1


def open_input(asked: SourceOptions) -> Source:
    """Open the input of a command.

    Raises
    ------
    SourceError
        for options that cannot be parsed; see also `rkcosim.verify.streams.sources.open_source`.
    """
    from rkcosim.verify.streams.sources import SourceError, open_source

    pieces = []
    for text in asked.memory:
        name, at, place = text.rpartition("@")
        try:
            start = int(place if at else "", 0)
        except ValueError:
            raise SourceError(f"--memory {text}: give FILE@ADDRESS, as regcmd.bin@0xFFE00000") from None
        pieces.append((start, read_given(Path(name))))
    try:
        address = None if asked.address is None else int(asked.address, 0)
    except ValueError:
        raise SourceError(f"--address {asked.address}: not a number") from None
    return open_source(
        list(asked.inputs),
        address=address,
        offset=asked.offset,
        count=asked.count,
        records=asked.records,
        memory=pieces,
        cores=asked.cores,
    )


@dataclass(frozen=True, kw_only=True)
class DumpOptions(SourceOptions, WaveOptions):
    """Options of `rkcosim regcmd dump`."""

    output: Path | None = option(
        "Write the text to this file instead of standard output.", "-o", "--output", writes=True
    )
    diff: str | None = option("Print this second input next to the first one.", metavar="OTHER")
    all_: bool = option("With --diff, also print equal lines.", default=False)
    with_memory: bool = option(
        "Also dump the memory image, so that `asm` can rebuild the whole stream.", default=False
    )
    events: Path | None = option(
        "Event log or waveform of a run of this stream: print the cycle of each line."
    )
    at: int | None = option("With --events, print only the lines around this cycle.")
    job: int = option("With --events, the number of the job within the run, from 0.", low=0, default=0)
    context: int = option("With --at, the number of lines before and after.", low=0, default=3)


@command(
    "rkcosim regcmd dump task.bin",
    "rkcosim regcmd dump stream.json --diff other.json",
    "rkcosim regcmd dump model.tflite -o model.txt",
    "rkcosim regcmd dump stream.json --events run.parquet --at 1200",
    "rkcosim regcmd dump 0x020100000000100c",
)
def dump_command(asked: DumpOptions) -> None:
    """Print command lists as text, field by field.

    With --diff two inputs are printed side by side, with --events the cycles of a run.
    """
    source = open_input(asked)
    if asked.diff is not None:
        _diff(asked, source, asked.diff)
    if asked.at is not None and asked.events is None:
        raise ValueError("--at needs --events FILE: an event log or a waveform of the run")
    if asked.with_memory and source.stream is None:
        raise ValueError(f"{source.name}: only a stream or a capture contains memory")
    if asked.events is not None:
        lines, data = _timed(source, asked, asked.events)
    else:
        lines, data = list(dumped(source, asked.with_memory)), _as_json(source)
    asked.write(data)
    show(lines, asked.output)
    raise SystemExit(OK)


def dumped(source: Source, with_memory: bool = False) -> Iterator[str]:
    """Yield the lines of an input as text; see `rkcosim.regcmd.listing.parse_listing`.

    Parameters
    ----------
    with_memory : also everything in a stream except its words.
    """
    from rkcosim.regcmd.listing import Piece, program_lines

    if source.stream is not None:
        yield from source.stream.lines(with_memory)
        yield from (f"# {note}" for note in source.notes)
        return
    places = [Piece(name, address, bytes(size)) for name, address, size in source.places]
    several = len(source.programs) > 1
    for program in source.programs:
        if several or program.mask is not None:
            mask = "" if program.mask is None else f", interrupt mask 0x{program.mask:X}"
            core = "" if program.core is None else f", core {program.core}"
            yield f"# {program.name}: {len(program.tasks)} tasks{core}{mask}"
        bare = len(program.tasks) == 1 and program.tasks[0].address is None and not several
        lines = program_lines(program, places=places)
        yield from (line for line in lines if not bare or not line.startswith("# task"))
    for note in source.notes:
        yield f"# {note}"


def _as_json(source: Source) -> dict[str, Any]:
    from rkcosim.regcmd.listing import program_json, words_json

    data: dict[str, Any] = {
        "source": source.name,
        "kind": source.kind,
        "programs": [program_json(program) for program in source.programs],
        "notes": source.notes,
    }
    if source.kind in ("words", "binary", "text"):
        data["words"] = words_json(source.words)
    return data


_COLOURS = (
    (r"#.*$", "bright_black"),
    (r"^\.[a-z]+", "magenta"),
    (r"\b(?:RAW|NOP|CONFIG_END|OP_ENABLE)\b", "bold yellow"),
    (r"\b[A-Z_]+(?=\.[A-Z])", "cyan"),
    (r"(?<=\.)[A-Z][A-Z0-9_]+(?= )", "bold cyan"),
    (r"(?<==)[A-Z][A-Z0-9_]*\b", "green"),
    (r"(?<==)-?(?:0x[0-9A-Fa-f]+|[0-9]+)\b", "blue"),
    (r"(?<= )[<>~|](?= )", "bold red"),
    (r"^error:", "bold red"),
    (r"^warning:", "yellow"),
)
"""Patterns of a listing and their styles on a terminal."""


def show(lines: list[str], output: Path | None) -> None:
    """Write lines to a file, or print them, in colour on a terminal."""
    if output is not None:
        write_text(output, "".join(line + "\n" for line in lines))
    elif sys.stdout.isatty():
        from rich.console import Console
        from rich.text import Text

        console = Console(highlight=False, soft_wrap=True)
        for text in map(Text, lines):
            for pattern, style in _COLOURS:
                text.highlight_regex(pattern, style)
            console.print(text)
    else:
        print("".join(line + "\n" for line in lines), end="")


def _diff(asked: DumpOptions, source: Source, against: str) -> NoReturn:
    """Print two inputs side by side and end with 0 (same words) or 1 (different words)."""
    from rkcosim.regcmd.diff import diff_lines, diff_programs
    from rkcosim.regcmd.program import Program
    from rkcosim.verify.streams.sources import open_source

    other = open_source([against], cores=asked.cores)
    lines, data, same = [], [], True
    several = max(len(source.programs), len(other.programs)) > 1
    for left, right in zip_longest(source.programs, other.programs):
        left, right = left or Program("nothing", []), right or Program("nothing", [])
        pairs = diff_programs(left, right)
        same &= all(pair.same and not any(word.moved for word in pair.words) for pair in pairs)
        part = diff_lines(pairs, asked.all_, shutil.get_terminal_size((110, 24)).columns)
        lines += [f"# {left.name} | {right.name}", *part] if several and part else part
        data.append(
            {
                "left": left.name,
                "right": right.name,
                "tasks": [pair.as_json(asked.all_) for pair in pairs if asked.all_ or not pair.same],
            }
        )
    if same and not lines:
        count = sum(len(program.tasks) for program in source.programs)
        lines = [f"same: {count} tasks, {len(source.words)} words"]
    asked.write({"same": same, "programs": data})
    show(lines, asked.output)
    raise SystemExit(OK if same else MISMATCH)


def _timed(source: Source, asked: DumpOptions, events: Path) -> tuple[list[str], dict[str, Any]]:
    """Return the lines with the cycle in which each word was written, and the events between them."""
    from rkcosim.verify.streams.timing import align, around, read_times, timed_line, timed_lines

    if len(source.programs) != 1:
        raise ValueError(f"{source.name} has {len(source.programs)} chains; --events belongs to one of them")
    program = source.programs[0]
    times: Times = read_times(events, program.core or 0, **asked.opening)
    lines = align(program, times, asked.job)
    at, context = asked.at, asked.context
    entries = [
        {"task": line.task, "word": line.command.index, "cycle": line.cycle, "register": line.command.name}
        for line in lines
    ]
    marks = [{"cycle": mark.cycle, "text": mark.text} for mark in times.marks]
    data: dict[str, Any] = {"source": source.name, "lines": entries, "marks": marks}
    text: list[str] = []
    if at is not None:
        place, near = around(lines, at, context)
        if place < 0:
            text.append(f"# nothing was written up to cycle {at}")
            data["at"] = None
        else:
            now = near[place]
            data["at"] = {"cycle": at, "task": now.task, "word": now.command.index, "written": now.cycle}
            running = _running(times, at)
            text.append(f"# cycle {at}: {running}; last written, at {now.cycle}: task {now.task}")
        text += [timed_line(line, ">" if n == place else " ") for n, line in enumerate(near)]
        return text, data
    return timed_lines(program, times, asked.job), data


def _running(times: Times, at: int) -> str:
    """Describe in words what runs in a cycle."""
    running: list[str] = []
    for mark in times.marks:
        if mark.cycle > at:
            break
        name, _, what = mark.text.rpartition(" ")
        if what == "starts":
            running.append(name)
        elif what == "ends" and name in running:
            running.remove(name)
    return f"{', '.join(running)} running" if running else "no task running"


@dataclass(frozen=True, kw_only=True)
class AsmOptions(Options):
    """Options of `rkcosim regcmd asm`."""

    file: Path = argument("Text file, as `dump` prints it.")
    output: Path = option(
        "Binary file or stream file (.json) to write.", "-o", "--output", default=MISSING, writes=True
    )
    into: Path | None = option("Replace the words in a copy of this stream file.", metavar="STREAM")


@command(
    "rkcosim regcmd asm task.txt -o task.bin",
    "rkcosim regcmd asm edited.txt --into stream.json -o changed.json",
)
def asm_command(asked: AsmOptions) -> None:
    """Convert the text form back into words or a stream."""
    from rkcosim.regcmd import words_to_bytes
    from rkcosim.regcmd.listing import parse_listing

    try:
        text = read_given(asked.file).decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{asked.file}: not a text file: {error}") from error
    listing = parse_listing(text)
    count = len(listing.words)
    if asked.into is not None or (asked.output.suffix == ".json" and listing.settings is not None):
        from rkcosim.verify.streams.stream import Stream

        base = Stream.load(asked.into) if asked.into is not None else None
        stream = Stream.from_listing(listing, asked.file.name, base)
        stream.save(asked.output)
        print(f"{len(listing.tasks)} tasks, {count} words, {len(stream.regions)} regions -> {asked.output}")
    elif asked.output.suffix == ".json":
        raise ValueError(
            f"{asked.file} has no .stream line; use --into STREAM to put its words into a stream"
        )
    else:
        write_bytes(asked.output, words_to_bytes(listing.words))
        print(f"{count} words -> {asked.output}")
    asked.write({"words": count, "output": str(asked.output)})


@dataclass(frozen=True, kw_only=True)
class LintOptions(SourceOptions):
    """Options of `rkcosim regcmd lint`."""

    rule: tuple[str, ...] = option("Check only this rule; repeatable.", default=())
    notes: bool = option("Also print notes.", default=False)
    explain: bool = option("Print the rules with their reasons, and check nothing.", default=False)


@command(
    "rkcosim regcmd lint stream.json",
    "rkcosim regcmd lint model.tflite --notes",
    "rkcosim regcmd lint --explain --rule cbuf.features",
)
def lint_command(asked: LintOptions) -> None:
    """Find what the hardware cannot do in command lists.

    Each finding states its reason. The exit code is 1 if there are errors.
    """
    from rkcosim.regcmd.lint import RULES, lint
    from rkcosim.regcmd.machine import task_count

    if asked.explain:
        if unknown := [name for name in asked.rule if name not in RULES]:
            raise ValueError(f"no such rule: {unknown[0]}; there are {', '.join(RULES)}")
        chosen = [RULES[name] for name in asked.rule or RULES]
        for rule in chosen:
            print(f"{rule.name} ({rule.severity}): {rule.why} {rule.source}.")
        said = [{"name": r.name, "severity": r.severity, "why": r.why, "source": r.source} for r in chosen]
        asked.write({"rules": said})
        raise SystemExit(OK)
    source = open_input(asked)
    rules = list(asked.rule) or None
    found = [(program, finding) for program in source.programs for finding in lint(program, rules)]
    counts = {
        severity: sum(f.severity == severity for _, f in found) for severity in ("error", "warning", "note")
    }
    several = len(source.programs) > 1
    for program, finding in found:
        if finding.severity != "note" or asked.notes:
            print((f"{program.name}: " if several else "") + str(finding))
    tasks = sum(task_count(program) for program in source.programs)
    hidden = f" ({counts['note']} notes: --notes)" if counts["note"] and not asked.notes else ""
    print(f"{tasks} tasks: {counts['error']} errors, {counts['warning']} warnings{hidden}")
    asked.write(
        {
            "source": source.name,
            "tasks": tasks,
            "counts": counts,
            "findings": [{"program": p.name, **f.as_json(), "why": RULES[f.rule].why} for p, f in found],
        }
    )
    raise SystemExit(MISMATCH if counts["error"] else OK)
