"""NAIVE's layers of single numbers, of operands, and of channels, from their definitions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce

import numpy as np

from rkcosim.apis.tnn.blob import Array
from rkcosim.apis.tnn.loader.bound import INT_MAX, INT_MIN, Bound, element
from rkcosim.apis.tnn.loader.params import UNARY
from rkcosim.apis.tnn.loader.shapes import reduced_axes, slopes, summands
from rkcosim.apis.tnn.naive.table import naive


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)) without overflow."""
    return np.exp(-np.logaddexp(0.0, -x))


_erf = np.vectorize(math.erf, otypes=[np.float64])

_UNARY: dict[str, Callable[[Array], Array]] = {
    "ReLU": lambda x: np.maximum(x, 0.0),
    "ReLU6": lambda x: np.clip(x, 0.0, 6.0),
    "Sigmoid": sigmoid,
    "Tanh": np.tanh,
    "Swish": lambda x: x * sigmoid(x),
    "Softplus": lambda x: np.logaddexp(0.0, x),
    "Softsign": lambda x: x / (1.0 + np.abs(x)),
    "LogSigmoid": lambda x: -np.logaddexp(0.0, -x),
    "GELU": lambda x: 0.5 * x * (1.0 + _erf(x / math.sqrt(2.0))),
    "Erf": _erf,
    "Abs": np.abs,
    "Neg": np.negative,
    "Exp": np.exp,
    "Log": np.log,
    "Sqrt": np.sqrt,
    "Rsqrt": lambda x: 1.0 / np.sqrt(x),
    "Reciprocal": lambda x: 1.0 / x,
    "Square": np.square,
    "Floor": np.floor,
    "Ceil": np.ceil,
    "Sign": np.sign,
    "Sin": np.sin,
    "Cos": np.cos,
}


@naive(*UNARY)
def _unary(b: Bound, x: Sequence[Array]) -> list[Array]:
    return [_UNARY[b.layer.type](x[0])]


@naive("Dropout", "Identity", "Split")
def _copy(b: Bound, x: Sequence[Array]) -> list[Array]:
    return [x[0].copy() for _ in b.layer.outputs]


@naive("Elu")
def _elu(b: Bound, x: Sequence[Array]) -> list[Array]:
    return [np.where(x[0] < 0, b.params["alpha"] * np.expm1(np.minimum(x[0], 0.0)), x[0])]


@naive("Selu")
def _selu(b: Bound, x: Sequence[Array]) -> list[Array]:
    negative = b.params["alpha"] * np.expm1(np.minimum(x[0], 0.0))
    return [b.params["gamma"] * np.where(x[0] < 0, negative, x[0])]


@naive("Clip")
def _clip(b: Bound, x: Sequence[Array]) -> list[Array]:
    return [np.maximum(np.minimum(x[0], b.params["max"]), b.params["min"])]


def _hard(b: Bound, x: Array) -> Array:
    return np.clip(b.params["alpha"] * x + b.params["beta"], 0.0, 1.0)


@naive("HardSigmoid")
def _hard_sigmoid(b: Bound, x: Sequence[Array]) -> list[Array]:
    """0 up to -beta / alpha, then a line up to (1 - beta) / alpha, then 1, as TNN compares in this order."""
    alpha, beta = b.params["alpha"], b.params["beta"]
    with np.errstate(all="ignore"):
        low, high = np.float64(-beta) / alpha, np.float64(1.0 - beta) / alpha
    return [np.where(x[0] <= low, 0.0, np.where(x[0] < high, alpha * x[0] + beta, 1.0))]


@naive("HardSwish")
def _hard_swish(b: Bound, x: Sequence[Array]) -> list[Array]:
    return [x[0] * _hard(b, x[-1])]


@naive("Power")
def _power(b: Bound, x: Sequence[Array]) -> list[Array]:
    return [np.power(x[0] * b.params["scale"] + b.params["shift"], b.params["exponent"])]


