"""Functions that the host computes on quantised tensors between two jobs.

Cubes are int8 (C, H, W), or float16 for tensors of a model in fp16.  If the scales of input and output
differ, numbers are converted by `sat8(rint((q - zero) * scale / output scale) + output zero)` in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.compiler.graph import ModelError, Tensor, Window, from_cube, to_cube
from rkcosim.compiler.steps import HostStep
from rkcosim.hostops.geometry import Sliding
from rkcosim.hostops.pooling import largest, means, sums
from rkcosim.hostops.quantise import coded, recoded
from rkcosim.hostops.rounding import Halves
from rkcosim.hostops.softmax import softmax
from rkcosim.hostops.windows import counted

Cube = npt.NDArray[Any]


def requantise(values: npt.NDArray[Any], x: Tensor, y: Tensor) -> Cube:
    """Convert codes of `x` (or values in units of its scale, including its zero point) to codes of `y`."""
    if x.real and y.real:
        return values.astype(np.float16)
    if x.same_values(y) and values.dtype == np.int8:
        return values
    return recoded(values, x.zero_point, x.scale / y.scale, y.zero_point, np.int8)


def _concat(step: HostStep, cubes: Sequence[Cube]) -> Cube:
    parts = [requantise(c, t, step.output) for c, t in zip(cubes, step.inputs, strict=True)]
    return np.concatenate(parts, axis=step.attributes["axis"])


def _slice(step: HostStep, cubes: Sequence[Cube]) -> Cube:
    begin = step.attributes["begin"]
    strides = step.attributes.get("strides", (1, 1, 1))
    parts = tuple(
        slice(first, first + (count - 1) * stride + 1, stride)
        for first, count, stride in zip(begin, step.output.cube, strides, strict=True)
    )
    return requantise(cubes[0][parts], step.inputs[0], step.output)


def _pad(step: HostStep, cubes: Sequence[Cube]) -> Cube:
    top, left, bottom, right = step.attributes["pads"]
    channels = step.attributes.get("channels", (0, 0))
    codes = requantise(cubes[0], step.inputs[0], step.output)
    edges = (channels, (top, bottom), (left, right))
    return np.pad(codes, edges, constant_values=step.attributes.get("value", step.output.zero_point))


def _pick(step: HostStep, cubes: Sequence[Cube]) -> Cube:
    """Select rows and columns, in any order and number."""
    codes = requantise(cubes[0], step.inputs[0], step.output)
    return codes[:, list(step.attributes["rows"])][:, :, list(step.attributes["columns"])]


def _insert(step: HostStep, cubes: Sequence[Cube]) -> Cube:
    """Insert real zeros between the pixels."""
    fy, fx = step.attributes["factors"]
    result = np.full(step.output.cube, step.output.zero_point, dtype=step.output.dtype)
    result[:, ::fy, ::fx] = requantise(cubes[0], step.inputs[0], step.output)
    return result


def _sliding(step: HostStep) -> Sliding:
    window: Window = step.attributes["window"]
    return Sliding(window.kernel, window.strides, window.dilations, window.pads[:2], step.output.cube[1:])


def _max_pool(step: HostStep, cubes: Sequence[Cube]) -> Cube:
    if step.output.real:
        return largest(cubes[0], _sliding(step), 1)
    return requantise(largest(cubes[0], _sliding(step), 1, -128), step.inputs[0], step.output)


def _average_pool(step: HostStep, cubes: Sequence[Cube]) -> Cube:
    """Average over the taps that are not padding; halves round away from zero if the scale is unchanged."""
    if step.output.real:
        return means(cubes[0], _sliding(step), 1).astype(np.float16)
    total = sums(cubes[0].astype(np.int64), _sliding(step), 1)
    count = counted(_sliding(step), cubes[0].shape[1:])
    if step.inputs[0].same_values(step.output):
        return coded(total / count, 0, np.int8, Halves.AWAY)
    return requantise(total / count, step.inputs[0], step.output)


def _rearrange(step: HostStep, cubes: Sequence[Cube]) -> Cube:
    """Transpose, reshape and transpose again, in the shapes of the model."""
    codes = from_cube(requantise(cubes[0], step.inputs[0], step.output), step.inputs[0])
    before, after = step.attributes.get("before"), step.attributes.get("after")
    codes = codes if before is None else codes.transpose(before)
    codes = codes.reshape(step.attributes["shape"])
    codes = codes if after is None else codes.transpose(after)
    return to_cube(np.ascontiguousarray(codes), step.output)


def _softmax(step: HostStep, cubes: Sequence[Cube]) -> Cube:
    x, y, axis = step.inputs[0], step.output, step.attributes["axis"]
    if x.real:
        return to_cube(softmax(from_cube(cubes[0], x).astype(np.float64), axis).astype(np.float16), y)
    beta = x.scale * step.attributes.get("beta", 1.0)
    result = softmax(from_cube(cubes[0], x).astype(np.float64), axis, beta)
    return to_cube(coded(result / y.scale, y.zero_point, np.int8), y)


def _function(step: HostStep, cubes: Sequence[Cube]) -> Cube:
    """Apply a function of one number to fp16."""
    name, slope, offset = (step.attributes.get(key) for key in ("function", "alpha", "beta"))
    if isinstance(slope, tuple):  # one number per channel
        slope = np.array(slope).reshape(-1, 1, 1)
    with np.errstate(over="ignore", invalid="ignore"):
        result = REAL_FUNCTIONS[str(name)](cubes[0].astype(np.float64), slope, offset)
        return result.astype(np.float16)


def _sigmoid(x: Any) -> Any:
    return 1.0 / (1.0 + np.exp(-np.clip(x, -700.0, 700.0)))


def _softplus(x: Any) -> Any:
    return np.maximum(x, 0.0) + np.log1p(np.exp(-np.abs(x)))


def _erf(x: Any) -> Any:
    return np.vectorize(math.erf, otypes=[np.float64])(x)


def gauss(x: Any, approximate: bool = False) -> Any:
    """Gelu(x) / x: the normal distribution function, or its approximation with tanh."""
    if approximate:
        return 0.5 * (1.0 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return 0.5 * (1.0 + _erf(np.asarray(x) / math.sqrt(2)))


def _elu(x: Any, alpha: Any) -> Any:
    return np.where(x < 0, alpha * np.expm1(np.minimum(x, 0.0)), x)


REAL_FUNCTIONS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "Sigmoid": lambda x, a, b: _sigmoid(x),
    "Tanh": lambda x, a, b: np.tanh(x),
    "HardSigmoid": lambda x, a, b: np.clip(x * a + b, 0.0, 1.0),
    "HardSwish": lambda x, a, b: x * np.clip(x / 6 + 0.5, 0.0, 1.0),
    "LeakyRelu": lambda x, a, b: np.where(x < 0, x * a, x),
    "Clip": lambda x, a, b: np.clip(x, a, b),
    "Silu": lambda x, a, b: x * _sigmoid(x),
    "Swish": lambda x, a, b: x * _sigmoid(a * x),
    "Gelu": lambda x, a, b: x * gauss(x, bool(a)),
    "Mish": lambda x, a, b: x * np.tanh(_softplus(x)),
    "Erf": lambda x, a, b: _erf(x),
    "Softplus": lambda x, a, b: _softplus(x),
    "Softsign": lambda x, a, b: x / (1.0 + np.abs(x)),
    "Elu": lambda x, a, b: _elu(x, a),
    "Selu": lambda x, a, b: b * _elu(x, a),
    "Celu": lambda x, a, b: np.maximum(x, 0.0) + np.minimum(0.0, a * np.expm1(np.minimum(x, 0.0) / a)),
    "ThresholdedRelu": lambda x, a, b: np.where(x > a, x, 0.0),
    "Abs": lambda x, a, b: np.abs(x),
    "Neg": lambda x, a, b: -x,
    "Floor": lambda x, a, b: np.floor(x),
    "Ceil": lambda x, a, b: np.ceil(x),
    "Exp": lambda x, a, b: np.exp(x),
    "Reciprocal": lambda x, a, b: 1.0 / x,
}
"""Functions of one real number by name; arguments are x (float64), alpha and beta."""

PARAMETERS: dict[str, tuple[tuple[str, float], tuple[str, float]]] = {
    "HardSigmoid": (("alpha", 0.2), ("beta", 0.5)),
    "Swish": (("alpha", 1.0), ("beta", 0.0)),
    "Elu": (("alpha", 1.0), ("beta", 0.0)),
    "Celu": (("alpha", 1.0), ("beta", 0.0)),
    "Selu": (("alpha", 1.67326319217681884765625), ("gamma", 1.05070102214813232421875)),
    "ThresholdedRelu": (("alpha", 1.0), ("beta", 0.0)),
}
"""Names and default values of the attributes that are alpha and beta."""

FUNCTIONS: dict[str, Callable[[HostStep, Sequence[Cube]], Cube]] = {
    "Concat": _concat,
    "Slice": _slice,
    "Pad": _pad,
    "Pick": _pick,
    "Insert": _insert,
    "MaxPool": _max_pool,
    "AveragePool": _average_pool,
    "Rearrange": _rearrange,
    "Softmax": _softmax,
    "Function": _function,
}


def compute(step: HostStep, cubes: Sequence[Cube]) -> Cube:
    """Compute one host step.

    Parameters
    ----------
    step
        The step; `function` is a key of `FUNCTIONS`.
    cubes
        Cubes of its inputs, int8 or float16.

    Returns
    -------
    The cube of its output.

    Raises
    ------
    ModelError
        If the function is unknown or the result has not the shape of the output's cube.
    """
    if step.function not in FUNCTIONS:
        raise ModelError(f"{step.kind} '{step.name}': the host has no function '{step.function}'")
    result = FUNCTIONS[step.function](step, cubes)
    if result.shape != step.output.cube:
        raise ModelError(f"{step.kind} '{step.name}': the result is {result.shape}, not {step.output.cube}")
    return result
