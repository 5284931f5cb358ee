"""Waveforms of real runs, read back: their values agree with the engine's counts."""

from __future__ import annotations

import importlib.util
import re
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from rkcosim import waves
from rkcosim.engines.engine import open_engine
from rkcosim.engines.records import CoreCounters, TaskRecord
from rkcosim.regcmd import decode_word, words_from_bytes
from rkcosim.verify.conformance.groups import draw_case
from rkcosim.verify.crosscheck.kick import run_kick
from rkcosim.verify.streams.stream import Stream
from rkcosim.waves import Wave
from rkcosim.waves.backends import have_pywellen
from rkcosim.waves.events import Event
from rkcosim.waves.layout import chosen, layout
from tests.programs import needs_program

ROOT = Path(__file__).resolve().parents[2]

pytestmark = needs_program("g++")


@dataclass
class Run:
    """A traced run of a stream on one core."""

    stream: Stream
    wave: Wave
    counters: CoreCounters
    tasks: list[TaskRecord]
    events: list[Event]


def traced(stream: Stream, file: Path) -> Run:
    """Run a stream on core 0 and trace all signals."""
    with closing(open_engine("verilator", cores=1, traced=True)) as engine:
        engine.trace(file)
        engine.record(["write", "burst", "irq", "task"])
        stream.load_into(engine.memory)
        result = run_kick(engine, stream.kick, stream.core, writes=stream.writes)
        assert result.done
        counters, tasks, events = engine.counters(0), engine.task_log(), list(engine.events())
    return Run(stream, waves.open(file), counters, tasks, events)


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Run:
    stream = Stream.load(ROOT / "examples" / "streams" / "pool.json")
    return traced(stream, tmp_path_factory.mktemp("pool") / "pool.vcd")


