"""Snapshots of engines: a restored engine continues like the saved one; files that are refused."""

from __future__ import annotations

import ctypes as ct
import json
import random
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from rkcosim import open_engine
from rkcosim.driver import Job
from rkcosim.engines import DramConfig, SocEngine, library, resuming, saving
from rkcosim.engines.protocol import SnapshotError, WaveformError
from rkcosim.engines.snapshots.file import MAGIC, VERSION, SnapshotFile
from rkcosim.engines.snapshots.orders import Border, SaveOrder, SnapshotTaken
from rkcosim.engines.snapshots.plan import planned
from rkcosim.spec.regs import registers
from rkcosim.verify.crosscheck.kick import start
from rkcosim.verify.streams.stream import Stream
from rkcosim.waves.spec import TraceSpec
from tests import seeds
from tests.makers.jobs import draw_at, driver_for, engine_or_skip, records_of

ROOT = Path(__file__).parents[2]
STREAM = ROOT / "examples/streams/digits.json"
TASKS = 10
"""Tasks of the stream."""

SEED = seeds.seed(__name__, 24)
PC = registers()["PC"]


def state_of(engine: SocEngine) -> dict[str, Any]:
    """Everything that a host can see of an engine: cycle, pins, logs, counters, memory."""
    pins = []
    for core in range(engine.cores):
        ends = library.CoreIn(), library.CoreOut()
        engine.lib.rk_pins(engine.opened(), core, ct.byref(ends[0]), ct.byref(ends[1]))
        bursts = (ct.c_uint32 * (library.READ_IDS + library.WRITE_IDS))()
        engine.lib.rk_open_bursts(engine.opened(), core, bursts)
        pins.append([*map(bytes, ends), list(bursts)])
    memory = [
        (iova, zlib.crc32(engine.memory.read(iova, size))) for iova, size in engine.memory.ranges.items()
    ]
    return {
        "cycle": engine.cycle,
        "irq": engine.irq,
        "pins": pins,
        "tasks": [asdict(record) for record in engine.task_log()],
        "diagnostics": [str(found) for found in engine.diagnostics()],
        "faults": [str(fault) for fault in engine.faults()],
        "counters": [asdict(engine.counters(core)) for core in range(engine.cores)],
        "blocks": [asdict(engine.block_counters(core)) for core in range(engine.cores)],
        "memory": memory,
    }


def running_stream(cores: int = 1, dram: DramConfig | None = None) -> SocEngine:
    """An engine whose cores all run the same chain of ten tasks, started one after the other."""
    engine = engine_or_skip(cores, dram=dram)
    stream = Stream.load(STREAM)
    stream.load_into(engine.memory)
    engine.count_blocks()
    for core in range(cores):
        engine.annotate(core, [(0, 4, "begin"), (4, 6, "end")])
        start(engine, stream.kick, core)
        engine.run(211)
    return engine


# Engines, by themselves.


@pytest.mark.parametrize("cores", [1, 3])
def test_original_and_restored_go_on_alike(cores: int, tmp_path: Path) -> None:
    """Random register accesses and waits, compared after each of them; also saved during tasks."""
    print(f"seed {SEED}")
    rng = random.Random(SEED)
    dram = DramConfig(jitter=50, seed=SEED & 0xFFFF, peak_bytes_per_cycle=rng.choice([6, 12, 23.65]))
    path = tmp_path / "engine.snap"
    with running_stream(cores, dram) as engine:
        engine.run(rng.randrange(4000))
        info = engine.save(path)
        assert info.cycle == engine.cycle and info.size == path.stat().st_size
        with engine_or_skip(cores, dram=dram) as restored:
            restored.memory.map(0x8000_0000, 1 << 20)  # is gone afterwards
            restored.run(123)
            restored.restore(path)
            assert state_of(restored) == state_of(engine)
            both = engine, restored
            readable = [
                PC[name].offset for name in ("INTERRUPT_STATUS", "TASK_STATUS", "VERSION", "BASE_ADDRESS")
            ]
            for _ in range(60):
                core, kind = rng.randrange(cores), rng.randrange(4)
                cycles, offset = rng.choice([0, 1, 2, 7, 33, 400]), rng.choice(readable)
                said = []
                for one in both:
                    if kind == 0:
                        said.append(one.read32(core, offset))
                    elif kind == 1:
                        one.write32(core, PC["INTERRUPT_MASK"].offset, 0x1FFFF)
                    elif kind == 2:
                        one.run(cycles)
                    else:
                        said.append(one.run_until_irq(1 << core, cycles))
                assert len(set(said)) <= 1
                assert state_of(restored)["pins"] == state_of(engine)["pins"]
            for one in both:
                left = (1 << cores) - 1
                while left:
                    raised = one.run_until_irq(left, 400_000)
                    assert raised
                    left &= ~raised
            assert state_of(restored) == state_of(engine)
            assert len(engine.task_log()) == TASKS * cores


