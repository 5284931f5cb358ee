"""Networks of Hexagon NN for tests and measurements: random layers, and graphs made from TFLite files."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import tflite

from rkcosim.apis.hexagon.arithmetic import Quotient, f32, requantise32, sums_range, with_zero
from rkcosim.apis.hexagon.geometry import Padding, geometry
from rkcosim.apis.hexagon.graph import Graph
from rkcosim.apis.hexagon.layers import Convolution
from rkcosim.apis.hexagon.tensors import Edge, value
from tests.makers.hexagon_graphs import Builder

Form = Literal["fused", "requantised"]
"""Fused convolutions ("Supernode"), or sums, biases and requantisations as nodes of their own."""


def random_layer(seed: int, shape: tuple[int, int, int, bool], form: Form) -> Convolution:
    """A random convolution of 7x7 pixels to a range that fits its sums; with a ReLU if the seed is odd.

    Parameters
    ----------
    seed : of the random numbers.
    shape : depth, kernels, rows of a kernel, depthwise.
    form : the requantisation.
    """
    depth, kernels, rows, depthwise = shape
    rng = np.random.default_rng(seed)
    w = rng.integers(0, 256, (rows, rows, depth, 1 if depthwise else kernels), dtype=np.uint8)
    window = geometry(value(np.zeros((1, 7, 7, depth), np.uint8)), (rows, rows), (1, 1), Padding.SAME)
    step = float(f32(rng.uniform(0.01, 0.05)) * f32(rng.uniform(0.002, 0.01)))
    reach = step * np.sqrt(rows * rows * (1 if depthwise else depth)) * 15000
    limits = with_zero(-reach * rng.uniform(0.6, 1), reach * rng.uniform(0.6, 1))
    given = sums_range(step)

    def codes(sums: np.ndarray) -> np.ndarray:
        if form == "fused":
            found = Quotient(step, limits).codes(sums)
        else:
            found = requantise32(np.asarray(sums), given, limits)
        return np.maximum(found, np.uint8(limits.zero)) if seed % 2 else found

    bias = rng.integers(-3000, 3000, kernels)
    zeros = int(rng.integers(0, 256)), int(rng.integers(100, 156))
    return Convolution("conv", (7, 7, depth), w, *zeros, window, bias, depthwise, codes, step, limits)


class _Reader:
    """A TFLite file of unsigned bytes with one scale for each tensor, as a graph under construction."""

    def __init__(self, data: bytes, form: Form) -> None:
        self.model, self.form, self.b = tflite.Model.GetRootAs(data, 0), form, Builder()
        self.main = self.model.Subgraphs(0)
        kinds = vars(tflite.BuiltinOperator)
        self.names = {number: name for name, number in kinds.items() if isinstance(number, int)}
        first = self.main.Inputs(0)
        self.edges: dict[int, list[Edge]] = {first: [*self.b.input(), *self.limits(first)]}

    def scale(self, number: int) -> tuple[float, int]:
        found = self.main.Tensors(number).Quantization()
        return float(found.Scale(0)), int(found.ZeroPoint(0))

    def limits(self, number: int) -> list[Edge]:
        scale, zero = self.scale(number)
        return self.b.range(-zero * scale, (255 - zero) * scale)

    def array(self, number: int, dtype: type) -> np.ndarray:
        tensor = self.main.Tensors(number)
        data = self.model.Buffers(tensor.Buffer()).DataAsNumpy().tobytes()
        return np.frombuffer(data, dtype).reshape(tensor.ShapeAsNumpy())

    def add(self, op: Any) -> None:
        """Append an operator; raises KeyError for one that is not here."""
        code = self.model.OperatorCodes(op.OpcodeIndex())
        kind = self.names[max(code.BuiltinCode(), code.DeprecatedBuiltinCode())]
        inputs = [op.Inputs(n) for n in range(op.InputsLength())]
        add = {
            **{"CONV_2D": self.convolution, "DEPTHWISE_CONV_2D": self.convolution},
            **{"MAX_POOL_2D": self.pool, "AVERAGE_POOL_2D": self.pool},
            **{"RESHAPE": self.reshape, "SQUEEZE": self.reshape, "SOFTMAX": self.softmax},
            **{"CONCATENATION": self.concat, "ADD": self.sum, "FULLY_CONNECTED": self.product},
        }[kind]
        self.edges[op.Outputs(0)] = add(kind, inputs, op)

    def options(self, kind: Any, op: Any) -> Any:
        found = kind()
        found.Init(op.BuiltinOptions().Bytes, op.BuiltinOptions().Pos)
        return found

    def convolution(self, kind: str, inputs: list[int], op: Any) -> list[Edge]:
        b, depthwise = self.b, kind == "DEPTHWISE_CONV_2D"
        read = self.options(tflite.DepthwiseConv2DOptions if depthwise else tflite.Conv2DOptions, op)
        x, *ends = self.edges[inputs[0]]
        w = b.constant(self.array(inputs[1], np.uint8).transpose(1, 2, 3, 0), np.uint8)
        step, out = self.scale(inputs[2])[0], op.Outputs(0)
        bias = [
            b.constant(self.array(inputs[2], np.int32), np.int32),
            *b.range(-(2.0**31) * step, 2.0**31 * step),
        ]
        head = [x, w, *ends, *self.limits(inputs[1]), b.shape(1, read.StrideH(), read.StrideW(), 1)]
        padding = Padding.VALID if read.Padding() else Padding.SAME
        if self.form == "fused":
            name = "DepthwiseSupernode_8x8p32to8" if depthwise else "Supernode_8x8p32to8"
            found = b.node(name, [*head, *bias, *self.limits(out)], 3, padding)
        else:
            name = "QuantizedDepthwiseConv2d_8x8to32" if depthwise else "QuantizedConv2d_8x8to32"
            sums = b.node(name, head, 3, padding)
            total = b.node("QuantizedBiasAdd_32p32to32", [sums[0], bias[0], *sums[1:], *bias[1:]], 3)
            found = b.node("Requantize_32to8", [*total, *self.limits(out)], 3)
        activation = read.FusedActivationFunction()
        if activation == 1:
            return b.node("QuantizedRelu_8", found, 3)
        return b.node("QuantizedReluX_8", [*found, b.constant(6.0)], 3) if activation == 3 else found

    def pool(self, kind: str, inputs: list[int], op: Any) -> list[Edge]:
        read = self.options(tflite.Pool2DOptions, op)
        sizes = self.b.shape(1, read.FilterHeight(), read.FilterWidth(), 1)
        strides = self.b.shape(1, read.StrideH(), read.StrideW(), 1)
        padding = Padding.VALID if read.Padding() else Padding.SAME
        name = "QuantizedMaxPool_8" if kind == "MAX_POOL_2D" else "QuantizedAvgPool_8"
        return self.b.node(name, [*self.edges[inputs[0]], sizes, strides], 3, padding)

    def concat(self, _: str, inputs: list[int], op: Any) -> list[Edge]:
        axis = self.options(tflite.ConcatenationOptions, op).Axis()
        parts = zip(*(self.edges[number] for number in inputs), strict=True)
        codes, lows, highs = (list(part) for part in parts)
        return self.b.node("QuantizedConcat_8", [self.b.constant(axis, np.int32), *codes, *lows, *highs], 3)

    def sum(self, _: str, inputs: list[int], op: Any) -> list[Edge]:
        (a, *ends), (b, *others) = (self.edges[number] for number in inputs)
        return self.b.node("QuantizedAdd_8p8to8", [a, b, *ends, *others, *self.limits(op.Outputs(0))], 3)

    def product(self, _: str, inputs: list[int], op: Any) -> list[Edge]:
        x, *ends = self.edges[inputs[0]]
        w = self.b.constant(self.array(inputs[1], np.uint8).T, np.uint8)
        step = self.scale(inputs[2])[0]
        bias = [self.b.constant(self.array(inputs[2], np.int32), np.int32)]
        bias += self.b.range(-(2.0**31) * step, 2.0**31 * step)
        inputs_ = [x, w, *ends, *self.limits(inputs[1]), *bias, *self.limits(op.Outputs(0))]
        return self.b.node("SuperFC_8x8p32to8", inputs_, 3)

    def reshape(self, _: str, inputs: list[int], op: Any) -> list[Edge]:
        x, *ends = self.edges[inputs[0]]
        shape = self.b.constant(self.main.Tensors(op.Outputs(0)).ShapeAsNumpy(), np.int32)
        return self.b.node("QuantizedReshape", [x, shape, *ends], 3)

    def softmax(self, _: str, inputs: list[int], op: Any) -> list[Edge]:
        return self.b.node("QuantizedSoftmax_8", self.edges[inputs[0]], 3)


def graph_of_tflite(data: bytes, form: Form) -> Graph:
    """Return a prepared graph of a TFLite file of unsigned bytes with one input and one output.

    Raises
    ------
    KeyError
        for an operator that is not here.
    """
    reader = _Reader(data, form)
    for number in range(reader.main.OperatorsLength()):
        reader.add(reader.main.Operators(number))
    reader.b.output(reader.edges[reader.main.Outputs(0)][:1])
    return reader.b.prepared()
