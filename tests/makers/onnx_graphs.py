"""Short ONNX graphs of floats, and onnxruntime's results of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Shape = Sequence[int]


def halves(*shape: int, seed: int = 0) -> Any:
    """Return normal numbers of fp16 as float32."""
    return np.random.default_rng(seed).normal(size=shape).astype(np.float16).astype(np.float32)


def network(
    nodes: Sequence[onnx.NodeProto],
    inputs: Shape | Mapping[str, Shape],
    constants: Mapping[str, Any] | None = None,
    outputs: Sequence[str] = ("y",),
) -> onnx.ModelProto:
    """Return a model of operator set 17: `inputs` are the shape of "x", or the shapes of several inputs."""
    value = helper.make_tensor_value_info
    given = inputs if isinstance(inputs, Mapping) else {"x": inputs}
    graph = helper.make_graph(
        nodes,
        "network",
        [value(name, TensorProto.FLOAT, shape) for name, shape in given.items()],
        [value(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in (constants or {}).items()],
    )
    for number, node in enumerate(graph.node):
        node.name = node.name or f"{node.op_type.lower()}{number}"
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


def drawn(proto: onnx.ModelProto, seed: int = 1) -> dict[str, Any]:
    """Return numbers of fp16 for the inputs of a model."""
    return {
        item.name: halves(*(dim.dim_value for dim in item.type.tensor_type.shape.dim), seed=seed + number)
        for number, item in enumerate(proto.graph.input)
    }


def theirs(data: bytes, inputs: Mapping[str, Any]) -> Any:
    """Return onnxruntime's first output, with exact sums of products of codes."""
    import onnxruntime

    from rkcosim.compiler.host_runtimes import exact_options

    session = onnxruntime.InferenceSession(
        data, exact_options(onnxruntime), providers=["CPUExecutionProvider"]
    )
    return session.run(None, dict(inputs))[0]
