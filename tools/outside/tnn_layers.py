"""The layer tests of TNN (Tencent/TNN, test/unit_test/layer_test) on this project's device RK3588.

The grids of parameters are read from the C++ sources (`gtest.py`). What a test makes of its parameters,
which combinations it skips, how it draws numbers and what it tolerates is restated here, and so is what TNN's
device NAIVE computes, which the tests compare with: Tencent/TNN f0cb0812, test/unit_test, test/test_utils.cc
and source/tnn/device/cpu/acc. Networks pass through the files and the interface of `rkcosim.apis.tnn`; its
own device NAIVE takes no part.
"""

from __future__ import annotations

import math
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import permutations, product
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.apis.tnn import (
    TNN,
    DeviceType,
    Mat,
    MatType,
    ModelConfig,
    NetworkConfig,
    NetworkType,
    Status,
)
from rkcosim.apis.tnn.loader import TnnNetwork, write_network
from rkcosim.apis.tnn.loader.proto import VERSION_2, LayerInfo, NetInput, NetStructure
from rkcosim.apis.tnn.network import DefaultNetwork
from rkcosim.apis.tnn.rk3588 import Rk3588LayerAcc
from tools.outside.gtest import LIMITS, Grid
from tools.outside.suite import FAIL, LIMIT, PASS, SKIP, Outcome

Array = npt.NDArray[Any]
Case = tuple[Any, ...]

RELATIVE, ABSOLUTE, COSINE = 0.01, 0.001, 0.9998
"""What CompareData tolerates of blobs of fp16: a number may differ by either of the first two, its quotient
being that with the sum of both absolute values; if one differs by more, the arrays' cosine is looked at."""


@dataclass(frozen=True)
class Layer:
    """A network of one layer, as a test makes it.

    Members
    -------
    kind : TNN's name of the type.
    shapes : of the inputs.
    formula : the outputs that NAIVE computes from the inputs, float64.
    words : the parameters of the layer in a `.tnnproto` file.
    arrays : its arrays in a `.tnnmodel` file, float32.
    positive : whether the inputs are above 0 (`ensure_input_positive_`).
    """

    kind: str
    shapes: Sequence[tuple[int, ...]]
    formula: Callable[..., Array | list[Array]]
    words: Sequence[object] = ()
    arrays: dict[str, Array] = field(default_factory=dict)
    positive: bool = False


Body = Callable[["Numbers", Case], Sequence[Layer]]
"""What a test makes of its parameters: the networks that it runs; none if it skips them."""


