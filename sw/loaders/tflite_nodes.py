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
    Concat,
    Conv,
    ModelError,
    OnHost,
    Pad,
    Pool,
    Rescale,
    Slice,
    Slope,
    Tensor,
    Upsample,
    Window,
)
from sw.loaders.functions import lookup
from sw.loaders.tflite_file import TfNode, TfTensor
from sw.loaders.tflite_graph import MAX_WINDOW, Loader, clamp_of, coding, natural

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


def _sized(loader: Loader, node: TfNode, cube: tuple[int, int, int], y: Tensor) -> None:
    if y.cube != cube or min(cube) < 1:
        c, h, w = cube
        raise ModelError(f"{loader.label(node)}: output '{y.name}' {y.cube} should be {(c, h, w)} (C, H, W)")


def _map(loader: Loader, node: TfNode, index: int = 0) -> Tensor:
    """Input `index`, which must have the shape (1, H, W, C)."""
    x = loader.activation(node, index)
    if len(x.shape) != 4:
        raise ModelError(f"{loader.label(node)}: input '{x.name}' {x.shape} is not (1, H, W, C)")
    return x


def conv(loader: Loader, node: TfNode) -> None:
    """CONV_2D, grouped where the weights have fewer channels than the input."""
    x, label = _map(loader, node), loader.label(node)
    codes, scales, zero = _weights(loader, node, 1, 0)
    if codes.ndim != 4 or x.cube[0] % codes.shape[3] or codes.shape[0] % (x.cube[0] // codes.shape[3]):
        raise ModelError(f"{label}: weights {codes.shape} do not fit {x.cube[0]} channels")
    weights = np.ascontiguousarray(codes.transpose(0, 3, 1, 2))
    window = _window(node, (codes.shape[1], codes.shape[2]), x)
    y = loader.output(node)
    _sized(loader, node, (codes.shape[0], *window.output(*x.cube[1:])), y)
    bias = _bias(loader, node, 2, x.scale * scales)
    groups = x.cube[0] // codes.shape[3]
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


def depthwise(loader: Loader, node: TfNode) -> None:
    """DEPTHWISE_CONV_2D, any multiplier."""
    x, label = _map(loader, node), loader.label(node)
    codes, scales, zero = _weights(loader, node, 1, 3)
    channels = x.cube[0]
    if codes.ndim != 4 or codes.shape[0] != 1 or codes.shape[3] % channels:
        raise ModelError(f"{label}: weights {codes.shape} do not fit {channels} channels")
    weights = np.ascontiguousarray(codes.transpose(3, 0, 1, 2))
    window = _window(node, (codes.shape[1], codes.shape[2]), x)
    y = loader.output(node)
    _sized(loader, node, (codes.shape[3], *window.output(*x.cube[1:])), y)
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
            channels,
            clamp=clamp_of(node),
        )
    )


def transpose_conv(loader: Loader, node: TfNode) -> None:
    """TRANSPOSE_CONV: output shape, weights (OC, kh, kw, IC), input, bias."""
    x, label = _map(loader, node, 2), loader.label(node)
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
    _sized(loader, node, (codes.shape[0], *y.cube[1:]), y)
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
        _sized(loader, node, a.cube, y)
        loader.graph.ops.append(
            Binary(loader.name(node), (a.name, second), y.name, method, clamp=clamp_of(node))
        )

    return build


def pool(method: Any) -> Callable[[Loader, TfNode], None]:
    """MAX_POOL_2D and AVERAGE_POOL_2D (of the real taps alone)."""

    def build(loader: Loader, node: TfNode) -> None:
        x = _map(loader, node)
        kernel = int(node.options["FilterHeight"]), int(node.options["FilterWidth"])
        window = _window(node, kernel, x)
        y = loader.output(node)
        _sized(loader, node, (x.cube[0], *window.output(*x.cube[1:])), y)
        whole = kernel == x.cube[1:] and window.pads == (0, 0, 0, 0)
        loader.graph.ops.append(
            Pool(loader.name(node), (x.name,), y.name, method, window, False, whole, clamp=clamp_of(node))
        )

    return build


def mean(loader: Loader, node: TfNode) -> None:
    """MEAN over rows and columns."""
    x = _map(loader, node)
    axes = sorted(int(a) % 4 for a in loader.constant(node, 1).reshape(-1))
    y = loader.output(node)
    if axes != [1, 2]:
        raise ModelError(f"{loader.label(node)}: a mean over the axes {axes}; only [1, 2] is supported")
    _sized(loader, node, (x.cube[0], 1, 1), y)
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


