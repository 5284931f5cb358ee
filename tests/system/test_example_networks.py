"""The example networks: complete on the golden engine, compared with onnxruntime, and one as fp16."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("onnxruntime", reason="needs the extra onnx")

import onnxruntime
from click.testing import CliRunner

from rkcosim.cli.main import app
from rkcosim.compiler import compile_model
from rkcosim.measure.models import compare as compare_module
from rkcosim.measure.models.compare import FLOAT_BOUND, _output, compare
from rkcosim.measure.models.float_units import BOUND
from rkcosim.measure.models.run import run_model

SCRIPT = Path(__file__).parents[2] / "examples" / "networks" / "make.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_networks", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["residual", "separable", "upscaling"])
def test_int8(script: ModuleType, name: str, tmp_path: Path) -> None:
    """Both golden levels are equal bit for bit; layers fed with onnxruntime's tensors differ by one step."""
    _, data, image = script.make(name)
    path = tmp_path / "model.onnx"
    path.write_bytes(data)
    result = run_model(path, [[image]], engine="golden", check=True, reference=True)
    assert result.verdict["match"] is True, result.verdict
    hosted = [row.op for row in result.layers if row.target == "host"]
    assert hosted == ([] if name == "upscaling" else ["Softmax"])
    found = compare(path, [[image]])
    assert len(found.layers) > 8
    assert any(layer.op == "Conv+Add" for layer in found.layers) == (name == "residual")
    assert any(layer.op == "Conv+Silu" for layer in found.layers) == (name == "upscaling")
    for layer in found.layers:
        # One step in the convolution's result may be several steps after the addition or function.
        most = {"Conv+Add": 3, "Conv+Silu": layer.bound}.get(layer.op, 1)
        assert layer.worst <= most <= 6, f"{layer.op} '{layer.name}': {layer.histogram}"
        assert layer.differing <= 0.02 * layer.elements + 2, f"{layer.op} '{layer.name}': {layer.histogram}"
    assert all(output.same for output in found.outputs) or name == "upscaling"


def test_float(script: ModuleType, tmp_path: Path) -> None:
    data, _, image = script.make("residual")
    path = tmp_path / "model.onnx"
    path.write_bytes(data)
    result = run_model(path, [[image]], engine="golden", check=True, reference=True)
    assert result.verdict["match"] is True, result.verdict
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    want = session.run(None, {"image": image})[0]
    assert np.abs(result.results[0][0] - want).max() < 2e-3
    assert result.outputs[0]["top1"] == result.outputs[0]["reference_top1"]
    assert result.outputs[0]["reference_unit"] == "of the largest value"
    assert 0 < result.outputs[0]["reference_worst"] <= FLOAT_BOUND


@pytest.mark.parametrize(
    ("name", "macs"),
    [
        ("mobilenet_v1", 568.8e6),
        ("mobilenet_v2", 300.8e6),
        ("resnet50", 4.089e9),
        ("yolov5s_relu", 8.22e9),
        ("yolov8n", 4.376e9),
    ],
)
def test_published_shapes(script: ModuleType, name: str, macs: float) -> None:
    """Multiply-accumulates as published ([HW 12]; half of the FLOPs that ultralytics reports)."""
    network, output = script.PUBLISHED[name]()
    graph = network.model(output).graph
    shapes = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in graph.value_info}
    shapes |= {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in graph.output}
    sizes = {tensor.name: list(tensor.dims) for tensor in graph.initializer}
    total = 0
    for node in graph.node:
        if node.op_type in ("Conv", "Gemm"):
            each = int(np.prod(sizes[node.input[1]][1:]))
            total += each * int(np.prod(shapes[node.output[0]]))
    assert total == pytest.approx(macs, rel=2e-3)


def test_floats_beside_onnxruntime(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every layer of a float network is compared, with a bound; layers that exceed it do not match."""
    data, _, image = script.make("residual")
    path, out = tmp_path / "residual_float.onnx", tmp_path / "found.json"
    path.write_bytes(data)
    found = compare(path, [[image], [2 * image]])
    assert found.match and len(found.outputs) == 2 and not found.skipped
    assert len(found.layers) == len(compile_model(data).graph_nodes())
    assert all(layer.unit == "fp16" and layer.worst <= BOUND for layer in found.layers)
    assert all(0 < output.worst < FLOAT_BOUND and output.bound is None for output in found.outputs)
    said = CliRunner().invoke(app, ["compare", str(path), "--json", str(out)])
    assert said.exit_code == 0 and "every layer is within its bound" in said.output
    assert json.loads(out.read_text())["match"] is True

    def wrong(nodes: list, tensors: dict) -> dict:
        found = golden(nodes, tensors)
        return {name: (cube * np.float16(1.01)).astype(cube.dtype) for name, cube in found.items()}

    golden = compare_module.run
    monkeypatch.setattr(compare_module, "run", wrong)
    said = CliRunner().invoke(app, ["compare", str(path), "--json", str(out)])
    assert said.exit_code == 1 and "A LAYER EXCEEDS ITS BOUND" in said.output
    assert "of tensor '" in " ".join(said.output.split())
    assert json.loads(out.read_text())["match"] is False


@pytest.mark.parametrize(
    ("ours", "theirs", "same", "worst"),
    [
        ([1.0, 2.0, np.nan], [1.0, 2.0, np.nan], True, 0.0),
        ([np.inf, 2.0], [np.inf, 2.0], True, 0.0),
        ([np.inf, 2.0], [100000.0, 2.0], False, np.inf),
        ([1.0, 2.0, np.nan], [1.0, 2.0, 1.5], False, np.inf),
        ([0.0, 0.0], [0.0, 0.0], True, 0.0),
        ([1.001, 1.0], [1.0, 1.001], True, 0.001 / 1.001),
        ([1.0, 0.9], [1.0, 1.1], False, 0.2 / 1.1),
    ],
)
def test_float_outputs(ours: list[float], theirs: list[float], same: bool, worst: float) -> None:
    info = SimpleNamespace(name="y", scale=1.0, quantised=False, dtype=np.float64)
    found = _output(0, info, np.array(ours), np.array(theirs))
    assert found.same is same and found.worst == pytest.approx(worst)
