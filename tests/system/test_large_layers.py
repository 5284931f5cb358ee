"""Layers with more channels than a task has, against onnxruntime."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

pytest.importorskip("onnx", reason="needs the extra onnx")

import onnxruntime
from onnx import NodeProto, TensorProto, helper, numpy_helper

from rkcosim.compiler import compile_model
from rkcosim.compiler.steps import HostStep
from tests.system.golden_runs import checked_run

RNG = np.random.default_rng(8192)


def test_vocabulary() -> None:
    """A product with more than 8192 columns is divided among tasks by its kernels."""
    constants = {"w": RNG.normal(size=(16, 8210)), "b": RNG.normal(size=8210)}
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Add", ["m", "b"], ["y"])]
    data = _model(nodes, {"x": [1, 3, 16]}, [1, 3, 8210], constants)
    model, x = compile_model(data), RNG.normal(size=(1, 3, 16)).astype(np.float32)
    assert not [step for step in model.plan.steps if isinstance(step, HostStep)]
    _check(data, checked_run(model, [x]), {"x": x})


def test_concat_of_many_channels() -> None:
    """The host joins them where a convolution of ones would have gigabytes of weights."""
    shapes = {"x": [1, 45411 - 1372], "z": [1, 1372]}
    nodes = [helper.make_node("Relu", [name], [f"{name}r"]) for name in shapes]
    nodes.append(helper.make_node("Concat", ["xr", "zr"], ["c"], axis=1))
    nodes.append(helper.make_node("Neg", ["c"], ["y"]))
    data = _model(nodes, shapes, [1, 45411], {})
    model = compile_model(data)
    (step,) = [step for step in model.plan.steps if isinstance(step, HostStep)]
    assert step.function == "Concat"
    feeds = {
        name: RNG.normal(size=shape).astype(np.float16).astype(np.float32) for name, shape in shapes.items()
    }
    _check(data, checked_run(model, list(feeds.values())), feeds)


def _model(
    nodes: list[NodeProto],
    shapes: dict[str, list[int]],
    result: list[int],
    constants: dict[str, npt.NDArray[np.float64]],
) -> bytes:
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items()]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, result)
    numbers = [numpy_helper.from_array(a.astype(np.float32), name) for name, a in constants.items()]
    graph = helper.make_graph(nodes, "large", inputs, [output], numbers)
    opset = [helper.make_opsetid("", 17)]
    return bytes(helper.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString())


def _check(data: bytes, got: npt.NDArray[np.float16], feeds: dict[str, npt.NDArray[np.float32]]) -> None:
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    want = session.run(None, feeds)[0]
    assert np.abs(got.astype(np.float64).reshape(want.shape) - want).max() <= 1e-3 * np.abs(want).max()
