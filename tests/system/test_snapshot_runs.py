"""Snapshots: a run saved between two tasks continues in another process as if it had not been interrupted."""

from __future__ import annotations

import io
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from rkcosim.cli.main import app
from rkcosim.engines import SocEngine
from rkcosim.engines.protocol import SnapshotError
from rkcosim.engines.snapshots.file import SnapshotFile
from rkcosim.engines.snapshots.orders import Border, SaveOrder, SnapshotTaken
from rkcosim.engines.snapshots.plan import planned
from rkcosim.measure.models.run import run_model
from tests import seeds
from tests.makers.jobs import engine_or_skip

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "examples/digits/digits_int8.onnx"
INPUTS = ROOT / "examples/digits/held_back.npz"
STREAM = ROOT / "examples/streams/digits.json"
TASKS = 10
"""Tasks of one inference of the digits."""

SEED = seeds.seed(__name__, 24)


def everything(result: Any) -> dict[str, Any]:
    """All results of a run of a model except the host's times."""
    data = result.as_json()
    for name in ("host_seconds", "simulated_seconds", "cycles_per_second", "resumed_at"):
        del data[name]
    data["results"] = [[array.tolist() for array in arrays] for arrays in result.results]
    return json.loads(json.dumps(data)) | {"engine": json.loads(json.dumps(data["engine"]))}


def run_digits(cores: int, **plan: Any) -> tuple[dict[str, Any], Any]:
    """Two checked inferences, and the engine's logs at the end."""
    with np.load(INPUTS) as file:
        images = file["images"][:2].astype(np.float32)
    logs: dict[str, Any] = {}
    with planned(**plan) as found:

        def each(number: int, outputs: Any, good: bool | None) -> None:
            engine = found.snapshots and found.snapshots.engine
            assert isinstance(engine, SocEngine)
            logs["tasks"] = [asdict(record) for record in engine.task_log()]
            logs["counters"] = [asdict(engine.counters(core)) for core in range(cores)]
            logs["cycle"] = engine.cycle

        result = run_model(
            DIGITS, [[image[None, None]] for image in images], check=True, cores=cores, each=each
        )
    return json.loads(json.dumps({**everything(result), "logs": logs})), found


RESUME = """
import json, sys
from pathlib import Path
from tests.system.test_snapshot_runs import run_digits
for path in sys.argv[2:]:
    data, plan = run_digits(int(sys.argv[1]), resume=Path(path))
    print(json.dumps([plan.snapshots.engine.resumed_at, data]))
"""


