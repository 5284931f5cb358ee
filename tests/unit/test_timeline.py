"""Timelines, decoded with Perfetto's messages."""

from __future__ import annotations

import resource
import sys
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rkcosim.waves.events import Event, EventLog, EventsError, Text, spread
from rkcosim.waves.timeline import window_of, write_timeline

messages = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")

OFFSET = 0x100C  # CNA.CONV_CON1


@dataclass
class Track:
    """A track as a viewer sees it: slices (first, end, name, depth, notes), instants, counter values."""

    name: str
    path: str
    unit: str = ""
    slices: list[tuple[int, int, str, int, dict[str, Any]]] = field(default_factory=list)
    instants: list[tuple[int, str, dict[str, Any]]] = field(default_factory=list)
    values: list[tuple[int, float]] = field(default_factory=list)


def read(path: Path) -> list[Track]:
    """Decode a trace; fails on anything that a viewer rejects: unknown names, tracks or open slices."""
    trace = messages.Trace.FromString(path.read_bytes())
    tracks: dict[int, Track] = {}
    names: dict[int, str] = {}
    keys: dict[int, str] = {}
    events: dict[int, list[Any]] = defaultdict(list)
    assert trace.packet[0].sequence_flags & 1, "the names' table must be cleared first"
    for packet in trace.packet:
        assert packet.trusted_packet_sequence_id == 1
        for item in packet.interned_data.event_names:
            assert item.iid not in names
            names[item.iid] = item.name
        for item in packet.interned_data.debug_annotation_names:
            assert item.iid not in keys
            keys[item.iid] = item.name
        if packet.HasField("track_descriptor"):
            d = packet.track_descriptor
            assert d.uuid and d.uuid not in tracks
            assert not d.parent_uuid or d.parent_uuid in tracks
            name = d.process.process_name if d.HasField("process") else d.name
            parent = tracks[d.parent_uuid].path + "/" if d.parent_uuid else ""
            tracks[d.uuid] = Track(name, parent + name, d.counter.unit_name)
        if packet.HasField("track_event"):
            assert packet.sequence_flags & 2
            events[packet.track_event.track_uuid].append(packet)
    for uuid, packets in events.items():
        track, stack = tracks[uuid], list[tuple[int, str, dict[str, Any]]]()
        # Like Perfetto: sorted by time, equal times in their order.
        for packet in sorted(packets, key=lambda p: p.timestamp):
            event = packet.track_event
            notes = {
                keys[a.name_iid]: a.string_value if a.HasField("string_value") else a.int_value
                for a in event.debug_annotations
            }
            if event.type == event.TYPE_SLICE_BEGIN:
                stack.append((packet.timestamp, names[event.name_iid], notes))
            elif event.type == event.TYPE_SLICE_END:
                first, name, found = stack.pop()
                assert packet.timestamp > first
                track.slices.append((first, packet.timestamp, name, len(stack), found))
            elif event.type == event.TYPE_INSTANT:
                track.instants.append((packet.timestamp, names[event.name_iid], notes))
            elif event.type == event.TYPE_COUNTER:
                track.values.append((packet.timestamp, event.double_counter_value))
        assert not stack, f"{track.path}: slices that never end"
    return list(tracks.values())


def at(tracks: list[Track], path: str) -> Track:
    """Return the only track of this path."""
    found = [t for t in tracks if t.path == path]
    assert len(found) == 1, [t.path for t in tracks]
    return found[0]


