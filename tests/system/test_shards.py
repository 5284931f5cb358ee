"""Shards and sweeps on clusters of processes: the same bytes and cycles, lost workers, wrong bytes."""

from __future__ import annotations

import csv
import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from click.testing import CliRunner

pytest.importorskip("distributed", reason="needs the extra shards")

import dask

pytest.importorskip("onnxruntime", reason="needs the extra onnx")

from rkcosim.base import version
from rkcosim.cli.main import app
from rkcosim.driver import Driver
from rkcosim.engines.library import MAX_LOOKAHEAD, DramConfig
from rkcosim.measure.models.run import ModelRun, run_model
from rkcosim.measure.shards import open_cluster, run_sharded
from rkcosim.measure.shards import session as sessions
from rkcosim.measure.shards.cluster import Cluster, ClusterError
from rkcosim.measure.shards.images import PAGE, Image
from rkcosim.measure.shards.run import Counted, Order, Outcome, Piece, Told, _Runner, run_shard
from rkcosim.measure.shards.sweep import Point, Settings, SweepRow, run_point
from rkcosim.regcmd.job import Job, JobResult
from rkcosim.verify.crosscheck.model_check import GoldenDriver
from tests.programs import needs_program
from tests.system.qdq_models import Net, make

pytestmark = needs_program("g++")

SECONDS = 60
"""Limit of every wait for another process."""

TIMES = {"host_seconds", "simulated_seconds", "cycles_per_second", "shards"}
"""Differences between a sequential run and one in shards."""


def chain(net: Net) -> str:
    """Convolutions in one chain: a job whose tasks leave weights for the next task."""
    x = net.add("Relu", net.conv("x", 3, 32, 3, strides=[2, 2], pads=[1] * 4))
    for _ in range(2):
        x = net.add("Relu", net.conv(x, 32, 32, 3, groups=32, pads=[1] * 4))
        x = net.add("Relu", net.conv(x, 32, 32, 1))
    return net.conv(x, 32, 48, 3, pads=[1] * 4)


def hosted(net: Net) -> str:
    """A step on the host (Softmax) between jobs; one job is large enough for two cores."""
    x = net.add("Relu", net.conv("x", 3, 32, 3, pads=[1] * 4))
    x = net.conv(x, 32, 32, 3, pads=[1] * 4)
    x = net.add("Softmax", x, axis=1)
    return net.conv(x, 32, 32, 3, pads=[1] * 4)


def _model(folder: Path, name: str, build: Any, size: int) -> tuple[Path, np.ndarray]:
    data, image = make((1, 3, size, size), build)
    path = folder / f"{name}.onnx"
    path.write_bytes(data)
    return path, image


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """The default cluster: processes of this machine."""
    with open_cluster(workers=2) as opened:
        yield opened


@pytest.fixture
def address(cluster: Cluster) -> Iterator[str]:
    """Address of the default cluster's scheduler, for which Dask's settings have the keys."""
    own = cluster.client.security
    keys = {"ca-file": own.tls_ca_file, "client.key": own.tls_client_key, "client.cert": own.tls_client_cert}
    with dask.config.set({f"distributed.comm.tls.{name}": value for name, value in keys.items()}):
        yield cluster.client.scheduler.address


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, np.ndarray]:
    return _model(tmp_path_factory.mktemp("chain"), "chain", chain, 64)


@pytest.fixture(scope="module")
def sequential(model: tuple[Path, np.ndarray]) -> ModelRun:
    return run_model(model[0], [[model[1]], [model[1] / 2]], check=True)


def same(ours: ModelRun, theirs: ModelRun) -> None:
    """Check that all results of a run are the same: bytes, cycles of every task, counters, verdict."""
    assert ours.cycles == theirs.cycles
    a, b = ours.as_json(), theirs.as_json()
    assert a.keys() == b.keys()
    for name in a.keys() - TIMES:
        if name == "layers":
            a[name], b[name] = ([{**row, "host_seconds": 0} for row in rows] for rows in (a[name], b[name]))
        assert a[name] == b[name], name
    for first, second in zip(ours.results, theirs.results, strict=True):
        assert all(np.array_equal(x, y) for x, y in zip(first, second, strict=True))


