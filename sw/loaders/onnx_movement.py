"""ONNX nodes that only move data: their results keep the input's quantisation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from sw.compiler.graph import Clamp, Concat, ModelError, OnHost, Op, Pad, Slice, Tensor, Upsample
from sw.loaders.nodes import NodeContext
from sw.loaders.values import Cube, Pending, Real, Shape, Value, natural_cube


def _made(context: NodeContext, index: int, shape: Shape, cube: Cube | None = None) -> Tensor:
    """A tensor for output `index` in the quantisation of input 0."""
    name = context.node.output[index]
    made = replace(
        context.tensor(0),
        name=name,
        shape=shape,
        cube=cube or natural_cube(shape, f"{context.label}: '{name}'"),
        channels_last=False,
    )
    context.graph.tensors[name] = made
    return made


def _real(tensor: Tensor) -> Real:
    return Real(tensor.name, tensor.shape, tensor.cube)


def cube_axis(shape: Shape, axis: int, label: str) -> int:
    """Axis of the cube (0 channels, 1 rows, 2 columns) for an axis of a shape.

    Raises
    ------
    ModelError
        for the batch.
    """
    axis = axis + len(shape) if axis < 0 else axis
    places = {4: {1: 0, 2: 1, 3: 2}, 3: {1: 1, 2: 0}, 2: {0: 1, 1: 0}, 1: {0: 0}}.get(len(shape), {})
    if axis not in places:
        raise ModelError(f"{label}: axis {axis} of {shape} is not supported")
    return places[axis]


def transpose(context: NodeContext) -> Real:
    """Transpose, on the host."""
    value = context.real(0)
    order = tuple(int(n) for n in context.attributes.get("perm", range(len(value.shape))[::-1]))
    if sorted(order) != list(range(len(value.shape))):
        raise ModelError(f"{context.label}: perm {order} for {value.shape}")
    x = context.view(0)
    y = _made(context, 0, tuple(value.shape[n] for n in order))
    attributes = {"before": order, "shape": y.shape}
    context.graph.ops.append(OnHost(context.name, (x,), y.name, function="Rearrange", attributes=attributes))
    return _real(y)


def moving_reshape(context: NodeContext, shape: Shape) -> Real:
    """A reshape after which bytes lie elsewhere, on the host."""
    x = context.view(0)
    y = _made(context, 0, shape)
    context.graph.ops.append(
        OnHost(context.name, (x,), y.name, function="Rearrange", attributes={"shape": shape})
    )
    return _real(y)


def concat(context: NodeContext) -> Pending:
    """Concat of activations."""
    parts = [context.real(index) for index in range(len(context.values))]
    shape = parts[0].shape
    axis = int(context.attributes.get("axis", 0)) % len(shape)
    place = cube_axis(shape, axis, context.label)
    names = []
    for index, part in enumerate(parts):
        other = [n for at, n in enumerate(part.shape) if at != axis]
        if len(part.shape) != len(shape) or other != [n for at, n in enumerate(shape) if at != axis]:
            raise ModelError(f"{context.label}: '{context.names[index]}' {part.shape} does not fit {shape}")
        names.append(context.settled(index))
    whole = tuple(sum(p.shape[axis] for p in parts) if at == axis else n for at, n in enumerate(shape))
    cube = natural_cube(whole, context.label)

    def build(output: str, clamp: Clamp) -> Op:
        return Concat(context.name, tuple(names), output, place)

    return Pending(build, whole, cube, clampable=False)


def _part(context: NodeContext, index: int, starts: list[int], steps: list[int], shape: Shape) -> Real:
    """Append a Slice of input 0 with first elements, steps and result shape by the model's axes."""
    value = context.real(0)
    x = context.settled(0)
    y = _made(context, index, shape)
    begin, strides = [0, 0, 0], [1, 1, 1]
    for axis, (start, step) in enumerate(zip(starts, steps, strict=True)):
        if value.shape[axis] != shape[axis] or start or step != 1:
            place = cube_axis(value.shape, axis, context.label)
            begin[place], strides[place] = start, step
    name = context.name if len(context.node.output) == 1 else y.name
    first = (begin[0], begin[1], begin[2])
    if strides == [1, 1, 1]:
        context.graph.ops.append(Slice(name, (x,), y.name, first))
    else:
        attributes: dict[str, Any] = {"begin": first, "strides": tuple(strides)}
        context.graph.ops.append(OnHost(name, (x,), y.name, function="Slice", attributes=attributes))
    return _real(y)


