"""The commands for model files: run with pictures, compile, compare; bad input."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

pytest.importorskip("tflite", reason="needs the extra tflite")

from rkcosim.cli.main import app
from rkcosim.measure.perf import layer_models
from tests.makers.tflite_models import Tf


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Return a small classifier of RGB pictures."""
    t = Tf()
    x = t.input((1, 12, 14, 3), scale=1 / 64, zero=-128)
    y = t.depthwise(t.conv(x, 16, 3, 2), 3)
    y = t.add("MEAN", [y, t.ints([1, 2])], (1, 16), scale=0.02)
    y = t.add("SOFTMAX", [t.dense(y, 5, scale=0.05)], (1, 5), scale=1 / 256, zero=-128, Beta=1.0)
    path = tmp_path / "small.tflite"
    path.write_bytes(t.bytes(y))
    return path


def invoke(*words: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(word) for word in words])
    return result.exit_code, result.output


def test_run_with_a_picture(model: Path, tmp_path: Path) -> None:
    picture = tmp_path / "noise.ppm"
    pixels = np.random.default_rng(1).integers(0, 256, (20, 30, 3)).astype(np.uint8)
    picture.write_bytes(b"P6 30 20 255\n" + pixels.tobytes())
    out, table = tmp_path / "out.json", tmp_path / "out.csv"
    code, text = invoke(
        "run", model, "--input", picture, "--engine", "golden", "--check", "--json", out, "--csv", table
    )
    assert code == 0, text
    data = json.loads(out.read_text())
    assert data["verdict"]["match"] is True and data["verdict"]["overwritten"] == 0
    assert data["memory"]["activations_shared"] < data["memory"]["activations_separate"]
    assert 0 < data["host_share"] < 0.05
    with table.open() as file:
        rows = list(csv.DictReader(file))
    assert [row["op"] for row in rows] == [
        "Conv",
        "DepthwiseConv",
        "GlobalAveragePool",
        "FullyConnected",
        "Softmax",
    ]
    assert [row["bound"] for row in rows] == [""] * 4 + ["host"], "nothing is measured"


def test_compiled_model_runs_the_same(model: Path, tmp_path: Path) -> None:
    compiled, plan = tmp_path / "small.rkc", tmp_path / "plan.json"
    code, text = invoke("compile", model, "-o", compiled, "--explain", "--json", plan)
    assert code == 0 and "banks" in text and "Softmax" in text
    summary = json.loads(plan.read_text())
    assert summary["jobs"] == 1 and summary["host_layers"][0]["op"] == "Softmax"
    values = tmp_path / "x.npy"
    np.save(values, np.random.default_rng(2).uniform(0, 4, (1, 12, 14, 3)).astype(np.float32))
    results = []
    for path in (model, compiled):
        out = tmp_path / "out.json"
        code, text = invoke("run", path, "--input", values, "--engine", "golden", "--check", "--json", out)
        assert code == 0, text
        results.append(json.loads(out.read_text())["outputs"][0]["top1"])
    assert results[0] == results[1]


def test_cores(model: Path) -> None:
    code, text = invoke("run", model, "--engine", "golden", "--cores", 3, "--check")
    assert code == 0 and "bit for bit" in text


def test_cores_of_a_compiled_model(tmp_path: Path) -> None:
    """A model compiled for two cores is run on a device with two cores."""
    t = Tf()
    t.input((1, 40, 40, 64))
    source, compiled = tmp_path / "wide.tflite", tmp_path / "wide.rkc"
    source.write_bytes(t.bytes(t.conv(0, 64)))
    code, text = invoke("compile", source, "-o", compiled, "--cores", 2, "--explain")
    assert code == 0 and "core 1" in text
    out = tmp_path / "out.json"
    code, text = invoke("run", compiled, "--engine", "golden", "--check", "--json", out)
    assert code == 0, text
    assert json.loads(out.read_text())["cores"] == 2


def test_compare(model: Path, tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert", reason="needs the extra litert")
    out = tmp_path / "out.json"
    code, text = invoke("compare", model, "--reference", "litert", "--json", out)
    assert code == 0 and "within its bound" in text
    data = json.loads(out.read_text())
    assert data["match"] is True and len(data["layers"]) == 5 and data["schema_version"] == 1
    assert all(layer["within_bound"] and layer["histogram"] for layer in data["layers"])
    assert invoke("compare", model, "--reference", "onnxruntime")[0] == 2
    assert invoke("compare", model, "--reference", "nothing")[0] == 2


def test_bad_input_leaves_nothing_behind(model: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.tflite"
    broken.write_bytes(model.read_bytes()[:500])
    for words in (
        ["run", broken, "--engine", "golden"],
        ["compile", broken, "-o", tmp_path / "b.rkc"],
        ["compare", broken],
    ):
        code, text = invoke(*words)
        assert code == 2 and "Traceback" not in text
    assert not (tmp_path / "b.rkc").exists()
    picture = tmp_path / "no.bmp"
    picture.write_bytes(b"BM nothing")
    code, _ = invoke("run", model, "--input", picture, "--engine", "golden")
    assert code == 2


def test_floats_are_named_or_refused(tmp_path: Path) -> None:
    """float32 operators run in fp16, which the summary says; `--float refuse` refuses them."""
    path = tmp_path / "floats.onnx"
    path.write_bytes(layer_models.conv(8, 16, (6, 6), int8=False))
    summary = tmp_path / "summary.json"
    code, text = invoke("compile", path, "--json", summary)
    assert code == 0 and "float32 operators of this model in fp16" in text
    assert json.loads(summary.read_text())["floats_in_fp16"] is True
    code, text = invoke("run", path, "--engine", "golden", "--float", "refuse")
    assert code == 2 and "--float refuse forbids" in text
    code, text = invoke("run", path, "--engine", "golden", "--check", "--json", summary)
    assert code == 0 and "float32 operators of this model in fp16" in text
    assert json.loads(summary.read_text())["floats_in_fp16"] is True