class Numbers:
    """TNN's random numbers, from a seed of the case."""

    def __init__(self, *seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def steps(self, shape: Sequence[int], span: float = 1.0) -> Array:
        """Return InitRandom(data, n, span): eighths of the span, from -1 to 7 of 8."""
        drawn = self._rng.integers(-8, 8, shape) / 8 * span
        return np.asarray(drawn, np.float32)

    def between(self, shape: Sequence[int], low: float, high: float) -> Array:
        """Return InitRandom(data, n, low, high)."""
        return np.asarray(self._rng.uniform(low, high, shape), np.float32)


def dims(case: Case, rank: int) -> tuple[int, ...]:
    """Return batch, channels, and as many sizes as the rank asks for."""
    batch, channel, size = case[:3]
    return (batch, channel, *[size] * (rank - 2))


def floats(data_type: str) -> bool:
    """Whether a case is of DATA_TYPE_FLOAT.

    CheckDataTypeSkip leaves the others to devices that it names; the NPU computes these in fp16 as it is.
    """
    return data_type == "DATA_TYPE_FLOAT"


# Layers of one number


def _erf(x: Array) -> Array:
    return np.vectorize(math.erf, otypes=[np.float64])(x)


UNARY: dict[str, Callable[[Array], Array]] = {
    "Abs": np.abs,
    "Ceil": np.ceil,
    "Cos": np.cos,
    "Exp": np.exp,
    "Floor": np.floor,
    "Log": np.log,
    "LogSigmoid": lambda x: np.log(1 / (1 + np.exp(-x))),
    "Neg": lambda x: -x,
    "Reciprocal": lambda x: np.where(x != 0, 1 / x, x),
    "Relu": lambda x: np.maximum(x, 0),
    "Relu6": lambda x: np.minimum(np.maximum(x, 0), 6),
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "Sign": np.sign,
    "Sin": np.sin,
    "Softplus": lambda x: np.log(np.exp(x) + 1),
    "Sqrt": np.sqrt,
    "Swish": lambda x: x * (1 / (1 + np.exp(-x))),
    "Tanh": np.tanh,
}
"""Layers without parameters, by the name that the tests give to the interpreter."""


def unary(kind: str, positive: bool = False) -> Body:
    """Return the body of RunUnaryTest."""

    def body(numbers: Numbers, case: Case) -> list[Layer]:
        rank, data_type = case[3:]
        shape = dims(case, rank)
        return [Layer(kind, [shape], UNARY[kind], positive=positive)] if floats(data_type) else []

    return body


def _gelu(numbers: Numbers, case: Case) -> list[Layer]:
    if not floats(case[4]):
        return []
    return [Layer("GELU", [dims(case, case[3])], lambda x: 0.5 * x * (_erf(x * 0.707106793288165) + 1))]


def _elu(numbers: Numbers, case: Case) -> list[Layer]:
    alpha = case[4]
    if not floats(case[5]):
        return []
    return [
        Layer("Elu", [dims(case, case[3])], lambda x: np.where(x < 0, alpha * (np.exp(x) - 1), x), [alpha])
    ]


def _selu(numbers: Numbers, case: Case) -> list[Layer]:
    alpha, gamma = 1.67326, 1.0507

    def formula(x: Array) -> Array:
        return np.where(x <= 0, gamma * (alpha * np.exp(x) - alpha), gamma * x)

    return [Layer("Selu", [dims(case, case[3])], formula, [alpha, gamma])]


def _clip(numbers: Numbers, case: Case) -> list[Layer]:
    low, high = case[4], max(case[4:6])
    return [Layer("Clip", [dims(case, case[3])], lambda x: np.maximum(low, np.minimum(high, x)), [low, high])]


def _hard_sigmoid(numbers: Numbers, case: Case) -> list[Layer]:
    alpha, beta = case[4:6]
    low, high = -beta / alpha, (1 - beta) / alpha

    def formula(x: Array) -> Array:
        return np.where(x <= low, 0, np.where(x < high, alpha * x + beta, 1))

    return [Layer("HardSigmoid", [dims(case, case[3])], formula, [alpha, beta])]


def _hard_swish(numbers: Numbers, case: Case) -> list[Layer]:
    alpha, beta, count, rank = case[3:7]

    def formula(x: Array, *other: Array) -> Array:
        return x * np.clip((other or (x,))[0] * alpha + beta, 0, 1)

    return [Layer("HardSwish", [dims(case, rank)] * count, formula, [alpha, beta])]


def _hard_swish_of_two(numbers: Numbers, case: Case) -> list[Layer]:
    batch, channel, size, _, _, first, rank, data_type = case
    if not floats(data_type) or first != -1:
        return []
    shape = dims((batch, channel, size), rank)
    return [Layer("HardSwish", [shape, shape], lambda x, other: x * np.clip(other, 0, 1), [1.0, 0.0])]


def _power(numbers: Numbers, case: Case) -> list[Layer]:
    scale, shift, exponent = case[4:7]
    words = [exponent, scale, shift]
    return [
        Layer("Power", [dims(case, case[3])], lambda x: (x * scale + shift) ** exponent, words, positive=True)
    ]


# Layers of two numbers

BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": np.divide,
    "Maximum": np.maximum,
    "Minimum": np.minimum,
}
"""Layers of two operands."""


def binary(kind: str, positive: bool = False) -> Body:
    """Return the body of RunBinaryTest; `positive` is its resource_positive."""

    def body(numbers: Numbers, case: Case) -> list[Layer]:
        batch, channel, size, count, form, first, rank, data_type = case
        if not floats(data_type) or rank > 4 or (count == 1 and first == -1):
            return []
        whole = (batch, channel, size, size)[:rank]
        small = [(1, 1, 1, 1), (1, channel, 1, 1), (1, channel, size, size), (1, 1, size, size)][form][:rank]
        if count == 2:
            shapes = [whole, whole] if first == -1 else [small, whole] if first == 0 else [whole, small]
            return [Layer(kind, shapes, BINARY[kind], [first])]
        kept = numbers.between(small, 0.001, 1) if positive else numbers.steps(small)

        def formula(x: Array) -> Array:
            return BINARY[kind](kept, x) if first == 0 else BINARY[kind](x, kept)

        return [Layer(kind, [whole], formula, [first], {"element": kept})]

    return body


# Products


def _activated(kind: str, x: Array) -> Array:
    if kind == "ActivationType_ReLU":
        return np.maximum(x, 0)
    if kind == "ActivationType_ReLU6":
        return np.minimum(np.maximum(x, 0), 6)
    return x / (1 + np.exp(-x)) if kind == "ActivationType_SIGMOID_MUL" else x


ACTIVATIONS = {
    "ActivationType_None": 0,
    "ActivationType_ReLU": 1,
    "ActivationType_ReLU6": 2,
    "ActivationType_SIGMOID_MUL": 0x100,
}
"""Numbers of ActivationType."""


