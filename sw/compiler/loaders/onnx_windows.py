"""Pools that round their size up, written so that every reader finds the size that onnxruntime gives them.

With `ceil_mode`, a window that would begin in the trailing padding is left out (ONNX, MaxPool and
AveragePool). onnx' shape inference counts it nevertheless, and everything that follows has a wrong shape.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper

from rkcosim.compiler.graph import Window

POOLS = ("MaxPool", "AveragePool", "LpPool")


def exact_windows(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model whose pools with `ceil_mode` have the right size by padding and floor alone.

    An axis gets as many rows of trailing padding as its last window needs; without such an axis, or if
    padding does not count, results are the same. Pools of unknown shape, and averages that count padding and
    need more of it, stay as they are.
    """
    if not any(_rounds_up(node) for node in proto.graph.node):
        return proto
    made = onnx.ModelProto()
    made.CopyFrom(proto)
    while True:
        shapes = _shapes(made)
        if not any(_rounds_up(node) and _rewrite(node, shapes) for node in made.graph.node):
            return made
        del made.graph.value_info[:]


def _rounds_up(node: onnx.NodeProto) -> bool:
    return node.op_type in POOLS and any(item.name == "ceil_mode" and item.i for item in node.attribute)


def _shapes(proto: onnx.ModelProto) -> dict[str, list[int]]:
    try:
        graph = onnx.shape_inference.infer_shapes(proto, data_prop=True).graph
    except Exception:  # onnx raises several classes
        graph = proto.graph
    found = {}
    for item in (*graph.input, *graph.value_info):
        sizes = item.type.tensor_type.shape.dim
        if item.type.tensor_type.HasField("shape") and all(dim.HasField("dim_value") for dim in sizes):
            found[item.name] = [dim.dim_value for dim in sizes]
    return found


def _rewrite(node: onnx.NodeProto, shapes: dict[str, list[int]]) -> bool:
    """Write a pool without `ceil_mode`; return whether that changed it."""
    values = {item.name: helper.get_attribute_value(item) for item in node.attribute}
    sizes = shapes.get(node.input[0], [])[2:]
    if not sizes or values.get("auto_pad", b"NOTSET") != b"NOTSET":
        return False
    kernel, ones = list(values["kernel_shape"]), [1] * len(sizes)
    strides, dilations = values.get("strides", ones), values.get("dilations", ones)
    pads = list(values.get("pads", [0] * (2 * len(sizes))))
    before, after = pads[: len(sizes)], pads[len(sizes) :]
    for axis, size in enumerate(sizes):
        window = Window(
            (kernel[axis], 1),
            strides=(strides[axis], 1),
            pads=(before[axis], 0, after[axis], 0),
            dilations=(dilations[axis], 1),
        )
        count = window.output(size, 1, ceil=True)[0]
        reach = (count - 1) * strides[axis] + (kernel[axis] - 1) * dilations[axis] + 1
        after[axis] += max(0, reach - before[axis] - size - after[axis])
    padded = after != pads[len(sizes) :]
    counts = node.op_type == "LpPool" or (
        node.op_type == "AveragePool" and values.get("count_include_pad", 0)
    )
    if (padded and counts) or np.any(np.array(after) >= kernel):
        return False
    kept = [item for item in node.attribute if item.name not in ("ceil_mode", "pads")]
    del node.attribute[:]
    node.attribute.extend([*kept, helper.make_attribute("pads", [*before, *after])])
    return True
