"""TFLite models, full-integer int8 or uint8, to a `Graph`.

Channels come last in the file and first here: tensors of four dimensions get the shape
(1, C, H, W).  Unsigned bytes are shifted to signed ones.
"""

from __future__ import annotations

import math
from typing import Any

import numpy.typing as npt

from sw.compiler.graph import (
    Clamp,
    Graph,
    GraphInput,
    GraphOutput,
    ModelError,
    OnHost,
    Rescale,
    Tensor,
)
from sw.loaders.tflite_file import ACTIVATIONS, TfModel, TfNode, TfTensor, read_tflite
from sw.loaders.values import Cube

TO_FIRST = (0, 3, 1, 2)
"""Axes of (N, H, W, C) in the order N, C, H, W."""
TO_LAST = (0, 2, 3, 1)
MAX_WINDOW = 31
"""Largest map that one convolution takes in whole (HARDWARE 2.2, WEIGHT_WIDTH)."""


def load_tflite(data: bytes) -> Graph:
    """Read a TFLite model.

    Raises
    ------
    ModelError
        for a damaged file, unsupported operators or types (all nodes are named), missing quantisation
        and wrong shapes.
    """
    return Loader(read_tflite(data)).run()


class Loader:
    """State of one walk over the nodes; `known` are the tensors that have a value so far."""

    def __init__(self, model: TfModel) -> None:
        self.model = model
        self.graph = Graph(model.name)
        self.known: set[int] = set()
        self.floats: dict[int, str] = {}
        """Real-valued outputs of DEQUANTIZE, and the tensor behind them."""

    def run(self) -> Graph:
        """Walk the nodes and return the graph."""
        from sw.loaders.tflite_nodes import BUILDERS

        wrong = [self.model.label(n) for n in self.model.nodes if n.op not in BUILDERS]
        if wrong:
            raise ModelError(f"unsupported operators: {', '.join(wrong)}")
        for number in self.model.inputs:
            self._input(number)
        bad: list[str] = []
        broken: set[int] = set()
        for node in self.model.nodes:
            if broken.intersection(node.inputs):
                broken.update(node.outputs)  # its own fault or not, the message would tell nothing new
                continue
            try:
                self._check_known(node)
                BUILDERS[node.op](self, node)
            except ModelError as error:
                bad.append(str(error))
                broken.update(node.outputs)
            self.known.update(node.outputs)
        if bad:
            raise ModelError("; ".join(bad))
        for number in self.model.outputs:
            self._output(number)
        if not self.graph.ops:
            raise ModelError(f"model '{self.graph.name}' has no operation for the NPU")
        return self.graph

    def _check_known(self, node: TfNode) -> None:
        for number in node.inputs:
            if number >= 0 and number not in self.known and self.model.tensors[number].data is None:
                name = self.model.tensors[number].name
                raise ModelError(f"{self.label(node)}: input '{name}' has no value")

    def label(self, node: TfNode) -> str:
        """Name of a node for messages."""
        return self.model.label(node)

    def name(self, node: TfNode) -> str:
        """Name of the operation in the graph."""
        return self.model.tensors[node.outputs[0]].name

    def item(self, node: TfNode, index: int) -> TfTensor:
        """Input `index` of a node, whatever it is."""
        if index >= len(node.inputs) or node.inputs[index] < 0:
            raise ModelError(f"{self.label(node)}: input {index} is missing")
        return self.model.tensors[node.inputs[index]]

    def optional(self, node: TfNode, index: int) -> TfTensor | None:
        """Input `index`, or None where it is left out."""
        return self.item(node, index) if index < len(node.inputs) and node.inputs[index] >= 0 else None

    def constant(self, node: TfNode, index: int) -> npt.NDArray[Any]:
        """Values of a constant input."""
        item = self.item(node, index)
        if item.data is None:
            raise ModelError(f"{self.label(node)}: '{item.name}' must be a constant")
        return item.data

    def activation(self, node: TfNode, index: int = 0) -> Tensor:
        """Input `index`, which must be a quantised activation."""
        item = self.item(node, index)
        if item.data is not None:
            raise ModelError(f"{self.label(node)}: '{item.name}' must not be a constant")
        if item.name not in self.graph.tensors:
            raise ModelError(f"{self.label(node)}: '{item.name}' is {item.dtype}, not a quantised activation")
        return self.graph.tensors[item.name]

    def output(self, node: TfNode, index: int = 0) -> Tensor:
        """Output `index` as a tensor of the graph."""
        return self.define(self.model.tensors[node.outputs[index]], self.label(node))

    def define(self, item: TfTensor, label: str, cube: Cube | None = None) -> Tensor:
        """Add a tensor to the graph, with its natural cube or (flattened) another."""
        scale, zero, unsigned = coding(item, label)
        channels_last = cube is not None
        tensor = Tensor(
            item.name,
            first(item.shape),
            scale,
            zero,
            cube or natural(item.shape, f"{label}: '{item.name}'"),
            unsigned,
            channels_last,
        )
        self.graph.tensors[item.name] = tensor
        self.graph.origin[item.name] = item.index
        return tensor

    def users(self, number: int) -> list[TfNode]:
        """Nodes that read a tensor."""
        return [node for node in self.model.nodes if number in node.inputs]

    def alias(self, y: Tensor, x: Tensor, name: str) -> None:
        """Let y be x's bytes, or rescale them where the file gives it another scale."""
        if y.same_values(x):
            self.graph.aliases[y.name] = x.name
        else:
            self.graph.ops.append(Rescale(name, (x.name,), y.name))

    def reshape(self, node: TfNode) -> None:
        """RESHAPE and its like: the output's shape says it all."""
        x, item = self.activation(node), self.model.tensors[node.outputs[0]]
        label, number = self.label(node), node.outputs[0]
        if math.prod(item.shape) != x.elements:
            raise ModelError(f"{label}: '{x.name}' of {x.elements} elements to {item.shape}")
        if item.shape[-1:] == (x.cube[0],) and not x.channels_last:
            self.alias(self.define(item, label), x, self.name(node))
            return
        users = self.users(number)
        flat = max(item.shape, default=1) == x.elements and item.shape[-1] == x.elements
        fits = max(x.cube[1:]) <= MAX_WINDOW
        if (
            flat
            and fits
            and users
            and all(u.op == "FULLY_CONNECTED" and u.inputs[0] == number for u in users)
        ):
            y = self.define(item, label, x.cube)
            if y.same_values(x) and number not in self.model.outputs:
                self.graph.aliases[y.name] = x.name
                return
        self.rearrange(self.name(node), x, self.define(item, label), item.shape)

    def rearrange(self, name: str, x: Tensor, y: Tensor, shape: tuple[int, ...]) -> None:
        """Let the host bring x's elements, in the file's order, into `shape`."""
        attributes: dict[str, Any] = {"shape": shape}
        if len(x.shape) == 4:
            attributes["before"] = TO_LAST
        if len(shape) == 4:
            attributes["after"] = TO_FIRST
        self.graph.ops.append(OnHost(name, (x.name,), y.name, function="Rearrange", attributes=attributes))

    def quantize(self, node: TfNode) -> None:
        """QUANTIZE of a real input, or of bytes into other bytes."""
        item = self.item(node, 0)
        y = self.output(node)
        if item.name in self.graph.tensors:
            self.alias(y, self.graph.tensors[item.name], self.name(node))
        elif item.index in self.model.inputs and item.dtype == "float32":
            self.graph.inputs.append(GraphInput(item.name, y.name, first(item.shape)))
        else:
            raise ModelError(f"{self.label(node)}: '{item.name}' is {item.dtype} and no input of the model")

    def dequantize(self, node: TfNode) -> None:
        """DEQUANTIZE in front of an output."""
        x = self.activation(node)
        self.floats[node.outputs[0]] = x.name

    def _input(self, number: int) -> None:
        item = self.model.tensors[number]
        self.known.add(number)
        if item.dtype == "float32":
            if not all(u.op == "QUANTIZE" for u in self.users(number)):
                raise ModelError(
                    f"input '{item.name}' is float32 and not quantised; use a full-integer model"
                )
            return
        self.define(item, "input")
        self.graph.inputs.append(GraphInput(item.name, item.name, first(item.shape)))

    def _output(self, number: int) -> None:
        item = self.model.tensors[number]
        value = self.floats.get(number, item.name)
        if value not in self.graph.tensors or (number not in self.known):
            raise ModelError(f"output '{item.name}' is {item.dtype} and not computed by any node")
        self.graph.outputs.append(GraphOutput(item.name, first(item.shape), value, False))