def _convolution(numbers: Numbers, case: Case) -> list[Layer]:
    batch, share, size, group, kernel, dilation, stride, pad, pad_type, data_type, active = case
    channel, extent = group * share, dilation * (kernel - 1) + 1
    if not floats(data_type):
        return []
    if pad_type == -1:
        made, begin = (size + 2 * pad - extent) // stride + 1, pad
    else:
        made = math.ceil(size / stride) if pad_type == 0 else math.ceil((size - extent + 1) / stride)
        begin = int(((made - 1) * stride + extent - size) / 2)  # C++ divides towards zero
    filters, bias = numbers.steps((channel, share, kernel, kernel)), numbers.steps((channel,))

    def formula(x: Array) -> Array:
        wide = np.zeros((batch, channel, *[(made - 1) * stride + extent + max(begin, 0) + size] * 2))
        wide[:, :, begin : begin + size, begin : begin + size] = x
        y = np.zeros((batch, group, share, made, made))
        weights = filters.reshape(group, share, share, kernel, kernel).astype(np.float64)
        for i, j in product(range(kernel), repeat=2):
            rows, columns = (slice(at * dilation, at * dilation + made * stride, stride) for at in (i, j))
            taken = wide[:, :, rows, columns].reshape(batch, group, share, made, made)
            y += np.einsum("bgihw,goi->bgohw", taken, weights[..., i, j])
        return _activated(active, y.reshape(batch, channel, made, made) + bias.reshape(1, -1, 1, 1))

    words = [group, share, channel, kernel, kernel, stride, stride, pad, pad, 1, pad_type, dilation, dilation]
    shape = (batch, channel, size, size)
    arrays = {"filter": filters, "bias": bias}
    return [Layer("Convolution", [shape], formula, [*words, ACTIVATIONS[active]], arrays)]


def _deconvolution(numbers: Numbers, case: Case) -> list[Layer]:
    batch, inputs, outputs, size, group, kernel, dilation, stride, pad, _, pad_type, data_type, active = case
    if not floats(data_type) or stride > kernel or (size == 2 and kernel == 4 and pad_type == 2):
        return []
    if kernel == 2:
        pad_type = 3
    extent = dilation * (kernel - 1) + 1
    full = (size - 1) * stride + extent
    if pad_type == -1:
        made, begin = full - 2 * pad, pad
    else:
        made = size * stride + {1: max(extent - stride, 0), 2: 2 - stride - extent}.get(pad_type, 0)
        along = max(full - made, 0) if pad_type == 3 else full - made
        begin = along - along // 2 if pad_type == 3 else along // 2
    filters = numbers.steps((group, inputs, outputs, kernel, kernel))
    bias = numbers.steps((group * outputs,))

    def formula(x: Array) -> Array:
        y = np.zeros((batch, group, outputs, full, full))
        parts = x.reshape(batch, group, inputs, size, size)
        for i, j in product(range(kernel), repeat=2):
            rows, columns = (
                slice(at * dilation, at * dilation + (size - 1) * stride + 1, stride) for at in (i, j)
            )
            y[..., rows, columns] += np.einsum("bgihw,gio->bgohw", parts, filters[..., i, j].astype(float))
        y = y[..., begin : begin + made, begin : begin + made].reshape(batch, group * outputs, made, made)
        return _activated(active, y + bias.reshape(1, -1, 1, 1))

    words = [group, inputs, group * outputs, kernel, kernel, stride, stride, pad, pad, 1, pad_type]
    shape = (batch, group * inputs, size, size)
    arrays = {"filter": filters.reshape(group * inputs, outputs, kernel, kernel), "bias": bias}
    words += [dilation, dilation, ACTIVATIONS[active]]
    return [Layer("Deconvolution", [shape], formula, words, arrays)]


def _inner_product(numbers: Numbers, case: Case) -> list[Layer]:
    batch, channel, size, outputs, has_bias, data_type = case
    if not floats(data_type):
        return []
    weight = numbers.steps((outputs, channel * size * size))
    bias = numbers.steps((outputs,)) if has_bias else np.zeros(0, np.float32)

    def formula(x: Array) -> Array:
        made = x.reshape(batch, -1) @ weight.T.astype(np.float64)
        return made + bias if has_bias else made

    arrays = {"weight": weight, "bias": bias}
    return [Layer("InnerProduct", [dims(case, 4)], formula, [outputs, has_bias, 0, 1], arrays)]