@pytest.fixture(scope="module", params=[1, 3], ids=["one core", "three cores"])
def saved_run(request: Any, tmp_path_factory: Any) -> Iterator[tuple[int, dict[str, Any], list[SaveOrder]]]:
    """An uninterrupted run, and snapshots of the same run at every task boundary of its second inference."""
    cores = request.param
    engine_or_skip(1).close()
    folder = tmp_path_factory.mktemp("snapshots")
    whole, _ = run_digits(cores)
    jobs = sorted({record["job"] for record in whole["logs"]["tasks"]})
    borders = [f"task:{n}@{job}" for job in jobs[len(jobs) // 2 :] for n in range(TASKS)]
    borders += [f"job:{jobs[0]}", "layer:pw1", "layer:stem"]
    orders = [SaveOrder(folder / f"{n}.snap", Border.parse(at), stop=False) for n, at in enumerate(borders)]
    again, _ = run_digits(cores, saves=orders)
    assert again == whole, "saving changes the run"
    yield cores, whole, orders


def test_every_border_was_saved(saved_run: Any) -> None:
    cores, whole, orders = saved_run
    taken = [order for order in orders if order.taken is not None]
    of_second = [r for r in whole["logs"]["tasks"] if r["job"] >= cores_jobs(whole) // 2]
    ends = {r["end"] for r in of_second}
    if cores == 1:
        assert len(taken) == len(orders)
        cycles = {order.taken.cycle for order in taken if order.at.text.startswith("task:")}
        assert ends <= cycles | {max(ends)}, "each end of a task is a boundary"
    assert len(taken) >= TASKS // 2
    assert not list(orders[0].path.parent.glob("*.part"))


def cores_jobs(whole: dict[str, Any]) -> int:
    """Number of kicks of a run."""
    return len({record["job"] for record in whole["logs"]["tasks"]})


def test_resumed_in_another_process(saved_run: Any) -> None:
    """Cycles, bytes, task log, counters, layers and verdict are those of the uninterrupted run."""
    cores, whole, orders = saved_run
    taken = [order for order in orders if order.taken is not None]
    chosen = [taken[0], *random.Random(SEED).sample(taken[1:-2], 2), *taken[-2:]]
    print(f"seed {SEED}: {', '.join(order.at.text for order in chosen)}")
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
    """With other inputs, cores or registers the run does not continue, and reports the difference."""
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
    with pytest.raises(SnapshotError, match="the run ended before cycle"), planned(resume=path):
        engine_or_skip(cores).close()


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
        ([DIGITS, "--save", tmp_path / "x.snap", "--at", "noon"], "not a border between tasks"),
        (
            [DIGITS, "--save", tmp_path / "x.snap", "--at", "layer:nothing"],
            "no layer has this name",
        ),
        (
            [DIGITS, "--save", tmp_path / "x.snap", "--at", "job", "--engine", "golden"],
            "snapshot needs one of: verilator",
        ),
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


def test_the_end_of_a_job_of_one_task(tmp_path: Path) -> None:
    """The interrupt is set some cycles before the end of its task is detected."""
    engine_or_skip(1).close()
    place, stream = tmp_path / "s.snap", STREAM.with_name("pool.json")
    whole = rkcosim("regcmd", "run", stream, "--check")
    assert rkcosim("regcmd", "run", stream, "--check", "--save", place, "--at", "job").startswith("saved at")
    assert rkcosim("regcmd", "run", stream, "--resume", place) == whole


def test_snapshots_with_right_checksums_and_wrong_contents(tmp_path: Path) -> None:
    """Each ends with exit code 2 and one line that names the file."""
    engine_or_skip(1).close()
    place, bad = tmp_path / "s.snap", tmp_path / "bad.snap"
    rkcosim("run", DIGITS, "-i", INPUTS, "--limit", 1, "--save", place, "--at", "job")
    sound = SnapshotFile.read(place)

    def npz(**arrays: Any) -> bytes:
        stream = io.BytesIO()
        np.savez(stream, **arrays)
        return stream.getvalue()

    image = np.zeros((1, 1, 16, 16), np.float32)
    changes: dict[str, Any] = {
        "no options": ("run", {**sound.header["run"], "options": {}}),
        "options": (
            "run",
            {**sound.header["run"], "options": {**sound.header["run"]["options"], "seed": "x"}},
        ),
        "engine": ("engine", "icarus"),
        "cores": ("cores", 1 << 40),
        "memory timing": ("dram", {**sound.header["dram"], "read_latency": "fast"}),
        "inputs": ("inputs", b"PK"),
        "inputs of a shape": ("inputs", npz(**{"0.0": image[:, :, :3]})),
        "inputs of texts": ("inputs", npz(**{"0.0": np.array(["x"])})),
        "names of inputs": ("inputs", npz(**{"0.0": image, "x.y": image})),
        "labels": ("inputs", npz(**{"0.0": image, "labels": np.zeros(3, np.int64)})),
        "other inputs": ("inputs", npz(**{"0.0": image})),
        "host": ("host", sound.blocks["host"].replace(b'["w"', b'["r"')),
        "values": ("host", sound.blocks["host"].replace(b'"begin":', b'"begin":1')),
        "state": ("state", sound.blocks["state"][:-8]),
    }
    for name, (part, value) in changes.items():
        header, blocks = dict(sound.header), dict(sound.blocks)
        (blocks if part in blocks else header)[part] = value
        SnapshotFile(header, blocks).write(bad)
        errors = rkcosim("run", DIGITS, "--resume", bad, code=2)
        assert len(errors.strip().splitlines()) == 1 and "internal" not in errors, (name, errors)
