"""TFLite operators to operations of the graph."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from sw.compiler.graph import (
    Binary,
    BinaryMethod,
    Clamp,
    Conv,
    ModelError,
    OnHost,
    Pool,
    Rescale,
    Slope,
    Tensor,
    Window,
)
from sw.loaders.functions import lookup
from sw.loaders.tflite_file import TfNode, TfTensor
from sw.loaders.tflite_graph import MAX_WINDOW, Loader, clamp_of, coding, map_input, sized
from sw.loaders.tflite_movement import concat, pad, resize, slice_, split, transpose

BIAS_TOLERANCE = 1e-4
"""Relative difference up to which a bias scale counts as input scale * weight scale (float32)."""


def _weights(
    loader: Loader, node: TfNode, index: int, axis: int
) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float64], int]:
    """Signed weights as they lie in the file, a scale per entry of `axis`, the signed zero point."""
    item, label = loader.item(node, index), loader.label(node)
    data = loader.constant(node, index)
    if item.dtype not in ("int8", "uint8"):
        raise ModelError(f"{label}: weights '{item.name}' are {item.dtype}, not 8 bit")
    if not item.scale.size:
        raise ModelError(f"{label}: weights '{item.name}' have no quantisation")
    shift = 128 if item.dtype == "uint8" else 0
    zeros = np.unique(item.zero - shift) if item.zero.size else np.array([0])
    if zeros.size != 1 or not -128 <= zeros[0] <= 127:
        raise ModelError(f"{label}: weights '{item.name}' have the zero points {item.zero.tolist()[:8]}")
    count = data.shape[axis]
    if item.scale.size not in (1, count) or (item.scale.size > 1 and item.axis != axis % data.ndim):
        raise ModelError(f"{label}: weights '{item.name}' have {item.scale.size} scales on axis {item.axis}")
    codes = (data.astype(np.int16) - shift).astype(np.int8)
    return codes, np.broadcast_to(item.scale, (count,)).astype(np.float64), int(zeros[0])


def _bias(loader: Loader, node: TfNode, index: int, unit: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Bias in units of input scale * weight scale of each channel."""
    item = loader.optional(node, index)
    if item is None:
        return np.zeros(unit.size, dtype=np.int64)
    label, data = loader.label(node), loader.constant(node, index).reshape(-1)
    if item.dtype not in ("int32", "int64") or data.size != unit.size:
        raise ModelError(f"{label}: bias '{item.name}' is {item.dtype} {item.shape} for {unit.size} channels")
    codes = data.astype(np.int64)
    scale = np.broadcast_to(item.scale, unit.shape) if item.scale.size in (1, unit.size) else unit
    if np.all(np.abs(scale / unit - 1) < BIAS_TOLERANCE):
        return codes
    fresh = np.rint(codes * (scale / unit))
    if not (np.abs(fresh) < 2**31).all():
        raise ModelError(f"{label}: bias '{item.name}' passes 32 bits of the accumulator's unit")
    return fresh.astype(np.int64)