def test_cycle_by_cycle(tmp_path: Path) -> None:
    with running_stream() as engine:
        engine.save_at(tmp_path / "task.snap", "task:3")
        engine.save_at(tmp_path / "layer.snap", "layer:end")
        engine.run_until_irq(1, 400_000)
        end = state_of(engine)
    ends = [record["end"] for record in end["tasks"]]
    with engine_or_skip(1) as by_layer:
        by_layer.restore(tmp_path / "layer.snap")
        assert by_layer.cycle == by_layer.resumed_at == ends[3]
        by_layer.run_until_irq(1, 400_000)
        assert state_of(by_layer) == end
    with (
        open_engine(snapshot=tmp_path / "task.snap") as one,
        open_engine(snapshot=tmp_path / "task.snap") as other,
    ):
        assert one.cycle == ends[2] and one.cores == 1
        other.may_sleep(False)
        for _ in range(400):
            one.run(1), other.run(1)
            first, second = state_of(one), state_of(other)
            assert first["pins"] == second["pins"] and first["memory"] == second["memory"]
        one.run_until_irq(1, 400_000)
        assert state_of(one) == end


def test_a_job_of_the_driver(tmp_path: Path) -> None:
    """Three cores with separate jobs and jitter, saved during all of them; threads do not matter."""
    engine_or_skip().close()
    cases = [draw_at("chains", 5, index=core, area=core) for core in range(3)]
    dram = DramConfig(peak_bytes_per_cycle=12, jitter=40, seed=3)

    def run(threads: int) -> tuple[Any, dict[str, Any], int]:
        with open_engine(dram=dram, threads=threads) as engine:
            engine.count_blocks()
            driver = driver_for(engine, cases)
            records, ranges = [], {}
            for core, case in enumerate(cases):
                ranges[core] = (len(records), case.tasks)
                records += records_of(case)
            result = driver.submit(Job(records, core_mask=7, ranges=ranges, max_cycles=1_000_000))
            return asdict(result), state_of(engine), engine.resumed_at

    whole = run(1)
    path = tmp_path / "job.snap"
    with pytest.raises(SnapshotTaken, match="saved task:1@1 in"):
        with planned(saves=[SaveOrder(path, Border.parse("task:1@1"))]):
            run(3)
    with resuming(path):
        result, state, resumed_at = run(1)
    assert (result, state) == whole[:2] and 0 < resumed_at < whole[1]["cycle"]
    over = False
    with saving(path, "job:2", stop=True) as order:
        run(2)
        over = True
    assert order.taken is not None and not over
    with resuming(path):
        assert run(3)[:2] == whole[:2]


