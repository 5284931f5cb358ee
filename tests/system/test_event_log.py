"""The event log of real runs: its sums equal the counters, its order is that of the hardware."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rkcosim.compiler import LoadedModel, compile_conv_layer
from rkcosim.driver import Driver
from rkcosim.engines import DramConfig, open_engine
from rkcosim.engines.protocol import EngineError
from rkcosim.spec.regs import registers
from rkcosim.spec.regs.events import ENDS, REASONS
from rkcosim.verify.crosscheck.kick import run_kick
from rkcosim.verify.streams.stream import Stream
from rkcosim.waves.events import KINDS, Event, EventLog

ROOT = Path(__file__).resolve().parents[2]
POOL = ROOT / "examples/streams/pool.json"
LAYERS: dict[str, dict[str, Any]] = {
    "direct": dict(channels=48, kernels=40, height=7, width=9, kernel=3, pad=1, stride=2),
    "depthwise": dict(channels=80, kernels=80, height=6, width=5, kernel=3, pad=1, depthwise=True),
    "tiled": dict(channels=512, kernels=64, height=28, width=28, kernel=3, pad=1),
}
SLOW = DramConfig(jitter=60, seed=3, peak_bytes_per_cycle=12)
EXCLUSIVE = {"stall_feature", "stall_weight", *(reason.name for reason in REASONS)}


def run_layer(engine: Any, layer: str, max_cycles: int = 1_000_000) -> None:
    model = compile_conv_layer(**LAYERS[layer])
    with LoadedModel(model, Driver(engine, max_cycles)) as loaded:
        shape = model.inputs[0].shape
        loaded.set_input(0, np.random.default_rng(9).integers(-128, 128, shape).astype(np.int8))
        loaded.run()


def run_stream(engine: Any, path: Path = POOL) -> None:
    stream = Stream.load(path)
    stream.load_into(engine.memory)
    assert run_kick(engine, stream.kick, stream.core, 1_000_000, stream.writes).done


def sums(log: EventLog, column: str, by: str, **wanted: Any) -> dict[str, int]:
    totals: Counter[str] = Counter()
    for name, value in zip(log.where(**wanted)[by], log.where(**wanted)[column], strict=True):
        totals[name] += int(value)
    return dict(totals)


def check_against_counters(engine: Any, log: EventLog, core: int = 0) -> None:
    """Check that every sum of the log equals the engine's counter."""
    counters = engine.counters(core)
    assert log.dropped == {}
    mine = log.where(core=core)
    assert sums(mine, "bytes", "client", kind="burst", direction="read") == counters.bytes_read
    assert sums(mine, "bytes", "client", kind="burst", direction="write") == counters.bytes_written
    bursts = Counter(mine.where(kind="burst")["direction"])
    assert bursts["read"] == counters.read_requests and bursts["write"] == counters.write_requests
    found = sums(mine, "value", "reason", kind="stall")
    found["mac_slots"] = int(mine.where(kind="mac")["value"].sum())
    found["stripes"] = len(mine.where(kind="stripe"))
    packets = sums(mine, "value", "block", kind="packet")
    found |= {"dpu_octets": packets.get("DPU", 0), "ppu_atoms": packets.get("PPU", 0)}
    apart = ("task_start", "task_done", "mac_pixels", *ENDS)
    known = {n: v for n, v in counters.events.items() if n not in apart}
    assert {name: value for name, value in found.items() if value} == known
    records = [r for r in engine.task_log() if r.core == core]
    assert [(s.task, s.job, s.start, s.end) for s in mine.tasks()] == [
        (r.task, r.job, r.start, r.end) for r in records
    ]
    for record, one in zip(records, mine.summary(), strict=True):
        seen = record.counters
        assert one.cycles == record.cycles and one.mac_busy == seen.events.get("mac_slots", 0)
        stalls = {n: v for n, v in seen.events.items() if n.startswith(("stall_", "only_"))}
        assert one.stalls == stalls
        # Commands of the next task are fetched while this one runs, so their beats may cross its end.
        assert {c: n for c, n in one.bytes_read.items() if c != "PC"} == {
            c: n for c, n in seen.bytes_read.items() if c != "PC"
        }
        assert one.bytes_written == seen.bytes_written
        ends = {n: v for n, v in seen.events.items() if n in ENDS}
        assert sum(v for n, v in ends.items() if n.startswith("cycles_array_")) == one.mac_busy
        assert sum(ends.values()) <= one.cycles
        assert one.mac_busy + sum(one.stalls.get(name, 0) for name in EXCLUSIVE) <= one.cycles


