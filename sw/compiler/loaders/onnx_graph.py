"""ONNX models to a `Graph`, in QDQ form as onnxruntime's static quantiser writes it, or in floating point.

The nodes are visited once in order.  Every value name is mapped to an object of one of the small classes of
`rkcosim.compiler.loaders.onnx_node`.  An operation on dequantised tensors is *pending* until a QuantizeLinear
gives the scale and zero point of its result; a Relu or Clip in between is merged into it.  In a model in
floating point a pending operation is finished when its result is used; `rkcosim.compiler.loaders.onnx_mixed`
has models of both kinds.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from rkcosim.compiler import graph as g
from rkcosim.compiler.graph import MAX_ELEMENTS, Clamp, Graph, HostOp, ModelError, Tensor
from rkcosim.compiler.loaders.node import Array, Constant, Cube, Pending, Shape, natural_cube
from rkcosim.compiler.loaders.onnx_file import OWN_DOMAINS, reads
from rkcosim.compiler.loaders.onnx_node import (
    Broken,
    Host,
    Hosted,
    Input,
    OnnxNode,
    Quantised,
    Real,
    Value,
    node_label,
    reshaped_cube,
)
from rkcosim.compiler.loaders.onnx_parts import (
    OnnxPart,
    ValueType,
    ValueTypes,
    describe,
    type_name,
)
from rkcosim.compiler.loaders.operators import OPERATORS
from rkcosim.compiler.loaders.products import ProductBuilder, changed, settled, viewed
from rkcosim.compiler.loaders.views import View, rows_cube, settled_cube, view_of
from rkcosim.compiler.options import LoadOptions

PASS_THROUGH = {"Flatten", "Reshape", "Squeeze", "Unsqueeze", "Identity", "Dropout"}
CLAMPS = {"Relu", "Clip"}
CODINGS = {"QuantizeLinear", "DequantizeLinear"}
SUPPORTED = {"Softmax", *PASS_THROUGH, *CLAMPS, *OPERATORS} - {"FullyConnected"}
MOVES = {*PASS_THROUGH, "Transpose", "Concat", "Split", "Slice", "Pad", "Softmax"}
"""Operators without arithmetic (or with none on the NPU), which the host does if their inputs are there."""
PRODUCTS = {"Conv", "ConvTranspose", "Gemm", "MatMul"}
VIEWED = {"Transpose", "Reshape", "Squeeze", "Unsqueeze", "Identity"}
"""Operators whose results may be the bytes of their inputs, in another shape or order."""
SMALL = 4096
"""Elements up to which an operator without products stays on the host if its inputs are there: a job of its
own would cost more than it saves, and sums of the host may exceed the range of fp16."""
FLOATS = ("float32", "float16")


class Loader:
    """State while the nodes are visited; `values` maps a value name to its object.

    Members
    -------
    forced
        Nodes that the host has to compute, with the reasons, found during the visit; the graph is useless
        then and is made again.
    host_inputs
        Inputs of the model that the host has to keep, found in the same way.
    """

    supported = SUPPORTED | CODINGS
    floats = False

    def __init__(
        self,
        proto: onnx.ModelProto,
        types: ValueTypes,
        options: LoadOptions,
        hosted: Mapping[str, str],
        inputs: Collection[str],
    ) -> None:
        self.proto = onnx.GraphProto()
        self.proto.CopyFrom(proto.graph)
        self.graph = Graph(proto.graph.name or "model")
        self.values: dict[str, Value] = {}
        self.forced: dict[str, str] = {}
        self.host_inputs: set[str] = set()
        self._types, self._options, self._hosted, self._inputs = types, options, hosted, inputs
        self._nodes = {name: node for node in proto.graph.node for name in node.output if name}
        self._copies: dict[str, Real] = {}
        self._bad: list[str] = []
        self._around = set(_around_products(proto.graph))
        for tensor in self.proto.initializer:
            try:
                self.values[tensor.name] = Constant(numpy_helper.to_array(tensor))
            except Exception as error:  # onnx raises ValueError, TypeError and others for bad raw data
                raise ModelError(f"damaged ONNX model: initializer '{tensor.name}': {error}") from error

    def run(self) -> Graph:
        """Visit all nodes and return the graph."""
        unknown = [node_label(node) for node in self.proto.node if not self._knows(node)]
        if unknown and not self._options.fallback:
            raise ModelError(f"unsupported operators: {', '.join(unknown)}")
        for info in self.proto.input:
            self.values[info.name] = self._input(info)
        for node in self.proto.node:
            self._visit(node)
        if self._bad:
            raise ModelError("; ".join(self._bad))
        for info in self.proto.output:
            self._output(info)
        self._complete_inputs()
        self._drop_unused()
        if not self.graph.ops and not self._options.fallback:
            raise ModelError(f"model '{self.graph.name}' has no operation for the NPU")
        if self._options.fallback and all(isinstance(op, g.HostPart | g.OnHost) for op in self.graph.ops):
            parts = [op for op in self.graph.ops if isinstance(op, g.HostPart)]
            reasons = {op.name: op.operator.reason for op in parts if op.operator.reason}
            for node in self.proto.node:  # without rounding to the NPU's types
                self.forced[node.name] = reasons.get(node.name, "the NPU has nothing else to compute")
            self.host_inputs |= {info.name for info in self.proto.input}
        return self.graph

    def _knows(self, node: onnx.NodeProto) -> bool:
        return node.op_type in self.supported and node.domain in OWN_DOMAINS

    def _visit(self, node: onnx.NodeProto) -> None:
        """Make operations of a node for the NPU, or else a part for the host."""
        if any(isinstance(self.values.get(name), Broken) for name in node.input):
            self.values |= {name: Broken() for name in node.output}
            return
        reason = self._hosted.get(node.name, "")
        if not reason and not self._knows(node):
            reason = "the NPU has no such operator"
        if not reason and self._only_hosted(node) and self._stays(node):
            reason = "its input is on the host"
        if not reason:
            graph = self.graph
            kept = dict(self.values), list(graph.ops), dict(graph.tensors), dict(graph.aliases)
            kept_more = dict(graph.constants), list(graph.inputs), list(graph.host_ops), dict(self._copies)
            try:
                made = self._node(node)
                if any(node.output[len(made) :]):
                    raise ModelError(
                        f"{node_label(node)}: output '{node.output[len(made)]}' is not supported"
                    )
                self.values.update(zip(node.output, made, strict=False))
                for op in graph.ops[len(kept[1]) :]:
                    graph.makers.setdefault(op.output, node.name)
                return
            except ModelError as error:
                reason = str(error)
                self.values, graph.ops, graph.tensors, graph.aliases = kept
                graph.constants, graph.inputs, graph.host_ops, self._copies = kept_more
        if self._options.fallback:
            self._host_node(node, reason)
        else:
            named = reason if f"'{node.name}'" in reason else f"{node_label(node)}: {reason}"
            self._bad.append(named)
            self.values |= {name: Broken() for name in node.output}

    def _only_hosted(self, node: onnx.NodeProto) -> bool:
        values = [self.values.get(name) for name in node.input if name]
        moved = [value for value in values if not isinstance(value, Constant)]
        return bool(moved) and all(isinstance(value, Hosted) for value in moved)

    def _stays(self, node: onnx.NodeProto) -> bool:
        """Whether a node whose inputs are on the host is computed there, though the NPU could do it."""
        if node.op_type in MOVES:
            return True
        return self.floats and self._small(node) and node.op_type not in PRODUCTS

    def _small(self, node: onnx.NodeProto) -> bool:
        """Whether a node has so few results that a job of its own would cost more than it saves."""
        known = [self._types.of(name) for name in node.output if name]
        shapes = [None if item is None else item.shape for item in known]
        return all(shape is not None and math.prod(shape) <= SMALL for shape in shapes)

    def _host_node(self, node: onnx.NodeProto, reason: str) -> None:
        """Add a part for the host; values that it reads get a tensor of their name."""
        constants: dict[str, Array] = {}
        types: dict[str, ValueType] = {}
        for name in reads(node):
            value = self.values.get(name)
            if value is None:
                raise ModelError(f"{node_label(node)}: input '{name}' is not known at this point")
            if isinstance(value, Constant):
                constants[name] = self._plain(name, value)
            else:
                types[name] = self._on_host(name, value)
        inputs = tuple(types)
        outputs = [name for name in node.output if name]
        for name in outputs:
            types[name] = self._hosted_value(name)
        part = OnnxPart(node, constants, types)
        said = describe(node, reason, self._types)
        self.graph.ops.append(
            g.HostPart(node.name, inputs, outputs[0], part, "onnxruntime", said, tuple(outputs[1:]))
        )

    def _plain(self, name: str, value: Constant) -> Array:
        """Return a constant as the model has it at this place: real numbers after a DequantizeLinear."""
        if value.scale is None:
            return value.array
        known = self._types.of(name)
        return value.real().astype(known.dtype if known else np.float32)

    def _hosted_value(self, name: str) -> ValueType:
        """Register a value that the host computes and return its type."""
        known = self._types.of(name) or ValueType(None, "float32")
        if known.shape is not None:
            self.graph.tensors[name] = g.host_tensor(name, known.shape, known.dtype, open=not known.fixed)
        self.values[name] = Hosted(name, known.shape if known.fixed else None, known.dtype)
        return replace(known, shape=known.shape if known.fixed else None)

    def _on_host(self, name: str, value: Value) -> ValueType:
        """Make a value available to the host under its name and return its type there."""
        if isinstance(value, Pending) and value.real:
            value = self.values[name] = self._finish(name, value)
        if isinstance(value, Hosted):
            return ValueType(value.shape, value.dtype)
        if isinstance(value, View) and not self.graph.tensors[value.tensor].real:
            made = settled(self.graph, value, f"{name}@settled", f"'{name}'")
            coded = self._nodes[name].op_type == "QuantizeLinear"
            value = Quantised(made.name) if coded else real_of(made)
        if isinstance(value, Quantised):
            tensor = self.graph.tensors[value.tensor]
            return ValueType(tensor.shape, "uint8" if tensor.unsigned else "int8")
        if isinstance(value, Real):
            tensor = replace(self.graph.tensors[value.tensor], name=name, shape=value.shape, cube=value.cube)
            if name != value.tensor:
                self.graph.tensors[name] = tensor
                self.graph.aliases[name] = value.tensor
            known = self._types.of(name)
            dtype = known.dtype if known and known.dtype in FLOATS else "float32"
            return ValueType(value.shape, dtype)
        if isinstance(value, Input) and value.name == name:
            self.host_inputs.add(name)
            return ValueType(value.shape, value.dtype)
        if name in self._nodes:
            why = "its result is not quantised" if isinstance(value, Pending) else "the host uses its result"
            self.forced[self._nodes[name].name] = why
        return self._hosted_value(name)  # this graph is made again

    def _to_npu(self, source: Hosted, tensor: Tensor, node: onnx.NodeProto | None = None) -> None:
        """Copy a value of the host to a tensor of the NPU; `node` is a QuantizeLinear on the way."""
        types = {name: ValueType(source.shape, source.dtype) for name in (source.name, tensor.name)}
        constants: dict[str, Array] = {}
        if node is not None:
            types[tensor.name] = ValueType(source.shape, "uint8" if tensor.unsigned else "int8")
            values = {name: self.values[name] for name in node.input[1:] if name}
            constants = {n: self._plain(n, v) for n, v in values.items() if isinstance(v, Constant)}
        said = g.HostOperator(tensor.name, "", "")
        part = OnnxPart(node, constants, types)
        op = g.HostPart(tensor.name, (source.name,), tensor.name, part, "onnxruntime", said)
        self.graph.ops.append(op)

    def _take(self, source: Input, tensor: Tensor) -> None:
        """Use an input of the model as a tensor; the host copies an input that becomes several tensors."""
        first = next((item for item in self.graph.inputs if item.name == source.name), None)
        if first is None:
            self.graph.inputs.append(g.GraphInput(source.name, tensor.name, source.given))
            return
        before = self.graph.tensors[first.tensor]
        if replace(before, name=tensor.name) == tensor:
            self.graph.aliases[tensor.name] = before.name
        elif self._options.fallback:
            self.host_inputs.add(source.name)
        else:
            raise ModelError(f"input '{source.name}' is used in two shapes or quantisations")

    def _complete_inputs(self) -> None:
        """Bring the inputs into the model's order; those that nothing reads stay on the host."""
        known = {item.name: item for item in self.graph.inputs}
        self.graph.inputs = []
        for info in self.proto.input:
            if info.name not in known:
                value = self.values[info.name]
                if isinstance(value, Input):
                    self._keep_input(value)
            self.graph.inputs += [known[info.name]] if info.name in known else []

    def _keep_input(self, value: Input) -> None:
        """Add an input that only the host keeps."""
        self.graph.tensors[value.name] = g.host_tensor(value.name, value.given, value.dtype)
        self.graph.inputs.append(g.GraphInput(value.name, value.name, value.given))

    def _input(self, info: onnx.ValueInfoProto) -> Input | Hosted:
        kind = info.type.tensor_type
        dtype = type_name(kind.elem_type) if info.type.HasField("tensor_type") else None
        if dtype is None:
            name = info.type.WhichOneof("value")
            if name == "tensor_type":
                name = onnx.TensorProto.DataType.Name(kind.elem_type)
            raise ModelError(f"input '{info.name}' is {name}; only tensors of numbers are supported")
        shape = tuple(dim.dim_value for dim in kind.shape.dim)
        if math.prod(shape) > MAX_ELEMENTS:
            raise ModelError(f"input '{info.name}': shape {shape} is too large")
        still_open = not kind.HasField("shape") or any(not d.HasField("dim_value") for d in kind.shape.dim)
        if still_open or min(shape, default=0) < 0:
            raise ModelError(
                f"input '{info.name}' has no fixed shape ({shape}, 0 for an open dimension): use --shape"
            )
        value = Input(info.name, shape, dtype, shape)
        if info.name not in self._inputs:
            return value
        self._keep_input(value)
        return Hosted(info.name, shape, dtype)

    def _get(self, node: onnx.NodeProto, index: int) -> Value:
        name = node.input[index] if index < len(node.input) else ""
        if name not in self.values:
            raise ModelError(f"{node_label(node)}: input {index} ('{name}') is not known at this point")
        value = self.values[name]
        if isinstance(value, View):
            return real_of(settled(self.graph, value, f"{name}@settled", f"'{name}'"))
        return value

    def _array(self, node: onnx.NodeProto, index: int) -> Array | None:
        if index >= len(node.input) or not node.input[index]:
            return None
        value = self._get(node, index)
        if not isinstance(value, Constant):
            raise ModelError(f"{node_label(node)}: '{node.input[index]}' must be a constant")
        return value.real()

    def _node(self, node: onnx.NodeProto) -> list[Value]:
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        kind = node.op_type
        if kind == "QuantizeLinear":
            return [self._quantize(node)]
        if kind == "DequantizeLinear":
            return [self._dequantize(node, attributes)]
        if kind == "Softmax":
            return [self._softmax(node, attributes)]
        if kind == "MatMul" and self._of_activations(node):
            return [self._activations(node)]
        if node.name in self._around and not self.floats:
            seen = self._moved(node) if kind in VIEWED else self._scaled_view(node)
            if seen is not None:
                return [seen]
        if kind in CLAMPS:
            return [self._clamp(node, attributes)]
        if kind in PASS_THROUGH:
            return [self._reshape(node, attributes)]
        values = [self._get(node, i) if name else None for i, name in enumerate(node.input)]
        for name, value in zip(node.input, values, strict=True):
            if value is not None and not isinstance(value, Real | Constant):
                raise ModelError(
                    f"{node_label(node)}: input '{name}' is not quantised (no DequantizeLinear before it)"
                )
        made = OPERATORS[kind](OnnxNode(node, values, self.graph, self.floats))
        results = made if isinstance(made, list) else [made]
        return [
            replace(item, real=self.floats) if isinstance(item, Pending) else real_of(item)
            for item in results
        ]

    def _of_activations(self, node: onnx.NodeProto) -> bool:
        return not any(isinstance(self.values.get(name), Constant) for name in node.input)

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
            if view is None:
                self._get(node, 0)  # its elements move before this node
                return None
        else:
            if shape is not None and reshaped_cube(source.cube, source.shape, shape) is not None:
                return None
            tensor = replace(self.graph.tensors[source.tensor], shape=source.shape, cube=source.cube)
            view = viewed(tensor, shape, order)
        return None if view is None else self._shown(view, node.output[0])

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
        views = []
        for index, name in enumerate(node.input):
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
        return builder.product(first, second) if like is None else builder.joined(first, second, like)

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
        return natural_cube(shape, label)

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

    def _scale(self, node: onnx.NodeProto) -> tuple[Array, Array]:
        scale = self._array(node, 1)
        assert scale is not None
        zero = self._array(node, 2)
        if zero is None:
            zero = np.zeros(scale.shape, dtype=np.uint8)
        if scale.ndim > 1 or not np.all(np.isfinite(scale)) or not np.all(scale > 0):
            raise ModelError(
                f"{node_label(node)}: scale '{node.input[1]}' must be positive, one or per channel"
            )
        return scale.astype(np.float64), zero

    def _coding(self, node: onnx.NodeProto) -> tuple[float, int, bool]:
        """Scale, zero point in the signed domain, and whether the model's bytes are unsigned."""
        scale, zero = self._scale(node)
        if scale.size != 1:
            raise ModelError(f"{node_label(node)}: activation '{node.input[0]}' has a scale per channel")
        if zero.dtype not in (np.int8, np.uint8):
            raise ModelError(f"{node_label(node)}: activation '{node.input[0]}' is {zero.dtype}, not 8 bit")
        unsigned = zero.dtype == np.uint8
        return float(scale.reshape(-1)[0]), int(zero.reshape(-1)[0]) - (128 if unsigned else 0), unsigned

    def _tensor(self, name: str, shape: Shape, cube: Cube, node: onnx.NodeProto | None = None) -> Tensor:
        """Add a tensor to the graph, quantised as `node` says, or of fp16 numbers."""
        scale, zero, unsigned = self._coding(node) if node else (1.0, 0, False)
        tensor = Tensor(name, shape, scale, zero, cube, unsigned, real=node is None)
        self.graph.tensors[name] = tensor
        return tensor

    def _host(
        self, node: onnx.NodeProto, kind: Any, source: str, shape: Shape, attributes: dict[str, object]
    ) -> Host:
        """Append a host operation that runs after the NPU's part."""
        name = node.name if kind == "Reshape" else node.name or node.output[0]
        self.graph.host_ops.append(HostOp(name, kind, source, node.output[0], attributes))
        return Host(node.output[0], shape)

    def _quantize(self, node: onnx.NodeProto) -> Value:
        view = self._source(node, 0)
        if isinstance(view, View) and self._same_coding(view, node):
            return view
        source, label, output = self._get(node, 0), node_label(node), node.output[0]
        if isinstance(source, Constant):
            scale, zero = self._scale(node)
            info = np.iinfo(zero.dtype)
            codes = np.rint(source.real() / scale) + zero
            return Constant(np.clip(codes, info.min, info.max).astype(zero.dtype))
        if isinstance(source, Host):
            softmax = self._softmax_of(source.name)
            if softmax and not self._ends(output):
                cube = self.graph.tensors[softmax.input].cube
                if not g.in_rows(source.shape, cube):
                    cube = self._cube(source.shape, output, label)
                tensor = self._tensor(output, source.shape, cube, node)
                self._soften(softmax, tensor)
                return Quantised(output)
            step, zero_point, unsigned = self._coding(node)
            zero_point += 128 if unsigned else 0
            coding: dict[str, object] = {"scale": step, "zero_point": zero_point, "unsigned": unsigned}
            return self._host(node, "Quantize", source.name, source.shape, coding)
        if isinstance(source, Hosted):
            if source.shape is None or source.dtype not in FLOATS:
                raise ModelError(f"{label}: '{source.name}' is {source.dtype} on the host")
            tensor = self._tensor(output, source.shape, self._cube(source.shape, output, label), node)
            self._to_npu(source, tensor, node)
            return Quantised(output)
        if isinstance(source, Input):
            if source.dtype != "float32":
                raise ModelError(f"{label}: input '{source.name}' is {source.dtype}, not float32")
            cube = self._cube(source.shape, output, f"input '{source.name}'")
            self._take(source, self._tensor(output, source.shape, cube, node))
        elif isinstance(source, Real):
            before = self.graph.tensors[source.tensor]
            tensor = self._tensor(output, source.shape, source.cube, node)
            if tensor.same_values(before):
                self.graph.aliases[output] = before.name
            else:
                self.graph.ops.append(g.Rescale(node.name or output, (before.name,), output))
        elif isinstance(source, Pending):
            self.graph.ops.append(source.finish(self._tensor(output, source.shape, source.cube, node)))
        else:
            raise ModelError(f"{label}: '{node.input[0]}' is quantised already")
        return Quantised(output)

    def _same_coding(self, view: View, node: onnx.NodeProto) -> bool:
        """Whether a QuantizeLinear or DequantizeLinear has the scale and zero point of a view's tensor."""
        tensor = self.graph.tensors[view.tensor]
        coding = tensor.scale, tensor.zero_point, tensor.unsigned
        return not tensor.real and self._coding(node) == coding

    def _ends(self, value: str) -> bool:
        """Whether only host operations follow a value."""
        users = [node for node in self.proto.node if value in node.input]
        light = {"DequantizeLinear", *PASS_THROUGH}
        return all(n.op_type in light and all(self._ends(name) for name in n.output) for n in users)

    def _softmax_of(self, value: str) -> HostOp | None:
        """Return the Softmax of a quantised tensor that computes a host value, or None."""
        for op in self.graph.host_ops:
            if op.output == value and op.kind == "Softmax" and op.input in self.graph.tensors:
                return op
        return None

    def _soften(self, op: HostOp, output: Tensor) -> None:
        """Turn a Softmax after the NPU's part into one between two jobs, because NPU operations follow."""
        tensor, shape = self.graph.tensors[op.input], op.attributes["shape"]
        assert isinstance(shape, tuple)
        name = tensor.name
        if shape != tensor.shape:
            name = f"{tensor.name}@{op.name}"
            self.graph.tensors[name] = replace(tensor, name=name, shape=shape)
            self.graph.aliases[name] = tensor.name
        attributes = {"axis": op.attributes["axis"]}
        self.graph.ops.append(
            g.OnHost(op.name, (name,), output.name, function="Softmax", attributes=attributes)
        )

    def _drop_unused(self) -> None:
        """Remove host operations whose results no output needs."""
        needed = {item.value for item in self.graph.outputs if item.real}
        for op in reversed(self.graph.host_ops):
            if op.output in needed:
                needed.add(op.input)
        self.graph.host_ops = [op for op in self.graph.host_ops if op.output in needed]

    def _dequantize(self, node: onnx.NodeProto, attributes: dict[str, Any]) -> Value:
        view, label = self._source(node, 0), node_label(node)
        if isinstance(view, View):
            if not self._same_coding(view, node):
                raise ModelError(f"{label}: scale or zero point differ from those of '{view.tensor}'")
            return view
        source = self._get(node, 0)
        if isinstance(source, Constant):
            return Constant(source.array, *self._scale(node), int(attributes.get("axis", 1)))
        if not isinstance(source, Host | Hosted | Input | Quantised):
            raise ModelError(f"{label}: '{node.input[0]}' is not quantised")
        scale, zero, unsigned = self._coding(node)
        if isinstance(source, Hosted):
            if source.shape is None or source.dtype != ("uint8" if unsigned else "int8"):
                raise ModelError(f"{label}: '{source.name}' is {source.dtype} on the host")
            name = f"{node.output[0]}@npu"
            tensor = self._tensor(name, source.shape, self._cube(source.shape, node.output[0], label), node)
            self._to_npu(source, tensor)
            return real_of(tensor)
        if isinstance(source, Host):
            coding: dict[str, object] = {"scale": scale, "zero_point": zero + (128 if unsigned else 0)}
            return self._host(node, "Dequantize", source.name, source.shape, coding)
        if isinstance(source, Input):
            if source.dtype != ("uint8" if unsigned else "int8"):
                raise ModelError(f"{label}: input '{source.name}' is {source.dtype}")
            cube = self._cube(source.shape, node.output[0], f"input '{source.name}'")
            name = source.name if source.name not in self.graph.tensors else f"{node.output[0]}@input"
            tensor = self._tensor(name, source.shape, cube, node)
            self._take(source, tensor)
            return real_of(tensor)
        tensor = self.graph.tensors[source.tensor]
        if (scale, zero) != (tensor.scale, tensor.zero_point):
            raise ModelError(f"{label}: scale or zero point differ from those of '{tensor.name}'")
        return real_of(tensor)

    def _clamp(self, node: onnx.NodeProto, attributes: dict[str, Any]) -> Value:
        low, high = (0.0, np.inf) if node.op_type == "Relu" else (-np.inf, np.inf)
        if node.op_type == "Clip":
            bounds = [self._array(node, 1), self._array(node, 2)]
            low = float(bounds[0].item()) if bounds[0] is not None else float(attributes.get("min", low))
            high = float(bounds[1].item()) if bounds[1] is not None else float(attributes.get("max", high))
            if low > high:
                raise ModelError(f"{node_label(node)}: min {low} is above max {high}")
        source, clamp = self._get(node, 0), Clamp(low, high)
        if isinstance(source, Pending):
            if not source.clampable:
                raise ModelError(f"{node_label(node)}: '{node.input[0]}' must be quantised first")
            return replace(source, clamp=source.clamp.then(clamp))
        if isinstance(source, Real):
            op = g.Rescale(node.name or node.output[0], (source.tensor,), "", node.op_type)
            return Pending(op, source.shape, source.cube, clamp, real=self.floats)
        raise ModelError(f"{node_label(node)}: input '{node.input[0]}' is not quantised")

    def _reshape(self, node: onnx.NodeProto, attributes: dict[str, Any]) -> Value:
        source, label = self._get(node, 0), node_label(node)
        if isinstance(source, Constant):
            raise ModelError(f"{label}: reshaped constants are not supported")
        if not isinstance(source, Real | Pending | Host | Input):
            raise ModelError(f"{label}: input '{node.input[0]}' is not quantised")
        shape = self._new_shape(node, attributes, source.shape)
        if isinstance(source, Input):
            return replace(source, shape=shape)
        if isinstance(source, Host):
            return self._host(node, "Reshape", source.name, shape, {"shape": shape})
        cube = reshaped_cube(source.cube, source.shape, shape)
        if cube is not None:
            return replace(source, shape=shape, cube=cube)
        if isinstance(source, Pending):
            raise ModelError(f"{label}: '{node.input[0]}' must be quantised first")
        mover = OnnxNode(node, [source], self.graph)  # the bytes get another order in memory
        return real_of(mover.on_host("Rearrange", mover.view(), mover.made(0, shape), shape=shape))

    def _new_shape(self, node: onnx.NodeProto, attributes: dict[str, Any], shape: Shape) -> Shape:
        if node.op_type in ("Identity", "Dropout"):
            return shape
        flat = np.empty(shape, dtype=np.bool_)
        if node.op_type == "Flatten":
            axis = int(attributes.get("axis", 1))
            axis += flat.ndim if axis < 0 else 0
            return (int(np.prod(shape[:axis])), int(np.prod(shape[axis:])))
        given = self._array(node, 1)
        axes = [int(a) for a in (given.reshape(-1) if given is not None else attributes.get("axes", []))]
        try:
            if node.op_type == "Reshape":
                return flat.reshape([shape[i] if n == 0 else n for i, n in enumerate(axes)]).shape
            if node.op_type == "Squeeze":
                return np.squeeze(flat, tuple(axes) if axes else None).shape
            return np.expand_dims(flat, tuple(axes)).shape
        except (ValueError, IndexError) as error:
            raise ModelError(f"{node_label(node)}: {shape} does not fit: {error}") from error

    def _softmax(self, node: onnx.NodeProto, attributes: dict[str, Any]) -> Value:
        source = self._get(node, 0)
        if not isinstance(source, Real | Host):
            raise ModelError(f"{node_label(node)}: input '{node.input[0]}' is not quantised")
        name, axis = source.name if isinstance(source, Host) else source.tensor, attributes.get("axis", -1)
        if isinstance(source, Real) and axis not in (-1, len(source.shape) - 1):
            batch = len(source.shape) == 3 and source.shape[0] > 1
            if batch or g.in_rows(source.shape, source.cube):
                raise ModelError(f"{node_label(node)}: axis {axis} of {source.shape} is among the rows")
        return self._host(node, "Softmax", name, source.shape, {"axis": int(axis), "shape": source.shape})

    def _output(self, info: onnx.ValueInfoProto) -> None:
        value = self.values.get(info.name)
        if isinstance(value, View):
            made = settled(self.graph, value, f"{info.name}@settled", f"output '{info.name}'")
            value = self.values[info.name] = real_of(made)
        if isinstance(value, Real | Quantised):
            tensor = self.graph.tensors[value.tensor]
            shape = value.shape if isinstance(value, Real) else tensor.shape
            self.graph.outputs.append(g.GraphOutput(info.name, shape, tensor.name, False))
        elif isinstance(value, Host):
            self.graph.outputs.append(g.GraphOutput(info.name, value.shape, value.name, True))
        elif value is None:
            raise ModelError(f"output '{info.name}' is not computed by any node")
        elif not self._options.fallback:
            raise ModelError(f"output '{info.name}' is not quantised (no QuantizeLinear after its operation)")
        else:
            if isinstance(value, Constant):
                array = self._plain(info.name, value)
                node = onnx.helper.make_node("Identity", [info.name], [f"{info.name}@output"], info.name)
                self.graph.tensors[node.output[0]] = g.host_tensor(node.output[0], array.shape, array.dtype)
                kind = ValueType(array.shape, array.dtype.name)
                part = OnnxPart(node, {info.name: array}, {node.output[0]: kind})
                said = g.HostOperator(info.name, "Constant", "it is an output", array.size)
                op = g.HostPart(info.name, (), node.output[0], part, "onnxruntime", said)
                self.graph.ops.append(op)
                value = Hosted(node.output[0], array.shape, array.dtype.name)
            elif not isinstance(value, Hosted):
                self._on_host(info.name, value)
                return
            if value.shape is None and value.name not in self.graph.tensors:
                self.graph.tensors[value.name] = g.host_tensor(value.name, (0,), value.dtype, open=True)
            shape = self.graph.tensors[value.name].shape
            self.graph.outputs.append(g.GraphOutput(info.name, shape, value.name, False))

    def _finish(self, name: str, value: Pending) -> Real:
        raise NotImplementedError  # only operators in floating point have results to finish


def real_of(tensor: Tensor) -> Real:
    """Return the value of a tensor of floats."""
    return Real(tensor.name, tensor.shape, tensor.cube)


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
