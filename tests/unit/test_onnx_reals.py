"""Operators that are others in disguise run on the NPU, and have onnxruntime's values."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx", reason="needs the extra onnx")

import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic

from rkcosim.compiler import compile_model
from rkcosim.compiler.graph import ModelError
from rkcosim.compiler.steps import CallStep, HostStep
from tests.system.golden_runs import checked_run

FLOAT = TensorProto.FLOAT
RNG = np.random.default_rng(66)


def model_of(
    nodes: list[onnx.NodeProto],
    shapes: tuple[list[int], list[int]],
    constants: dict[str, np.ndarray],
    source: int = FLOAT,
) -> onnx.ModelProto:
    ends = [
        helper.make_tensor_value_info(n, t, s) for n, t, s in zip("xy", (source, FLOAT), shapes, strict=True)
    ]
    numbers = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], numbers)
    opsets = [("", 17), ("ai.onnx.ml", 3), ("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=[helper.make_opsetid(*o) for o in opsets], ir_version=8)


def check(model: onnx.ModelProto | bytes, x: np.ndarray, worst: float, hosted: int = 0) -> None:
    """All but some steps on the NPU, with onnxruntime's output up to a part of its largest magnitude."""
    data = model if isinstance(model, bytes) else model.SerializeToString()
    compiled = compile_model(data)
    assert sum(isinstance(step, HostStep | CallStep) for step in compiled.plan.steps) == hosted
    want = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"]).run(["y"], {"x": x})[0]
    if isinstance(want, list):
        want = np.array([list(row.values()) for row in want])
    got = checked_run(compiled, [x]).astype(np.float64).reshape(want.shape)
    assert np.abs(got - want).max() <= worst * np.abs(want).max()


@pytest.mark.parametrize("source", [FLOAT, TensorProto.INT64])
def test_scaler_and_zip_map(source: int) -> None:
    """A classifier as skl2onnx writes it: Scaler, Cast, layers, Softmax, and names for the columns."""
    constants = {"w": RNG.normal(size=(6, 9)), "v": RNG.normal(size=(9, 3))}
    offset, scale = RNG.normal(size=6) * 5, RNG.uniform(0.1, 0.3, 6)
    nodes = [
        helper.make_node("Scaler", ["x"], ["a"], "s", domain="ai.onnx.ml", offset=offset, scale=scale),
        helper.make_node("Cast", ["a"], ["b"], "c", to=FLOAT),
        helper.make_node("MatMul", ["b", "w"], ["d"], "m"),
        helper.make_node("Tanh", ["d"], ["e"], "t"),
        helper.make_node("MatMul", ["e", "v"], ["f"], "n"),
        helper.make_node("ZipMap", ["f"], ["y"], "z", domain="ai.onnx.ml", classlabels_int64s=[3, 5, 8]),
    ]
    model = model_of(nodes, ([1, 6], [1, 3]), {k: v.astype(np.float32) for k, v in constants.items()}, source)
    kind = helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(FLOAT, None))
    model.graph.output[0].type.CopyFrom(helper.make_sequence_type_proto(kind))
    x = RNG.integers(-9, 9, (1, 6))
    whole = source != FLOAT  # the host makes floats of integers
    check(model, x if whole else x.astype(np.float32), 2e-3, hosted=int(whole))


@pytest.mark.parametrize("kind", ["MatMul", "Conv"])
@pytest.mark.parametrize("per_channel", [False, True])
def test_dynamic_quantisation(tmp_path: Path, kind: str, per_channel: bool) -> None:
    """Files of quantize_dynamic: the same but for the rounding of the inputs, which onnxruntime has alone."""
    if kind == "Conv":
        shapes, weights = ([1, 5, 9, 7], [1, 12, 9, 7]), RNG.normal(size=(12, 5, 3, 3))
        nodes = [helper.make_node("Conv", ["x", "w", "b"], ["y"], "layer", pads=[1] * 4)]
    else:
        shapes, weights = ([1, 20], [1, 12]), RNG.normal(size=(20, 12))
        product = helper.make_node("MatMul", ["x", "w"], ["p"], "layer")
        nodes = [product, helper.make_node("Add", ["p", "b"], ["y"], "sum")]
    constants = {"w": weights.astype(np.float32), "b": RNG.normal(size=12).astype(np.float32)}
    onnx.save(model_of(nodes, shapes, constants), tmp_path / "m.onnx")
    made = tmp_path / "q.onnx"
    quantize_dynamic(
        tmp_path / "m.onnx",
        made,
        per_channel=per_channel,
        weight_type=QuantType.QUInt8,
        op_types_to_quantize=[kind],
    )
    assert any(node.op_type == f"{kind}Integer" for node in onnx.load(made).graph.node)
    check(made.read_bytes(), RNG.normal(size=shapes[0]).astype(np.float32), 0.02)


