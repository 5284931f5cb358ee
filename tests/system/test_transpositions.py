"""Transpositions of any number of axes move atoms on the NPU, with onnxruntime's values."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import rkcosim
from tests.makers.onnx_graphs import drawn, halves, network, theirs

node = helper.make_node
Nodes = list[onnx.NodeProto]


def _between(nodes: Nodes, constants: dict[str, Any], channels: int = 32) -> onnx.ModelProto:
    """Return a model with a product before and after transposed rows "q" to "c"."""
    return network(
        [node("MatMul", ["x", "w"], ["q"]), *nodes, node("MatMul", ["c", "v"], ["y"])],
        (1, 784, 16),
        {"w": halves(16, channels) / 4, "v": halves(32, 8) / 6, **constants},
    )


def _attention(parts: Nodes, constants: dict[str, Any]) -> onnx.ModelProto:
    """Return an attention whose queries, keys and values come from one product, as exporters write it."""
    return network(
        [
            node("MatMul", ["x", "w"], ["q"]),
            node("Reshape", ["q", "heads"], ["a"]),
            node("Transpose", ["a"], ["b"], perm=[2, 0, 3, 1, 4]),
            *parts,
            node("Transpose", ["keys"], ["kt"], perm=[0, 1, 3, 2]),
            node("MatMul", ["queries", "kt"], ["s"]),
            node("Softmax", ["s"], ["p"], axis=-1),
            node("MatMul", ["p", "values"], ["o"]),
            node("Transpose", ["o"], ["t"], perm=[0, 2, 1, 3]),
            node("Reshape", ["t", "tokens"], ["u"]),
            node("MatMul", ["u", "v"], ["y"]),
        ],
        (1, 64, 32),
        {"w": halves(32, 192) / 6, "v": halves(64, 8) / 8, "heads": [1, 64, 3, 2, 32], "tokens": [1, 64, 64],
         **constants},
    )  # fmt: skip


NAMES = ("queries", "keys", "values")
WINDOWS = _between(
    [
        node("Reshape", ["q", "split"], ["a"]),
        node("Transpose", ["a"], ["b"], perm=[0, 1, 3, 2, 4, 5]),
        node("Reshape", ["b", "join"], ["c"]),
    ],
    {"split": [1, 4, 7, 4, 7, 32], "join": [16, 49, 32]},
)
NETWORKS: dict[str, onnx.ModelProto] = {
    "windows": WINDOWS,
    "windows and back": _between(
        [
            node("Reshape", ["q", "split"], ["a"]),
            node("Transpose", ["a"], ["b"], perm=[0, 1, 3, 2, 4, 5]),
            node("Reshape", ["b", "join"], ["d"]),
            node("Sigmoid", ["d"], ["e"]),
            node("Reshape", ["e", "windows"], ["f"]),
            node("Transpose", ["f"], ["g"], perm=[0, 1, 3, 2, 4, 5]),
            node("Reshape", ["g", "rows"], ["c"]),
        ],
        {"split": [1, 4, 7, 4, 7, 32], "join": [16, 49, 32], "windows": [1, 4, 4, 7, 7, 32],
         "rows": [1, 784, 32]},
    ),
    "rows and columns": network(
        [node("Relu", ["x"], ["a"]), node("Transpose", ["a"], ["b"], perm=[0, 1, 3, 2]),
         node("Conv", ["b", "w"], ["y"])],
        (1, 20, 12, 30),
        {"w": halves(4, 20, 3, 3) / 13},
    ),
    "columns of one channel": network(
        [node("Relu", ["x"], ["a"]), node("Reshape", ["a", "split"], ["b"]),
         node("Transpose", ["b"], ["c"], perm=[0, 1, 3, 2, 4]), node("Reshape", ["c", "join"], ["d"]),
         node("Conv", ["d", "w"], ["y"])],
        (1, 1, 12, 20),
        {"split": [1, 1, 3, 4, 20], "join": [1, 1, 12, 20], "w": halves(4, 1, 3, 3) / 3},
    ),
    "an attention from one product": _attention(
        [
            node("Split", ["b"], [f"{name}1" for name in NAMES], axis=0),
            *(node("Squeeze", [f"{name}1", "first"], [name]) for name in NAMES),
        ],
        {"first": [0]},
    ),
    "an attention with indices": _attention(
        [node("Gather", ["b", f"n{n}"], [name], axis=0) for n, name in enumerate(NAMES)],
        {f"n{n}": np.int64(n) for n in range(3)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NETWORKS)
def test_in_fp16(name: str):
    proto = NETWORKS[name]
    inputs = drawn(proto)
    with rkcosim.load(proto, engine="golden") as model:
        assert {layer.target for layer in model.layers if layer.op != "Softmax"} == {"npu"}
        found, right = model(inputs["x"]), theirs(proto.SerializeToString(), inputs)
        assert found.shape == right.shape
        assert np.abs(found - right).max() < 3e-3 * np.abs(right).max()
        assert model.check(inputs["x"])


@pytest.mark.parametrize("name", ["windows", "an attention from one product"])
def test_in_int8(name: str):
    """The Softmax of codes is the host's."""
    proto = NETWORKS[name]
    samples = [drawn(proto, seed)["x"] + 0.3 for seed in range(3)]
    with rkcosim.load(proto, engine="golden").quantize(samples) as model:
        assert {layer.target for layer in model.layers if layer.op != "Softmax"} == {"npu"}
        step = model._model().outputs[0].scale
        right = theirs(model.to_bytes(), {"x": samples[0]})
        # Each product may be off by one step.
        assert np.abs(model(samples[0]) - right).max() < (1.01 if name == "windows" else 3.01) * step
        assert model.check(samples[0])


