"""Signals (1, C, L) lie along the rows of a map, so that no bytes move around 1-D convolutions."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

import rkcosim
from tests.makers.onnx_graphs import drawn, halves, network, theirs

node = helper.make_node

NETWORKS: dict[str, onnx.ModelProto] = {
    "a speech encoder": network(
        [
            node("Conv", ["x", "w"], ["a"], strides=[5]),
            node("Relu", ["a"], ["b"]),
            node("Conv", ["b", "v"], ["c"], strides=[2]),
            node("Transpose", ["c"], ["d"], perm=[0, 2, 1]),
            node("MatMul", ["d", "m"], ["y"]),
        ],
        (1, 1, 9000),
        {"w": halves(16, 1, 10) / 3, "v": halves(16, 16, 3) / 7, "m": halves(16, 12) / 4},
    ),
    "a signal with its channel behind": network(
        [
            node("Reshape", ["x", "s"], ["a"]),
            node("Conv", ["a", "w"], ["b"], strides=[64]),
            node("Transpose", ["b"], ["y"], perm=[0, 2, 1]),
        ],
        (1, 9000, 1),
        {"s": [1, 1, 9000], "w": halves(16, 1, 256) / 9},
    ),
    "heads of a detector": network(
        [
            node("Conv", ["x", "w"], ["a"]),
            node("Reshape", ["a", "fine"], ["b"]),
            node("MaxPool", ["a"], ["c"], kernel_shape=[2, 2], strides=[2, 2]),
            node("Reshape", ["c", "coarse"], ["d"]),
            node("Concat", ["b", "d"], ["e"], axis=2),
            node("Split", ["e", "sizes"], ["boxes", "f"], axis=1),
            node("Sigmoid", ["f"], ["scores"]),
            node("Concat", ["scores", "boxes"], ["y"], axis=1),
        ],
        (1, 8, 16, 16),
        {"w": halves(24, 8, 1, 1) / 3, "fine": [1, 24, 256], "coarse": [1, 24, 64], "sizes": [8, 16]},
    ),
    "functions and a map": network(
        [
            node("Add", ["x", "b"], ["a"]),
            node("PRelu", ["a", "s"], ["p"]),
            node("Pad", ["p", "pads"], ["q"]),
            node("Conv", ["q", "w"], ["c"]),
            node("Mul", ["c", "x"], ["d"]),
            node("Reshape", ["d", "map"], ["e"]),
            node("Conv", ["e", "v"], ["y"], pads=[1, 1, 1, 1]),
        ],
        (1, 8, 240),
        {
            "b": halves(1, 8, 1), "s": halves(8, 1), "w": halves(8, 8, 3) / 4, "map": [1, 8, 12, 20],
            "pads": [0, 0, 1, 0, 0, 1], "v": halves(4, 8, 3, 3) / 9,
        },
    ),
    "a Softmax over the channels": network(
        [
            node("Conv", ["x", "w"], ["a"]),
            node("Softmax", ["a"], ["b"], axis=1),
            node("Conv", ["b", "v"], ["y"]),
        ],
        (1, 8, 700),
        {"w": halves(16, 8, 1) / 4, "v": halves(4, 16, 1)},
    ),
    "a mean over the channels": network(
        [node("Conv", ["x", "w"], ["a"]), node("ReduceMean", ["a"], ["y"], axes=[1], keepdims=1)],
        (1, 8, 300),
        {"w": halves(16, 8, 1) / 4},
    ),
    "dimensions that come and go": network(
        [
            node("Unsqueeze", ["x", "two"], ["a"]),
            node("Conv", ["a", "w"], ["b"], pads=[0, 1, 0, 1]),
            node("Squeeze", ["b", "two"], ["c"]),
            node("LeakyRelu", ["c"], ["y"]),
        ],
        (1, 8, 300),
        {"w": halves(16, 8, 1, 3) / 4, "two": [2]},
    ),
}  # fmt: skip
IN_INT8 = {"a speech encoder": 3, "a signal with its channel behind": 1, "heads of a detector": 2}
"""Networks, and the steps of the output by which their layers, each off by one at most, may differ."""


@pytest.mark.parametrize("name", NETWORKS)
def test_in_fp16(name: str):
    proto = NETWORKS[name]
    inputs = drawn(proto)
    with rkcosim.load(proto, engine="golden") as model:
        assert {layer.target for layer in model.layers} == {"npu"}
        found, right = model(inputs["x"]), theirs(proto.SerializeToString(), inputs)
        assert found.shape == right.shape
        assert np.abs(found - right).max() < 2e-3 * np.abs(right).max()
        assert model.check(inputs["x"])


@pytest.mark.parametrize("name", IN_INT8)
def test_in_int8(name: str):
    proto = NETWORKS[name]
    samples = [drawn(proto, seed)["x"] + 0.3 for seed in range(3)]
    with rkcosim.load(proto, engine="golden").quantize(samples) as model:
        assert {layer.target for layer in model.layers} == {"npu"}
        step = model._model().outputs[0].scale
        right = theirs(model.to_bytes(), {"x": samples[0]})
        assert np.abs(model(samples[0]) - right).max() < (IN_INT8[name] + 0.01) * step


def test_a_distribution_of_distances():
    """The head of YOLOv8: 16 numbers for each of four distances, of more places than a task has pixels."""
    count = 2100
    proto = network(
        [
            node("Reshape", ["x", "split"], ["a"]),
            node("Transpose", ["a"], ["b"], perm=[0, 2, 1, 3]),
            node("Softmax", ["b"], ["c"], axis=1),
            node("Conv", ["c", "k"], ["d"]),
            node("Reshape", ["d", "join"], ["y"]),
        ],
        (1, 64, count),
        {"split": [1, 4, 16, count], "k": np.arange(16, dtype=np.float32).reshape(1, 16, 1, 1),
         "join": [1, 4, count]},
    )  # fmt: skip
    inputs = drawn(proto)
    with rkcosim.load(proto, engine="golden") as model:
        # The input's 2100 places are channels of 64 rows, which the host turns.
        assert [layer.target for layer in model.layers].count("host") == 1
        found, right = model(inputs["x"]), theirs(proto.SerializeToString(), inputs)
        assert np.abs(found - right).max() < 2e-3 * np.abs(right).max()
