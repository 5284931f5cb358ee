"""ONNX files: open shapes, chosen outputs, folded constants, operators on codes, parts for the host."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import InferenceSession

from rkcosim.compiler import CompiledModel, LoadedModel, ModelError, compile_model
from rkcosim.compiler.host_runtimes import exact_options
from rkcosim.compiler.loaders.onnx_file import planned_shapes, read_onnx
from rkcosim.compiler.loaders.onnx_fold import fold_plainly
from rkcosim.compiler.options import LoadOptions, using_options
from rkcosim.compiler.steps import CallStep, HostStep
from rkcosim.driver import Driver
from rkcosim.golden.task import GoldenNpu
from rkcosim.verify.crosscheck.model_check import ModelChecker
from tests.makers.ort_scripts import flattened

FLOAT = TensorProto.FLOAT
RNG = np.random.default_rng(21)


def value(name: str, shape: Any, kind: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def model(
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    outputs: dict[str, int],
    constants: dict[str, Any] | None = None,
    opset: int = 17,
) -> bytes:
    """A model; `outputs` gives the rank of each."""
    tensors = [numpy_helper.from_array(np.asarray(array), name) for name, array in (constants or {}).items()]
    ends = [value(name, [f"{name}{axis}" for axis in range(rank)]) for name, rank in outputs.items()]
    graph = helper.make_graph(nodes, "g", inputs, ends, tensors)
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString()


def weights(*shape: int) -> np.ndarray:
    return (RNG.normal(size=shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)


def run(compiled: CompiledModel, *arrays: np.ndarray) -> list[np.ndarray]:
    """Run on the golden engine; both golden levels must agree."""
    with Driver(GoldenNpu(1)) as driver, LoadedModel(compiled, driver) as loaded:
        for index, array in enumerate(arrays):
            loaded.set_input(index, array)
        loaded.run()
        verdict = ModelChecker(loaded).check(list(arrays))
        assert verdict.match, verdict.first
        return [loaded.get_output(index) for index in range(len(compiled.outputs))]


def check(data: bytes, *arrays: np.ndarray, near: float = 4e-3) -> CompiledModel:
    """Compile with all tensors kept, run, and compare with onnxruntime relative to the largest value."""
    compiled = compile_model(data, reuse=False)
    session = InferenceSession(data, exact_options(onnxruntime), providers=["CPUExecutionProvider"])
    feed = {item.name: array for item, array in zip(session.get_inputs(), arrays, strict=True)}
    for ours, theirs in zip(run(compiled, *arrays), session.run(None, feed), strict=True):
        assert ours.shape == theirs.shape
        largest = max(float(np.abs(theirs).max(initial=0)), 1e-3)
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=near * largest)
    return compiled


def on_npu(compiled: CompiledModel) -> list[str]:
    return [step.kind for step in compiled.plan.steps if not isinstance(step, HostStep)]


def on_host(compiled: CompiledModel) -> list[list[str]]:
    calls = [step for step in compiled.plan.steps if isinstance(step, CallStep)]
    return [[item.kind for item in step.program.operators] for step in calls]


def test_unknown_operators_between_convolutions() -> None:
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w1"], ["a"], pads=[1, 1, 1, 1]),
        node("Cosh", ["a"], ["b"]),
        node("Atan", ["b"], ["c"]),
        node("Conv", ["c", "w2"], ["d"]),
        node("Sin", ["b"], ["e"]),
        node("Add", ["d", "e"], ["y"]),
    ]
    constants = {"w1": weights(16, 8, 3, 3), "w2": weights(16, 16, 1, 1)}
    data = model(nodes, [value("x", [1, 8, 12, 12])], {"y": 4}, constants)
    compiled = check(data, RNG.normal(size=(1, 8, 12, 12)).astype(np.float32))
    assert on_npu(compiled) == ["Conv", "Conv", "Add"]
    assert on_host(compiled) == [["Cosh", "Atan", "Sin"]]
    words = "unsupported operators: Cosh 'b', Atan 'c', Sin 'e'"
    with using_options(fallback=False), pytest.raises(ModelError, match=words):
        compile_model(data)
    with using_options(floats="host"):
        compiled = compile_model(data)
    assert not compiled.plan.tasks and len(compiled.plan.steps) == 1


def test_integers_branches_and_shapes_that_depend_on_data() -> None:
    node = helper.make_node
    then = helper.make_graph([node("Mul", ["a", "two"], ["t"])], "then", [], [value("t", [1, 8, 4, 4])])
    other = helper.make_graph([node("Neg", ["a"], ["o"])], "else", [], [value("o", [1, 8, 4, 4])])
    nodes = [
        node("Conv", ["x", "w"], ["a"]),
        node("Greater", ["n", "three"], ["many"]),
        node("If", ["many"], ["b"], then_branch=then, else_branch=other),
        node("Conv", ["b", "w"], ["y"]),
        node("NonZero", ["n"], ["z"]),
    ]
    x = RNG.normal(size=(1, 8, 4, 4)).astype(np.float32)
    constants = {"w": weights(8, 8, 1, 1), "two": np.float32(2), "three": np.int64(3)}
    inputs = [value("x", list(x.shape)), value("n", [], TensorProto.INT64)]
    data = onnx.load_model_from_string(model(nodes, inputs, {"y": 4, "z": 2}, constants))
    data.graph.output[1].type.tensor_type.elem_type = TensorProto.INT64
    for count in (0, 7):
        compiled = check(data.SerializeToString(), x, np.array(count))
    assert on_npu(compiled) == ["Conv", "Conv"]
    assert [info.dtype for info in compiled.inputs] == [np.float16, np.int64]


def test_open_dimensions(capsys: pytest.CaptureFixture[str]) -> None:
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w"], ["a"], strides=[2, 2], kernel_shape=[1, 1]),
        node("Shape", ["a"], ["s"]),
        node("Gather", ["s", "places"], ["rows"]),
        node("Concat", ["front", "rows"], ["to"], axis=0),
        node("Reshape", ["a", "to"], ["y"]),
    ]
    constants = {"w": weights(8, 3, 1, 1), "places": np.array([2, 3]), "front": np.array([1, 8])}
    data = model(nodes, [value("x", ["n", 3, "h", "w_"])], {"y": 4}, constants)
    assert compile_model(data).inputs[0].shape == (1, 3, 224, 224)
    assert (
        "input 'x' has open dimensions: 1,3,224,224 is used (--shape changes it)" in capsys.readouterr().err
    )
    with using_options(shapes={"x": (1, 3, 16, 20)}):
        compiled = check(data, RNG.normal(size=(1, 3, 16, 20)).astype(np.float32))
    assert compiled.outputs[0].shape == (1, 8, 8, 10) and on_npu(compiled) == ["Conv"]
    for shapes, words in (
        ({"x": (1, 4, 8, 8)}, r"does not fit input 'x' of shape \[n, 3, h, w_\]"),
        ({"image": (1, 3, 8, 8)}, "no input 'image', only x"),
    ):
        with using_options(shapes=shapes), pytest.raises(ModelError, match=words):
            compile_model(data)


def test_values_that_are_too_large_are_refused_before_they_are_allocated() -> None:
    node = helper.make_node
    nodes = [
        node("ConstantOfShape", ["size"], ["big"]),
        node("ReduceSum", ["big"], ["s"]),
        node("Add", ["x", "s"], ["y"]),
    ]
    data = model(nodes, [value("x", [1, 8])], {"y": 2}, {"size": np.array([1 << 20, 1 << 14])})
    with pytest.raises(ModelError, match=r"'big' of shape \(1048576, 16384\) is too large"):
        compile_model(data)


def test_chosen_outputs() -> None:
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w"], ["features"]),
        node("Relu", ["features"], ["r"]),
        node("NonMaxSuppression", ["boxes", "scores"], ["y"]),
    ]
    inputs = [value("x", [1, 3, 8, 8]), value("boxes", [1, 4, 4]), value("scores", [1, 1, 4])]
    data = model(nodes, inputs, {"y": 2}, {"w": weights(8, 3, 1, 1)})
    with using_options(outputs=("features",)):
        compiled = compile_model(data)
    assert [info.name for info in compiled.inputs] == ["x"]
    assert [info.name for info in compiled.outputs] == ["features"] and on_npu(compiled) == ["Conv"]
    words = "computes 'feature'; similar names: features"
    with using_options(outputs=("feature",)), pytest.raises(ModelError, match=words):
        compile_model(data)


def paddle() -> bytes:
    """What Paddle's exporter writes: parameters as Constant nodes, divisions, BN apart from a Conv."""
    node = helper.make_node
    parameters = {
        "w": weights(8, 8, 1, 1),
        "gamma": np.linspace(0.5, 1.5, 8, dtype=np.float32),
        "beta": np.linspace(-1, 1, 8, dtype=np.float32),
        "mean": np.linspace(-0.2, 0.2, 8, dtype=np.float32),
        "variance": np.linspace(0.5, 2, 8, dtype=np.float32),
        "six": np.float32(6),
        "one": np.float32(1),
    }
    nodes = [
        node("Constant", [], [name], value=numpy_helper.from_array(np.asarray(array)))
        for name, array in parameters.items()
    ]
    norm = ["gamma", "beta", "mean", "variance"]
    nodes += [
        node("Conv", ["x", "w"], ["a"]),
        node("BatchNormalization", ["a", *norm], ["b"]),
        node("Div", ["b", "six"], ["c"]),
        node("Sub", ["one", "c"], ["d"]),
        node("MaxPool", ["d"], ["e"], kernel_shape=[2, 2]),
        node("BatchNormalization", ["e", *norm], ["y"]),
    ]
    return model(nodes, [value("x", [1, 8, 6, 6])], {"y": 4}, opset=11)


