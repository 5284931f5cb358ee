"""ONNX models in QDQ form, as onnxruntime's static quantiser writes them, to a `Graph`.

The nodes are walked once in order.  Every value name stands for one of the small classes of
`sw.loaders.values`; an operation on dequantised tensors is *pending* until a QuantizeLinear gives
its result scale and zero point, and takes up a Relu or Clip on the way.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import numpy_helper

from sw.compiler.graph import (
    MAX_ELEMENTS,
    Clamp,
    Graph,
    GraphInput,
    GraphOutput,
    HostOp,
    ModelError,
    OnHost,
    Rescale,
    Tensor,
)
from sw.loaders.nodes import NodeContext
from sw.loaders.onnx_movement import moving_reshape
from sw.loaders.onnx_nodes import BUILDERS
from sw.loaders.values import (
    Broken,
    Constant,
    Host,
    Input,
    Pending,
    Quantised,
    Real,
    Value,
    natural_cube,
    reshaped_cube,
)

PASS_THROUGH = {"Flatten", "Reshape", "Squeeze", "Unsqueeze", "Identity", "Dropout"}
CLAMPS = {"Relu", "Clip"}
SUPPORTED = {
    "QuantizeLinear",
    "DequantizeLinear",
    "Constant",
    "Softmax",
    *PASS_THROUGH,
    *CLAMPS,
    *BUILDERS,
}
_DTYPES: dict[int, str] = {
    onnx.TensorProto.FLOAT: "float32",
    onnx.TensorProto.INT8: "int8",
    onnx.TensorProto.UINT8: "uint8",
}


def load_onnx(data: bytes) -> Graph:
    """Read an ONNX model: QDQ form, or real numbers throughout (then computed in fp16).

    Parameters
    ----------
    data
        the bytes of the file.

    Raises
    ------
    ModelError
        for a damaged file, unsupported operators (all of them are named), missing quantisation and
        wrong shapes or types.
    """
    if not data:
        raise ModelError("not an ONNX model: the file is empty")
    try:
        proto = onnx.load_model_from_string(data)
    except Exception as error:  # protobuf's DecodeError; its class is not part of onnx' interface
        raise ModelError(f"not an ONNX model, or cut short ({len(data)} bytes): {error}") from error
    if not proto.graph.node:
        raise ModelError(f"not an ONNX model, or cut short: no node in {len(data)} bytes")
    try:
        onnx.checker.check_model(proto)
    except (onnx.checker.ValidationError, ValueError) as error:  # ValueError: names that are no text
        text = " ".join(str(error).split())
        raise ModelError(f"damaged ONNX model: {text[:300]}") from error
    if any(node.op_type in ("QuantizeLinear", "DequantizeLinear") for node in proto.graph.node):
        return Loader(proto).run()
    from sw.loaders.onnx_float import FloatLoader

    return FloatLoader(proto).run()


def node_label(node: onnx.NodeProto) -> str:
    """Name of a node as messages print it."""
    return f"{node.op_type} '{node.name or (node.output[0] if node.output else '?')}'"


class Loader:
    """State of one walk; `values` maps a value name to what it stands for."""

    floats = False

    def __init__(self, proto: onnx.ModelProto) -> None:
        self.proto = proto.graph
        self.graph = Graph(proto.graph.name or "model")
        self.values: dict[str, Value] = {}
        for tensor in self.proto.initializer:
            try:
                self.values[tensor.name] = Constant(numpy_helper.to_array(tensor))
            except Exception as error:  # onnx raises ValueError, TypeError and others for bad raw data
                raise ModelError(f"damaged ONNX model: initializer '{tensor.name}': {error}") from error

    def run(self) -> Graph:
        """Walk the nodes and return the graph."""
        self._refuse_unknown()
        for info in self.proto.input:
            if info.name not in self.values:
                self.values[info.name] = self._input(info)
        bad: list[str] = []
        for node in self.proto.node:
            if any(isinstance(self.values.get(name), Broken) for name in node.input):
                self._spoil(node)
                continue
            try:
                self._node(node)
            except ModelError as error:
                bad.append(str(error))
                self._spoil(node)
        if bad:
            raise ModelError("; ".join(bad))
        for info in self.proto.output:
            self._output(info)
        self._drop_unused()
        if not self.graph.ops:
            raise ModelError(f"model '{self.graph.name}' has no operation for the NPU")
        return self.graph

    def _spoil(self, node: onnx.NodeProto) -> None:
        self.values.update({name: Broken() for name in node.output})

    def _refuse_unknown(self) -> None:
        bad = [n for n in self.proto.node if n.op_type not in SUPPORTED or n.domain not in ("", "ai.onnx")]
        if bad:
            names = ", ".join(node_label(node) for node in bad)
            raise ModelError(f"unsupported operators: {names}")

    def _input(self, info: onnx.ValueInfoProto) -> Input:
        kind = info.type.tensor_type
        dtype = _DTYPES.get(kind.elem_type)
        if dtype is None:
            name = onnx.TensorProto.DataType.Name(kind.elem_type)
            raise ModelError(f"input '{info.name}' is {name}; only float32, int8 and uint8 are supported")
        shape = tuple(d.dim_value or 1 if i == 0 else d.dim_value for i, d in enumerate(kind.shape.dim))
        if math.prod(shape) > MAX_ELEMENTS:
            raise ModelError(f"input '{info.name}': shape {shape} is too large")
        if not shape or 0 in shape:
            raise ModelError(f"input '{info.name}' has no fixed shape ({shape}, 0 for an open dimension)")
        return Input(info.name, shape, dtype, shape)

    def _get(self, node: onnx.NodeProto, index: int) -> Value:
        name = node.input[index] if index < len(node.input) else ""
        if name not in self.values:
            raise ModelError(f"{node_label(node)}: input {index} ('{name}') is not known at this point")
        return self.values[name]

    def _array(self, node: onnx.NodeProto, index: int) -> npt.NDArray[Any] | None:
        if index >= len(node.input) or not node.input[index]:
            return None
        value = self._get(node, index)
        if not isinstance(value, Constant):
            raise ModelError(f"{node_label(node)}: '{node.input[index]}' must be a constant")
        return value.real()

    def _node(self, node: onnx.NodeProto) -> None:
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        if node.op_type == "Constant":
            if "value" not in attributes:
                raise ModelError(f"{node_label(node)}: only tensor constants are supported")
            self.values[node.output[0]] = Constant(numpy_helper.to_array(attributes["value"]))
            return
        handler: Callable[[onnx.NodeProto, dict[str, Any]], Value | list[Value]]
        if node.op_type == "QuantizeLinear":
            handler = self._quantize
        elif node.op_type == "DequantizeLinear":
            handler = self._dequantize
        elif node.op_type == "Softmax":
            handler = self._softmax
        elif node.op_type in PASS_THROUGH:
            handler = self._reshape
        elif node.op_type in CLAMPS:
            handler = self._clamp
        else:
            handler = self._operation
        made = handler(node, attributes)
        results = made if isinstance(made, list) else [made]
        self.values.update(zip(node.output, results, strict=False))

    def _scale(self, node: onnx.NodeProto) -> tuple[npt.NDArray[np.float64], npt.NDArray[Any]]:
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

    def _activation_scale(self, node: onnx.NodeProto) -> tuple[float, int, bool]:
        """Scale, zero point in the signed domain, and whether the model's bytes are unsigned."""
        scale, zero = self._scale(node)
        if scale.size != 1:
            raise ModelError(f"{node_label(node)}: activation '{node.input[0]}' has a scale per channel")
        if zero.dtype not in (np.int8, np.uint8):
            raise ModelError(f"{node_label(node)}: activation '{node.input[0]}' is {zero.dtype}, not 8 bit")
        unsigned = zero.dtype == np.uint8
        return float(scale.reshape(-1)[0]), int(zero.reshape(-1)[0]) - (128 if unsigned else 0), unsigned

    def _tensor(self, node: onnx.NodeProto, shape: tuple[int, ...], cube: tuple[int, int, int]) -> Tensor:
        scale, zero, unsigned = self._activation_scale(node)
        tensor = Tensor(node.output[0], shape, scale, zero, cube, unsigned)
        self.graph.tensors[tensor.name] = tensor
        return tensor

    def _quantize(self, node: onnx.NodeProto, _: dict[str, Any]) -> Value:
        source = self._get(node, 0)
        if isinstance(source, Constant):
            scale, zero = self._scale(node)
            info = np.iinfo(zero.dtype)
            codes = np.rint(source.real() / scale) + zero
            return Constant(np.clip(codes, info.min, info.max).astype(zero.dtype))
        softmax = self._softmax_of(source.name) if isinstance(source, Host) else None
        if isinstance(source, Host) and softmax and not self._ends(node.output[0]):
            tensor = self._tensor(node, source.shape, natural_cube(source.shape, node_label(node)))
            x = self._settled(softmax)
            attributes = {"axis": softmax.attributes["axis"]}
            self.graph.ops.append(
                OnHost(softmax.name, (x,), tensor.name, function="Softmax", attributes=attributes)
            )
            return Quantised(tensor.name)
        if isinstance(source, Host):
            scale_, zero_, unsigned = self._activation_scale(node)
            coding: dict[str, object] = {
                "scale": scale_,
                "zero_point": zero_ + (128 if unsigned else 0),
                "unsigned": unsigned,
            }
            self.graph.host_ops.append(
                HostOp(node.name or node.output[0], "Quantize", source.name, node.output[0], coding)
            )
            return Host(node.output[0], source.shape)
        if isinstance(source, Input):
            if source.dtype != "float32":
                raise ModelError(f"{node_label(node)}: input '{source.name}' is {source.dtype}, not float32")
            tensor = self._tensor(node, source.shape, natural_cube(source.shape, f"input '{source.name}'"))
            self.graph.inputs.append(GraphInput(source.name, tensor.name, source.given))
            return Quantised(tensor.name)
        if isinstance(source, Real):
            before = self.graph.tensors[source.tensor]
            tensor = self._tensor(node, source.shape, source.cube)
            if tensor.same_values(before):
                self.graph.aliases[tensor.name] = before.name
            else:
                self.graph.ops.append(Rescale(node.name or tensor.name, (before.name,), tensor.name))
            return Quantised(tensor.name)
        if isinstance(source, Pending):
            tensor = self._tensor(node, source.shape, source.cube)
            self.graph.ops.append(source.finish(tensor.name))
            return Quantised(tensor.name)
        raise ModelError(f"{node_label(node)}: '{node.input[0]}' is quantised already")

    def _ends(self, value: str) -> bool:
        """Whether nothing but the host's part comes behind a value."""
        users = [node for node in self.proto.node if value in node.input]
        light = {"DequantizeLinear", *PASS_THROUGH}
        return all(n.op_type in light and all(self._ends(name) for name in n.output) for n in users)

    def _softmax_of(self, value: str) -> HostOp | None:
        """The Softmax of a quantised tensor that gives a host value, if one does."""
        for op in self.graph.host_ops:
            if op.output == value and op.kind == "Softmax" and op.input in self.graph.tensors:
                return op
        return None

    def _settled(self, op: HostOp) -> str:
        """The input of a Softmax as a tensor of its shape."""
        tensor, shape = self.graph.tensors[op.input], op.attributes["shape"]
        assert isinstance(shape, tuple)
        if shape == tensor.shape:
            return tensor.name
        name = f"{tensor.name}@{op.name}"
        self.graph.tensors[name] = replace(tensor, name=name, shape=shape)
        self.graph.aliases[name] = tensor.name
        return name

    def _drop_unused(self) -> None:
        """Forget host operations that no output needs."""
        needed = {item.value for item in self.graph.outputs if item.real}
        for op in reversed(self.graph.host_ops):
            if op.output in needed:
                needed.add(op.input)
        self.graph.host_ops = [op for op in self.graph.host_ops if op.output in needed]

    def _dequantize(self, node: onnx.NodeProto, attributes: dict[str, Any]) -> Value:
        source = self._get(node, 0)
        if isinstance(source, Constant):
            scale, zero = self._scale(node)
            return Constant(source.array, scale, zero, int(attributes.get("axis", 1)))
        if isinstance(source, Host):
            scale_, zero_, unsigned = self._activation_scale(node)
            values: dict[str, object] = {"scale": scale_, "zero_point": zero_ + (128 if unsigned else 0)}
            self.graph.host_ops.append(
                HostOp(node.name or node.output[0], "Dequantize", source.name, node.output[0], values)
            )
            return Host(node.output[0], source.shape)
        if isinstance(source, Input):
            scale_, zero_, unsigned = self._activation_scale(node)
            if source.dtype != ("uint8" if unsigned else "int8"):
                raise ModelError(f"{node_label(node)}: input '{source.name}' is {source.dtype}")
            cube = natural_cube(source.shape, f"input '{source.name}'")
            self.graph.tensors[source.name] = Tensor(source.name, source.shape, scale_, zero_, cube, unsigned)
            self.graph.inputs.append(GraphInput(source.name, source.name, source.given))
            return Real(source.name, source.shape, cube)
        if not isinstance(source, Quantised):
            raise ModelError(f"{node_label(node)}: '{node.input[0]}' is not quantised")
        tensor = self.graph.tensors[source.tensor]
        scale_, zero_, _ = self._activation_scale(node)
        if (scale_, zero_) != (tensor.scale, tensor.zero_point):
            raise ModelError(f"{node_label(node)}: scale or zero point differ from those of '{tensor.name}'")
        return Real(tensor.name, tensor.shape, tensor.cube)

    def _operation(self, node: onnx.NodeProto, attributes: dict[str, Any]) -> Value | list[Value]:
        label = node_label(node)
        values = [self._get(node, i) if name else None for i, name in enumerate(node.input)]
        names = list(node.input)
        for name, value in zip(names, values, strict=True):
            if value is not None and not isinstance(value, Real | Constant):
                raise ModelError(f"{label}: input '{name}' is not quantised (no DequantizeLinear before it)")
        context = NodeContext(label, node, attributes, names, values, self.graph, self.floats)
        return BUILDERS[node.op_type](context)

    def _clamp(self, node: onnx.NodeProto, attributes: dict[str, Any]) -> Value:
        low, high = (0.0, np.inf) if node.op_type == "Relu" else (-np.inf, np.inf)
        if node.op_type == "Clip":
            bounds = [self._array(node, 1), self._array(node, 2)]
            low = float(bounds[0].item()) if bounds[0] is not None else float(attributes.get("min", low))
            high = float(bounds[1].item()) if bounds[1] is not None else float(attributes.get("max", high))
            if low > high:
                raise ModelError(f"{node_label(node)}: min {low} is above max {high}")
        source = self._get(node, 0)
        clamp = Clamp(low, high)
        if isinstance(source, Pending):
            if not source.clampable:
                raise ModelError(f"{node_label(node)}: '{node.input[0]}' must be quantised first")
            return source.clamped(clamp)
        if isinstance(source, Real):
            name, tensor, kind = node.name or node.output[0], source.tensor, node.op_type

            def finish(output: str, limits: Clamp) -> Rescale:
                return Rescale(name, (tensor,), output, kind, clamp=limits)

            return Pending(finish, source.shape, source.cube, clamp)
        raise ModelError(f"{node_label(node)}: input '{node.input[0]}' is not quantised")

    def _reshape(self, node: onnx.NodeProto, attributes: dict[str, Any]) -> Value:
        source = self._get(node, 0)
        if isinstance(source, Constant):
            raise ModelError(f"{node_label(node)}: reshaped constants are not supported")
        if not isinstance(source, Real | Pending | Host | Input):
            raise ModelError(f"{node_label(node)}: input '{node.input[0]}' is not quantised")
        shape = self._new_shape(node, attributes, source.shape)
        if isinstance(source, Input):
            return replace(source, shape=shape)
        if isinstance(source, Host):
            self.graph.host_ops.append(
                HostOp(node.name, "Reshape", source.name, node.output[0], {"shape": shape})
            )
            return Host(node.output[0], shape)
        cube = reshaped_cube(source.cube, shape)
        if cube is None and isinstance(source, Real):
            names = [node.input[0]]
            return moving_reshape(
                NodeContext(node_label(node), node, attributes, names, [source], self.graph), shape
            )
        if cube is None:
            raise ModelError(f"{node_label(node)}: '{node.input[0]}' must be quantised first")
        if isinstance(source, Pending):
            return source.reshaped(shape, cube)
        return Real(source.tensor, shape, cube)

    def _new_shape(
        self, node: onnx.NodeProto, attributes: dict[str, Any], shape: tuple[int, ...]
    ) -> tuple[int, ...]:
        if node.op_type in ("Identity", "Dropout"):
            return shape
        flat = np.empty(shape, dtype=np.bool_)
        if node.op_type == "Flatten":
            axis = int(attributes.get("axis", 1)) % (flat.ndim + 1)
            return (int(np.prod(shape[:axis])), int(np.prod(shape[axis:])))
        given = self._array(node, 1)
        axes = [int(a) for a in (given.reshape(-1) if given is not None else attributes.get("axes", []))]
        try:
            if node.op_type == "Reshape":
                target = [shape[i] if n == 0 else n for i, n in enumerate(axes)]
                return flat.reshape(target).shape
            if node.op_type == "Squeeze":
                return np.squeeze(flat, tuple(axes) if axes else None).shape
            return np.expand_dims(flat, tuple(axes)).shape
        except (ValueError, IndexError) as error:
            raise ModelError(f"{node_label(node)}: {shape} does not fit: {error}") from error

    def _softmax(self, node: onnx.NodeProto, attributes: dict[str, Any]) -> Value:
        source = self._get(node, 0)
        if not isinstance(source, Real | Host):
            raise ModelError(f"{node_label(node)}: input '{node.input[0]}' is not quantised")
        name = source.name if isinstance(source, Host) else source.tensor
        values: dict[str, object] = {"axis": int(attributes.get("axis", -1)), "shape": source.shape}
        self.graph.host_ops.append(
            HostOp(node.name or node.output[0], "Softmax", name, node.output[0], values)
        )
        return Host(node.output[0], source.shape)

    def _output(self, info: onnx.ValueInfoProto) -> None:
        value = self.values.get(info.name)
        if isinstance(value, Real | Quantised):
            tensor = self.graph.tensors[value.tensor]
            shape = value.shape if isinstance(value, Real) else tensor.shape
            self.graph.outputs.append(GraphOutput(info.name, shape, tensor.name, False))
        elif isinstance(value, Host):
            self.graph.outputs.append(GraphOutput(info.name, value.shape, value.name, True))
        elif isinstance(value, Pending | Broken):
            raise ModelError(f"output '{info.name}' is not quantised (no QuantizeLinear after its operation)")
        else:
            raise ModelError(f"output '{info.name}' is not computed by any node")
