"""MatMul by a constant in any form runs on the NPU, with onnxruntime's values."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import rkcosim
from rkcosim.compiler.loaders.onnx_products import products
from tests.makers.onnx_graphs import drawn, halves, network, theirs

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


def _coded(array: Any, name: str) -> tuple[list[onnx.NodeProto], dict[str, Any]]:
    """Return a DequantizeLinear of a constant, and its inputs."""
    scale = np.float32(np.abs(array).max() / 100)
    codes = np.clip(np.rint(array / scale) + 3, -128, 127).astype(np.int8)
    inputs = {f"{name}_codes": codes, f"{name}_scale": scale, f"{name}_zero": np.int8(3)}
    return [helper.make_node("DequantizeLinear", list(inputs), [name])], inputs


HEADS: dict[str, tuple[list[onnx.NodeProto], tuple[int, ...], dict[str, Any]]] = {
    "a matrix for each head": (
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        (1, 3, 9, 20),
        {"w": halves(3, 20, 13)},
    ),
    "the same in two samples": (
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        (2, 4, 9, 16),
        {"w": halves(4, 16, 24)},
    ),
    "heads of tokens": (
        [
            helper.make_node("MatMul", ["x", "p"], ["q"]),
            helper.make_node("Reshape", ["q", "split"], ["a"]),
            helper.make_node("Transpose", ["a"], ["b"], perm=[0, 2, 1, 3]),
            helper.make_node("MatMul", ["b", "w"], ["c"]),
            helper.make_node("Transpose", ["c"], ["d"], perm=[0, 2, 1, 3]),
            helper.make_node("Reshape", ["d", "join"], ["e"]),
            helper.make_node("MatMul", ["e", "o"], ["y"]),
        ],
        (1, 30, 24),
        {
            "p": halves(24, 128) / 5,
            "split": [1, 30, 4, 32],
            "w": halves(4, 32, 16) / 6,
            "join": [1, 30, 64],
            "o": halves(64, 8) / 8,
        },
    ),
    "Einsum": (
        [helper.make_node("Einsum", ["x", "w"], ["y"], equation="bnhd,hdk->bnhk")],
        (1, 9, 4, 32),
        {"w": halves(4, 32, 24)},
    ),
}


@pytest.mark.parametrize("name", HEADS)
def test_a_matrix_for_each_head(name: str):
    proto = network(*HEADS[name])
    inputs = drawn(proto)
    with rkcosim.load(proto, engine="golden") as model:
        found, right = model(inputs["x"]), theirs(proto.SerializeToString(), inputs)
        assert found.shape == right.shape and np.abs(found - right).max() < 2e-3 * np.abs(right).max()
        assert model.mac_share == 1
        if name == "heads of tokens":  # no bytes move between the heads
            assert {layer.target for layer in model.layers} == {"npu"}
        assert model.check(inputs["x"])


def test_a_matrix_for_each_head_in_codes():
    """Zero points of both factors are not 0."""
    weights, constants = _coded(halves(4, 20, 24), "w")
    constants |= {"s": np.float32(0.03), "z": np.int8(-11), "t": np.float32(0.2), "u": np.int8(5)}
    made = helper.make_node
    proto = network(
        [
            *weights,
            made("QuantizeLinear", ["x", "s", "z"], ["a"]),
            made("DequantizeLinear", ["a", "s", "z"], ["b"]),
            made("MatMul", ["b", "w"], ["c"]),
            made("QuantizeLinear", ["c", "t", "u"], ["d"]),
            made("DequantizeLinear", ["d", "t", "u"], ["y"]),
        ],
        (1, 4, 9, 20),
        constants,
    )
    inputs = drawn(proto)
    with rkcosim.load(proto, engine="golden") as model:
        right = theirs(proto.SerializeToString(), inputs)
        assert model.mac_share == 1 and np.abs(model(inputs["x"]) - right).max() < 1.01 * 0.2
        assert model.check(inputs["x"])


def test_rtl_and_golden_models_agree_on_constant_heads():
    proto = network(*HEADS["a matrix for each head"])
    with rkcosim.load(proto) as model:
        assert model.check(drawn(proto)["x"])


def test_a_first_factor_for_several_matrices_says_why():
    proto = network([helper.make_node("MatMul", ["x", "w"], ["y"])], (9, 16), {"w": halves(2, 16, 24)})
    with rkcosim.load(proto, engine="golden") as model:
        assert "(9, 16) times (2, 16, 24) (required:" in model._host().operators[0].reason