def test_bias_in_steps() -> None:
    """Older files add the bias of a convolution as a whole number of steps, before the scales."""
    constants: dict[str, np.ndarray] = {
        "w": RNG.integers(0, 256, (8, 4, 3, 3)).astype(np.uint8),
        "wz": np.array(130, np.uint8),
        "ws": np.array(0.01, np.float32),
        "b": RNG.normal(size=8).astype(np.float32) * 4,
        "shape": np.array([1, -1, 1, 1]),
    }
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"], "quantise"),
        helper.make_node("Mul", ["s", "ws"], ["bs"], "scale"),
        helper.make_node("Div", ["b", "bs"], ["b1"], "div"),
        helper.make_node("Floor", ["b1"], ["b2"], "floor"),
        helper.make_node("Cast", ["b2"], ["b3"], "whole", to=TensorProto.INT32),
        helper.make_node("Reshape", ["b3", "shape"], ["b4"], "reshape"),
        helper.make_node("ConvInteger", ["q", "w", "z", "wz"], ["c"], "conv"),
        helper.make_node("Add", ["c", "b4"], ["d"], "add"),
        helper.make_node("Cast", ["d"], ["e"], "cast", to=FLOAT),
        helper.make_node("Mul", ["s", "ws"], ["both"], "scales"),
        helper.make_node("Mul", ["e", "both"], ["y"], "mul"),
    ]
    x = RNG.normal(size=(1, 4, 8, 8)).astype(np.float32)
    check(model_of(nodes, ([1, 4, 8, 8], [1, 8, 6, 6]), constants), x, 0.02)


@pytest.mark.parametrize("whole", [True, False])
def test_products_of_one_node(whole: bool) -> None:
    """Files that onnxruntime optimised: scales, zero points and bias are inputs of the product."""
    constants: dict[str, np.ndarray] = {
        "w": RNG.integers(0, 256, (24, 10)).astype(np.uint8),
        "wz": np.array(120, np.uint8),
        "ws": np.array(0.02, np.float32),
        "b": RNG.normal(size=10).astype(np.float32),
    }
    kind, names = "DynamicQuantizeMatMul", ["x", "w", "ws", "wz", "b"]
    nodes = []
    if not whole:
        nodes.append(helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"], "quantise"))
        kind, names = "MatMulIntegerToFloat", ["q", "w", "s", "ws", "z", "wz", "b"]
    nodes.append(helper.make_node(kind, names, ["y"], "product", domain="com.microsoft"))
    x = RNG.normal(size=(3, 24)).astype(np.float32)
    check(model_of(nodes, ([3, 24], [3, 10]), constants), x, 0.02)


@pytest.mark.parametrize("shape", [[1, 12], [1, 12, 20]], ids=["row", "signal"])
def test_batch_normalisation_alone(shape: list[int]) -> None:
    """Of rows and of signals, not behind a convolution."""
    constants = {name: RNG.normal(size=12).astype(np.float32) for name in ("g", "b", "m")}
    constants["v"] = RNG.uniform(0.2, 3, 12).astype(np.float32)
    nodes = [
        helper.make_node("Relu", ["x"], ["r"], "relu"),
        helper.make_node("BatchNormalization", ["r", "g", "b", "m", "v"], ["y"], "norm"),
    ]
    check(model_of(nodes, (shape, shape), constants), RNG.normal(size=shape).astype(np.float32), 2e-3)


def test_outputs_that_are_no_numbers() -> None:
    """Labels as strings are refused by name when the file is read."""
    names = {"classlabels_strings": ["a", "b"], "coefficients": [1.0, -1.0], "intercepts": [0.0, 0.0]}
    made = helper.make_node("LinearClassifier", ["x"], ["y", "scores"], "l", domain="ai.onnx.ml", **names)
    model = model_of([made], ([1, 1], [1]), {})
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.STRING
    with pytest.raises(ModelError, match=r"output 'y' is a tensor of strings; .*--outputs"):
        compile_model(model.SerializeToString())
