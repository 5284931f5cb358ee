"""Channel and pixel shuffles as exporters write them run on the NPU, with onnxruntime's values."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

import rkcosim
from tests.makers.onnx_graphs import drawn, halves, network, theirs

Shape = tuple[int, ...]

SHUFFLES: dict[str, tuple[Shape, list[int], list[int], list[int], str]] = {
    # shape, first Reshape, order of the axes, second Reshape, operation
    "two groups": ((1, 24, 6, 7), [1, 2, 12, 6, 7], [0, 2, 1, 3, 4], [1, 24, 6, 7], "ChannelShuffle"),
    "three groups": ((1, 24, 6, 7), [1, 3, 8, 6, 7], [0, 2, 1, 3, 4], [1, 24, 6, 7], "ChannelShuffle"),
    "pixels, channels outside": (
        *((1, 20, 6, 7), [1, 5, 2, 2, 6, 7]),
        *([0, 1, 4, 2, 5, 3], [1, 5, 12, 14], "DepthToSpace"),
    ),
    "pixels of four": (
        *((1, 32, 3, 5), [1, 2, 4, 4, 3, 5]),
        *([0, 1, 4, 2, 5, 3], [1, 2, 12, 20], "DepthToSpace"),
    ),
    "blocks, channels outside": (
        *((1, 5, 12, 14), [1, 5, 6, 2, 7, 2]),
        *([0, 1, 3, 5, 2, 4], [1, 20, 6, 7], "SpaceToDepth"),
    ),
    "blocks, channels inside": (
        *((1, 5, 12, 15), [1, 5, 4, 3, 5, 3]),
        *([0, 3, 5, 1, 2, 4], [1, 45, 4, 5], "SpaceToDepth"),
    ),
}


def _proto(name: str) -> onnx.ModelProto:
    shape, first, order, last, _ = SHUFFLES[name]
    node = helper.make_node
    channels = shape[1]
    return network(
        [
            node("Conv", ["x", "v"], ["r"]),
            node("Reshape", ["r", "first"], ["a"]),
            node("Transpose", ["a"], ["b"], perm=order),
            node("Reshape", ["b", "last"], ["c"]),
            node("Conv", ["c", "w"], ["y"]),
        ],
        shape,
        {
            "v": halves(channels, channels, 1, 1) / np.float32(np.sqrt(channels)),
            "first": first,
            "last": last,
            "w": halves(4, last[1], 1, 1),
        },
    )


@pytest.mark.parametrize("name", SHUFFLES)
def test_in_fp16(name: str):
    proto = _proto(name)
    inputs = drawn(proto)
    with rkcosim.load(proto, engine="golden") as model:
        assert [layer.op for layer in model.layers] == ["Conv", SHUFFLES[name][4], "Conv"]
        found, right = model(inputs["x"]), theirs(proto.SerializeToString(), inputs)
        assert found.shape == right.shape and np.abs(found - right).max() < 2e-3 * np.abs(right).max()
        assert model.check(inputs["x"])


@pytest.mark.parametrize("name", ["two groups", "pixels, channels outside", "blocks, channels inside"])
def test_in_int8(name: str):
    proto = _proto(name)
    samples = [drawn(proto, seed)["x"] + 0.3 for seed in range(3)]
    with rkcosim.load(proto, engine="golden").quantize(samples) as model:
        assert {layer.target for layer in model.layers} == {"npu"}
        step = model._model().outputs[0].scale
        right = theirs(model.to_bytes(), {"x": samples[0]})
        assert np.abs(model(samples[0]) - right).max() < 2.01 * step  # two layers, each off by one at most
        assert model.check(samples[0])


def test_blocks_of_three_stay_on_the_host():
    """The NPU inserts 1, 3 or 7 zeros, and atoms of four channels would be divided."""
    node = helper.make_node
    proto = network(
        [
            node("Relu", ["x"], ["r"]),
            node("Reshape", ["r", "first"], ["a"]),
            node("Transpose", ["a"], ["b"], perm=[0, 1, 4, 2, 5, 3]),
            node("Reshape", ["b", "last"], ["c"]),
            node("Conv", ["c", "w"], ["y"]),
        ],
        (1, 36, 5, 5),
        {"first": [1, 4, 3, 3, 5, 5], "last": [1, 4, 15, 15], "w": halves(4, 4, 1, 1)},
    )
    inputs = drawn(proto)
    with rkcosim.load(proto, engine="golden") as model:
        assert "host" in {layer.target for layer in model.layers}
        found, right = model(inputs["x"]), theirs(proto.SerializeToString(), inputs)
        assert np.abs(found - right).max() < 2e-3 * np.abs(right).max()