def example() -> EventLog:
    rows = [
        Event("layer", 100, 400, 0, 0, 0, reason="conv1", value=2),
        Event("task", 100, 250, 0, 0, 0, "PC"),
        Event("task", 251, 400, 0, 1, 0, "PC"),
        Event("write", 90, 91, 0, 0, 0, "CNA", address=OFFSET, value=0x30, reason="fetched"),
        Event("busy", 101, 249, 0, 0, 0, "CNA", value=148),
        Event("stripe", 150, 151, 0, 0, 0, "CNA"),
        Event("stripe", 200, 201, 0, 0, 0, "CNA"),
        Event("mac", 120, 200, 0, 0, 0, "CORE", value=40),
        Event("stall", 200, 230, 0, 0, 0, "CNA", value=30, reason="stall_weight"),
        Event("packet", 210, 240, 0, 0, 0, "DPU", value=16),
        Event("irq", 399, 450, 0, 0, 0, "PC", value=51),
        Event("diagnostic", 300, 301, 0, 1, 0, "CNA", address=OFFSET, reason="BANK_SUM: too many"),
        Event("task", 100, 300, 1, 0, 1, "PC"),
    ]
    rows += [
        Event("burst", 105 + n, 205 + 20 * n, 0, 0, 0, "CNA", "FEATURE", 64 * n, 4, 128, "read", "", 80)
        for n in range(4)
    ]
    rows.append(Event("burst", 220, 300, 0, 0, 0, "DPU", "DPU", 4096, 2, 64, "write", "", 10))
    return EventLog.of(rows)


def test_tracks_and_slices(tmp_path: Path):
    path = tmp_path / "t.pftrace"
    write_timeline(example(), path)
    tracks = read(path)
    assert {t.path.split("/")[0] for t in tracks} == {"core 0", "core 1"}
    tasks = at(tracks, "core 0/tasks")
    assert [(s[:4]) for s in sorted(tasks.slices)] == [
        (100, 250, "task 0", 1),
        (100, 400, "conv1", 0),
        (251, 400, "task 1", 1),
    ]
    notes = next(s[4] for s in tasks.slices if s[2] == "task 0")
    assert notes["FEATURE bytes read"] == 512 and notes["DPU bytes written"] == 64
    assert (notes["cycles"], notes["mac_busy"], notes["stripes"], notes["stall_weight"]) == (150, 40, 2, 30)
    assert at(tracks, "core 1/tasks").slices[0][:3] == (100, 300, "task 0")
    assert at(tracks, "core 0/CNA").slices[0][:3] == (101, 249, "task 0")
    assert [s[:3] for s in at(tracks, "core 0/CNA/stripes").slices] == [
        (100, 151, "stripe 0"),
        (151, 201, "stripe 1"),
    ]
    assert at(tracks, "core 0/CNA/stall_weight").slices[0][:3] == (200, 230, "stall_weight")
    assert at(tracks, "core 0/CORE/array").slices[0][4]["cycles"] == 40
    assert at(tracks, "core 0/DPU/octets").slices[0][:2] == (210, 240)
    assert at(tracks, "core 0/PC/interrupt").slices[0][:2] == (399, 450)
    assert at(tracks, "core 0/diagnostics").instants[0][:2] == (300, "diagnostic: BANK_SUM: too many")


def test_register_writes_have_names_and_fields(tmp_path: Path):
    from rkcosim.spec.regs import registers

    path = tmp_path / "t.pftrace"
    write_timeline(example(), path)
    (written,) = at(read(path), "core 0/CNA/register writes").instants
    register = registers().at(OFFSET)
    assert register is not None and written[:2] == (90, register.path)
    assert written[2]["value"] == "0x00000030" and written[2]["by"] == "fetched"
    assert set(register.fields) <= set(written[2])
    for name, value in register.decode(0x30).items():
        label = register.fields[name].label(value)
        assert written[2][name] == (value if label is None else f"{label} ({value})")


def test_bursts_that_overlap_go_on_lanes(tmp_path: Path):
    path = tmp_path / "t.pftrace"
    write_timeline(example(), path)
    tracks = read(path)
    lanes = [t for t in tracks if t.path == "core 0/DMA/FEATURE read"]
    assert len(lanes) == 4 and all(s[3] == 0 for t in lanes for s in t.slices)
    found = sorted(s[:2] for t in lanes for s in t.slices)
    assert found == [(105 + n, 205 + 20 * n) for n in range(4)]
    notes = min(s[4] for t in lanes for s in t.slices if s[0] == 106)
    assert notes == {"address": "0x00000040", "bytes": 128, "beats": 4, "latency": 80}


