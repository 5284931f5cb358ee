"""Layer normalisations in the form that the loader knows: one operator over the last axis of rows.

Operator sets below 17 have no LayerNormalization, and none below 23 has RMSNormalization; exporters write
both as means, squares and roots. The NPU has the whole operator, but not its parts.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

from rkcosim.compiler.loaders.onnx_fold import described, known_shapes
from rkcosim.compiler.loaders.onnx_node import reads

CENTRED, ROOT_MEAN_SQUARE = "LayerNormalization", "SimplifiedLayerNormalization"
"""Operators that onnxruntime has in the domain of ONNX at all versions of the operator set; the second one is
RMSNormalization, in which nothing is subtracted."""

OPERATORS = {CENTRED, ROOT_MEAN_SQUARE, "RMSNormalization"}
"""Normalisations over the axes from `axis` on."""

Numbers = npt.NDArray[np.float64]


def layer_normalisations(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model in which normalisations over one axis are one node each, if they are written out.

    For x and d = x - mean(x), or d = x, these forms are read, where means are over one axis and keep it:

    - d / sqrt(mean(d * d) + epsilon), with Pow or Mul as the square, and Reciprocal and Mul as the division;
    - a product of that with a constant for each place of the axis, and then a sum with another one.

    An axis that is not the last one becomes the last one before the operator, and comes back behind it.
    Values of more than three axes are rows for the operator, also if the model has the operator itself.
    Models with quantised tensors, values of other types than float32, and all other forms stay as they are.
    """
    kinds = {node.op_type for node in proto.graph.node}
    written = "ReduceMean" in kinds and kinds & {"Sqrt", "Pow"}
    if "DequantizeLinear" in kinds or not (written or kinds & OPERATORS):
        return proto
    made = onnx.ModelProto()
    made.CopyFrom(proto)
    graph = _Graph(made)
    for node in made.graph.node:
        graph.read(node)
    nodes: list[onnx.NodeProto] = []
    for node in made.graph.node:
        one = graph.found.get(node.output[0])
        nodes += graph.by_rows(node) if one is None else graph.nodes_of(one, node)
    del made.graph.node[:]
    made.graph.node.extend(_used(nodes, made.graph))
    return made


@dataclass(frozen=True)
class _Norm:
    """A normalisation of a value over an axis, with a factor and a term for each of its places."""

    source: str
    axis: int
    centred: bool
    epsilon: float
    scale: Numbers | None = None
    shift: Numbers | None = None