def pad(loader: Loader, node: TfNode) -> None:
    """PAD and PADV2 of (1, H, W, C)."""
    x, label = _map(loader, node), loader.label(node)
    edges = loader.constant(node, 1).astype(np.int64)
    if edges.shape != (4, 2) or edges.min() < 0 or edges[0].any():
        raise ModelError(f"{label}: paddings {edges.tolist()} are not supported")
    y = loader.output(node)
    pads = int(edges[1, 0]), int(edges[2, 0]), int(edges[1, 1]), int(edges[2, 1])
    value = x.zero_point
    if (item := loader.optional(node, 2)) is not None:
        value = int(loader.constant(node, 2).reshape(-1)[0]) - (128 if item.dtype == "uint8" else 0)
    if not edges[3].any() and value == x.zero_point:
        loader.graph.ops.append(Pad(loader.name(node), (x.name,), y.name, pads))
        return
    attributes = {"pads": pads, "channels": (int(edges[3, 0]), int(edges[3, 1])), "value": value}
    loader.graph.ops.append(
        OnHost(loader.name(node), (x.name,), y.name, function="Pad", attributes=attributes)
    )


def _axis(shape: tuple[int, ...], axis: int, label: str) -> int:
    """Axis of the cube (0 channels, 1 rows, 2 columns) for one of a shape of the file."""
    axis %= max(len(shape), 1)
    places = {4: {1: 1, 2: 2, 3: 0}, 3: {1: 1, 2: 0}, 2: {0: 1, 1: 0}, 1: {0: 0}}.get(len(shape), {})
    if axis not in places:
        raise ModelError(f"{label}: axis {axis} of {shape} is not supported")
    return places[axis]


def concat(loader: Loader, node: TfNode) -> None:
    """CONCATENATION of activations."""
    label = loader.label(node)
    parts = [loader.activation(node, index) for index in range(len(node.inputs))]
    y = loader.output(node)
    axis = _axis(loader.item(node, 0).shape, int(node.options["Axis"]), label)
    sizes = list(parts[0].cube)
    sizes[axis] = sum(part.cube[axis] for part in parts)
    _sized(loader, node, (sizes[0], sizes[1], sizes[2]), y)
    for part in parts:
        if any(part.cube[n] != y.cube[n] for n in range(3) if n != axis):
            raise ModelError(f"{label}: '{part.name}' {part.shape} does not fit the others")
    if clamp_of(node) != Clamp():
        raise ModelError(f"{label}: a fused activation is not supported here")
    loader.graph.ops.append(Concat(loader.name(node), tuple(p.name for p in parts), y.name, axis))


def _part(loader: Loader, node: TfNode, x: Tensor, y: Tensor, begin: list[int], name: str) -> None:
    if any(b < 0 or b + n > size for b, n, size in zip(begin, y.cube, x.cube, strict=True)):
        raise ModelError(f"{loader.label(node)}: '{y.name}' reaches past '{x.name}' {x.shape}")
    loader.graph.ops.append(Slice(name, (x.name,), y.name, (begin[0], begin[1], begin[2])))


def split(loader: Loader, node: TfNode) -> None:
    """SPLIT (axis, x) and SPLIT_V (x, sizes, axis)."""
    source, axis_at = (1, 0) if node.op == "SPLIT" else (0, 2)
    x = loader.activation(node, source)
    shape = loader.item(node, source).shape
    axis = _axis(shape, int(loader.constant(node, axis_at).reshape(-1)[0]), loader.label(node))
    at = 0
    for index in range(len(node.outputs)):
        y = loader.output(node, index)
        begin = [0, 0, 0]
        begin[axis] = at
        _part(loader, node, x, y, begin, y.name)
        at += y.cube[axis]
    if at != x.cube[axis]:
        raise ModelError(f"{loader.label(node)}: the parts of '{x.name}' {x.shape} do not add up")


