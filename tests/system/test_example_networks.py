"""The example networks: whole on the golden engine, beside onnxruntime, and one as fp16."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

pytest.importorskip("onnxruntime", reason="needs the extra onnx")

import onnxruntime

from cosim.models.compare import compare
from cosim.models.run import run_model

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
    """Bit for bit on both golden levels; layers fed with onnxruntime's tensors differ by one step."""
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
        # A step of the convolution's own may be several of what is made of it in the same task.
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
    """Multiply-accumulates as published (HARDWARE 9.6, 9.7; half of the FLOPs that ultralytics tells)."""
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
