"""Comparison of two runs row by row: cycles, bytes, use of the array, and the parts that differ."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from rkcosim.measure.perf.attribution import CAUSES, Cause
from rkcosim.measure.report import bars, page
from rkcosim.measure.report.data import ReportedRun, ReportRow
from rkcosim.measure.report.figures import NOTHING, count, percent, short, shorten, size
from rkcosim.measure.report.table import Cell, Column, groups
from rkcosim.waves.drawing import clip, el, line, rect, svg

Form = Callable[[Any], str]


@dataclass
class Pair:
    """A row of both runs, or of only one of them."""

    number: int
    name: str
    a: ReportRow | None
    b: ReportRow | None

    @property
    def change(self) -> int | None:
        """Cycles of the second row minus those of the first."""
        if self.a is None or self.b is None or self.a.cycles is None or self.b.cycles is None:
            return None
        return self.b.cycles - self.a.cycles


def pairs(a: ReportedRun, b: ReportedRun) -> list[Pair]:
    """Pair rows of equal names (the n-th of a name with the n-th); the first run's rows come first."""
    keys_a, keys_b = _keyed(a), _keyed(b)
    order = [*keys_a, *(key for key in keys_b if key not in keys_a)]
    names = shorten([name for name, _ in order])
    return [
        Pair(n, name, keys_a.get(key), keys_b.get(key))
        for n, (key, name) in enumerate(zip(order, names, strict=True))
    ]


def render(a: ReportedRun, b: ReportedRun, clock: float = 1.0) -> str:
    """Return the page of two runs as text; raises the errors of `rkcosim.measure.report.render`."""
    page.check_clock(clock)
    rows = pairs(a, b)
    found = _columns(rows)
    return page.template("compare.html.j2").render(
        css=Markup(page.content("style.css")),
        js=Markup(page.content("script.js")),
        a=a,
        b=b,
        verdicts=[("A", a, page.verdict(a)), ("B", b, page.verdict(b))],
        tiles=_tiles(a, b, clock),
        bars=_overview(a, b),
        legend=bars.cycles_legend(mark=False),
        remarks=_remarks(a, b, rows),
        rows=rows,
        columns=found,
        groups=groups(found),
        unit=a.unit,
    )


def write(path: Path, a: ReportedRun, b: ReportedRun, clock: float = 1.0) -> None:
    """Write the page of two runs; raises the errors of `render`."""
    page.put(path, render(a, b, clock))


_COMPARED = ("cycles", "bytes_read", "bytes_written", "tasks", "spent")
"""Members of a row that `as_json` compares."""


def as_json(a: ReportedRun, b: ReportedRun) -> dict[str, Any]:
    """Return the comparison as plain values; pairs are [first, second], None if a run has no such row."""

    def both(pair: Pair, member: str) -> list[Any]:
        return [getattr(row, member, None) for row in (pair.a, pair.b)]

    return {
        "schema_version": 1,
        "runs": [a.title, b.title],
        "verdicts": [a.verdict, b.verdict],
        "cycles": [a.cycles, b.cycles],
        "spent": [a.spent(), b.spent()],
        "rows": [
            {
                "name": (pair.a or pair.b or ReportRow(0, "", "")).name,
                **{name: both(pair, name) for name in _COMPARED},
            }
            for pair in pairs(a, b)
        ],
    }


def _keyed(run: ReportedRun) -> dict[tuple[str, int], ReportRow]:
    seen: dict[str, int] = {}
    found = {}
    for row in run.rows:
        found[row.name, seen.setdefault(row.name, 0)] = row
        seen[row.name] += 1
    return found


def _tiles(a: ReportedRun, b: ReportedRun, clock: float) -> list[tuple[str, str, str, str]]:
    """Return (name, value of the second, value of the first, change)."""
    found = []

    def tile(name: str, x: float | None, y: float | None, form: Form) -> None:
        if x is not None and y is not None:
            found.append((name, form(y), form(x), percent((y - x) / x) if x else NOTHING))

    tile("cycles", a.cycles, b.cycles, count)
    if a.cycles and b.cycles:
        tile("time", a.cycles / clock, b.cycles / clock, page.duration)
    tile("bytes", sum(r.moved for r in a.rows), sum(r.moved for r in b.rows), size)
    tile("MACs", sum(r.macs for r in a.rows), sum(r.macs for r in b.rows), short)
    tile("tasks", sum(r.tasks for r in a.rows), sum(r.tasks for r in b.rows), count)
    return found


def _overview(a: ReportedRun, b: ReportedRun) -> Markup:
    totals = [sum(run.spent().values()) for run in (a, b)]
    most = max(totals)
    if not most:
        return Markup("")
    cells = []
    for name, run, total in (("A", a, totals[0]), ("B", b, totals[1])):
        drawn = bars.stack(bars.spent_parts(run.spent(), name))
        cells += [el("b", name), el("div", drawn, style=f"--w:{100 * total / most:.2f}%")]
        cells.append(el("span", count(total), class_="num"))
    return el("div", *cells, class_="pair")