def test_a_waveform_and_events_from_where_it_goes_on(tmp_path: Path) -> None:
    scopes = ("core0.CNA*", "core0.PC*")
    with open_engine(cores=1, traced=True) as engine:
        stream = Stream.load(STREAM)
        stream.load_into(engine.memory)
        engine.trace(TraceSpec(tmp_path / "whole.vcd", scopes=scopes))  # is no part of the snapshot
        engine.record(["task", "stall"])
        start(engine, stream.kick, 0)
        engine.save_at(tmp_path / "s.snap", "task:8")
        engine.run_until_irq(1, 400_000)
        expected = engine.events()
    with open_engine(snapshot=tmp_path / "s.snap") as engine:
        begin = engine.cycle
        engine.record(["task", "stall"])
        engine.trace(TraceSpec(tmp_path / "rest.vcd", scopes=scopes))
        with pytest.raises(SnapshotError, match=r"before trace\(\)"):
            engine.restore(tmp_path / "s.snap")
        engine.run_until_irq(1, 400_000)
        log = engine.events()
    assert log.meta["first"] == begin
    assert [t for t in log.where(kind="task")] == [t for t in expected.where(kind="task") if t.end > begin]
    late = begin + 2
    assert list(log.between(late, 1 << 40).where(kind="stall")) == [
        e for e in expected.where(kind="stall") if e.cycle >= late
    ]
    texts = [
        (tmp_path / name).read_text().partition("$enddefinitions $end")[2]
        for name in ("whole.vcd", "rest.vcd")
    ]
    whole, rest = (changes_after(text, 10 * late) for text in texts)  # in units of 100 ps
    assert rest == whole and len(rest) > 1000
    assert "#" + str(10 * begin) not in texts[1]
    with engine_or_skip(1) as plain:
        with pytest.raises(SnapshotError, match="traced, this is the verilator model"):
            plain.restore(tmp_path / "s.snap")
    with engine_or_skip(1) as plain:  # a pending order loads the library again
        plain.remember_host()
        order = plain.save_at(tmp_path / "late.snap", "task:1")
        plain.trace(TraceSpec(tmp_path / "part.vcd", scopes=("core0.PC",)))
        Stream.load(STREAM).load_into(plain.memory)
        start(plain, Stream.load(STREAM).kick, 0)
        plain.run_until_irq(1, 400_000)
        assert order.taken is not None
        assert len(json.loads(SnapshotFile.read(order.path).blocks["host"])["entries"]) > 5
    with engine_or_skip(1) as plain:
        plain.save(tmp_path / "plain.snap")
    with open_engine(snapshot=tmp_path / "plain.snap") as plain, pytest.raises(WaveformError):
        plain.trace(tmp_path / "none.vcd")


def changes_after(text: str, cycle: int) -> list[str]:
    """Lines of a waveform's changes from a cycle on; lines of the same cycle are sorted."""
    chunks = [chunk.splitlines() for chunk in text.split("\n#")[1:]]
    return [line for chunk in chunks if int(chunk[0]) >= cycle for line in [chunk[0], *sorted(chunk[1:])]]


# Files.


@pytest.fixture(scope="module")
def file(tmp_path_factory: Any) -> Path:
    path = tmp_path_factory.mktemp("file") / "s.snap"
    with running_stream() as engine:
        engine.run(1000)
        engine.save(path)
    return path


def changed_header(
    path: Path, to: Path, change: Callable[[dict[str, Any]], None], version: int = VERSION
) -> Path:
    """Return a snapshot with a changed header and the right checksum."""
    data = path.read_bytes()
    head = struct.Struct("<8sIII")
    _, _, length, _ = head.unpack(data[: head.size])
    header = json.loads(data[head.size : head.size + length])
    change(header)
    text = json.dumps(header).encode()
    packed = head.pack(MAGIC, version, len(text), zlib.crc32(text))
    to.write_bytes(packed + text + data[head.size + length :])
    return to


@contextmanager
def refused(path: Path, match: str) -> Iterator[None]:
    with engine_or_skip(1) as engine:
        before = state_of(engine)
        with pytest.raises(SnapshotError, match=match) as caught:
            engine.restore(path)
        assert "\n" not in str(caught.value)
        yield
        assert state_of(engine) == before, "a refused snapshot does not change the engine"


@pytest.mark.parametrize(
    ("name", "value", "match"),
    [
        ("engine", "cxxrtl", "saved by the engine cxxrtl, this is the engine verilator"),
        ("cell", "rtl", "array cell 'rtl'"),
        ("cores", 2, "saved by 2 cores, this is 1 cores"),
        ("geometry", "small", "geometry small"),
        ("build", "0123456789abcdef", "another build of the engine .0123456789abcdef, this is "),
        ("dram", {**asdict(DramConfig()), "jitter": 9}, "memory timing jitter 9, this is 0"),
    ],
)
def test_of_another_engine(name: str, value: Any, match: str, file: Path, tmp_path: Path) -> None:
    def change(header: dict[str, Any]) -> None:
        header[name] = value
        header["host"]["reset_at"] = [0] * header["cores"]  # has one for each core

    other = changed_header(file, tmp_path / "other.snap", change)
    with refused(other, match):
        pass


def test_of_another_version(file: Path, tmp_path: Path) -> None:
    other = changed_header(file, tmp_path / "other.snap", lambda header: None, VERSION + 1)
    with refused(other, f"snapshot of format {VERSION + 1}, this version of rkcosim reads {VERSION}"):
        pass


def test_no_snapshot_at_all(tmp_path: Path) -> None:
    with refused(ROOT / "README.md", "not a snapshot of rkcosim"):
        pass
    with refused(tmp_path / "nothing", "No such file"):
        pass


