"""Maps whose lines exceed the registers run on the NPU in parts, with onnxruntime's values."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import helper

import rkcosim
from rkcosim.compiler.limits import MAX_NOTCH
from rkcosim.compiler.programs.dpu import Place
from rkcosim.compiler.programs.parts import MOST_PIXELS, parts, ranges
from rkcosim.compiler.programs.task import Ref
from tests.makers.onnx_graphs import drawn, halves, network, theirs

node = helper.make_node


def _convolutions(width: int) -> onnx.ModelProto:
    """A Conv, an addition in its task, and a depthwise Conv over two rows."""
    return network(
        [
            node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
            node("Relu", ["a"], ["b"]),
            node("Conv", ["b", "v"], ["c"]),
            node("Add", ["c", "x"], ["d"]),
            node("Conv", ["d", "u"], ["y"], pads=[0, 1, 0, 1], group=4),
        ],
        (1, 4, 2, width),
        {"w": halves(4, 4, 3, 3) / 4, "v": halves(4, 4, 1, 1), "u": halves(4, 1, 1, 3)},
    )


def _functions(width: int) -> onnx.ModelProto:
    """Operators on elements, with one operand for each channel, and slopes."""
    return network(
        [
            node("Add", ["x", "a"], ["p"]),
            node("PRelu", ["p", "s"], ["q"]),
            node("Sigmoid", ["q"], ["r"]),
            node("Mul", ["r", "x"], ["t"]),
            node("Max", ["t", "m"], ["y"]),
        ],
        (1, 3, 2, width),
        {"a": halves(1, 3, 1, 1), "s": halves(3, 1, 1), "m": halves(1, 3, 1, 1)},
    )


def _moves(width: int) -> onnx.ModelProto:
    """A maximum, repeated pixels, parts and their concatenation."""
    return network(
        [
            node("MaxPool", ["x"], ["p"], kernel_shape=[1, 3], strides=[1, 2], pads=[0, 1, 0, 1]),
            node("Resize", ["p", "", "f"], ["q"], mode="nearest", nearest_mode="floor",
                 coordinate_transformation_mode="asymmetric"),
            node("Slice", ["q", "first", "last", "axis"], ["r"]),
            node("Concat", ["r", "x"], ["y"], axis=3),
        ],
        (1, 3, 1, width),
        {"f": np.array([1, 1, 1, 2], np.float32), "first": [7], "last": [width - 5], "axis": [3]},
    )  # fmt: skip


def _columns(width: int) -> onnx.ModelProto:
    """Rows of a matrix, and more channels than a task has."""
    return network(
        [node("MatMul", ["x", "w"], ["a"]), node("Relu", ["a"], ["b"]), node("Transpose", ["b"], ["c"]),
         node("Add", ["c", "v"], ["y"])],
        (width, 12),
        {"w": halves(12, 3), "v": halves(width)},
    )  # fmt: skip


NETWORKS: dict[str, Callable[[int], onnx.ModelProto]] = {
    "convolutions": _convolutions,
    "functions": _functions,
    "moves": _moves,
    "columns": _columns,
}


@pytest.mark.parametrize("name", NETWORKS)
def test_in_fp16(name: str):
    proto = NETWORKS[name](8999 if name == "convolutions" else 17011)
    inputs = drawn(proto)
    with rkcosim.load(proto, engine="golden") as model:
        assert {layer.target for layer in model.layers if layer.op != "Rearrange"} == {"npu"}
        found, right = model(inputs["x"]), theirs(proto.SerializeToString(), inputs)
        assert np.abs(found - right).max() < 2e-3 * np.abs(right).max()
        assert model.check(inputs["x"])


def test_in_int8():
    """The zero points are not 0."""
    proto = _convolutions(8999)
    samples = [drawn(proto, seed)["x"] + 0.7 for seed in range(2)]
    with rkcosim.load(proto, engine="golden").quantize(samples) as model:
        assert {layer.target for layer in model.layers} == {"npu"}
        step = model._model().outputs[0].scale
        right = theirs(model.to_bytes(), {"x": samples[0]})
        # Three layers follow one another, each of which may be off by one step.
        assert np.abs(model(samples[0]) - right).max() < 3.01 * step
        assert model.check(samples[0])


@pytest.mark.parametrize("name", ["functions", "moves"])
def test_rtl_and_golden_models_agree(name: str):
    proto = NETWORKS[name](8211)
    with rkcosim.load(proto) as model:
        assert max(layer.tasks for layer in model.layers) > 1
        assert model.check(drawn(proto)["x"])


@pytest.mark.parametrize("cube", [(3, 1, 8193), (3, 2, 20011), (20, 9000, 1), (9000, 1, 1), (9000, 9000, 1)])
def test_parts_cover_each_element_once(cube: tuple[int, int, int]):
    place = Place(Ref("activations", 0), cube, -(-cube[0] // 8), itemsize=2)
    found = parts(place)
    assert all(max(part.rows, part.columns, part.channels) <= MOST_PIXELS for part in found)
    for first in {part.channel for part in found}:
        ends = sorted(
            (part.atom, part.atom + part.rows * part.columns) for part in found if part.channel == first
        )
        assert ends[0][0] == 0 and ends[-1][1] == place.surface
        assert all(before[1] == after[0] for before, after in itertools.pairwise(ends))
    assert sum({part.channel: part.channels for part in found}.values()) == place.aligned_channels


@pytest.mark.parametrize(
    ("size", "most", "notch"), [((3, 20000), 8192, 0), ((5, 100), 8192, 9000), ((1, 4097), 2048, 0)]
)
def test_ranges_cover_each_pixel_once(size: tuple[int, int], most: int, notch: int):
    seen = np.zeros(size, np.int64)
    for part in ranges(size, most, notch):
        assert part.columns <= most and (part.rows == 1 or notch + size[1] - part.columns <= MAX_NOTCH)
        seen[part.row : part.row + part.rows, part.column : part.column + part.columns] += 1
    assert (seen == 1).all()
