"""Bar charts: the causes of the cycles of a whole run and of each layer, and the bytes of each layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from markupsafe import Markup

from rkcosim.measure.perf.attribution import CAUSES
from rkcosim.measure.report.data import ReportedRun, ReportRow
from rkcosim.measure.report.figures import count, legend, percent, size
from rkcosim.waves.drawing import el, line, rect, svg, title

CLIENTS = {
    "FEATURE": "feature maps into CBUF",
    "WEIGHT": "weights into CBUF",
    "MRDMA": "main input of the DPU",
    "BRDMA": "bias and scale tables of the DPU",
    "NRDMA": "tables of the DPU's BN stage",
    "ERDMA": "second operand of the DPU",
    "PPU": "input of the PPU",
    "PC": "command words",
}
"""Read clients (`rkcosim.rtl.layouts.ReadClient`)."""

Parts = Sequence[tuple[str, float, str]]
"""(class of the colour, amount, text shown on hovering)."""


def stack(parts: Parts, mark: float | None = None) -> Markup:
    """Return one bar of the given parts that fills its place; `mark` draws a line at that amount."""
    total = sum(amount for _, amount, _ in parts)
    if not total:
        return Markup("")
    at, shapes = 0.0, []
    for css, amount, words in parts:
        if amount > 0:
            width = 1000 * amount / total
            shapes.append(rect(at, 0, width, 16, title(words), class_=css))
            at += width
    if mark is not None and 0 < mark < total:
        x = 1000 * mark / total
        shapes += [line(x, 0, x, 16, class_="halo"), line(x, 0, x, 16, class_="mark")]
    return svg(1000, 16, *shapes, preserveAspectRatio="none", class_="bar", aria_hidden="true")


def spent_parts(spent: Mapping[str, int], of: str) -> list[tuple[str, float, str]]:
    """Return the parts of a bar of cycles."""
    total = sum(spent.values()) or 1
    amounts = [(cause, spent.get(cause, 0)) for cause in CAUSES]
    return [(f"p-{c}", n, f"{of}\n{c.label}: {count(n)} ({percent(n / total)})") for c, n in amounts]


def overview(run: ReportedRun) -> Markup:
    """Return the whole run as one bar, with a list of shares."""
    spent = run.spent()
    total = sum(spent.values())
    if not total:
        return Markup("")
    shares = [
        el(
            "div",
            el("i", " ", class_=f"key p-{cause}"),
            el("b", percent(spent[cause] / total)),
            el("span", cause.label),
            el("small", f"{count(spent[cause])} cycles"),
            class_="share",
            title=cause.meaning,
        )
        for cause in CAUSES
        if spent[cause]
    ]
    return el(
        "div",
        el("div", stack(spent_parts(spent, "all")), class_="bigbar"),
        el("div", *shares, class_="shares"),
    )


def cycles_chart(run: ReportedRun) -> Markup:
    """Return a bar of cycles for each row that has parts."""
    rows = [row for row in run.rows if row.spent and row.core_cycles]
    if not rows:
        return Markup("")
    amounts = [float(row.core_cycles or 0) for row in rows]
    drawn = [stack(spent_parts(row.spent, row.label), row.formula_cycles) for row in rows]
    return _chart(rows, amounts, drawn, count)


def cycles_legend(mark: bool = True) -> Markup:
    """Return the legend of the colours of cycles and of the mark in a bar."""
    items = [(f"p-{cause}", cause.label, cause.meaning) for cause in CAUSES]
    if mark:
        items.append(("k-mark", "formula", "the lower bound from formula and DRAM rate"))
    return legend(items)


def bytes_chart(run: ReportedRun) -> Markup:
    """Return a bar of bytes for each row: reads by client, and writes."""
    rows = [row for row in run.rows if row.moved]
    if not rows:
        return Markup("")

    def parts(row: ReportRow) -> list[tuple[str, float, str]]:
        named = row.read_by or {"": row.bytes_read}
        found = [
            (f"c-{name or 'read'}", amount, f"{row.label}\nread by {name or 'all'}: {count(amount)} bytes")
            for name, amount in sorted(named.items(), key=lambda item: clients.index(item[0]))
        ]
        written = f"{row.label}\nwritten: {count(row.bytes_written)} bytes"
        return [*found, ("c-write", row.bytes_written, written)]

    clients = [*run.clients(), ""]

    totals = [(sum(row.read_by.values()) or row.bytes_read) + row.bytes_written for row in rows]
    return _chart(rows, totals, [stack(parts(row)) for row in rows], size)


def bytes_legend(run: ReportedRun) -> Markup:
    """Return the legend of the colours of bytes."""
    clients = run.clients()
    items = [(f"c-{name}", name, CLIENTS.get(name, "")) for name in clients] or [("c-read", "read", "")]
    return legend([*items, ("c-write", "written", "by DPU and PPU")])


def _chart(
    rows: Sequence[ReportRow], amounts: Sequence[float], drawn: Sequence[Markup], form: Callable[[float], str]
) -> Markup:
    """Return the name, bar and amount of each row."""
    lines = []
    for row, amount, bar in zip(rows, amounts, drawn, strict=True):
        share = max(100 * amount / max(amounts), 0.3)
        lines.append(el("a", row.label, href=f"#row{row.number}", class_="name", title=row.name))
        lines.append(el("div", bar, class_="room", style=f"--w:{share:.2f}%"))
        lines.append(el("span", form(amount), class_="value"))
    return el("div", *lines, class_="bars")
