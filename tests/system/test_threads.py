"""Cores in windows and threads: cycles, bytes and logs do not depend on how cores are simulated."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from rkcosim.base import progress
from rkcosim.engines import BuildError, DiagnosticError, DramConfig, open_engine
from rkcosim.engines.settings import thread_count, using_threads
from tests.system import toy_core as toy
from tests.system.toy_core import CROWDED, SOURCE, TARGET, open_toy, start

DIAGNOSTIC = 0xE100
"""Offset that belongs to no block."""

WAYS = [
    {"threads": 1},
    {"threads": 2},
    {"threads": 3},
    {"threads": 1, "window": 1},
    {"threads": 3, "window": 5},
    {"threads": 3, "record": True},
    {"threads": None},
    {"threads": 2, "sleep": False},
]


@contextmanager
def opened(
    name: str = "verilator",
    *,
    threads: int | None = None,
    window: int = 0,
    record: bool = False,
    sleep: bool = True,
    **options: Any,
):
    options = {"cores": 3, "dram": CROWDED, "on_diagnostic": "go on"} | options
    try:
        engine = open_toy(name, threads=threads, **options)
    except BuildError as error:
        pytest.skip(str(error))
    with engine:
        engine.window(window)
        engine.may_sleep(sleep)
        if record:
            engine.record()
        yield engine


def wait(engine, mask):
    """Run until all lines of the mask are high; return (cycle, lines) for every additional line."""
    seen = []
    while mask:
        high = engine.run_until_irq(mask, 20_000)
        seen.append((engine.cycle, high))
        assert high, engine.block_state(0)
        mask &= ~high
    return seen


def facts(engine):
    counters = [engine.counters(core) for core in range(engine.cores)]
    return {
        "cycle": engine.cycle,
        "memory": engine.memory.read(TARGET, 0x10000),
        "tasks": engine.task_log(),
        "diagnostics": engine.diagnostics(),
        "faults": engine.faults(),
        "counters": [(c.events, c.bytes_read, c.bytes_written, c.read_requests) for c in counters],
    }


def story(engine):
    """Three cores active together and alone, a reset during it, refused accesses, diagnostics."""
    seen: list[Any] = []
    for core in range(3):
        start(engine, core, 20 - 5 * core, 16 - core)
    seen += wait(engine, 7)
    for core in range(3):
        engine.write32(core, toy.STATUS, 0)
        start(engine, core, 12, source=0x7000_0000 if core == 1 else SOURCE + 0x1000 * core)
    engine.run(203)
    engine.reset(1)
    engine.write32(1, DIAGNOSTIC, 77)
    start(engine, 0, 3)
    seen += wait(engine, 7)
    engine.run(1000)
    start(engine, 2, 6)
    engine.run(150)
    return seen, facts(engine)


def told(engine):
    return list(engine.events())


@pytest.mark.parametrize("name", ["verilator", "cxxrtl"])
def test_threads_and_windows_change_nothing(name):
    with opened(name, threads=1, window=1) as engine:
        expected = story(engine)
    assert expected[1]["faults"] and expected[1]["diagnostics"] and len(expected[1]["tasks"]) >= 5
    for way in WAYS:
        with opened(name, **way) as engine:
            found = story(engine)
        for what, value in expected[1].items():
            assert found[1][what] == value, (way, what)
        assert found == expected, way


def test_logs_are_in_the_order_of_cycles_then_cores():
    with opened(threads=3) as engine:
        story(engine)
        for log in (engine.faults(), engine.diagnostics()):
            order = [(entry.cycle, entry.core) for entry in log]
            assert order == sorted(order)
        starts = [(record.start, record.core) for record in engine.task_log()]
        assert starts == sorted(starts) and len({core for _, core in starts}) == 3


def test_events_do_not_depend_on_threads():
    logs = []
    for way in ({"threads": 1, "window": 1}, {"threads": 3}):
        with opened(record=True, **way) as engine:
            story(engine)
            logs.append(told(engine))
    assert logs[0] == logs[1] and len(logs[0]) > 100


def test_an_injected_fault_hits_the_same_burst():
    dram = DramConfig(jitter=30, fault_read=23, fault_write=31)
    found = []
    for way in WAYS:
        with opened(dram=dram, **way) as engine:
            for core in range(3):
                start(engine, core, 16)
            found.append((wait(engine, 7), facts(engine)))
    assert [fault.text for fault in found[0][1]["faults"]] == ["read error injected", "write error injected"]
    assert all(one == found[0] for one in found)


def test_a_diagnostic_stops_the_run_in_the_same_cycle():
    where = []
    for way in WAYS:
        with opened(on_diagnostic="stop", **way) as engine:
            for core in range(3):
                start(engine, core, 16)
            with pytest.raises(DiagnosticError) as error:
                engine.write32(2, DIAGNOSTIC, 5)
                engine.run(10_000)
            where.append((engine.cycle, str(error.value)))
    assert len(set(where)) == 1


def test_the_host_hears_at_borders_while_others_work_and_at_once_from_the_last():
    with opened(threads=2) as engine:
        length = engine.dram.lookahead
        assert length == 32
        start(engine, 0, 20)
        start(engine, 1, 2)
        assert engine.run_until_irq(3, 20_000) == 2
        [first] = [record for record in engine.task_log() if record.core == 1]
        assert engine.cycle % length == 0
        assert 0 <= engine.cycle - first.end < length
        begun = engine.cycle
        assert engine.run_until_irq(1, 20_000) == 1
        last = engine.cycle
    with opened(threads=2) as engine:
        start(engine, 0, 20)
        start(engine, 1, 2)
        engine.run_until_irq(3, 20_000)
        engine.run(last - begun - 1)
        assert not engine.irq & 1
        engine.run(1)
        assert engine.irq & 1


def test_where_the_host_looks_up_changes_nothing(monkeypatch):
    with opened(threads=2) as engine:
        expected = story(engine)
    rng = np.random.default_rng(3)

    def took(self, cycles, seconds):
        self.cycles = int(rng.integers(1, 300))

    monkeypatch.setattr(progress.Chunks, "took", took)
    with opened(threads=2) as engine:
        assert story(engine) == expected


def test_short_latencies_leave_no_window():
    dram = DramConfig(read_latency=1, write_latency=1)
    found = []
    for threads in (1, 3):
        with opened(dram=dram, threads=threads) as engine:
            for core in range(3):
                start(engine, core, 8)
            found.append((wait(engine, 7), facts(engine)))
    assert found[0] == found[1]


def test_a_sleeping_core_is_not_evaluated_in_windows():
    with opened(threads=3) as engine:
        engine.run(1000)
        before = engine.counters(2).evaluated
        for core in range(2):
            start(engine, core, 20)
        wait(engine, 3)
        assert engine.counters(2).evaluated == before
        assert engine.counters(1).evaluated > 500


def test_idle_threads_sleep():
    with opened(threads=3) as engine:
        for core in range(3):
            start(engine, core, 10)
        wait(engine, 7)
        before = time.process_time()
        time.sleep(0.5)
        assert time.process_time() - before < 0.2


def test_a_waveform_has_all_cores_whatever_the_threads(tmp_path):
    logs = []
    for threads in (1, 3):
        with opened(threads=threads) as engine:
            engine.trace(tmp_path / f"{threads}.vcd")
            story(engine)
        text = (tmp_path / f"{threads}.vcd").read_text()
        logs.append(text[text.index("$enddefinitions") :])
    assert logs[0] == logs[1] and len(logs[0]) > 10_000


def test_the_number_is_checked_and_handed_down():
    for bad in (0, 4, 1.5):
        with pytest.raises(ValueError, match="threads"):
            thread_count(bad)  # type: ignore[arg-type]
    assert 1 <= thread_count(None) <= 3
    with using_threads(2):
        assert thread_count(None) == 2 and thread_count(3) == 3
        with using_threads(None):
            assert thread_count(None) == 2
        with opened() as engine:
            assert engine.threads == 2
    with pytest.raises(ValueError, match="not 7"):
        open_engine(design=toy.ToyCore, threads=7, progress=lambda text: None)


def test_a_layer_that_three_cores_share():
    from rkcosim.compiler import using_cores
    from rkcosim.measure.perf.workloads import LAYERS

    found = []
    for threads in (1, 2, 3):
        try:
            engine = open_engine(threads=threads)
        except BuildError as error:
            pytest.skip(str(error))
        with engine, using_cores(3):
            measured = LAYERS["fp16 1x1 512->512 at 14x14"].measure(engine, check=threads == 3)
            assert measured.match in (None, True)
            memory = [
                engine.memory.read(address, size) for address, size in sorted(engine.memory.ranges.items())
            ]
            found.append((measured.cycles, measured.stalls, memory, engine.cycle, engine.task_log()))
    assert len({record.core for record in found[0][-1]}) == 3
    assert found[0] == found[1] == found[2]
