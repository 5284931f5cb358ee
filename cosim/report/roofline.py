"""The roofline: MACs a cycle over MACs a byte, below the roofs of the array and of DRAM.

In the page of a run (`chart`), and as an SVG file of its own with TOPS and GB/s (`cosim.report.rooffile`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from markupsafe import Markup

from cosim.perf import formula
from cosim.report.data import Row, Run
from cosim.report.svg import clip, count, decades, el, legend, line, number, path, svg, text, title

WIDTH, HEIGHT = 1000.0, 520.0
LEFT, RIGHT, TOP, BOTTOM = 62.0, 24.0, 16.0, 46.0
BADGE = 10.0
"""Radius of a layer's number."""

NUMBERED = 120
"""Layers of which each gets its number; more of them are dots only."""

KINDS = 6
"""Operators with a colour of their own; the rest share one."""


Scale = Callable[[float], float]


@dataclass
class Point:
    """A layer: where it is (`x`, `y`) and where its number is written (`bx`, `by`), in the drawing."""

    row: Row
    x: float
    y: float
    bx: float
    by: float


def operators(run: Run) -> list[str]:
    """Operators of the rows with MACs, those with most cycles first."""
    weight: dict[str, int] = {}
    for row in run.rows:
        if row.macs:
            weight[row.op] = weight.get(row.op, 0) + (row.cycles or 0)
    return sorted(weight, key=lambda op: -weight[op])


def shown(run: Run) -> list[Row]:
    """Rows that have a place: MACs, bytes and cycles."""
    return [row for row in run.rows if row.macs and row.moved and row.cycles]


def roofs(run: Run) -> list[tuple[float, str]]:
    """(MACs a cycle, name) of the array for the types and kinds of layer in this run."""
    cores = max([1, *(len(row.cores) for row in run.rows)])
    times = f" x {cores} cores" if cores > 1 else ""
    found = []
    for peak in sorted({row.peak for row in shown(run) if row.peak}, reverse=True):
        bits = 8 * run.peak // peak
        kind = "depthwise array" if peak == formula.DEPTHWISE_GROUP else f"array, {bits}-bit operands"
        found.append((float(peak * cores), f"{kind}: {count(peak)} MACs/cycle{times}"))
    return found


@dataclass(frozen=True)
class Scales:
    """Ranges of both axes, and the places of values in the drawing."""

    x_low: float
    x_high: float
    y_low: float
    y_high: float
    top: float
    """The highest roof of the array."""

    def px(self, value: float) -> float:
        """From MACs a byte."""
        return LEFT + (WIDTH - LEFT - RIGHT) * math.log(value / self.x_low) / math.log(
            self.x_high / self.x_low
        )

    def py(self, value: float) -> float:
        """From MACs a cycle."""
        height = HEIGHT - TOP - BOTTOM
        return HEIGHT - BOTTOM - height * math.log(value / self.y_low) / math.log(self.y_high / self.y_low)

    def unscaled(self, x: float) -> float:
        """MACs a byte at a place."""
        return self.x_low * (self.x_high / self.x_low) ** ((x - LEFT) / (WIDTH - LEFT - RIGHT))


def scales(run: Run) -> Scales:
    """Of a run that has rows to show."""
    x_of = [row.macs / row.moved for row in shown(run)]
    y_of = [row.macs / (row.cycles or 1) for row in shown(run)]
    top = max([roof for roof, _ in roofs(run)] or [float(run.peak)])
    ridge = top / run.dram_rate
    return Scales(
        10 ** math.floor(math.log10(min(*x_of, ridge) * 0.8)),
        10 ** math.ceil(math.log10(max(*x_of, ridge) * 1.2)),
        10 ** math.floor(math.log10(min(y_of) * 0.8)),
        top * 2.2,
        top,
    )


