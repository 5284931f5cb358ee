"""Operations of NNAPI as operations of the compiler's network."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rkcosim.apis.nnapi import geometry, host_moves
from rkcosim.apis.nnapi.geometry import Geometry
from rkcosim.apis.nnapi.segments import Layout, Segment, View, clamp, natural, signed
from rkcosim.apis.nnapi.values import HOST, Array, OperationCall
from rkcosim.compiler import graph as g
from rkcosim.compiler.graph import Clamp, ModelError, Tensor, Window
from rkcosim.compiler.loaders.node import lookup


@dataclass
class Emission:
    """One operation that is added to a segment.

    Members
    -------
    segment : the segment.
    call : the operation; arrays of operands that are computed in the segment have no content.
    inputs, outputs : indices of its operands.
    name : name of the layer in reports.
    """

    segment: Segment
    call: OperationCall
    inputs: Sequence[int]
    outputs: Sequence[int]
    name: str

    def data(self, place: int, view: View) -> Tensor:
        """Return the tensor of an input."""
        return self.segment.data(self.inputs[place], self.call.value(place), view)

    def natural(self, place: int = 0) -> View:
        """Return the view that an input has, or its natural one."""
        return self.segment.view_of(self.inputs[place], self.call.value(place))

    def plain(self, place: int = 0) -> View:
        """Return the view of an input whose axes are those of the array; raises ModelError if it has none."""
        view = self.natural(place)
        if view.shape != self.call.value(place).shape:
            raise ModelError(f"operand {self.inputs[place]} lies as {view.shape}")
        return view

    def made(self, view: View, place: int = 0, shape: tuple[int, ...] | None = None) -> Tensor:
        """Add the tensor of a result."""
        return self.segment.made(self.outputs[place], self.call.outputs[place], view, shape)

    def add(self, op: g.Op) -> None:
        """Add an operation of the compiler."""
        self.segment.graph.ops.append(op)

    def maps(self, nchw: bool) -> View:
        """Return the view of the first input as maps; raises ModelError for another rank."""
        shape = self.call.value(0).shape
        if len(shape) != 4:
            raise ModelError(f"shape {shape} is no map")
        return View(shape, "nchw" if nchw else "nhwc")


Emitter = Callable[[Emission], None]
EMITTERS: dict[str, Emitter] = {}
"""By the operation's name; other operations have nothing on the NPU."""

DATA: dict[str, int | None] = {}
"""How many of the first inputs are data; None for all but the last one.  The others must be known."""


def emitter(*names: str, data: int | None = 1) -> Callable[[Emitter], Emitter]:
    """Register a function for operations with `data` inputs of data."""

    def register(function: Emitter) -> Emitter:
        for name in names:
            EMITTERS[name], DATA[name] = function, data
        return function

    return register


def map_view(cube: tuple[int, int, int], samples: int, layout: Layout) -> View:
    """Return the view of maps with the cube (C, H, W)."""
    channels, height, width = cube
    if layout == "nchw":
        return View((samples, channels, height, width), layout)
    return View((samples, height, width, channels), layout)


def _weights(e: Emission, order: tuple[int, ...], axis: int) -> tuple[Array, Array, int]:
    """Return the filter in the order OC, IC, kh, kw, its scale for each kernel, and its zero point."""
    value = e.call.value(1)
    count = value.shape[axis]
    kernels = np.ascontiguousarray(value.array.transpose(order))
    if e.segment.real(e.call.value(0).operand):
        return kernels.astype(np.float32), np.ones(count), 0
    unsigned = kernels.dtype == np.uint8
    scales = np.broadcast_to(value.scales.reshape(-1), (count,)).astype(np.float64)
    return signed(kernels), scales.copy(), value.zero - 128 * unsigned


def _bias(e: Emission) -> Array:
    array = e.call.array(2).reshape(-1)
    return array.astype(np.float32) if array.dtype.kind == "f" else array.astype(np.int64)


def _window(found: Geometry) -> Window:
    return Window(found.kernel, found.strides, found.pads, found.dilations)


