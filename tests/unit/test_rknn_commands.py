"""Commands on `.rknn` files, on the golden model: info, compile, run, compare --plan, rknn test."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from rkcosim.base import progress
from rkcosim.cli.main import app
from rkcosim.compiler import compile_model
from rkcosim.measure.models import rknn_folder
from rkcosim.measure.perf import layer_models
from rkcosim.rknn_file.network import network_of
from rkcosim.rknn_file.opening import open_file
from rkcosim.rknn_file.writer import write_rknn
from rkcosim.verify.crosscheck import file_check
from rkcosim.verify.crosscheck.file_meaning import NotJudged

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "examples" / "digits" / "digits_int8.onnx"
INPUTS = ROOT / "examples" / "digits" / "held_back.npz"


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rknn") / "digits.rknn"
    called("compile", DIGITS, "-o", path)
    return path


def called(*words: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == code, result.output
    return result.output


def test_info(digits: Path, tmp_path: Path):
    said = tmp_path / "info.json"
    text = called("rknn", "info", digits, "--json", said)
    assert "by rkcosim" in text and "tasks: 1 core 10" in text and "CNA." not in text
    data = json.loads(said.read_text())
    assert data["ours"] and data["plans"] == {"1": [10]} and len(data["nodes"]) == 15
    assert "CNA.FEATURE_DATA_ADDR" in called("rknn", "info", digits, "--words")
    refused = called("rknn", "info", DIGITS, code=2)
    assert "is an ONNX model" in refused and "not a .rknn file" in refused


def test_run_with_checks(digits: Path, tmp_path: Path):
    said = tmp_path / "run.json"
    words = ("run", digits, "-i", INPUTS, "--limit", 2, "--engine", "golden", "--check", "--json", said)
    text = called(*words)
    assert "10 of 10 nodes within the bound" in text and "MATCH: golden = task golden" in text
    verdict = json.loads(said.read_text())["verdict"]
    assert verdict["match"] and (verdict["nodes_right"], verdict["nodes_not_judged"]) == (10, [])
    assert "label 0  truth 0" in text and "label 7  truth 7" in text
    assert "run a .rknn file without it" in called("run", digits, "--shards", 2, code=2)


def test_jobs_by_nodes(digits: Path, tmp_path: Path):
    said = tmp_path / "run.json"
    for how, jobs in (("auto", 1), ("chain", 1), ("node", 10)):
        called("run", digits, "--engine", "golden", "--jobs-by", how, "--json", said)
        assert json.loads(said.read_text())["submits"] == jobs


def test_a_folder(digits: Path, tmp_path: Path):
    said, table = tmp_path / "rows.json", tmp_path / "rows.csv"
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "digits.rknn").write_bytes(digits.read_bytes())
    (tmp_path / "files" / "cut.rknn").write_bytes(digits.read_bytes()[:999])
    words = ("rknn", "test", tmp_path / "files", "--engine", "golden", "--json", said, "--csv", table)
    text = called(*words, code=2)
    assert "cut.rknn: damaged .rknn file" in text.replace(f"{tmp_path / 'files'}/", "") and "10/10" in text
    rows = json.loads(said.read_text())["rows"]
    assert [(row["file"], row["jobs"], row["good"]) for row in rows] == [
        ("cut.rknn", "", False),
        ("digits.rknn", "node", True),
        ("digits.rknn", "chain", True),
    ]
    assert table.read_text().count("\n") == 4
    (tmp_path / "none").mkdir()
    assert "no .rknn file in" in called("rknn", "test", tmp_path / "none", code=2)


def test_progress_of_a_folder(digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Each file is named before its first run, and each run's row is in a pipe before the next run."""
    heard: list[str] = []
    written: list[str] = []
    monkeypatch.setattr(progress, "say", heard.append)

    def during(path: Path, cores: int, how: str, *_: Any) -> rknn_folder.FolderRow:
        heard.append(progress.steps[-1].what)
        written.append((tmp_path / "out").read_text())
        return rknn_folder.FolderRow(path.name, cores, how, equal=True)

    monkeypatch.setattr(rknn_folder, "_run", during)
    words = ["rknn", "test", str(digits), str(digits), "--engine", "golden", "--jobs-by", "chain"]
    with (tmp_path / "out").open("w") as out, monkeypatch.context() as patched:
        patched.setattr("sys.stdout", out)
        with pytest.raises(SystemExit) as end:
            app.main(words, "rkcosim")
    assert end.value.code == 0 and not progress.steps
    assert heard == [
        "digits.rknn: file 1 of 2, runs: 1",
        "digits.rknn, 1 core by chain (file 1 of 2, run 1 of 1)",
        "digits.rknn: file 2 of 2, runs: 1",
        "digits.rknn, 1 core by chain (file 2 of 2, run 1 of 1)",
    ]
    assert written[0] == "" and written[1].startswith("digits.rknn, 1 core by chain: ")


