"""The table of layers or tasks: columns, cells, and the row of sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rkcosim.measure.perf.attribution import CAUSES, Cause
from rkcosim.measure.report.bars import CLIENTS
from rkcosim.measure.report.data import ReportedRun, ReportRow
from rkcosim.measure.report.figures import NOTHING, count, percent, short, size
from rkcosim.waves.drawing import clip


@dataclass
class Cell:
    """Text, its sort key (None: unknown), and a bar behind it (0..1)."""

    text: str
    sort: float | str | None = None
    bar: float | None = None
    css: str = "num"
    hover: str = ""


@dataclass
class Column:
    """A heading with its meaning, the group heading above it, and the cells."""

    name: str
    group: str
    meaning: str
    cells: list[Cell]
    total: str = ""


def columns(run: ReportedRun) -> list[Column]:
    """Return all columns that have contents."""
    return [*_names(run), *_time(run), *_array(run), *_bytes(run), *_parts(run)]


def _numbers(
    name: str, group: str, meaning: str, values: Sequence[int], form: Callable[[float | None], str] = count
) -> list[Column]:
    """Return a column of counts with their sum; no column if all are 0."""
    cells = [Cell(form(value), value, hover=count(value) if form is not count else "") for value in values]
    return [Column(name, group, meaning, cells, form(sum(values)))] if any(values) else []


def _shares(name: str, group: str, meaning: str, values: Sequence[float | None], css: str) -> list[Column]:
    """Return a column of percentages with bars; no column if none is known."""
    cells = [Cell(percent(v), v, v, f"num share {css}") for v in values]
    return [Column(name, group, meaning, cells)] if any(v is not None for v in values) else []


def _names(run: ReportedRun) -> list[Column]:
    rows = run.rows
    found = [
        Column("#", "", f"number of the {run.unit}", [Cell(str(row.number), row.number) for row in rows]),
        Column(
            run.unit,
            "",
            f"name of the {run.unit}",
            [Cell(clip(row.short, 40), row.short, css="words", hover=_hover(row)) for row in rows],
            f"{len(rows)} {run.unit}{'s' if len(rows) != 1 else ''}",
        ),
        Column("op", "", "operator", [Cell(row.op, row.op, css="words") for row in rows]),
    ]
    if any(row.target != "npu" for row in rows):
        cells = [Cell(row.target, row.target, css="words") for row in rows]
        found.append(Column("on", "", "NPU, or the host's processor", cells))
    if run.unit == "layer":
        found += _numbers("tasks", "", "hardware tasks", [row.tasks for row in rows])
    return found


def _time(run: ReportedRun) -> list[Column]:
    rows, total, found = run.rows, run.in_rows, []
    if run.measured:
        most = max(row.cycles or 0 for row in rows) or 1
        cells = [
            Cell(count(row.cycles), row.cycles, (row.cycles or 0) / most, "num share p-array") for row in rows
        ]
        meaning = "from the start of the first task to the end of the last"
        found.append(Column("cycles", "time", meaning, cells, count(total)))
        shares = [row.cycles / total if row.cycles and total else None for row in rows]
        found += _shares("share", "time", f"share of the cycles of all {run.unit}s", shares, "plain")
    meaning = "lower bound: the larger of the vendor's array formula and the transfer of all bytes"
    found += _numbers("formula", "time", meaning, [row.formula_cycles for row in rows])
    if run.measured:
        ratios = [Cell(NOTHING if row.ratio is None else f"{row.ratio:.2f}", row.ratio) for row in rows]
        found.append(Column("ratio", "time", "cycles divided by formula", ratios))
    bounds = [Cell(row.bound or NOTHING, row.bound, css="words") for row in rows]
    return [*found, Column("bound by", "time", "see Notes", bounds)]


def _array(run: ReportedRun) -> list[Column]:
    rows = run.rows
    use = "useful MACs divided by the peak of the arrays of all cores that ran it, for the type in all cycles"
    busy = "cycles with an operand slot (also an empty one) divided by all cycles of these cores"
    return [
        *_numbers("MACs", "array", "useful multiply-accumulates", [row.macs for row in rows], short),
        *_shares("MAC use", "array", use, [row.utilisation if row.macs else None for row in rows], "p-array"),
        *_shares("busy", "array", busy, [row.mac_busy for row in rows], "p-array"),
    ]


def _bytes(run: ReportedRun) -> list[Column]:
    rows, found = run.rows, []
    for client in run.clients():
        meaning = f"bytes read by {client}: {CLIENTS.get(client, '')}"
        found += _numbers(
            client, "bytes read by", meaning, [row.read_by.get(client, 0) for row in rows], size
        )
    if not found:
        reads = [row.bytes_read for row in rows]
        found += _numbers("read", "bytes", "bytes read, without command words", reads, size)
    written = [row.bytes_written for row in rows]
    return [*found, *_numbers("written", "bytes", "bytes written by DPU and PPU", written, size)]


def _parts(run: ReportedRun) -> list[Column]:
    found = []
    for cause in CAUSES:
        if not (total := run.spent()[cause]):
            continue
        cells = [
            Cell(
                count(row.spent.get(cause)),
                row.spent.get(cause),
                row.spent.get(cause, 0) / row.core_cycles if row.core_cycles else None,
                f"num share p-{cause}",
                _raw(row, cause),
            )
            for row in run.rows
        ]
        found.append(Column(cause.label, "cycles by cause", cause.meaning, cells, count(total)))
    return found


def groups(found: list[Column]) -> list[tuple[str, int]]:
    """Return the headings above the columns, with the number of columns below each."""
    result: list[tuple[str, int]] = []
    for column in found:
        if result and result[-1][0] == column.group:
            result[-1] = (column.group, result[-1][1] + 1)
        else:
            result.append((column.group, 1))
    return result


_RAW = {
    Cause.OPERANDS: "stall_operand",
    **dict.fromkeys((Cause.DPU, Cause.LUT, Cause.FLOATS), "stall_dpu"),
    Cause.WRITER: "stall_write",
}


def _raw(row: ReportRow, cause: Cause) -> str:
    """Return a text with the raw counter, which may also count while the array works."""
    if cause not in _RAW or not row.counters.get(_RAW[cause]):
        return ""
    return f"{_RAW[cause]} was set in {count(row.counters[_RAW[cause]])} cycles, which overlap others"


def _hover(row: ReportRow) -> str:
    lines = [row.name]
    if row.input_shape or row.output_shape:
        shapes = ["x".join(map(str, shape)) for shape in (row.input_shape, row.output_shape)]
        lines.append(f"{shapes[0]} -> {shapes[1]}")
    if len(row.cores) > 1:
        lines.append(f"on cores {', '.join(map(str, row.cores))}")
    if row.target == "host" and row.host_seconds:
        lines.append(f"{row.host_seconds:.3f} s in the simulation's process")
    return "\n".join(lines)