def _remarks(a: ReportedRun, b: ReportedRun, rows: list[Pair]) -> list[str]:
    found = []
    changed = [pair for pair in rows if pair.change]
    if a.measured and b.measured:
        total = sum(pair.change or 0 for pair in rows)
        if not changed:
            found.append(f"Every {a.unit} takes the same number of cycles in both.")
        else:
            found.append(
                f"{len(changed)} of {len(rows)} {a.unit}s differ, in total by {_signed(total)} cycles "
                f"({percent(total / a.in_rows) if a.in_rows else NOTHING})."
            )
            most = sorted(changed, key=lambda pair: -abs(pair.change or 0))[:3]
            names = ", ".join(f"{clip(pair.name, 30)} ({_signed(pair.change or 0)})" for pair in most)
            found.append(f"The largest changes: {names}.")
        x, y = a.spent(), b.spent()
        parts = sorted(CAUSES, key=lambda part: -abs(y[part] - x[part]))
        told = [f"{part.label} {_signed(y[part] - x[part])}" for part in parts[:3] if y[part] != x[part]]
        if told:
            found.append(f"The causes whose cycles changed: {', '.join(told)}.")
    for name, only in (("A", [p for p in rows if p.b is None]), ("B", [p for p in rows if p.a is None])):
        if only:
            some = ", ".join(clip(pair.name, 30) for pair in only[:6])
            found.append(f"Only in {name}: {some}{' and more' if len(only) > 6 else ''}.")
    if max(a.cores, b.cores) > 1 and (a.measured or b.measured):
        found.append("Bars and parts count the cycles of every core, the other figures elapsed cycles.")
    for member in ("engine", "cores"):
        x, y = getattr(a, member), getattr(b, member)
        if x != y:
            found.append(f"The runs differ in {member}: {x} and {y}.")
    if a.dram != b.dram:
        keys = sorted(key for key in {*a.dram, *b.dram} if a.dram.get(key) != b.dram.get(key))
        found.append(f"The memories differ in {', '.join(keys)}.")
    return found


def _columns(rows: list[Pair]) -> list[Column]:
    most = max((abs(pair.change or 0) for pair in rows), default=0)
    known = [pair.a or pair.b or ReportRow(0, "", "") for pair in rows]
    names = [
        Cell(clip(p.name, 40), p.name, css="words", hover=row.name)
        for p, row in zip(rows, known, strict=True)
    ]
    result = [
        Column("#", "", "number in this table", [Cell(str(p.number), p.number) for p in rows]),
        Column("name", "", "rows of equal names", names),
        Column("op", "", "operator", [Cell(row.op, row.op, css="words") for row in known]),
        *_two(rows, "cycles", "cycles", count),
        Column("change", "cycles", "B minus A", [_change(pair) for pair in rows]),
        Column("", "cycles", "left: fewer in B, right: more", [_drawn(pair, most) for pair in rows]),
        Column("went on", "cycles", "the part that changed most", [_part(pair) for pair in rows]),
    ]
    return [
        *result,
        *_two(rows, "ratio", "ratio to the formula", lambda v: NOTHING if v is None else f"{v:.2f}"),
        *_two(rows, "utilisation", "MAC use", percent),
        *_two(rows, "moved", "bytes", size),
        Column("change", "bytes", "B less A", [_bytes(pair) for pair in rows]),
    ]


def _two(rows: list[Pair], member: str, group: str, form: Form) -> list[Column]:
    columns = []
    for name in ("a", "b"):
        values = [getattr(getattr(pair, name), member, None) for pair in rows]
        total = sum(v or 0 for v in values) if member in ("cycles", "moved") else None
        cells = [Cell(form(v), v) for v in values]
        big = name.upper()
        columns.append(Column(big, group, f"{group} in {big}", cells, form(total) if total else ""))
    return columns


def _sign(change: float) -> str:
    return "better" if change < 0 else "worse" if change > 0 else ""


def _signed(change: int) -> str:
    return f"{change:+,}" if change else "0"


def _change(pair: Pair) -> Cell:
    change = pair.change
    if change is None:
        return Cell(NOTHING)
    before = (pair.a.cycles if pair.a else 0) or 1
    said = f"{_signed(change)} ({change / before:+.1%})" if change else "0"
    return Cell(said, change, css=f"num {_sign(change)}")


def _bytes(pair: Pair) -> Cell:
    if pair.a is None or pair.b is None:
        return Cell(NOTHING)
    change = pair.b.moved - pair.a.moved
    return Cell(_signed(change), change, css=f"num {_sign(change)}")


def _drawn(pair: Pair, most: int) -> Cell:
    """Return a bar to the left or right of the middle."""
    change = pair.change
    if not change or not most:
        return Cell("", 0 if change == 0 else None, css="delta")
    width = 74 * abs(change) / most
    left = 75 - width if change < 0 else 75
    shapes = [rect(left, 1, max(width, 0.7), 12, class_=_sign(change)), line(75, 0, 75, 14, class_="zero")]
    return Cell(svg(150, 14, *shapes), change, css="delta")


def _part(pair: Pair) -> Cell:
    changes: dict[Cause, int] = {}
    if pair.a and pair.b and pair.a.spent and pair.b.spent:
        changes = {cause: pair.b.spent.get(cause, 0) - pair.a.spent.get(cause, 0) for cause in CAUSES}
    if not any(changes.values()):
        return Cell(NOTHING, css="words")
    cause = max(changes, key=lambda name: abs(changes[name]))
    return Cell(f"{cause.label} {_signed(changes[cause])}", changes[cause], css="words")
