"""ONNX models in QDQ form some of whose layers are in floating point: int8 codes and fp16 in one graph.

A convolution or matrix product is in floating point if its weights or its result are not quantised.  So are
operators that read fp16 numbers, and larger ones between int8 tensors and such a product.  The host converts
tensors between both kinds of layers, where the model has QuantizeLinear and DequantizeLinear.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import onnx

from rkcosim.compiler import graph as g
from rkcosim.compiler.constraints.normalisations import input_of_floats
from rkcosim.compiler.graph import Graph, ModelError, Tensor
from rkcosim.compiler.loaders.node import Pending, natural_cube
from rkcosim.compiler.loaders.onnx_base import CLAMPS, CODINGS, MOVES, PASS_THROUGH, PRODUCTS
from rkcosim.compiler.loaders.onnx_float import FloatLoader
from rkcosim.compiler.loaders.onnx_graph import Loader
from rkcosim.compiler.loaders.onnx_node import Host, Input, Quantised, Real, Value, node_label
from rkcosim.compiler.loaders.onnx_normalise import NORMALISATIONS
from rkcosim.compiler.loaders.onnx_parts import OnnxPart, ValueType, ValueTypes, describe
from rkcosim.compiler.loaders.products import settled
from rkcosim.compiler.loaders.views import View
from rkcosim.compiler.options import LoadOptions

CONVERTED = "it converts between int8 and fp16"
"""Why the host computes a QuantizeLinear or DequantizeLinear between two operations of the NPU."""


class MixedLoader(FloatLoader):
    """`Loader` for int8 codes, and `FloatLoader` for the nodes that are in floating point.

    `floats` says which of the two the node that is visited needs.
    """

    supported = Loader.supported | NORMALISATIONS
    floats = False

    def __init__(
        self,
        proto: onnx.ModelProto,
        types: ValueTypes,
        options: LoadOptions,
        hosted: Mapping[str, str],
        inputs: Collection[str],
    ) -> None:
        super().__init__(proto, types, options, hosted, inputs)
        self._refused: list[str] = []
        self._real_products: set[str] = set()
        self._leading: set[str] = set()
        if options.floats != "host":
            self._real_products = set(_products_of_floats(proto.graph))
            self._leading = set(_leading(proto.graph, self._real_products))

    def run(self) -> Graph:
        """Visit all nodes and return the graph."""
        graph = Loader.run(self)
        if self._refused:
            self._options.check_floats(", ".join(self._refused))
        return graph

    def _visit(self, node: onnx.NodeProto) -> None:
        self.floats = self._in_floats(node)
        if self.floats and self._options.floats == "refuse" and node.name not in self._hosted:
            self._refused.append(node_label(node))
        Loader._visit(self, node)
        self.floats = False

    def _in_floats(self, node: onnx.NodeProto) -> bool:
        """Whether a node computes in floating point: some products, and what reads fp16 numbers."""
        if node.op_type in CODINGS or not self._knows(node):
            return False
        if node.name in self._real_products or any(self._is_real(self.values.get(n)) for n in node.input):
            return True
        return node.name in self._leading and node.op_type not in MOVES and not self._small(node)

    def _is_real(self, value: Value | None) -> bool:
        """Whether a value consists of fp16 numbers of the NPU."""
        if isinstance(value, Real):
            return self.graph.tensors[value.tensor].real
        if isinstance(value, Host):
            softmax = self._softmax_of(value.name)
            return softmax is not None and self.graph.tensors[softmax.input].real
        if isinstance(value, View):
            return self.graph.tensors[value.tensor].real
        return isinstance(value, Pending) and value.real

    def _node(self, node: onnx.NodeProto) -> list[Value]:
        if self.floats:
            return super()._node(node)
        if node.op_type in NORMALISATIONS:
            raise input_of_floats.error(node_label(node), False, node.input[0])
        return Loader._node(self, node)

    def _source(self, node: onnx.NodeProto, index: int) -> Value:
        value = self.values.get(node.input[index])
        if self.floats and isinstance(value, View) and not self._is_real(value):
            return self._get(node, index)
        return super()._source(node, index)

    def _get(self, node: onnx.NodeProto, index: int) -> Value:
        name = node.input[index] if index < len(node.input) else ""
        value = self.values.get(name)
        if not self.floats:
            return Loader._get(self, node, index)
        if isinstance(value, Pending) and not value.real:
            raise ModelError(f"{node_label(node)}: '{name}' is not quantised")
        if isinstance(value, Host) and not self._is_real(value):
            raise ModelError(f"{node_label(node)}: '{name}' is computed on the host")
        if isinstance(value, View) and not self._is_real(value):
            made = settled(self.graph, value, f"{name}@settled", f"'{name}'")
            value = Real(made.name, made.shape, made.cube)
        if isinstance(value, Real) and not self._is_real(value):
            return self._dequantised(name, value)
        if isinstance(value, Input) and name in self._copies:
            return self._copies[name]
        found = super()._get(node, index)
        if isinstance(value, Input) and isinstance(found, Real):
            self.values[name], self._copies[name] = value, found  # another node may quantise the input
        return found

    def _dequantised(self, name: str, value: Real) -> Real:
        """Return the fp16 tensor of an int8 tensor, which the host converts."""
        if name not in self._copies:
            tensor = self._tensor(f"{name}@npu", value.shape, value.cube)
            self._convert(name, value, tensor, self._nodes.get(name))
            self._copies[name] = Real(tensor.name, tensor.shape, tensor.cube)
        return self._copies[name]

    def _quantize(self, node: onnx.NodeProto) -> Value:
        name, output = node.input[0], node.output[0]
        value = self.values.get(name)
        if isinstance(value, Pending) and value.real:
            value = self.values[name] = self._finish(name, value)
        if isinstance(value, View) and self._is_real(value):
            made = settled(self.graph, value, f"{name}@settled", f"'{name}'")
            value = Real(made.name, made.shape, made.cube)
        if isinstance(value, Host) and self._is_real(value) and not self._ends(output):
            raise ModelError(f"{node_label(node)}: '{name}' is a Softmax of floats")
        if not isinstance(value, Real) or not self._is_real(value):
            return super()._quantize(node)
        cube = natural_cube(value.shape, node_label(node))
        self._convert(name, value, self._tensor(output, value.shape, cube, node), node)
        return Quantised(output)

    def _convert(self, name: str, value: Real, tensor: Tensor, node: onnx.NodeProto | None) -> None:
        """Let the host copy a value to a tensor of the other kind of numbers; `node` is named in reports."""
        kind = self._on_host(name, value)
        if kind.dtype != "float32":
            raise ModelError(f"'{name}' is {kind.dtype}; only float32 is converted")
        types = {name: kind, tensor.name: ValueType(value.shape, kind.dtype)}
        said = g.HostOperator(tensor.name, "", "")
        if node is not None and node.op_type in CODINGS:
            said = describe(node, CONVERTED, self._types)
        part = OnnxPart(None, {}, types)
        self.graph.ops.append(g.HostPart(tensor.name, (name,), tensor.name, part, "onnxruntime", said))

    def _output(self, info: onnx.ValueInfoProto) -> None:
        if self._is_real(self.values.get(info.name)):
            super()._output(info)
        else:
            Loader._output(self, info)


def _leading(proto: onnx.GraphProto, products: Collection[str]) -> Iterator[str]:
    """Yield the names of operators between a DequantizeLinear and a product of floats."""
    makers = {name: node for node in proto.node for name in node.output}
    names = [name for node in proto.node if node.name in products for name in node.input]
    seen: set[str] = set()
    while names:
        node = makers.get(names.pop())
        if node is None or node.name in seen or node.op_type in CODINGS | PRODUCTS:
            continue
        seen.add(node.name)
        names += node.input
        yield node.name


def _products_of_floats(proto: onnx.GraphProto) -> Iterator[str]:
    """Yield the names of the products whose weights or results are not quantised."""
    makers = {name: node for node in proto.node for name in node.output}
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in proto.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    ends = {item.name for item in proto.output}

    def quantised(name: str) -> bool:
        """Whether every reader of a result quantises it, some behind a Relu, a Clip or a Reshape."""
        users = readers.get(name, [])
        return bool(users) and name not in ends and all(_quantises(user, name) for user in users)

    def _quantises(user: onnx.NodeProto, name: str) -> bool:
        through = user.op_type in (CLAMPS | PASS_THROUGH) and user.input[0] == name
        return user.op_type == "QuantizeLinear" or (through and quantised(user.output[0]))

    for node in proto.node:
        if node.op_type in PRODUCTS and len(node.input) > 1:
            weights = makers.get(node.input[1])
            coded = weights is not None and weights.op_type == "DequantizeLinear"
            if not coded or not quantised(node.output[0]):
                yield node.name
