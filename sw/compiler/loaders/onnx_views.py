"""Values that are transposed or reshaped without moved bytes, and products of two activations."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import onnx

from rkcosim.compiler import graph as g
from rkcosim.compiler.constraints.movements import matrices_of_heads
from rkcosim.compiler.graph import ModelError, Tensor
from rkcosim.compiler.host_steps import REAL_FUNCTIONS
from rkcosim.compiler.loaders.node import Constant, Cube, Pending, Shape, line_cube, natural_cube
from rkcosim.compiler.loaders.onnx_base import CLAMPS, CODINGS, VIEWED, NodeVisitor, real_of
from rkcosim.compiler.loaders.onnx_node import (
    LINES,
    OnnxNode,
    Real,
    Value,
    node_label,
    reshaped_cube,
)
from rkcosim.compiler.loaders.onnx_parts import (
    ValueTypes,
)
from rkcosim.compiler.loaders.operators import OPERATORS
from rkcosim.compiler.loaders.products import (
    ConstantMatrices,
    ProductBuilder,
    changed,
    settled,
    straightened,
    viewed,
)
from rkcosim.compiler.loaders.shuffles import shuffled
from rkcosim.compiler.loaders.views import View, rows_cube, settled_cube, view_of
from rkcosim.compiler.lowering.wide import MOST_CHANNELS
from rkcosim.compiler.options import LoadOptions

ALONG = {*CODINGS, *CLAMPS, *REAL_FUNCTIONS, "Add", "Sub", "Mul", "Div", "PRelu", "Concat", "Slice", "Split"}
"""Operators whose results have the places of their inputs."""


class ViewVisitor(NodeVisitor):
    """A visit that keeps views around products of two activations."""

    def __init__(
        self,
        proto: onnx.ModelProto,
        types: ValueTypes,
        options: LoadOptions,
        hosted: Mapping[str, str],
        inputs: Collection[str],
    ) -> None:
        super().__init__(proto, types, options, hosted, inputs)
        self._around = set(_around_products(proto.graph))

    def _of_activations(self, node: onnx.NodeProto) -> bool:
        """Whether a MatMul has two activations as factors, or a constant with several matrices as second."""
        first, second = (self.values.get(name) for name in node.input)
        several = isinstance(second, Constant) and math.prod(second.array.shape[:-2]) > 1
        return not isinstance(first, Constant) and (several or not isinstance(second, Constant))

    def _source(self, node: onnx.NodeProto, index: int) -> Value:
        """Return an input; a view is not brought into another place."""
        value = self.values.get(node.input[index])
        return value if isinstance(value, View) else self._get(node, index)

    def _moved(self, node: onnx.NodeProto) -> Value | None:
        """Return a transposed or reshaped value whose bytes stay in place; None if they have to move."""
        source = self._source(node, 0)
        if not isinstance(source, Real | View):
            return None
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        order, shape = None, None
        if node.op_type == "Transpose":
            order = OnnxNode(node, [], self.graph).order(source.shape)[0]["before"]
        else:
            shape = self._new_shape(node, attributes, source.shape)
        if isinstance(source, View):
            view = changed(source, shape, order)
            if view is None and (straight := straightened(self.graph, source, node.input[0])) is not None:
                view = changed(straight.view, shape, order)
                if view is not None:
                    straight.add(self.graph)
            if view is None and shape is not None:
                made = shuffled(self.graph, source, shape, f"{node.output[0]}@shuffled")
                if made is not None:
                    return real_of(made)
            if view is None:
                self._get(node, 0)  # its elements move before this node
                return None
        else:
            if shape is not None and reshaped_cube(source.cube, source.shape, shape) is not None:
                return None
            tensor = replace(self.graph.tensors[source.tensor], shape=source.shape, cube=source.cube)
            view = viewed(tensor, shape, order)
        return None if view is None else self._shown(view, node.output[0])

    def _parts(self, node: onnx.NodeProto) -> list[Value] | None:
        """Return parts of a view along its outermost axis in pixels or channels; None for other parts."""
        view = self.values.get(node.input[0])
        if not isinstance(view, View) or settled_cube(view) is not None:
            return None
        values = [None, *(self.values.get(name) for name in node.input[1:])]
        operand, dropped = OnnxNode(node, values, self.graph, self.floats), False
        axis, ranges = operand.axis(view.shape), list[tuple[int, int]]()
        if node.op_type == "Split":
            sizes = operand.sizes(view.shape[axis])
            ranges = [(sum(sizes[:index]), size) for index, size in enumerate(sizes)]
        elif node.op_type == "Slice":
            first, steps, shape = operand.bounds(view.shape)
            cut = [n for n, size in enumerate(view.shape) if shape[n] != size]
            if len(cut) != 1 or steps[cut[0]] != 1:
                return None
            axis, ranges = cut[0], [(first[cut[0]], shape[cut[0]])]
        else:
            given = values[1]
            if not isinstance(given, Constant) or given.array.size != 1 or given.array.ndim:
                return None
            ranges, dropped = [(int(given.array) % view.shape[axis], 1)], True
        found = [view.part(axis, first, count) for first, count in ranges]
        made = list[Value]()
        for name, part in zip(node.output, found, strict=True):
            if part is None:
                return None
            rows, channels, seen = part
            taken = self._taken(view, f"{name}@part", (rows, channels))
            whole = replace(seen, tensor=taken)
            shape = (*whole.shape[:axis], *whole.shape[axis + 1 :])
            other = whole.reshaped(shape) if dropped else whole
            assert other is not None  # an axis of one element has no place of its own
            made.append(self._shown(other, name))
        return made

    def _taken(self, view: View, name: str, ranges: tuple[tuple[int, int], tuple[int, int]]) -> str:
        """Add a tensor with a range of a view's pixels and of its channels, and return its name."""
        (row, rows), (channel, channels) = ranges
        tensor, source = self.graph.tensors[view.tensor], f"{view.tensor}@rows"
        cube = (view.channels, view.rows, 1)
        self.graph.tensors[source] = replace(
            tensor, name=source, shape=(1, view.rows, view.channels), cube=cube, channels_last=False
        )
        self.graph.aliases[source] = view.tensor
        made = replace(
            self.graph.tensors[source], name=name, shape=(1, rows, channels), cube=(channels, rows, 1)
        )
        self.graph.tensors[name] = made
        self.graph.ops.append(g.Slice(name, (source,), name, (channel, row, 0)))
        return name

    def _shown(self, view: View, name: str) -> Value:
        """Return a view as a tensor if memory holds it in the layout of its shape."""
        if settled_cube(view) is None:
            return view
        return real_of(settled(self.graph, view, f"{name}@view", name))

    def _matrices(self, name: str) -> Real | None:
        """Return matrices that have to become rows of a tensor first; None for others."""
        return None

    def _scaled_view(self, node: onnx.NodeProto) -> Value | None:
        """Return a view times a number, as a view of the product; None for other operands."""
        values = [self.values.get(name) for name in node.input]
        views = [value for value in values if isinstance(value, View)]
        numbers = [value for value in values if isinstance(value, Constant) and value.array.size == 1]
        if len(views) != 1 or len(numbers) != 1 or (node.op_type == "Div" and values[0] is not views[0]):
            return None
        view, coding = views[0], None
        if not self.graph.tensors[view.tensor].real:
            coding = self._only_user(node, "QuantizeLinear")
            if coding is None:
                return None
        shape = (1, view.rows, view.channels)
        whole = Real(view.tensor, shape, rows_cube(shape))
        number = replace(numbers[0], array=numbers[0].array.reshape(()))
        operands: list[Value | None] = [whole if value is view else number for value in values]
        made = OPERATORS[node.op_type](OnnxNode(node, operands, self.graph, coding is None))
        assert isinstance(made, Pending)
        in_order = view.axes == tuple(range(len(view.axes)))  # else the tensor is not the model's value
        name = node.output[0] if in_order else f"{node.output[0]}@rows"
        tensor = self._tensor(name, made.shape, made.cube, coding)
        self.graph.ops.append(made.finish(tensor))
        return replace(view, tensor=tensor.name)

    def _only_user(self, node: onnx.NodeProto, kind: str) -> onnx.NodeProto | None:
        """Return the only reader of a node's result if it is of a kind and the result is no output."""
        users = [user for user in self.proto.node if node.output[0] in user.input]
        ends = {item.name for item in self.proto.output}
        return (
            users[0] if len(users) == 1 and users[0].op_type == kind and not ends & {*node.output} else None
        )

    def _joins_heads(self, name: str, rank: int) -> bool:
        """Whether only a transposition reads a product, which exchanges heads and rows."""
        users = [node for node in self.proto.node if name in node.input]
        if len(users) != 1 or name in {item.name for item in self.proto.output}:
            return False
        given = next((tuple(a.ints) for a in users[0].attribute if a.name == "perm"), ())
        order = (*range(rank - 3), rank - 2, rank - 3, rank - 1)
        return users[0].op_type == "Transpose" and rank > 2 and given == order

    def _activations(self, node: onnx.NodeProto) -> Value:
        """Return the product of two activations."""
        views: list[View | ConstantMatrices] = []
        for index, name in enumerate(node.input):
            if index and isinstance(self.values.get(name), Constant):
                views.append(self._heads(node, views[0].shape))
                continue
            value = self._matrices(name) or self._source(node, index)
            view = value if isinstance(value, View) else None
            if isinstance(value, Real):
                tensor = self.graph.tensors[value.tensor]
                view = view_of(replace(tensor, shape=value.shape, cube=value.cube))
                if view is None:
                    raise ModelError(f"{node_label(node)}: '{name}' {value.shape} is stored as a map")
            if view is None or self.graph.tensors[view.tensor].real != self.floats:
                raise ModelError(f"{node_label(node)}: '{name}' is not a tensor of the NPU")
            views.append(view)
        size = 2 if self.floats else 1
        name = node.name or node.output[0]
        builder = ProductBuilder(self.graph, node_label(node), name, node.output[0], size)
        like = self._heads_like(node, len(views[0].shape))
        first, second = views
        assert isinstance(first, View)
        return builder.product(first, second) if like is None else builder.joined(first, second, like)

    def _heads(self, node: onnx.NodeProto, first: Shape) -> ConstantMatrices:
        """Return the second factor of a MatMul, a constant with a matrix for each head of the first one."""
        operand = OnnxNode(node, [None, self.values[node.input[1]]], self.graph, self.floats)
        numbers, scale, zero, _ = operand.codes(1)
        matrices_of_heads(node_label(node), first, numbers.shape)
        whole = np.broadcast_to(numbers, (*first[:-2], *numbers.shape[-2:]))
        return ConstantMatrices(whole, scale, zero)

    def _heads_like(self, node: onnx.NodeProto, rank: int) -> Tensor | None:
        """Return a tensor like the result of a product whose heads a transposition joins; None for others."""
        if self.floats:
            return (
                Tensor("", (), 1.0, 0, (1, 1, 1), real=True)
                if self._joins_heads(node.output[0], rank)
                else None
            )
        coding = self._only_user(node, "QuantizeLinear")
        real = None if coding is None else self._only_user(coding, "DequantizeLinear")
        if coding is None or real is None or not self._joins_heads(real.output[0], rank):
            return None
        scale, zero_point, unsigned = self._coding(coding)
        return Tensor("", (), scale, zero_point, (1, 1, 1), unsigned)

    def _cube(self, shape: Shape, name: str, label: str) -> Cube:
        """Return the cube of a value that becomes a tensor of codes: rows if only products of it are read."""
        if math.prod(shape[:-2]) > 1 and self._multiplied(name):
            return rows_cube(shape)
        return self._placed(shape, name, label)

    def _placed(self, shape: Shape, name: str, label: str) -> Cube:
        """Return the cube of a value that comes to the NPU: a line if it is long or read by a convolution."""
        cube = natural_cube(shape, label)
        if len(shape) != 3 or shape[1] > MOST_CHANNELS:
            return cube
        return line_cube(shape) if shape[2] > MOST_CHANNELS or self._along_lines(name) else cube

    def _along_lines(self, name: str) -> bool:
        """Whether a convolution or pooling reads a value, also behind operators that keep its places."""
        seen, names = set[str](), [name]
        while names:
            users = [node for node in self.proto.node if names[-1] in node.input]
            names.pop()
            for user in users:
                if user.op_type in LINES or (user.op_type in VIEWED and self._same_channels(name, user)):
                    return True
                if user.op_type in ALONG and user.name not in seen:
                    seen.add(user.name)
                    names += user.output
        return False

    def _same_channels(self, name: str, node: onnx.NodeProto) -> bool:
        """Whether a node makes a map of one row or column of a value with as many channels."""
        before, after = self._types.of(name), self._types.of(node.output[0])
        shapes = [None if kind is None else kind.shape for kind in (before, after)]
        if shapes[0] is None or shapes[1] is None or node.op_type == "Transpose":
            return False
        return len(shapes[1]) == 4 and shapes[0][:2] == shapes[1][:2] and 1 in shapes[1][2:]

    def _multiplied(self, name: str) -> bool:
        """Whether only products of two activations read a value, behind a DequantizeLinear."""
        users = [node for node in self.proto.node if name in node.input]
        if not users or name in {item.name for item in self.proto.output}:
            return False
        return all(
            self._multiplied(user.output[0])
            if user.op_type in CODINGS
            else user.op_type == "MatMul" and self._of_activations(user)
            for user in users
        )

    def _same_coding(self, view: View, node: onnx.NodeProto) -> bool:
        """Whether a QuantizeLinear or DequantizeLinear has the scale and zero point of a view's tensor."""
        tensor = self.graph.tensors[view.tensor]
        coding = tensor.scale, tensor.zero_point, tensor.unsigned
        return not tensor.real and self._coding(node) == coding

    @abstractmethod
    def _coding(self, node: onnx.NodeProto) -> tuple[float, int, bool]:
        """Return scale, zero point in the signed domain, and whether the model's bytes are unsigned."""

    @abstractmethod
    def _new_shape(self, node: onnx.NodeProto, attributes: dict[str, Any], shape: Shape) -> Shape:
        """Return the shape of the result of an operator that only changes the shape."""


