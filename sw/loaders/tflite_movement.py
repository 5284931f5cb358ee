"""TFLite operators that move data."""

from __future__ import annotations

from typing import Any

import numpy as np

from sw.compiler.graph import Clamp, Concat, ModelError, OnHost, Pad, Slice, Tensor, Upsample
from sw.loaders.tflite_file import TfNode
from sw.loaders.tflite_graph import Loader, clamp_of, map_input, natural, sized


def pad(loader: Loader, node: TfNode) -> None:
    """PAD and PADV2 of (1, H, W, C)."""
    x, label = map_input(loader, node), loader.label(node)
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
    sized(loader, node, (sizes[0], sizes[1], sizes[2]), y)
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
    x, y = map_input(loader, node), loader.output(node)
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