def test_counters_hold_all_bytes(tmp_path: Path):
    path = tmp_path / "t.pftrace"
    write_timeline(example(), path)
    tracks = read(path)
    for direction, total in (("read", 512), ("write", 64)):
        track = at(tracks, f"core 0/{direction} bandwidth")
        assert track.unit == "bytes/us" and track.values[-1][1] == 0
        bytes_ = sum(
            value * (end - begin) / 1000
            for (begin, value), (end, _) in zip(track.values, track.values[1:], strict=False)
        )
        assert bytes_ == pytest.approx(total, rel=1e-3)
    use = at(tracks, "core 0/array use")
    assert use.unit == "%" and max(v for _, v in use.values) == pytest.approx(50)


def test_amounts_are_spread_over_windows():
    assert spread([0, 15], [10, 25], [100, 10], np.array([0, 10, 20, 30, 34])) == pytest.approx(
        [100, 5, 5, 0]
    )
    assert [window_of(n) for n in (1, 4000, 4001, 10**9)] == [10, 10, 20, 1000]
    assert window_of(2 * 10**11) == 100_000


def test_layers_that_do_not_nest_stay_whole(tmp_path: Path):
    rows = [
        Event("layer", 0, 100, reason="one", task=0, job=0),
        Event("task", 50, 150, task=0, job=0),
        Event("task", 60, 90, task=1, job=0),
    ]
    path = tmp_path / "t.pftrace"
    write_timeline(EventLog.of(rows), path)
    slices = [s for t in read(path) if t.path == "core 0/tasks" for s in t.slices]
    assert sorted(s[:3] for s in slices) == [(0, 100, "one"), (50, 150, "task 0"), (60, 90, "task 1")]


def test_an_empty_log_is_an_empty_timeline(tmp_path: Path):
    write_timeline(EventLog({}), tmp_path / "t.pftrace")
    assert read(tmp_path / "t.pftrace") == []


def test_without_perfetto(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setitem(sys.modules, "perfetto.protos.perfetto.trace", None)
    with pytest.raises(EventsError, match=r"pip install 'rkcosim\[waves\]'"):
        write_timeline(example(), tmp_path / "t.pftrace")
    assert list(tmp_path.iterdir()) == []


def test_a_long_log_takes_little_time_and_memory(tmp_path: Path):
    """A million events must take a bounded time; this test uses a quarter of them."""
    count = 250_000
    rng = np.random.default_rng(4)
    cycle = np.sort(rng.integers(0, 5_000_000, count))
    burst = np.arange(count) % 4 != 3
    log = EventLog(
        {
            "kind": Text(np.where(burst, 0, 1), ["burst", "stall"]),
            "cycle": cycle,
            "end": cycle + rng.integers(1, 400, count),
            "job": np.zeros(count),
            "task": np.zeros(count),
            "block": Text(np.zeros(count), ["CNA"]),
            "client": Text(np.where(burst, rng.integers(0, 2, count), 2), ["FEATURE", "WEIGHT", ""]),
            "direction": Text(np.where(burst, 0, 1), ["read", ""]),
            "reason": Text(np.where(burst, 0, 1), ["", "stall_weight"]),
            "address": rng.integers(0, 1 << 32, count),
            "value": np.ones(count),
            "bytes": np.full(count, 32),
        }
    )
    path = tmp_path / "t.pftrace"
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begun = time.process_time()
    write_timeline(log, path)
    seconds = time.process_time() - begun
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10
    print(f"{count} events in {seconds:.1f} s, {grown} MiB more, file {path.stat().st_size >> 20} MiB")
    assert seconds < 15 and grown < 400
