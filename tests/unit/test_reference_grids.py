"""Outputs of floats that are dequantised codes: one code apart is a tie, two are a difference."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from rkcosim.measure.models import references
from rkcosim.measure.models.compare import compare

SCALE = np.float32(1 / 64)


def _model(path: Path) -> Path:
    """Resize of floats, whose result is quantised and dequantised: onnxruntime computes all of it."""
    constants = {
        "sizes": np.array([1, 1, 2, 3], np.float32),
        "scale": np.array(SCALE),
        "zero": np.array(0, np.int8),
    }
    nodes = [
        helper.make_node(
            "Resize", ["x", "", "sizes"], ["r"], coordinate_transformation_mode="align_corners", mode="linear"
        ),
        helper.make_node("QuantizeLinear", ["r", "scale", "zero"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["d"]),
        helper.make_node("Transpose", ["d"], ["y"], perm=[0, 2, 3, 1]),
        helper.make_node("Neg", ["r"], ["z"]),
    ]
    graph = helper.make_graph(
        nodes,
        "grid",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 3, 5])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("y", "z")],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(onnx.shape_inference.infer_shapes(model), path)
    return path


@pytest.mark.parametrize(("codes", "match"), [(0, True), (1, True), (2, False)])
def test_neighbouring_codes_are_a_tie(
    codes: int, match: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = references.OnnxRuntime.run

    def apart(self: references.OnnxRuntime, inputs: list[np.ndarray]) -> list[np.ndarray]:
        assert self.grids == {"y": float(SCALE)}
        results = run(self, inputs)
        results[0] = results[0].copy()
        results[0][0, 2, 2, 1] += codes * SCALE
        return results

    monkeypatch.setattr(references.OnnxRuntime, "run", apart)
    x = np.linspace(-1, 1, 45, dtype=np.float32).reshape(1, 3, 3, 5)
    found = compare(_model(tmp_path / "grid.onnx"), [[x]])
    assert found.match is match
    assert [item.within for item in found.outputs] == [match, True]
