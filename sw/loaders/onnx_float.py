"""ONNX models of real numbers to a `Graph` of fp16 tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from sw.compiler.graph import Graph, GraphInput, ModelError, OnHost, Tensor
from sw.loaders.onnx_qdq import CLAMPS, SUPPORTED, Loader, node_label
from sw.loaders.values import Constant, Host, Input, Pending, Real, Value, natural_cube


class FloatLoader(Loader):
    """The walk of `Loader` without quantisation: a pending operation ends where its result is used."""

    floats = True

    def run(self) -> Graph:
        """Walk the nodes and return the graph."""
        self._fold_normalisation()
        return super().run()

    def _refuse_unknown(self) -> None:
        known = SUPPORTED - {"QuantizeLinear", "DequantizeLinear"}
        bad = [n for n in self.proto.node if n.op_type not in known or n.domain not in ("", "ai.onnx")]
        if bad:
            names = ", ".join(node_label(node) for node in bad)
            raise ModelError(f"unsupported operators: {names}")

    def _get(self, node: onnx.NodeProto, index: int) -> Value:
        value = super()._get(node, index)
        name = node.input[index]
        if isinstance(value, Input):
            value = self.values[name] = self._begin(value)
        if isinstance(value, Pending) and not (node.op_type in CLAMPS and value.clampable):
            value = self.values[name] = self._finish(name, value)
        if isinstance(value, Host) and node.op_type not in ("Softmax", "Reshape", "Flatten", "Identity"):
            value = self.values[name] = self._softened(name, value)
        return value

    def _begin(self, value: Input) -> Real:
        """A model input as an fp16 tensor."""
        if value.dtype != "float32":
            raise ModelError(f"input '{value.name}' is {value.dtype}; a model of floats takes float32")
        cube = natural_cube(value.shape, f"input '{value.name}'")
        self.graph.tensors[value.name] = Tensor(value.name, value.shape, 1.0, 0, cube, real=True)
        self.graph.inputs.append(GraphInput(value.name, value.name, value.given))
        return Real(value.name, value.shape, cube)

    def _finish(self, name: str, value: Pending) -> Real:
        self.graph.tensors[name] = Tensor(name, value.shape, 1.0, 0, value.cube, real=True)
        self.graph.ops.append(value.finish(name))
        return Real(name, value.shape, value.cube)

    def _softened(self, name: str, value: Host) -> Value:
        """A Softmax that more follows."""
        softmax = self._softmax_of(value.name)
        if softmax is None:
            raise ModelError(f"'{name}' is computed behind the NPU's part; nothing can follow it")
        cube = natural_cube(value.shape, f"'{name}'")
        self.graph.tensors[name] = Tensor(name, value.shape, 1.0, 0, cube, real=True)
        source = self._settled(softmax)
        attributes = {"axis": softmax.attributes["axis"]}
        self.graph.ops.append(
            OnHost(softmax.name, (source,), name, function="Softmax", attributes=attributes)
        )
        return Real(name, value.shape, cube)

    def _output(self, info: onnx.ValueInfoProto) -> None:
        value = self.values.get(info.name)
        if isinstance(value, Pending):
            self.values[info.name] = self._finish(info.name, value)
        super()._output(info)

    def _fold_normalisation(self) -> None:
        """Fold each BatchNormalization behind a Conv into its weights and bias."""
        nodes = list(self.proto.node)
        makers = {name: node for node in nodes for name in node.output}
        for node in nodes:
            if node.op_type != "BatchNormalization":
                continue
            conv = makers.get(node.input[0])
            users = [n for n in nodes if node.input[0] in n.input]
            if conv is None or conv.op_type != "Conv" or len(users) > 1:
                raise ModelError(f"{node_label(node)}: only behind a Conv that nothing else reads")
            gamma, beta, mean, variance = (self._parameter(node, index) for index in range(1, 5))
            epsilon = next((a.f for a in node.attribute if a.name == "epsilon"), 1e-5)
            factor = gamma / np.sqrt(variance + epsilon)
            weights = self._parameter(conv, 1)
            bias = self._parameter(conv, 2) if len(conv.input) > 2 else np.zeros_like(mean)
            if weights.ndim < 2 or weights.shape[0] != factor.size:
                raise ModelError(f"{node_label(node)}: {factor.size} channels behind {weights.shape}")
            names = [f"{conv.output[0]}@weights", f"{conv.output[0]}@bias"]
            spread = factor.reshape(-1, *[1] * (weights.ndim - 1))
            self.values[names[0]] = Constant((weights * spread).astype(np.float32))
            self.values[names[1]] = Constant(((bias - mean) * factor + beta).astype(np.float32))
            del conv.input[1:]
            conv.input.extend(names)
            conv.output[0] = node.output[0]
            self.proto.node.remove(node)

    def _parameter(self, node: onnx.NodeProto, index: int) -> np.ndarray[Any, np.dtype[Any]]:
        value = self.values.get(node.input[index]) if index < len(node.input) else None
        if not isinstance(value, Constant) or value.array.dtype.kind != "f":
            raise ModelError(f"{node_label(node)}: input {index} must be a constant of floats")
        return value.array.astype(np.float64)
