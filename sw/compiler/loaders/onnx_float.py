"""ONNX models in floating point to a `Graph`; see `rkcosim.compiler.loaders.onnx_graph`."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import onnx

from rkcosim.compiler import graph as g
from rkcosim.compiler.constraints.tensors import float_type
from rkcosim.compiler.graph import Graph, ModelError
from rkcosim.compiler.loaders.node import Array, Constant, Pending, natural_cube, on_line
from rkcosim.compiler.loaders.onnx_base import CLAMPS, FLOATS, SUPPORTED, VIEWED, real_of
from rkcosim.compiler.loaders.onnx_node import (
    Broken,
    Host,
    Hosted,
    Input,
    Real,
    Value,
    node_label,
)
from rkcosim.compiler.loaders.onnx_normalise import NORMALISATIONS, NormalisationLoader
from rkcosim.compiler.loaders.products import flattened, settled
from rkcosim.compiler.loaders.views import View, rows_cube, view_of


class FloatLoader(NormalisationLoader):
    """`Loader` without quantisation: a pending operation is finished when its result is used."""

    supported = SUPPORTED | NORMALISATIONS
    floats = True

    def run(self) -> Graph:
        """Visit all nodes and return the graph."""
        self._options.check_floats("this model is not quantised")
        if self._options.floats == "fp16":
            self._fold_normalisation()
            self._join_groups()
        return super().run()

    def _visit(self, node: onnx.NodeProto) -> None:
        if self._options.floats == "fp16" or node.name in self._hosted:
            super()._visit(node)
        elif self._options.fallback:
            self._host_node(node, "it is in floating point")
        else:
            self._bad.append(
                f"{node_label(node)}: it is in floating point, which the NPU computes in fp16 only"
            )
            self.values |= {name: Broken() for name in node.output}

    def _node(self, node: onnx.NodeProto) -> list[Value]:
        made: Value | None = None
        if node.op_type in VIEWED:
            made = self._moved(node)
        elif node.op_type in ("Mul", "Div"):
            made = self._scaled_view(node)
        elif node.op_type in NORMALISATIONS:
            made = self._normalised(node)
        return super()._node(node) if made is None else [made]

    def _matrices(self, name: str) -> Real | None:
        """Return matrices of the host or of an input as rows of a tensor; None for a single one."""
        value = self.values.get(name)
        if not isinstance(value, Hosted | Input) or value.shape is None or value.dtype not in FLOATS:
            return None
        if not self.floats:
            return None
        if len(value.shape) < 3 or math.prod(value.shape[:-2]) == 1:
            return None
        made = f"{name}@rows"
        if made not in self.graph.tensors:
            tensor = self._tensor(made, value.shape, rows_cube(value.shape))
            if isinstance(value, Input):
                self.host_inputs.add(value.name)  # this graph is made again
            else:
                self._to_npu(value, tensor)
        return real_of(self.graph.tensors[made])

    def _get(self, node: onnx.NodeProto, index: int) -> Value:
        value = super()._get(node, index)
        name = node.input[index]
        if isinstance(value, Hosted):
            value = self._real_of(name, value)
        if isinstance(value, Input):  # as an fp16 tensor
            if value.dtype not in FLOATS:
                raise float_type.error(f"input '{value.name}'", value.name, value.dtype)
            cube = self._placed(value.shape, name, f"input '{value.name}'")
            known = value.name if value.name not in self.graph.tensors else f"{name}@input"
            tensor = self._tensor(known, value.shape, cube)
            self._take(value, tensor)
            value = self.values[name] = real_of(tensor)
        if isinstance(value, Pending) and not (node.op_type in CLAMPS and value.clampable):
            value = self.values[name] = self._finish(name, value)
        if isinstance(value, Host) and node.op_type not in ("Softmax", "Reshape", "Flatten", "Identity"):
            softmax = self._softmax_of(value.name)
            if softmax is None:
                raise ModelError(f"'{name}' is computed by the host after the NPU; nothing can follow it")
            cube = self.graph.tensors[softmax.input].cube
            if not g.in_rows(value.shape, cube) and not on_line(value.shape, cube):
                cube = natural_cube(value.shape, f"'{name}'")
            tensor = self._tensor(name, value.shape, cube)
            self._soften(softmax, tensor)
            value = self.values[name] = real_of(tensor)
        return value

    def _real_of(self, name: str, value: Hosted) -> Real:
        """Return the fp16 tensor of a value of the host."""
        if name not in self._copies:
            float_type(f"'{name}' on the host", name, value.dtype)
            if value.shape is None:
                raise ModelError(f"the shape of '{name}' depends on the data")
            tensor = self._tensor(f"{name}@npu", value.shape, self._placed(value.shape, name, f"'{name}'"))
            self._to_npu(value, tensor)
            self._copies[name] = real_of(tensor)
        return self._copies[name]

    def _finish(self, name: str, value: Pending) -> Real:
        tensor = self._tensor(name, value.shape, value.cube)
        self.graph.ops.append(value.finish(tensor))
        return real_of(tensor)

    def _output(self, info: onnx.ValueInfoProto) -> None:
        value = self.values.get(info.name)
        if isinstance(value, Pending):
            value = self.values[info.name] = self._finish(info.name, value)
        view = value if isinstance(value, View) else None
        if isinstance(value, Real) and g.in_rows(value.shape, value.cube):
            view = view_of(replace(self.graph.tensors[value.tensor], shape=value.shape, cube=value.cube))
        if view is not None and len(view.shape) <= 4 and (len(view.shape) < 3 or view.shape[0] == 1):
            name = f"{info.name}@settled"
            made = flattened(self.graph, view, name)
            made = made or settled(self.graph, view, name, f"output '{info.name}'")
            self.values[info.name] = real_of(made)
        super()._output(info)

    def _fold_normalisation(self) -> None:
        """Fold each BatchNormalization that follows a Conv into the Conv's weights and bias."""
        nodes = list(self.proto.node)
        makers = {name: node for node in nodes for name in node.output}
        for node in nodes:
            if node.op_type != "BatchNormalization":
                continue
            conv = makers.get(node.input[0])
            users = [n for n in nodes if node.input[0] in n.input]
            known = all(isinstance(self.values.get(name), Constant) for name in node.input[1:5])
            ends = {item.name for item in self.proto.output}
            apart = conv is None or conv.op_type != "Conv" or len(users) > 1 or node.input[0] in ends
            if node.name in self._hosted or not known or len([n for n in node.output if n]) > 1:
                continue
            if apart or conv is None or conv.name in self._hosted or not self._constant_weights(conv):
                self._scaled(node)
                continue
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

    def _constant_weights(self, conv: onnx.NodeProto) -> bool:
        return all(isinstance(self.values.get(name), Constant) for name in conv.input[1:] if name)

    def _scaled(self, node: onnx.NodeProto) -> None:
        """Write a BatchNormalization of a map or a signal as a depthwise convolution of one tap, in place."""
        known = self._types.of(node.input[0])
        if known is None or known.shape is None or len(known.shape) not in (3, 4):
            return
        gamma, beta, mean, variance = (self._parameter(node, index) for index in range(1, 5))
        epsilon = next((a.f for a in node.attribute if a.name == "epsilon"), 1e-5)
        factor = gamma / np.sqrt(variance + epsilon)
        names = [f"{node.output[0]}@weights", f"{node.output[0]}@bias"]
        self.values[names[0]] = Constant(factor.reshape(-1, *[1] * (len(known.shape) - 1)).astype(np.float32))
        self.values[names[1]] = Constant((beta - mean * factor).astype(np.float32))
        made = onnx.helper.make_node(
            "Conv", [node.input[0], *names], [node.output[0]], node.name, group=factor.size
        )
        node.CopyFrom(made)

    def _parameter(self, node: onnx.NodeProto, index: int) -> Array:
        value = self.values.get(node.input[index]) if index < len(node.input) else None
        if not isinstance(value, Constant) or value.array.dtype.kind != "f":
            raise ModelError(f"{node_label(node)}: input {index} must be a constant of floats")
        return value.array.astype(np.float64)
