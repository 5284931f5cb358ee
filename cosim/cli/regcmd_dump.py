"""`rkcosim regcmd dump`, `asm` and `lint`: command lists of any source as text, back, and checked."""

from __future__ import annotations

import json as jsonlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cosim.cli.exits import MISMATCH, OK, write_bytes, write_json, write_text

if TYPE_CHECKING:
    from cosim.streams.sources import Source
    from cosim.streams.timing import Line, Times
    from sw.regcmd.program import Program

SCHEMA_VERSION = 1
CYCLE_COLUMNS = 10


def open_input(inputs: list[str], options: dict[str, Any]) -> Source:
    """Open what a command was given; `options` as of `open_source`, `memory` as FILE@ADDRESS texts."""
    from cosim.streams.sources import SourceError, open_source

    pieces = []
    for text in options.pop("memory", None) or []:
        name, at, place = text.rpartition("@")
        try:
            pieces.append((int(place, 0), Path(name).read_bytes()))
        except ValueError:
            at = ""
        if not at:
            raise SourceError(f"--memory {text}: give FILE@ADDRESS, as regcmd.bin@0xFFE00000")
    address = options.pop("address", None)
    place = None
    if address is not None:
        try:
            place = int(address, 0)
        except ValueError:
            raise SourceError(f"--address {address}: no number") from None
    return open_source(inputs, address=place, memory=pieces, **options)


def dump_command(
    inputs: list[str],
    output: Path | None,
    json: Path | None,
    against: str | None,
    everything: bool,
    with_memory: bool,
    events: Path | None,
    at: int | None,
    job: int,
    context: int,
    **options: Any,
) -> None:
    """Print programs as text, beside others, or with the cycles of a run."""
    source = open_input(inputs, options)
    if against is not None:
        _diff(source, against, everything, output, json, options)
    if at is not None and events is None:
        raise ValueError("--at needs --events FILE: an event log or a waveform of the run")
    if with_memory and source.stream is None:
        raise ValueError(f"{source.name}: only a stream or a capture has memory to show")
    if events is not None:
        lines, data = _timed(source, events, at, job, context)
    else:
        lines, data = list(_listing(source, with_memory)), _as_json(source)
    if json:
        write_json(json, data)
    show(lines, output)
    raise SystemExit(OK)


def _listing(source: Source, with_memory: bool) -> Iterator[str]:
    from sw.regcmd.listing import Piece, program_lines, stream_lines

    stream, places = source.stream, list[Piece]()
    if stream is not None:
        settings = {"core": stream.core, **stream.kick.__dict__}
        places = [Piece(r.name, r.address, r.data.tobytes()) for r in stream.regions]
        regions = places if with_memory else []
        expected = source.expected if with_memory else None
        outputs = [Piece(r.name, r.address, r.data.tobytes()) for r in expected.outputs] if expected else []
        values = expected.registers if expected else {}
        yield from stream_lines(settings, stream.writes, regions, outputs, values)
    several = len(source.programs) > 1
    for program in source.programs:
        if several or (program.mask is not None and stream is None):
            mask = "" if program.mask is None else f", interrupt mask 0x{program.mask:X}"
            core = "" if program.core is None else f", core {program.core}"
            yield f"# {program.name}: {len(program.tasks)} tasks{core}{mask}"
        bare = len(program.tasks) == 1 and program.tasks[0].address is None and not several
        lines = program_lines(program, places=places)
        yield from (line for line in lines if not bare or not line.startswith("# task"))
    for note in source.notes:
        yield f"# {note}"


def _as_json(source: Source) -> dict[str, Any]:
    from sw.regcmd.listing import program_json, words_json

    data: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "source": source.name,
        "kind": source.kind,
        "programs": [program_json(program) for program in source.programs],
        "notes": source.notes,
    }
    if source.kind in ("words", "binary", "text"):
        data["words"] = words_json(source.words)
    return data


