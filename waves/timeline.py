"""An event log as a timeline for ui.perfetto.dev: tracks per core and block, slices, counters.

A cycle is a nanosecond.  The trace is written through the `perfetto` package's own messages, a few
thousand packets at a time, so that long logs do not need memory for a second copy.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from rtl.regs import registers
from waves.events import Event, EventLog, EventsError
from waves.summary import Summary, summary
from waves.whole_file import whole_file

BLOCKS = ("PC", "CNA", "CORE", "DPU", "DPU_RDMA", "PPU", "PPU_RDMA")
"""Order of the tracks of a core."""

POINTS = 400
"""Points of a counter's curve that are aimed at; the window is at least 10 and at most 1000 cycles."""

_SEQUENCE = 1
_BATCH = 8192
_NEEDS_STATE, _CLEARED = 2, 1
_BEGIN, _END, _INSTANT, _COUNTER = 1, 2, 3, 4

Key = tuple[int | None, int | None, int | None]
"""Core, job and task."""

Note = tuple[str, int | str]
"""What the viewer shows beside a slice: a name and its value."""


def check() -> None:
    """Raise EventsError where there is no package `perfetto`."""
    _messages()


def _messages() -> Any:
    try:
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2
    except ImportError as error:
        raise EventsError(
            "a timeline needs perfetto, which is not here: pip install 'rkcosim[waves]'"
        ) from error
    return perfetto_trace_pb2


class _Writer:
    """Packets into a file; names are interned where they first occur."""

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
        """A new track: of a process (its number), a counter (its unit), or of slices; gives its id."""
        self._tracks += 1
        descriptor = self._packet().track_descriptor
        descriptor.uuid = self._tracks
        if parent is not None:
            descriptor.parent_uuid = parent
            # Tracks that the viewer joins have one name and one place.
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

    def event(self, kind: int, when: int, track: int, name: str = "", notes: Sequence[Note] = ()) -> None:
        """Begin or end a slice, or mark an instant."""
        packet = self._packet()
        packet.timestamp = when
        event = packet.track_event
        event.type = kind
        event.track_uuid = track
        if name:
            number = self._names.get(name)
            if number is None:
                number = self._names[name] = len(self._names) + 1
                packet.interned_data.event_names.add(iid=number, name=name)
            event.name_iid = number
        for key, value in notes:
            number = self._keys.get(key)
            if number is None:
                number = self._keys[key] = len(self._keys) + 1
                packet.interned_data.debug_annotation_names.add(iid=number, name=key)
            if isinstance(value, str):
                event.debug_annotations.add(name_iid=number, string_value=value)
            else:
                event.debug_annotations.add(name_iid=number, int_value=value)

    def count(self, when: int, track: int, value: float) -> None:
        """A counter's value from a cycle on."""
        packet = self._packet()
        packet.timestamp = when
        event = packet.track_event
        event.type = _COUNTER
        event.track_uuid = track
        event.double_counter_value = value

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


Slice = tuple[int, int, str, Sequence[Note]]
"""First cycle, cycle after the last, name, and notes."""


def write_timeline(log: EventLog, path: str | Path) -> None:
    """Write the trace (`.pftrace`, `.perfetto-trace`: any name will do).

    Raises
    ------
    EventsError
        where the package `perfetto` is missing.
    """
    with whole_file(Path(path)) as part, part.open("wb") as file:
        writer = _Writer(file)
        cores = sorted({int(core) for core in np.unique(log["core"])})
        done = {(s.core, s.job, s.task): s for s in summary(log)}
        for core in cores:
            _core(writer, core, log.where(core=core), done)
        writer.flush()


def _core(writer: _Writer, core: int, log: EventLog, done: dict[Key, Summary]) -> None:
    """The tracks of one core."""
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
    """A block's own track (when it was at work) and below it what it did and waited for."""
    mine = log.where(block=block, kind=["busy", "irq", "write", "stripe", "mac", "packet", "stall"])
    if not len(mine):
        return
    track = writer.track(block, process)
    for e in mine.where(kind="busy"):
        name = f"task {e.task}" if e.task >= 0 else "busy"
        writer.event(_BEGIN, e.cycle, track, name, (("cycles", e.value), *_place(e)))
        writer.event(_END, e.end, track)
    irqs = mine.where(kind="irq")
    if len(irqs):
        _lanes(writer, "interrupt", track, ((e.cycle, e.end, "interrupt", _place(e)) for e in irqs))
    writes = mine.where(kind="write")
    if len(writes):
        below = writer.track("register writes", track)
        for e in writes:
            name, notes = _decoded(e.address, e.value)
            writer.event(_INSTANT, e.cycle, below, name, (("by", e.reason), *notes, *_place(e)))
    for kind, name in (("mac", "array"), ("packet", "octets" if block == "DPU" else "atoms")):
        events = mine.where(kind=kind)
        if len(events):
            slices = ((e.cycle, e.end, name, (("cycles", e.value), *_place(e))) for e in events)
            _lanes(writer, name, track, slices)
    stripes = mine.where(kind="stripe")
    if len(stripes):
        _lanes(writer, "stripes", track, _stripes(stripes, list(log.where(kind="task"))))
    stalls = mine.where(kind="stall")
    for reason in sorted(set(stalls.text("reason").values())):
        events = stalls.where(reason=reason)
        slices = ((e.cycle, e.end, reason, (("cycles", e.value), *_place(e))) for e in events)
        _lanes(writer, reason, track, slices)


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
        notes: list[Note] = [("address", f"0x{address:08X}"), ("bytes", size), ("beats", beats)]
        notes.append(("latency", latency))
        yield first, end, reason or "burst", notes