def coding(item: TfTensor, label: str) -> tuple[float, int, bool]:
    """Scale, zero point in the signed domain, and whether bytes are unsigned, of an activation.

    Raises
    ------
    ModelError
        for a type that is not 8 bit or missing quantisation, naming the tensor.
    """
    if item.dtype not in ("int8", "uint8"):
        raise ModelError(f"{label}: tensor '{item.name}' is {item.dtype}, not 8 bit")
    if item.scale.size != 1:
        what = "no quantisation" if not item.scale.size else "a scale per channel"
        raise ModelError(f"{label}: tensor '{item.name}' has {what}")
    unsigned = item.dtype == "uint8"
    zero = int(item.zero[0]) if item.zero.size else 0
    low, high = (0, 255) if unsigned else (-128, 127)
    if not low <= zero <= high:
        raise ModelError(f"{label}: tensor '{item.name}' has the zero point {zero}")
    return float(item.scale[0]), zero - (128 if unsigned else 0), unsigned


def clamp_of(node: TfNode) -> Clamp:
    """The fused activation of a node."""
    limits = ACTIVATIONS[node.options.get("FusedActivationFunction", 0)]
    return Clamp() if limits is None else Clamp(*limits)


def first(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Shape with channels in front for four dimensions."""
    return tuple(shape[axis] for axis in TO_FIRST) if len(shape) == 4 else shape


def natural(shape: tuple[int, ...], what: str) -> Cube:
    """Cube (C, H, W) of a tensor of the file: the last dimension are channels.

    Raises
    ------
    ModelError
        for a batch above one or more than four dimensions.
    """
    if len(shape) == 4 and shape[0] == 1:
        return shape[3], shape[1], shape[2]
    if len(shape) == 3 and shape[0] == 1:
        return shape[2], shape[1], 1
    if len(shape) == 2:
        return shape[1], shape[0], 1
    if len(shape) < 2:
        return shape[0] if shape else 1, 1, 1
    raise ModelError(f"{what}: shape {shape} is not supported; use (1, H, W, C) or (M, K)")


def sized(loader: Loader, node: TfNode, cube: Cube, y: Tensor) -> None:
    """Check that an output has the cube that its operator gives.

    Raises
    ------
    ModelError
        if not, naming node and tensor.
    """
    if y.cube != cube or min(cube) < 1:
        c, h, w = cube
        raise ModelError(f"{loader.label(node)}: output '{y.name}' {y.cube} should be {(c, h, w)} (C, H, W)")


def map_input(loader: Loader, node: TfNode, index: int = 0) -> Tensor:
    """Input `index`, which must have the shape (1, H, W, C).

    Raises
    ------
    ModelError
        for another shape.
    """
    x = loader.activation(node, index)
    if len(x.shape) != 4:
        raise ModelError(f"{loader.label(node)}: input '{x.name}' {x.shape} is not (1, H, W, C)")
    return x