def _matmul(numbers: Numbers, case: Case) -> list[Layer]:
    left, right, place = case
    long = max(len(left), len(right))
    a, b = ([1] * (long - len(shape)) + list(shape) for shape in (left, right))
    wider = [(m > n) - (m < n) for m, n in zip(a[:-2], b[:-2], strict=True)]
    batches = [math.prod(shape[:-2]) for shape in (left, right)]
    if {1, -1} <= set(wider) or (min(batches) > 1 and batches[0] != batches[1]):
        return []
    if place == -1:
        return [Layer("MatMul", [tuple(left), tuple(right)], np.matmul, [place])]
    kept = numbers.steps((left, right)[place])

    def formula(x: Array) -> Array:
        return np.matmul(kept, x) if place == 0 else np.matmul(x, kept)

    return [Layer("MatMul", [tuple((right, left)[place])], formula, [place], {"weight": kept})]


def _batch_norm(numbers: Numbers, case: Case) -> list[Layer]:
    rank, shared, has_bias, data_type = case[3:]
    if not floats(data_type) or rank != 4:
        return []
    count = 1 if shared else case[1]
    arrays = {"scale": numbers.steps((count,))}
    if has_bias:
        arrays["bias"] = numbers.steps((count,))

    def formula(x: Array) -> Array:
        scaled = x * arrays["scale"].reshape(1, -1, 1, 1)
        return scaled + arrays["bias"].reshape(1, -1, 1, 1) if has_bias else scaled

    shape = dims(case, rank)
    return [
        Layer("BatchNormCxx", [shape], formula, [], arrays),
        Layer("Scale", [shape], formula, [1, 1, int(has_bias)], arrays),
    ]


def _prelu(numbers: Numbers, case: Case) -> list[Layer]:
    rank, shared = case[3:]
    slope = numbers.steps((case[1],))
    factors = (np.full(case[1], slope[0]) if shared else slope).reshape(1, -1, *[1] * (rank - 2))
    words, arrays = [int(shared), 1], {"slope": slope}
    return [Layer("PReLU", [dims(case, rank)], lambda x: np.where(x < 0, x * factors, x), words, arrays)]


# Windows, sums, and statistics


def _pooling(numbers: Numbers, case: Case) -> list[Layer]:
    size, kernel, stride, average, data_type = case[2:]
    if not floats(data_type):
        return []
    pad = int(kernel == 3)
    made = (size + 2 * pad - kernel) // stride + 1

    def formula(x: Array) -> Array:
        y = np.zeros((*x.shape[:2], made, made))
        for i, j in product(range(made), repeat=2):
            rows, columns = (
                slice(max(at * stride - pad, 0), min(at * stride - pad + kernel, size)) for at in (i, j)
            )
            part = x[:, :, rows, columns]
            y[:, :, i, j] = part.mean((2, 3)) if average else part.max((2, 3))
        return y

    words = [average, kernel, kernel, stride, stride, pad, pad, -1, -1, -1, 0]
    return [Layer("Pooling", [dims(case, 4)], formula, words)]


REDUCTIONS: dict[str, Callable[[Array, tuple[int, ...], bool], Array]] = {
    "ReduceMax": lambda x, axes, keep: x.max(axes, keepdims=keep),
    "ReduceMin": lambda x, axes, keep: x.min(axes, keepdims=keep),
    "ReduceMean": lambda x, axes, keep: x.mean(axes, keepdims=keep),
    "ReduceLogSumExp": lambda x, axes, keep: np.log(np.exp(x).sum(axes, keepdims=keep)),
    "ReduceL1": lambda x, axes, keep: np.abs(x).sum(axes, keepdims=keep),
    "ReduceL2": lambda x, axes, keep: np.sqrt((x * x).sum(axes, keepdims=keep)),
    "ReduceLogSum": lambda x, axes, keep: np.log(x.sum(axes, keepdims=keep)),
    "ReduceSumSquare": lambda x, axes, keep: (x * x).sum(axes, keepdims=keep),
    "ReduceSum": lambda x, axes, keep: x.sum(axes, keepdims=keep),
    "ReduceProd": lambda x, axes, keep: x.prod(axes, keepdims=keep),
}
"""Reductions, in the order in which the test runs them."""


def _reduce(numbers: Numbers, case: Case) -> list[Layer]:
    batch, channel, high, wide, keep, rank, axes, data_type = case
    if not floats(data_type) or axes[0] == 0:
        return []
    if channel == 128 and max(high, wide) > 9:
        return []
    if any(one == 128 and (channel > 2 or other > 9) for one, other in ((wide, high), (high, wide))):
        return []
    if (keep == 0 and rank <= len(axes) + 1) or any(d >= rank or d + rank < 0 for d in axes):
        return []
    sizes = [batch, channel, *(high if n % 2 == 0 else wide for n in range(2, rank))]
    sizes[4:] = [min(high, wide)] * (rank - 4)
    chosen = tuple(sorted({d % rank for d in axes}))
    made = []
    for kind, reduce in REDUCTIONS.items():

        def formula(x: Array, reduce: Callable[..., Array] = reduce) -> Array:
            return reduce(x, chosen, bool(keep))

        made.append(Layer(kind, [tuple(sizes)], formula, [keep, *axes]))
    return made