def _around_products(proto: onnx.GraphProto) -> Iterator[str]:
    """Yield the names of operators that move or scale elements next to a product of two activations."""
    constants = {item.name for item in proto.initializer}
    makers = {name: node for node in proto.node for name in node.output}
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in proto.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)

    def known(name: str) -> bool:
        """Whether a value is a constant, possibly behind a DequantizeLinear."""
        maker = makers.get(name)
        coded = maker is not None and maker.op_type == "DequantizeLinear"
        return name in constants or (coded and maker is not None and maker.input[0] in constants)

    def sources(node: onnx.NodeProto) -> list[onnx.NodeProto]:
        return [makers[name] for name in node.input if name in makers and not known(name)]

    def users(node: onnx.NodeProto) -> list[onnx.NodeProto]:
        return readers.get(node.output[0], [])

    products = [n for n in proto.node if n.op_type == "MatMul" and not any(map(known, n.input))]
    for follow in (sources, users):
        seen: set[str] = set()
        nodes = [node for product in products for node in follow(product)]
        while nodes:
            node = nodes.pop()
            scaled = node.op_type in ("Mul", "Div") and any(map(known, node.input))
            if not (scaled or node.op_type in VIEWED | CODINGS) or node.name in seen:
                continue
            seen.add(node.name)
            nodes += follow(node)
            if node.op_type not in CODINGS:
                yield node.name