def split(context: NodeContext) -> list[Value]:
    """Split into the sizes given, or evenly."""
    value = context.real(0)
    axis = int(context.attributes.get("axis", 0)) % len(value.shape)
    count = len(context.node.output)
    given = context.constant(1)
    sizes = [int(n) for n in context.attributes.get("split", [])]
    if given is not None:
        sizes = [int(n) for n in np.asarray(given.real()).reshape(-1)]
    if not sizes:
        each = -(-value.shape[axis] // count)
        sizes = [min(each, value.shape[axis] - each * n) for n in range(count)]
    if len(sizes) != count or min(sizes) < 1 or sum(sizes) != value.shape[axis]:
        raise ModelError(f"{context.label}: {sizes} of {value.shape} along axis {axis}")
    made: list[Value] = []
    at = 0
    for index, size in enumerate(sizes):
        shape = tuple(size if n == axis else m for n, m in enumerate(value.shape))
        starts = [at if n == axis else 0 for n in range(len(shape))]
        made.append(_part(context, index, starts, [1] * len(shape), shape))
        at += size
    return made


def slice_(context: NodeContext) -> Real:
    """Slice with constant bounds and positive steps."""
    value = context.real(0)
    lists = []
    for index, name in ((1, "starts"), (2, "ends"), (3, "axes"), (4, "steps")):
        constant = context.constant(index)
        given = context.attributes.get(name) if constant is None else np.asarray(constant.real()).reshape(-1)
        lists.append(None if given is None else [int(n) for n in given])
    starts, ends, axes, steps = lists
    if starts is None or ends is None:
        raise ModelError(f"{context.label}: starts and ends must be constants")
    axes = list(range(len(starts))) if axes is None else [a % len(value.shape) for a in axes]
    steps = [1] * len(starts) if steps is None else steps
    first, step, shape = [0] * len(value.shape), [1] * len(value.shape), list(value.shape)
    if not len(starts) == len(ends) == len(axes) == len(steps) or min(steps, default=1) < 1:
        raise ModelError(f"{context.label}: starts {starts}, ends {ends}, axes {axes}, steps {steps}")
    for start, end, axis, stride in zip(starts, ends, axes, steps, strict=True):
        size = value.shape[axis]
        low, high = (min(max(n + size if n < 0 else n, 0), size) for n in (start, end))
        first[axis], step[axis], shape[axis] = low, stride, -(-(high - low) // stride)
    if min(shape) < 1:
        raise ModelError(f"{context.label}: nothing of {value.shape} is left")
    return _part(context, 0, first, step, tuple(shape))


def pad(context: NodeContext) -> Real:
    """Pad with a constant."""
    value, x = context.real(0), context.tensor(0)
    mode = context.attributes.get("mode", b"constant")
    given = context.constant(1)
    edges = context.attributes.get("pads") if given is None else np.asarray(given.real()).reshape(-1)
    context.map_shape()
    if mode != b"constant" or edges is None or len(edges) != 8:
        raise ModelError(f"{context.label}: mode {mode.decode()}, pads {edges} are not supported")
    before, after = [int(n) for n in edges[:4]], [int(n) for n in edges[4:]]
    if min(*before, *after) < 0 or before[0] or after[0]:
        raise ModelError(f"{context.label}: pads {before + after} are not supported")
    filling = context.constant(2)
    fill = float(context.attributes.get("value", 0.0))
    if filling is not None and filling.array.size:
        fill = float(np.asarray(filling.real()).reshape(-1)[0])
    shape = tuple(n + a + b for n, a, b in zip(value.shape, before, after, strict=True))
    source, y = context.settled(0), _made(context, 0, shape)
    pads = (before[2], before[3], after[2], after[3])
    if fill == 0.0 and not before[1] and not after[1]:
        context.graph.ops.append(Pad(context.name, (source,), y.name, pads))
        return _real(y)
    code = int(np.clip(np.rint(fill / x.scale) + x.zero_point, -128, 127))
    attributes = {"pads": pads, "channels": (before[1], after[1]), "value": code}
    context.graph.ops.append(OnHost(context.name, (source,), y.name, function="Pad", attributes=attributes))
    return _real(y)


def resize(context: NodeContext) -> Real:
    """Resize nearest (also Upsample): whole factors on the NPU, others on the host."""
    channels, *size = context.map_shape()
    get = context.attributes.get
    mode, corner = get("mode", b"nearest"), get("coordinate_transformation_mode", b"half_pixel").decode()
    if mode != b"nearest":
        raise ModelError(f"{context.label}: mode {mode.decode()}; only nearest is supported")
    last = context.constant(len(context.values) - 1)
    old = context.node.op_type == "Upsample"
    by_size = not old and len(context.values) == 4 and last is not None and last.array.size == 4
    factors = last.array if old and last is not None else None
    if not old and not by_size and len(context.values) > 2 and (scales := context.constant(2)) is not None:
        factors = scales.array
    if by_size and last is not None:
        out = [int(n) for n in last.array]
        ratios = [n / m for n, m in zip(out[2:], size, strict=True)]
    elif factors is not None and factors.size == 4:
        ratios = [float(n) for n in factors[2:]]
        out = [
            1,
            channels * round(float(factors[1])),
            *(int(n * f) for n, f in zip(size, ratios, strict=True)),
        ]
    else:
        raise ModelError(f"{context.label}: scales or sizes of four constants are needed")
    if out[1] != channels or min(out) < 1:
        raise ModelError(f"{context.label}: {(1, channels, *size)} to {tuple(out)} is not supported")
    rounding = get("nearest_mode", b"round_prefer_floor").decode()
    if old:
        corner, rounding = "asymmetric", "floor"
    picks = [
        _picks(context, n, m, r, corner, rounding) for n, m, r in zip(size, out[2:], ratios, strict=True)
    ]
    x, y = context.settled(0), _made(context, 0, tuple(out))
    whole = [m // n for n, m in zip(size, out[2:], strict=True)]
    if all(p == tuple(np.arange(n).repeat(f).tolist()) for p, n, f in zip(picks, size, whole, strict=True)):
        context.graph.ops.append(Upsample(context.name, (x,), y.name, (whole[0], whole[1])))
    else:
        attributes = {"rows": picks[0], "columns": picks[1]}
        context.graph.ops.append(OnHost(context.name, (x,), y.name, function="Pick", attributes=attributes))
    return _real(y)


def _picks(
    context: NodeContext, size: int, out: int, ratio: float, corner: str, rounding: str
) -> tuple[int, ...]:
    """Which element each output takes along an axis."""
    at = np.arange(out, dtype=np.float64)
    if corner == "asymmetric":
        spots = at / ratio
    elif corner in ("half_pixel", "pytorch_half_pixel"):
        spots = (at + 0.5) / ratio - 0.5
    elif corner == "align_corners":
        spots = at * ((size - 1) / max(out - 1, 1))
    else:
        raise ModelError(f"{context.label}: coordinate mode {corner} is not supported")
    roundings: dict[str, Callable[[Any], Any]] = {
        "floor": np.floor,
        "ceil": np.ceil,
        "round_prefer_floor": lambda v: np.ceil(v - 0.5),
        "round_prefer_ceil": lambda v: np.floor(v + 0.5),
    }
    if rounding not in roundings:
        raise ModelError(f"{context.label}: nearest_mode {rounding} is not supported")
    return tuple(int(n) for n in roundings[rounding](spots).clip(0, size - 1))