def _softmax(numbers: Numbers, case: Case) -> list[Layer]:
    batch, channel, high, wide, axis, rank, data_type = case
    if not floats(data_type) or axis >= rank or [channel, high, wide].count(512) > 1:
        return []
    shape = (batch, channel, *(high if n % 2 == 0 else wide for n in range(rank - 2)))

    def formula(x: Array) -> Array:
        powers = np.exp(x - x.max(axis, keepdims=True))
        return np.asarray(powers / powers.sum(axis, keepdims=True))

    return [Layer("Softmax", [shape], formula, [axis])]


def _instance_norm(numbers: Numbers, case: Case) -> list[Layer]:
    rank, data_type = case[3:]
    if not floats(data_type):
        return []
    scale, bias = numbers.steps((case[1],)), numbers.steps((case[1],))
    each = (1, -1, *[1] * (rank - 2))

    def formula(x: Array) -> Array:
        axes = tuple(range(2, rank))
        away = x - x.mean(axes, keepdims=True)
        spread = np.sqrt((away * away).mean(axes, keepdims=True) + 1e-5)
        return np.asarray(away / spread * scale.reshape(each) + bias.reshape(each))

    arrays = {"scale": scale, "bias": bias}
    return [Layer("InstBatchNormCxx", [dims(case, rank)], formula, [case[1], 1e-5], arrays)]


def _normalize(numbers: Numbers, case: Case) -> list[Layer]:
    batch, channel, _, p, axis, rank, data_type = case
    if not floats(data_type) or batch > 1 or axis != 1 or channel < 2 or (channel > 4 and channel % 4):
        return []

    def formula(x: Array) -> Array:
        sums = np.abs(x).sum(1, keepdims=True)
        roots = np.maximum(np.sqrt((x * x).sum(1, keepdims=True)), 1e-12)
        return np.asarray(x / (sums if p == 1 else roots))

    return [Layer("Normalize", [dims(case, rank)], formula, [0, 1e-12, 1, axis, p])]


def _shares(mode: int, size: int, made: int, corners: bool) -> Array:
    """Return what each element of the result (rows) has of each of the input (columns), along one axis."""
    shares = np.zeros((made, size))
    if mode != 3 and made == size:
        return np.eye(size)
    step = np.float32(0)
    if mode == 1:
        step = np.float32(size) / np.float32(made)
    elif made > 1:
        step = np.float32(size - 1) / np.float32(made - 1) if corners else np.float32(size) / np.float32(made)
    for row in range(made):
        if mode == 1:
            shares[row, int(np.float32(row) * step)] = 1
            continue
        at = float(np.float32(step * np.float32(row) if corners else float(step) * (row + 0.5) - 0.5))
        if mode == 2:
            at = min(max(at, 0.0), size - 1)
            first = int(at)
            shares[row, first] += 1 - (at - first)
            shares[row, min(first + 1, size - 1)] += at - first
            continue
        first, a = math.floor(at), -0.75
        t = at - first
        near = [((a + 2) * one - (a + 3)) * one * one + 1 for one in (t, 1 - t)]
        far = ((a * (t + 1) - 5 * a) * (t + 1) + 8 * a) * (t + 1) - 4 * a
        for n, share in enumerate((far, *near, 1 - far - sum(near))):
            shares[row, min(max(first + n - 1, 0), size - 1)] += share
    return shares


def _upsample(numbers: Numbers, case: Case) -> list[Layer]:
    size, mode, corners, wide, high, sized, data_type = case[2:]
    if not floats(data_type):
        return []
    made = [math.floor(np.float32(scale) * np.float32(size) + 0.5) for scale in (high, wide)]

    def formula(x: Array) -> Array:
        rows, columns = (_shares(mode, size, one, bool(corners)) for one in made)
        return np.asarray(np.einsum("ri,bcij,sj->bcrs", rows, x, columns, optimize=True))

    words = [mode, high, wide, corners, *(made if sized else ())]
    return [Layer("Upsample", [dims(case, 4)], formula, words)]


# Moves


def _concat(numbers: Numbers, case: Case) -> list[Layer]:
    axis, count, rank, data_type = case[3:]
    if not floats(data_type) or axis >= rank:
        return []
    return [Layer("Concat", [dims(case, rank)] * count, lambda *x: np.concatenate(x, axis), [axis])]


