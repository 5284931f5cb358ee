"""The event log as a table: columns, files, sums."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from rkcosim.waves import events
from rkcosim.waves.events import Event, EventLog, EventsError


def example() -> EventLog:
    """Two tasks of one job in two layers."""
    rows = [
        Event("write", 5, 6, job=1, task=0, block="CNA", address=0x100C, value=3, reason="fetched"),
        Event("task", 10, 110, job=1, task=0, block="PC"),
        Event("layer", 10, 110, job=1, task=0, value=1, reason="conv1"),
        Event("layer", 120, 320, job=1, task=1, value=1, reason="conv2"),
        Event("task", 120, 320, job=1, task=1, block="PC"),
        Event("burst", 12, 140, job=1, task=0, client="FEATURE", bytes=64, value=2, direction="read"),
        Event("burst", 13, 150, job=1, task=0, client="FEATURE", bytes=96, value=3, direction="read"),
        Event("burst", 125, 300, job=1, task=1, client="DPU", bytes=40, value=2, direction="write"),
        Event("burst", 2, 9, job=1, client="PC", bytes=32, value=1, direction="read"),
        Event("mac", 20, 60, job=1, task=0, block="CORE", value=38),
        Event("mac", 70, 90, job=1, task=0, block="CORE", value=20),
        Event("stall", 60, 70, job=1, task=0, block="CNA", value=9, reason="stall_feature"),
        Event("stall", 130, 135, job=1, task=1, block="DPU", value=5, reason="stall_write"),
        Event("stripe", 61, 62, job=1, task=0, block="CNA"),
        Event("irq", 320, 330, job=1, block="PC", value=1),
    ]
    return EventLog.of(rows, {"engine": "none", "cores": 1, "cycles": 400})


def test_rows_are_in_order_and_come_back():
    log = example()
    assert list(log["cycle"]) == sorted(log["cycle"])
    assert len(log) == 15 and log.count()["burst"] == 4
    first = next(iter(log))
    assert first == Event("burst", 2, 9, job=1, client="PC", bytes=32, value=1, direction="read")
    assert EventLog.of(log, log.meta).meta == log.meta


def test_where_and_between():
    log = example()
    assert len(log.where(kind="burst", direction="read")) == 3
    assert len(log.where(kind={"mac", "stall"}, task=0)) == 3
    assert len(log.where(client="NOBODY")) == 0
    # An event belongs to a window that it touches: not one that ends where the window begins.
    assert [e.kind for e in log.between(110, 120) if e.kind in ("task", "layer")] == ["layer", "task"]
    with pytest.raises(EventsError, match="no column 'colour'"):
        log.where(colour="red")


def test_summary_adds_up():
    one, two = example().summary()
    assert (one.layer, one.cycles, one.mac_busy, one.stripes) == ("conv1", 100, 58, 1)
    assert one.bytes_read == {"FEATURE": 160} and one.bytes_written == {}
    assert one.stalls == {"stall_feature": 9} and two.stalls == {"stall_write": 5}
    assert two.bytes_written == {"DPU": 40} and two.mac_busy == 0
    layers = {one.layer: one for one in example().layers()}
    assert layers["conv1"].tasks == 1 and layers["conv2"].cycles == 200
    spans = example().tasks()
    assert [(s.task, s.cycles, s.layer) for s in spans] == [(0, 100, "conv1"), (1, 200, "conv2")]


def test_logs_join():
    log = example()
    more = EventLog.of([Event("fault", 50, 51, client="FEATURE", reason="read outside")])
    both = log.joined(more)
    assert len(both) == len(log) + 1 and both.meta == log.meta
    assert [e.reason for e in both.where(kind="fault")] == ["read outside"]
    assert len(both.where(client="FEATURE")) == 3
    assert list(both["cycle"]) == sorted(both["cycle"])


def test_columns_must_fit():
    with pytest.raises(EventsError, match="different lengths"):
        EventLog({"cycle": [1, 2], "end": [2]})
    with pytest.raises(EventsError, match="no column colour"):
        EventLog({"cycle": [1], "colour": ["red"]})


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_files_keep_everything(tmp_path: Path, suffix: str):
    pytest.importorskip("pyarrow")
    log, path = example(), tmp_path / f"log{suffix}"
    events.save(log, path)
    back = events.load(path)
    assert list(back) == list(log) and back.meta == log.meta
    assert not list(tmp_path.glob("*.part"))


def test_an_empty_log_is_a_log(tmp_path: Path):
    pytest.importorskip("pyarrow")
    events.save(EventLog({}), tmp_path / "log.parquet")
    back = events.load(tmp_path / "log.parquet")
    assert len(back) == 0 and back.summary() == [] and list(back) == []


def test_columns_in_the_file_are_those_of_an_event(tmp_path: Path):
    parquet = pytest.importorskip("pyarrow.parquet")
    events.save(example(), tmp_path / "log.parquet")
    table = parquet.read_table(tmp_path / "log.parquet")
    assert table.column_names == list(Event._fields)
    assert table.column("reason").to_pylist() == list(example()["reason"])
    assert np.array_equal(table.column("cycle").to_numpy(), example()["cycle"])


def test_files_that_are_no_logs(tmp_path: Path):
    parquet, arrow = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    with pytest.raises(FileNotFoundError):
        events.load(tmp_path / "none.parquet")
    (tmp_path / "bad.parquet").write_text("no")
    with pytest.raises(EventsError, match=r"bad\.parquet: not a readable event log"):
        events.load(tmp_path / "bad.parquet")
    (tmp_path / "bad.arrow").write_text("no")
    with pytest.raises(EventsError, match=r"bad\.arrow: not a readable event log"):
        events.load(tmp_path / "bad.arrow")
    parquet.write_table(arrow.table({"a": [1]}), tmp_path / "other.parquet")
    with pytest.raises(EventsError, match="not an event log of rkcosim"):
        events.load(tmp_path / "other.parquet")
    with pytest.raises(EventsError, match=r"log\.txt: an event log is"):
        events.save(example(), tmp_path / "log.txt")
    later = EventLog.of(example(), {"schema_version": 99})
    events.save(later, tmp_path / "later.parquet")
    with pytest.raises(EventsError, match="schema version 99"):
        events.load(tmp_path / "later.parquet")


def test_without_pyarrow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert not events.can_save()
    with pytest.raises(EventsError, match=r"pip install 'rkcosim\[waves\]'"):
        events.save(example(), tmp_path / "log.parquet")


def test_records_of_the_harness_are_those_that_python_reads():
    """Bits of `events` and the layout of a record: defined in C++ and again in Python."""
    import re

    from rkcosim.engines import events as recorded
    from rkcosim.engines.build import harness_folder
    from rkcosim.spec.regs.events import COUNTERS, ENDS

    text = (harness_folder() / "events.h").read_text()
    bits = re.findall(r"^\s+EV_(\w+),", text, re.M)
    assert [*(name.lower() for name in bits), *ENDS] == list(COUNTERS)
    pins = (harness_folder() / "pins.h").read_text()
    assert f"EVENT_BITS = {len(bits)};" in pins and f"EVENTS = EVENT_BITS + {len(ENDS)};" in pins
    kinds = re.search(r"enum RecordKind : uint8_t \{([^}]*)\}", text)
    assert kinds is not None
    assert [k.strip().removeprefix("REC_").lower() for k in kinds[1].split(",")] == list(recorded.RECORDED)
    body = re.search(r"struct Record \{(.*?)\n\};", text, re.S)
    assert body is not None
    widths = {"uint64_t": 8, "uint32_t": 4, "uint16_t": 2, "uint8_t": 1}
    members = [
        (name.strip(), widths[kind])
        for kind, names in re.findall(r"^\s+(uint\d+_t) ([\w, ]+);", body[1], re.M)
        for name in names.split(",")
    ]
    assert members == [(n, recorded._RECORD[n].itemsize) for n in recorded._RECORD.names or ()]
    assert recorded._RECORD.itemsize == 48