_BINARY: dict[str, Callable[[Array, Array], Array]] = {
    **{"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide},
    **{"Maximum": np.maximum, "Minimum": np.minimum, "SquaredDifference": lambda x, y: np.square(x - y)},
}


@naive(*_BINARY)
def _binary(b: Bound, x: Sequence[Array]) -> list[Array]:
    operands = list(x)
    if len(operands) == 1:
        operands.insert(b.params["weight_input_index"] != 0, element(b).astype(np.float64))
    return [reduce(_BINARY[b.layer.type], operands)]


def channelwise(values: Array, x: Array) -> Array:
    """Return one value per channel, or one for all, in a shape that broadcasts to (N, C, ...)."""
    flat = values.astype(np.float64).reshape(-1)
    return flat.reshape((1, -1) + (1,) * (x.ndim - 2))


@naive("BatchNormCxx", "Scale", "BiasAdd")
def _affine(b: Bound, x: Sequence[Array]) -> list[Array]:
    made = x[0]
    if "scale" in b.resource:
        made = made * channelwise(b.array("scale"), made)
    bias = summands(b)
    return [made + channelwise(bias, made) if bias.size else made]


@naive("InstBatchNormCxx")
def _instance(b: Bound, x: Sequence[Array]) -> list[Array]:
    axes = tuple(range(2, x[0].ndim))
    apart = x[0] - x[0].mean(axis=axes, keepdims=True)
    variance = np.square(apart).mean(axis=axes, keepdims=True)
    return _affine(b, [apart / np.sqrt(variance + b.params["eps"])])


@naive("PReLU")
def _prelu(b: Bound, x: Sequence[Array]) -> list[Array]:
    return [np.where(x[0] > 0, x[0], x[0] * channelwise(slopes(b), x[0]))]


@naive("Softmax", "LogSoftmax")
def _softmax(b: Bound, x: Sequence[Array]) -> list[Array]:
    axis = b.axis(b.params["axis"])
    apart = x[0] - x[0].max(axis=axis, keepdims=True)
    log = apart - np.log(np.exp(apart).sum(axis=axis, keepdims=True))
    return [np.exp(log) if b.layer.type == "Softmax" else log]


_REDUCTIONS: dict[str, Callable[[Array, tuple[int, ...]], Array]] = {
    "ReduceMean": lambda x, axes: x.mean(axis=axes, keepdims=True),
    "ReduceSum": lambda x, axes: x.sum(axis=axes, keepdims=True),
    "ReduceMax": lambda x, axes: x.max(axis=axes, keepdims=True),
    "ReduceMin": lambda x, axes: x.min(axis=axes, keepdims=True),
    "ReduceProd": lambda x, axes: x.prod(axis=axes, keepdims=True),
    "ReduceL1": lambda x, axes: np.abs(x).sum(axis=axes, keepdims=True),
    "ReduceL2": lambda x, axes: np.sqrt(np.square(x).sum(axis=axes, keepdims=True)),
    "ReduceSumSquare": lambda x, axes: np.square(x).sum(axis=axes, keepdims=True),
    "ReduceLogSum": lambda x, axes: np.log(x.sum(axis=axes, keepdims=True)),
    "ReduceLogSumExp": lambda x, axes: np.log(np.exp(x).sum(axis=axes, keepdims=True)),
}


@naive(*_REDUCTIONS)
def _reduction(b: Bound, x: Sequence[Array]) -> list[Array]:
    return [_REDUCTIONS[b.layer.type](x[0], reduced_axes(b)).reshape(b.outputs[0])]


@naive("LRN")
def _lrn(b: Bound, x: Sequence[Array]) -> list[Array]:
    p, channels = b.params, x[0].shape[1]
    reach, squares = (p["size"] - 1) // 2, np.square(x[0])
    sums = np.stack(
        [squares[:, max(0, c - reach) : c + reach + 1].sum(axis=1) for c in range(channels)], axis=1
    )
    return [x[0] / np.power(p["bias"] + p["alpha"] / p["size"] * sums, p["beta"])]


@naive("Normalize")
def _normalize(b: Bound, x: Sequence[Array]) -> list[Array]:
    p = b.params
    if p["p"] not in (1, 2, INT_MAX, INT_MIN) or p["axis"] != 1 or p["across_spatial"]:
        raise b.wrong("TNN has p 1, 2 or infinite, axis 1, and not across_spatial")
    if p["p"] == 1:
        norm = np.abs(x[0]).sum(axis=1, keepdims=True)
    elif p["p"] == 2:
        norm = np.maximum(np.sqrt(np.square(x[0]).sum(axis=1, keepdims=True)), p["epsilon"])
    else:
        norm = (x[0].max if p["p"] == INT_MAX else x[0].min)(axis=1, keepdims=True)
    return [x[0] / norm]
