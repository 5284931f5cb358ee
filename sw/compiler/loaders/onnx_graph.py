"""ONNX models to a `Graph`, in QDQ form as onnxruntime's static quantiser writes it, or in floating point.

The nodes are visited once in order.  Every value name is mapped to an object of one of the small classes of
`rkcosim.compiler.loaders.onnx_node`.  An operation on dequantised tensors is *pending* until a QuantizeLinear
gives the scale and zero point of its result; a Relu or Clip in between is merged into it.  In a model in
floating point a pending operation is finished when its result is used; `rkcosim.compiler.loaders.onnx_mixed`
has models of both kinds.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx

from rkcosim.compiler import graph as g
from rkcosim.compiler.constraints.movements import part_of_a_view
from rkcosim.compiler.constraints.tensors import constant_weights, quantised
from rkcosim.compiler.graph import Clamp, HostOp, ModelError, Tensor
from rkcosim.compiler.loaders.node import Array, Constant, Cube, Pending, Shape, on_line
from rkcosim.compiler.loaders.onnx_base import CLAMPS, FLOATS, PASS_THROUGH, VIEWED, real_of
from rkcosim.compiler.loaders.onnx_node import (
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
)
from rkcosim.compiler.loaders.onnx_views import ViewVisitor
from rkcosim.compiler.loaders.operators import OPERATORS
from rkcosim.compiler.loaders.views import View

WEIGHED = ("Conv", "ConvTranspose", "Gemm")
"""Operators whose other inputs are weights and bias."""


class Loader(ViewVisitor):
    """A visit that makes operations on codes of DequantizeLinear, operators and QuantizeLinear."""

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
        if not self.floats and (kind in VIEWED or node.name in self._around):
            seen = self._moved(node) if kind in VIEWED else self._scaled_view(node)
            if seen is not None:
                return [seen]
        if kind in ("Split", "Slice", "Gather") and (parts := self._parts(node)) is not None:
            return parts
        if kind == "Gather":
            known = self._types.of(node.input[0])
            shape = () if known is None or known.shape is None else known.shape
            raise part_of_a_view.error(node_label(node), shape, int(attributes.get("axis", 0)), False)
        if kind in CLAMPS:
            return [self._clamp(node, attributes)]
        if kind in PASS_THROUGH:
            return [self._reshape(node, attributes)]
        if kind in WEIGHED:
            for name in node.input[1:]:
                known = self._types.of(name)
                fixed = not name or isinstance(self.values.get(name), Constant)
                constant_weights(node_label(node), name, known.shape if known else None, fixed)
        values = [self._get(node, i) if name else None for i, name in enumerate(node.input)]
        for name, value in zip(node.input, values, strict=True):
            quantised(node_label(node), name, value is None or isinstance(value, Real | Constant))
        made = OPERATORS[kind](OnnxNode(node, values, self.graph, self.floats))
        results = made if isinstance(made, list) else [made]
        return [
            replace(item, real=self.floats) if isinstance(item, Pending) else real_of(item)
            for item in results
        ]

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
                if not g.in_rows(source.shape, cube) and not on_line(source.shape, cube):
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
        if cube == source.cube:
            return replace(source, shape=shape)
        if cube is not None and isinstance(source, Real):  # the bytes, in other rows and columns
            name = f"{node.output[0]}@{'x'.join(map(str, cube))}"
            made = replace(self.graph.tensors[source.tensor], name=name, shape=shape, cube=cube)
            self.graph.tensors[name], self.graph.aliases[name] = made, source.tensor
            return real_of(made)
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
        kind = info.type.WhichOneof("value") or "tensor_type"
        strings = kind == "tensor_type" and info.type.tensor_type.elem_type == onnx.TensorProto.STRING
        if strings or kind != "tensor_type":
            what = "a tensor of strings" if strings else f"a {kind.removesuffix('_type')}"
            raise ModelError(
                f"output '{info.name}' is {what}; outputs may be tensors of numbers "
                "(--outputs NAME,... leaves it out)"
            )
        value = self.values.get(info.name)
        if isinstance(value, View) and (made := self._settled_codes(info.name, value)) is not None:
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
