"""Convolutions of ONNX whose kernels are results of the model, as products of two matrices.

Dynamic filters (the masks of CondInst and SOLOv2, the cross-correlation of trackers) are results of other
layers. The NPU's weights are constants, but it multiplies two activations: windows as rows, by the kernels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from rkcosim.compiler.graph import Window
from rkcosim.compiler.limits import CONV_DILATION, CONV_KERNEL, CONV_PAD, CONV_STRIDE, MOST_WINDOW
from rkcosim.compiler.loaders.onnx_einsum import shape_constant
from rkcosim.compiler.loaders.onnx_fold import described, known_shapes
from rkcosim.spec.layouts.weights import channel_group

CODINGS = {"QuantizeLinear", "DequantizeLinear"}


def computed_kernels(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model whose convolutions with a computed kernel are products, as far as possible.

    Of a map (1, C, H, W) and a kernel (N, C, h, w), both computed, a Conv with a kernel of ones makes the
    elements of each window channels, with zeros up to whole tiles of weights, and a MatMul multiplies them by
    the kernels.  Nothing is made of one tap whose channels are whole tiles.  Models with quantised tensors,
    several groups, batches and windows with more than `MOST_WINDOW` elements stay as they are.
    """
    constants = {item.name for item in proto.graph.initializer}
    convs = [node for node in proto.graph.node if node.op_type == "Conv" and node.input[1] not in constants]
    if not convs or any(node.op_type in CODINGS for node in proto.graph.node):
        return proto
    made = onnx.ModelProto()
    made.CopyFrom(proto)
    shapes = known_shapes(described(made))
    nodes: list[onnx.NodeProto] = []
    for node in made.graph.node:
        conv = _Computed.of(node, shapes) if node in convs else None
        nodes += [node] if conv is None else conv.nodes(made.graph)
    del made.graph.node[:]
    made.graph.node.extend(nodes)
    return made


@dataclass(frozen=True)
class _Computed:
    """A convolution of one group with a computed kernel; `x` and `kernel` are shapes."""

    node: onnx.NodeProto
    x: list[int]
    kernel: list[int]
    window: Window

    @classmethod
    def of(cls, node: onnx.NodeProto, shapes: dict[str, list[int]]) -> _Computed | None:
        """Read a node; None if it stays as it is."""
        x, kernel = (shapes.get(name, []) for name in node.input[:2])
        given = {item.name: helper.get_attribute_value(item) for item in node.attribute}
        plain = given.get("auto_pad", b"NOTSET") == b"NOTSET" and given.get("group", 1) == 1
        if len(x) != 4 or len(kernel) != 4 or x[0] != 1 or x[1] != kernel[1] or not plain:
            return None
        window = Window(
            (kernel[2], kernel[3]),
            tuple(given.get("strides", (1, 1))),
            tuple(given.get("pads", (0, 0, 0, 0))),
            tuple(given.get("dilations", (1, 1))),
        )
        most = (
            (window.kernel, CONV_KERNEL),
            (window.strides, CONV_STRIDE),
            (window.pads[:2], CONV_PAD),
            (window.dilations, CONV_DILATION),
        )
        fits = all(max(values) <= limit for values, limit in most)
        if not fits or math.prod(kernel[1:]) > MOST_WINDOW or min(window.output(x[2], x[3])) < 1:
            return None
        return cls(node, x, kernel, window)

    def nodes(self, graph: onnx.GraphProto) -> list[onnx.NodeProto]:
        """Return the nodes of the product, with the node's name at the MatMul, and add their constants."""
        node, y, (count, channels, *taps) = self.node, self.node.output[0], self.kernel
        rows, columns = self.window.output(self.x[2], self.x[3])
        real = channels * math.prod(taps)
        depth = -(-real // channel_group()) * channel_group()
        made: list[onnx.NodeProto] = []

        def then(kind: str, source: list[str], suffix: str, **attributes: Any) -> str:
            name = f"{y}_{suffix}"
            made.append(helper.make_node(kind, source, [name], name, **attributes))
            return name

        def reshaped(source: str, shape: list[int], suffix: str) -> str:
            name = f"{y}_{suffix}"
            return then("Reshape", [source, shape_constant(graph, name, shape)], suffix)

        x = node.input[0]
        if self.window != Window((1, 1)) or depth != real:
            ones = np.eye(depth, real, dtype=np.float32).reshape(depth, channels, *taps)
            graph.initializer.append(numpy_helper.from_array(ones, f"{y}_ones"))
            kept = {item.name: helper.get_attribute_value(item) for item in node.attribute}
            x = then("Conv", [x, f"{y}_ones"], "windows", **{**kept, "kernel_shape": taps})
        lines = then("Transpose", [reshaped(x, [1, depth, rows * columns], "flat")], "rows", perm=[0, 2, 1])
        kernels = reshaped(node.input[1], [count, real], "kernels")
        if depth != real:
            zeros = np.zeros((count, depth - real), np.float32)
            graph.initializer.append(numpy_helper.from_array(zeros, f"{y}_zeros"))
            kernels = then("Concat", [kernels, f"{y}_zeros"], "filled", axis=1)
        kernels = then("Transpose", [kernels], "matrix", perm=[1, 0])
        product = f"{y}_product"
        made.append(helper.make_node("MatMul", [lines, kernels], [product], node.name))
        whole = [1, count, rows, columns]
        flat = then("Transpose", [product], "turned", perm=[0, 2, 1])
        biased = len(node.input) > 2 and node.input[2]
        map_name = y if not biased else f"{y}_map"
        shape = shape_constant(graph, map_name, whole)
        made.append(helper.make_node("Reshape", [flat, shape], [map_name], f"{y}_whole"))
        if biased:
            bias = reshaped(node.input[2], [1, count, 1, 1], "bias")
            made.append(helper.make_node("Add", [map_name, bias], [y], f"{y}_sum"))
        return made