def _split_v(numbers: Numbers, case: Case) -> list[Layer]:
    rank, axis, count, data_type = case[3:]
    shape = dims(case, rank)
    if not floats(data_type) or axis >= rank or shape[axis] < count:
        return []
    sizes = [shape[axis] // count] * (count - 1)
    sizes.append(shape[axis] - sum(sizes))

    def formula(x: Array) -> list[Array]:
        return np.split(x, np.cumsum(sizes)[:-1], axis)

    return [Layer("SplitV", [shape], formula, [axis, count, *sizes])]


def _permute(numbers: Numbers, case: Case) -> list[Layer]:
    rank = case[3]
    made = []
    for order in permutations(range(rank)):

        def formula(x: Array, order: tuple[int, ...] = order) -> Array:
            return x.transpose(order)

        made.append(Layer("Permute", [dims(case, rank)], formula, [rank, *order]))
    return made


def _reshape(numbers: Numbers, case: Case) -> list[Layer]:
    rank, kind, data_type = case[3:]
    if not floats(data_type) or (kind == 1 and rank > 4):
        return []
    shape = [0, -1, *[1] * (rank - 2)]

    def formula(x: Array) -> Array:
        ordered = x.transpose(0, *range(2, rank), 1) if kind else x
        return ordered.reshape(case[0], -1, *shape[2:])

    return [Layer("Reshape", [dims(case, rank)], formula, [0, rank, rank, *shape, kind])]


def _squeeze(numbers: Numbers, case: Case) -> list[Layer]:
    rank, axes, data_type = case[3:]
    if not floats(data_type) or rank - len(axes) < 2:
        return []
    sizes = list(dims(case, rank))
    for erased, axis in enumerate(reversed(axes)):
        place = axis if axis >= 0 else axis + rank - erased
        if not 0 <= place < rank:
            return []
        sizes[place] = 1
    left = list(sizes)
    for axis in reversed(axes):  # squeeze_layer.cc: from the last axis on, of what is left then
        place = axis if axis >= 0 else axis + len(left)
        if not 0 <= place < len(left) or left[place] != 1:
            return []  # TNN refuses such a layer on every device
        del left[place]
    return [Layer("Squeeze", [tuple(sizes)], lambda x: x.reshape(left), [len(axes), *axes])]


def _unsqueeze(numbers: Numbers, case: Case) -> list[Layer]:
    rank, axes, data_type = case[3:]
    if not floats(data_type) or len(axes) + rank > 6:
        return []
    if any(not 0 <= (axis if axis >= 0 else axis + rank + n) <= rank for n, axis in enumerate(axes)):
        return []
    left = list(dims(case, rank))
    for axis in axes:  # unsqueeze_layer.cc: each axis counts what is there then
        left.insert(axis if axis >= 0 else axis + len(left) + 1, 1)
    return [Layer("Unsqueeze", [dims(case, rank)], lambda x: x.reshape(left), [len(axes), *axes])]


def _pixel_shuffle(numbers: Numbers, case: Case) -> list[Layer]:
    batch, channel, size, factor = case
    if channel < factor or channel % (factor * factor):
        return []

    def formula(x: Array) -> Array:
        parts = x.reshape(batch, -1, factor, factor, size, size).transpose(0, 1, 4, 2, 5, 3)
        return parts.reshape(batch, -1, size * factor, size * factor)

    return [Layer("PixelShuffle", [dims(case, 4)], formula, [factor])]


def _shuffle(numbers: Numbers, case: Case) -> list[Layer]:
    batch, share, size, rank, group = case
    shape = dims((batch, share * group, size), rank)

    def formula(x: Array) -> Array:
        return x.reshape(batch, group, share, -1).swapaxes(1, 2).reshape(shape)

    return [Layer("ShuffleChannel", [shape], formula, [group])]


def _pad(numbers: Numbers, case: Case) -> list[Layer]:
    wide, high, deep, kind, value = case[3:]
    if (kind == 1 and deep) or abs(value) == LIMITS["FLT_MAX"]:
        return []  # FLT_MAX is no number of fp16: the other device without fp32 (HUAWEI_NPU) skips it, too
    around = [(0, 0), (deep, deep), (high, high), (wide, wide)]

    def formula(x: Array) -> Array:
        return np.pad(x, around, "reflect") if kind else np.pad(x, around, constant_values=value)

    words = [0, 0, high, high, wide, wide, deep, deep, kind, value]
    return [Layer("Pad", [dims(case, 4)], formula, words)]


def _pad_v2(numbers: Numbers, case: Case) -> list[Layer]:
    wide, high, deep, kind, rank, value = case[3:]
    if (kind == 1 and deep) or rank != 4 or abs(value) == LIMITS["FLT_MAX"]:
        return []  # rank: as for DEVICE_ARM
    pads = [0, deep, high, wide]

    def formula(x: Array) -> Array:
        around = [(n, n) for n in pads]
        return np.pad(x, around, "reflect") if kind else np.pad(x, around, constant_values=value)

    return [Layer("PadV2", [dims(case, 4)], formula, [4, *pads, *pads, kind, value])]


def _slice(numbers: Numbers, case: Case) -> list[Layer]:
    batch, channel, size, begin, deep, step, end = case
    begins, strides = [0, begin, begin, begin], [1, deep, step, step]
    ends = [batch, channel + end, size + end, size + end]
    if any(low >= high for low, high in zip(begins, ends, strict=True)):
        return []
    cut = tuple(slice(*three) for three in zip(begins, ends, strides, strict=True))
    words = [4, *begins, 4, *ends, 4, *strides]
    return [Layer("StridedSlice", [dims(case, 4)], lambda x: x[cut], words)]


def _slice_v2(numbers: Numbers, case: Case) -> list[Layer]:
    rank, start, end, axis, step, data_type = case[3:]
    if not floats(data_type) or axis >= rank:
        return []
    cut = (*[slice(None)] * axis, slice(start, end, step))
    return [
        Layer("StridedSliceV2", [dims(case, rank)], lambda x: x[cut], [1, start, 1, end, 1, axis, 1, step])
    ]


BODIES: dict[str, Body] = {
    **{
        f"{kind}LayerTest": unary(kind)
        for kind in UNARY
        if kind not in ("Relu", "Relu6", "Reciprocal", "Sqrt")
    },
    "ReluLayerTest": unary("Relu"),
    "Relu6LayerTest": unary("Relu6"),
    "ReciprocalLayerTest": unary("Reciprocal", positive=True),
    "SqrtLayerTest": unary("Sqrt"),
    "GeluLayerTest": _gelu,
    "EluLayerTest": _elu,
    "SeluLayerTest": _selu,
    "ClipLayerTest": _clip,
    "HardSigmoidLayerTest": _hard_sigmoid,
    "HardSwishLayerTest": _hard_swish,
    "HardSwishBroadcastLayerTest": _hard_swish_of_two,
    "PowLayerTest": _power,
    "AddLayerTest": binary("Add"),
    "SubLayerTest": binary("Sub"),
    "MulLayerTest": binary("Mul"),
    "DivLayerTest": binary("Div", positive=True),
    "MaxLayerTest": binary("Maximum"),
    "MinLayerTest": binary("Minimum"),
    "ConvLayerTest": _convolution,
    "DeconvLayerTest": _deconvolution,
    "InnerProductLayerTest": _inner_product,
    "MatMulLayerTest": _matmul,
    "BatchNormScaleLayerTest": _batch_norm,
    "PReluLayerTest": _prelu,
    "PoolingLayerTest": _pooling,
    "ReduceOpLayerTest": _reduce,
    "SoftmaxLayerTest": _softmax,
    "InstanceNormLayerTest": _instance_norm,
    "NormalizeLayerTest": _normalize,
    "UpsampleLayerTest": _upsample,
    "ConcatLayerTest": _concat,
    "SplitVLayerTest": _split_v,
    "PermuteLayerTest": _permute,
    "ReshapeLayerTest": _reshape,
    "SqueezeLayerTest": _squeeze,
    "UnsqueezeLayerTest": _unsqueeze,
    "PixelShuffleLayerTest": _pixel_shuffle,
    "ShuffleLayerTest": _shuffle,
    "PadLayerTest": _pad,
    "PadV2LayerTest": _pad_v2,
    "StrideSliceLayerTest": _slice,
    "StrideSliceV2LayerTest": _slice_v2,
}
"""What each test class makes of its parameters."""


def agree(found: Array, right: Array) -> bool:
    """Whether CompareData accepts numbers for blobs of fp16.

    Where NAIVE has a NaN, it accepts any number, as here; a NaN in place of a number is accepted there alone.
    """
    a, b = np.asarray(found, np.float64).ravel(), np.asarray(right, np.float64).ravel()
    if (np.isnan(a) & ~np.isnan(b)).any():
        return False
    with np.errstate(all="ignore"):
        apart = np.abs(a - b)
        if not ((apart / (np.abs(a) + np.abs(b)) > RELATIVE) & (apart > ABSOLUTE)).any():
            return True
        cosine = (a @ b) / ((math.sqrt(a @ a) + 1e-9) * (math.sqrt(b @ b) + 1e-9))
    return bool(cosine >= COSINE)


class Refused(Exception):
    """The interface answered with a status that is not TNN_OK."""


def _done(status: Status) -> None:
    if not status:
        raise Refused(status.description())


def outputs(
    layer: Layer, inputs: Sequence[Array], config: NetworkConfig, count: int
) -> tuple[list[Array], bool]:
    """Return what the device of a configuration computes, and whether the NPU has a part in it.

    Raises
    ------
    Refused
        If a call fails.
    """
    names = [f"input{n}" for n in range(len(inputs))]
    made = tuple(f"output{n}" for n in range(count))
    words = tuple(str(word) for word in layer.words)
    structure = NetStructure(
        tuple(NetInput(name, tuple(shape)) for name, shape in zip(names, layer.shapes, strict=True)),
        made,
        (LayerInfo(layer.kind, "layer_name", tuple(names), made, words),),
        VERSION_2,
    )
    network = TnnNetwork(structure, {"layer_name": layer.arrays} if layer.arrays else {})
    tnn = TNN()
    _done(tnn.Init(ModelConfig(params=list(write_network(network)))))
    status, instance = tnn.CreateInst(config)
    _done(status)
    assert instance is not None
    with instance:
        for name, values in zip(names, inputs, strict=True):
            mat = Mat(DeviceType.DEVICE_NAIVE, MatType.NCHW_FLOAT, values.shape, values)
            _done(instance.SetInputMat(mat, name=name))
        _done(instance.Forward())
        found = []
        for name in made:
            status, got = instance.GetOutputMat(name=name)
            _done(status)
            assert got is not None
            found.append(got.array.copy())
        assert isinstance(instance.network, DefaultNetwork)
        layers = [one.acc for one in instance.network.layers]
        on_npu = any(isinstance(one, Rk3588LayerAcc) and one.on_npu for one in layers)
    return found, on_npu


def tried(layer: Layer, numbers: Numbers, config: NetworkConfig) -> tuple[str, bool]:
    """Run a network; return what is wrong with it, or "", and whether the NPU had a part in it."""
    inputs = [
        numbers.between(shape, 0.0001, 1.0 + n) if layer.positive else numbers.steps(shape, 1.0 + n)
        for n, shape in enumerate(layer.shapes)
    ]
    with np.errstate(all="ignore"):
        right = layer.formula(*(values.astype(np.float64) for values in inputs))
    expected = right if isinstance(right, list) else [right]
    try:
        found, on_npu = outputs(layer, inputs, config, len(expected))
    except Refused as reason:
        return f"{layer.kind} refused: {reason}", False
    for one, other in zip(found, expected, strict=True):
        if one.shape != other.shape:
            text = f"{layer.kind} has shape {list(one.shape)}; {list(other.shape)} is expected"
            return text, on_npu
        if not agree(one, other):
            worst = float(np.nanmax(np.abs(np.where(np.isfinite(other), one - other, 0))))
            return f"{layer.kind} is up to {worst:.3g} away", on_npu
    return "", on_npu


def judged(grid: Grid, engine: str, most: int, seconds: float, largest: int | None = None) -> Outcome:
    """Run a test on the instances of its grid.

    Parameters
    ----------
    grid : of a class of `BODIES`.
    engine : "golden" or "rtl".
    most : the number of networks after which no other instance is run. If the grid has more, instances are
        drawn from a seed of the name.
    seconds : after which the test ends with the verdict of a time limit.
    largest : elements of all inputs together that a network may have; None for any number.
    """
    body, cases = BODIES[grid.suite.rpartition("/")[2]], grid.cases()
    config = NetworkConfig(
        device_type=DeviceType.DEVICE_RK3588,
        network_type=NetworkType.NETWORK_TYPE_DEFAULT,
        engine="golden" if engine == "golden" else None,
    )
    seed = zlib.crc32(grid.name.encode())
    end, ran, instances, npu, faults = time.monotonic() + seconds, 0, 0, 0, []
    for index in np.random.default_rng(seed).permutation(len(cases)):
        if ran >= most:
            break
        numbers = Numbers(seed, int(index))
        layers = body(numbers, cases[index])
        if largest is not None:
            layers = [one for one in layers if sum(map(math.prod, one.shapes)) <= largest]
        instances += bool(layers)
        for layer in layers:
            if time.monotonic() > end:
                return Outcome(LIMIT, f"ended after {ran} networks in {seconds:.0f} s")
            ran += 1
            fault, on_npu = tried(layer, numbers, config)
            npu += on_npu
            if fault:
                faults.append(f"/{index} {fault}")
    if not ran:
        return Outcome(SKIP, "every instance is skipped")
    of = f"{ran} networks ({npu} on the NPU) of {instances} of {len(cases)} instances"
    return Outcome(FAIL, f"{len(faults)} of {of}: {faults[0]}") if faults else Outcome(PASS, of)