class _Graph:
    """What is known about the values of a model."""

    def __init__(self, proto: onnx.ModelProto) -> None:
        self.graph = proto.graph
        self.makers = {name: node for node in proto.graph.node for name in node.output}
        self.constants = {item.name: item for item in proto.graph.initializer}
        whole = described(proto)
        self.shapes = known_shapes(whole)
        values = (*whole.graph.input, *whole.graph.value_info, *whole.graph.output)
        self.floats = {
            item.name for item in values if item.type.tensor_type.elem_type == onnx.TensorProto.FLOAT
        }
        self.uses = Counter(name for node in proto.graph.node for name in reads(node))
        self.uses.update(item.name for item in proto.graph.output)
        self.names = {*self.uses, *self.makers, *self.constants, *(n.name for n in proto.graph.node)}
        self.found: dict[str, _Norm] = {}

    def read(self, node: onnx.NodeProto) -> None:
        """Remember the normalisation that ends with a node, if there is one."""
        one = None
        if node.op_type in ("Div", "Mul"):
            one = self._normalised(node)
        if one is None and node.op_type in ("Mul", "Add"):
            one = self._scaled(node)
        if one is not None:
            self.found[node.output[0]] = one

    def _normalised(self, node: onnx.NodeProto) -> _Norm | None:
        """Read d / root, or the product of d and 1 / root in any order."""
        pairs = [tuple(node.input)]
        if node.op_type == "Mul":
            pairs = [(node.input[0], node.input[1]), (node.input[1], node.input[0])]
        for apart, root in pairs:
            variance = self._under_root(root, node.op_type == "Mul")
            if variance is None:
                continue
            square, epsilon = variance
            mean = self._mean(square)
            if mean is None or not self._is_square(mean[0], apart):
                continue
            source, axis = self._centre(apart, mean[1])
            centred = source != apart
            if apart in self.floats and source in self.floats:
                return _Norm(source, axis, centred, epsilon)
        return None

    def _scaled(self, node: onnx.NodeProto) -> _Norm | None:
        """Read a product of a normalisation with a constant, or a sum of both."""
        for place in (0, 1):
            inner = node.input[place]
            one = self.found.get(inner)
            if one is None or self.uses[inner] > 1 or one.shift is not None:
                continue
            if node.op_type == "Mul" and one.scale is not None:
                continue
            values = self._along(node.input[1 - place], one)
            if values is None:
                continue
            del self.found[inner]
            if node.op_type == "Mul":
                return replace(one, scale=values)
            return replace(one, shift=values)
        return None

    def _along(self, name: str, one: _Norm) -> Numbers | None:
        """Return a constant as one number for each place of the axis; None if it is none."""
        item, shape = self.constants.get(name), self.shapes[one.source]
        if item is None or item.data_type != onnx.TensorProto.FLOAT or len(item.dims) > len(shape):
            return None
        dims = [1] * (len(shape) - len(item.dims)) + list(item.dims)
        if any(size != 1 for axis, size in enumerate(dims) if axis != one.axis):
            return None
        if dims[one.axis] not in (1, shape[one.axis]):
            return None
        values = numpy_helper.to_array(item).astype(np.float64).reshape(-1)
        return np.broadcast_to(values, (shape[one.axis],)).copy()

    def _number(self, name: str) -> float | None:
        item = self.constants.get(name)
        if item is None or len(item.dims) > 1 or (item.dims and item.dims[0] != 1):
            return None
        return float(numpy_helper.to_array(item).reshape(-1)[0])

    def _under_root(self, name: str, inverse: bool) -> tuple[str, float] | None:
        """Return v and epsilon of sqrt(v + epsilon), or of its inverse."""
        node = self.makers.get(name)
        if node is None:
            return None
        if inverse and node.op_type == "Pow" and self._number(node.input[1]) == -0.5:
            return self._above_zero(node.input[0])
        if inverse:
            if node.op_type not in ("Reciprocal", "Div"):
                return None
            if node.op_type == "Div" and self._number(node.input[0]) != 1:
                return None
            node = self.makers.get(node.input[-1])
        if node is None:
            return None
        is_root = node.op_type == "Sqrt" or (node.op_type == "Pow" and self._number(node.input[1]) == 0.5)
        return self._above_zero(node.input[0]) if is_root else None

    def _above_zero(self, name: str) -> tuple[str, float] | None:
        """Return v and epsilon of a sum of both."""
        node = self.makers.get(name)
        if node is None or node.op_type != "Add":
            return None
        for place in (0, 1):
            epsilon = self._number(node.input[1 - place])
            if epsilon is not None and 0 < epsilon < 1:
                return node.input[place], epsilon
        return None

    def _mean(self, name: str) -> tuple[str, int] | None:
        """Return x and the axis of a mean over one axis, which stays as an axis of one place."""
        node = self.makers.get(name)
        if node is None or node.op_type != "ReduceMean":
            return None
        attributes = {item.name: helper.get_attribute_value(item) for item in node.attribute}
        axes = attributes.get("axes")
        if len(node.input) > 1:
            item = self.constants.get(node.input[1])
            axes = None if item is None else numpy_helper.to_array(item).reshape(-1).tolist()
        shape = self.shapes.get(node.input[0])
        if axes is None or len(axes) != 1 or not shape or attributes.get("keepdims", 1) != 1:
            return None
        return node.input[0], int(axes[0]) % len(shape)

    def _is_square(self, name: str, of: str) -> bool:
        node = self.makers.get(name)
        if node is None or node.op_type not in ("Pow", "Mul"):
            return False
        if node.op_type == "Pow":
            return self._same(node.input[0], of) and self._number(node.input[1]) == 2
        return all(self._same(item, of) for item in node.input)

    def _same(self, one: str, other: str) -> bool:
        """Whether both are one value, or the same difference computed twice, as old exporters write it."""
        if one == other:
            return True
        nodes = self.makers.get(one), self.makers.get(other)
        return all(node is not None and node.op_type == "Sub" for node in nodes) and (
            list(nodes[0].input) == list(nodes[1].input)  # type: ignore[union-attr]
        )

    def _centre(self, name: str, axis: int) -> tuple[str, int]:
        """Return x, if a value is x minus its mean over the axis; otherwise the value itself."""
        node = self.makers.get(name)
        if node is not None and node.op_type == "Sub":
            mean = self._mean(node.input[1])
            if mean == (node.input[0], axis):
                return node.input[0], axis
        return name, axis

    def nodes_of(self, one: _Norm, node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
        """Give the nodes that compute a normalisation with the name and the result of its last node."""
        shape, result, source = self.shapes[one.source], node.output[0], one.source
        there = [axis for axis in range(len(shape)) if axis != one.axis] + [one.axis]
        moved = [shape[axis] for axis in there]
        last = one.axis == len(shape) - 1
        if not last:
            source = self._fresh(f"{result}_rows")
            self._tell(source, moved)
            yield helper.make_node("Transpose", [one.source], [source], name=source, perm=there)
        scale = np.ones(shape[one.axis]) if one.scale is None else one.scale
        inputs = [source, self._constant(f"{result}_scale", scale)]
        term = [] if one.shift is None else [self._constant(f"{result}_shift", one.shift)]
        if one.centred:
            inputs, term = inputs + term, []
        ends = [self._fresh(f"{result}_normalised") for _ in range(bool(term) + (not last))] + [result]
        for end in ends[:-1]:
            self._tell(end, moved)
        kind = CENTRED if one.centred else ROOT_MEAN_SQUARE
        norm = helper.make_node(kind, inputs, ends[:1], name=node.name, axis=-1, epsilon=one.epsilon)
        yield from self.by_rows(norm, moved)
        if term:
            yield helper.make_node("Add", [ends[0], *term], [ends[1]], name=self._fresh(f"{result}_sum"))
        if not last:
            back = [there.index(axis) for axis in range(len(shape))]
            name = self._fresh(f"{result}_returned")
            yield helper.make_node("Transpose", [ends[-2]], [result], name=name, perm=back)
        self._tell(result, shape)

    def by_rows(self, node: onnx.NodeProto, shape: list[int] | None = None) -> Iterator[onnx.NodeProto]:
        """Give the nodes that normalise rows, for a normalisation over the last axis of four or more.

        Parameters
        ----------
        shape
            Shape of the input, if it is not one of the model's values.
        """
        shape = shape or self.shapes.get(node.input[0])
        axes = [item.i for item in node.attribute if item.name == "axis"] or [-1]
        many = node.op_type in OPERATORS and node.domain in ("", "ai.onnx") and len(node.output) == 1
        if not many or not shape or len(shape) < 4 or axes[0] not in (-1, len(shape) - 1):
            yield node
            return
        result, rows = node.output[0], [1, math.prod(shape[:-1]), shape[-1]]
        before, after = self._fresh(f"{result}_list"), self._fresh(f"{result}_normal")
        yield self._reshape(node.input[0], rows, before)
        made = onnx.NodeProto()
        made.CopyFrom(node)
        made.input[0], made.output[0] = before, after
        for item in made.attribute:
            if item.name == "axis":
                item.i = -1
        self._tell(after, rows)
        yield made
        yield self._reshape(after, shape, result)

    def _reshape(self, source: str, shape: list[int], result: str) -> onnx.NodeProto:
        name = self._fresh(f"{result}_shape")
        self.graph.initializer.append(numpy_helper.from_array(np.array(shape, np.int64), name))
        return helper.make_node("Reshape", [source, name], [result], name=self._fresh(f"{result}_reshape"))

    def _constant(self, name: str, values: Numbers) -> str:
        name = self._fresh(name)
        self.graph.initializer.append(numpy_helper.from_array(values.astype(np.float32), name))
        return name

    def _fresh(self, name: str) -> str:
        """Return a name that no value and no node of the model has."""
        while name in self.names:
            name += "_"
        self.names.add(name)
        return name

    def _tell(self, name: str, shape: list[int]) -> None:
        """Note a shape, which shape inference cannot find behind operators of newer operator sets."""
        if all(item.name != name for item in (*self.graph.value_info, *self.graph.output)):
            self.graph.value_info.append(helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape))


def _used(nodes: list[onnx.NodeProto], graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """Return the nodes whose results are outputs of the graph or are taken by used nodes."""
    wanted, kept = {item.name for item in graph.output}, []
    for node in reversed(nodes):
        if not wanted.isdisjoint(node.output):
            wanted.update(reads(node))
            kept.append(node)
    return kept[::-1]
