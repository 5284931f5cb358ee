"""Sessions of onnxruntime with the provider, for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from rkcosim.apis.ort.library import provider_library
from tests.makers.rknn_models import Qdq

NAME = "RkCosim"


def registered() -> None:
    """Register the provider, if it is not yet."""
    import onnxruntime

    if NAME not in onnxruntime.get_available_providers():
        onnxruntime.register_execution_provider_library(NAME, str(provider_library()))


def session(data: bytes | Path, alone: bool = False, plain: bool = False, **options: Any) -> Any:
    """Return a session with the provider on the golden engine, or of onnxruntime alone.

    With `plain` onnxruntime does not optimise the graph.
    """
    import onnxruntime

    registered()
    providers: list[Any] = ["CPUExecutionProvider"]
    if not alone:
        providers.insert(0, (NAME, {"engine": "golden", **options}))
    chosen = onnxruntime.SessionOptions()
    if plain:
        chosen.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(
        data if isinstance(data, bytes) else str(data), chosen, providers=providers
    )


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


def bodies(kind: str) -> bytes:
    """Return a convolution and an If, Loop or Scan whose body has one too, with constants of the outer graph.

    The body also takes the first convolution's result, which nothing else reads if `kind` is "If".
    """
    rng = np.random.default_rng(6)
    weights = {
        name: rng.integers(-9, 10, shape).astype(np.float32) / 64
        for name, shape in (("v", (8, 3, 3, 3)), ("w", (8, 8, 3, 3)))
    }
    tensors = [
        helper.make_tensor(n, TensorProto.FLOAT, w.shape, w.tobytes(), raw=True) for n, w in weights.items()
    ]
    nodes = [helper.make_node("Conv", ["x", "v"], ["y"], name="first", auto_pad="SAME_UPPER")]
    map_type = helper.make_tensor_type_proto(TensorProto.FLOAT, (1, 8, 6, 10))

    def declared(name: str, element: int = TensorProto.FLOAT, shape: Sequence[int] = ()) -> Any:
        return helper.make_tensor_value_info(name, element, shape)

    def body(name: str, source: str, op: str) -> list[Any]:
        inner = helper.make_node(
            "Conv", [source, "w"], [f"{name}_c"], name=f"{name}_conv", auto_pad="SAME_UPPER"
        )
        return [inner, helper.make_node(op, [f"{name}_c"], [name], name=name)]

    outputs = [helper.make_value_info("end", map_type)]
    if kind == "If":
        branches = {
            f"{name}_branch": helper.make_graph(
                body(name, "y", op), name, [], [helper.make_value_info(name, map_type)]
            )
            for name, op in (("then", "Relu"), ("else", "Neg"))
        }
        tensors.append(helper.make_tensor("zero", TensorProto.FLOAT, (), [0.0]))
        nodes += [
            helper.make_node("ReduceMax", ["x"], ["largest"], name="max", keepdims=0),
            helper.make_node("Greater", ["largest", "zero"], ["positive"], name="greater"),
            helper.make_node("If", ["positive"], ["end"], name="if", **branches),
        ]
    elif kind == "Loop":
        tensors.append(helper.make_tensor("count", TensorProto.INT64, (), [3]))
        inside = [*body("next", "state", "Relu"), helper.make_node("Identity", ["on"], ["go"], name="go")]
        takes = [declared("turn", TensorProto.INT64), declared("on", TensorProto.BOOL)]
        graph = helper.make_graph(
            inside,
            "loop",
            [*takes, helper.make_value_info("state", map_type)],
            [declared("go", TensorProto.BOOL), helper.make_value_info("next", map_type)],
        )
        nodes.append(helper.make_node("Loop", ["count", "", "y"], ["end"], name="loop", body=graph))
    else:
        inside = [
            helper.make_node("Add", ["state", "row"], ["sum"], name="add"),
            *body("next", "sum", "Relu"),
        ]
        inside.append(
            helper.make_node("ReduceMean", ["next"], ["mean"], name="mean", axes=[1, 2, 3], keepdims=0)
        )
        graph = helper.make_graph(
            inside,
            "scan",
            [helper.make_value_info("state", map_type), declared("row", shape=(1, 1, 10))],
            [helper.make_value_info("next", map_type), declared("mean", shape=(1,))],
        )
        rows = rng.integers(-3, 4, (4, 1, 1, 10)).astype(np.float32)
        tensors.append(helper.make_tensor("rows", TensorProto.FLOAT, rows.shape, rows.tobytes(), raw=True))
        names = ["end", "means"]
        nodes.append(
            helper.make_node("Scan", ["y", "rows"], names, name="scan", body=graph, num_scan_inputs=1)
        )
        outputs.append(declared("means", shape=(4, 1)))
    made = helper.make_graph(nodes, kind, [declared("x", shape=(1, 3, 6, 10))], outputs, tensors)
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    return bytes(model.SerializeToString())


def flattened() -> bytes:
    """Return a convolution and a product with a Reshape to computed sizes between them, for any batch."""
    rng = np.random.default_rng(7)
    arrays = {
        "w": rng.integers(-9, 10, (4, 3, 3, 3)).astype(np.float32) / 4,
        "m": rng.integers(-9, 10, (4 * 4 * 6, 5)).astype(np.float32) / 64,
        "zero": np.array(0, np.int64),
        "rest": np.array([-1], np.int64),
        "axis": np.array([0], np.int64),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], name="conv"),
        helper.make_node("Shape", ["a"], ["sizes"], name="shape"),
        helper.make_node("Gather", ["sizes", "zero"], ["first"], name="gather", axis=0),
        helper.make_node("Unsqueeze", ["first", "axis"], ["one"], name="unsqueeze"),
        helper.make_node("Concat", ["one", "rest"], ["flat"], name="concat", axis=0),
        helper.make_node("Reshape", ["a", "flat"], ["b"], name="reshape"),
        helper.make_node("MatMul", ["b", "m"], ["y"], name="product"),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, 6, 8])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 5])]
    tensors = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    graph = helper.make_graph(nodes, "flattened", inputs, outputs, tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    return bytes(model.SerializeToString())
