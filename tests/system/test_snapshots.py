"""Snapshots: a run saved at a border between tasks goes on in another process as if it had never stopped."""

from __future__ import annotations

import ctypes as ct
import json
import os
import random
import secrets
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from cosim import open_engine
from cosim.cli.main import app
from cosim.crosscheck.kick import start
from cosim.engines import DramConfig, SocEngine, library, resuming, saving
from cosim.engines.errors import SnapshotError, WaveformError
from cosim.engines.snapshots.file import MAGIC, VERSION, SnapshotFile
from cosim.engines.snapshots.orders import Border, SaveOrder, SnapshotTaken
from cosim.engines.snapshots.plan import planned
from cosim.models.run import run_model
from cosim.streams.stream import Stream
from rtl.regs import registers
from sw.driver import Job
from tests.models.jobs import draw_at, driver_for, engine_or_skip, records_of
from waves.spec import TraceSpec

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "examples/digits/digits_int8.onnx"
INPUTS = ROOT / "examples/digits/held_back.npz"
STREAM = ROOT / "examples/streams/digits.json"
TASKS = 10
"""Tasks of one inference of the digits."""

SEED = int(os.environ.get("RKCOSIM_SEED") or secrets.randbits(24))
PC = registers()["PC"]


def state_of(engine: SocEngine) -> dict[str, Any]:
    """All that a host can see of an engine: cycle, pins, logs, counters, memory."""
    pins = []
    for core in range(engine.cores):
        ends = library.CoreIn(), library.CoreOut()
        engine._lib.rk_pins(engine._opened(), core, ct.byref(ends[0]), ct.byref(ends[1]))
        bursts = (ct.c_uint32 * (library.READ_IDS + library.WRITE_IDS))()
        engine._lib.rk_open_bursts(engine._opened(), core, bursts)
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


# A run of a model, saved and gone on with in another process.


def everything(result: Any, engine: SocEngine) -> dict[str, Any]:
    """What a run of a model gave, but for the host's times."""
    data = result.as_json()
    for name in ("host_seconds", "simulated_seconds", "cycles_per_second", "resumed_at"):
        del data[name]
    data["results"] = [[array.tolist() for array in arrays] for arrays in result.results]
    return json.loads(json.dumps(data)) | {"engine": json.loads(json.dumps(data["engine"]))}


def run_digits(cores: int, **plan: Any) -> tuple[dict[str, Any], Any]:
    """Two checked inferences, and the engine's logs as they were at the end."""
    with np.load(INPUTS) as file:
        images = file["images"][:2].astype(np.float32)
    logs: dict[str, Any] = {}
    with planned(**plan) as found:

        def each(number: int, outputs: Any, good: bool | None) -> None:
            engine = found.engine
            assert isinstance(engine, SocEngine)
            logs["tasks"] = [asdict(record) for record in engine.task_log()]
            logs["counters"] = [asdict(engine.counters(core)) for core in range(cores)]
            logs["cycle"] = engine.cycle

        result = run_model(
            DIGITS, [[image[None, None]] for image in images], check=True, cores=cores, each=each
        )
    return json.loads(json.dumps({**everything(result, found.engine), "logs": logs})), found


RESUME = """
import json, sys
from pathlib import Path
from tests.system.test_snapshots import run_digits
for path in sys.argv[2:]:
    data, plan = run_digits(int(sys.argv[1]), resume=Path(path))
    print(json.dumps([plan.engine.resumed_at, data]))
"""


