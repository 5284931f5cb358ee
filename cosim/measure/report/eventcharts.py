"""Charts over time from an event log: traffic, the array and its waits, blocks of each core."""

from __future__ import annotations

import numpy as np
from markupsafe import Markup

from rkcosim.measure.perf.attribution import Cause
from rkcosim.measure.report.bars import CLIENTS
from rkcosim.measure.report.data import ReportedRun
from rkcosim.measure.report.figures import count, size
from rkcosim.measure.report.overtime import LEFT, WIDTH, Array, TimeChart, colour
from rkcosim.measure.report.roofline import operators
from rkcosim.waves.drawing import clip, path, rect, title
from rkcosim.waves.events import EventLog, spread

REASONS = (
    (Cause.FEATURES, ("stall_feature",)),
    (Cause.WEIGHTS, ("stall_weight",)),
    (Cause.OPERANDS, ("only_operand",)),
    (Cause.DPU, ("only_output", "only_dpu", "only_acc")),
    (Cause.WRITER, ("only_write",)),
)
"""Why the array has no slot: cause, and the reasons of the events that stand for it; for the PPU as for the
DPU.  Only the whole task tells what a cycle counts for (`rkcosim.measure.perf.attribution`)."""


def charts(run: ReportedRun, log: EventLog) -> Markup:
    """Return all charts on one axis of cycles; for a model's run only the first inference."""
    if not len(log):
        return Markup("")
    spans = log.where(kind="task")
    whole = spans if len(spans) else log
    zero = int(whole["cycle"].min())
    rows = {(task["core"], task["start"]): task["layer"] for task in run.tasks}
    last = max((task["start"] + task["cycles"] for task in run.tasks), default=0)
    if rows.keys().isdisjoint(zip(spans["core"].tolist(), (spans["cycle"] - zero).tolist(), strict=True)):
        # The events are not those of the run's file, or of only a part of it.
        rows, last = {}, int(whole["end"].max()) - zero
    log = log.between(zero, zero + last - 1)
    chart = TimeChart(0, last)
    drawer = _Drawer(run, log, chart, zero)
    drawer.traffic()
    drawer.array()
    for core in drawer.cores:
        drawer.core(core, rows)
    chart.axis()
    return chart.drawing()


def regions(run: ReportedRun, log: EventLog) -> Markup:
    """Return the traffic of each region of a stream over time; empty for a model, which has layers."""
    bursts = log.where(kind="burst")
    if run.unit != "task" or not run.buffers or not len(bursts):
        return Markup("")
    log = log.where(kind={"burst", "task"})
    zero = int(log["cycle"].min())
    chart = TimeChart(0, int(log["end"].max()) - zero)
    drawer = _Drawer(run, log, chart, zero)
    elsewhere = np.ones(len(bursts), bool)
    for region in run.buffers:
        offset = bursts["address"] - region["address"]
        inside = (offset >= 0) & (offset < region["size"])
        elsewhere &= ~inside
        said = f"0x{region['address']:08X}, {size(region['size'])}"
        drawer.region(region["name"], said, bursts.rows(inside))
    drawer.region("elsewhere", "outside every region", bursts.rows(elsewhere))
    chart.axis()
    return chart.drawing()


def dropped(log: EventLog) -> str:
    """Return a text about events that were lost because the log was full; empty if there are none."""
    lost = log.dropped
    if not lost:
        return ""
    said = ", ".join(f"{kind} {count(number)}" for kind, number in lost.items())
    return f"The event log was full: {said} events at the end are missing from the charts."


def _blocks(log: EventLog, kind: str) -> list[tuple[str, EventLog]]:
    """Return the events of a kind by block."""
    events = log.where(kind=kind)
    return [(name, events.where(block=name)) for name in events.text("block").names if name]