def rkcosim(*words: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, [str(word) for word in words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.parametrize("shards", [2, 3, 100])
def test_same_as_sequential(
    cluster: Cluster, model: tuple[Path, np.ndarray], sequential: ModelRun, shards: int
):
    """All bytes and cycles are equal, not only within 0.5 %; with 100 shards each task is a shard."""
    path, image = model
    run = run_sharded(path, [[image], [image / 2]], shards=shards, cluster=cluster)
    same(run, sequential)
    tasks = len(sequential.tasks)
    count = min(shards, tasks)
    assert [(row["inference"], row["shard"]) for row in run.shards] == [
        (n, m) for n in range(2) for m in range(count)
    ]
    assert sum(row["cycles"] for row in run.shards) == run.cycles
    assert all(row["match"] and not row["retries"] and row["simulated_cycles"] for row in run.shards)
    assert {row["worker"] for row in run.shards} <= set(cluster.client.nthreads())
    covered = [n for row in run.shards[:count] for n in range(row["first_task"], row["last_task"] + 1)]
    assert covered == list(range(tasks))


@pytest.mark.parametrize(
    ("dram", "shards"),
    [
        (DramConfig(peak_bytes_per_cycle=11.75), 3),
        (DramConfig(peak_bytes_per_cycle=64, port_bytes_per_cycle=64, read_latency=8, write_latency=4), 100),
    ],
)
def test_other_memories(cluster: Cluster, model: tuple[Path, np.ndarray], dram: DramConfig, shards: int):
    """Slower memory, and memory so fast that a task ends earlier than with the default memory."""
    path, image = model
    wanted = run_model(path, [[image]], check=True, dram=dram)
    run = run_sharded(path, [[image]], shards=shards, cluster=cluster, dram=dram)
    same(run, wanted)
    assert run.dram == dataclasses.asdict(dram) and all(row["match"] for row in run.shards)


@pytest.mark.parametrize("cores", [1, 2])
def test_jobs_with_the_host_between(cluster: Cluster, tmp_path: Path, cores: int):
    path, image = _model(tmp_path, "hosted", hosted, 48)
    wanted = run_model(path, [[image]], check=True, cores=cores)
    jobs = sum(row.target == "host" for row in wanted.layers)
    assert jobs == 1 and (cores == 1 or any(len(row.cores) > 1 for row in wanted.layers))
    for shards in (2, 100):
        run = run_sharded(path, [[image]], shards=shards, cluster=cluster, cores=cores)
        if cores == 1:
            same(run, wanted)
            continue
        # The end of a job may be seen some cycles earlier or later (docs/shards.md).
        assert abs(run.cycles - wanted.cycles) <= 0.0005 * wanted.cycles
        assert run.verdict == wanted.verdict and run.outputs == wanted.outputs
        assert all(np.array_equal(x, y) for x, y in zip(run.results[0], wanted.results[0], strict=True))


def in_phase(order: Order, base: Image, starts: list[int], told: Told) -> Outcome:
    """A shard whose jobs start in the phase of the windows that they have in a sequential run."""
    run = _Runner.run

    def waiting(runner: _Runner, piece: Piece) -> Counted:
        if piece.span.begins:
            runner.engine.run((starts[piece.span.job] - runner.engine.cycle) % MAX_LOOKAHEAD)
        return run(runner, piece)

    with patch.object(_Runner, "run", waiting):
        return run_shard(order, base, told)


@pytest.mark.parametrize("shards", [2, 100])
def test_several_cores_differ_by_the_phase_alone(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shards: int
):
    """A shard does not know the cycle in which its jobs start; it restores everything else."""
    path, image = _model(tmp_path, "hosted", hosted, 48)
    starts: list[int] = []
    submit, send = Driver.submit, cluster.send

    def submitting(driver: Driver, job: Job) -> JobResult:
        result = submit(driver, job)
        if not isinstance(driver, GoldenDriver):  # which computes beside the device
            starts.append(result.start)
        return result

    def sending(_work: Any, order: Order, base: Any, **options: Any) -> Any:
        return send(in_phase, order, base, starts, **options)

    monkeypatch.setattr(Driver, "submit", submitting)
    wanted = run_model(path, [[image]], check=True, cores=3)
    assert any(len(row.cores) > 1 for row in wanted.layers)
    monkeypatch.setattr(cluster, "send", sending)
    same(run_sharded(path, [[image]], shards=shards, cluster=cluster, cores=3), wanted)


def dies_once(order: Order, base: Image, marker: str, told: Told) -> Outcome:
    """A shard whose first worker is killed while it runs."""

    def killing(said: str, done: int) -> None:
        if "shard 1 " in order.name and not Path(marker).exists():
            Path(marker).touch()
            time.sleep(0.5)  # until its start is reported
            os.kill(os.getpid(), signal.SIGKILL)
        told(said, done)

    return run_shard(order, base, killing)


def test_a_lost_worker(
    cluster: Cluster,
    model: tuple[Path, np.ndarray],
    sequential: ModelRun,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    marker = tmp_path / "died"
    send = cluster.send

    def sending(work: Any, order: Order, base: Any, **options: Any) -> Any:
        return send(dies_once, order, base, str(marker), **options)

    monkeypatch.setattr(cluster, "send", sending)
    before = set(cluster.client.nthreads())
    path, image = model
    run = run_sharded(path, [[image], [image / 2]], shards=3, cluster=cluster)
    same(run, sequential)
    assert marker.exists() and sum(row["retries"] for row in run.shards) >= 1
    assert set(cluster.client.nthreads()) != before, "the process was lost"
    cluster.client.wait_for_workers(2, timeout=SECONDS)


def test_a_planted_byte(cluster: Cluster, model: tuple[Path, np.ndarray], monkeypatch: pytest.MonkeyPatch):
    """One byte of the image that a shard is compared with is wrong: this shard fails and no other."""
    path, image = model
    planted: dict[str, int] = {}
    send = sessions.ShardSession._send

    def sending(self: Any, number: int, shard: Any, pieces: Any, base: Any) -> Any:
        if shard.number == 1:
            wrote = [item for item in self._driver.wrote if shard.first <= item.task < shard.end]
            planted["address"] = address = wrote[-1].ranges[-1][0] + 3
            planted["task"] = wrote[-1].task
            page = bytearray(pieces[-1].after[address // PAGE * PAGE])
            page[address % PAGE] ^= 1
            after = {**pieces[-1].after, address // PAGE * PAGE: bytes(page)}
            pieces = [*pieces[:-1], dataclasses.replace(pieces[-1], after=after)]
        return send(self, number, shard, pieces, base)

    monkeypatch.setattr(sessions.ShardSession, "_send", sending)
    run = run_sharded(path, [[image]], shards=3, cluster=cluster)
    assert [row["match"] for row in run.shards] == [True, False, True]
    verdict = run.verdict
    assert verdict["match"] is False and verdict["address"] == planted["address"]
    words = verdict["first_difference"]
    assert words.startswith("shard 1 (task") and f"0x{planted['address']:08X}" in words
    assert f"task {planted['task']} " in words and "1 bytes differ" in words and "conv" in words


@pytest.fixture
def own_cluster(tmp_path: Path) -> Iterator[str]:
    """A cluster that was started with Dask's commands, in a separate folder."""
    dask = Path(sys.executable).with_name("dask")
    if not dask.exists():
        pytest.skip("no command dask next to this Python")
    file = tmp_path / "scheduler.json"
    commands = [
        ["scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", file],
        ["worker", "--scheduler-file", file, "--nthreads", "1", "--no-dashboard", "--no-nanny"],
    ]
    # As an installed package would, so that the workers find the project.
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    running = []
    try:
        for words in commands:
            line = (
                [dask, *words] if words[0] == "scheduler" else [dask, *words, "--local-directory", tmp_path]
            )
            running.append(
                subprocess.Popen(
                    list(map(str, line)),
                    cwd=tmp_path,
                    env=environment,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
            )
        for _ in range(SECONDS * 10):
            if file.exists() and file.stat().st_size:
                break
            running[0].poll()
            assert running[0].returncode is None, "the scheduler has ended"
            time.sleep(0.1)
        yield json.loads(file.read_text())["address"]
    finally:
        for process in reversed(running):
            process.kill()
            process.wait(SECONDS)


def test_a_users_cluster(
    own_cluster: str, model: tuple[Path, np.ndarray], sequential: ModelRun, tmp_path: Path
):
    path, image = model
    np.save(tmp_path / "x.npy", image)
    out = tmp_path / "run.json"
    words = [
        "run",
        path,
        "--input",
        tmp_path / "x.npy",
        "--shards",
        2,
        "--scheduler",
        own_cluster,
        "--json",
        out,
    ]
    code, text, errors = rkcosim(*words)
    assert code == 0, errors
    assert "2 shards on a worker" in text and "MATCH" in text
    data = json.loads(out.read_text())
    assert data["cycles"] == sequential.inference_cycles[0] and data["verdict"]["match"] is True
    assert [row["shard"] for row in data["shards"]] == [0, 1]
    assert data["tasks"] == sequential.tasks


def test_another_version(address: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("rkcosim.measure.shards.cluster.version", lambda: "9.9 (sources 00)")
    with pytest.raises(ClusterError, match=r"worker tls\S+ has rkcosim .*sources.*, this is 9\.9 "):
        with open_cluster(address):
            pass
    monkeypatch.setattr("rkcosim.measure.shards.cluster.QUERY", "__import__('no_such_package')")
    with pytest.raises(ClusterError, match=r"worker tls\S+ cannot use rkcosim: No module named"):
        with open_cluster(address):
            pass


def test_sweep(address: str, tmp_path: Path):
    path, _ = _model(tmp_path, "one", lambda net: net.conv("x", 3, 16, 3), 64)
    table, out = tmp_path / "sweep.csv", tmp_path / "sweep.json"
    words = ["sweep", path, "--cores", "1,2", "--dram", "peak_bytes_per_cycle=8,23.65", "--clock", 500]
    words += ["--scheduler", address, "--csv", table, "--json", out]
    code, text, errors = rkcosim(*words)
    assert code == 0, errors
    points = json.loads(out.read_text())["points"]
    assert [(p["cores"], p["dram.peak_bytes_per_cycle"]) for p in points] == [
        (1, 8.0),
        (1, 23.65),
        (2, 8.0),
        (2, 23.65),
    ]
    assert all(p["match"] is True and p["geometry"] == "rk3588" for p in points)
    assert points[0]["cycles"] > points[1]["cycles"] > points[3]["cycles"]
    assert points[1]["ms"] == points[1]["cycles"] / 500_000
    assert points[1]["cycles"] == run_model(path, check=True).cycles
    with table.open() as file:
        assert [int(row["cycles"]) for row in csv.DictReader(file)] == [p["cycles"] for p in points]
    assert all(f"{p['cycles']:,}" in text for p in points)


def test_sweep_of_splits_and_bad_points(address: str, tmp_path: Path):
    path, _ = _model(tmp_path, "small", lambda net: net.conv("x", 3, 16, 3), 16)
    words = ["sweep", path, "--weight-banks", "auto,6", "--no-check", "--scheduler", address, "--json", "-"]
    code, text, errors = rkcosim(*words)
    assert code == 0, errors
    points = json.loads(text)["points"]
    assert [p["weight_banks"] for p in points] == ["auto", 6] and all(p["match"] is None for p in points)
    compiled = tmp_path / "small.rkc"
    assert rkcosim("compile", path, "-o", compiled)[0] == 0
    code, text, _ = rkcosim("sweep", compiled, "--cores", "1,2", "--scheduler", address, "--json", "-")
    assert code == 3
    points = json.loads(text)["points"]
    assert points[0]["match"] is True and points[1]["error"] == "the file was compiled for 1 cores"


def test_a_sweep_with_the_engine_of_the_timing(model: tuple[Path, np.ndarray]):
    """--fast is in the help of `sweep`; its points have the cycles of the RTL."""

    def row(engine: str | None) -> SweepRow:
        settings = Settings(version(), engine, check=engine is not None)
        return run_point(Point("model"), settings, model[0].read_bytes(), lambda said, done: None)

    fast, rtl = row("fast"), row(None)
    assert not fast.error and fast.match and (fast.engine, fast.cell) == ("fast", "timing")
    assert fast.cycles == rtl.cycles > 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--shards", "0"], "--shards must be a positive number or auto, not '0'"),
        (["--shards", "many"], "not 'many'"),
        (["--scheduler", "tcp://127.0.0.1:1"], "--scheduler needs --shards"),
        (["--workers", "2"], "--workers needs --shards"),
        (
            ["--shards", "2", "--workers", "2", "--scheduler", "tcp://127.0.0.1:1"],
            "--workers starts processes",
        ),
        (["--shards", "2", "--engine", "golden"], "the engine golden counts no cycles"),
        (["--shards", "2", "--fast"], "verilator, cxxrtl, amaranth; not the engine fast"),
        (["--shards", "2", "--trace", "a.vcd"], "it writes no waveform and no event log"),
        (["--shards", "2", "--events", "a.parquet"], "it writes no waveform and no event log"),
    ],
)
def test_bad_options_of_run(
    model: tuple[Path, np.ndarray],
    options: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.chdir(tmp_path)
    code, _, errors = rkcosim("run", model[0], *options)
    assert code == 2 and errors.startswith("rkcosim: ") and said in errors and errors.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--cores", "4"], "cores must be 1 to 3"),
        (["--cores", "one"], "--cores must be numbers"),
        (["--dram", "speed=3"], "no setting 'speed'"),
        (["--dram", "jitter=1", "--dram", "jitter=2"], "given twice"),
        (["--geometry", "cbuf_banks=8"], "no setting 'cbuf_banks', there are read_fifo_beats"),
        (["--weight-banks", "12"], "weights take 1 to 11 banks"),
        (["--engine", "golden"], "the engine golden counts no cycles"),
        (["--fast", "--geometry", "read_fifo_beats=64"], "omit --geometry"),
    ],
)
def test_bad_options_of_sweep(model: tuple[Path, np.ndarray], options: list[str], said: str):
    code, _, errors = rkcosim("sweep", model[0], *options)
    assert code == 2 and errors.startswith("rkcosim: ") and said in errors and errors.count("\n") == 1


def test_nobody_answers(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("rkcosim.measure.shards.cluster.ANSWER_SECONDS", 1)
    for address in ("tcp://127.0.0.1:9", "tls://127.0.0.1:9", "nonsense://x"):
        with pytest.raises(ClusterError, match=f"no Dask scheduler answers at {address}"):
            with open_cluster(address):
                pass