@emitter("CONV_2D", "GROUPED_CONV_2D", "DEPTHWISE_CONV_2D")
def _conv(e: Emission) -> None:
    found = geometry.convolution(e.call)
    view = e.maps(found.nchw)
    channels, *size = view.cube
    if e.call.kind.name == "DEPTHWISE_CONV_2D":
        weights, scales, zero = _weights(e, (3, 0, 1, 2), 3)
        groups = channels
        if weights.shape[1] != 1 or len(weights) != channels * found.number:
            raise ModelError(f"filter {e.call.value(1).shape} and {channels} channels")
    else:
        weights, scales, zero = _weights(e, (0, 3, 1, 2), 0)
        groups = channels // max(weights.shape[1], 1)
        if groups * weights.shape[1] != channels or len(weights) % groups:
            raise ModelError(f"filter {e.call.value(1).shape} and {channels} channels")
    rows, columns = found.output((size[0], size[1]))
    x = e.data(0, view)
    y = e.made(map_view((len(weights), rows, columns), view.samples, view.layout))
    op = g.Conv(e.name, (x.name,), y.name, weights, scales, zero, _bias(e), _window(found), groups)
    e.add(_clamped(op, found.act))


def _clamped(op: g.Op, act: int) -> g.Op:
    return replace(op, clamp=clamp(act))


@emitter("TRANSPOSE_CONV_2D")
def _transposed(e: Emission) -> None:
    found = geometry.transposed(e.call)
    view = e.maps(found.nchw)
    weights, scales, zero = _weights(e, (0, 3, 1, 2), 0)
    size = found.transposed_output((view.cube[1], view.cube[2]))
    kh, kw = found.kernel
    top, left, bottom, right = found.pads
    pads = (kh - 1 - top, kw - 1 - left, kh - 1 - bottom, kw - 1 - right)
    if min(pads) < 0:
        raise ModelError(f"pads {found.pads} leave out whole pixels of the input")
    turned = np.ascontiguousarray(weights[:, :, ::-1, ::-1])
    x = e.data(0, view)
    y = e.made(map_view((len(weights), *size), view.samples, view.layout))
    window = Window(found.kernel, pads=pads)
    op = g.Conv(
        *(e.name, (x.name,), y.name, turned, scales, zero, _bias(e), window),
        source="ConvTranspose",
        insert=found.strides,
    )
    e.add(_clamped(op, found.act))


@emitter("FULLY_CONNECTED")
def _connected(e: Emission) -> None:
    shape, (units, depth) = e.call.value(0).shape, e.call.value(1).shape
    rows = int(np.prod(shape)) // max(depth, 1)
    weights, scales, zero = _weights(e, (0, 1), 0)
    view, window = e.natural(), Window((1, 1))
    channels, height, width = view.cube
    if view.layout != "rows" and view.samples == rows and e.inputs[0] in e.segment.shapes:
        # Samples of maps: the kernel covers a map.
        window = Window((height, width))
        if view.layout == "nchw":
            kernels = weights.reshape(units, channels, height, width)
        else:
            kernels = weights.reshape(units, height, width, channels).transpose(0, 3, 1, 2)
        made = map_view((units, 1, 1), rows, view.layout)
    else:
        if view.layout != "rows" or view.cube != (depth, rows, 1):
            view = View((rows, depth), "rows")
        kernels, made = weights.reshape(units, depth, 1, 1), View((rows, units), "rows")
    x, y = e.data(0, view), e.made(made, shape=(rows, units))
    kernels = np.ascontiguousarray(kernels)
    op = g.Conv(
        *(e.name, (x.name,), y.name, kernels, scales, zero, _bias(e), window), source="FullyConnected"
    )
    e.add(_clamped(op, e.call.integer(3)))


@emitter("AVERAGE_POOL_2D", "MAX_POOL_2D")
def _pool(e: Emission) -> None:
    found = geometry.pool(e.call)
    view = e.maps(found.nchw)
    channels, height, width = view.cube
    rows, columns = found.output((height, width))
    x = e.data(0, view)
    y = e.made(map_view((channels, rows, columns), view.samples, view.layout))
    whole = found.kernel == (height, width) and found.pads == (0, 0, 0, 0)
    method = "max" if e.call.kind.name == "MAX_POOL_2D" else "average"
    op = g.Pool(e.name, (x.name,), y.name, method, _window(found), whole=whole)  # type: ignore[arg-type]
    e.add(_clamped(op, found.act))


