"""The visit of an ONNX model's nodes in order: values, operators for the host, inputs.

`rkcosim.compiler.loaders.onnx_graph` describes what the loaders make.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np
import onnx
from onnx import numpy_helper

from rkcosim.compiler import graph as g
from rkcosim.compiler.constraints.functions import function_reason
from rkcosim.compiler.constraints.normalisations import last_softmax_reason
from rkcosim.compiler.constraints.placement import (
    between_npu_operations,
    known_operator,
    one_result,
    readable_by_host,
    reads_the_npu,
)
from rkcosim.compiler.constraints.tensors import constant_parameter
from rkcosim.compiler.graph import MAX_ELEMENTS, Graph, ModelError, Tensor
from rkcosim.compiler.host_steps import REAL_FUNCTIONS
from rkcosim.compiler.limits import SMALL
from rkcosim.compiler.loaders.node import Array, Constant, Cube, Pending, Shape
from rkcosim.compiler.loaders.onnx_file import OWN_DOMAINS
from rkcosim.compiler.loaders.onnx_node import (
    Broken,
    Hosted,
    Input,
    Quantised,
    Real,
    Value,
    node_label,
    reads,
)
from rkcosim.compiler.loaders.onnx_parts import (
    OnnxPart,
    ValueType,
    ValueTypes,
    describe,
    type_name,
)
from rkcosim.compiler.loaders.operators import OPERATORS
from rkcosim.compiler.loaders.products import settled
from rkcosim.compiler.loaders.views import View, rows_cube, settled_cube
from rkcosim.compiler.options import LoadOptions
from rkcosim.compiler.permutation import Permute
from rkcosim.compiler.steps import HostStep

PASS_THROUGH = {"Flatten", "Reshape", "Squeeze", "Unsqueeze", "Identity", "Dropout"}
CLAMPS = {"Relu", "Clip"}
CODINGS = {"QuantizeLinear", "DequantizeLinear"}
SUPPORTED = {"Softmax", "Gather", *PASS_THROUGH, *CLAMPS, *OPERATORS} - {"FullyConnected"}
MOVES = {*PASS_THROUGH, "Transpose", "Concat", "Split", "Slice", "Pad", "Softmax"}
"""Operators without arithmetic (or with none on the NPU), which the host does if their inputs are there."""
PRODUCTS = {"Conv", "ConvTranspose", "Gemm", "MatMul"}
VIEWED = {"Transpose", "Reshape", "Squeeze", "Unsqueeze", "Identity"}
"""Operators whose results may be the bytes of their inputs, in another shape or order."""
FLOATS = ("float32", "float16")
BY_ROWS = {
    *REAL_FUNCTIONS,
    *CLAMPS,
    *("Add", "Sub", "Mul", "Div", "MatMul", "LayerNormalization", "RMSNormalization"),
}
"""Operators that may treat all rows of channels alike."""


class NodeVisitor(ABC):
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
        if self._options.fallback and all(
            isinstance(op, g.HostPart | g.OnHost | Permute) for op in self.graph.ops
        ):
            reasons = self._reasons()
            for node in self.proto.node:  # without rounding to the NPU's types
                kept = between_npu_operations.reason(0, node.op_type, node.op_type in MOVES)
                self.forced[node.name] = reasons.get(node.name, self.forced.get(node.name, kept))
            self.host_inputs |= {info.name for info in self.proto.input}
        return self.graph

    def _reasons(self) -> dict[str, str]:
        """Return why the host computes the operators of a graph without operations of the NPU, by node."""
        graph = self.graph
        parts = [op for op in graph.ops if isinstance(op, g.HostPart)]
        found = {op.name: op.operator.reason for op in parts if op.operator.reason}
        for op in graph.ops:
            if isinstance(op, g.OnHost):
                inputs = tuple(graph.tensors[name] for name in op.inputs)
                output, details = graph.tensors[op.output], op.attributes
                step = HostStep(op.name, op.kind, inputs, output, function=op.function, attributes=details)
                found[graph.makers.get(op.output, op.name)] = function_reason(step)
        for last in graph.host_ops:
            if last.kind == "Softmax":
                found[last.name] = last_softmax_reason(graph.tensors.get(last.input), last)
        return found

    def _knows(self, node: onnx.NodeProto) -> bool:
        return node.op_type in self.supported and node.domain in OWN_DOMAINS

    def _visit(self, node: onnx.NodeProto) -> None:
        """Make operations of a node for the NPU, or else a part for the host."""
        if any(isinstance(self.values.get(name), Broken) for name in node.input):
            self.values |= {name: Broken() for name in node.output}
            return
        reason = self._hosted.get(node.name, "")
        if not reason and not self._knows(node):
            reason = known_operator.reason(node.op_type, False)
        if not reason and self._only_hosted(node) and self._stays(node):
            reason = reads_the_npu.reason(True, tuple(name for name in node.input if name))
        if not reason:
            graph = self.graph
            kept = dict(self.values), list(graph.ops), dict(graph.tensors), dict(graph.aliases)
            kept_more = dict(graph.constants), list(graph.inputs), list(graph.host_ops), dict(self._copies)
            try:
                made = self._node(node)
                one_result(node_label(node), tuple(name for name in node.output[len(made) :] if name))
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
        with np.errstate(over="ignore"):
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
        if isinstance(value, View) and (made := self._settled_codes(name, value)) is not None:
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
            self.forced[self._nodes[name].name] = readable_by_host.reason(
                name, False, not isinstance(value, Pending)
            )
        return self._hosted_value(name)  # this graph is made again

    def _settled_codes(self, name: str, view: View) -> Tensor | None:
        """Return a view of codes as a tensor of its shape; None for floats and shapes without a layout."""
        shape = view.shape
        if self.graph.tensors[view.tensor].real or len(shape) > 4 or (len(shape) > 2 and shape[0] != 1):
            return None
        return settled(self.graph, view, f"{name}@settled", f"'{name}'")

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
            raise ModelError(
                f"input '{info.name}' is {name}; inputs may be tensors of bool, of integers of 8 to 64 bits "
                "and of float16, float32 and float64"
            )
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
            if value.plain and settled_cube(value) is None and self._by_rows(node):
                return self._rows_of(value, name)
            return real_of(settled(self.graph, value, f"{name}@settled", f"'{name}'"))
        return value

    def _by_rows(self, node: onnx.NodeProto) -> bool:
        """Whether an operator treats all rows of channels alike, and has one activation."""
        constants = sum(isinstance(self.values.get(name), Constant) for name in node.input)
        return node.op_type in BY_ROWS and len([name for name in node.input if name]) - constants == 1

    def _rows_of(self, view: View, name: str) -> Real:
        """Return a view whose axes lie in order as rows of channels, whatever the number of its axes."""
        made = f"{name}@rows"
        if made not in self.graph.tensors:
            tensor, cube = self.graph.tensors[view.tensor], rows_cube(view.shape)
            self.graph.tensors[made] = replace(
                tensor, name=made, shape=view.shape, cube=cube, channels_last=False
            )
            self.graph.aliases[made] = view.tensor
        return real_of(self.graph.tensors[made])

    def _array(self, node: onnx.NodeProto, index: int) -> Array | None:
        if index >= len(node.input) or not node.input[index]:
            return None
        value = self._get(node, index)
        if not isinstance(value, Constant):
            raise constant_parameter.error(node_label(node), node.input[index], False)
        return value.real()

    def _drop_unused(self) -> None:
        """Remove host operations whose results no output needs."""
        needed = {item.value for item in self.graph.outputs if item.real}
        for op in reversed(self.graph.host_ops):
            if op.output in needed:
                needed.add(op.input)
        self.graph.host_ops = [op for op in self.graph.host_ops if op.output in needed]

    @abstractmethod
    def _node(self, node: onnx.NodeProto) -> list[Value]:
        """Return the values of a node's outputs."""

    @abstractmethod
    def _output(self, info: onnx.ValueInfoProto) -> None:
        """Add an output of the model."""

    @abstractmethod
    def _tensor(self, name: str, shape: Shape, cube: Cube, node: onnx.NodeProto | None = None) -> Tensor:
        """Add a tensor to the graph, quantised as `node` says, or of fp16 numbers."""

    @abstractmethod
    def _finish(self, name: str, value: Pending) -> Real:
        """Return the tensor of a pending result of floats."""


def real_of(tensor: Tensor) -> Real:
    """Return the value of a tensor of floats."""
    return Real(tensor.name, tensor.shape, tensor.cube)
