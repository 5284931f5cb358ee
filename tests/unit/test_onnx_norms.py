"""Layer normalisations that exporters write out run on the NPU, with onnxruntime's values."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest

import rkcosim
from rkcosim.compiler.loaders.onnx_norms import CENTRED, ROOT_MEAN_SQUARE, layer_normalisations
from rkcosim.examples.networks.make import Network

Array = Any
OPERATORS = {CENTRED, ROOT_MEAN_SQUARE}


def _run(proto: onnx.ModelProto, x: Array) -> Array:
    """onnxruntime's values without its own fusions."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(proto.SerializeToString(), options, ["CPUExecutionProvider"])
    return session.run(None, {"image": x})[0]


def _values(shape: tuple[int, ...]) -> Array:
    return (np.random.default_rng(3).normal(size=shape) * 2 + 0.5).astype(np.float32)


def _written(
    n: Network,
    x: str,
    axis: int,
    size: Array,
    *,
    square: str = "Pow",
    division: str = "Div",
    centred: bool = True,
    affine: str = "scale and shift",
    twice: bool = False,
) -> str:
    """Write a normalisation out; `size` is the shape of its factors and terms."""

    mean = n.add("ReduceMean", x, axes=[axis], keepdims=1) if centred else ""
    d = other = n.add("Sub", x, mean) if centred else x
    if centred and twice:
        other = n.add("Sub", x, mean)
    squares = n.add("Pow", d, n.constant(2.0)) if square == "Pow" else n.add("Mul", d, d)
    v = n.add("Add", n.add("ReduceMean", squares, axes=[axis], keepdims=1), n.constant(1e-5))
    if division == "Div":
        y = n.add("Div", other, n.add("Sqrt", v))
    elif division == "Reciprocal":
        y = n.add("Mul", n.add("Reciprocal", n.add("Sqrt", v)), other)
    elif division == "1 / Sqrt":
        y = n.add("Mul", other, n.add("Div", n.constant(1.0), n.add("Sqrt", v)))
    else:
        y = n.add("Mul", other, n.add("Pow", v, n.constant(-0.5)))
    if "scale" in affine:
        y = n.add("Mul", n.constant(1 + n.rng.normal(size=size) * 0.1), y)
    if "shift" in affine:
        y = n.add("Add", y, n.constant(n.rng.normal(size=size) * 0.1))
    return y


def _on_the_npu(model: rkcosim.Model) -> bool:
    where = {str(layer.target) for layer in model.layers if layer.op.endswith("Normalization")}
    return where == {"npu"}


def _kinds(proto: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in proto.graph.node]


FORMS = list(itertools.product(("Pow", "Mul"), ("Div", "Reciprocal", "1 / Sqrt", "Pow"), (True, False)))


