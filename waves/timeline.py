"""An event log as a timeline for ui.perfetto.dev: tracks per core and block, slices, counters.

A cycle is a nanosecond. The trace is written with the messages of the package `perfetto`, a few thousand
packets at a time, so that long logs are not copied in memory.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from rkcosim.base.extras import needed
from rkcosim.spec.regs import registers
from rkcosim.waves.events import Event, EventLog, EventsError, Summary, spread
from rkcosim.waves.whole_file import whole_file

BLOCKS = ("PC", "CNA", "CORE", "DPU", "DPU_RDMA", "PPU", "PPU_RDMA")
"""Order of the tracks of a core."""

POINTS = 400
"""Target number of points of a counter's curve; the window is at least 10 and at most 1000 cycles."""

_SEQUENCE = 1
_BATCH = 8192
_NEEDS_STATE, _CLEARED = 2, 1
_BEGIN, _END, _INSTANT, _COUNTER = 1, 2, 3, 4

Key = tuple[int | None, int | None, int | None]
"""Core, job and task."""

Note = tuple[str, int | str]
"""A name and a value that the viewer shows for a slice."""


def check() -> None:
    """Raise EventsError if the package `perfetto` is not installed."""
    _messages()


def _messages() -> Any:
    with needed("perfetto", "a timeline", EventsError):
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2
    return perfetto_trace_pb2


MOST_WINDOWS = 2_000_000
"""Windows of a counter: two numbers in a file may say that a run has taken centuries."""


class _Writer:
    """Writes packets into a file; names are interned at their first use."""

    def __init__(self, file: IO[bytes]) -> None:
        messages = _messages()
        self._messages = messages
        self._file = file
        self._trace = messages.Trace()
        self._names: dict[str, int] = {}
        self._keys: dict[str, int] = {}
        self._tracks = 0
        self._ranks: dict[tuple[int, str], int] = {}
        first = self._trace.packet.add()
        first.trusted_packet_sequence_id = _SEQUENCE
        first.sequence_flags = _CLEARED | _NEEDS_STATE

    def track(
        self, name: str, parent: int | None = None, *, process: int | None = None, unit: str | None = None
    ) -> int:
        """Make a track of a process (its number), of a counter (its unit), or of slices; return its id."""
        self._tracks += 1
        descriptor = self._packet().track_descriptor
        descriptor.uuid = self._tracks
        if parent is not None:
            descriptor.parent_uuid = parent
            # The viewer joins tracks with the same name and parent.
            descriptor.sibling_order_rank = self._ranks.setdefault((parent, name), self._tracks)
        descriptor.child_ordering = descriptor.EXPLICIT
        if process is not None:
            descriptor.process.pid = process
            descriptor.process.process_name = name
        else:
            descriptor.name = name
        if unit is not None:
            descriptor.counter.unit_name = unit
        return self._tracks

    def event(self, kind: int, when: int, track: int, name: str = "", notes: Sequence[Note] = ()) -> Any:
        """Begin or end a slice, or mark an instant; return the event's message."""
        packet = self._packet()
        packet.timestamp = when
        event = packet.track_event
        event.type = kind
        event.track_uuid = track
        if name:
            event.name_iid = _interned(self._names, name, packet.interned_data.event_names)
        for key, value in notes:
            number = _interned(self._keys, key, packet.interned_data.debug_annotation_names)
            if isinstance(value, str):
                event.debug_annotations.add(name_iid=number, string_value=value)
            else:
                event.debug_annotations.add(name_iid=number, int_value=value)
        return event

    def count(self, when: int, track: int, value: float) -> None:
        """Write a counter's value from a cycle on."""
        self.event(_COUNTER, when, track).double_counter_value = value

    def _packet(self) -> Any:
        if len(self._trace.packet) >= _BATCH:
            self.flush()
        packet = self._trace.packet.add()
        packet.trusted_packet_sequence_id = _SEQUENCE
        packet.sequence_flags = _NEEDS_STATE
        return packet

    def flush(self) -> None:
        self._file.write(self._trace.SerializeToString())
        self._trace = self._messages.Trace()


def _interned(known: dict[str, int], name: str, table: Any) -> int:
    """Return the number of a name, which is added to the packet's table if it is new."""
    if name not in known:
        known[name] = len(known) + 1
        table.add(iid=known[name], name=name)
    return known[name]


Slice = tuple[int, int, str, Sequence[Note]]
"""First cycle, cycle after the last, name, and notes."""


