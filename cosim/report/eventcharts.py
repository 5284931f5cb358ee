"""The charts over time from an event log: traffic, array and its waits, blocks of each core."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from markupsafe import Markup

from cosim.report.bars import CLIENTS
from cosim.report.data import Run
from cosim.report.overtime import LEFT, WIDTH, Array, TimeChart, colour, spread
from cosim.report.roofline import operators
from cosim.report.svg import clip, count, path, rect, size, title

if TYPE_CHECKING:
    from waves.events import EventLog

PARTS = {
    "output": ("only_output", "output"),
    "feature": ("stall_feature", "features"),
    "weight": ("stall_weight", "weights"),
    "operand": ("only_operand", "operands"),
    "accumulator": ("only_acc", "accumulator"),
    "dpu": ("only_dpu", "DPU"),
    "write": ("only_write", "writer"),
}
"""Part of the cycles (`cosim.perf.spent`) -> the counter that is its event's reason, and what passes or is
waited for."""


def charts(run: Run, log: EventLog) -> Markup:
    """All of them, on one axis of cycles; of a model's run only the first inference."""
    if not len(log):
        return Markup("")
    spans = log.where(kind="task")
    whole = spans if len(spans) else log
    zero = int(whole["cycle"].min())
    rows = {(task["core"], task["start"]): task["layer"] for task in run.tasks}
    last = max((task["start"] + task["cycles"] for task in run.tasks), default=0)
    if not any((core, cycle - zero) in rows for core, cycle in _starts(spans)):
        rows, last = (
            {},
            int(whole["end"].max()) - zero,
        )  # not the events of this run's file, or of a part of it
    log = log.between(zero, zero + last - 1)
    chart = TimeChart(0, last)
    drawer = _Drawer(run, log, chart, zero)
    drawer.traffic()
    drawer.array()
    for core in drawer.cores:
        drawer.core(core, rows)
    chart.axis()
    return chart.drawing()


def regions(run: Run, log: EventLog) -> Markup:
    """Traffic of each region of a stream over time; empty for a model, whose map has layers."""
    bursts = log.where(kind="burst")
    if run.unit != "task" or not run.buffers or not len(bursts):
        return Markup("")
    log = log.where(kind={"burst", "task"})
    zero = int(log["cycle"].min())
    chart = TimeChart(0, int(log["end"].max()) - zero)
    drawer = _Drawer(run, log, chart, zero)
    elsewhere = np.ones(len(bursts), bool)
    for region in run.buffers:
        inside = (bursts["address"] >= region["address"]) & (
            bursts["address"] < region["address"] + region["size"]
        )
        elsewhere &= ~inside
        drawer.region(
            region["name"], f"0x{region['address']:08X}, {size(region['size'])}", bursts.rows(inside)
        )
    drawer.region("elsewhere", "outside every region", bursts.rows(elsewhere))
    chart.axis()
    return chart.drawing()


def dropped(log: EventLog) -> str:
    """What the log has no room for, in words; empty if it has everything."""
    lost = log.dropped
    if not lost:
        return ""
    said = ", ".join(f"{kind} {count(number)}" for kind, number in lost.items())
    return f"The event log was full: {said} events at the end are not in the charts."


def _starts(spans: EventLog) -> list[tuple[int, int]]:
    return list(zip(spans["core"].tolist(), spans["cycle"].tolist(), strict=True))


