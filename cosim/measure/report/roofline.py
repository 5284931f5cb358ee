"""The roofline: MACs per cycle over MACs per byte, below the roofs of the array and of DRAM.

It is drawn in the page of a run (`chart`), and as a separate SVG file with TOPS and GB/s
(`rkcosim.measure.report.rooffile`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from markupsafe import Markup

from rkcosim.measure.perf import formula
from rkcosim.measure.report.data import ReportedRun, ReportRow
from rkcosim.measure.report.figures import count, legend
from rkcosim.waves.drawing import clip, decades, el, line, number, path, svg, text, title

WIDTH, HEIGHT = 1000.0, 520.0
LEFT, RIGHT, TOP, BOTTOM = 62.0, 24.0, 16.0, 46.0
MARK = 5.0
"""Radius of a layer's mark."""

NUMBERED = 120
"""Largest number of layers that get numbers; if there are more, they are drawn as dots."""

KINDS = 6
"""Number of operators that have different colours; the others share one."""


@dataclass
class Point:
    """A layer: position of its mark (`x`, `y`) and of the middle of its number (`bx`, `by`)."""

    row: ReportRow
    x: float
    y: float
    bx: float
    by: float

    @property
    def half(self) -> float:
        """Half the width of the number."""
        return 3.1 * len(str(self.row.number))


def operators(run: ReportedRun) -> list[str]:
    """Return the operators of rows with MACs, those with most cycles first."""
    weight: dict[str, int] = {}
    for row in run.rows:
        if row.macs:
            weight[row.op] = weight.get(row.op, 0) + (row.cycles or 0)
    return sorted(weight, key=lambda op: -weight[op])


def shown(run: ReportedRun) -> list[ReportRow]:
    """Return the rows that can be drawn: those with MACs, bytes and cycles."""
    return [row for row in run.rows if row.macs and row.moved and row.cycles]


def roofs(run: ReportedRun) -> list[tuple[float, str]]:
    """Return (MACs per cycle, name) of the array for the types and kinds of layers in this run."""
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
    """Ranges of both axes, and conversion of values to coordinates."""

    x_low: float
    x_high: float
    y_low: float
    y_high: float
    top: float
    """The highest roof of the array."""

    def px(self, value: float) -> float:
        """Return the x coordinate of a number of MACs per byte."""
        width = WIDTH - LEFT - RIGHT
        return LEFT + width * math.log(value / self.x_low) / math.log(self.x_high / self.x_low)

    def py(self, value: float) -> float:
        """Return the y coordinate of a number of MACs per cycle."""
        height = HEIGHT - TOP - BOTTOM
        return HEIGHT - BOTTOM - height * math.log(value / self.y_low) / math.log(self.y_high / self.y_low)

    def place(self, row: ReportRow) -> tuple[float, float]:
        """Return the coordinates of a row that is `shown`."""
        return self.px(row.macs / row.moved), self.py(row.macs / (row.cycles or 1))


def scales(run: ReportedRun) -> Scales:
    """Return the scales of a run that has rows to be drawn."""
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


def chart(run: ReportedRun, clock: float | None = None, **attributes: object) -> Markup:
    """Return the drawing; empty if no row can be drawn.

    With a `clock` in GHz the roofs also show TOPS and GB/s, and layers are not links into a page;
    `attributes` are those of the SVG element.
    """
    rows = shown(run)
    if not rows:
        return Markup("")
    scale, ops = scales(run), operators(run)
    points = [Point(row, x, y, x, y) for row in rows for x, y in [scale.place(row)]]
    numbered = len(points) <= NUMBERED
    if numbered:
        _place_numbers(points)
    shapes = [*_grid(scale), *_roofs(run, scale, points, clock)]
    for point in points:
        if numbered and math.hypot(point.bx - point.x, point.by - point.y) > _STEPS[0] + 2 * point.half:
            shapes.append(line(point.x, point.y, point.bx, point.by, class_="leader"))
    for point in points:
        row = point.row
        said = title(
            row.label,
            f"{row.op}, bound by {row.bound or '?'}",
            f"{number(row.macs / row.moved)} MACs/byte, {number(row.macs / (row.cycles or 1))} MACs/cycle",
            f"{count(row.macs)} MACs, {count(row.moved)} bytes, {count(row.cycles)} cycles",
        )
        css = f"badge o-{min(ops.index(row.op), KINDS)}"
        badge = [el("circle", said, cx=point.x, cy=point.y, r=MARK if numbered else MARK / 2, class_=css)]
        if numbered:
            badge.append(text(point.bx, point.by + 3.5, row.number, class_="marktext mid"))
        shapes.append(el("g", *badge) if clock else el("a", *badge, href=f"#row{row.number}"))
    label = "roofline: MACs per cycle over MACs per byte"
    return svg(WIDTH, HEIGHT, *shapes, class_="chart roofline", role="img", aria_label=label, **attributes)


def roofline_legend(run: ReportedRun) -> Markup:
    """Return the legend of the operators' colours."""
    ops = operators(run)
    items = [(f"o-{n}", clip(op, 30), "") for n, op in enumerate(ops[:KINDS])]
    if len(ops) > KINDS:
        items.append((f"o-{KINDS}", "others", ", ".join(ops[KINDS:])))
    return legend(items)


def absent(run: ReportedRun) -> list[ReportRow]:
    """Return the rows that cannot be drawn."""
    here = {row.number for row in shown(run)}
    return [row for row in run.rows if row.number not in here]