@pytest.mark.parametrize(("square", "division", "centred"), FORMS)
@pytest.mark.parametrize(
    ("affine", "twice"), [("", True), ("scale", True), ("shift", False), ("scale and shift", False)]
)
def test_every_form_is_one_operator(square, division, centred, twice, affine) -> None:
    n = Network("norm", (1, 20, 24), 1)
    form = {"square": square, "division": division, "centred": centred, "twice": twice, "affine": affine}
    before = n.model(_written(n, "image", -1, 24, **form))
    after = layer_normalisations(before)
    kinds = _kinds(after)
    assert kinds[0] == (CENTRED if centred else ROOT_MEAN_SQUARE)
    assert len(kinds) == (2 if "shift" in affine and not centred else 1)
    x = _values((1, 20, 24))
    np.testing.assert_allclose(_run(after, x), _run(before, x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("shape", "axis", "size"),
    [
        ((1, 20, 24), 2, (1, 1, 24)),
        ((1, 24, 5, 6), 1, (24, 1, 1)),  # channels of a map, as in Segment Anything's neck
        ((1, 24, 30), 1, (1, 24, 1)),
        ((2, 3, 5, 24), -1, (24,)),  # more than three axes
        ((2, 3, 24, 5), 2, (24, 1)),
        ((20, 24), 1, (1,)),
    ],
)
@pytest.mark.parametrize("centred", [True, False])
def test_any_axis(shape, axis, size, centred) -> None:
    n = Network("norm", shape, 2)
    before = n.model(_written(n, "image", axis, size, centred=centred))
    after = layer_normalisations(before)
    assert len([kind for kind in _kinds(after) if kind in OPERATORS]) == 1
    assert not {"ReduceMean", "Sqrt", "Div"} & set(_kinds(after))
    x = _values(shape)
    np.testing.assert_allclose(_run(after, x), _run(before, x), rtol=1e-5, atol=1e-5)


def _changed(change: Callable[[Network], str]) -> onnx.ModelProto:
    n = Network("norm", (1, 20, 24), 4)
    return n.model(change(n))


def _of_another(n: Network) -> str:
    d = n.add("Sub", "image", n.add("ReduceMean", "image", axes=[1], keepdims=1))
    v = n.add("ReduceMean", n.add("Mul", d, "image"), axes=[-1], keepdims=1)
    return n.add("Div", d, n.add("Sqrt", n.add("Add", v, n.constant(100.0))))


def _epsilon_for_each(n: Network) -> str:
    v = n.add("ReduceMean", n.add("Mul", "image", "image"), axes=[-1], keepdims=1)
    v = n.add("Add", v, n.constant(np.full((20, 1), 0.1)))
    return n.add("Div", "image", n.add("Sqrt", v))


def _two_axes(n: Network) -> str:
    v = n.add("ReduceMean", n.add("Mul", "image", "image"), axes=[1, 2], keepdims=1)
    return n.add("Div", "image", n.add("Sqrt", n.add("Add", v, n.constant(0.1))))


def _cube(n: Network) -> str:
    v = n.add("ReduceMean", n.add("Pow", "image", n.constant(4.0)), axes=[-1], keepdims=1)
    return n.add("Div", "image", n.add("Sqrt", n.add("Add", v, n.constant(0.1))))


def _turned_over(n: Network) -> str:
    v = n.add("ReduceMean", n.add("Mul", "image", "image"), axes=[-1], keepdims=1)
    return n.add("Div", n.add("Sqrt", n.add("Add", v, n.constant(0.1))), "image")


def _reversed(n: Network) -> str:
    d = n.add("Sub", n.add("ReduceMean", "image", axes=[-1], keepdims=1), "image")
    v = n.add("ReduceMean", n.add("Mul", d, d), axes=[1], keepdims=1)
    return n.add("Mul", d, n.add("Sqrt", n.add("Add", v, n.constant(0.1))))


@pytest.mark.parametrize(
    "change", [_of_another, _epsilon_for_each, _two_axes, _cube, _turned_over, _reversed]
)
def test_what_looks_alike_stays(change) -> None:
    before = _changed(change)
    after = layer_normalisations(before)
    assert not OPERATORS & set(_kinds(after)) and _kinds(after) == _kinds(before)


def test_a_difference_over_another_axis_is_no_centre() -> None:
    """d = x - mean of the columns, normalised over the rows, is a normalisation of d by its squares alone."""
    n = Network("norm", (1, 20, 24), 5)
    d = n.add("Sub", "image", n.add("ReduceMean", "image", axes=[1], keepdims=1))
    v = n.add("Add", n.add("ReduceMean", n.add("Mul", d, d), axes=[-1], keepdims=1), n.constant(1e-5))
    before = n.model(n.add("Div", d, n.add("Sqrt", v)))
    after = layer_normalisations(before)
    assert ROOT_MEAN_SQUARE in _kinds(after) and CENTRED not in _kinds(after)
    x = _values((1, 20, 24))
    np.testing.assert_allclose(_run(after, x), _run(before, x), rtol=1e-5, atol=1e-5)


def test_values_that_others_use_stay() -> None:
    """The mean, the difference and the normalised value are used as well; names do not clash."""
    n = Network("norm", (1, 20, 24), 6)
    mean = n.add("ReduceMean", "image", axes=[-1], keepdims=1)
    d = n.add("Sub", "image", mean)
    v = n.add("Add", n.add("ReduceMean", n.add("Mul", d, d), axes=[-1], keepdims=1), n.constant(1e-5))
    y = n.add("Div", d, n.add("Sqrt", v))
    n.tensors.append(onnx.numpy_helper.from_array(np.ones(24, np.float32), f"{y}_scale"))
    first = n.add("Mul", y, n.constant(np.full(24, 2.0)))
    second = n.add("Add", n.add("Mul", y, f"{y}_scale"), n.add("Add", d, mean))
    before = n.model(n.add("Add", first, second))
    after = layer_normalisations(before)
    assert _kinds(after).count(CENTRED) == 1 and "Sqrt" not in _kinds(after)
    names = [item.name for item in after.graph.initializer]
    assert len(names) == len(set(names))
    x = _values((1, 20, 24))
    np.testing.assert_allclose(_run(after, x), _run(before, x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("shape", "axis", "size", "centred"),
    [
        ((1, 200, 48), -1, 48, True),
        ((1, 200, 48), -1, 48, False),
        ((1, 48, 15, 15), 1, (48, 1, 1), True),
        ((1, 9, 25, 48), -1, 48, True),
    ],
)
def test_the_npu_normalises(shape, axis, size, centred) -> None:
    """All of it is on the NPU; the error is that of fp16 numbers."""
    n = Network("norm", shape, 7)
    proto = n.model(_written(n, "image", axis, size, centred=centred))
    x = _values(shape)
    right = _run(proto, x)
    with rkcosim.load(proto, engine="golden") as model:
        found = model(x)
        assert found.shape == right.shape and np.abs(found - right).max() < 4e-3 * np.abs(right).max()
        assert _on_the_npu(model) and model.check(x)


def test_the_operator_itself_of_four_axes() -> None:
    """Swin and ConvNeXt normalise the channels of maps (1, height, width, channels)."""
    n = Network("norm", (1, 14, 14, 32), 8, opset=17)
    scale, shift = (n.constant(n.rng.normal(size=32)) for _ in range(2))
    proto = n.model(n.add("LayerNormalization", "image", scale, shift))
    x = _values((1, 14, 14, 32))
    right = _run(proto, x)
    with rkcosim.load(proto, engine="golden") as model:
        found = model(x)
        assert np.abs(found - right).max() < 4e-3 * np.abs(right).max() and _on_the_npu(model)


def test_a_small_one_runs_on_the_host_at_any_operator_set() -> None:
    """The host has the operators at operator set 14, where ONNX does not have them yet."""
    for centred in (True, False):
        n = Network("norm", (1, 4, 24), 9)
        proto = n.model(n.relu(_written(n, "image", -1, 24, centred=centred)))
        x = _values((1, 4, 24))
        with rkcosim.load(proto, engine="golden") as model:
            assert np.abs(model(x) - _run(proto, x)).max() < 4e-3