@pytest.mark.parametrize("fold", [True, False])
def test_constants_division_and_normalisation(fold: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    with using_options(fold=fold):
        compiled = check(paddle(), RNG.normal(size=(1, 8, 6, 6)).astype(np.float32))
    assert not on_host(compiled)
    assert on_npu(compiled) == ["Conv", "MaxPool", "DepthwiseConv"]


def test_folding_without_onnxruntime(monkeypatch: pytest.MonkeyPatch) -> None:
    node = helper.make_node
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Slice", ["s", "zero", "one"], ["n"]),
        node("Concat", ["n", "rest"], ["to"], axis=0),
        node("Reshape", ["x", "to"], ["y"]),
    ]
    constants = {"zero": np.array([0]), "one": np.array([1]), "rest": np.array([2, -1])}
    proto = onnx.load_model_from_string(model(nodes, [value("x", [1, 8, 2, 2])], {"y": 3}, constants))
    assert [item.op_type for item in fold_plainly(proto).graph.node] == ["Reshape"]
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    read = read_onnx(proto.SerializeToString(), LoadOptions())
    assert [item.op_type for item in read.graph.node] == ["Reshape"]
    read = read_onnx(proto.SerializeToString(), LoadOptions(fold=False))
    assert [item.op_type for item in read.graph.node] == ["Shape", "Slice", "Concat", "Reshape"]
    softplus = model([node("Cosh", ["x"], ["y"])], [value("x", [1, 8])], {"y": 2})
    with pytest.raises(
        ModelError, match=r"Cosh 'y': .*onnxruntime, which is not installed: .*rkcosim\[onnx\]"
    ):
        compile_model(softplus)


