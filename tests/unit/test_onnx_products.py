"""MatMul by a constant in any form runs on the NPU, with onnxruntime's values."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import rkcosim
from rkcosim.compiler.loaders.onnx_products import products

SHAPES: list[tuple[tuple[int, ...], tuple[int, ...], bool]] = [
    # shape of the input, shape of the constant, whether the constant is on the left
    ((9, 16), (16, 24), False),
    ((1, 9, 16), (1, 16, 24), False),
    ((1, 4, 9, 16), (16, 24), False),
    ((2, 3, 9, 16), (1, 1, 16, 24), False),
    ((1, 16, 9), (24, 16), True),
    ((1, 16, 9), (1, 24, 16), True),
]


def _proto(shape: tuple[int, ...], matrix: tuple[int, ...], left: bool) -> onnx.ModelProto:
    value = helper.make_tensor_value_info
    weights = np.random.default_rng(0).normal(size=matrix).astype(np.float16).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["w", "x"] if left else ["x", "w"], ["y"], name="product")],
        "product",
        [value("x", TensorProto.FLOAT, shape)],
        [value("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(weights, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


@pytest.mark.parametrize(("shape", "matrix", "left"), SHAPES)
def test_the_npu_multiplies(shape: tuple[int, ...], matrix: tuple[int, ...], left: bool):
    import onnxruntime

    proto = _proto(shape, matrix, left)
    x: Any = np.random.default_rng(1).normal(size=shape).astype(np.float16).astype(np.float32)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    right = session.run(None, {"x": x})[0]
    with rkcosim.load(proto, engine="golden") as model:
        found = model(x)
        assert found.shape == right.shape and np.abs(found - right).max() < 2e-3 * np.abs(right).max()
        assert model.mac_share == 1 and any(layer.macs for layer in model.layers)
        assert model.check(x)


@pytest.mark.parametrize(
    ("shape", "matrix", "left"),
    [
        ((9, 16), (16, 24), False),  # as the loader takes it
        ((1, 4, 9, 16), (1, 4, 16, 24), False),  # a matrix for each head
        ((9, 16), (2, 16, 24), False),  # broadcast rows
        ((16,), (16, 24), False),
        ((2, 16, 9), (24, 16), True),
    ],
)
def test_other_forms_stay(shape: tuple[int, ...], matrix: tuple[int, ...], left: bool):
    proto = _proto(shape, matrix, left)
    assert products(proto).graph.node == proto.graph.node
