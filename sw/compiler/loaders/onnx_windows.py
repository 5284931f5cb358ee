"""Pools that round their size up, written so that every reader finds the size that onnxruntime gives them.

With `ceil_mode`, a window that would begin in the trailing padding is left out (ONNX, MaxPool and
AveragePool). onnx' shape inference counts it nevertheless, and everything that follows has a wrong shape.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper

from rkcosim.compiler.graph import Window
from rkcosim.compiler.loaders.onnx_fold import inferred, known_shapes

POOLS = ("MaxPool", "AveragePool", "LpPool")


def exact_windows(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model whose pools with `ceil_mode` have the right size by padding and floor alone.

    An axis gets as many rows of trailing padding as its last window needs; without such an axis, or if
    padding does not count, results are the same. Averages that count padding and need more of it keep
    `ceil_mode`, and lose the rows behind their last window where inference would count another one. Pools of
    unknown shape stay as they are.
    """
    if not any(_rounds_up(node) for node in proto.graph.node):
        return proto
    made = onnx.ModelProto()
    made.CopyFrom(proto)
    while _rewrite_some(made, known_shapes(inferred(made))):
        del made.graph.value_info[:]
    return made


def _rewrite_some(proto: onnx.ModelProto, shapes: dict[str, list[int]]) -> bool:
    """Rewrite pools up to the first one of another size than inferred; return whether there is one."""
    for place, node in enumerate(proto.graph.node):
        sizes = _rewrite(node, shapes) if _rounds_up(node) else None
        if sizes is not None and sizes != shapes.get(node.output[0], [])[2:]:
            return True
        if sizes is None and _rounds_up(node) and (kept := _without_unused_rows(node, shapes)):
            names = [f"{node.output[0]}_{part}" for part in ("starts", "ends", "axes", "rows")]
            axes = range(2, 2 + len(kept))
            for name, values in zip(names, ([0] * len(kept), kept, axes), strict=False):
                array = np.array(values, np.int64)
                proto.graph.initializer.append(numpy_helper.from_array(array, name))
            rows = helper.make_node("Slice", [node.input[0], *names[:3]], names[3:], name=names[3])
            node.input[0] = names[3]
            proto.graph.node.insert(place, rows)
            return True
    return False


def _without_unused_rows(node: onnx.NodeProto, shapes: dict[str, list[int]]) -> list[int]:
    """Return the rows of each axis of its input that a pool with `ceil_mode` uses; none if all have a use.

    Its trailing padding becomes what its windows need, so that none can begin behind them.
    """
    values = {item.name: helper.get_attribute_value(item) for item in node.attribute}
    sizes = shapes.get(node.input[0], [])[2:]
    if not sizes or values.get("auto_pad", b"NOTSET") != b"NOTSET":
        return []
    kernel, ones = list(values["kernel_shape"]), [1] * len(sizes)
    strides, dilations = values.get("strides", ones), values.get("dilations", ones)
    pads = list(values.get("pads", [0] * (2 * len(sizes))))
    before, after, kept = pads[: len(sizes)], pads[len(sizes) :], []
    changes = False
    for axis, size in enumerate(sizes):
        reach = (kernel[axis] - 1) * dilations[axis] + 1
        padded = before[axis] + size + after[axis]
        counted = -(-(padded - reach) // strides[axis])  # by inference, less one
        begin = counted * strides[axis]
        if begin < before[axis] + size:
            kept.append(size)
            continue
        end = begin - strides[axis] + reach - before[axis]  # of the last window
        kept.append(min(size, end))
        after[axis] = max(0, end - size)
        changes = True
    if not changes:
        return []
    pads = [item for item in node.attribute if item.name != "pads"]
    del node.attribute[:]
    node.attribute.extend([*pads, helper.make_attribute("pads", [*before, *after])])
    return kept


def _rounds_up(node: onnx.NodeProto) -> bool:
    return node.op_type in POOLS and any(item.name == "ceil_mode" and item.i for item in node.attribute)


def _rewrite(node: onnx.NodeProto, shapes: dict[str, list[int]]) -> list[int] | None:
    """Write a pool without `ceil_mode`; return the sizes of its result, None if it stays as it is."""
    values = {item.name: helper.get_attribute_value(item) for item in node.attribute}
    sizes = shapes.get(node.input[0], [])[2:]
    if not sizes or values.get("auto_pad", b"NOTSET") != b"NOTSET":
        return None
    kernel, ones = list(values["kernel_shape"]), [1] * len(sizes)
    strides, dilations = values.get("strides", ones), values.get("dilations", ones)
    pads = list(values.get("pads", [0] * (2 * len(sizes))))
    before, after = pads[: len(sizes)], pads[len(sizes) :]
    counts = []
    for axis, size in enumerate(sizes):
        window = Window(
            (kernel[axis], 1),
            strides=(strides[axis], 1),
            pads=(before[axis], 0, after[axis], 0),
            dilations=(dilations[axis], 1),
        )
        counts.append(window.output(size, 1, ceil=True)[0])
        reach = (counts[-1] - 1) * strides[axis] + (kernel[axis] - 1) * dilations[axis] + 1
        after[axis] += max(0, reach - before[axis] - size - after[axis])
    padded = after != pads[len(sizes) :]
    padding_counts = node.op_type == "LpPool" or (
        node.op_type == "AveragePool" and values.get("count_include_pad", 0)
    )
    if (padded and padding_counts) or np.any(np.array(after) >= kernel):
        return None
    kept = [item for item in node.attribute if item.name not in ("ceil_mode", "pads")]
    del node.attribute[:]
    node.attribute.extend([*kept, helper.make_attribute("pads", [*before, *after])])
    return counts