@emitter("MEAN")
def _mean(e: Emission) -> None:
    view = e.maps(False)
    axes = {axis % 4 for axis in e.call.ints(1)}
    if axes != {1, 2}:
        raise ModelError(f"the NPU has no mean over the axes {sorted(axes)}")
    channels, height, width = view.cube
    x = e.data(0, view)
    shape = (view.samples, 1, 1, channels) if e.call.flag(2) else (view.samples, channels)
    y = e.made(View((view.samples, 1, 1, channels), "nhwc"), shape=shape)
    e.add(g.Pool(e.name, (x.name,), y.name, "average", Window((height, width)), whole=True))


BINARY: dict[str, g.BinaryMethod] = {
    "ADD": "add",
    "SUB": "sub",
    "MUL": "mul",
    "DIV": "div",
    "MAXIMUM": "max",
    "MINIMUM": "min",
}


@emitter(*BINARY, data=2)
def _binary(e: Emission) -> None:
    """Combine two tensors; one is first repeated to the shape of the result if that needs it."""
    call, method = e.call, BINARY[e.call.kind.name]
    shapes = [call.value(n).shape for n in (0, 1)]
    shape = np.broadcast_shapes(*shapes)
    act = call.integer(2) if len(call.inputs) > 2 else 0
    if method == "div" and not e.segment.real(call.value(0).operand):
        raise ModelError("bytes cannot be divided")
    inside = [n for n in (0, 1) if e.inputs[n] in e.segment.shapes]
    if any(shapes[n] != shape for n in inside):
        raise ModelError(f"{shapes[0]} and {shapes[1]} are repeated to {shape}")
    view = e.natural(inside[0]) if inside else natural(shape)
    if view.shape != shape and any(s != shape and np.prod(s) != 1 for s in shapes):
        raise ModelError(f"{shapes[0]} and {shapes[1]} in the layout of {view.shape}")
    x, z = (e.data(n, view) for n in (0, 1))
    y = e.made(view, shape=shape)
    e.add(_clamped(g.Binary(e.name, (x.name, z.name), y.name, method=method), act))


@emitter("RELU", "RELU1", "RELU6")
def _relu(e: Emission) -> None:
    view = e.natural()
    x, y = e.data(0, view), e.made(view, shape=e.call.value(0).shape)
    limits = {"RELU": 1, "RELU1": 2, "RELU6": 3}[e.call.kind.name]
    e.add(_clamped(g.Rescale(e.name, (x.name,), y.name, "Relu"), limits))


FUNCTIONS = {
    "LOGISTIC": "Sigmoid",
    "TANH": "Tanh",
    "HARD_SWISH": "HardSwish",
    "ELU": "Elu",
    "ABS": "Abs",
    "NEG": "Neg",
    "FLOOR": "Floor",
    "EXP": "Exp",
}
"""Functions of one number, by the compiler's name."""


@emitter(*FUNCTIONS)
def _function(e: Emission) -> None:
    view, kind = e.natural(), FUNCTIONS[e.call.kind.name]
    alpha = e.call.number(1) if kind == "Elu" else 0.0
    x, y = e.data(0, view), e.made(view, shape=e.call.value(0).shape)
    if x.real:
        e.add(g.RealFunction(e.name, (x.name,), y.name, kind, alpha))
    else:
        e.add(lookup(e.name, kind, x, y, Clamp(), alpha))


@emitter("RESHAPE", "SQUEEZE", "EXPAND_DIMS")
def _reshape(e: Emission) -> None:
    """Give the array of the same cubes another shape: the order of the elements in an array is kept."""
    if e.inputs[0] not in e.segment.shapes:
        raise ModelError("there is nothing to compute")
    (array,) = HOST[e.call.kind](e.call)
    view, made = e.natural(), e.call.outputs[0]
    own = e.call.value(0).operand
    if (made.scale, made.zero_point) != (own.scale, own.zero_point):
        raise ModelError("the result has another quantisation")
    x, y = e.data(0, view), e.made(view, shape=array.shape)
    e.segment.graph.aliases[y.name] = x.name