def slice_(loader: Loader, node: TfNode) -> None:
    """SLICE and STRIDED_SLICE without masks that change the number of dimensions."""
    x, label = loader.activation(node), loader.label(node)
    shape = loader.item(node, 0).shape
    y = loader.output(node)
    starts = [int(n) for n in loader.constant(node, 1).reshape(-1)]
    strides = [1] * len(shape)
    get = node.options.get
    if node.op == "STRIDED_SLICE":
        if get("EllipsisMask") or get("NewAxisMask") or get("ShrinkAxisMask"):
            raise ModelError(f"{label}: masks that change the dimensions are not supported")
        strides = [int(n) for n in loader.constant(node, 3).reshape(-1)]
        for axis in range(len(starts)):
            if get("BeginMask", 0) >> axis & 1:
                starts[axis] = 0
    if len(starts) != len(shape) or len(strides) != len(shape) or min(strides) < 1:
        raise ModelError(f"{label}: begin {starts}, strides {strides} for {shape}")
    begin, steps = [0, 0, 0], [1, 1, 1]
    for axis, (start, step) in enumerate(zip(starts, strides, strict=True)):
        start = start + shape[axis] if start < 0 else start
        if shape[axis] == 1 and start == 0:
            continue
        place = _axis(shape, axis, label)
        begin[place], steps[place] = start, step
    if steps == [1, 1, 1]:
        _part(loader, node, x, y, begin, loader.name(node))
        return
    last = [b + (n - 1) * s for b, n, s in zip(begin, y.cube, steps, strict=True)]
    if min(begin) < 0 or any(end >= size for end, size in zip(last, x.cube, strict=True)):
        raise ModelError(f"{label}: '{y.name}' reaches past '{x.name}' {x.shape}")
    attributes = {"begin": tuple(begin), "strides": tuple(steps)}
    loader.graph.ops.append(
        OnHost(loader.name(node), (x.name,), y.name, function="Slice", attributes=attributes)
    )


def transpose(loader: Loader, node: TfNode) -> None:
    """TRANSPOSE, on the host."""
    x, item = loader.activation(node), loader.item(node, 0)
    order = [int(n) for n in loader.constant(node, 1).reshape(-1)]
    y = loader.output(node)
    shape = tuple(item.shape[n] for n in order) if sorted(order) == list(range(len(item.shape))) else ()
    if not shape or natural(shape, loader.label(node)) != y.cube:
        raise ModelError(f"{loader.label(node)}: order {order} of {item.shape} does not give '{y.name}'")
    last = (0, 2, 3, 1)
    attributes: dict[str, Any] = {
        "before": tuple(last[n] for n in order) if len(order) == 4 else tuple(order),
        "shape": shape,
    }
    if len(order) == 4:
        attributes["after"] = (0, 3, 1, 2)
    loader.graph.ops.append(
        OnHost(loader.name(node), (x.name,), y.name, function="Rearrange", attributes=attributes)
    )


def resize(loader: Loader, node: TfNode) -> None:
    """RESIZE_NEAREST_NEIGHBOR: whole factors on the NPU, others on the host."""
    x, y = _map(loader, node), loader.output(node)
    if y.cube[0] != x.cube[0]:
        raise ModelError(f"{loader.label(node)}: '{y.name}' {y.shape} has other channels than the input")
    picks: list[tuple[int, ...]] = []
    for axis in (1, 2):
        size, out = x.cube[axis], y.cube[axis]
        corners = node.options["AlignCorners"] and out > 1
        ratio = (size - 1) / (out - 1) if corners else size / out
        half = 0.5 if node.options["HalfPixelCenters"] else 0.0
        spots = (np.arange(out) + half) * ratio
        rounded = np.floor(spots + 0.5) if corners else np.floor(spots)
        picks.append(tuple(int(n) for n in rounded.clip(0, size - 1)))
    loader.graph.ops.append(nearest(loader.name(node), x, y, picks))


def nearest(name: str, x: Tensor, y: Tensor, picks: list[tuple[int, ...]]) -> Upsample | OnHost:
    """The operation that takes row and column `picks` of x."""
    factors = y.cube[1] // x.cube[1], y.cube[2] // x.cube[2]
    plain = [tuple(np.arange(size).repeat(f).tolist()) for size, f in zip(x.cube[1:], factors, strict=True)]
    if picks == plain:
        return Upsample(name, (x.name,), y.name, factors)
    attributes = {"rows": picks[0], "columns": picks[1]}
    return OnHost(name, (x.name,), y.name, function="Pick", attributes=attributes)


def rescale(kind: str, clamp: Clamp) -> Callable[[Loader, TfNode], None]:
    """RELU and its like."""

    def build(loader: Loader, node: TfNode) -> None:
        x, y = loader.activation(node), loader.output(node)
        _sized(loader, node, x.cube, y)
        loader.graph.ops.append(Rescale(loader.name(node), (x.name,), y.name, kind, clamp=clamp))

    return build


def function(name: str) -> Callable[[Loader, TfNode], None]:
    """A function of one number, as a table."""

    def build(loader: Loader, node: TfNode) -> None:
        x, y = loader.activation(node), loader.output(node)
        _sized(loader, node, x.cube, y)
        loader.graph.ops.append(lookup(loader.name(node), name, x, y))

    return build


def slope(loader: Loader, node: TfNode) -> None:
    """LEAKY_RELU and PRELU."""
    x, y = loader.activation(node), loader.output(node)
    _sized(loader, node, x.cube, y)
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