def show(lines: list[str], output: Path | None) -> None:
    """Write lines to a file, or print them, in colour on a terminal."""
    if output is not None:
        write_text(output, "".join(line + "\n" for line in lines))
    elif sys.stdout.isatty():
        from cosim.cli.regcmd_colour import print_coloured

        print_coloured(lines)
    else:
        print("".join(line + "\n" for line in lines), end="")


def _diff(
    source: Source, against: str, everything: bool, output: Path | None, json: Path | None, options: dict
) -> None:
    """Print two inputs side by side and end with 0 (same words) or 1."""
    from itertools import zip_longest

    from sw.regcmd.diff import diff_lines, diff_programs
    from sw.regcmd.program import Program

    other = open_input([against], {"cores": options.get("cores", 1)})
    lines, data, same = [], [], True
    several = max(len(source.programs), len(other.programs)) > 1
    for left, right in zip_longest(source.programs, other.programs):
        left, right = left or Program("nothing", []), right or Program("nothing", [])
        pairs = diff_programs(left, right)
        same &= all(pair.same and not any(word.moved for word in pair.words) for pair in pairs)
        part = diff_lines(pairs, everything, _columns())
        lines += [f"# {left.name} | {right.name}", *part] if several and part else part
        data.append(
            {
                "left": left.name,
                "right": right.name,
                "tasks": [pair.as_json(everything) for pair in pairs if everything or not pair.same],
            }
        )
    if same and not lines:
        count = sum(len(program.tasks) for program in source.programs)
        lines = [f"same: {count} tasks, {len(source.words)} words"]
    if json:
        write_json(json, {"schema_version": SCHEMA_VERSION, "same": same, "programs": data})
    show(lines, output)
    raise SystemExit(OK if same else MISMATCH)


def _columns() -> int:
    import shutil

    return shutil.get_terminal_size((110, 24)).columns


def _timed(
    source: Source, events: Path, at: int | None, job: int, context: int
) -> tuple[list[str], dict[str, Any]]:
    """Lines with the cycle in which each word was written, and what happened between them."""
    from cosim.streams.timing import Line, align, around, interleaved, read_times

    if len(source.programs) != 1:
        raise ValueError(f"{source.name} has {len(source.programs)} chains; --events belongs to one of them")
    program = source.programs[0]
    times: Times = read_times(events, program.core or 0)
    lines = align(program, times, job)
    entries = [
        {"task": line.task, "word": line.command.index, "cycle": line.cycle, "register": line.command.name}
        for line in lines
    ]
    data: dict[str, Any] = {"schema_version": SCHEMA_VERSION, "source": source.name, "lines": entries}
    data["marks"] = [{"cycle": mark.cycle, "text": mark.text} for mark in times.marks]
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
        text += [_timed_line(line, ">" if n == place else " ") for n, line in enumerate(near)]
        return text, data
    last = -1
    for item in interleaved(lines, _marks_of(times, lines)):
        if isinstance(item, Line):
            if item.task != last:
                text += _task_lines(program, item.task)
                last = item.task
            text.append(_timed_line(item, " "))
        else:
            text.append(f"# ---- cycle {item.cycle}: {item.text}")
    missing = sum(line.cycle is None and _logged(line) for line in lines)
    if missing:
        text.append(f"# {missing} register words of the listing are not in the log")
    return text, data


def _logged(line: Line) -> bool:
    """Whether a log has a word's write: the PC keeps links and amounts to itself."""
    register = line.command.register
    return register is not None and register.block != "PC"


def _marks_of(times: Times, lines: list[Line]) -> list[Any]:
    """Marks from the first line's cycle on."""
    written = [line.cycle for line in lines if line.cycle is not None]
    return [mark for mark in times.marks if not written or mark.cycle >= written[0]]


def _task_lines(program: Program, index: int) -> list[str]:
    from sw.regcmd.listing import task_heading

    task = program.tasks[index]
    place = [] if task.address is None else [f".task 0x{task.address:08X}"]
    return [task_heading(index, task), *place]