def test_damage_is_found_wherever_it_is(file: Path, tmp_path: Path) -> None:
    print(f"seed {SEED}")
    rng = random.Random(SEED)
    data = file.read_bytes()
    hurt = tmp_path / "hurt.snap"
    for _ in range(200):
        copy = bytearray(data)
        if rng.randrange(3):
            copy[rng.choice([rng.randrange(3000), rng.randrange(len(copy))])] ^= 1 << rng.randrange(8)
        elif rng.randrange(4):
            del copy[rng.randrange(len(copy)) :]
        else:
            copy += bytes(rng.randrange(1, 9))
        hurt.write_bytes(copy)
        with pytest.raises(SnapshotError):
            SnapshotFile.read(hurt)
    with refused(hurt, "damaged|not a snapshot|of format"):
        pass
    hurt.write_bytes(data)
    SnapshotFile.read(hurt)


def place_of_model(state: bytes) -> int:
    """Return where the model of a one-core engine begins: its bytes and those of the cells end the state.

    The search begins at the end: ahead of the model are bytes that differ from run to run, among which a
    number may look like the model's length.
    """

    def length(at: int) -> int:
        return int.from_bytes(state[at : at + 8], "little")

    for at in reversed(range(len(state) - 16)):
        cell = at + 8 + length(at)
        if at + 1000 < cell < len(state) - 8 and cell + 8 + length(cell) == len(state):
            return at + 8
    raise AssertionError("no model in the state")


def model_mutants(state: bytes) -> Iterator[tuple[str, bytes]]:
    """Return states that no engine wrote."""
    head = place_of_model(state)
    # after its first byte comes the number by which Verilator tells models apart
    yield "another model's", state[: head + 1] + bytes([state[head + 1] ^ 1]) + state[head + 2 :]
    yield "cut", state[: len(state) // 2]
    yield "longer", state + bytes(8)
    yield "nothing", b""
    rng = random.Random(SEED)
    for n in range(20):  # all data of the harness outside of the model, and the first members of the model
        copy = bytearray(state)
        at = rng.randrange(head + 200)
        copy[at : at + 16] = rng.randbytes(16)
        yield f"random {n}", bytes(copy)


def test_states_with_right_checksums(file: Path, tmp_path: Path) -> None:
    """Runs in a separate process: no state may end it; states with another structure are refused"""
    print(f"seed {SEED}")
    sound = SnapshotFile.read(file)
    paths = {}
    for name, state in model_mutants(sound.blocks["state"]):
        paths[name] = tmp_path / f"{name}.snap"
        SnapshotFile(sound.header, {**sound.blocks, "state": state}).write(paths[name])
    script = """
import sys
from rkcosim import open_engine
from rkcosim.engines.protocol import SnapshotError
for path in sys.argv[1:]:
    try:
        open_engine(snapshot=path).close()
        print("restored", flush=True)
    except SnapshotError as error:
        print(error, flush=True)
"""
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, paths.values())],
        stdout=subprocess.PIPE,
        text=True,
        timeout=600,
        check=True,
        cwd=ROOT,
    )
    said = dict(zip(paths, done.stdout.splitlines(), strict=True))
    for name, path in paths.items():
        if not name.startswith("random"):
            assert said[name] == f"{path}: the state does not fit this engine"
        assert said[name] in ("restored", f"{path}: the state does not fit this engine")


def test_what_cannot_be_saved(tmp_path: Path) -> None:
    from rkcosim.engines.build import Variant, build
    from rkcosim.engines.system import Source

    shared = build(None, Variant("external"))
    step = library.STEP(lambda core, pins_in, pins_out: 0)
    with SocEngine("amaranth", "rtl", Source(lambda traced: shared, step), cores=1) as engine:
        for attempt in (engine.save, lambda path: engine.save_at(path, "job"), engine.restore):
            with pytest.raises(SnapshotError, match="amaranth cannot be saved; a snapshot needs one of"):
                attempt(tmp_path / "s.snap")
    with engine_or_skip(1) as engine:
        with pytest.raises(SnapshotError, match="cannot be written"):
            engine.save("/proc/nothing/s.snap")
        with pytest.raises(ValueError, match="not a border between tasks"):
            engine.save_at(tmp_path / "s.snap", "task:x")
        engine.run(1)
        with pytest.raises(SnapshotError, match="from the first one on"):
            engine.remember_host()
    assert not list(tmp_path.iterdir())