@emitter("PRELU")
def _prelu(e: Emission) -> None:
    view = e.plain()
    channels, slopes = view.cube[0], e.call.value(1)
    last = view.layout != "nchw" and slopes.shape[-1:] == (slopes.array.size,)
    if not (slopes.array.size == 1 or (last and slopes.array.size == channels)):
        raise ModelError(f"slopes {slopes.shape} are not one, or one for each channel")
    if e.call.value(0).shape != np.broadcast_shapes(e.call.value(0).shape, slopes.shape):
        raise ModelError("the slopes are larger than the tensor")
    x, y = e.data(0, view), e.made(view)
    e.add(g.Slope(e.name, (x.name,), y.name, slopes.real.reshape(-1)))


def _axis(view: View, axis: int) -> int:
    """Return the axis of the cube for an axis of a view's shape; raises ModelError for samples."""
    rank = len(view.shape)
    if view.layout == "rows":
        if axis == rank - 1:
            return 0
        if axis == 0 or all(n == 1 for n in view.shape[:axis]):
            return 1
        raise ModelError(f"axis {axis} of {view.shape} is none of the cube")
    places = {1: 0, 2: 1, 3: 2} if view.layout == "nchw" else {1: 1, 2: 2, 3: 0}
    if axis not in places:
        raise ModelError("an operation along the samples")
    return places[axis]


@emitter("CONCATENATION", data=None)
def _concat(e: Emission) -> None:
    count = len(e.inputs) - 1
    axis = e.call.axis(count, e.call.array(0).ndim)
    views = [e.plain(n) for n in range(count)]
    place = _axis(views[0], axis)
    names = tuple(e.data(n, view).name for n, view in enumerate(views))
    if len({view.layout for view in views}) > 1:
        raise ModelError("operands lie in different layouts")
    shape = list(views[0].shape)
    shape[axis] = sum(view.shape[axis] for view in views)
    y = e.made(View(tuple(shape), views[0].layout))
    e.add(g.Concat(e.name, names, y.name, place))


def _part(e: Emission, place: int, starts: Sequence[int], sizes: Sequence[int], steps: Sequence[int]) -> None:
    """Add a result that is a part of the input: `starts`, `sizes` and `steps` for each axis.

    In rows several axes of the shape lie behind each other in one axis of the cube, so an index of an axis
    counts as many rows as the axes behind it have, without the channels.

    Raises
    ------
    ModelError
        If the part is not a block, or every n-th element, of the cube.
    """
    view = e.plain()
    begin, strides = [0, 0, 0], [1, 1, 1]
    for axis, (start, size, step) in enumerate(zip(starts, sizes, steps, strict=True)):
        step = step if size > 1 else 1
        if (start, size, step) == (0, view.shape[axis], 1):
            continue
        at = _axis(view, axis)
        rows = math.prod(view.shape[axis + 1 : -1]) if view.layout == "rows" and at else 1
        if step != 1 and rows != 1:
            raise ModelError(f"every {step}-th index of axis {axis} of {view.shape} has {rows} rows")
        begin[at], strides[at] = begin[at] + start * rows, step
    x = e.data(0, view)
    y = e.made(View(tuple(sizes), view.layout), place)
    name = e.name if len(e.outputs) == 1 else f"{e.name}.{place}"
    e.add(g.Slice(name, (x.name,), y.name, tuple(begin), tuple(strides)))  # type: ignore[arg-type]