def _timed_line(line: Line, mark: str) -> str:
    from sw.regcmd import format_command

    cycle = "-" if line.cycle is None else str(line.cycle)
    return f"{mark}{cycle:>{CYCLE_COLUMNS}}  {format_command(line.command)}"


def _running(times: Times, at: int) -> str:
    """What runs in a cycle, in words."""
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


def asm_command(file: Path, output: Path, into: Path | None, json: Path | None) -> None:
    """Write words, or a stream, from text."""
    from cosim.streams.sources import stream_of_listing
    from sw.regcmd import words_to_bytes
    from sw.regcmd.listing import parse_listing

    try:
        text = file.read_text()
    except UnicodeDecodeError as error:
        raise ValueError(f"{file}: not a text file: {error}") from error
    listing = parse_listing(text)
    count = len(listing.words)
    if into is not None or (output.suffix == ".json" and listing.settings is not None):
        from cosim.streams.capture import save
        from cosim.streams.stream import Stream

        base = Stream.load(into) if into is not None else None
        stream, expected = stream_of_listing(listing, file.name, base)
        save(stream, expected, output)
        kept = jsonlib.loads(into.read_text()).get("expected") if into is not None else None
        data = jsonlib.loads(output.read_text())
        if kept is not None:
            data["expected"] = kept
        elif not (expected.outputs or expected.registers):
            data.pop("expected", None)
        write_text(output, jsonlib.dumps(data, indent=1) + "\n")
        print(f"{len(listing.tasks)} tasks, {count} words, {len(stream.regions)} regions -> {output}")
    elif output.suffix == ".json":
        raise ValueError(f"{file} has no .stream line; give --into STREAM to put its words into a stream")
    else:
        write_bytes(output, words_to_bytes(listing.words))
        print(f"{count} words -> {output}")
    if json:
        write_json(json, {"schema_version": SCHEMA_VERSION, "words": count, "output": str(output)})


def lint_command(
    inputs: list[str], rules: list[str], notes: bool, explain: bool, json: Path | None, **options: Any
) -> None:
    """Check programs against the rules and end with 1 if any has an error."""
    from sw.regcmd.lint import RULES, lint

    if explain:
        for name in rules or RULES:
            if name not in RULES:
                raise ValueError(f"no such rule: {name}; there are {', '.join(RULES)}")
            rule = RULES[name]
            print(f"{rule.name} ({rule.severity}): {rule.why} {rule.source}.")
        if json:
            asked = [RULES[name] for name in rules or RULES]
            said = [{"name": r.name, "severity": r.severity, "why": r.why, "source": r.source} for r in asked]
            write_json(json, {"schema_version": SCHEMA_VERSION, "rules": said})
        raise SystemExit(OK)
    source = open_input(inputs, options)
    found = []
    for program in source.programs:
        found += [(program, finding) for finding in lint(program, rules or None)]
    counts = {
        severity: sum(f.severity == severity for _, f in found) for severity in ("error", "warning", "note")
    }
    several = len(source.programs) > 1
    for program, finding in found:
        if finding.severity != "note" or notes:
            print((f"{program.name}: " if several else "") + str(finding))
    tasks = sum(len(program.tasks) for program in source.programs)
    hidden = f" ({counts['note']} notes: --notes)" if counts["note"] and not notes else ""
    print(f"{tasks} tasks: {counts['error']} errors, {counts['warning']} warnings{hidden}")
    if json:
        write_json(
            json,
            {
                "schema_version": SCHEMA_VERSION,
                "source": source.name,
                "tasks": tasks,
                "counts": counts,
                "findings": [{"program": p.name, **f.as_json(), "why": RULES[f.rule].why} for p, f in found],
            },
        )
    raise SystemExit(MISMATCH if counts["error"] else OK)
