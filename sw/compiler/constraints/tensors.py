"""Types, shapes and constants of an operator's inputs."""

from __future__ import annotations

import math

from rkcosim.compiler.constraints.constraint import constraint
from rkcosim.compiler.graph import MAX_ELEMENTS
from rkcosim.compiler.limits import MOST_WINDOW

Shape = tuple[int, ...]


@constraint(most=f"{MAX_ELEMENTS:,}")
def tensor_size(shape: Shape) -> str:
    """A tensor has no dimension of 0 and at most {most} elements."""
    wrong = min(shape, default=1) < 1 or math.prod(shape) > MAX_ELEMENTS
    return f"shape {shape} has {math.prod(shape):,} elements" if wrong else ""


@constraint()
def tensor_shape(shape: Shape) -> str:
    """A tensor is one map (four dimensions, 1 in front), a matrix (M, K) or (1, M, K), or a vector."""
    one = len(shape) in (1, 2) or (len(shape) in (3, 4) and shape[0] == 1)
    return "" if one else f"shape {shape}"


@constraint("Conv", "ConvTranspose", "Gemm", "FullyConnected", most=MOST_WINDOW)
def constant_weights(name: str, shape: Shape | None, constant: bool) -> str:
    """Weights and bias are constants of the file, or (ONNX, floats) a Conv without batch has one group and at
    most {most} elements in a window, so that it is a product of two matrices."""
    return "" if constant else f"'{name}' {'' if shape is None else f'{shape} '}is computed by the model"


@constraint("Conv", "FullyConnected", "Concat")
def fused_activation(name: str, known: bool) -> str:
    """The activation that a TFLite file fuses into an operator is RELU, RELU6 or RELU_N1_TO_1."""
    return "" if known else f"the fused activation is {name}"


@constraint()
def constant_parameter(name: str, constant: bool) -> str:
    """A parameter such as a shape, axes, slopes or a table is a constant of the file."""
    return "" if constant else f"'{name}' is computed by the model"


@constraint()
def quantised(name: str, wanted: bool) -> str:
    """The inputs of an operator on bytes come from a DequantizeLinear."""
    return "" if wanted else f"input '{name}' is not quantised"


@constraint()
def float_type(name: str, dtype: str, allowed: tuple[str, ...] = ("float32", "float16")) -> str:
    """An activation that is computed in fp16 is float32 or float16 in the model."""
    return "" if dtype in allowed else f"'{name}' is {dtype}"