@emitter("SPLIT")
def _split(e: Emission) -> None:
    shape, count = e.call.value(0).shape, e.call.integer(2)
    axis = e.call.axis(1, len(shape))
    if count < 1 or shape[axis] % count or count != len(e.outputs):
        raise ModelError(f"{count} parts of {shape}")
    sizes = [n // count if k == axis else n for k, n in enumerate(shape)]
    for place in range(count):
        starts = [0] * len(shape)
        starts[axis] = place * sizes[axis]
        _part(e, place, starts, sizes, [1] * len(shape))


@emitter("SLICE")
def _slice(e: Emission) -> None:
    shape, starts, sizes = e.call.value(0).shape, e.call.ints(1), e.call.ints(2)
    sizes = [n - start if size == -1 else size for n, start, size in zip(shape, starts, sizes, strict=True)]
    _part(e, 0, starts, sizes, [1] * len(shape))


@emitter("STRIDED_SLICE")
def _strided(e: Emission) -> None:
    shape = e.call.value(0).shape
    begins, ends, steps = (e.call.ints(n) for n in (1, 2, 3))
    masks = [e.call.integer(n) for n in (4, 5, 6)]
    if masks[2] or min(steps) < 1 or len(shape) != len(begins):
        raise ModelError("a slice that is turned or loses an axis")
    starts, sizes = [], []
    for axis, size in enumerate(shape):
        bit = 1 << axis
        first = None if masks[0] & bit else begins[axis]
        last = None if masks[1] & bit else ends[axis]
        picked = range(*slice(first, last, steps[axis]).indices(size))
        if not len(picked):
            raise ModelError("a result without elements")
        starts.append(picked[0])
        sizes.append(len(picked))
    _part(e, 0, starts, sizes, steps)


@emitter("PAD", "PAD_V2")
def _pad(e: Emission) -> None:
    view = e.maps(False)
    pads = e.call.array(1).reshape(-1, 2)
    if pads[0].any() or (pads < 0).any():
        raise ModelError("paddings of the samples")
    x = e.data(0, view)
    y = e.made(View(tuple(n + int(a + b) for n, (a, b) in zip(view.shape, pads, strict=True)), "nhwc"))
    value = None
    if e.call.has(2):
        value = e.call.number(2) - 128 * (not x.real and e.call.array(0).dtype == np.uint8)
    (top, bottom), (left, right), (before, after) = (map(int, pair) for pair in pads[1:])
    e.add(g.Pad(e.name, (x.name,), y.name, (top, left, bottom, right), (before, after), value))


@emitter("RESIZE_NEAREST_NEIGHBOR")
def _nearest(e: Emission) -> None:
    nchw, align, half = (e.call.flag(n) for n in (3, 4, 5))
    view = e.maps(nchw)
    channels, *size = view.cube
    made = host_moves.resized(e.call, size[1], size[0])
    factors = (made[0] // size[0], made[1] // size[1])
    for n, count, factor in zip(size, made, factors, strict=True):
        picks = host_moves.picks(n, count, align, half)
        if factor * n != count or (picks != np.arange(count) // factor).any():
            raise ModelError(f"a resize from {size} to {made} does not repeat pixels")
    x = e.data(0, view)
    y = e.made(map_view((channels, *made), view.samples, view.layout))
    e.add(g.Upsample(e.name, (x.name,), y.name, factors))


@emitter("RESIZE_BILINEAR")
def _bilinear(e: Emission) -> None:
    nchw, align, half = (e.call.flag(n) for n in (3, 4, 5))
    view = e.maps(nchw)
    channels, *size = view.cube
    made = host_moves.resized(e.call, size[1], size[0])
    form: g.BilinearForm = "align_corners" if align else "half_pixel" if half else "asymmetric"
    x = e.data(0, view)
    y = e.made(map_view((channels, *made), view.samples, view.layout))
    e.add(g.Bilinear(e.name, (x.name,), y.name, form))


@emitter("SPACE_TO_DEPTH", "DEPTH_TO_SPACE")
def _blocks(e: Emission) -> None:
    view, size = e.maps(e.call.flag(2)), e.call.integer(1)
    channels, height, width = view.cube
    inward = e.call.kind.name == "SPACE_TO_DEPTH"
    area = size * size
    if size < 1 or (height % size or width % size if inward else channels % area):
        raise ModelError(f"blocks of {size} do not divide {view.cube}")
    cube = (channels * area, height // size, width // size)
    if not inward:
        cube = (channels // area, height * size, width * size)
    x = e.data(0, view)
    y = e.made(map_view(cube, view.samples, view.layout))
    e.add(g.Blocks(e.name, (x.name,), y.name, size, inward))
