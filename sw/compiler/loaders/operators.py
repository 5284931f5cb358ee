"""Operators that both file formats have, as operations of the graph.

They are made of a `FileNode` of either format (`rkcosim.compiler.loaders.node`).
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, get_args

import numpy as np

from rkcosim.compiler import graph as g
from rkcosim.compiler.constraints.convolutions import product_depth
from rkcosim.compiler.constraints.elements import (
    divisor_of_bytes,
    divisor_of_floats,
    finite_constant,
    kept_dimensions,
    larger_dividend,
    reduced_axes,
    two_operands,
)
from rkcosim.compiler.constraints.movements import cube_axis, pad_axes
from rkcosim.compiler.graph import BinaryMethod, Clamp, Op, Tensor, Window
from rkcosim.compiler.host_steps import PARAMETERS, REAL_FUNCTIONS
from rkcosim.compiler.loaders.node import (
    Array,
    FileNode,
    Made,
    Pending,
    RepeatMode,
    Shape,
    channel_axis,
    is_line,
    line_cube,
    lookup,
    natural_cube,
)
from rkcosim.compiler.loaders.resizes import add_resize
from rkcosim.compiler.resampling import Resample, Sampling
from rkcosim.compiler.resampling import linear as places_of


def _conv(node: FileNode, source: str = "Conv") -> Pending:
    x = node.map_input()
    k = node.kernel(x)
    bias = node.bias(x.scale * k.scales)
    op = g.Conv(
        node.name, (x.name,), "", k.weights, k.scales, k.zero, bias, k.window, k.groups, source, k.insert
    )
    cube = (len(k.weights), *k.size)
    return Pending(op, node.map_shape(cube), cube)


def _product(node: FileNode, source: str) -> Pending:
    """Product with a matrix (N, K): a 1x1 convolution, or one whose kernel covers the whole map."""
    x, (matrix, scales, zero) = node.matrix()
    count, depth = matrix.shape
    channels, height, width = x.cube
    product_depth(node.label, node.names[0], x.shape, depth, depth in (channels, x.elements))
    kernel, rows = ((1, 1), (height, width)) if depth == channels else ((height, width), (1, 1))
    weights = np.ascontiguousarray(matrix).reshape(count, channels, *kernel)
    bias = node.bias(x.scale * scales)
    op = g.Conv(node.name, (x.name,), "", weights, scales, zero, bias, Window(kernel), source=source)
    return Pending(op, (*x.shape[:-1], count), (count, *rows))


def _binary(node: FileNode, method: BinaryMethod) -> Pending:
    """Element-wise operation on two operands; one may be smaller or constant."""
    two_operands(node.label, len(node.names))
    sizes = [-1 if node.is_constant(index) else math.prod(node.input(index).shape) for index in range(2)]
    if max(sizes) < 0:
        raise node.wrong("both operands are constants")
    first = sizes.index(max(sizes))
    x = node.input(first)
    if node.floats and method in ("add", "sub", "mul") and node.is_constant(1 - first):
        affine = _affine(node, method, x, first)
        if affine is not None:
            return affine
    if first and method in ("sub", "div"):
        method = _turned(node, method)
    return Pending(
        g.Binary(node.name, (x.name, node.operand(1 - first, x)), "", method=method), x.shape, x.cube
    )


def _turned(node: FileNode, method: BinaryMethod) -> BinaryMethod:
    """Return the method with its operands exchanged."""
    if method == "sub":
        return "rsub"
    raise larger_dividend.error(node.label, node.names[0], False)


def _affine(node: FileNode, method: BinaryMethod, x: Tensor, first: int) -> Pending | None:
    """Sum or product with constant real numbers, one or one per channel; None for other constants."""
    constant = node.constant(1 - first)
    if constant is None:
        return None
    numbers = np.asarray(constant.real(), dtype=np.float64)
    finite_constant(node.label, node.names[1 - first], bool(np.isfinite(numbers).all()))
    spread = node.spread(numbers, 1 - first, x)
    if spread.shape != (x.cube[0], 1, 1):
        return None
    values = np.unique(spread) if np.unique(spread).size == 1 else spread.reshape(-1)
    one, zero = np.ones(1), np.zeros(1)
    scale, shift = (values, zero) if method == "mul" else (one, values)
    if method == "sub":
        scale, shift = (-one, values) if first else (one, -values)
    return Pending(g.Affine(node.name, (x.name,), "", scale, shift), x.shape, x.cube)


def _divide(node: FileNode) -> Pending:
    """Division: by a constant as a product with its reciprocals, of floats also by a tensor."""
    if len(node.names) != 2 or not node.is_constant(1):
        if not node.floats:
            raise divisor_of_bytes.error(node.label, node.names[-1], 0)
        return _binary(node, "div")
    x, constant = node.input(0), node.constant(1)
    assert constant is not None
    numbers = np.asarray(constant.real(), dtype=np.float64)
    finite_constant(node.label, node.names[1], bool(np.isfinite(numbers).all() and numbers.all()), True)
    spread = node.spread(1.0 / numbers, 1, x)
    values = np.unique(spread)
    if node.floats:
        fits = spread.shape == (x.cube[0], 1, 1)
        divisor_of_floats(node.label, node.names[1], numbers.shape, fits)
        scale = values if values.size == 1 else spread.reshape(-1)
        return Pending(g.Affine(node.name, (x.name,), "", scale, np.zeros(1)), x.shape, x.cube)
    divisor_of_bytes(node.label, node.names[1], values.size)
    name = node.add_constant(
        *(1, np.full((x.cube[0], 1, 1), 127 * np.sign(values[0]), np.int8), abs(values[0]) / 127)
    )
    return Pending(g.Binary(node.name, (x.name, name), "", method="mul"), x.shape, x.cube)


def _pool(node: FileNode, method: Literal["max", "average"], whole: bool = False) -> Pending:
    x = node.map_input()
    window, size, count_pad, whole = node.pooling(x, method == "average", whole)
    cube = (x.cube[0], *size)
    op = g.Pool(node.name, (x.name,), "", method, window, count_pad, whole)
    return Pending(op, node.map_shape(cube), cube)


def _reduce(node: FileNode, method: Literal["mean", "sum", "max"]) -> Pending:
    """Mean or maximum over rows, columns or both; mean or sum over channels as a product with ones."""
    x = node.input()
    axes, keep = node.reduced(x.shape)
    if axes == {channel_axis(x)} and method != "max":
        if not keep or not (is_line(x) or x.cube == natural_cube(x.shape, node.label)):
            raise kept_dimensions.error(node.label, "channels", False)
        return _channel_sum(node, x, 1.0 if method == "sum" else 1.0 / x.cube[0])
    x = node.map_input()
    fits = bool(axes) and axes <= {2, 3} and method != "sum"
    reduced_axes(node.label, method, tuple(sorted(axes)), x.shape, fits)
    kept_dimensions(node.label, "rows" if axes == {2} else "columns", keep or axes == {2, 3})
    channels, *size = x.cube
    kernel = tuple(n if axis in axes else 1 for axis, n in zip((2, 3), size, strict=True))
    whole = axes == {2, 3}
    cube = (channels, size[0] // kernel[0], size[1] // kernel[1])
    pooled: Literal["max", "average"] = "max" if method == "max" else "average"
    op = g.Pool(node.name, (x.name,), "", pooled, Window((kernel[0], kernel[1])), whole=whole)
    return Pending(op, (1, *cube) if keep else (1, channels), cube)


def _channel_sum(node: FileNode, x: Tensor, factor: float) -> Pending:
    """Sum of the channels times a factor: a convolution with one kernel of ones."""
    shape, axis = list(x.shape), channel_axis(x)
    shape[axis] = 1
    cube = (1, *x.cube[1:])
    weights: Array = np.ones((1, x.cube[0], 1, 1), dtype=np.int8)
    bias: Array = np.zeros(1, dtype=np.int64)
    scales = np.full(1, factor)
    if node.floats:
        weights, bias = weights.astype(np.float32) * np.float32(factor), bias.astype(np.float32)
    op = g.Conv(node.name, (x.name,), "", weights, scales, 0, bias, Window((1, 1)), source=node.kind)
    return Pending(op, tuple(shape), cube)


def _function(node: FileNode, kind: str) -> Pending:
    """Function of one number: a table for bytes, tables and stages of the DPU for floats."""
    x = node.input()
    named = PARAMETERS.get(kind, (("", 0.0), ("", 0.0)))
    alpha, beta = (float(node.attributes.get(name, default)) for name, default in named)
    if kind == "Gelu" and node.approximate():
        alpha = 1.0
    if node.floats:
        return Pending(g.RealFunction(node.name, (x.name,), "", kind, alpha, beta), x.shape, x.cube)

    def table(output: Tensor, clamp: Clamp) -> Op:
        return lookup(node.name, kind, x, output, clamp, alpha, beta)

    return Pending(table, x.shape, x.cube)


def _slope(node: FileNode) -> Pending:
    x = node.input()
    slopes = node.slopes(x)
    if not np.isfinite(slopes).all():
        raise node.wrong("slopes are not all finite")
    return Pending(g.Slope(node.name, (x.name,), "", slopes.reshape(-1)), x.shape, x.cube)


def _cube_axis(node: FileNode, shape: Shape, axis: int, line: bool) -> int:
    """Axis of the cube (0 channels, 1 rows, 2 columns) for an axis of a shape; the batch axis is an error."""
    places = {4: {1: 0, 2: 1, 3: 2}, 3: {1: 1, 2: 0}, 2: {0: 1, 1: 0}, 1: {0: 0}}.get(len(shape), {})
    if line:
        places = {1: 0, 2: 2}
    cube_axis(node.label, axis, shape)
    return places[axis]


def _concat(node: FileNode) -> Pending:
    shapes = [node.input(index).shape for index in range(len(node.names))]
    if not shapes:
        raise node.wrong("it has no inputs")
    whole = list(shapes[0])
    axis = node.axis(shapes[0])
    line = all(is_line(node.input(index)) for index in range(len(shapes)))
    place = _cube_axis(node, shapes[0], axis, line)
    names = []
    for index, shape in enumerate(shapes):
        if len(shape) != len(whole) or (*shape[:axis], *shape[axis + 1 :]) != (
            *whole[:axis],
            *whole[axis + 1 :],
        ):
            raise node.wrong(f"'{node.names[index]}' {shape} does not fit {shapes[0]}")
        names.append(node.view(index) if line else node.settled(index))
    whole[axis] = sum(shape[axis] for shape in shapes)
    cube = line_cube(tuple(whole)) if line else natural_cube(tuple(whole), node.label)
    return Pending(g.Concat(node.name, tuple(names), "", place), tuple(whole), cube, clampable=False)


def _part(
    node: FileNode, source: int, index: int, starts: Sequence[int], steps: Sequence[int], shape: Shape
) -> Tensor:
    """Make output `index`: elements of input `source` from `starts` on, `steps` apart along each axis."""
    x = node.input(source)
    line = is_line(x)
    settled, y = node.view(source) if line else node.settled(source), node.made(index, shape, line)
    begin, strides = [0, 0, 0], [1, 1, 1]
    for axis, (start, step, size, count) in enumerate(zip(starts, steps, x.shape, shape, strict=True)):
        if start < 0 or start + (count - 1) * step >= size:
            raise node.wrong(f"'{y.name}' reaches past '{x.name}' {x.shape}")
        step = step if count > 1 else 1
        if size != count or start or step != 1:
            place = _cube_axis(node, x.shape, axis, line)
            begin[place], strides[place] = start, step
    name = node.name if len(node.outputs) == 1 else y.name
    steps = (strides[0], strides[1], strides[2])
    node.graph.ops.append(g.Slice(name, (settled,), y.name, (begin[0], begin[1], begin[2]), steps))
    return y


def _split(node: FileNode) -> list[Tensor]:
    source, axis, sizes = node.parts()
    shape = node.input(source).shape
    if len(sizes) != len(node.outputs) or min(sizes) < 1 or sum(sizes) != shape[axis]:
        raise node.wrong(f"{sizes} of {shape} along axis {axis}")
    made: list[Tensor] = []
    for index, size in enumerate(sizes):
        starts, part = [0] * len(shape), list(shape)
        starts[axis], part[axis] = sum(sizes[:index]), size
        made.append(_part(node, source, index, starts, [1] * len(shape), tuple(part)))
    return made


def _slice(node: FileNode) -> Tensor:
    return _part(node, 0, 0, *node.bounds(node.input().shape))


def _pad(node: FileNode) -> Tensor:
    x = node.map_input()
    repeated = node.repeated_padding()
    if repeated is not None and any((*repeated[1], *repeated[2])):
        return _repeated(node, x, *repeated)
    before, after, code = node.padding(x)
    if min(*before, *after) < 0 or before[0] or after[0]:
        raise pad_axes.error(node.label, tuple(before), tuple(after))
    channels, rows, columns = (n + a + b for n, a, b in zip(x.cube, before[1:], after[1:], strict=True))
    shape = node.map_shape((channels, rows, columns))
    line = len(shape) == 3
    source, y = x.name if line else node.settled(), node.made(0, shape, line)
    pads = (before[2], before[3], after[2], after[3])
    node.graph.ops.append(g.Pad(node.name, (source,), y.name, pads, (before[1], after[1]), code))
    return y


def _repeated(
    node: FileNode, x: Tensor, mode: RepeatMode, before: Sequence[int], after: Sequence[int]
) -> Tensor:
    """Pad rows and columns with copies of others: a resize that takes these elements."""
    if min(*before, *after) < 0 or any((*before[:2], *after[:2])):
        raise pad_axes.error(node.label, tuple(before), tuple(after))
    picks = []
    for size, *edges in zip(x.cube[1:], before[2:], after[2:], strict=True):
        if mode != "edge" and max(edges) > size - (mode == "reflect"):
            raise node.wrong(f"pads {edges} of {size} elements in mode {mode}")
        picks.append(tuple(np.pad(np.arange(size), tuple(edges), mode=mode).tolist()))
    rows, columns = (Sampling("nearest", picks=axis) for axis in picks)
    shape = node.map_shape((x.cube[0], len(picks[0]), len(picks[1])))
    line = len(shape) == 3
    source, y = x.name if line else node.settled(), node.made(0, shape, line)
    node.graph.ops.append(Resample(node.name, (source,), y.name, rows, columns, "Pad"))
    return y


def _transpose(node: FileNode) -> Tensor:
    attributes, shape = node.order(node.input().shape)
    return node.on_host("Rearrange", node.view(), node.made(0, shape), **attributes)


def _resize(node: FileNode) -> Tensor:
    """Nearest, linear or cubic resize; the lowering decides which factors the NPU has."""
    x = node.map_input()
    linear = node.linear(x)
    if linear is not None:
        form, shape = linear
        source, y = node.settled(), node.made(0, shape)
        pairs = zip(x.cube[1:], y.cube[1:], strict=True)
        rows, columns = (places_of(form, size, out) for size, out in pairs)
        add_resize(node.graph, node.label, g.Bilinear(node.name, (source,), y.name, form), rows, columns)
        return y
    sampled = node.sampled(x)
    if sampled is not None:
        rows, columns, shape = sampled
        source, y = node.settled(), node.made(0, shape)
        op = Resample(node.name, (source,), y.name, rows, columns)
        add_resize(node.graph, node.label, op, rows, columns)
        return y
    picks, shape = node.picks(x)
    source, y = node.settled(), node.made(0, shape)
    factors = y.cube[1] // x.cube[1], y.cube[2] // x.cube[2]
    if picks == [tuple(np.arange(n).repeat(f).tolist()) for n, f in zip(x.cube[1:], factors, strict=True)]:
        node.graph.ops.append(g.Upsample(node.name, (source,), y.name, factors))
        return y
    rows, columns = (Sampling("nearest", picks=axis) for axis in picks)
    node.graph.ops.append(Resample(node.name, (source,), y.name, rows, columns))
    return y


def _blocks(node: FileNode, inward: bool) -> Tensor:
    """DepthToSpace or SpaceToDepth (`inward`)."""
    x = node.map_input()
    size, channel_first = node.blocks()
    channels, height, width = x.cube
    area = size * size
    if size < 1 or (inward and (height % size or width % size)) or (not inward and channels % area):
        raise node.wrong(f"blocks of {size} x {size} do not divide {x.cube}")
    cube = (channels * area, height // size, width // size)
    if not inward:
        cube = (channels // area, height * size, width * size)
    source, y = node.settled(), node.made(0, (1, *cube))
    node.graph.ops.append(g.Blocks(node.name, (source,), y.name, size, inward, channel_first))
    return y


Builder = Callable[[Any], Made]
OPERATORS: dict[str, Builder] = {
    "Conv": _conv,
    "ConvTranspose": partial(_conv, source="ConvTranspose"),
    **{kind: partial(_product, source=kind) for kind in ("Gemm", "MatMul", "FullyConnected")},
    **{method.capitalize(): partial(_binary, method=method) for method in get_args(BinaryMethod)[:5]},
    "MaxPool": partial(_pool, method="max"),
    "AveragePool": partial(_pool, method="average"),
    "GlobalMaxPool": partial(_pool, method="max", whole=True),
    "GlobalAveragePool": partial(_pool, method="average", whole=True),
    **{f"Reduce{how.capitalize()}": partial(_reduce, method=how) for how in ("mean", "sum", "max")},
    "LeakyRelu": _slope,
    "PRelu": _slope,
    **{kind: partial(_function, kind=kind) for kind in REAL_FUNCTIONS if kind not in ("LeakyRelu", "Clip")},
    "Div": _divide,
    "Concat": _concat,
    "Split": _split,
    "Slice": _slice,
    "Pad": _pad,
    "Transpose": _transpose,
    "Resize": _resize,
    "Upsample": _resize,
    "DepthToSpace": partial(_blocks, inward=False),
    "SpaceToDepth": partial(_blocks, inward=True),
}
"""Operators by ONNX's name; "FullyConnected" is TFLite's."""