def test_a_factor_has_zeros_behind_its_channels():
    """Codes of eight channels, half an atom, whose other lanes a sum has changed from zero."""
    made, constants = (
        helper.make_node,
        {"s": np.float32(0.03), "z": np.int8(-7), "t": np.float32(0.3), "q": np.float32(0.05)},
    )
    proto = network(
        [
            made("QuantizeLinear", ["x", "s", "z"], ["a"]),
            made("DequantizeLinear", ["a", "s", "z"], ["b"]),
            made("Add", ["b", "one"], ["c"]),
            made("QuantizeLinear", ["c", "q", "z"], ["d"]),
            made("DequantizeLinear", ["d", "q", "z"], ["e"]),
            made("Transpose", ["e"], ["f"], perm=[0, 2, 1]),
            made("QuantizeLinear", ["f", "q", "z"], ["g"]),
            made("DequantizeLinear", ["g", "q", "z"], ["h"]),
            made("MatMul", ["e", "h"], ["i"]),
            made("QuantizeLinear", ["i", "t", "z"], ["j"]),
            made("DequantizeLinear", ["j", "t", "z"], ["y"]),
        ],
        (1, 8, 8),
        {**constants, "one": np.float32(1)},
    )
    inputs = drawn(proto)
    with rkcosim.load(proto, engine="golden") as model:
        right = theirs(proto.SerializeToString(), inputs)
        assert np.abs(model(inputs["x"]) - right).max() < 1.01 * constants["t"]
        assert model.check(inputs["x"])


def test_alone_it_is_not_rounded():
    """A model that only transposes stays on the host, where numbers are not rounded to fp16."""
    proto = network([node("Transpose", ["x"], ["y"], perm=[0, 1, 3, 2])], (1, 16, 4, 5))
    x = np.random.default_rng(0).normal(size=(1, 16, 4, 5)).astype(np.float32)
    with rkcosim.load(proto, engine="golden") as model:
        assert np.array_equal(model(x), x.swapaxes(2, 3))


@pytest.mark.parametrize("name", ["windows", "rows and columns"])
def test_rtl_and_golden_models_agree(name: str):
    proto = NETWORKS[name]
    with rkcosim.load(proto) as model:
        assert any(layer.op == "Transpose" for layer in model.layers)
        assert model.check(drawn(proto)["x"])
