"""TFLite models of floats in fp16 on the NPU, near LiteRT's binary32; packed and sparse weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tflite", reason="needs the extra tflite")
pytest.importorskip("ai_edge_litert", reason="needs the extra litert")

from rkcosim.compiler import compile_model
from rkcosim.compiler.graph import Tensor
from rkcosim.compiler.steps import BinaryStep, CallStep, Converter, FloatStage, FloatStep, HostStep, Step
from rkcosim.golden.graph import run as golden_run
from rkcosim.measure.models.compare import (
    FLOAT_BOUND,
    ROUNDED_BOUND,
    LayerDifference,
    compare,
)
from rkcosim.measure.models.draw import random_reals
from rkcosim.measure.models.float_units import BOUND, last_place, units
from rkcosim.measure.models.outputs import class_outputs
from rkcosim.verify.crosscheck.graph_nodes import graph_nodes
from tests.makers.tflite_models import Tf
from tests.system.test_tflite_ops import CASES, IMAGE, run

ONLY_BYTES = {"softmax", "softmax of a map", "requantise", "concat rescaled"}
"""Cases that need scales; Softmax of floats is part of the networks below."""


ON_HOST = {"average pool same"}
"""Cases of nothing but a function for the host, which computes it in binary32."""


@pytest.mark.parametrize("name", [n for n in CASES if n not in ONLY_BYTES], ids=lambda n: n.replace(" ", "-"))
def test_operator_in_fp16(name: str, tmp_path: Path) -> None:
    """Each operator on floats: both golden levels agree, and binary32 of LiteRT is near."""
    shape, build = CASES[name]
    t = Tf(seed=len(name), dtype="float32")
    t.input(shape)
    file = tmp_path / "model.tflite"
    file.write_bytes(t.bytes(build(t)))
    model = compile_model(file.read_bytes(), reuse=False)
    assert any(isinstance(step, CallStep) for step in model.plan.steps) == (name in ON_HOST)
    values = random_reals(model.inputs, 5)
    run(model, values)
    found = compare(file, [values])
    (output,) = found.outputs
    assert found.match and not found.skipped and output.worst <= FLOAT_BOUND
    assert bool(found.layers) != (name in ON_HOST)
    assert all(layer.unit == "fp16" and layer.worst <= BOUND for layer in found.layers)


def network(t: Tf) -> int:
    """Convolutions, a sum, a mean and classes."""
    x = t.conv(t.input(IMAGE), 24, 3, 2, FusedActivationFunction=3)
    y = t.conv(t.depthwise(x, 3), 24, 1)
    x = t.add("ADD", [x, y], t.items[x].shape)
    x = t.add("MEAN", [x, t.ints([1, 2])], (1, 24))
    return t.add("SOFTMAX", [t.dense(x, 7)], (1, 7), Beta=1.0)


@pytest.mark.parametrize("form", ["", "float16", "sparse", "int8"])
def test_weights(form: str, tmp_path: Path) -> None:
    """Weights of float32, float16 and int8 (dynamic range), and sparse ones."""
    t = Tf(seed=3, dtype="float32", form=form)
    file = tmp_path / "model.tflite"
    file.write_bytes(t.bytes(network(t)))
    model = compile_model(file.read_bytes(), reuse=False)
    assert not any(isinstance(step, CallStep) for step in model.plan.steps)
    values = random_reals(model.inputs, 1)
    run(model, values)
    found = compare(file, [values])
    (output,) = found.outputs
    # Only convolutions and products are quantised; the sum, the mean and the Softmax are compared.
    assert found.match and output.classes and len(found.layers) == (3 if form == "int8" else 7)
    # LiteRT quantises the activations in front of int8 weights, in every inference anew.
    assert output.worst <= (0.05 if form == "int8" else FLOAT_BOUND)
    assert output.top1 == output.reference_top1


def test_packed_weights(tmp_path: Path) -> None:
    """Weights of 4 bits in an int8 model give the same layers as LiteRT, within one step."""
    t = Tf(seed=4, form="int4")
    file = tmp_path / "model.tflite"
    y = t.dense(t.conv(t.conv(t.input(IMAGE), 13, 3, 2), 6, 1), 5)
    file.write_bytes(t.bytes(y))
    model = compile_model(file.read_bytes(), reuse=False)
    assert not any(isinstance(step, CallStep) for step in model.plan.steps)
    run(model, random_reals(model.inputs, 2))
    found = compare(file, [random_reals(model.inputs, 2)])
    assert found.match and len(found.layers) == 3
    assert len(np.unique(model.plan.steps[0].weights)) <= 15  # type: ignore[attr-defined]


def test_weights_of_two_bits(tmp_path: Path) -> None:
    """Four weights to a byte, as LiteRT reads them in FULLY_CONNECTED: the same codes, on the NPU."""
    t = Tf(seed=4, form="int2")
    file = tmp_path / "model.tflite"
    file.write_bytes(t.bytes(t.dense(t.input((1, 23)), 5)))
    model = compile_model(file.read_bytes(), reuse=False)
    assert not any(isinstance(step, CallStep) for step in model.plan.steps)
    found = compare(file, [random_reals(model.inputs, 2)])
    assert found.match and found.layers[0].differing == 0
    assert np.unique(model.plan.steps[0].weights).tolist() == [-1, 0, 1]  # type: ignore[attr-defined]


def test_layers_of_floats_are_judged() -> None:
    """One place of fp16 more than the bound is noticed, as is an element that is infinite on one side."""
    unit = last_place(np.array([1.0, 1000.0, 1e-9, 1e9]))
    assert unit.tolist() == [2.0**-10, 2.0**-1, 2.0**-24, 2.0**5]
    row = LayerDifference("layer", "Conv", "convolution", 4, bound=BOUND, unit="fp16")
    theirs = np.array([1.0, 1000.0, 0.0, np.inf])
    row.add_floats(theirs + np.array([3.6 * 2.0**-10, 0.2, 0.0, 0.0]), theirs, unit)
    assert row.good and row.worst == 4 and row.histogram == {4: 1, 0: 3} and row.differing == 1
    row.add_floats(theirs - np.array([0.0, 2.1, 0.0, 0.0]), theirs, unit)
    assert not row.good and row.worst == 5
    row.add_floats(np.array([1.0, 1000.0, 0.0, 65504.0]), theirs, unit)
    assert row.worst > 1000


def test_regression_has_no_class(tmp_path: Path) -> None:
    """Numbers that no Softmax computes are not taken for classes, even if another one is the largest."""
    t = Tf(dtype="float32")
    file = tmp_path / "model.tflite"
    file.write_bytes(t.bytes(t.dense(t.input((1, 16)), 6)))
    found = compare(file)
    assert found.match and not found.outputs[0].classes
    found.outputs[0].top1 += 1
    assert found.match
    found.layers[0].worst = BOUND + 1
    assert not found.match and "its bound is 4" in next(iter(found.reasons()))
    assert f"of tensor '{found.layers[0].tensor}' is " in next(iter(found.reasons()))


def test_labels_make_classes(tmp_path: Path) -> None:
    """With labels, the first output counts as scores if it has one number for each class."""
    t = Tf(dtype="float32")
    file = tmp_path / "model.tflite"
    file.write_bytes(t.bytes(t.dense(t.input((1, 16)), 6)))
    found = compare(file, labelled=True)
    assert found.match and found.outputs[0].classes
    found.outputs[0].top1 += 1
    assert not found.match and "the class of output" in next(iter(found.reasons()))


def test_softmax_of_a_map_has_no_class(tmp_path: Path) -> None:
    """A Softmax of each pixel gives no class of the whole picture."""
    t = Tf(dtype="float32")
    file = tmp_path / "model.tflite"
    x = t.conv(t.input(IMAGE), 6, 3, 2)
    file.write_bytes(t.bytes(t.add("SOFTMAX", [x], t.items[x].shape, Beta=1.0)))
    assert class_outputs(compile_model(file.read_bytes()), labelled=True) == [False]


def test_reference_that_quantises(tmp_path: Path) -> None:
    """If LiteRT quantises the inputs of all layers, only the outputs are compared, with a larger bound."""
    t = Tf(dtype="float32", form="int8")
    file = tmp_path / "model.tflite"
    file.write_bytes(t.bytes(t.dense(t.dense(t.input((1, 32)), 24), 6)))
    found = compare(file)
    assert found.match and not found.layers and len(found.skipped) == 2
    assert found.outputs[0].bound == ROUNDED_BOUND and found.outputs[0].worst > FLOAT_BOUND


def unit_of(step: Step, *inputs: np.ndarray) -> np.ndarray:
    """Return the units of a step on cubes of fp16."""
    tensors = {tensor.name: cube for tensor, cube in zip(step.inputs, inputs, strict=True)}
    return units(step, tensors, golden_run(graph_nodes(step), tensors)[step.output.name])


def test_units_of_small_factors_and_terms_that_cancel() -> None:
    """Rounding of a subnormal factor, of terms of a difference and of inputs of a Softmax counts."""
    x, y, z = (Tensor(name, (1, 4, 1, 1), 1.0, 0, (4, 1, 1), real=True) for name in "xyz")
    same = {"scales": (1, 1), "limits": None, "converter": Converter(1, 0, 0)}
    product = BinaryStep(name="m", kind="Mul", inputs=(x, y), output=z, method="mul", **same)  # type: ignore
    large, tiny = np.full((4, 1, 1), -13, np.float16), np.full((4, 1, 1), 1e-6, np.float16)
    assert (unit_of(product, large, tiny) == 13 * 2.0**-24).all()
    assert (unit_of(product, large, large) == 2.0**-3).all()
    ones = np.full((4, 1, 1), 1000, np.float16)
    turned = FloatStage(mul=np.array([-1.0], np.float16))
    step = FloatStep(name="s", kind="Rsub", inputs=(x, y), output=z, second=turned, method="add")
    assert (unit_of(step, ones, ones) >= 1.0).all()
    scores = np.array([1000, 999, 0, 0], np.float16).reshape(4, 1, 1)
    softmax = HostStep(
        name="p", kind="Softmax", inputs=(x,), output=z, function="Softmax", attributes={"axis": 1}
    )
    made = unit_of(softmax, scores)
    assert made[0, 0, 0] == pytest.approx(0.5 * 0.7311, rel=1e-2) and made[3, 0, 0] == 2.0**-24


def test_computed_sizes(tmp_path: Path) -> None:
    """A resize to a size that the file computes from SHAPE; the file has no shape of its result."""
    t = Tf(seed=4, dtype="float32")
    x = t.conv(t.input((1, 6, 5, 4)), 8, 3)
    whole = {"scale": None, "zero": None}
    size = t.add("SHAPE", [x], (4,), OutType=2, **whole)
    part = t.add("STRIDED_SLICE", [size, t.ints([1]), t.ints([3]), t.ints([1])], (2,), **whole)
    twice = t.add("MUL", [part, t.ints([2, 2])], (2,), **whole)
    y = t.add("RESIZE_NEAREST_NEIGHBOR", [x, twice], ())
    y = t.conv(t.add("RELU", [y], (1, 1, 1, 8)), 8, 1)
    for number in (size, part, twice):
        t.items[number].dtype = "int32"
    t.items[y].shape = ()
    file = tmp_path / "model.tflite"
    file.write_bytes(t.bytes(y))
    model = compile_model(file.read_bytes(), reuse=False)
    assert not any(isinstance(step, CallStep | HostStep) for step in model.plan.steps)
    assert model.outputs[0].shape == (1, 8, 12, 10)
    values = random_reals(model.inputs, 1)
    run(model, values)
    (output,) = compare(file, [values]).outputs
    assert output.worst <= FLOAT_BOUND


def test_shape_of_a_node_that_refuses_zeros(tmp_path: Path) -> None:
    """The shape of a quotient of integers, which the file leaves open and LiteRT refuses for zeros."""
    t = Tf(seed=6, dtype="int32")
    whole = {"scale": None, "zero": None}
    x = t.input((1, 4), None)
    y = t.add("DIV", [x, x], (1, 4), **whole)
    t.items[y].signature = (-1, 4)
    real = t.add("CAST", [y], (1, 4), **whole)
    t.items[real].dtype, t.items[real].scale = "float32", 1.0
    t.dtype = "float32"
    file = tmp_path / "model.tflite"
    file.write_bytes(t.bytes(t.dense(real, 8)))
    model = compile_model(file.read_bytes())
    assert len(model.plan.steps) == 2 and isinstance(model.plan.steps[0], CallStep)