def check_order(log: EventLog, writer_ends: bool = True) -> None:
    """Check the order of events in every run that ended without error.

    `writer_ends`: the interrupt comes from the block that writes, and from no earlier block.
    """
    assert set(log.where(kind="burst")["reason"]) <= {""}
    assert bool(np.all(log["end"] > log["cycle"])) and list(log["cycle"]) == sorted(log["cycle"])
    for span in log.tasks():
        mine = log.where(core=span.core, job=span.job, task=span.task)
        data = [e for e in mine.where(kind="burst") if e.client != "PC"]
        assert data and min(e.cycle for e in data) > span.start
        assert max(e.end for e in data) <= span.end
        for kind in ("mac", "packet", "stall", "busy"):
            for event in mine.where(kind=kind):
                assert span.start <= event.cycle < event.end <= span.end
                assert 0 < event.value <= event.end - event.cycle
        fetched = [e for e in mine.where(kind="write") if e.reason == "fetched"]
        assert fetched and max(e.cycle for e in fetched) <= span.start
    for event in log.where(kind="burst"):
        assert event.latency < event.end - event.cycle
        assert event.bytes <= 32 * event.value
    for irq in log.where(kind="irq") if writer_ends else []:
        before = [e for e in log.where(kind="burst", direction="write", core=irq.core) if e.cycle < irq.cycle]
        assert before and max(e.end for e in before) <= irq.cycle


@pytest.mark.parametrize("dram", [None, SLOW], ids=["default", "slow"])
@pytest.mark.parametrize("layer", LAYERS)
def test_sums_and_order(layer: str, dram: DramConfig | None):
    with open_engine(cores=1, dram=dram) as engine:
        engine.record()
        run_layer(engine, layer)
        log = engine.events()
        check_against_counters(engine, log)
        check_order(log)
        irq = list(log.where(kind="irq"))
        assert len(irq) == 1 and irq[0].job == 0
        if layer == "tiled":
            assert len(log.tasks()) > 1


def test_a_pooling_stream():
    with open_engine(cores=1) as engine:
        engine.record()
        run_stream(engine)
        log = engine.events()
        check_against_counters(engine, log)
        check_order(log)
        assert set(log.where(kind="packet")["block"]) == {"PPU"}
        assert {"PPU", "PPU_RDMA"} <= set(log.where(kind="busy", job=0)["block"])
        assert log.meta["engine"] == "verilator" and log.meta["cores"] == 1


GROUPS = (
    "conv int8",
    "conv fp16",
    "depthwise int16",
    "deconvolution",
    "kernel tiles",
    "ew integers, memory",
    "lut floats",
    "packets",
    "unpooling",
    "dpu to ppu",
    "pool index",
    "chains",
    "slave mode",
)


@pytest.mark.parametrize("group", GROUPS)
def test_drawn_tasks(group: str):
    """Sums and order hold for random tasks of many kinds."""
    from rkcosim.verify.conformance.groups import draw_case

    for seed in (11, 12):
        stream = draw_case(group, seed, 0).stream()
        with open_engine(cores=stream.core + 1, on_diagnostic="go on", dram=SLOW) as engine:
            stream.load_into(engine.memory)
            engine.record()
            done = run_kick(engine, stream.kick, stream.core, 2_000_000, stream.writes).done
            engine.run(20_000)  # a mask may let the interrupt come before the task's end
            log = engine.events()
            print(f"{group}, seed {seed}: {log}")
            check_against_counters(engine, log, stream.core)
            if done and not stream.kick.slave:
                check_order(log, writer_ends=len(log.where(kind="irq")) == 1)
                assert len(log.tasks()) == stream.kick.tasks


def test_writes_are_those_of_host_and_stream():
    stream = Stream.load(POOL)
    with open_engine(cores=1) as engine:
        engine.record(["write"])
        run_stream(engine)
        log = engine.events()
    assert set(log.count()) == {"write"}
    host = [e for e in log if e.reason == "host"]
    enable, clear = registers()["PC"]["OPERATION_ENABLE"], registers()["PC"]["INTERRUPT_CLEAR"]
    kicks = [e for e in host if e.address == enable.offset and e.value]
    assert [(e.job, e.task, e.value, e.block) for e in kicks] == [(0, -1, 1, "PC")]
    assert all(e.job == -1 for e in host if e.cycle < kicks[0].cycle)
    assert host[-1].address == clear.offset and host[-1].value == clear.mask
    # The words of the list, as in memory.
    from rkcosim.regcmd import disassemble, words_from_bytes

    region = next(r for r in stream.regions if r.address <= stream.kick.base < r.address + r.data.size)
    words = words_from_bytes(region.data[stream.kick.base - region.address :].tobytes())
    known = [c for c in disassemble(words) if c.register is not None and c.block != "PC"]
    fetched = [(e.address, e.block) for e in log if e.reason == "fetched"]
    assert fetched == [(c.register.offset, c.block) for c in known if c.register][: len(fetched)]
    assert len(fetched) > 10 and {e.task for e in log if e.reason == "fetched"} == {0}