def chart(run: Run, clock: float | None = None) -> Markup:
    """The drawing; empty where no row has a place.

    With a `clock` in GHz roofs say their TOPS and GB/s too, and layers are no links into a page.
    """
    rows = shown(run)
    if not rows:
        return Markup("")
    x_of = {row.number: row.macs / row.moved for row in rows}
    y_of = {row.number: row.macs / (row.cycles or 1) for row in rows}
    scale = scales(run)
    px, py, unscaled, top = scale.px, scale.py, scale.unscaled, scale.top
    x_low, x_high, y_low = scale.x_low, scale.x_high, scale.y_low
    shapes = _grid(px, py, x_low, x_high, y_low, scale.y_high)
    ops = operators(run)
    points = [
        Point(row, px(x_of[row.number]), py(y_of[row.number]), px(x_of[row.number]), py(y_of[row.number]))
        for row in rows
    ]
    radius = BADGE if len(points) <= NUMBERED else BADGE / 2
    if len(points) <= NUMBERED:
        _part(points, lambda x: py(min(top, run.dram_rate * unscaled(x))))
    shapes += _roofs(run, px, py, x_low, x_high, y_low, points, clock)
    for point in points:
        shapes.append(line(point.x, point.y, point.bx, point.by, class_="leader"))
        shapes.append(el("circle", cx=point.x, cy=point.y, r=2.5, class_="dot"))
    for point in points:
        row = point.row
        words = (
            row.label,
            f"{row.op}, bound by {row.bound or '?'}",
            f"{number(float(x_of[row.number]))} MACs/byte, {number(float(y_of[row.number]))} MACs/cycle",
            f"{count(row.macs)} MACs, {count(row.moved)} bytes, {count(row.cycles)} cycles",
        )
        css = f"o-{min(ops.index(row.op), KINDS)}"
        badge = (
            el("circle", title(*words), cx=point.bx, cy=point.by, r=radius, class_=f"badge {css}"),
            text(point.bx, point.by + 3.5, str(row.number), class_="badgetext") if radius == BADGE else "",
        )
        shapes.append(el("g", *badge) if clock else el("a", *badge, href=f"#row{row.number}"))
    return svg(
        WIDTH,
        HEIGHT,
        *shapes,
        class_="chart roofline",
        role="img",
        aria_label="roofline: MACs per cycle over MACs per byte",
    )


def roofline_legend(run: Run) -> Markup:
    """Which colour is which operator."""
    ops = operators(run)
    items = [(f"o-{n}", clip(op, 30), "") for n, op in enumerate(ops[:KINDS])]
    if len(ops) > KINDS:
        items.append((f"o-{KINDS}", "others", ", ".join(ops[KINDS:])))
    return legend(items)


def absent(run: Run) -> list[Row]:
    """Rows without a place in the drawing."""
    here = {row.number for row in shown(run)}
    return [row for row in run.rows if row.number not in here]


def tops(macs: float, clock: float) -> float:
    """Operations a picosecond (a MAC is two) of MACs a cycle at a clock in GHz."""
    return 2 * macs * clock / 1000


def _grid(px: Scale, py: Scale, x_low: float, x_high: float, y_low: float, y_high: float) -> list[Markup]:
    shapes = []
    for value in decades(x_low, x_high):
        for times in range(2, 10):
            if value * times < x_high:
                shapes.append(line(px(value * times), TOP, px(value * times), HEIGHT - BOTTOM, class_="fine"))
        shapes.append(line(px(value), TOP, px(value), HEIGHT - BOTTOM, class_="grid"))
        shapes.append(text(px(value), HEIGHT - BOTTOM + 16, _power(value), class_="tick mid"))
    for value in decades(y_low, y_high):
        for times in range(2, 10):
            if value * times < y_high:
                shapes.append(line(LEFT, py(value * times), WIDTH - RIGHT, py(value * times), class_="fine"))
        shapes.append(line(LEFT, py(value), WIDTH - RIGHT, py(value), class_="grid"))
        shapes.append(text(LEFT - 8, py(value) + 4, _power(value), class_="tick end"))
    middle = (TOP + HEIGHT - BOTTOM) / 2
    shapes.append(text((LEFT + WIDTH) / 2, HEIGHT - 8, "MACs per byte of DRAM traffic", class_="axis mid"))
    shapes.append(
        text(16, middle, "MACs per cycle", class_="axis mid", transform=f"rotate(-90 16 {number(middle)})")
    )
    return shapes


