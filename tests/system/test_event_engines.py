"""Events of the small core are the same in every engine, in windows, with sleeping cores, with any bursts."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from rkcosim.engines import SocEngine
from rkcosim.waves.events import EventLog
from tests.system import toy_core as toy
from tests.system.toy_core import CROWDED, open_toy, start

JITTER = replace(CROWDED, client_read_outstanding=2)


def opened(name: str = "verilator", cores: int = 3, **options: Any) -> SocEngine:
    return open_toy(name, cores=cores, dram=JITTER, **options)


def copy(engine: SocEngine, cores: int = 3) -> None:
    """Start cores at different times, with idle time between them."""
    for core in range(cores):
        start(engine, core, 5 + core, 16 - core)
        engine.run(37)
    mask = (1 << cores) - 1
    while mask:
        high = engine.run_until_irq(mask, 20000)
        assert high, engine.block_state(0)
        mask &= ~high
    engine.run(5000)
    engine.write32(0, toy.STATUS, 0)
    start(engine, 0, 3, 1)
    assert engine.run_until_irq(1, 20000)
    engine.run(200)


def check_bytes(engine: SocEngine, log: EventLog) -> None:
    for core in range(engine.cores):
        counters = engine.counters(core)
        bursts = log.where(kind="burst", core=core)
        for direction, bytes_, requests in (
            ("read", counters.bytes_read, counters.read_requests),
            ("write", counters.bytes_written, counters.write_requests),
        ):
            found: Counter[str] = Counter()
            mine = bursts.where(direction=direction)
            for e in mine:
                found[e.client] += e.bytes
                assert e.bytes == 32 * e.value and e.latency < e.end - e.cycle
            assert dict(found) == bytes_ and len(mine) == requests


def test_bursts_out_of_order_and_beats_before_their_address():
    with opened() as engine:
        engine.record()
        copy(engine)
        log = engine.events()
        check_bytes(engine, log)
        assert any(e.latency == 0 for e in log.where(kind="burst", direction="write"))
        writes = log.where(kind="write", core=0)
        assert [e.address for e in writes][:5] == [toy.SRC, toy.DST, toy.BURSTS, toy.BEATS, toy.GO]
        assert set(writes["reason"]) == {"host"} and set(writes["job"]) == {-1}
        assert len(log.where(kind="irq")) == 4 and len(log.where(kind="busy")) == 4


def test_compiled_engines_record_the_same():
    logs = []
    for name in ("verilator", "cxxrtl"):
        with opened(name) as engine:
            engine.record()
            copy(engine)
            logs.append(list(engine.events()))
    assert logs[0] == logs[1] and len(logs[0]) > 60


def test_amaranth_records_the_same():
    logs = []
    for name in ("verilator", "amaranth"):
        with opened(name, cores=2) as engine:
            engine.record()
            for core in range(2):
                start(engine, core, 3 + core)
            first = engine.run_until_irq(3, 5000)
            engine.run_until_irq(3 & ~first, 5000)
            logs.append(list(engine.events()))
    assert logs[0] == logs[1] and len(logs[0]) > 20


def test_sleep_changes_nothing():
    logs = []
    for sleep in (True, False):
        with opened() as engine:
            engine.may_sleep(sleep)
            engine.record()
            copy(engine)
            logs.append(list(engine.events()))
    assert logs[0] == logs[1]


def test_every_window_keeps_bursts_apart():
    """Beats of bursts that began before the window are not counted for bursts in it."""
    with opened(cores=1) as engine:
        engine.record()
        copy(engine, 1)
        whole = list(engine.events().where(kind="burst"))
        last = engine.cycle
    for first in range(20, min(last, 900), 43):
        with opened(cores=1) as engine:
            engine.record(["burst", "irq"], first=first)
            copy(engine, 1)
            found = engine.events()
        assert list(found.where(kind="burst")) == [e for e in whole if e.cycle >= first], first


def test_recording_may_begin_in_the_middle():
    with opened(cores=1) as engine:
        start(engine, 0, 12)
        engine.run(250)
        engine.record()
        begun = engine.cycle
        assert engine.run_until_irq(1, 20000)
        log = engine.events()
    (task,) = log.where(kind="task")
    assert task.cycle < begun == log.meta["first"]  # with its true start
    assert all(e.cycle >= begun for e in log if e.kind != "task")
    assert next(iter(log.where(kind="busy"))).cycle == begun
    bursts = log.where(kind="burst")
    assert len(bursts) > 5 and all(e.bytes == 32 * e.value for e in bursts)


def test_resets_and_refused_accesses():
    logs = []
    for sleep in (True, False):
        with opened(cores=1, on_diagnostic="go on") as engine:
            engine.may_sleep(sleep)
            engine.record()
            start(engine, 0, 20)
            engine.run(190)
            engine.reset(1)
            start(engine, 0, 2, 4, source=0x7000_0000)
            assert engine.run_until_irq(1, 5000)
            engine.write32(0, 0xE100, 77)
            log = engine.events()
        logs.append(list(log))
        reasons = Counter(log.where(kind="burst")["reason"])
        assert reasons["reset"] >= 3 and reasons["DECERR"] == 2 and not reasons["open"]
        assert [e.address for e in log.where(kind="fault")] == [0x7000_0000, 0x7000_0200]
        said = list(log.where(kind="diagnostic"))
        assert [(e.address, e.value) for e in said] == [(0xE100, 77)]
        # Registers of the real core have names; undecoded offsets have none.
        assert said[0].reason.startswith("UNKNOWN_WRITE")
    assert logs[0] == logs[1]


@pytest.mark.parametrize("limit", [1, 7, 30])
def test_a_limit_loses_nothing_but_rows(limit: int):
    with opened(cores=2) as engine:
        engine.record()
        for core in range(2):
            start(engine, core, 6)
        engine.run(3000)
        whole = engine.events()
    with opened(cores=2) as engine:
        engine.record(limit=limit)
        for core in range(2):
            start(engine, core, 6)
        engine.run(3000)
        log = engine.events()
    kept = log.where(kind=["write", "burst", "irq", "mac", "busy"])
    assert len(kept) == limit
    counts = whole.count()
    assert {k: log.count().get(k, 0) + n for k, n in log.dropped.items()} == {
        k: counts[k] for k in log.dropped
    }
    everything = list(whole)
    assert all(row in everything for row in kept)
