"""The page of the coverage, in Markdown."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.coverage.reasons import Reasons, name_of
from tools.coverage.results import Coverage, Toggles, file_of

INTRODUCTION = Path(__file__).with_name("introduction.md")
NO_REASON = "no reason known"
LINES = "## Lines that did not run"


@dataclass(frozen=True)
class StimulusRun:
    """What the page says about a run: its name, its cycles, and the seconds that it took."""

    name: str
    cycles: int
    seconds: float


def page(found: Coverage, reasons: Reasons, runs: Sequence[StimulusRun], root: Path) -> str:
    """Return the page.

    Parameters
    ----------
    found : what the runs covered together.
    root : folder of the sources.
    """
    lines, signals = list(found.lines.values()), found.signals
    ran = sum(bool(line.ran) for line in lines)
    branches, taken = sum(line.branches for line in lines), sum(line.ran for line in lines)
    bits, missing = sum(len(s.signal.bits) for s in signals), sum(len(s.missing) for s in signals)
    out = [
        INTRODUCTION.read_text(),
        f"| what | counted | covered | |\n| --- | ---: | ---: | ---: |\n"
        f"| lines | {len(lines):,} | {ran:,} | {_percent(ran, len(lines))} |\n"
        f"| branches with lines | {branches:,} | {taken:,} | {_percent(taken, branches)} |\n"
        f"| bits | {bits:,} | {bits - missing:,} | {_percent(bits - missing, bits)} |\n"
        f"| signals with all bits | {len(signals):,} | {sum(not s.missing for s in signals):,} | "
        f"{_percent(sum(not s.missing for s in signals), len(signals))} |",
        "",
        "## Files",
        "",
        "| file | lines | covered | | bits | covered | |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for file in found.files():
        own = [line for line in lines if line.file == file]
        done = sum(bool(line.ran) for line in own)
        theirs = [s for s in signals if file_of(s.signal) == file]
        count = sum(len(s.signal.bits) for s in theirs)
        moved = count - sum(len(s.missing) for s in theirs)
        out.append(
            f"| `{file}` | {len(own)} | {done} | {_percent(done, len(own))} | {count:,} | {moved:,} | "
            f"{_percent(moved, count)} |"
        )
    out += ["", LINES, ""]
    if found.uncovered():
        out += ["| file | line | text | why |", "| --- | ---: | --- | --- |"]
    else:
        out.append("All lines ran.")
    for line in found.uncovered():
        text = line.text(root)
        why = reasons.line(line.file, text) or NO_REASON
        out.append(f"| `{line.file}` | {line.number} | `{_cell(text)}` | {why} |")
    out += ["", "## Bits that did not rise and fall", ""]
    out += ["| signals | file | bits | why |", "| --- | --- | ---: | --- |"]
    rows = [(reasons.signal(s), s) for s in signals if s.missing]
    for (texts, left), group in _grouped(rows):
        names = ", ".join(f"`{name_of(s)}`" for s in group[:4])
        names += f" and {len(group) - 4} more" if len(group) > 4 else ""
        which = _bits(group[0].missing) if len(group) == 1 else f"{sum(len(s.missing) for s in group)} bits"
        why = "; ".join([*texts, *([NO_REASON] if left else [])])
        out.append(f"| {names} | `{file_of(group[0].signal)}` | {which} | {why} |")
    out += ["", "## Runs", "", "| run | cycles | seconds |", "| --- | ---: | ---: |"]
    out += [f"| {run.name} | {run.cycles:,} | {run.seconds:.0f} |" for run in runs]
    cycles, seconds = sum(run.cycles for run in runs), sum(run.seconds for run in runs)
    out.append(f"| {len(runs)} runs | {cycles:,} | {seconds:,.0f} |")
    return "\n".join(out) + "\n"


_ROW = re.compile(r"^\| `([^`]+)` \| (\d+) \| `(.*?)` \| ", re.MULTILINE)


@dataclass(frozen=True)
class LineRow:
    """A row of the table of lines that did not run, and where its number is in the page."""

    file: str
    number: int
    text: str
    at: tuple[int, int]


def rows(written: str) -> Iterator[LineRow]:
    """Yield the rows of a page's table of lines that did not run."""
    begin = written.index(LINES)
    end = written.index("\n## ", begin + 1)
    for found in _ROW.finditer(written, begin, end):
        yield LineRow(found[1], int(found[2]), found[3].replace("\\|", "|"), found.span(2))


def renumbered(written: str, root: Path) -> str:
    """Return a page whose rows have the numbers that their lines have now.

    The rows of a file with the same text are matched in order with the lines that have this text.

    Raises
    ------
    ValueError
        if the file has another number of such lines than the page, other than those whose numbers are right.
    """
    groups: dict[tuple[str, str], list[LineRow]] = {}
    for row in rows(written):
        groups.setdefault((row.file, row.text), []).append(row)
    changes: list[tuple[tuple[int, int], int]] = []
    for (file, text), own in groups.items():
        path = root / file
        lines = path.read_text().splitlines() if path.is_file() else []
        there = [number for number, line in enumerate(lines, 1) if line.strip() == text]
        if {row.number for row in own} <= set(there):
            continue
        if len(there) != len(own):
            raise ValueError(
                f"{file} has {len(there)} lines {text!r} and the page {len(own)}: run make coverage"
            )
        changes += [(row.at, number) for row, number in zip(own, there, strict=True)]
    for (first, last), number in sorted(changes, reverse=True):
        written = written[:first] + str(number) + written[last:]
    return written


def _grouped(
    rows: Sequence[tuple[tuple[list[str], set[int]], Toggles]],
) -> list[tuple[tuple[list[str], set[int]], list[Toggles]]]:
    """Return signals of one file with the same reasons together."""

    def kind(row: tuple[tuple[list[str], set[int]], Toggles]) -> tuple[str, str, bool]:
        return file_of(row[1].signal), "; ".join(row[0][0]), bool(row[0][1])

    found = []
    for _, group in itertools.groupby(sorted(rows, key=kind), kind):
        own = list(group)
        found.append((own[0][0], [toggles for _, toggles in own]))
    return found


def _bits(numbers: Sequence[int]) -> str:
    """Return numbers as ranges, the highest first."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ", ".join(f"{high}:{low}" if high > low else f"{low}" for low, high in reversed(ranges))


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
