"""Sessions of onnxruntime with the provider, for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from rkcosim.plugins.library import provider_library
from tests.models.rknn_models import Qdq

NAME = "RkCosim"


def registered() -> None:
    """Register the provider, if it is not yet."""
    import onnxruntime

    if NAME not in onnxruntime.get_available_providers():
        onnxruntime.register_execution_provider_library(NAME, str(provider_library()))


def session(data: bytes | Path, alone: bool = False, **options: Any) -> Any:
    """Return a session with the provider on the golden engine, or of onnxruntime alone."""
    import onnxruntime

    registered()
    providers: list[Any] = ["CPUExecutionProvider"]
    if not alone:
        providers.insert(0, (NAME, {"engine": "golden", **options}))
    return onnxruntime.InferenceSession(data if isinstance(data, bytes) else str(data), providers=providers)


def inputs_of(made: Any, seed: int, sizes: Mapping[str, int] | None = None) -> dict[str, np.ndarray]:
    """Draw float32 values for each input; `sizes` are those of open dimensions."""
    rng = np.random.default_rng(seed)
    shapes = {item.name: [(sizes or {}).get(size, size) for size in item.shape] for item in made.get_inputs()}
    return {name: rng.normal(0, 20, shape).astype(np.float32) for name, shape in shapes.items()}


def results(made: Any, values: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Run one inference."""
    found: list[np.ndarray] = made.run(None, dict(values))
    return found


def divided() -> bytes:
    """Return two convolutions with an operator between them that the NPU does not have, and two outputs."""
    net = Qdq()
    x = net.conv(net.input("x", (1, 8, 6, 6)), 8, 8)
    between = net.coded(net.node("CumSum", x, net.constant(2, np.int64)), 1.0, 0)
    net.output(net.conv(between, 8, 8), "y", (1, 8, 6, 6))
    net.output(x, "z", (1, 8, 6, 6))
    return net.bytes()


def floats(shape: Sequence[int | str] = (1, 3, 6, 10), body: bool = False) -> bytes:
    """Return a 3x3 convolution of floats with LeakyRelu and Relu; with `body`, an If behind it."""
    rng = np.random.default_rng(5)
    weights = rng.integers(-9, 10, (8, 3, 3, 3)).astype(np.float32) / 4
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], name="conv", auto_pad="SAME_UPPER", strides=[2, 2]),
        helper.make_node("LeakyRelu", ["a"], ["b"], name="leaky", alpha=0.25),
        helper.make_node("MaxPool", ["b"], ["y"], name="pool", kernel_shape=[2, 2]),
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", "c", "h", "w"])]
    tensors = [helper.make_tensor("w", TensorProto.FLOAT, weights.shape, weights.tobytes(), raw=True)]
    if body:
        branches = {
            name: helper.make_graph(
                [helper.make_node(op, ["y"], [name], name=name)],
                name,
                [],
                [helper.make_tensor_value_info(name, TensorProto.FLOAT, None)],
            )
            for name, op in (("then_branch", "Neg"), ("else_branch", "Relu"))
        }
        nodes += [
            helper.make_node("ReduceMax", ["y"], ["largest"], name="max", keepdims=0),
            helper.make_node("Greater", ["largest", "zero"], ["positive"], name="greater"),
            helper.make_node("If", ["positive"], ["end"], name="if", **branches),
        ]
        tensors.append(helper.make_tensor("zero", TensorProto.FLOAT, (), [0.0]))
        outputs = [helper.make_tensor_value_info("end", TensorProto.FLOAT, ["n", "c", "h", "w"])]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    graph = helper.make_graph(nodes, "floats", inputs, outputs, tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    return bytes(model.SerializeToString())