@pytest.mark.parametrize("name", ["cxxrtl", "amaranth"])
def test_engines_record_the_same(name: str):
    logs = []
    for engine_name in ("verilator", name):
        with open_engine(engine_name, cores=1) as engine:
            engine.record()
            run_stream(engine)
            logs.append(list(engine.events()))
    assert len(logs[0]) > 50
    assert logs[0] == logs[1]


def test_a_window_holds_what_begins_in_it():
    def run(**window: int) -> EventLog:
        with open_engine(cores=1) as engine:
            engine.record(**window)  # type: ignore[arg-type]
            run_layer(engine, "direct")
            return engine.events()

    whole = run()
    start, end = whole.tasks()[0].start, whole.tasks()[0].end
    for first, last in ((start + 150, end - 300), (start + 900, start + 1100), (start, end), (1, 2)):
        part = run(first=first, last=last)
        for kind in ("write", "stripe", "burst", "irq"):
            wanted = [e for e in whole.where(kind=kind) if first <= e.cycle <= last]
            found = list(part.where(kind=kind))
            # Activity in progress at the end of the window ends there.
            cut = [
                e._replace(end=min(e.end, last + 1), reason="open" if e.end > last + 1 else e.reason)
                if kind == "burst"
                else e._replace(end=min(e.end, last + 1))
                for e in wanted
            ]
            if kind == "burst":
                assert [e[:9] for e in found] == [e[:9] for e in cut]
                whole_ones = [e for e in cut if e.reason != "open"]
                assert [e for e in found if e.reason != "open"] == whole_ones
            elif kind == "irq":
                assert [e.cycle for e in found if e.cycle > first] == [
                    e.cycle for e in cut if e.cycle > first
                ]
            else:
                assert found == cut
        for kind in ("mac", "stall", "packet", "busy"):
            for event in part.where(kind=kind):
                assert first <= event.cycle < event.end <= last + 1
        assert [s.start for s in part.tasks()] == ([start] if last >= start else [])


def test_windows_add_up():
    """The cycles of levels in two adjacent windows add up to those of one window over both."""

    def busy(**window: int) -> int:
        with open_engine(cores=1) as engine:
            engine.record(["mac"], **window)  # type: ignore[arg-type]
            run_layer(engine, "direct")
            return int(engine.events()["value"].sum())

    with open_engine(cores=1) as engine:
        engine.record(["task"])
        run_layer(engine, "direct")
        span = engine.events().tasks()[0]
    middle = span.start + 1000
    assert 0 < busy(last=middle) < busy()
    assert busy(last=middle) + busy(first=middle + 1) == busy()


def test_merging_keeps_the_sum():
    totals = []
    for gap in (0, 8, 1000):
        with open_engine(cores=1) as engine:
            engine.record(["mac", "stall"], gap=gap)
            run_layer(engine, "direct")
            log = engine.events()
            totals.append((len(log), int(log["value"].sum())))
            if gap == 0:
                assert all(e.value == e.end - e.cycle for e in log)
    counts, values = zip(*totals, strict=True)
    assert len(set(values)) == 1 and counts[0] > counts[1] > counts[2]


def test_a_full_log_says_what_it_lost():
    with open_engine(cores=1) as engine:
        engine.record()
        run_stream(engine)
        everything = engine.events()
    with open_engine(cores=1) as engine:
        engine.record(limit=20)
        run_stream(engine)
        log = engine.events()
    always = {"task", "diagnostic", "fault"}
    kept = sum(n for kind, n in log.count().items() if kind not in always)
    assert kept == 20 and log.meta["limit"] == 20
    lost = {kind: everything.count()[kind] - log.count().get(kind, 0) for kind in everything.count()}
    assert log.dropped == {kind: n for kind, n in lost.items() if n}
    assert len(log.tasks()) == 1