class _Drawer:
    def __init__(self, run: ReportedRun, log: EventLog, chart: TimeChart, zero: int) -> None:
        self.run, self.log, self.chart, self.zero = run, log, chart, zero
        self.width = np.diff(chart.edges)
        self.cores = sorted({int(core) for core in log["core"]})

    def bins(self, events: EventLog, column: str) -> Array:
        """Return the amount per cycle in each bin."""
        starts, ends = events["cycle"] - self.zero, events["end"] - self.zero
        amounts = ends - starts if column == "cycles" else events[column]
        return spread(starts, ends, amounts, self.chart.edges) / self.width

    def beats(self, bursts: EventLog) -> Array:
        """Return the bytes per cycle in each bin; bytes of a burst count from its first beat on."""
        starts, ends = bursts["cycle"] - self.zero, bursts["end"] - self.zero
        first = np.minimum(starts + bursts["latency"], ends - 1)
        return spread(first, ends, bursts["bytes"], self.chart.edges) / self.width

    def region(self, name: str, words: str, bursts: EventLog) -> None:
        """Draw one lane for reads and one for writes; a full lane is the memory's rate."""
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
        self.chart.head("DRAM traffic, bytes per cycle (dashed: the memory's limit)")
        reads = bursts.where(direction="read")
        there = sorted({str(name) for name in reads["client"]})
        clients = [*(name for name in CLIENTS if name in there), *(n for n in there if n not in CLIENTS)]
        layers = [(f"c-{name}", name, self.beats(reads.where(client=name))) for name in clients]
        layers.append(("c-write", "written", self.beats(bursts.where(direction="write"))))
        self.chart.areas(layers, "B/cycle", self.run.dram_rate)

    def array(self) -> None:
        """Draw the parts of the cycles: the array's work, and the reasons of its waits."""
        macs, stalls = self.log.where(kind="mac"), self.log.where(kind="stall")
        if not len(macs) and not len(stalls):
            return
        many = len(self.cores)
        layers = [(f"p-{Cause.ARRAY}", "array busy", self.bins(macs, "value") / many)]
        for cause, reasons in REASONS:
            here = stalls.where(reason=set(reasons))
            if len(here):
                layers.append((f"p-{cause}", cause.label, self.bins(here, "value") / many))
        # Cycles of a level are spread over its event, which may include gaps: a bin may get a few too many.
        fit = np.maximum(np.sum([values for _, _, values in layers], axis=0), 1)
        layers = [(css, name, values / fit) for css, name, values in layers]
        self.chart.head("the array: its work, or why it has none")
        self.chart.areas(layers, "%", 1.0)

    def core(self, core: int, rows: dict[tuple[int, int], int]) -> None:
        chart, mine = self.chart, self.log.where(core=core)
        chart.head(f"core {core}: tasks, active blocks, waits")
        top = chart.y
        self.tasks(mine, rows)
        macs, stalls = mine.where(kind="mac"), mine.where(kind="stall")
        lanes = [(name, "work", "cycles", f"{name} active", here) for name, here in _blocks(mine, "busy")]
        lanes.append(("array", f"p-{Cause.ARRAY}", "value", "array busy", macs))
        lanes += [
            (f"{name} out", f"p-{Cause.PPU}", "value", f"results pass the {name}", here)
            for name, here in _blocks(mine, "packet")
        ]
        lanes += [
            (
                f"waits: {cause.label}",
                f"p-{cause}",
                "value",
                f"waits for {cause.label}",
                stalls.where(reason={name for name in reasons if name != "only_output"}),
            )
            for cause, reasons in REASONS
        ]
        for name, css, column, said, events in lanes:
            if len(events):
                chart.heat(name, css, np.minimum(self.bins(events, column), 1), said)
        self.interrupts(mine, top)

    def tasks(self, mine: EventLog, rows: dict[tuple[int, int], int]) -> None:
        """Draw a slice for each task, named by its layer if that is known."""
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
        """Draw a line through a core's lanes at each of its interrupts."""
        chart, drawn = self.chart, set()
        for event in mine.where(kind="irq"):
            x = chart.x(event.cycle - self.zero)
            if LEFT <= x <= WIDTH and round(x) not in drawn:
                drawn.add(round(x))
                said = title(f"interrupt of core {event.core} in cycle {count(event.cycle)}")
                chart.shapes.append(path([(x, top), (x, chart.y)], class_="irq"))
                chart.shapes.append(rect(x - 2, top, 4, chart.y - top, said, class_="probe"))
