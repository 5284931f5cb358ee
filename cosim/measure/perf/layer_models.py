"""Small ONNX models of one layer each, in int8 (QDQ form) or floating point, with random weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

SEED = 1
SCALE = 1 / 32
"""Quantisation step of every tensor; values are of the order of 1."""


class LayerModel:
    """An ONNX graph under construction, in which every tensor is quantised if `int8`.

    Parameters
    ----------
    int8 : insert a QuantizeLinear and a DequantizeLinear after every tensor.
    """

    def __init__(self, int8: bool) -> None:
        from onnx import helper, numpy_helper

        self._helper, self._numpy = helper, numpy_helper
        self.int8 = int8
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.inputs: list[Any] = []
        self.rng = np.random.default_rng(SEED)

    def constant(self, values: npt.ArrayLike, dtype: Any = np.float32) -> str:
        """Add an initializer and return its name."""
        name = f"constant{len(self.constants)}"
        self.constants.append(self._numpy.from_array(np.asarray(values, dtype), name))
        return name

    def input(self, shape: tuple[int, ...]) -> str:
        """Add a model input (floats, shape C x H x W or rows) and return its tensor's name."""
        from onnx import TensorProto

        name = f"x{len(self.inputs)}"
        self.inputs.append(self._helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, *shape]))
        return self._codes(name)

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        """Add a node and return its output's name."""
        return self._codes(self._node(op, *inputs, **attributes))

    def weights(self, shape: tuple[int, ...], fan_in: int) -> str:
        """Add random weights, as int8 codes if the model is quantised."""
        values = self.rng.normal(size=shape) / np.sqrt(fan_in)
        if not self.int8:
            return self.constant(values)
        step = float(np.abs(values).max() / 127)
        codes = self.constant(np.rint(values / step), np.int8)
        return self._node("DequantizeLinear", codes, self.constant(step), self.constant(0, np.int8))

    def bytes(self, output: str) -> bytes:
        """Return the model with this output as a file."""
        from onnx import TensorProto, shape_inference

        end = self._helper.make_tensor_value_info(output, TensorProto.FLOAT, None)
        graph = self._helper.make_graph(self.nodes, "layer", self.inputs, [end], self.constants)
        model = self._helper.make_model(
            graph, opset_imports=[self._helper.make_opsetid("", 13)], ir_version=8
        )
        return bytes(shape_inference.infer_shapes(model).SerializeToString())

    def _node(self, op: str, *inputs: str, **attributes: Any) -> str:
        name = f"{op.lower()}{len(self.nodes)}"
        self.nodes.append(self._helper.make_node(op, list(inputs), [name], name=name, **attributes))
        return name

    def _codes(self, name: str) -> str:
        """Append QuantizeLinear and DequantizeLinear to a tensor if the model is quantised."""
        if not self.int8:
            return name
        step = self.constant(SCALE), self.constant(0, np.int8)
        return self._node("DequantizeLinear", self._node("QuantizeLinear", name, *step), *step)


def conv(
    cin: int,
    cout: int,
    size: tuple[int, int],
    *,
    int8: bool,
    kernel: int = 1,
    stride: int = 1,
    pad: int = 0,
    depthwise: bool = False,
    activation: str = "none",
) -> bytes:
    """Return a convolution over a map of `size` (H, W); `activation` is none, clip, leaky or swish."""
    model = LayerModel(int8)
    depth = 1 if depthwise else cin
    x = model.input((cin, *size))
    y = model.add(
        "Conv",
        x,
        model.weights((cout, depth, kernel, kernel), depth * kernel * kernel),
        kernel_shape=[kernel, kernel],
        strides=[stride, stride],
        pads=[pad] * 4,
        group=cin if depthwise else 1,
    )
    if activation == "clip":
        y = model.add("Clip", y, model.constant(0.0), model.constant(6.0))
    elif activation == "leaky":
        y = model.add("LeakyRelu", y, alpha=0.1)
    elif activation == "swish":
        y = model.add("Mul", y, model.add("Sigmoid", y))
    elif activation != "none":
        raise ValueError(f"activation must be none, clip, leaky or swish, not {activation}")
    return model.bytes(y)


def add(shape: tuple[int, ...], *, int8: bool) -> bytes:
    """Return the sum of two tensors of C x H x W."""
    model = LayerModel(int8)
    return model.bytes(model.add("Add", model.input(shape), model.input(shape)))


def concat(shape: tuple[int, ...], parts: int, *, int8: bool) -> bytes:
    """Return `parts` equal tensors joined along the channels to C x H x W."""
    model = LayerModel(int8)
    part = (shape[0] // parts, *shape[1:])
    return model.bytes(model.add("Concat", *(model.input(part) for _ in range(parts)), axis=1))


def max_pool(shape: tuple[int, ...], kernel: int, stride: int, pad: int, *, int8: bool) -> bytes:
    """Return a max pooling of a map of C x H x W."""
    model = LayerModel(int8)
    sizes: dict[str, Any] = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [pad] * 4}
    return model.bytes(model.add("MaxPool", model.input(shape), **sizes))


def resize(shape: tuple[int, ...], factor: int, *, int8: bool) -> bytes:
    """Return a resize that repeats pixels `factor` times in both directions."""
    model = LayerModel(int8)
    scales = model.constant([1.0, 1.0, factor, factor])
    modes = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return model.bytes(model.add("Resize", model.input(shape), "", scales, **modes))
