"""Charts over time: bandwidth and MAC use over cycles, and a lane for each core and block."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from rkcosim.measure.report.data import ReportedRun
from rkcosim.measure.report.figures import count, percent
from rkcosim.measure.report.roofline import KINDS, operators
from rkcosim.waves.drawing import line, number, path, rect, svg, text, ticks, title
from rkcosim.waves.events import spread

WIDTH = 1000.0
LEFT, RIGHT = 118.0, 12.0
BINS = 300
CHART, LANE, GAP = 120.0, 18.0, 30.0
Array = npt.NDArray[np.float64]


class TimeChart:
    """A drawing whose parts are stacked on one axis of cycles.

    Parameters
    ----------
    first, last
        Cycles of the left and the right end.
    """

    def __init__(self, first: float, last: float) -> None:
        self.first, self.last = first, max(last, first + 1)
        self.edges = np.linspace(self.first, self.last, BINS + 1)
        self.y = 8.0
        self.shapes: list[Markup] = []

    def x(self, cycle: float) -> float:
        """Return the x coordinate of a cycle."""
        return LEFT + (WIDTH - LEFT - RIGHT) * (cycle - self.first) / (self.last - self.first)

    def head(self, words: str) -> None:
        """Draw a heading for the next part."""
        self.shapes.append(text(0, self.y + 10, words, class_="axis"))
        self.y += 20

    def _key(self, items: Sequence[tuple[str, str]]) -> None:
        """Draw colours and their names at the right end of the previous heading."""
        x = WIDTH - RIGHT
        for css, name in reversed(items):
            x -= 6.0 * len(name) + 4
            self.shapes.append(text(x, self.y - 10, name, class_="tick"))
            x -= 14
            self.shapes.append(rect(x, self.y - 19, 10, 10, rx=2.0, class_=f"area {css}"))
            x -= 12

    def areas(self, layers: Sequence[tuple[str, str, Array]], unit: str, roof: float | None = None) -> None:
        """Draw stacked areas (class, name, value of each bin); `roof` is a dashed line."""
        if len(layers) > 1:
            self._key([(css, name) for css, name, _ in layers])
        total = np.sum([values for _, _, values in layers], axis=0)
        high = max(float(total.max(initial=0)), (roof or 0) * 1.08, 1e-9)
        base = self.y + CHART

        def py(value: float) -> float:
            return base - CHART * value / high

        for value in ticks(high, 3):
            self.shapes.append(line(LEFT, py(value), WIDTH - RIGHT, py(value), class_="fine"))
            self.shapes.append(text(LEFT - 6, py(value) + 4, _tick(value, unit), class_="tick end"))
        below = np.zeros(BINS)
        for css, name, values in layers:
            above = below + values
            outline = [*self._steps(above, py), *reversed(list(self._steps(below, py)))]
            self.shapes.append(path(outline, True, class_=f"area {css}", data_name=name, stroke="none"))
            below = above
        if roof:
            self.shapes.append(line(LEFT, py(roof), WIDTH - RIGHT, py(roof), class_="roof lower"))
        for n in range(BINS):  # an invisible column that shows its values on hovering
            said = [f"cycles {count(self.edges[n])} to {count(self.edges[n + 1])}"]
            said += [f"{name}: {_value(float(values[n]), unit)}" for _, name, values in layers]
            x = self.x(float(self.edges[n]))
            width = self.x(float(self.edges[n + 1])) - x
            self.shapes.append(rect(x, self.y, width, CHART, title(*said), class_="probe"))
        self.y += CHART + GAP / 2

    def lane(self, name: str, slices: Iterable[tuple[float, float, str, str, str]]) -> None:
        """Draw a row of slices (start, end, class, label, text shown on hovering)."""
        self.shapes.append(text(LEFT - 6, self.y + LANE - 5, name, class_="tick end"))
        self.shapes.append(rect(LEFT, self.y, WIDTH - LEFT - RIGHT, LANE, class_="lane"))
        for start, end, css, label, said in slices:
            x = self.x(start)
            width = max(self.x(end) - x, 0.4)
            self.shapes.append(rect(x, self.y, width, LANE, title(said), class_=f"slice {css}"))
            if width > 7 * len(label) + 6:
                self.shapes.append(
                    text(x + width / 2, self.y + LANE - 5, label, class_=f"slicetext {css}-text")
                )
        self.y += LANE + 3

    def heat(self, name: str, css: str, shares: Array, what: str) -> None:
        """Draw a row whose strength is the share (0..1) of each bin; equal bins are joined."""
        self.shapes.append(text(LEFT - 6, self.y + LANE - 6, name, class_="tick end"))
        self.shapes.append(rect(LEFT, self.y, WIDTH - LEFT - RIGHT, LANE - 2, class_="lane"))
        levels = np.clip(np.ceil(shares * 20), 0, 20)
        borders = [0, *(np.flatnonzero(np.diff(levels)) + 1).tolist(), BINS]
        for at, end in itertools.pairwise(borders):
            if levels[at]:
                first, last = float(self.edges[at]), float(self.edges[end])
                mean = percent(float(np.mean(shares[at:end])))
                said = title(f"{what}, cycles {count(first)} to {count(last)}: {mean}")
                strength = number(float(0.25 + 0.75 * levels[at] / 20))
                box = self.x(first), self.y, self.x(last) - self.x(first), LANE - 2
                self.shapes.append(rect(*box, said, class_=f"heat {css}", fill_opacity=strength))
        self.y += LANE + 1

    def axis(self) -> None:
        """Draw the axis of cycles at the bottom."""
        step = ticks(self.last - self.first, 8)[1]
        value = math.ceil(self.first / step) * step
        while value <= self.last:
            x = self.x(value)
            self.shapes.append(line(x, self.y, x, self.y + 5, class_="grid"))
            self.shapes.append(text(x, self.y + 18, count(value), class_="tick mid"))
            value += step
        self.shapes.append(text(LEFT - 14, self.y + 18, "cycle", class_="tick end"))
        self.y += 30

    def drawing(self) -> Markup:
        """Return the whole drawing."""
        label = "traffic and work over time"
        return svg(WIDTH, self.y, *self.shapes, class_="chart overtime", role="img", aria_label=label)

    def _steps(self, values: Array, py: Any) -> Iterable[tuple[float, float]]:
        for n, value in enumerate(values):
            y = py(float(value))
            yield self.x(float(self.edges[n])), y
            yield self.x(float(self.edges[n + 1])), y


def from_tasks(run: ReportedRun) -> Markup:
    """Return the charts from task counters, in which every value is a task's mean."""
    if not run.tasks:
        return Markup("")
    starts = np.array([task["start"] for task in run.tasks], float)
    ends = starts + np.array([task["cycles"] for task in run.tasks], float)
    chart = TimeChart(0, float(ends.max()))
    width = np.diff(chart.edges)

    def of(member: str) -> Array:
        return spread(starts, ends, [task.get(member, 0) for task in run.tasks], chart.edges) / width

    chart.head("DRAM traffic, bytes per cycle (mean of each task; dashed: the memory's limit)")
    reads, writes = of("bytes_read"), of("bytes_written")
    chart.areas([("c-read", "read", reads), ("c-write", "written", writes)], "B/cycle", run.dram_rate)
    busy = of("mac_busy") / run.cores
    if busy.any():
        chart.head("share of cycles in which the array works (mean of each task)")
        chart.areas([("p-array", "array busy", busy)], "%", 1.0)
    _task_lanes(chart, run)
    chart.axis()
    return chart.drawing()


def colour(ops: Sequence[str], op: str) -> str:
    """Return the class of an operator's colour; `ops` is the result of `operators`."""
    return f"o-{min(ops.index(op), KINDS) if op in ops else KINDS}"


def _task_lanes(chart: TimeChart, run: ReportedRun) -> None:
    ops = operators(run)
    chart.head("tasks of each core")
    for core in sorted({task["core"] for task in run.tasks}):
        slices = []
        for task in (task for task in run.tasks if task["core"] == core):
            row, start, cycles = run.rows[task["layer"]], task["start"], task["cycles"]
            said = f"{row.label} ({row.op}): {count(cycles)} cycles from {count(start)}"
            slices.append((start, start + cycles, colour(ops, row.op), str(row.number), said))
        chart.lane(f"core {core}", slices)


def _tick(value: float, unit: str) -> str:
    return percent(value, 0) if unit == "%" else number(float(value))


def _value(value: float, unit: str) -> str:
    return percent(value) if unit == "%" else f"{value:.1f} {unit}"