def test_verdicts_have_different_exit_codes(digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """0 if all are right, 1 if one is wrong, 2 if none is wrong and one is refused; each row says why."""
    said = tmp_path / "rows.json"
    words = ("rknn", "test", digits, "--engine", "golden", "--jobs-by", "chain", "--json", said)

    def row() -> dict[str, Any]:
        return json.loads(said.read_text())["rows"][0]

    text = called(*words)
    assert row()["verdict"] == "right" and row()["judged"] == 10 and not row()["reason"]
    assert "right" in text and "10/10 100%" in text
    broken = tmp_path / "broken.rknn"
    broken.write_bytes(digits.read_bytes()[:999])
    found = called("rknn", "test", broken, "--engine", "golden", "--json", said, code=2)
    assert row()["verdict"] == "refused" and row()["reason"].startswith("damaged .rknn file")
    assert "refused" in found

    def unknown(*_: object) -> object:
        raise NotJudged("its tasks move [packets]")

    real = file_check.judge
    monkeypatch.setattr(
        file_check, "judge", lambda plan, n, *rest: unknown() if n == 3 else real(plan, n, *rest)
    )
    text = " ".join(called(*words).split())
    assert row()["verdict"] == "right" and row()["judged"] == 9 and "9/10 90%" in text
    assert "its tasks move [packets]" in text
    assert row()["reason"].startswith("1 not compared: ") and "its tasks move [packets]" in row()["reason"]

    def shifted(plan: Any, index: int, cubes: Any, actual: Any) -> Any:
        return real(plan, index, cubes, actual + np.int8(5) if index == 3 else actual)

    monkeypatch.setattr(file_check, "judge", shifted)
    called(*words, code=1)
    assert row()["verdict"] == "wrong" and row()["nodes"] and row()["reason"]
    called("rknn", "test", digits, broken, "--engine", "golden", "--jobs-by", "chain", code=1)


def test_both_plans(digits: Path, tmp_path: Path):
    said = tmp_path / "plans.json"
    called("compare", digits, "--plan", "--engine", "golden", "--json", said)
    nodes = json.loads(said.read_text())["nodes"]
    assert len(nodes) == 10
    for node in nodes:
        for name in ("tasks", "tiles", "banks"):
            assert node["theirs"][name] == node["ours"][name], node
    assert "not a .rknn file, which --plan compares" in called("compare", DIGITS, "--plan", code=2)
    assert "--cores needs --plan" in called("compare", DIGITS, "--cores", 3, code=2)
    assert "--engine needs --plan" in called("compare", DIGITS, "--engine", "cxxrtl", code=2)
    assert "every layer is within its bound" in called("compare", DIGITS, "--engine", "golden")


@pytest.mark.parametrize("limits", [{}, {"min": -1.0, "max": 2.0}])
def test_a_convolution_with_limits_has_a_plan(limits: dict[str, float], tmp_path: Path):
    """The vendor's compiler calls a Conv with its Relu6 ConvClip, in every MobileNetV2."""
    path = tmp_path / "conv.rknn"
    model = layer_models.conv(24, 40, (9, 11), int8=False, kernel=3, stride=2, pad=1)
    path.write_bytes(write_rknn(compile_model(model, reuse=True)))
    plan = open_file(path).plan
    nodes = [
        replace(node, type=node.type.replace("Conv", "Conv+Clip"), attributes={**node.attributes, **limits})
        for node in plan.file.nodes
    ]
    (conv,) = network_of(replace(plan, file=replace(plan.file, nodes=nodes))).ops
    assert (conv.clamp.low, conv.clamp.high) == ((-1.0, 2.0) if limits else (0.0, 6.0))


@pytest.mark.parametrize("int8", [True, False], ids=["int8", "fp16"])
def test_the_network_of_a_file_is_the_one_it_was_made_from(int8: bool, tmp_path: Path):
    model = layer_models.conv(24, 40, (9, 11), int8=int8, kernel=3, stride=2, pad=1)
    path = tmp_path / "conv.rknn"
    path.write_bytes(write_rknn(compile_model(model, reuse=True)))
    (conv,) = network_of(open_file(path).plan).ops
    (first,) = compile_model(model).plan.steps
    assert (conv.weights == first.weights).all() and conv.window == first.window