def test_operators_on_codes() -> None:
    node = helper.make_node
    nodes = [
        node("QuantizeLinear", ["x", "xs", "xz"], ["xq"]),
        node("QLinearConv", ["xq", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b"], ["cq"], pads=[1, 1, 1, 1]),
        node("QLinearAdd", ["cq", "ys", "yz", "cq", "ys", "yz", "ss", "yz"], ["sq"], domain="com.microsoft"),
        node("DequantizeLinear", ["sq", "ss", "yz"], ["y"]),
    ]
    constants = {
        "xs": np.float32(0.03),
        "xz": np.uint8(120),
        "w": RNG.integers(-127, 128, (8, 3, 3, 3), dtype=np.int8),
        "ws": np.linspace(0.002, 0.01, 8, dtype=np.float32),
        "wz": np.zeros(8, np.int8),
        "b": RNG.integers(-500, 500, 8, dtype=np.int32),
        "ys": np.float32(0.05),
        "yz": np.uint8(128),
        "ss": np.float32(0.08),
    }
    data = model(nodes, [value("x", [1, 3, 8, 8])], {"y": 4}, constants)
    compiled = check(data, RNG.normal(size=(1, 3, 8, 8)).astype(np.float32), near=0.03)
    assert on_npu(compiled) == ["Conv", "Add"] and not on_host(compiled)


def test_half_precision_and_mixed() -> None:
    node = helper.make_node
    nodes = [
        node("Cast", ["x"], ["h"], to=TensorProto.FLOAT16),
        node("Conv", ["h", "w"], ["a"]),
        node("Cosh", ["a"], ["b"]),
        node("Cast", ["b"], ["y"], to=FLOAT),
    ]
    data = model(nodes, [value("x", [1, 8, 5, 5])], {"y": 4}, {"w": weights(8, 8, 1, 1).astype(np.float16)})
    compiled = check(data, RNG.normal(size=(1, 8, 5, 5)).astype(np.float32))
    assert on_npu(compiled) == ["Conv"]


def test_a_matrix_that_is_flattened_keeps_its_order() -> None:
    node = helper.make_node
    nodes = [
        node("Add", ["x", "c"], ["a"]),
        node("Flatten", ["a"], ["f"], axis=0),
        node("MatMul", ["f", "w"], ["y"]),
    ]
    constants = {"c": RNG.normal(size=(3, 4)).astype(np.float32), "w": weights(12, 5)}
    check(model(nodes, [value("x", [3, 4])], {"y": 2}, constants), RNG.normal(size=(3, 4)).astype(np.float32))


def test_an_operation_that_cannot_be_planned_goes_to_the_host() -> None:
    node = helper.make_node
    nodes = [node("Conv", ["x", "w"], ["a"], dilations=[2, 1]), node("Conv", ["a", "v"], ["y"])]
    constants = {"w": weights(4, 3, 33, 3), "v": weights(8, 4, 1, 1)}
    data = model(nodes, [value("x", [1, 3, 80, 8])], {"y": 4}, constants)
    compiled = check(data, RNG.normal(size=(1, 3, 80, 8)).astype(np.float32))
    assert sum(map(len, on_host(compiled))) + len(on_npu(compiled)) == 2


def test_planned_shapes_fit_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """One size for each open dimension, and from it the shapes of all values, computed sizes among them."""
    found = planned_shapes(flattened())
    assert found["x"] == (1, 3, 6, 8) and found["a"] == (1, 4, 4, 6) and found["b"] == (1, 96)
    assert (found["sizes"], found["first"], found["flat"], found["y"]) == ((4,), (), (2,), (1, 5))
    monkeypatch.setattr("rkcosim.compiler.loaders.onnx_file.shapes_of_run", lambda proto: None)
    inferred = planned_shapes(flattened())  # without onnxruntime
    assert inferred and inferred.items() <= found.items() and inferred["a"] == found["a"]