def _stripes(events: EventLog, tasks: Sequence[Event]) -> Iterator[Slice]:
    """Each stripe from the one before it, or the start of its task, to when it was handed over."""
    begun = {(e.job, e.task): e.cycle for e in tasks}
    before: dict[tuple[int, int], tuple[int, int]] = {}
    for e in events:
        key = (e.job, e.task)
        start, number = before.get(key, (begun.get(key, e.cycle), 0))
        yield start, e.end, f"stripe {number}", _place(e)
        before[key] = (e.end, number + 1)


@cache
def _decoded(offset: int, value: int) -> tuple[str, tuple[Note, ...]]:
    """Name of a register and its fields in words."""
    register = registers().at(offset)
    notes: list[Note] = [("value", f"0x{value:08X}"), ("offset", f"0x{offset:04X}")]
    if register is None:
        return f"offset 0x{offset:04X}", tuple(notes)
    for name, number in register.decode(value).items():
        label = register.fields[name].label(number)
        notes.append((name, number if label is None else f"{label} ({number})"))
    return register.path, tuple(notes)


def _nested(writer: _Writer, name: str, parent: int, slices: list[Slice]) -> None:
    """Slices that lie inside one another, on one track: of those that begin together the longest is outside.

    Those that do not fit inside an open one go on tracks of their own.
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
    """Slices, in order of their first cycles, on as few tracks as they need; the viewer joins the tracks."""
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
    """Bandwidth in both directions and use of the array, by windows."""
    if not len(log):
        return
    timed = log.where(kind=["task", "burst", "mac"])
    if not len(timed):
        return
    first, last = int(timed["cycle"].min()), int(timed["end"].max())
    window = window_of(last - first)
    for direction in ("read", "write"):
        bursts = log.where(kind="burst", direction=direction)
        if len(bursts):
            track = writer.track(f"{direction} bandwidth", process, unit="bytes/us")
            edges, sums = spread(*burst_times(bursts), bursts["bytes"], first, last, window)
            _curve(writer, track, edges, sums * 1000 / np.diff(edges))
    mac = log.where(kind="mac")
    if len(mac):
        track = writer.track("array use", process, unit="%")
        edges, sums = spread(mac["cycle"], mac["end"], mac["value"], first, last, window)
        _curve(writer, track, edges, np.minimum(sums * 100 / np.diff(edges), 100))


def window_of(cycles: int) -> int:
    """Window of a counter over so many cycles: 10, 20, 50, ... 1000."""
    for window in (10, 20, 50, 100, 200, 500):
        if cycles <= window * POINTS:
            return window
    return 1000


def burst_times(bursts: EventLog) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """First cycle with data of each burst, and the cycle after the last.

    A write's end is its response; its data are taken to follow one another.
    """
    begin = bursts["cycle"] + bursts["latency"]
    write = bursts.text("direction").equals("write")
    end = np.where(write, np.minimum(begin + np.maximum(bursts["value"], 1), bursts["end"]), bursts["end"])
    return begin, np.maximum(end, begin + 1)


def spread(
    begin: npt.NDArray[Any],
    end: npt.NDArray[Any],
    amount: npt.NDArray[Any],
    first: int,
    last: int,
    window: int,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Amounts, each spread evenly over its cycles, summed by windows.

    Parameters
    ----------
    begin, end, amount : first cycle, cycle after the last, and what is spread; shape (n,).
    first, last : of the windows; the last one may be shorter.

    Returns
    -------
    Edges of the windows, int64 of shape (m + 1,), and sums, float64 of shape (m,).
    """
    edges = np.append(np.arange(first, max(last, first + 1), window, dtype=np.int64), max(last, first + 1))
    rate = amount / (end - begin)
    when = np.concatenate([begin, end])
    order = np.argsort(when, kind="stable")
    when = when[order]
    slope = np.cumsum(np.concatenate([rate, -rate])[order])
    total = np.concatenate([[0.0], np.cumsum(slope[:-1] * np.diff(when))])
    return edges, np.diff(np.interp(edges, when, total))


def _curve(
    writer: _Writer, track: int, edges: npt.NDArray[np.int64], values: npt.NDArray[np.float64]
) -> None:
    """Values from each edge on, repeated ones left out; 0 at the end."""
    before = None
    for when, value in zip(edges.tolist(), [*np.round(values, 3).tolist(), 0.0], strict=True):
        value = max(value, 0.0)
        if value != before:
            writer.count(when, track, value)
            before = value