def write_timeline(log: EventLog, path: str | Path) -> None:
    """Write the trace (`.pftrace`, `.perfetto-trace`; any name is possible).

    Raises
    ------
    EventsError
        if the package `perfetto` is missing.
    """
    with whole_file(Path(path)) as part, part.open("wb") as file:
        writer = _Writer(file)
        cores = sorted({int(core) for core in np.unique(log["core"])})
        done = {(s.core, s.job, s.task): s for s in log.summary()}
        for core in cores:
            _core(writer, core, log.where(core=core), done)
        writer.flush()


def _core(writer: _Writer, core: int, log: EventLog, done: dict[Key, Summary]) -> None:
    """Write the tracks of one core."""
    process = writer.track(f"core {core}", process=core + 1)
    tasks, layers = list(log.where(kind="task")), list(log.where(kind="layer"))
    slices: list[Slice] = [
        (e.cycle, e.end, e.reason or "layer", (("tasks", e.value), ("job", e.job))) for e in layers
    ]
    slices += [(e.cycle, e.end, f"task {e.task}", _task_notes(done[e.core, e.job, e.task])) for e in tasks]
    if slices:
        _nested(writer, "tasks", process, slices)
    _counters(writer, process, log)
    for block in BLOCKS:
        _block(writer, process, block, log)
    bursts = log.where(kind="burst")
    if len(bursts):
        dma = writer.track("DMA", process)
        for direction in ("read", "write"):
            mine = bursts.where(direction=direction)
            for client in sorted(set(mine.text("client").values())):
                events = mine.where(client=client)
                _lanes(writer, f"{client} {direction}", dma, _bursts(events))
    said = log.where(kind=["diagnostic", "fault"])
    if len(said):
        track = writer.track("diagnostics", process)
        for e in said:
            notes: tuple[Note, ...] = (("address", f"0x{e.address:X}"), ("value", f"0x{e.value:X}"))
            writer.event(_INSTANT, e.cycle, track, f"{e.kind}: {e.reason}", notes + _place(e))


def _block(writer: _Writer, process: int, block: str, log: EventLog) -> None:
    """Write a block's track (when it was running) and below it its actions and waits."""
    mine = log.where(block=block, kind=["busy", "irq", "write", "stripe", "mac", "packet", "stall"])
    if not len(mine):
        return
    track = writer.track(block, process)
    for e in mine.where(kind="busy"):
        name = f"task {e.task}" if e.task >= 0 else "busy"
        writer.event(_BEGIN, e.cycle, track, name, (("cycles", e.value), *_place(e)))
        writer.event(_END, e.end, track)
    writes = mine.where(kind="write")
    if len(irqs := mine.where(kind="irq")):
        _lanes(writer, "interrupt", track, ((e.cycle, e.end, "interrupt", _place(e)) for e in irqs))
    if len(writes):
        below = writer.track("register writes", track)
        for e in writes:
            name, notes = _decoded(e.address, e.value)
            writer.event(_INSTANT, e.cycle, below, name, (("by", e.reason), *notes, *_place(e)))
    levels = [
        (name, mine.where(kind=kind))
        for kind, name in (("mac", "array"), ("packet", "octets" if block == "DPU" else "atoms"))
    ]
    stripes, stalls = mine.where(kind="stripe"), mine.where(kind="stall")
    levels.append(("stripes", stripes))
    levels += [(reason, stalls.where(reason=reason)) for reason in sorted(set(stalls["reason"]))]
    for name, events in levels:
        if events is stripes:
            slices = _stripes(stripes, list(log.where(kind="task")))
        else:
            slices = ((e.cycle, e.end, name, (("cycles", e.value), *_place(e))) for e in events)
        if len(events):
            _lanes(writer, name, track, slices)


def _place(e: Event) -> tuple[Note, ...]:
    return (("job", e.job), ("task", e.task))


def _task_notes(done: Summary) -> list[Note]:
    notes: list[Note] = [("layer", done.layer)] if done.layer else []
    notes += [("job", -1 if done.job is None else done.job), ("cycles", done.cycles)]
    notes += [("mac_busy", done.mac_busy), ("stripes", done.stripes)]
    notes += [(f"{client} bytes read", n) for client, n in sorted(done.bytes_read.items())]
    notes += [(f"{client} bytes written", n) for client, n in sorted(done.bytes_written.items())]
    notes += [(reason, n) for reason, n in sorted(done.stalls.items())]
    return notes


def _bursts(events: EventLog) -> Iterator[Slice]:
    columns = ("cycle", "end", "address", "bytes", "value", "latency", "reason")
    for first, end, address, size, beats, latency, reason in zip(
        *(events[name].tolist() for name in columns), strict=True
    ):
        notes = ("address", f"0x{address:08X}"), ("bytes", size), ("beats", beats), ("latency", latency)
        yield first, end, reason or "burst", notes


