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
from rkcosim.measure.models.compare import FLOAT_BOUND


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
    assert "Cosh ('cosh'): the NPU has no operator Cosh" in text and "MATCH" in text
    data = json.loads(out.read_text())
    kinds = {item["kind"]: item for item in data["host_operators"]}
    assert {"Cosh", "CumSum"} <= kinds.keys() and kinds["Cosh"]["elements"] == 8 * 7 * 9
    assert 0.4 < data["host_share"] <= 0.75 and data["host_mac_share"] == 0
    (output,) = data["outputs"]
    assert output["shape"] == [1, 8, 7, 9] and output["reference_worst"] <= FLOAT_BOUND
    # A map has no class: nothing is printed or counted as one.
    assert output["top1"] is None and data["reference_agrees"] is None and data["predictions"] == []
    assert output["reference_cosine"] > 0.9999 and "cosine" in text
    assert "top-1" not in text and "label" not in text
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


def test_compare_with_inputs_of_integers(model: Path, tmp_path: Path) -> None:
    """Random inputs of integer type are integers, and a map is compared without a class."""
    out = tmp_path / "found.json"
    code, text = invoke("compare", model, "--shape", "x=1,3,9,11", "--json", out)
    assert code == 0, text
    assert "cosine" in text and "top-1" not in text
    found = json.loads(out.read_text())
    (output,), (layer,) = found["outputs"], [row for row in found["layers"] if row["op"] == "Conv"]
    assert (
        layer["unit"] == "fp16" and layer["elements"] == 8 * 7 * 9 and layer["worst"] <= layer["bound"] == 4
    )
    assert not output["classes"] and output["agreement"]["worst"] == output["worst"] <= FLOAT_BOUND


def test_labels_of_a_map_are_not_used(model: Path, tmp_path: Path) -> None:
    """Labels of inputs are refused with a line if the output has no score for each class."""
    file = tmp_path / "x.npz"
    images = np.zeros((2, 3, 9, 11), np.float32)
    np.savez(file, images=images, labels=np.array([1, 2]))
    words = ("run", model, "--engine", "golden", "--shape", "x=1,3,9,11", "--outputs", "features")
    code, text = invoke(*words, "-i", file)
    assert code == 0 and "labels are not used: output 'features' of shape [1, 8, 7, 9]" in text
    assert "top-1" not in text


def test_compare_a_model_of_the_host(tmp_path: Path) -> None:
    """A model that only the host computes is compared by its outputs, with an input of 64 bit integers."""
    node, info = helper.make_node, helper.make_tensor_value_info
    graph = helper.make_graph(
        [node("Gather", ["x", "rate"], ["y"], "pick", axis=1)],
        "g",
        [info("x", TensorProto.DOUBLE, [2, 5]), info("rate", TensorProto.INT64, [])],
        [info("y", TensorProto.DOUBLE, [2])],
    )
    path, imports = tmp_path / "host.onnx", [helper.make_opsetid("", 17)]
    path.write_bytes(helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString())
    code, text = invoke("compare", path)
    assert code == 4, text
    assert "NOTHING COMPARED: no layer runs on the NPU" in text
