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

    def plain(self, op: str, *inputs: str, **attributes: Any) -> str:
        """Add a node whose output is not quantised, because the next one is computed with it."""
        return self._node(op, *inputs, **attributes)

    def split(self, x: str, parts: int) -> list[str]:
        """Add a Split of the channels into equal parts and return the outputs' names."""
        names = [f"split{len(self.nodes)}_{part}" for part in range(parts)]
        self.nodes.append(self._helper.make_node("Split", [x], names, name=names[0], axis=1))
        return [self._codes(name) for name in names]

    def bytes(self, *outputs: str) -> bytes:
        """Return the model with these outputs as a file."""
        from onnx import TensorProto, shape_inference

        ends = [self._helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
        graph = self._helper.make_graph(self.nodes, "layer", self.inputs, ends, self.constants)
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
    added: bool = False,
) -> bytes:
    """Return a convolution over a map of `size` (H, W).

    Parameters
    ----------
    cin, cout : channels of the input and of the output.
    int8 : with quantised tensors, else in floating point.
    kernel, stride, pad : the window, the same in both directions.
    depthwise : whether each channel has its own kernel; `cout` is `cin` then.
    activation : none, clip, leaky, relu, sigmoid or swish.
    added : whether a second tensor of the output's shape is added to the result.

    Raises
    ------
    ValueError
        If there is no such activation.
    """
    model = LayerModel(int8)
    depth = 1 if depthwise else cin
    x = model.input((cin, *size))
    # As quantising tools write it: a ReLU follows sums that have no codes of their own.
    node = model.plain if activation == "relu" else model.add
    y = node(
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
    elif activation in ("relu", "sigmoid"):
        y = model.add(activation.capitalize(), y)
    elif activation == "swish":
        y = model.add("Mul", y, model.add("Sigmoid", y))
    elif activation != "none":
        raise ValueError(f"activation must be none, clip, leaky, relu, sigmoid or swish, not {activation}")
    if added:
        out = tuple((side + 2 * pad - kernel) // stride + 1 for side in size)
        y = model.add("Add", model.input((cout, *out)), y)
    return model.bytes(y)


def deconv(channels: int, size: tuple[int, int], kernel: int, stride: int, pad: int, *, int8: bool) -> bytes:
    """Return a depthwise transposed convolution of a map of `size` (H, W)."""
    model = LayerModel(int8)
    sizes: dict[str, Any] = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [pad] * 4}
    weights = model.weights((channels, 1, kernel, kernel), kernel * kernel)
    return model.bytes(
        model.add("ConvTranspose", model.input((channels, *size)), weights, group=channels, **sizes)
    )


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


def pad(shape: tuple[int, ...], border: int, *, int8: bool) -> bytes:
    """Return a map of C x H x W with a border of zeros."""
    model = LayerModel(int8)
    widths = model.constant([0, 0, border, border] * 2, np.int64)
    return model.bytes(model.add("Pad", model.input(shape), widths))


def cut(shape: tuple[int, ...], channels: int, *, int8: bool) -> bytes:
    """Return the first channels of a map of C x H x W."""
    model = LayerModel(int8)
    bounds = (model.constant([number], np.int64) for number in (0, channels, 1))
    return model.bytes(model.add("Slice", model.input(shape), *bounds))


def split(shape: tuple[int, ...], parts: int, *, int8: bool) -> bytes:
    """Return the equal parts of the channels of a map of C x H x W."""
    model = LayerModel(int8)
    return model.bytes(*model.split(model.input(shape), parts))


def by_channel(op: str, shape: tuple[int, ...], *, int8: bool) -> bytes:
    """Return a map of C x H x W to which `op` (Add or Mul) applies a second tensor, one number a channel."""
    model = LayerModel(int8)
    return model.bytes(model.add(op, model.input(shape), model.input((shape[0], 1, 1))))


def batch_norm(shape: tuple[int, ...], *, int8: bool) -> bytes:
    """Return a BatchNormalization of a map of C x H x W."""
    model = LayerModel(int8)
    numbers = (model.constant(np.full(shape[0], number, np.float32)) for number in (1.1, 0.1, 0.0, 1.0))
    return model.bytes(model.add("BatchNormalization", model.input(shape), *numbers))


def layer_norm(shape: tuple[int, ...], *, int8: bool) -> bytes:
    """Return rows less their mean, divided by their deviation, as exporters write it."""
    model = LayerModel(int8)
    x = model.input(shape)
    away = model.add("Sub", x, model.add("ReduceMean", x, axes=[-1]))
    square = model.add("ReduceMean", model.add("Mul", away, away), axes=[-1])
    deviation = model.add("Sqrt", model.add("Add", square, model.constant(1e-5)))
    return model.bytes(model.add("Div", away, deviation))


def transpose(shape: tuple[int, ...], axes: tuple[int, ...], *, int8: bool) -> bytes:
    """Return a tensor whose axes behind the batch are exchanged; `axes` counts them from 0."""
    model = LayerModel(int8)
    return model.bytes(model.add("Transpose", model.input(shape), perm=[0, *(axis + 1 for axis in axes)]))


BINARY = ("Add", "Sub", "Mul", "Div")
"""Operators of two tensors of one shape."""


def operator(op: str, shape: tuple[int, ...], *, int8: bool) -> bytes:
    """Return a model of one operator of ONNX without attributes on tensors of C x H x W."""
    model = LayerModel(int8)
    return model.bytes(model.add(op, *(model.input(shape) for _ in range(2 if op in BINARY else 1))))