def _stripes(events: EventLog, tasks: Sequence[Event]) -> Iterator[Slice]:
    """Yield each stripe from the one before it, or the start of its task, to its transfer."""
    begun = {(e.job, e.task): e.cycle for e in tasks}
    before: dict[tuple[int, int], tuple[int, int]] = {}
    for e in events:
        key = (e.job, e.task)
        start, number = before.get(key, (begun.get(key, e.cycle), 0))
        yield start, e.end, f"stripe {number}", _place(e)
        before[key] = (e.end, number + 1)


@cache
def _decoded(offset: int, value: int) -> tuple[str, tuple[Note, ...]]:
    """Return the name of a register and its fields in words."""
    register = registers().at(offset)
    notes: list[Note] = [("value", f"0x{value:08X}"), ("offset", f"0x{offset:04X}")]
    if register is None:
        return f"offset 0x{offset:04X}", tuple(notes)
    for name, number in register.decode(value).items():
        label = register.fields[name].label(number)
        notes.append((name, number if label is None else f"{label} ({number})"))
    return register.path, tuple(notes)


def _nested(writer: _Writer, name: str, parent: int, slices: list[Slice]) -> None:
    """Write nested slices to one track; of those that begin together, the longest is the outer one.

    Slices that do not fit inside an open one get additional tracks.
    """
    track, stack, apart = writer.track(name, parent), list[int](), list[Slice]()
    for first, end, text, notes in sorted(slices, key=lambda s: (s[0], -s[1])):
        while stack and stack[-1] <= first:
            writer.event(_END, stack.pop(), track)
        if stack and end > stack[-1]:
            apart.append((first, end, text, notes))
            continue
        writer.event(_BEGIN, first, track, text, notes)
        stack.append(end)
    while stack:
        writer.event(_END, stack.pop(), track)
    _lanes(writer, name, parent, apart)


def _lanes(writer: _Writer, name: str, parent: int, slices: Iterable[Slice]) -> None:
    """Write slices, ordered by first cycle, to as few tracks as possible; the viewer joins the tracks."""
    lanes: list[tuple[int, int]] = []  # (end of the last slice, track), a heap
    for first, end, text, notes in slices:
        if lanes and lanes[0][0] <= first:
            track = heapq.heappop(lanes)[1]
        else:
            track = writer.track(name, parent)
        writer.event(_BEGIN, first, track, text, notes)
        writer.event(_END, end, track)
        heapq.heappush(lanes, (end, track))


def _counters(writer: _Writer, process: int, log: EventLog) -> None:
    """Write bandwidth in both directions and use of the array, by windows."""
    if not len(log):
        return
    timed = log.where(kind=["task", "burst", "mac"])
    if not len(timed):
        return
    first, last = int(timed["cycle"].min()), int(timed["end"].max())
    edges = np.append(np.arange(first, last, window_of(last - first)), last)
    for direction in ("read", "write"):
        bursts = log.where(kind="burst", direction=direction)
        if len(bursts):
            track = writer.track(f"{direction} bandwidth", process, unit="bytes/us")
            sums = spread(*burst_times(bursts), bursts["bytes"], edges)
            _curve(writer, track, edges, sums * 1000 / np.diff(edges))
    mac = log.where(kind="mac")
    if len(mac):
        track = writer.track("array use", process, unit="%")
        sums = spread(mac["cycle"], mac["end"], mac["value"], edges)
        _curve(writer, track, edges, np.minimum(sums * 100 / np.diff(edges), 100))


def window_of(cycles: int) -> int:
    """Return the window of a counter over `cycles` cycles: 10, 20, 50, ... 1000, above for `MOST_WINDOWS`."""
    for window in (10, 20, 50, 100, 200, 500):
        if cycles <= window * POINTS:
            return window
    return max(1000, -(-cycles // MOST_WINDOWS))


def burst_times(bursts: EventLog) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the first cycle with data of each burst, and the cycle after the last one.

    A write's end is its response; its data are assumed to be contiguous.
    """
    begin = bursts["cycle"] + bursts["latency"]
    write = bursts.text("direction").equals("write")
    end = np.where(write, np.minimum(begin + np.maximum(bursts["value"], 1), bursts["end"]), bursts["end"])
    return begin, np.maximum(end, begin + 1)


def _curve(
    writer: _Writer, track: int, edges: npt.NDArray[np.int64], values: npt.NDArray[np.float64]
) -> None:
    """Write the values from each edge on, without repetitions, and 0 at the end."""
    before = None
    for when, value in zip(edges.tolist(), [*np.round(values, 3).tolist(), 0.0], strict=True):
        value = max(value, 0.0)
        if value != before:
            writer.count(when, track, value)
            before = value
