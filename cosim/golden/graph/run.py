"""Evaluation of graph-level nodes in plain numpy (see `rkcosim.golden.graph.ops` for their definitions)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rkcosim.golden.graph import ops
from rkcosim.golden.graph.floats import evaluate_float, shares
from rkcosim.spec.regs.options import chosen_options

Ints = NDArray[np.int64]
_TYPES = {8: np.int8, 16: np.int16, 32: np.int32}


def divide(value: Ints, shift: int, half_away: bool = False) -> Ints:
    """`value / 2^shift` rounded to the nearest integer, ties to even or away from zero.

    Parameters
    ----------
    value
        int64, magnitude below 2^62.
    shift
        0..61 (every product of the data path is below 2^61, so that larger shifts give 0 as 61 does).

    Raises
    ------
    ValueError
        If `shift` is negative.
    """
    if shift < 0:
        raise ValueError(f"shift {shift} is negative")
    value = np.asarray(value, np.int64)
    if shift == 0:
        return value
    if shift > 62:  # |value| < 2^62 is less than half a unit of the result
        return np.zeros_like(value)
    magnitude = np.abs(value)
    quotient = magnitude >> shift
    rest = magnitude - (quotient << shift)
    # A tie is rounded up if the quotient is odd, or always (`half_away`).
    half = (1 << (shift - 1)) - (1 if half_away else quotient & 1)
    quotient += rest > half
    return np.where(value < 0, -quotient, quotient)


def limit(value: Ints, bits: int) -> Ints:
    """Clamp to the signed range of `bits` bits."""
    return np.minimum(np.maximum(value, -(2 ** (bits - 1))), 2 ** (bits - 1) - 1)


def _channels(values: ArrayLike) -> Ints:
    """One integer, or one per channel, in a shape that broadcasts with [C, H, W]."""
    array = np.asarray(values, np.int64)
    return array.reshape(-1, 1, 1) if array.ndim else array


def _clamp(value: Ints, clamp: ops.Clamp) -> Ints:
    if clamp.low is not None:
        value = np.maximum(value, clamp.low)
    if clamp.high is not None:
        value = np.minimum(value, clamp.high)
    return value


def _stage(value: Ints, stage: ops.Stage) -> Ints:
    total = value + _channels(stage.add)
    if stage.mul is None:
        return _clamp(limit(total, 32), stage.clamp)
    product = total * _channels(stage.mul)
    out = divide(product, stage.shift)
    if stage.shift_negative not in (None, stage.shift):
        out = np.where(product < 0, divide(product, stage.shift_negative), out)
    return _clamp(limit(out, 32), stage.clamp)


def _output(value: Ints, output: ops.Output) -> NDArray:
    product, shift = value * output.scale, min(output.shift, 62)  # products are far below 2^61
    whole = product >> shift
    total = whole + output.offset
    if shift:  # ties are rounded with the offset included, unless the option is set
        rest, half = product - (whole << shift), 1 << (shift - 1)
        seen = whole if "q1_zero_point_after_rounding" in chosen_options() else total
        tie_up = seen >= 0 if output.half_away else seen & 1 == 1
        total = total + ((rest > half) | ((rest == half) & tie_up))
    return limit(total, output.bits).astype(_TYPES[output.bits])


def _windows(
    x: NDArray, kernel: ops.Pair, size: ops.Pair, stride: ops.Pair, dilation: ops.Pair, pad: ops.Pair
) -> tuple[NDArray, NDArray]:
    """Windows [C, OH, OW, kh, kw] of x, and the mask [OH, OW, kh, kw] of taps inside the image."""
    rows = np.arange(size[0])[:, None] * stride[0] + np.arange(kernel[0])[None, :] * dilation[0] - pad[0]
    columns = np.arange(size[1])[:, None] * stride[1] + np.arange(kernel[1])[None, :] * dilation[1] - pad[1]
    good_rows, good_columns = (rows >= 0) & (rows < x.shape[1]), (columns >= 0) & (columns < x.shape[2])
    mask = good_rows[:, None, :, None] & good_columns[None, :, None, :]
    rows, columns = rows.clip(0, x.shape[1] - 1), columns.clip(0, x.shape[2] - 1)
    return x[:, rows[:, None, :, None], columns[None, :, None, :]], mask


def _finish(
    acc: Ints, total: Ints, node: ops.QConv | ops.QDepthwise | ops.QGemm, b: NDArray | None = None
) -> NDArray:
    acc = limit(divide(acc + total * _channels(node.window_mul), node.truncate), 32)
    value = _stage(acc, node.stage)
    if not isinstance(node, ops.QGemm):
        if node.second is not None:
            value = _stage(value, node.second)
        if node.slopes is not None:
            value = _steep(limit(value * node.scale, 32), node.slopes, node.slope_shift)
        if node.correction is not None:
            value = limit(value + node.correction, 32)
        if b is not None:
            if b.shape not in (value.shape, (value.shape[0], 1, 1)):
                raise ValueError(f"{node.y} has shape {value.shape}, {node.b} has {b.shape}")
            value = limit(limit(value * node.scale, 32) + _operand(b, node.b_operand), 32)
        value = _clamp(value, node.clamp)
    return _output(value, node.output)


def _spread(x: NDArray, node: ops.QConv | ops.QDepthwise) -> NDArray:
    """The image with zeros inserted between its pixels."""
    if node.insert == (1, 1):
        return x
    (fy, fx), (channels, height, width) = node.insert, x.shape
    wide = np.zeros((channels, (height - 1) * fy + 1, (width - 1) * fx + 1), x.dtype)
    wide[:, ::fy, ::fx] = x
    return wide


def conv(x: NDArray[np.int8], node: ops.QConv, b: NDArray | None = None) -> NDArray:
    """Evaluate a `QConv`: int8 [C, H, W] -> [K, OH, OW]; `b` is the tensor that it adds.

    Raises
    ------
    ValueError
        If the channel counts of x and of the weights differ, or the shapes of b and the result.
    """
    _, channels, kh, kw = node.weights.shape
    if channels != x.shape[0]:
        raise ValueError(f"{node.y}: weights have {channels} channels, {node.x} has {x.shape[0]}")
    image = _spread(x, node)
    narrow = x.dtype == node.weights.dtype == np.int8
    weights = node.weights.astype(_exact_type(channels * kh * kw) if narrow else np.float64)
    acc = np.empty((len(weights), *node.size), np.int64)
    total = np.empty((1, *node.size), np.int64)
    rows = max(1, BLOCK // (channels * kh * kw * node.size[1]))
    for top in range(0, node.size[0], rows):
        part = slice(top, min(top + rows, node.size[0]))
        pad = node.pad[0] - top * node.stride[0], node.pad[1]
        size = part.stop - top, node.size[1]
        taps, mask = _windows(image, (kh, kw), size, node.stride, node.dilation, pad)
        taps = np.where(mask, taps, np.int8(node.pad_value))
        total[:, part] = taps.sum(axis=(0, 3, 4), dtype=np.int64)
        acc[:, part] = np.tensordot(weights, taps.astype(weights.dtype), axes=([1, 2, 3], [0, 3, 4]))
    return _finish(acc, total, node, b)


BLOCK = 1 << 22
"""Number of taps that `conv` processes at a time: 4 M taps are at most 32 MiB."""


def _exact_type(products: int) -> type[np.float32] | type[np.float64]:
    """Float type that represents every partial sum of `products` products of int8 exactly.

    Matrix products of floats are fast. A product is at most 2^14, so that 1024 of them stay within the 2^24
    of float32, and 2^39 within the 2^53 of float64, more than any memory holds.
    """
    return np.float32 if products * 2**14 <= 2**24 else np.float64


def depthwise(x: NDArray[np.int8], node: ops.QDepthwise, b: NDArray | None = None) -> NDArray:
    """Evaluate a `QDepthwise`: int8 [C, H, W] -> [C, OH, OW] (errors as `conv`)."""
    channels, kh, kw = node.weights.shape
    if channels != x.shape[0]:
        raise ValueError(f"{node.y}: weights have {channels} channels, {node.x} has {x.shape[0]}")
    taps, mask = _windows(_spread(x, node), (kh, kw), node.size, node.stride, node.dilation, node.pad)
    taps = np.where(mask, taps, np.int8(node.pad_value)).astype(np.int64)
    acc = (taps * node.weights.astype(np.int64)[:, None, None]).sum(axis=(3, 4))
    return _finish(acc, taps.sum(axis=(3, 4)), node, b)


def gemm(x: NDArray[np.int8], node: ops.QGemm) -> NDArray:
    """Evaluate a `QGemm`: int8, any shape -> [N, 1, 1]."""
    flat = x.reshape(-1).astype(np.int64)
    if flat.size != node.weights.shape[1]:
        raise ValueError(f"{node.y}: weights take {node.weights.shape[1]} elements, {node.x} has {flat.size}")
    acc = node.weights.astype(np.int64) @ flat
    return _finish(acc.reshape(-1, 1, 1), flat.sum().reshape(1, 1, 1), node)


def add(a: NDArray, b: NDArray, node: ops.QAdd) -> NDArray:
    """Evaluate a `QAdd` of two tensors of the same shape."""
    if a.shape != b.shape and b.shape != (a.shape[0], 1, 1):
        raise ValueError(f"{node.y}: {node.a} has shape {a.shape}, {node.b} has {b.shape}")
    first, second = _operand(a, node.a_operand), _operand(b, node.b_operand)
    operations = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}
    total = operations[node.op](first, second)
    return _output(_clamp(limit(total, 32), node.clamp), node.output)


def _operand(x: NDArray, how: ops.Operand) -> Ints:
    return limit(divide((x.astype(np.int64) + how.offset) * how.scale, how.shift, how.half_away), 32)


def pool(x: NDArray[np.int8], node: ops.QPool) -> NDArray[np.int8]:
    """Evaluate a `QPool`: int8 [C, H, W] -> int8 [C, OH, OW]."""
    taps, mask = _windows(x.astype(np.int64), node.kernel, node.size, node.stride, (1, 1), node.pad)
    taps = np.where(mask, taps, node.pad_value)
    if node.method == "max":
        return limit(taps.max(axis=(3, 4)), 8).astype(np.int8)
    if node.method == "min":
        return limit(taps.min(axis=(3, 4)), 8).astype(np.int8)
    total = taps.sum(axis=(3, 4))
    return limit(_average(total, node), 8).astype(np.int8)


def _average(total: Ints, node: ops.QPool) -> Ints:
    kh, kw = node.kernel
    reciprocal = node.reciprocal or (round(65536 / kh), round(65536 / kw))
    magnitude = np.abs(total)
    nearest = np.floor_divide(magnitude * reciprocal[0] * reciprocal[1] + 2**31, 2**32)
    size = kh * kw
    whole, rest = np.divmod(magnitude, size)
    tie = 2 * rest == size  # the exact average is whole + 1/2
    tie &= (nearest == whole) | (nearest == whole + 1)
    powers = kh.bit_count() == 1 and kw.bit_count() == 1
    nearest = np.where(tie, whole + (whole % 2 if powers else 0), nearest)
    return np.where(total < 0, -nearest, nearest)


def slope(x: NDArray, node: ops.QSlope) -> NDArray:
    """Evaluate a `QSlope`."""
    value = (x.astype(np.int64) + node.offset) * node.scale
    return _output(_steep(value, node.slopes, node.shift), node.output)


def _steep(value: Ints, slopes: ArrayLike, shift: int) -> Ints:
    """Multiply negative numbers by slopes."""
    return np.where(value < 0, limit(divide(value * _channels(slopes), shift), 32), value)


def copy(x: NDArray, y: NDArray, node: ops.QCopy) -> NDArray:
    """Evaluate a `QCopy` on the current contents of y; returns a new array."""
    result = y.copy()
    part = x[tuple(slice(b, b + n) for b, n in zip(node.source, node.size, strict=True))]
    there = tuple(slice(b, b + n) for b, n in zip(node.target, node.size, strict=True))
    result[there] = _output(_stage(part.astype(np.int64), node.stage), node.output)
    return result


def _recode(x: NDArray, old: tuple[float, int], new: tuple[float, int]) -> NDArray:
    if old == new or x.dtype == np.float16:
        return x
    real = (x.astype(np.float64) - old[1]) * (old[0] / new[0])
    return np.clip(np.rint(real) + new[1], -128, 127)


def gather(xs: list[NDArray], node: ops.HostGather) -> NDArray[np.int8]:
    """Evaluate a `HostGather`."""
    parts = [_recode(x, c, node.coding).reshape(-1) for x, c in zip(xs, node.codings, strict=True)]
    kind = np.float16 if xs[0].dtype == np.float16 else np.int8
    flat = np.concatenate([*parts, np.array([node.fill])])
    return flat[node.index].astype(kind)


def host_pool(x: NDArray, node: ops.HostPool) -> NDArray[np.int8]:
    """Evaluate a `HostPool`."""
    taps, mask = _windows(x.astype(np.int64), node.kernel, node.size, node.stride, (1, 1), node.pad)
    if node.method == "max":
        best = np.where(mask, taps, -128).max(axis=(3, 4))
        return _recode(best, node.coding, node.output_coding).astype(np.int8)
    total, count = np.where(mask, taps, 0).sum(axis=(3, 4)), mask.sum(axis=(2, 3))
    if node.coding == node.output_coding:
        floor, rest = np.divmod(np.abs(total), count)
        return (np.sign(total) * (floor + (2 * rest >= count))).astype(np.int8)
    return _recode(total / count, node.coding, node.output_coding).astype(np.int8)


def sums(x: NDArray, node: ops.QSums) -> NDArray[np.int8]:
    """Evaluate a `QSums`."""
    weights = x.reshape(-1)[node.index].astype(np.int64) - node.weight_zero
    totals = limit(node.zero * weights.sum(axis=1), 32)
    return totals.astype("<i4").reshape(-1).view(np.int8).reshape(-1, 1, 1)


def product(a: NDArray, b: NDArray, c: NDArray | None, node: ops.QProduct) -> NDArray[np.int8]:
    """Evaluate a `QProduct`."""
    first = a.reshape(-1)[node.a_index].astype(np.int64)
    second = b.reshape(-1)[node.b_index].astype(np.int64) - node.weight_zero
    value = limit(first @ second, 32)
    if c is not None:
        heads, _, count = node.b_index.shape
        table = np.ascontiguousarray(c).reshape(-1).view("<i4").astype(np.int64).reshape(heads, 1, -1)
        value = limit(value - table[:, :, :count], 32)
    y = np.zeros(int(np.prod(node.shape)), np.int8)
    y[node.y_index] = _output(value, node.output)
    return y.reshape(node.shape)


def softmax(x: NDArray, node: ops.HostSoftmax) -> NDArray:
    """Evaluate a `HostSoftmax` in float64, rounded to float32 or to codes at the end."""
    real = (x.astype(np.float64) - node.zero_point) * node.scale
    result = shares(real, node.lines, node.to, node.shape)
    if node.output_scale is None:
        return result.astype(np.float32)
    return limit(np.rint(result / node.output_scale).astype(np.int64) + node.output_zero_point, 8).astype(
        np.int8
    )


def evaluate(node: ops.Node, tensors: Mapping[str, NDArray]) -> NDArray:
    """Evaluate one node on named tensors.

    Raises
    ------
    KeyError
        If an input tensor is missing.
    ValueError
        If shapes do not match.
    """
    match node:
        case ops.QConv():
            return conv(tensors[node.x], node, tensors[node.b] if node.b else None)
        case ops.QDepthwise():
            return depthwise(tensors[node.x], node, tensors[node.b] if node.b else None)
        case ops.QGemm():
            return gemm(tensors[node.x], node)
        case ops.QAdd():
            return add(tensors[node.a], tensors[node.b], node)
        case ops.QScale():
            return _output(_stage(tensors[node.x].astype(np.int64), node.stage), node.output)
        case ops.QPool():
            return pool(tensors[node.x], node)
        case ops.QSums():
            return sums(tensors[node.x], node)
        case ops.QProduct():
            c = tensors[node.sums] if node.sums else None
            return product(tensors[node.a], tensors[node.b], c, node)
        case ops.Reshape():
            return tensors[node.x].reshape(node.shape)
        case ops.HostSoftmax():
            return softmax(tensors[node.x], node)
        case ops.QSlope():
            return slope(tensors[node.x], node)
        case ops.QLookup():
            return node.table[tensors[node.x].astype(np.int64) + 128]
        case ops.QCopy():
            y = tensors[node.y] if node.y in tensors else np.zeros(node.shape, np.int8)
            return copy(tensors[node.x], y, node)
        case ops.HostGather():
            return gather([tensors[x] for x in node.xs], node)
        case ops.HostPool():
            return host_pool(tensors[node.x], node)
    return evaluate_float(node, tensors)


def run(nodes: Iterable[ops.Node], inputs: Mapping[str, NDArray]) -> dict[str, NDArray]:
    """Evaluate nodes in order; return every tensor by name, inputs included (errors as `evaluate`)."""
    tensors = dict(inputs)
    for node in nodes:
        tensors[node.y] = evaluate(node, tensors)
    return tensors
