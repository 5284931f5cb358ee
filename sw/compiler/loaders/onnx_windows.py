"""Pools that round their size up, written so that every reader finds the size that onnxruntime gives them.

With `ceil_mode`, a window that would begin in the trailing padding is left out (ONNX, MaxPool and
AveragePool). onnx' shape inference counts it nevertheless, and everything that follows has a wrong shape.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper, numpy_helper

from rkcosim.compiler.graph import Window
from rkcosim.compiler.loaders.onnx_fold import described, known_shapes

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
    while _rewrite_some(made, known_shapes(described(made))):
        del made.graph.value_info[:]
    return made


def _rewrite_some(proto: onnx.ModelProto, shapes: dict[str, list[int]]) -> bool:
    """Rewrite pools up to the first one of another size than inferred; return whether there is one."""
    for place, node in enumerate(proto.graph.node):
        pool = _Pool.of(node, shapes) if _rounds_up(node) else None
        if pool is None:
            continue
        if _rewrite(node, pool):
            if [count for count, _ in pool.windows()] != shapes.get(node.output[0], [])[2:]:
                return True
        elif kept := _without_unused_rows(node, pool):
            _insert_slice(proto.graph, place, kept)
            return True
    return False


def _rounds_up(node: onnx.NodeProto) -> bool:
    return node.op_type in POOLS and any(item.name == "ceil_mode" and item.i for item in node.attribute)


@dataclass(frozen=True)
class _Pool:
    """A pool's attributes and the sizes of its input; a number for each axis."""

    sizes: list[int]
    kernel: list[int]
    strides: list[int]
    dilations: list[int]
    before: list[int]
    after: list[int]

    @classmethod
    def of(cls, node: onnx.NodeProto, shapes: dict[str, list[int]]) -> _Pool | None:
        """Read a pool; None if its sizes or padding are not known."""
        values = {item.name: helper.get_attribute_value(item) for item in node.attribute}
        sizes = shapes.get(node.input[0], [])[2:]
        if not sizes or values.get("auto_pad", b"NOTSET") != b"NOTSET":
            return None
        ones, pads = [1] * len(sizes), list(values.get("pads", [0] * (2 * len(sizes))))
        strides, dilations = values.get("strides", ones), values.get("dilations", ones)
        kernel, before, after = list(values["kernel_shape"]), pads[: len(sizes)], pads[len(sizes) :]
        return cls(sizes, kernel, strides, dilations, before, after)

    def reach(self, axis: int) -> int:
        """Rows from the first to the last one that a window reads."""
        return (self.kernel[axis] - 1) * self.dilations[axis] + 1

    def windows(self) -> list[tuple[int, int]]:
        """Return for each axis the number of windows, and the row of the input behind the last one."""
        found = []
        for axis, size in enumerate(self.sizes):
            window = Window(
                (self.kernel[axis], 1),
                strides=(self.strides[axis], 1),
                pads=(self.before[axis], 0, self.after[axis], 0),
                dilations=(self.dilations[axis], 1),
            )
            count = window.output(size, 1, ceil=True)[0]
            found.append((count, (count - 1) * self.strides[axis] + self.reach(axis) - self.before[axis]))
        return found

    def inferred(self, axis: int) -> int:
        """Return the number of windows that onnx' inference finds: those of the padded rows, rounded up."""
        padded = self.before[axis] + self.sizes[axis] + self.after[axis]
        return -(-(padded - self.reach(axis)) // self.strides[axis]) + 1


def _rewrite(node: onnx.NodeProto, pool: _Pool) -> bool:
    """Write a pool without `ceil_mode`; return False if it stays as it is."""
    needed = (end - size for (_, end), size in zip(pool.windows(), pool.sizes, strict=True))
    after = [max(rows, more) for rows, more in zip(pool.after, needed, strict=True)]
    padding_counts = node.op_type == "LpPool" or (
        node.op_type == "AveragePool"
        and any(item.name == "count_include_pad" and item.i for item in node.attribute)
    )
    if (after != pool.after and padding_counts) or np.any(np.array(after) >= pool.kernel):
        return False
    _set_pads(node, [*pool.before, *after], "ceil_mode")
    return True


def _without_unused_rows(node: onnx.NodeProto, pool: _Pool) -> list[int]:
    """Return the rows of each axis of its input that a pool with `ceil_mode` uses; none if all have a use.

    Its trailing padding becomes what its windows need, so that none can begin behind them.
    """
    kept, after = list(pool.sizes), list(pool.after)
    for axis, (count, end) in enumerate(pool.windows()):
        if pool.inferred(axis) != count:
            kept[axis], after[axis] = min(pool.sizes[axis], end), max(0, end - pool.sizes[axis])
    if (kept, after) == (pool.sizes, pool.after):
        return []
    _set_pads(node, [*pool.before, *after])
    return kept


def _set_pads(node: onnx.NodeProto, pads: list[int], *without: str) -> None:
    kept = [item for item in node.attribute if item.name not in ("pads", *without)]
    del node.attribute[:]
    node.attribute.extend([*kept, helper.make_attribute("pads", pads)])


def _insert_slice(graph: onnx.GraphProto, place: int, kept: list[int]) -> None:
    """Let a node read only the first rows of each axis of its input."""
    node = graph.node[place]
    starts, ends, axes, rows = (f"{node.output[0]}_{part}" for part in ("starts", "ends", "axes", "rows"))
    numbers = {starts: [0] * len(kept), ends: kept, axes: list(range(2, 2 + len(kept)))}
    graph.initializer.extend(
        numpy_helper.from_array(np.array(values, np.int64), name) for name, values in numbers.items()
    )
    cut = helper.make_node("Slice", [node.input[0], starts, ends, axes], [rows], name=rows)
    node.input[0] = rows
    graph.node.insert(place, cut)