@pytest.fixture(scope="module")
def conv(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return traced(draw_case("conv int8", 3, 0).stream(), tmp_path_factory.mktemp("conv") / "conv.vcd")


def test_signals_in_the_help_of_waves_are_in_a_waveform(pool: Run):
    from rkcosim.cli.waves import waves_command

    examples = (waves_command.epilog or "").splitlines()
    patterns = [pattern for line in examples for pattern in re.findall(r"--signals '([^']+)'", line)]
    assert patterns and all(chosen(pool.wave, [pattern]) for pattern in patterns)


def check_tasks_and_bytes(run: Run) -> None:
    tasks = run.wave.tasks()
    assert [(t.core, t.job, t.index) for t in tasks] == [(0, 0, r.task) for r in run.tasks]
    assert [(t.start, t.end) for t in tasks] == [(r.start, r.end) for r in run.tasks]
    moved: Counter[tuple[str, str]] = Counter()
    for burst in run.wave.bursts():
        assert burst.end is not None and burst.first_data is not None and not burst.error
        assert burst.start <= burst.accepted < burst.first_data <= burst.end
        moved[burst.direction, burst.client] += burst.bytes
    assert {c: n for (way, c), n in moved.items() if way == "read"} == run.counters.bytes_read
    assert {c: n for (way, c), n in moved.items() if way == "write"} == run.counters.bytes_written


def check_event_log(run: Run) -> None:
    """The engine's log equals the events decoded from the waveform, cycle by cycle."""
    wave = run.wave
    of = {kind: [e for e in run.events if e.kind == kind] for kind in ("write", "burst", "irq", "task")}
    assert [(e.cycle, e.address, e.value) for e in of["write"]] == [
        (w.cycle, w.offset, w.value) for w in wave.register_writes()
    ]
    assert sorted((e.cycle, e.end, e.direction, e.client, e.address, e.bytes) for e in of["burst"]) == sorted(
        (b.start, (b.end or 0) + 1, b.direction, b.client, b.address, b.bytes) for b in wave.bursts()
    )
    assert [e.cycle for e in of["irq"]] == [irq.start for irq in wave.irqs()]
    assert [(e.job, e.task, e.cycle, e.end) for e in of["task"]] == [
        (t.job, t.index, t.start, t.end) for t in wave.tasks()
    ]


def test_event_logs_say_the_same(pool: Run, conv: Run):
    check_event_log(pool)
    check_event_log(conv)


@pytest.mark.skipif(not have_pywellen(), reason="pywellen is not installed")
@pytest.mark.skipif(importlib.util.find_spec("_libfstapi") is None, reason="pylibfst is not installed")
def test_fst_holds_the_same(pool: Run, tmp_path: Path):
    fst = traced(pool.stream, tmp_path / "pool.fst").wave
    vcd = pool.wave
    assert (fst.format, fst.first, fst.last) == ("fst", vcd.first, vcd.last)
    assert [(s.name, s.width) for s in fst.signals] == [(s.name, s.width) for s in vcd.signals]
    assert fst.tasks() == vcd.tasks() and fst.bursts() == vcd.bursts()
    assert fst.register_writes() == vcd.register_writes() and fst.irqs() == vcd.irqs()


def test_pool_tasks_and_bytes(pool: Run):
    check_tasks_and_bytes(pool)
    bursts = pool.wave.bursts()
    assert len([b for b in bursts if b.direction == "read"]) == pool.counters.read_requests
    assert len([b for b in bursts if b.direction == "write"]) == pool.counters.write_requests


def test_pool_register_writes_are_the_words_in_order(pool: Run):
    commands = [decode_word(word) for word in words_from_bytes(pool.stream.regions[0].data.tobytes())]
    # Words for the PC itself say where the next list is; they are no writes.
    words = [(c.offset, c.value) for c in commands if c.kind == "register" and c.block != "PC"]
    writes = pool.wave.register_writes()
    assert [(w.offset, w.value) for w in writes if w.fetched] == words and len(words) > 20
    (task,) = pool.wave.tasks()
    assert all(w.cycle <= task.start for w in writes if w.fetched)
    host = [w.path for w in writes if not w.fetched and w.cycle < task.start]
    assert host[-2:] == ["PC.OPERATION_ENABLE", "PC.OPERATION_ENABLE"] and "PC.BASE_ADDRESS" in host


def test_pool_interrupt_comes_after_the_last_write(pool: Run):
    irq = pool.wave.irqs()[0]
    ends = [b.end for b in pool.wave.bursts() if b.direction == "write" and b.end is not None]
    assert ends and max(ends) < irq.start
    (task,) = pool.wave.tasks()
    assert task.end is not None and abs(irq.start - task.end) <= 4
    assert pool.wave.mac_activity()[0].slots == 0 and pool.wave.diagnostics() == []


def test_conv_keeps_the_array_busy(conv: Run):
    check_tasks_and_bytes(conv)
    (activity,) = conv.wave.mac_activity(window=100)
    assert activity.slots == conv.counters.events["mac_slots"] > 0
    assert activity.real == conv.counters.events["mac_pixels"]
    (task,) = conv.wave.tasks()
    assert task.end is not None
    assert all(task.start < begin < end <= task.end for begin, end in activity.intervals)
    wave = conv.wave
    in_windows = sum(use * min(100, wave.last + 1 - first) for first, use in activity.windows)
    assert round(in_windows) == activity.slots
    waited: Counter[str] = Counter()
    for stall in wave.stalls():
        waited[stall.reason] += stall.end - stall.start
    counted = {name: n for name, n in conv.counters.events.items() if name.startswith("stall_") and n}
    assert dict(waited) == counted and waited["stall_feature"] > 0


@pytest.mark.skipif(not have_pywellen(), reason="pywellen is not installed")
def test_both_libraries_read_the_same(pool: Run):
    other = waves.open(pool.wave.file, reader="vcdvcd")
    one = waves.open(pool.wave.file, reader="pywellen")
    assert [(s.name, s.width) for s in other.signals] == [(s.name, s.width) for s in one.signals]
    names = [row.signal.name for group in layout(one) for row in group.rows()]
    assert len(names) > 50
    other.load(*names)
    for name in names:
        assert one.changes(name) == other.changes(name), name
    assert (one.first, one.last) == (other.first, other.last)
    assert one.bursts() == other.bursts() and one.tasks() == other.tasks()
    assert one.register_writes() == other.register_writes()
