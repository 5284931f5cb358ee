"""`.rknn` files of our writer on the RTL: checked, traced by node, saved and resumed, both versions."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from rkcosim.cli.main import app
from rkcosim.compiler import compile_model
from rkcosim.compiler.preprocessing import Preprocessing
from rkcosim.measure.models.rknn_folder import run_folder
from rkcosim.measure.models.run import run_model
from rkcosim.measure.perf import layer_models
from rkcosim.rknn_file.writer import write_rknn
from tests.makers.rknn_files import as_version_2
from tests.programs import needs_program

pytestmark = needs_program("g++")

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "examples" / "digits" / "digits_int8.onnx"
INPUTS = ROOT / "examples" / "digits" / "held_back.npz"


def called(*words: object) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rknn") / "digits.rknn"
    path.write_bytes(write_rknn(compile_model(DIGITS.read_bytes(), reuse=False)))
    return path


def test_a_file_takes_the_cycles_of_its_plan(digits: Path):
    """The same words at the same offsets: cycles, bytes and tasks are those of the compiled model."""
    image = np.random.default_rng(0).uniform(0, 1, (1, 1, 16, 16)).astype(np.float32)
    ours, theirs = (run_model(path, [[image]], check=True) for path in (DIGITS, digits))
    assert ours.verdict["match"] and theirs.verdict["match"] and theirs.verdict["nodes_right"] == 10
    assert np.array_equal(ours.results[0][0], theirs.results[0][0])
    assert [row.tasks for row in ours.layers if row.tasks] == [
        row.tasks for row in theirs.layers if row.tasks
    ]
    for a, b in zip(ours.layers, theirs.layers, strict=False):
        assert (a.name, a.read_by, a.written_by) == (b.name, b.read_by, b.written_by)
        assert a.cycles is None or abs(a.cycles - b.cycles) <= 0.05 * a.cycles


def test_a_wave_begins_at_a_node(digits: Path, tmp_path: Path):
    pytest.importorskip("pywellen", reason="needs the extra waves")
    from rkcosim import waves

    wave = tmp_path / "wave.vcd"
    words = ("run", digits, "-i", INPUTS, "--limit", 1, "--trace", wave, "--scope", "tasks")
    called(*words, "--from", "layer:residual", "--to", "layer:residual")
    named = {task.layer for task in waves.open(wave).tasks()}
    assert "residual" in named and "pool" not in named


def test_a_saved_run_goes_on(digits: Path, tmp_path: Path):
    snap, whole, rest = tmp_path / "run.snap", tmp_path / "whole.json", tmp_path / "rest.json"
    called("run", digits, "-i", INPUTS, "--limit", 1, "--jobs-by", "node", "--json", whole)
    words = ("run", digits, "-i", INPUTS, "--limit", 1, "--jobs-by", "node")
    called(*words, "--save", snap, "--at", "layer:pw3")
    called("run", digits, "--resume", snap, "--json", rest)
    a, b = (json.loads(path.read_text()) for path in (whole, rest))
    assert a["cycles"] == b["cycles"] and a["predictions"] == b["predictions"] and a["submits"] == 10


def test_every_plan_and_version(tmp_path: Path):
    conv = layer_models.conv(16, 8, (8, 12), int8=True, kernel=3, pad=1)
    wide = layer_models.conv(64, 96, (40, 40), int8=True, kernel=3, pad=1)
    plain = write_rknn(compile_model(conv, reuse=True))
    one = compile_model(conv, reuse=True)
    files = {
        "batch": write_rknn(one, [Preprocessing((10.0,), (2.0,))], batch=4, cores=(1, 2, 3)),
        "two": as_version_2(plain),
        "packed": as_version_2(plain, compress=True),
        "cores": write_rknn(compile_model(wide, reuse=True, cores=3)),
    }
    for name, data in files.items():
        (tmp_path / f"{name}.rknn").write_bytes(data)
    rows = list(run_folder(sorted(tmp_path.glob("*.rknn"))))
    names = [*["batch"] * 3, "cores", "packed", "two"]
    assert [row.file for row in rows] == [f"{name}.rknn" for name in names for _ in range(2)]
    assert [row.cores for row in rows if row.file == "batch.rknn"] == [1, 1, 2, 2, 3, 3]
    assert all(row.good and row.cycles for row in rows), rows
    assert {row.cores for row in rows if row.file == "cores.rknn"} == {3}