class _Drawer:
    def __init__(self, run: Run, log: EventLog, chart: TimeChart, zero: int) -> None:
        self.run, self.log, self.chart, self.zero = run, log, chart, zero
        self.width = np.diff(chart.edges)
        self.cores = sorted({int(core) for core in log["core"]})

    def bins(self, events: EventLog, column: str) -> Array:
        """Amount a cycle in each bin."""
        starts, ends = events["cycle"] - self.zero, events["end"] - self.zero
        amounts = ends - starts if column == "cycles" else events[column]
        return spread(starts, ends, amounts, self.chart.edges) / self.width

    def beats(self, bursts: EventLog) -> Array:
        """Bytes a cycle in each bin: those of a burst pass from its first beat on."""
        starts, ends = bursts["cycle"] - self.zero, bursts["end"] - self.zero
        first = np.minimum(starts + bursts["latency"], ends - 1)
        return spread(first, ends, bursts["bytes"], self.chart.edges) / self.width

    def region(self, name: str, words: str, bursts: EventLog) -> None:
        """A lane of reads and one of writes, full at the memory's rate."""
        for direction, css in (("read", "c-read"), ("write", "c-write")):
            mine = bursts.where(direction=direction)
            if len(mine):
                shares = np.minimum(self.beats(mine) / self.run.dram_rate, 1)
                said = (
                    f"{name} ({words}), {direction}s, {size(int(mine['bytes'].sum()))}; share of DRAM's rate"
                )
                self.chart.heat(f"{clip(name, 11)} {direction}s", css, shares, said)

    def traffic(self) -> None:
        bursts = self.log.where(kind="burst")
        if not len(bursts):
            return
        self.chart.head("DRAM traffic, bytes per cycle (dashed: what the memory gives at most)")
        reads = bursts.where(direction="read")
        known = list(CLIENTS)
        clients = sorted(
            {str(name) for name in reads["client"]},
            key=lambda name: known.index(name) if name in known else len(known),
        )
        layers = [(f"c-{name}", name, self.beats(reads.where(client=name))) for name in clients]
        layers.append(("c-write", "written", self.beats(bursts.where(direction="write"))))
        self.chart.areas(layers, "B/cycle", self.run.dram_rate)

    def array(self) -> None:
        """What the cycles went on: the array's work, and what held it up."""
        macs, stalls = self.log.where(kind="mac"), self.log.where(kind="stall")
        if not len(macs) and not len(stalls):
            return
        many = len(self.cores)
        layers = [("p-busy", "array busy", self.bins(macs, "value") / many)]
        for part, (reason, name) in PARTS.items():
            here = stalls.where(reason=reason)
            if len(here):
                layers.append((f"p-{part}", name, self.bins(here, "value") / many))
        # Cycles of a level are spread over its event, which may span gaps, so a bin may get a few too many.
        fit = np.maximum(np.sum([values for _, _, values in layers], axis=0), 1)
        layers = [(css, name, values / fit) for css, name, values in layers]
        self.chart.head("what the cycles went on: work, or what was waited for")
        self.chart.areas(layers, "%", 1.0)

    def core(self, core: int, rows: dict[tuple[int, int], int]) -> None:
        chart, mine = self.chart, self.log.where(core=core)
        chart.head(f"core {core}: tasks, blocks at work, waits")
        top = chart.y
        self.tasks(mine, rows)
        busy = mine.where(kind="busy")
        for block in [name for name in busy.text("block").names if name]:
            here = busy.where(block=block)
            if len(here):
                chart.heat(block, "work", np.minimum(self.bins(here, "cycles"), 1), f"{block} at work")
        macs = mine.where(kind="mac")
        if len(macs):
            chart.heat("array", "p-busy", np.minimum(self.bins(macs, "value"), 1), "array busy")
        packets = mine.where(kind="packet")
        for block in [name for name in packets.text("block").names if name]:
            here = packets.where(block=block)
            if len(here):
                shares = np.minimum(self.bins(here, "value"), 1)
                chart.heat(f"{block} out", "p-output", shares, f"results pass the {block}")
        stalls = mine.where(kind="stall")
        for part, (reason, name) in PARTS.items():
            here = stalls.where(reason=reason)
            if len(here) and part != "output":
                shares = np.minimum(self.bins(here, "value"), 1)
                chart.heat(f"waits: {name}", f"p-{part}", shares, f"waits for {name}")
        self.interrupts(mine, top)

    def tasks(self, mine: EventLog, rows: dict[tuple[int, int], int]) -> None:
        """A slice for each task, named by its layer where that is known."""
        ops = operators(self.run)
        named = {(t.core, t.job, t.task): t.layer for t in mine.tasks()}
        slices = []
        for n, event in enumerate(mine.where(kind="task")):
            start, end = event.cycle - self.zero, event.end - self.zero
            number = rows.get((event.core, start))
            if number is not None:
                row = self.run.rows[number]
                css, label, words = colour(ops, row.op), str(row.number), f"{row.label} ({row.op})"
            else:
                words = named.get((event.core, event.job, event.task)) or f"task {event.task}"
                css, label = f"t-{n % 2}", clip(words, 24)
            said = f"{words}: {count(end - start)} cycles from {count(start)} (cycle {count(event.cycle)})"
            slices.append((float(start), float(end), css, label, said))
        self.chart.lane("tasks", slices)

    def interrupts(self, mine: EventLog, top: float) -> None:
        """A line through a core's lanes at each of its interrupts."""
        chart, drawn = self.chart, set()
        for event in mine.where(kind="irq"):
            x = chart.x(event.cycle - self.zero)
            if LEFT <= x <= WIDTH and round(x) not in drawn:
                drawn.add(round(x))
                said = title(f"interrupt of core {event.core} in cycle {count(event.cycle)}")
                chart.shapes.append(path([(x, top), (x, chart.y)], class_="irq"))
                chart.shapes.append(rect(x - 2, top, 4, chart.y - top, said, class_="probe"))