def test_events_under_way():
    """A log taken during a run ends at that cycle; taking it changes nothing."""
    model = compile_conv_layer(**LAYERS["direct"])
    taken: list[EventLog] = []

    class Watched:
        def __init__(self, engine: Any) -> None:
            self.engine = engine

        def __getattr__(self, name: str) -> Any:
            return getattr(self.engine, name)

        def run_until_irq(self, core_mask: int, max_cycles: int) -> int:
            for _ in range(10_000):
                raised = self.engine.run_until_irq(core_mask, 97)
                taken.append(self.engine.events())
                if raised:
                    return raised
            return 0

    logs = []
    for watch in (False, True):
        with open_engine(cores=1) as engine:
            engine.record()
            loaded = LoadedModel(model, Driver(Watched(engine) if watch else engine, 1_000_000))
            loaded.set_input(0, np.zeros(model.inputs[0].shape, np.int8))
            loaded.run()
            check_against_counters(engine, engine.events())
            logs.append(list(engine.events()))
    assert logs[0] == logs[1] and len(taken) > 10
    for log in taken:
        now = log.meta["cycles"]
        assert int(log["end"].max()) <= now + 1
        running = [s for s in log.tasks() if not s.ended]
        assert all(s.end == now + 1 for s in running)
    assert any(not s.ended for log in taken for s in log.tasks())
    assert any("open" in log.where(kind="burst")["reason"] for log in taken)


def test_diagnostics_and_faults_are_events():
    from rkcosim.driver import DriverError

    with open_engine(cores=1, on_diagnostic="go on", dram=DramConfig(fault_read=9)) as engine:
        engine.record()
        with pytest.raises(DriverError):
            run_layer(engine, "direct", max_cycles=20_000)
        log = engine.events()
        fault = next(iter(log.where(kind="fault")))
        found = engine.faults()[0]
        assert (fault.cycle, fault.address, fault.client) == (found.cycle, found.address, found.client)
        assert fault.direction == "read" and fault.reason == "read error injected" and fault.job == 0
        said = next(iter(log.where(kind="diagnostic")))
        assert said.reason.startswith("READ_ERROR: ") and said.cycle > fault.cycle
        bad = [e for e in log.where(kind="burst") if e.reason == "SLVERR"]
        assert [e.cycle for e in bad] == [fault.cycle]


def test_a_reset_ends_bursts():
    class Hasty:
        def __init__(self, engine: Any) -> None:
            self.engine = engine

        def __getattr__(self, name: str) -> Any:
            return getattr(self.engine, name)

        def run_until_irq(self, core_mask: int, max_cycles: int) -> int:
            self.engine.run(500)
            self.before = self.engine.events()
            self.engine.reset(core_mask)
            raise InterruptedError

    with open_engine(cores=1) as engine:
        engine.record()
        hasty = Hasty(engine)
        with pytest.raises(InterruptedError):
            run_layer(hasty, "direct")
        log = engine.events()
    running = [e[:7] for e in hasty.before.where(kind="burst") if e.reason == "open"]
    assert running
    cut = [e for e in log.where(kind="burst") if e.reason == "reset"]
    assert [e[:1] + e[1:2] for e in cut] == [e[:1] + e[1:2] for e in running]
    assert "open" not in set(log.where(kind="burst")["reason"])


def test_three_cores_have_their_own_events():
    from rkcosim.compiler import using_cores

    with using_cores(3):
        model = compile_conv_layer(**LAYERS["tiled"])
    with open_engine(cores=3) as engine:
        engine.record()
        loaded = LoadedModel(model, Driver(engine, 1_000_000))
        loaded.set_input(0, np.zeros(model.inputs[0].shape, np.int8))
        loaded.run()
        log = engine.events()
        for core in range(3):
            check_against_counters(engine, log, core)
        check_order(log)
        jobs = {s.core: s.job for s in log.tasks()}
        if len(jobs) > 1:
            assert len(set(jobs.values())) == len(jobs)


def test_tracing_later_keeps_the_recording(tmp_path: Path):
    with open_engine(cores=1, traced=True) as engine:
        engine.record(["task", "burst"])
        engine.trace(tmp_path / "t.vcd", 0, 50)
        run_stream(engine)
        assert set(engine.events().count()) == {"task", "burst"}


def test_bad_questions():
    with open_engine(cores=1) as engine:
        with pytest.raises(EngineError, match="call record"):
            engine.events()
        with pytest.raises(ValueError, match="no events of kind 'tasks'; there are task, write"):
            engine.record(["tasks"])
        with pytest.raises(ValueError, match="window"):
            engine.record(first=10, last=5)
        with pytest.raises(ValueError, match="limit"):
            engine.record(limit=0)
    assert "layer" in KINDS and Event("task", 1, 2).task == -1