def _roofs(
    run: Run,
    px: Scale,
    py: Scale,
    x_low: float,
    x_high: float,
    y_low: float,
    points: list[Point],
    clock: float | None,
) -> list[Markup]:
    shapes = []
    found = roofs(run)
    top = found[0][0] if found else float(run.peak)
    rate = run.dram_rate
    start = max(x_low, y_low / rate)
    ridge = top / rate
    area = [(start, start * rate), (ridge, top), (x_high, top), (x_high, y_low), (start, y_low)]
    shapes.append(path([(px(x), py(y)) for x, y in area], closed=True, class_="under"))
    slope = [(px(start), py(start * rate)), (px(ridge), py(top))]
    shapes.append(path(slope, class_="roof"))
    angle = math.degrees(math.atan2(slope[1][1] - slope[0][1], slope[1][0] - slope[0][0]))
    x, y = _roomiest(slope, points)
    shapes.append(
        text(
            x,
            y - 8,
            f"DRAM: {number(rate)} bytes/cycle" + (f" = {rate * clock:.4g} GB/s" if clock else ""),
            class_="rooftext mid",
            transform=f"rotate({number(angle)} {number(x)} {number(y)})",
        )
    )
    for n, (roof, name) in enumerate(found):
        shapes.append(
            path(
                [(px(max(x_low, roof / rate)), py(roof)), (px(x_high), py(roof))],
                class_="roof" if n == 0 else "roof lower",
            )
        )
        said = f"{name} = {tops(roof, clock):.3g} TOPS" if clock else name
        shapes.append(text(WIDTH - RIGHT - 6, py(roof) - 6, said, class_="rooftext end"))
    return shapes


def _roomiest(slope: list[tuple[float, float]], points: list[Point]) -> tuple[float, float]:
    """The place on a line that is farthest from all numbers, not close to its ends."""
    (x1, y1), (x2, y2) = slope
    places = [(x1 + (x2 - x1) * n / 20, y1 + (y2 - y1) * n / 20) for n in range(5, 16)]
    return max(places, key=lambda at: min(math.hypot(at[0] - p.bx, at[1] - 20 - p.by) for p in points))


def _part(points: list[Point], roof: Scale) -> None:
    """Move the numbers of close layers apart, in small steps and below the roof; the dots stay."""
    gap = 2 * BADGE + 1
    for n, point in enumerate(points):  # no two at one place, or nothing says which way to go
        point.bx += 0.37 * math.cos(n * 2.4)
        point.by += 0.37 * math.sin(n * 2.4) - 0.1
    for _ in range(160):
        moved = False
        for n, a in enumerate(points):
            for b in points[n + 1 :]:
                dx, dy = b.bx - a.bx, b.by - a.by
                far = math.hypot(dx, dy) or 1e-6
                if far < gap:
                    push = (gap - far) / 2 / far
                    a.bx, a.by = a.bx - dx * push, a.by - dy * push
                    b.bx, b.by = b.bx + dx * push, b.by + dy * push
                    moved = True
        for point in points:
            point.bx = min(max(point.bx, LEFT + BADGE), WIDTH - RIGHT - BADGE)
            point.by = max(point.by, min(roof(point.bx) + BADGE / 2, point.y))
            point.by = min(max(point.by, TOP + BADGE), HEIGHT - BOTTOM - BADGE)
        if not moved:
            return


def _power(value: float) -> str:
    return count(value) if value >= 1 else f"{value:g}"
