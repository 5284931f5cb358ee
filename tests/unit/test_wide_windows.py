"""Convolutions whose kernel or stride exceeds the hardware's run on the NPU with onnxruntime's values."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import rkcosim
from rkcosim.compiler.lowering.wide import AxisDivision
from tests.makers.onnx_graphs import halves, network, theirs

Case = tuple[int, int, tuple[int, int], tuple[int, int], tuple[int, int, int, int], int, int]

PATCHES: dict[str, Case] = {
    "patches of 32": (3, 8, (32, 32), (32, 32), (0, 0, 0, 0), 64, 96),
    "patches of 16": (3, 20, (16, 16), (16, 16), (0, 0, 0, 0), 48, 64),
    "patches of 14": (3, 16, (14, 14), (14, 14), (0, 0, 0, 0), 56, 70),
}
WIDE: dict[str, Case] = {
    "a long kernel": (4, 8, (1, 64), (1, 1), (0, 31, 0, 32), 1, 200),
    "a long kernel with a stride": (1, 8, (1, 256), (1, 2), (0, 0, 0, 0), 1, 600),
    "a long kernel with a long stride": (1, 8, (1, 256), (1, 64), (0, 100, 0, 9), 1, 1000),
    "a large kernel with padding": (2, 5, (40, 35), (1, 1), (3, 2, 4, 6), 50, 47),
    "strides of two kinds": (2, 5, (9, 9), (9, 8), (2, 2, 3, 3), 50, 47),
    "gaps between windows": (3, 6, (7, 7), (10, 10), (0, 0, 0, 0), 57, 63),
    "one axis": (2, 3, (33, 1), (3, 1), (16, 0, 16, 0), 70, 3),
}


def _proto(case: Case, groups: int = 1, dilation: int = 1) -> onnx.ModelProto:
    channels, kernels, kernel, strides, pads, height, width = case
    rng = np.random.default_rng(0)
    shape = (kernels, channels // groups, *kernel)
    weights = rng.normal(size=shape) / np.sqrt(np.prod(shape[1:]))
    node = helper.make_node(
        "Conv", ["x", "w", "b"], ["z"], name="conv", strides=strides, pads=pads, group=groups,
        dilations=[dilation] * 2,
    )  # fmt: skip
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [node, helper.make_node("Relu", ["z"], ["y"], name="relu")],
        "wide",
        [value("x", TensorProto.FLOAT, [1, channels, height, width])],
        [value("y", TensorProto.FLOAT, None)],
        [
            numpy_helper.from_array(weights.astype(np.float16).astype(np.float32), "w"),
            numpy_helper.from_array(rng.normal(size=kernels).astype(np.float32), "b"),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


def _drawn(case: Case, seed: int = 1) -> Any:
    shape = (1, case[0], *case[5:])
    return np.random.default_rng(seed).normal(size=shape).astype(np.float16).astype(np.float32)


@pytest.mark.parametrize("name", [*PATCHES, *WIDE])
def test_in_fp16(name: str):
    case = (PATCHES | WIDE)[name]
    proto, x = _proto(case), _drawn(case)
    with rkcosim.load(proto, engine="golden") as model:
        assert {layer.target for layer in model.layers} == {"npu"}
        found, right = model(x), theirs(proto.SerializeToString(), {"x": x})
        assert found.shape == right.shape
        assert np.abs(found - right).max() < 1e-3 * np.abs(right).max()
        assert model.check(x)


@pytest.mark.parametrize("name", ["patches of 14", "a long kernel", "a large kernel with padding"])
def test_in_int8(name: str):
    """The zero points of input and output are not 0."""
    case = (PATCHES | WIDE)[name]
    samples = [_drawn(case, seed) + 0.7 for seed in range(3)]
    with rkcosim.load(_proto(case), engine="golden").quantize(samples) as model:
        assert {layer.target for layer in model.layers} == {"npu"}
        step = model._model().outputs[0].scale
        right = theirs(model.to_bytes(), {"x": samples[0]})
        assert np.abs(model(samples[0]) - right).max() < 1.01 * step
        assert model.check(samples[0]) and model.compare("onnxruntime", samples[0])


def test_blocks_of_one_input_are_made_once():
    """Two convolutions of a signal, as a transform to frequencies has them (sine and cosine)."""
    names = {"s": halves(6, 1, 1, 64), "c": halves(6, 1, 1, 64, seed=1)}
    nodes = [
        helper.make_node("Conv", ["x", name], [f"{name}y"], name=name, strides=[1, 16]) for name in names
    ]
    proto = network([*nodes, helper.make_node("Add", ["sy", "cy"], ["y"])], (1, 1, 1, 640), names)
    x = halves(1, 1, 1, 640, seed=2)
    with rkcosim.load(proto, engine="golden") as model:
        assert sum(layer.op == "SpaceToDepth" for layer in model.layers) == 1
        found, right = model(x), theirs(proto.SerializeToString(), {"x": x})
        assert np.abs(found - right).max() < 1e-3 * np.abs(right).max()


def test_what_has_no_division_says_why():
    cases: list[tuple[Case, dict[str, int], str]] = [
        (
            (3, 4, (1, 11), (1, 11), (0, 0, 0, 0), 1, 2827),
            {},
            "257 windows along an axis",
        ),
        ((4, 4, (33, 3), (1, 1), (0, 0, 0, 0), 70, 9), {"dilation": 2}, "a dilated convolution"),
    ]
    for case, options, reason in cases:
        layers = rkcosim.load(_proto(case, **options), engine="golden").layers
        assert reason in next(layer.reason for layer in layers if layer.target == "host")


@pytest.mark.parametrize(("block", "results", "stride"), [(8, 1, 4), (16, 8, 1), (6, 2, 1)])
def test_every_tap_has_one_place(block: int, results: int, stride: int):
    """The place of a tap is that of its pixel, for each result of a window."""
    step = block * stride // results
    axis = AxisDivision(block, results, stride, taps=37, step=step, pad=5, size=300, out=40)
    for window in range(3):
        for result in range(results):
            for tap in range(axis.taps):
                pixel = (window * results + result) * step + tap - axis.pad
                found, place = axis.place(result, tap)
                assert 0 <= found < axis.kernel and 0 <= place < block
                assert (window * stride + found + axis.first) * block + place == pixel