@pytest.fixture(scope="module", params=[1, 3], ids=["one core", "three cores"])
def saved_run(request: Any, tmp_path_factory: Any) -> Iterator[tuple[int, dict[str, Any], list[SaveOrder]]]:
    """A run that was never stopped, and snapshots of the same run at every border of its second inference."""
    cores = request.param
    engine_or_skip(1).close()
    folder = tmp_path_factory.mktemp("snapshots")
    whole, _ = run_digits(cores)
    jobs = sorted({record["job"] for record in whole["logs"]["tasks"]})
    borders = [f"task:{n}@{job}" for job in jobs[len(jobs) // 2 :] for n in range(TASKS)]
    borders += [f"job:{jobs[0]}", "layer:pw1", "layer:stem"]
    orders = [SaveOrder(folder / f"{n}.snap", Border.parse(at), stop=False) for n, at in enumerate(borders)]
    again, _ = run_digits(cores, saves=orders)
    assert again == whole, "saving changes something"
    yield cores, whole, orders


def test_every_border_was_saved(saved_run: Any) -> None:
    cores, whole, orders = saved_run
    taken = [order for order in orders if order.taken is not None]
    of_second = [r for r in whole["logs"]["tasks"] if r["job"] >= cores_jobs(whole) // 2]
    ends = {r["end"] for r in of_second}
    if cores == 1:
        assert len(taken) == len(orders)
        cycles = {order.taken.cycle for order in taken if order.at.text.startswith("task:")}
        assert ends <= cycles | {max(ends)}, "each end of a task is a border"
    assert len(taken) >= TASKS // 2
    assert not list(orders[0].path.parent.glob("*.part"))


def cores_jobs(whole: dict[str, Any]) -> int:
    """Number of kicks of a run."""
    return len({record["job"] for record in whole["logs"]["tasks"]})


def test_resumed_in_another_process(saved_run: Any) -> None:
    """Cycles, bytes, task log, counters, layers and verdict are those of the run that was never stopped."""
    cores, whole, orders = saved_run
    taken = [order for order in orders if order.taken is not None]
    chosen = [taken[0], *random.Random(SEED).sample(taken[1:-2], 2), *taken[-2:]]
    print(f"RKCOSIM_SEED={SEED}: {', '.join(order.at.text for order in chosen)}")
    command = [sys.executable, "-c", RESUME, str(cores), *(str(order.path) for order in chosen)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr
    for order, line in zip(chosen, result.stdout.splitlines(), strict=True):
        resumed_at, data = json.loads(line)
        assert resumed_at == order.taken.cycle
        assert data["verdict"]["match"] is True
        assert data == whole, order.at.text


def test_saved_again_after_going_on(saved_run: Any, tmp_path: Path) -> None:
    cores, whole, orders = saved_run
    first = next(order for order in orders if order.taken is not None)
    later = SaveOrder(tmp_path / "later.snap", Border.parse("job:1"), stop=True)
    with pytest.raises(SnapshotTaken) as caught:
        run_digits(cores, resume=first.path, saves=[later])
    assert caught.value.order is later and later.taken and later.taken.cycle > first.taken.cycle
    assert run_digits(cores, resume=later.path)[0] == whole


def test_another_program_is_noticed(saved_run: Any) -> None:
    """Other inputs, cores or registers: the run does not go on, and says what differs."""
    cores, _, orders = saved_run
    path = next(order for order in orders if order.taken is not None).path
    image = np.zeros((1, 1, 16, 16), np.float32)
    with (
        pytest.raises(Exception, match=r"memory differs .* at 0x[0-9A-F]{8}") as caught,
        planned(resume=path),
    ):
        run_model(DIGITS, [[image], [image]], check=True, cores=cores)
    assert isinstance(getattr(caught.value, "cause", caught.value), SnapshotError)
    with pytest.raises(SnapshotError, match=rf"saved by {cores} cores, this is {cores % 3 + 1} cores"):
        run_digits(cores % 3 + 1, resume=path)
    with pytest.raises(SnapshotError, match=r"access 0 is a read \(core 0"), planned(resume=path):
        with engine_or_skip(cores) as engine:
            engine.read32(0, 0)
    with pytest.raises(SnapshotError, match="the run has ended before cycle"), planned(resume=path):
        engine_or_skip(cores).close()


# Engines, by themselves.


@pytest.mark.parametrize("cores", [1, 3])
def test_original_and_restored_go_on_alike(cores: int, tmp_path: Path) -> None:
    """Random register traffic and waits, compared after each of them; saved in the middle of tasks too."""
    print(f"RKCOSIM_SEED={SEED}")
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
    """Three cores with jobs of their own under jitter, saved in the middle of all; threads do not matter."""
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
    with engine_or_skip(1) as plain:  # the library is loaded again while there is an order
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
    """Lines of a waveform's changes from a cycle on, those of a cycle in order."""
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
    """A snapshot whose header says something else, with the right checksum."""
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
        assert state_of(engine) == before, "a refused snapshot leaves the engine alone"


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
    other = changed_header(file, tmp_path / "other.snap", lambda header: header.update({name: value}))
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
    print(f"RKCOSIM_SEED={SEED}")
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


def test_what_cannot_be_saved(tmp_path: Path) -> None:
    from cosim.engines.build import Variant, build
    from cosim.engines.soc import Source

    shared = build(None, Variant("external"))
    step = library.STEP(lambda core, pins_in, pins_out: 0)
    with SocEngine("amaranth", "rtl", Source(lambda traced: shared, step), cores=1) as engine:
        for attempt in (engine.save, lambda path: engine.save_at(path, "job"), engine.restore):
            with pytest.raises(SnapshotError, match="amaranth cannot be saved; the engine verilator can"):
                attempt(tmp_path / "s.snap")
    with engine_or_skip(1) as engine:
        with pytest.raises(SnapshotError, match="cannot be written"):
            engine.save("/proc/nothing/s.snap")
        with pytest.raises(ValueError, match="no border between tasks"):
            engine.save_at(tmp_path / "s.snap", "task:x")
        engine.run(1)
        with pytest.raises(SnapshotError, match="from its first access on"):
            engine.remember_host()
    assert not list(tmp_path.iterdir())


# Commands.


def rkcosim(*words: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else result.stderr


def test_run_and_resume(tmp_path: Path) -> None:
    engine_or_skip(1).close()
    whole, rest, place = tmp_path / "whole.json", tmp_path / "rest.json", tmp_path / "s.snap"
    words = [DIGITS, "-i", INPUTS, "--limit", 2, "--check"]
    rkcosim("run", *words, "--json", whole)
    said = rkcosim("run", *words, "--save", place, "--at", "layer:dw2", "--json", rest)
    assert f"--resume {place}" in said and "MATCH" not in said
    kept = json.loads(rest.read_text())["snapshot"]
    assert kept["path"] == str(place) and kept["at"] == "layer:dw2" and kept["bytes"] == place.stat().st_size
    said = rkcosim("run", DIGITS, "--resume", place, "--json", rest)  # inputs and --check are in the snapshot
    assert "MATCH" in said
    one, other = json.loads(whole.read_text()), json.loads(rest.read_text())
    assert other.pop("resumed_at") == kept["cycle"] and one.pop("resumed_at") == 0
    for name in ("host_seconds", "simulated_seconds", "cycles_per_second"):
        del one[name], other[name]
    assert one == other
    other_inputs = tmp_path / "other.npz"
    np.savez(other_inputs, images=np.zeros((2, 1, 16, 16), np.float32))
    copy = tmp_path / "model.onnx"
    copy.write_bytes(DIGITS.read_bytes() + b"\0")
    for wrong, hint in (
        ([DIGITS, "--resume", place, "--cores", 2], "saved with --cores 1, not 2"),
        ([DIGITS, "--resume", place, "--engine", "golden"], "saved with --engine verilator, not golden"),
        ([DIGITS, "--resume", place, "-i", other_inputs], "saved with other inputs"),
        ([DIGITS, "--resume", place, "--trace", tmp_path / "t.vcd"], "--traceable"),
        ([copy, "--resume", place], "with other contents than"),
        ([DIGITS, "--resume", INPUTS], "not a snapshot"),
        ([DIGITS, "--save", tmp_path / "x.snap"], "--save needs --at"),
        ([DIGITS, "--at", "job"], "--at needs --save"),
        ([DIGITS, "--save", tmp_path / "x.snap", "--at", "noon"], "no border between tasks"),
        (
            [DIGITS, "--save", tmp_path / "x.snap", "--at", "layer:nothing"],
            "the run never came to layer:nothing",
        ),
        ([DIGITS, "--save", tmp_path / "x.snap", "--at", "job", "--engine", "golden"], "nothing to save"),
    ):
        errors = rkcosim("run", *wrong, code=2)
        assert hint in errors and len(errors.strip().splitlines()) == 1, errors
    assert not list(tmp_path.glob("x.snap*"))


def test_regcmd_run_and_resume(tmp_path: Path) -> None:
    engine_or_skip(1).close()
    place = tmp_path / "s.snap"
    whole = rkcosim("regcmd", "run", STREAM, "--check")
    said = rkcosim("regcmd", "run", STREAM, "--check", "--save", place, "--at", "task:6", "--keep-going")
    assert said.splitlines()[-1].startswith("saved at task:6") and whole.strip() in said
    assert rkcosim("regcmd", "run", STREAM, "--resume", place) == whole
    assert "not of run" in rkcosim("run", DIGITS, "--resume", place, code=2)