def _window(node: TfNode, kernel: tuple[int, int], x: Tensor) -> Window:
    """Strides and dilations of a node, and its padding: SAME puts the odd row or column last."""
    get = node.options.get
    strides = int(get("StrideH", 1)), int(get("StrideW", 1))
    dilations = int(get("DilationHFactor", 1)), int(get("DilationWFactor", 1))
    pads = [0, 0, 0, 0]
    if get("Padding", 1) == 0:
        for axis in range(2):
            size, step = x.cube[1 + axis], strides[axis]
            reach = (kernel[axis] - 1) * dilations[axis] + 1
            total = max((-(-size // step) - 1) * step + reach - size, 0)
            pads[axis], pads[axis + 2] = total // 2, total - total // 2
    return Window(kernel, strides, (pads[0], pads[1], pads[2], pads[3]), dilations)


def conv(loader: Loader, node: TfNode) -> None:
    """CONV_2D, grouped where the weights have fewer channels than the input."""
    x, label = map_input(loader, node), loader.label(node)
    codes, scales, zero = _weights(loader, node, 1, 0)
    if codes.ndim != 4 or x.cube[0] % codes.shape[3] or codes.shape[0] % (x.cube[0] // codes.shape[3]):
        raise ModelError(f"{label}: weights {codes.shape} do not fit {x.cube[0]} channels")
    weights = np.ascontiguousarray(codes.transpose(0, 3, 1, 2))
    _append_conv(loader, node, x, weights, (scales, zero), x.cube[0] // codes.shape[3])


def depthwise(loader: Loader, node: TfNode) -> None:
    """DEPTHWISE_CONV_2D, any multiplier."""
    x, label = map_input(loader, node), loader.label(node)
    codes, scales, zero = _weights(loader, node, 1, 3)
    channels = x.cube[0]
    if codes.ndim != 4 or codes.shape[0] != 1 or codes.shape[3] % channels:
        raise ModelError(f"{label}: weights {codes.shape} do not fit {channels} channels")
    weights = np.ascontiguousarray(codes.transpose(3, 0, 1, 2))
    _append_conv(loader, node, x, weights, (scales, zero), channels)


def _append_conv(
    loader: Loader,
    node: TfNode,
    x: Tensor,
    weights: np.ndarray,
    quantisation: tuple[np.ndarray, int],
    groups: int,
) -> None:
    """A convolution with weights (OC, IC/groups, kh, kw) and their scales and zero point."""
    scales, zero = quantisation
    window = _window(node, (weights.shape[2], weights.shape[3]), x)
    y = loader.output(node)
    sized(loader, node, (weights.shape[0], *window.output(*x.cube[1:])), y)
    bias = _bias(loader, node, 2, x.scale * scales)
    loader.graph.ops.append(
        Conv(
            loader.name(node),
            (x.name,),
            y.name,
            weights,
            scales,
            zero,
            bias,
            window,
            groups,
            clamp=clamp_of(node),
        )
    )


def transpose_conv(loader: Loader, node: TfNode) -> None:
    """TRANSPOSE_CONV: output shape, weights (OC, kh, kw, IC), input, bias."""
    x, label = map_input(loader, node, 2), loader.label(node)
    codes, scales, zero = _weights(loader, node, 1, 0)
    if codes.ndim != 4 or codes.shape[3] != x.cube[0]:
        raise ModelError(f"{label}: weights {codes.shape} do not fit {x.cube[0]} channels")
    y = loader.output(node)
    strides = int(node.options["StrideH"]), int(node.options["StrideW"])
    pads = [0, 0, 0, 0]
    for axis in range(2):
        kernel, size, out = codes.shape[1 + axis], x.cube[1 + axis], y.cube[1 + axis]
        full = (size - 1) * strides[axis] + kernel
        cut = max(full - out, 0) // 2 if node.options["Padding"] == 0 else 0
        pads[axis], pads[axis + 2] = kernel - 1 - cut, out - full + cut + kernel - 1
        if min(pads[axis], pads[axis + 2]) < 0:
            raise ModelError(f"{label}: '{x.name}' {x.cube} to '{y.name}' {y.cube} leaves out whole pixels")
    weights = np.ascontiguousarray(codes.transpose(0, 3, 1, 2)[:, :, ::-1, ::-1])
    window = Window((codes.shape[1], codes.shape[2]), pads=(pads[0], pads[1], pads[2], pads[3]))
    sized(loader, node, (codes.shape[0], *y.cube[1:]), y)
    loader.graph.ops.append(
        Conv(
            loader.name(node),
            (x.name,),
            y.name,
            weights,
            scales,
            zero,
            _bias(loader, node, 3, x.scale * scales),
            window,
            source="ConvTranspose",
            insert=strides,
            clamp=clamp_of(node),
        )
    )


def fully_connected(loader: Loader, node: TfNode) -> None:
    """FULLY_CONNECTED: a 1x1 convolution, or one over the whole map."""
    x, label = loader.activation(node), loader.label(node)
    codes, scales, zero = _weights(loader, node, 1, 0)
    if codes.ndim != 2 or node.options["WeightsFormat"]:
        raise ModelError(f"{label}: weights {codes.shape}, format {node.options['WeightsFormat']}")
    count, depth = codes.shape
    y = loader.output(node)
    if depth == x.elements and max(x.cube[1:]) > MAX_WINDOW:
        flat = replace(x, name=f"{y.name}@flat", shape=(1, depth), cube=(depth, 1, 1), channels_last=False)
        loader.graph.tensors[flat.name] = flat
        loader.rearrange(loader.name(node), x, flat, flat.shape)
        x = flat
    channels, height, width = x.cube
    if depth == channels:
        weights, window, out = codes.reshape(count, depth, 1, 1), Window((1, 1)), (height, width)
    elif depth == x.elements:
        weights = codes.reshape(count, height, width, channels).transpose(0, 3, 1, 2)
        window, out = Window((height, width)), (1, 1)
    else:
        raise ModelError(f"{label}: input '{x.name}' {x.shape} times depth {depth}")
    if y.elements != count * math.prod(out) or y.cube[0] != count:
        raise ModelError(f"{label}: output '{y.name}' {y.shape} of {count} units")
    bias = _bias(loader, node, 2, x.scale * scales)
    target = y.name
    if y.cube != (count, *out):  # the rows of a matrix in another shape: the same bytes
        target = f"{y.name}@rows"
        loader.graph.tensors[target] = Tensor(
            target, (math.prod(out), count), y.scale, y.zero_point, (count, *out), y.unsigned, True
        )
        loader.graph.aliases[y.name] = target
    loader.graph.ops.append(
        Conv(
            loader.name(node),
            (x.name,),
            target,
            np.ascontiguousarray(weights),
            scales,
            zero,
            bias,
            window,
            source="FullyConnected",
            clamp=clamp_of(node),
        )
    )


def _constant_operand(loader: Loader, node: TfNode, item: TfTensor, like: Tensor) -> str:
    """Add a constant operand to the graph, one value a channel where that is all it has."""
    label = loader.label(node)
    scale, zero, unsigned = coding(item, label)
    assert item.data is not None
    codes = (item.data.astype(np.int16) - (128 if unsigned else 0)).astype(np.int8)
    channels, height, width = like.cube
    try:
        if codes.size == 1 or codes.shape[-1] == codes.size:
            cube = np.broadcast_to(codes.reshape(-1), (channels,)).reshape(channels, 1, 1)
        else:
            spread = np.broadcast_to(codes, _last(like))
            cube = spread.reshape(height, width, channels).transpose(2, 0, 1)
    except ValueError as error:
        raise ModelError(f"{label}: '{item.name}' {item.shape} does not fit '{like.name}'") from error
    key = f"{item.name}@{loader.name(node)}"
    cube = np.ascontiguousarray(cube)
    loader.graph.constants[key] = cube
    loader.graph.tensors[key] = Tensor(key, (1, *cube.shape), scale, zero, cube.shape, unsigned)
    return key


def _last(x: Tensor) -> tuple[int, ...]:
    """Shape of the file for a tensor."""
    return tuple(x.shape[axis] for axis in (0, 2, 3, 1)) if len(x.shape) == 4 else x.shape


def binary(method: BinaryMethod) -> Callable[[Loader, TfNode], None]:
    """ADD, SUB, MUL, MAXIMUM, MINIMUM."""

    def build(loader: Loader, node: TfNode) -> None:
        label = loader.label(node)
        items = [loader.item(node, index) for index in range(2)]
        y = loader.output(node)
        swap = items[0].data is not None or math.prod(items[0].shape) < math.prod(items[1].shape)
        if swap and method == "sub":
            raise ModelError(f"{label}: '{items[0].name}' is smaller than what is taken off it")
        if swap:
            items.reverse()
        if items[0].data is not None or items[0].name not in loader.graph.tensors:
            raise ModelError(f"{label}: '{items[0].name}' is no quantised activation")
        a = loader.graph.tensors[items[0].name]
        if items[1].data is not None:
            second = _constant_operand(loader, node, items[1], a)
        elif items[1].name in loader.graph.tensors:
            second = items[1].name
        else:
            raise ModelError(f"{label}: '{items[1].name}' is {items[1].dtype}, not a quantised activation")
        sized(loader, node, a.cube, y)
        loader.graph.ops.append(
            Binary(loader.name(node), (a.name, second), y.name, method, clamp=clamp_of(node))
        )

    return build


def pool(method: Any) -> Callable[[Loader, TfNode], None]:
    """MAX_POOL_2D and AVERAGE_POOL_2D (of the real taps alone)."""

    def build(loader: Loader, node: TfNode) -> None:
        x = map_input(loader, node)
        kernel = int(node.options["FilterHeight"]), int(node.options["FilterWidth"])
        window = _window(node, kernel, x)
        y = loader.output(node)
        sized(loader, node, (x.cube[0], *window.output(*x.cube[1:])), y)
        whole = kernel == x.cube[1:] and window.pads == (0, 0, 0, 0)
        loader.graph.ops.append(
            Pool(loader.name(node), (x.name,), y.name, method, window, False, whole, clamp=clamp_of(node))
        )

    return build


def mean(loader: Loader, node: TfNode) -> None:
    """MEAN over rows and columns."""
    x = map_input(loader, node)
    axes = sorted(int(a) % 4 for a in loader.constant(node, 1).reshape(-1))
    y = loader.output(node)
    if axes != [1, 2]:
        raise ModelError(f"{loader.label(node)}: a mean over the axes {axes}; only [1, 2] is supported")
    sized(loader, node, (x.cube[0], 1, 1), y)
    window = Window((x.cube[1], x.cube[2]))
    loader.graph.ops.append(
        Pool(loader.name(node), (x.name,), y.name, "average", window, False, True, clamp=clamp_of(node))
    )


def softmax(loader: Loader, node: TfNode) -> None:
    """SOFTMAX along the last axis, on the host."""
    x, y = loader.activation(node), loader.output(node)
    attributes = {"axis": 1 if len(x.shape) == 4 else -1, "beta": float(node.options["Beta"])}
    loader.graph.ops.append(
        OnHost(loader.name(node), (x.name,), y.name, function="Softmax", attributes=attributes)
    )


def rescale(kind: str, clamp: Clamp) -> Callable[[Loader, TfNode], None]:
    """RELU and its like."""

    def build(loader: Loader, node: TfNode) -> None:
        x, y = loader.activation(node), loader.output(node)
        sized(loader, node, x.cube, y)
        loader.graph.ops.append(Rescale(loader.name(node), (x.name,), y.name, kind, clamp=clamp))

    return build


def function(name: str) -> Callable[[Loader, TfNode], None]:
    """A function of one number, as a table."""

    def build(loader: Loader, node: TfNode) -> None:
        x, y = loader.activation(node), loader.output(node)
        sized(loader, node, x.cube, y)
        loader.graph.ops.append(lookup(loader.name(node), name, x, y))

    return build


def slope(loader: Loader, node: TfNode) -> None:
    """LEAKY_RELU and PRELU."""
    x, y = loader.activation(node), loader.output(node)
    sized(loader, node, x.cube, y)
    if node.op == "LEAKY_RELU":
        slopes = np.array([float(node.options["Alpha"])])
    else:
        item = loader.item(node, 1)
        scale, zero, unsigned = coding(item, loader.label(node))
        codes = loader.constant(node, 1).astype(np.int64).reshape(-1) - (128 if unsigned else 0)
        slopes = (codes - zero) * scale
        if slopes.size not in (1, x.cube[0]) or item.shape[-1] != slopes.size:
            raise ModelError(f"{loader.label(node)}: slopes '{item.name}' {item.shape} are not per channel")
    if not np.isfinite(slopes).all():
        raise ModelError(f"{loader.label(node)}: slopes are not all finite")
    loader.graph.ops.append(Slope(loader.name(node), (x.name,), y.name, slopes))


BUILDERS: dict[str, Callable[[Loader, TfNode], None]] = {
    "CONV_2D": conv,
    "DEPTHWISE_CONV_2D": depthwise,
    "TRANSPOSE_CONV": transpose_conv,
    "FULLY_CONNECTED": fully_connected,
    "ADD": binary("add"),
    "SUB": binary("sub"),
    "MUL": binary("mul"),
    "MAXIMUM": binary("max"),
    "MINIMUM": binary("min"),
    "MAX_POOL_2D": pool("max"),
    "AVERAGE_POOL_2D": pool("average"),
    "MEAN": mean,
    "SOFTMAX": softmax,
    "PAD": pad,
    "PADV2": pad,
    "CONCATENATION": concat,
    "SPLIT": split,
    "SPLIT_V": split,
    "SLICE": slice_,
    "STRIDED_SLICE": slice_,
    "TRANSPOSE": transpose,
    "RESIZE_NEAREST_NEIGHBOR": resize,
    "RELU": rescale("Relu", Clamp(0.0)),
    "RELU6": rescale("Relu6", Clamp(0.0, 6.0)),
    "RELU_N1_TO_1": rescale("Clip", Clamp(-1.0, 1.0)),
    "LEAKY_RELU": slope,
    "PRELU": slope,
    "LOGISTIC": function("Sigmoid"),
    "TANH": function("Tanh"),
    "HARD_SWISH": function("HardSwish"),
    "RESHAPE": Loader.reshape,
    "SQUEEZE": Loader.reshape,
    "EXPAND_DIMS": Loader.reshape,
    "QUANTIZE": Loader.quantize,
    "DEQUANTIZE": Loader.dequantize,
}
