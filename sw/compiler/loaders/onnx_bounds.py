"""Bounds of what an ONNX file becomes, looked at before a library reads more than its bytes.

A file of a few kilobytes can call functions that call functions, which libraries expand without a
limit. (Bodies inside of bodies are bounded by protobuf: at most 33 levels.)
"""

from __future__ import annotations

from collections import Counter

import onnx

from rkcosim.compiler.graph import ModelError
from rkcosim.compiler.host_runtimes import onnx_nodes

MOST_NODES = 200_000
"""Nodes of a model after all functions are expanded; large language models have some thousands."""


def check_bounds(proto: onnx.ModelProto) -> None:
    """Check opsets, dimensions of inputs, and the number of nodes with functions expanded.

    Raises
    ------
    ModelError
        The message names the function, node, input or opset.
    """
    newest = onnx.defs.onnx_opset_version()
    for item in proto.opset_import:
        if item.domain in ("", "ai.onnx") and not 1 <= item.version <= newest:
            raise ModelError(f"opset {item.version} is not known; the package onnx has 1 to {newest}")
    for info in proto.graph.input:
        for place, dim in enumerate(info.type.tensor_type.shape.dim):
            if dim.dim_value < -1:  # -1 is what some exporters write for an open dimension
                raise ModelError(f"input '{info.name}': dimension {place} is {dim.dim_value}")
    _check_functions(proto)


def _check_functions(proto: onnx.ModelProto) -> None:
    functions = {(item.domain, item.name): item for item in proto.functions}
    calls = {
        key: Counter((node.domain, node.op_type) for node in onnx_nodes(item))
        for key, item in functions.items()
    }
    sizes: dict[tuple[str, str], int] = {}
    waiting = list(functions)
    while waiting:  # a function's size is known once those of all that it calls are
        later = []
        for key in waiting:
            if all(inner in sizes for inner in calls[key] if inner in functions):
                sizes[key] = _expanded(calls[key], sizes)
            else:
                later.append(key)
        if len(later) == len(waiting):
            raise ModelError(f"function '{later[0][1]}' calls itself, or a function that calls it")
        waiting = later
    total = _expanded(Counter((node.domain, node.op_type) for node in onnx_nodes(proto.graph)), sizes)
    if max(total, *sizes.values(), 0) > MOST_NODES:
        largest = max(sizes, key=sizes.__getitem__) if sizes else ("", proto.graph.name)
        raise ModelError(
            f"the model has more than {MOST_NODES:,} nodes with its functions expanded"
            + (f"; the largest function is '{largest[1]}'" if sizes else "")
        )


def _expanded(calls: Counter[tuple[str, str]], sizes: dict[tuple[str, str], int]) -> int:
    return sum(count * sizes.get(key, 1) for key, count in calls.items())