def tops(macs: float, clock: float) -> float:
    """Return operations per picosecond (a MAC counts as two) for MACs per cycle at a clock in GHz."""
    return 2 * macs * clock / 1000


def _grid(scale: Scales) -> list[Markup]:
    bottom, right, middle = HEIGHT - BOTTOM, WIDTH - RIGHT, (TOP + HEIGHT - BOTTOM) / 2

    def upright(value: float, css: str) -> Markup:
        return line(scale.px(value), TOP, scale.px(value), bottom, class_=css)

    def level(value: float, css: str) -> Markup:
        return line(LEFT, scale.py(value), right, scale.py(value), class_=css)

    shapes = []
    for ruled, low, high in ((upright, scale.x_low, scale.x_high), (level, scale.y_low, scale.y_high)):
        for value in decades(low, high):
            shapes += [ruled(value * times, "fine") for times in range(2, 10) if value * times < high]
            shapes.append(ruled(value, "grid"))
            words = count(value) if value >= 1 else f"{value:g}"
            if ruled is upright:
                shapes.append(text(scale.px(value), bottom + 16, words, class_="tick mid"))
            else:
                shapes.append(text(LEFT - 8, scale.py(value) + 4, words, class_="tick end"))
    turned = f"rotate(-90 16 {number(middle)})"
    shapes.append(text((LEFT + WIDTH) / 2, HEIGHT - 8, "MACs per byte of DRAM traffic", class_="axis mid"))
    return [*shapes, text(16, middle, "MACs per cycle", class_="axis mid", transform=turned)]


def _roofs(run: ReportedRun, scale: Scales, points: list[Point], clock: float | None) -> list[Markup]:
    rate, found = run.dram_rate, roofs(run)
    start, ridge = max(scale.x_low, scale.y_low / rate), scale.top / rate

    def drawn(places: list[tuple[float, float]], css: str, closed: bool = False) -> Markup:
        return path([(scale.px(x), scale.py(y)) for x, y in places], closed, class_=css)

    slope = [(start, start * rate), (ridge, scale.top)]
    under = [*slope, (scale.x_high, scale.top), (scale.x_high, scale.y_low), (start, scale.y_low)]
    shapes = [drawn(under, "under", closed=True), drawn(slope, "roof")]
    (x1, y1), (x2, y2) = ((scale.px(x), scale.py(y)) for x, y in slope)
    angle = math.degrees(math.atan2(y2 - y1, x2 - x1))
    x, y = _roomiest([(x1, y1), (x2, y2)], points)
    said = f"DRAM: {number(rate)} bytes/cycle" + (f" = {rate * clock:.4g} GB/s" if clock else "")
    turned = f"rotate({number(angle)} {number(x)} {number(y)})"
    shapes.append(text(x, y - 8, said, class_="rooftext mid", transform=turned))
    for n, (roof, name) in enumerate(found):
        ends = [(max(scale.x_low, roof / rate), roof), (scale.x_high, roof)]
        shapes.append(drawn(ends, "roof lower" if n else "roof"))
        said = f"{name} = {tops(roof, clock):.3g} TOPS" if clock else name
        shapes.append(text(WIDTH - RIGHT - 6, scale.py(roof) - 6, said, class_="rooftext end"))
    return shapes


def _roomiest(slope: list[tuple[float, float]], points: list[Point]) -> tuple[float, float]:
    """Return the point of a line that is farthest from all numbers and not close to the line's ends."""
    (x1, y1), (x2, y2) = slope
    places = [(x1 + (x2 - x1) * n / 20, y1 + (y2 - y1) * n / 20) for n in range(5, 16)]
    return max(places, key=lambda at: min(math.hypot(at[0] - p.bx, at[1] - 20 - p.by) for p in points))


_STEPS = (MARK + 7, MARK + 12, MARK + 18, MARK + 26, MARK + 36, MARK + 48, MARK + 62)
"""Distances of a number from its mark, the nearest first."""


def _place_numbers(points: list[Point]) -> None:
    """Put every number next to its mark, at a place where it covers no mark and no other number.

    If there is no such place within the last of `_STEPS`, the place that is covered least is used.
    """
    placed: list[Point] = []
    for point in sorted(points, key=lambda p: (p.x, p.y)):
        best: tuple[float, float, float] | None = None
        for step in _STEPS:
            for turn in range(16):
                angle = -math.pi / 4 + turn * math.pi / 8  # above, to the right, first
                x = point.x + (step + point.half - 3) * math.cos(angle)
                y = point.y + step * math.sin(angle)
                if not (LEFT + point.half < x < WIDTH - RIGHT - point.half):
                    continue
                if not (TOP + 6 < y < HEIGHT - BOTTOM - 6):
                    continue
                covered = sum(_near(x, y, point.half, p.x, p.y, MARK, MARK) for p in points)
                covered += sum(_near(x, y, point.half, p.bx, p.by, p.half, 5.0) for p in placed)
                if best is None or covered < best[0]:
                    best = (covered, x, y)
            if best is not None and best[0] == 0:
                break
        if best is not None:
            point.bx, point.by = best[1:]
        placed.append(point)


def _near(x: float, y: float, half: float, at_x: float, at_y: float, wide: float, high: float) -> float:
    """Return how much a number at (x, y) covers a box around (at_x, at_y), 0 to 1."""
    over_x = 1 - abs(x - at_x) / (half + wide + 1)
    over_y = 1 - abs(y - at_y) / (5.0 + high + 1)
    return max(over_x, 0.0) * max(over_y, 0.0)
