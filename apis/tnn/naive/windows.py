"""NAIVE's convolutions, products, pooling and resizing, from their definitions."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from rkcosim.apis.tnn.blob import Array, to_int8
from rkcosim.apis.tnn.loader.bound import Bound
from rkcosim.apis.tnn.loader.geometry import deconvolution_pads, window, window_pads
from rkcosim.apis.tnn.loader.network import BlobScale
from rkcosim.apis.tnn.loader.shapes import corners, matmul_operands
from rkcosim.apis.tnn.naive.arithmetic import channelwise, sigmoid
from rkcosim.apis.tnn.naive.table import coded, naive


def weights_of(b: Bound, name: str) -> Array:
    """Return weights as float64; those of 8 bits times their scales, minus their zero points."""
    codes = b.array(name)
    if codes.dtype != np.int8:
        return codes.astype(np.float64)
    scale = b.array("scale").astype(np.float64).reshape(-1, 1)
    zero = b.resource.get("zero_point", np.zeros(0)).astype(np.float64).reshape(-1, 1)
    rows = codes.astype(np.float64).reshape(scale.shape[0], -1) - (zero if zero.size else 0.0)
    return (rows * scale).reshape(codes.shape)


def activate(b: Bound, x: Array) -> Array:
    """Return the result of a convolution after its activation."""
    kind = b.params["activation_type"]
    if kind == 0x100:
        return x * sigmoid(x)
    return np.clip(x, 0.0, 6.0) if kind == 2 else np.maximum(x, 0.0) if kind == 1 else x


def _taps(b: Bound, x: Array, fill: float) -> Iterator[tuple[int, int, Array]]:
    """Yield row and column of each element of a window with the elements of all windows there."""
    kernels, strides = window(b)
    dilations = b.params.get("dialations", (1, 1))
    pads = window_pads(b)
    wide = np.pad(x, ((0, 0), (0, 0), *pads), constant_values=fill)
    high, long = b.outputs[0][2:]
    for row, column in itertools.product(range(kernels[0]), range(kernels[1])):
        top, left = row * dilations[0], column * dilations[1]
        rows = slice(top, top + (high - 1) * strides[0] + 1, strides[0])
        columns = slice(left, left + (long - 1) * strides[1] + 1, strides[1])
        yield row, column, wide[:, :, rows, columns]


def convolved(b: Bound, x: Array, weights: Array, fill: float = 0.0) -> Array:
    """Return the sums of a convolution, without bias."""
    groups, outputs = b.params["group"], b.params["output_channel"]
    depth = x.shape[1] // groups
    kernels = weights.reshape(groups, outputs // groups, depth, *b.params["kernels"])
    made = np.zeros(b.outputs[0], np.result_type(x, weights))
    parts = made.reshape(made.shape[0], groups, outputs // groups, *made.shape[2:])
    for row, column, values in _taps(b, x, fill):
        cut = values.reshape(x.shape[0], groups, depth, *made.shape[2:])
        parts += np.einsum("god,ngdhw->ngohw", kernels[..., row, column], cut, optimize=True)
    return made


@naive("Convolution")
def _convolution(b: Bound, x: Sequence[Array]) -> list[Array]:
    made = convolved(b, x[0], weights_of(b, "filter"))
    if b.params["bias"] and "bias" in b.resource:
        made = made + channelwise(b.array("bias"), made)
    return [activate(b, made)]


@naive("Deconvolution")
def _deconvolution(b: Bound, x: Sequence[Array]) -> list[Array]:
    p, (n, channels, height, width) = b.params, x[0].shape
    groups, outputs = p["group"], p["output_channel"]
    kernels = weights_of(b, "filter").reshape(groups, channels // groups, outputs // groups, *p["kernels"])
    cuts = deconvolution_pads(b)
    full = [size + sum(cut) for size, cut in zip(b.outputs[0][2:], cuts, strict=True)]
    made = np.zeros((n, groups, outputs // groups, *full))
    cut = x[0].reshape(n, groups, channels // groups, height, width)
    for row, column in itertools.product(range(p["kernels"][0]), range(p["kernels"][1])):
        top, left = row * p["dialations"][0], column * p["dialations"][1]
        rows = slice(top, top + (height - 1) * p["strides"][0] + 1, p["strides"][0])
        columns = slice(left, left + (width - 1) * p["strides"][1] + 1, p["strides"][1])
        made[..., rows, columns] += np.einsum("gdo,ngdhw->ngohw", kernels[..., row, column], cut)
    kept = [slice(begin, size - end) for size, (begin, end) in zip(full, cuts, strict=True)]
    result = made.reshape(n, outputs, *full)[:, :, kept[0], kept[1]]
    if p["bias"] and "bias" in b.resource:
        result = result + channelwise(b.array("bias"), result)
    return [activate(b, result)]


@naive("InnerProduct")
def _inner_product(b: Bound, x: Sequence[Array]) -> list[Array]:
    axis, count = b.axis(b.params["axis"]), b.params["num_output"]
    rows = x[0].reshape(int(np.prod(b.inputs[0][:axis])), -1)
    made = rows @ weights_of(b, "weight").reshape(count, -1).T
    bias = b.resource.get("bias")
    if b.params["has_bias"] and bias is not None and bias.size:
        made = made + bias.astype(np.float64).reshape(-1)
    return [made.reshape(b.outputs[0])]


@naive("MatMul")
def _matmul(b: Bound, x: Sequence[Array]) -> list[Array]:
    operands = list(x)
    if len(x) == 1:
        place = 0 if b.params["weight_position"] == 0 else 1
        shape = matmul_operands(b)[place]
        operands.insert(place, weights_of(b, "weight").reshape(shape))
    return [np.matmul(operands[0], operands[1])]


@naive("Pooling")
def _pooling(b: Bound, x: Sequence[Array]) -> list[Array]:
    if b.params["is_adaptive_pool"]:
        return [_adaptive(b, x[0])]
    if b.params["pool_type"] == 0:
        return [np.max([values for _, _, values in _taps(b, x[0], -np.inf)], axis=0)]
    sums = np.sum([values for _, _, values in _taps(b, x[0], 0.0)], axis=0)
    counts = np.sum([values for _, _, values in _taps(b, np.ones_like(x[0]), 0.0)], axis=0)
    return [sums / counts]


def _adaptive(b: Bound, x: Array) -> Array:
    high, long = b.outputs[0][2:]
    rows = [(n * x.shape[2] // high, -(-(n + 1) * x.shape[2] // high)) for n in range(high)]
    columns = [(n * x.shape[3] // long, -(-(n + 1) * x.shape[3] // long)) for n in range(long)]
    method = np.mean if b.params["pool_type"] else np.max
    parts = [[method(x[:, :, t:u, v:w], axis=(2, 3)) for v, w in columns] for t, u in rows]
    return np.moveaxis(np.array(parts), (0, 1), (2, 3))


@naive("Upsample")
def _upsample(b: Bound, x: Sequence[Array]) -> list[Array]:
    made = x[0]
    if b.inputs[0] == b.outputs[0]:
        return [made.copy()]
    for axis in (2, 3):
        taps = _taps_of(b, b.inputs[0][axis], b.outputs[0][axis])
        spread = (-1,) + (1,) * (3 - axis)
        parts = [np.take(made, places, axis) * share.reshape(spread) for places, share in taps]
        made = np.sum(parts, axis=0)
    return [made]


def _taps_of(b: Bound, size: int, out: int) -> list[tuple[Array, Array]]:
    """Return the elements that each result along one axis takes, and their shares."""
    mode, corner = b.params["mode"], corners(b)
    numbers = np.arange(out)
    if mode == 1:  # TNN multiplies in float32
        scaled = (numbers.astype(np.float32) * np.float32(size / out)).astype(np.int64)
        return [(np.minimum(scaled, size - 1), np.ones(out))]
    at: Array
    if out == 1:  # TNN multiplies the place by 0
        at = np.zeros(1) if corner else np.full(1, -0.5)
    elif corner:
        at = numbers * ((size - 1) / (out - 1))
    else:
        at = (numbers + 0.5) * (size / out) - 0.5
    if mode == 2:
        at = np.clip(at, 0, size - 1)
    low = np.floor(at).astype(np.int64)
    t, a = at - low, -0.75
    if mode == 2:
        shares = {0: 1 - t, 1: t}
    else:
        shares = {
            -1: ((a * (t + 1) - 5 * a) * (t + 1) + 8 * a) * (t + 1) - 4 * a,
            0: ((a + 2) * t - (a + 3)) * t * t + 1,
            1: ((a + 2) * (1 - t) - (a + 3)) * (1 - t) ** 2 + 1,
        }
        shares[2] = 1 - shares[-1] - shares[0] - shares[1]
    return [(np.clip(low + step, 0, size - 1), share) for step, share in shares.items()]


def _sums(b: Bound, bias: Array | None, made: Array) -> Array:
    return made if bias is None or not bias.size else made + channelwise(bias, made)


@coded("Convolution", "InnerProduct")
def _coded_product(
    b: Bound, x: Sequence[Array], before: Sequence[BlobScale], after: Sequence[BlobScale]
) -> list[Array]:
    """Exact sums of products of codes, times the scales of the kernels, divided by those of the result."""
    name = "filter" if b.layer.type == "Convolution" else "weight"
    codes = b.array(name).astype(np.float64)
    zero = b.resource.get("zero_point", np.zeros(0)).astype(np.float64).reshape(-1)
    count = b.params["output_channel" if name == "filter" else "num_output"]
    rows = codes.reshape(count, -1) - (zero.reshape(-1, 1) if zero.size else 0.0)
    centred = x[0].astype(np.float64) - before[0].zero  # every sum of integers is exact in float64
    if name == "filter":
        made = convolved(b, centred, rows.reshape(codes.shape))
    else:
        made = (centred.reshape(int(np.prod(b.outputs[0][:-1])), -1) @ rows.T).reshape(b.outputs[0])
    made = _sums(b, b.resource.get("bias"), made)
    scale = channelwise(b.array("scale"), made) / channelwise(after[0].scale, made)
    made = made * scale
    if name == "filter" and b.params["activation_type"]:
        if b.params["activation_type"] == 0x100:
            raise b.wrong("int8 convolutions have no SIGMOID_MUL")
        made = np.maximum(made, 0.0)
        if b.params["activation_type"] == 2:
            made = np.minimum(made, to_int8(6.0 / channelwise(after[0].scale, made)))
    return [to_int8(made + after[0].zero)]


@coded("Pooling")
def _coded_pooling(
    b: Bound, x: Sequence[Array], before: Sequence[BlobScale], after: Sequence[BlobScale]
) -> list[Array]:
    """Maxima of codes, or their mean without its fraction, as TNN divides integers."""
    made = _pooling(b, [x[0].astype(np.float64)])[0]
    return [np.trunc(made).astype(np.int8)]
