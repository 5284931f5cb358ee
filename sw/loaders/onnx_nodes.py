"""ONNX operators on quantised tensors by name."""

from __future__ import annotations

from collections.abc import Callable

from sw.loaders.nodes import NodeContext, conv, gemm, matmul, pool
from sw.loaders.onnx_math import binary, conv_transpose, function, reduce_mean, slope
from sw.loaders.onnx_movement import concat, pad, resize, slice_, split, transpose
from sw.loaders.values import Value

BUILDERS: dict[str, Callable[[NodeContext], Value | list[Value]]] = {
    "Conv": conv,
    "ConvTranspose": conv_transpose,
    "Gemm": gemm,
    "MatMul": matmul,
    "Add": binary("add"),
    "Sub": binary("sub"),
    "Mul": binary("mul"),
    "Max": binary("max"),
    "Min": binary("min"),
    "MaxPool": lambda context: pool(context, "max", False),
    "AveragePool": lambda context: pool(context, "average", False),
    "GlobalAveragePool": lambda context: pool(context, "average", True),
    "GlobalMaxPool": lambda context: pool(context, "max", True),
    "ReduceMean": reduce_mean,
    "LeakyRelu": slope,
    "PRelu": slope,
    "Sigmoid": function("Sigmoid"),
    "Tanh": function("Tanh"),
    "HardSwish": function("HardSwish"),
    "HardSigmoid": function("HardSigmoid"),
    "Concat": concat,
    "Split": split,
    "Slice": slice_,
    "Pad": pad,
    "Transpose": transpose,
    "Resize": resize,
    "Upsample": resize,
}
