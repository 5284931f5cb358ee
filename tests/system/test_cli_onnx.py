"""The commands on ONNX models that need the host: what it computes, shapes, outputs, refusals."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper

from rkcosim.cli.exits import BAD_INPUT
from rkcosim.cli.main import app


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Return a network with an operator for the host, an open size, and an input of integers."""
    node, info = helper.make_node, helper.make_tensor_value_info
    weights = np.random.default_rng(5).normal(size=(8, 3, 3, 3)).astype(np.float32) / 5
    nodes = [
        node("Conv", ["x", "w"], ["features"], "first"),
        node("Cosh", ["features"], ["c"], "cosh"),
        node("CumSum", ["c", "axis"], ["total"], "sum"),
        node("Relu", ["total"], ["y"], "relu"),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [info("x", TensorProto.FLOAT, ["n", 3, "h", "w_"]), info("axis", TensorProto.INT32, [])],
        [info("y", TensorProto.FLOAT, ["n", 8, "a", "b"])],
        [numpy_helper.from_array(weights, "w")],
    )
    path = tmp_path / "host.onnx"
    imports = [helper.make_opsetid("", 17)]
    path.write_bytes(helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString())
    return path


def invoke(*words: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(word) for word in words])
    return result.exit_code, result.output


def test_run_names_the_operators_on_the_host(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    code, text = invoke(
        *("run", model, "--engine", "golden", "--shape", "x=1,3,9,11", "--check", "--json", out)
    )
    assert code == 0, text
    assert "Cosh ('cosh'): the NPU has no such operator" in text and "MATCH" in text
    data = json.loads(out.read_text())
    kinds = {item["kind"]: item for item in data["host_operators"]}
    assert {"Cosh", "CumSum"} <= kinds.keys() and kinds["Cosh"]["elements"] == 8 * 7 * 9
    assert 0.4 < data["host_share"] <= 0.75 and data["host_mac_share"] == 0
    assert data["outputs"][0]["shape"] == [1, 8, 7, 9] and data["reference_agrees"] == 1
    assert data["floats_in_fp16"]


def test_without_the_host(model: Path) -> None:
    code, text = invoke("run", model, "--engine", "golden", "--shape", "x=1,3,9,11", "--no-fallback")
    assert code == BAD_INPUT and "unsupported operators: Cosh 'cosh', CumSum 'sum'" in text
    code, text = invoke(
        *("compile", model, "--shape", "x=1,3,9,11", "--no-fallback", "--outputs", "features")
    )
    assert code == 0 and "1 tasks in 1 jobs" in text and "on the host" not in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--shape", "x=1,3,nine,11"), "--shape must be NAME=SIZES, as images=1,3,640,640"),
        (("--shape", "x=1,4,9,11"), "does not fit input 'x' of shape [n, 3, h, w_]"),
        (("--shape", "y=1,4,9,11"), "the model has no input 'y', only x, axis"),
        (("--outputs", "feature"), "no node of the model computes 'feature'; similar names: features"),
    ],
)
def test_bad_options(model: Path, words: tuple[str, ...], message: str) -> None:
    code, text = invoke("compile", model, *words)
    assert code not in (0, 1) and message in text


def test_a_container_keeps_the_host_s_part_and_an_rknn_file_refuses_it(model: Path, tmp_path: Path) -> None:
    kept = tmp_path / "model.rkc"
    code, text = invoke("compile", model, "--shape", "x=1,3,9,11", "-o", kept)
    assert code == 0, text
    code, text = invoke("run", kept, "--engine", "golden", "--check")
    assert code == 0 and "MATCH" in text
    code, text = invoke("compile", model, "--shape", "x=1,3,9,11", "-o", tmp_path / "model.rknn")
    assert code == BAD_INPUT and "runs on the host in onnxruntime, which a .rknn file cannot contain" in text
