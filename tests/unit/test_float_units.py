"""The bound of `compare` for convolutions in fp16, against onnxruntime."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from rkcosim.measure.models import float_units
from rkcosim.measure.models.compare import compare

SHAPE = (1, 32, 6, 6)


@pytest.mark.parametrize("size", [2.0**-20, 2.0**-26])
@pytest.mark.parametrize("groups", [1, 32], ids=["direct", "depthwise"])
def test_weights_that_fp16_rounds_to_few_places(tmp_path, monkeypatch, size, groups):
    """A BatchNormalization that is folded into the weights makes such kernels, as in PP-OCR's detection."""
    rng = np.random.default_rng(int(-np.log2(size)) + groups)
    weights = rng.normal(size=(32, 32 // groups, 3, 3)).astype(np.float32)
    weights[::2] *= size  # every other kernel
    path = tmp_path / "small_weights.onnx"
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE) for name in "xy")
    node = helper.make_node("Conv", ["x", "w"], ["y"], "conv", pads=[1] * 4, group=groups)
    graph = helper.make_graph([node], "g", [x], [y], [numpy_helper.from_array(weights, "w")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    samples = [[rng.normal(size=SHAPE).astype(np.float32) * 64]]
    found = compare(path, samples)
    assert [row.good for row in found.layers] == [True] and found.layers[0].elements == 32 * 36
    monkeypatch.setattr(float_units, "_lost_weights", lambda step, x: np.zeros(step.output.cube))
    assert [row.good for row in compare(path, samples).layers] == [False]


def test_the_unit_is_what_the_rounding_can_change_and_not_more():
    from rkcosim.compiler.graph import Tensor, Window
    from rkcosim.compiler.steps import ConvStep

    x = Tensor("x", (1, 8, 1, 1), 1.0, 0, (8, 1, 1), real=True)
    y = Tensor("y", (1, 2, 1, 1), 1.0, 0, (2, 1, 1), real=True)
    weights = np.array([[2.0**-20] * 8, [1.0] * 8], np.float16).reshape(2, 8, 1, 1)
    fields = {"bias": np.zeros(2, np.float32), "multipliers": np.zeros(2, np.int64), "depthwise": False}
    step = ConvStep("c", "Conv", (x,), y, weights=weights, window=Window((1, 1)), **fields)
    values = {"x": np.full((8, 1, 1), 2.0, np.float16)}
    result = np.array([2.0**-16, 16.0], np.float16).reshape(2, 1, 1)
    # Eight inputs of 2 and weights of 2**-20: 16 * 2**-25; the other kernel has the last place of 16.
    assert float_units.units(step, values, result).reshape(-1).tolist() == [2.0**-21, 2.0**-6]


def test_units_of_a_tensor_that_several_steps_write(tmp_path):
    """A resize by products joins and moves parts; the units of all parts reach the layer that is compared."""
    rng = np.random.default_rng(8)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 8, 5, 9))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 8, 11, 17))
    sizes = numpy_helper.from_array(np.array([1, 8, 11, 17]), "s")
    node = helper.make_node("Resize", ["x", "", "", "s"], ["y"], "up", mode="linear")
    path = tmp_path / "resize.onnx"
    graph = helper.make_graph([node], "g", [x], [y], [sizes])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    found = compare(path, [[rng.normal(size=(1, 8, 5, 9)).astype(np.float32)] for _ in range(3)])
    assert found.match and [row.elements for row in found.layers] == [3 * 8 * 11 * 17], list(found.reasons())
