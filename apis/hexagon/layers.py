"""Convolutions with the operations behind them as one layer of the NPU, where its result is that of nnlib.

A convolution to int32, a bias, a requantisation to a given range and an activation are one function of the
sum: a staircase with at most 255 steps.  The NPU's layer multiplies the sum twice, with 15 bits each, and
rounds.  Both are compared at every step for all sums that the weights allow; if there are multipliers with
which they are equal everywhere, the layer is used, otherwise the NPU computes the sums only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.apis.hexagon.arithmetic import LEVELS, Range
from rkcosim.apis.hexagon.geometry import Geometry
from rkcosim.apis.hexagon.host_sums import average
from rkcosim.compiler import CompiledModel, ModelError
from rkcosim.compiler import graph as g
from rkcosim.compiler.planner import replan
from rkcosim.compiler.steps import Addend, Converter, ConvStep
from rkcosim.hostops.rounding import Halves, shifted

Array = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]

SIGN = 128
"""Unsigned bytes less this are the NPU's signed ones."""

MULTIPLIER = 2**15 - 1
"""The largest multiplier of the layer's two stages."""

ACCUMULATOR = 2**31 - 1
"""The largest sum, and the largest number between the two stages."""

LARGEST_OFFSET = MULTIPLIER
"""The largest offset, a constant byte 1 that the layer multiplies by it and adds."""

TRIED = 256
"""Pairs of multipliers that are compared, the most precise ones first."""


@dataclass(frozen=True)
class Convolution:
    """A convolution of bytes to bytes.

    Members
    -------
    name : for reports.
    shape : (H, W, D) of the input.
    weights : uint8 (kh, kw, D, OC), or (kh, kw, D, 1) if `depthwise`.
    x_zero, w_zero : zero points.
    window : the window.
    bias : int64 (OC,), in units of the sums.
    depthwise : whether each channel has a kernel of its own.
    codes : the code of a sum with bias, for any int64 array; it does not decrease.
    step : real size of a step of the sums.
    limits : range of the output.
    """

    name: str
    shape: tuple[int, int, int]
    weights: Bytes
    x_zero: int
    w_zero: int
    window: Geometry
    bias: npt.NDArray[np.int64]
    depthwise: bool
    codes: Callable[[Array], Bytes]
    step: float
    limits: Range

    @property
    def factors(self) -> npt.NDArray[np.int64]:
        """The weights without their zero point, int64 (OC, IC, kh, kw)."""
        order = (2, 3, 0, 1) if self.depthwise else (3, 2, 0, 1)
        return self.weights.astype(np.int64).transpose(order) - self.w_zero

    @property
    def ends(self) -> tuple[int, int]:
        """The smallest and the largest sum with bias that any input can give."""
        factors = self.factors.reshape(len(self.bias), -1)
        low, high = -self.x_zero, LEVELS - self.x_zero
        below = np.minimum(factors * low, factors * high)
        above = np.maximum(factors * low, factors * high)
        return int((below.sum(axis=1) + self.bias).min()), int((above.sum(axis=1) + self.bias).max())


@dataclass(frozen=True)
class Scaling:
    """Two multipliers: v = sum * first / 2^shift + offset, and the code v * second / 2^last + zero, rounded.

    Members
    -------
    first, shift, second, last : the multipliers and their shifts.
    zero : signed code of 0.
    limits : clamp of v, or None.
    offset : added to v.
    """

    first: int
    shift: int
    second: int
    last: int
    zero: int
    limits: tuple[int, int | None] | None = None
    offset: int = 0

    def codes(self, sums: Array, up: bool) -> Array:
        """Return the unsigned codes of sums; halves of the last rounding go up or down."""
        v = shifted(sums.astype(np.int64) * self.first, self.shift, Halves.EVEN) + self.offset
        if self.limits is not None:
            low, high = self.limits
            v = np.clip(v, low, ACCUMULATOR if high is None else high)
        half = (1 << self.last >> 1) - (not up) if self.last else 0
        return np.clip((v * self.second + half >> self.last) + self.zero + SIGN, 0, LEVELS)


def stairs(codes: Callable[[Array], Bytes], low: int, high: int) -> tuple[Array, Array]:
    """Return the steps of a staircase between two sums.

    Returns
    -------
    The sums at which the code rises above that of the sum before, int64 (n,), and the codes that are
    reached there (n,).
    """
    first, last = (int(codes(np.array([end], np.int64))[0]) for end in (low, high))
    wanted = np.arange(first + 1, last + 1)
    under, reached = np.full(len(wanted), low, np.int64), np.full(len(wanted), high, np.int64)
    while len(wanted) and (reached - under).max() > 1:
        middle = (under + reached) // 2
        enough = codes(middle) >= wanted
        reached, under = np.where(enough, middle, reached), np.where(enough, under, middle)
    return reached, wanted


def _pairs(ratio: float, most: int, room: int) -> Iterator[tuple[int, int, int, int]]:
    """Return multipliers and shifts (first, shift, second, last) near a ratio, the most precise ones first.

    Sums up to `most`, multiplied and shifted, are below `room`.
    """
    firsts = np.arange(2**14, 2**15, dtype=np.int64)
    fraction, exponent = math.frexp(ratio)
    wanted = fraction * 2.0**30 / firsts
    halved = wanted > MULTIPLIER
    seconds = np.rint(wanted / (1 + halved)).astype(np.int64)
    errors = np.abs(firsts * seconds * (1.0 + halved) - fraction * 2.0**30)
    shift = max(0, math.ceil(math.log2(max(most, 1) * 2.0**15 / room)))
    for place in np.argsort(errors, kind="stable")[:TRIED]:
        last = 30 - exponent - int(halved[place]) - shift
        if 0 <= last <= 62:
            yield int(firsts[place]), shift, int(seconds[place]), last


def _line(rises: Array, reached: Array) -> tuple[float, float]:
    """Return the ratio and the offset of a line whose rounding has all rises, with the largest distances.

    The rise to code k at sum s means: ratio * s + offset is at least k - 1/2, and below it at s - 1.  For one
    ratio that is a range of offsets; its size is concave in the ratio.
    """
    edges = reached - 0.5

    def offsets(ratio: float) -> tuple[float, float]:
        return float((edges - ratio * rises).max()), float((edges - ratio * (rises - 1)).min())

    middle = (len(rises) - 1) / max(float(rises[-1] - rises[0]), 1.0)
    low, high = middle * (1 - 2.0**-8), middle * (1 + 2.0**-8)
    for _ in range(100):
        first, second = low + (high - low) / 3, high - (high - low) / 3
        sizes = [ends[1] - ends[0] for ends in (offsets(first), offsets(second))]
        low, high = (low, second) if sizes[0] > sizes[1] else (first, high)
    ratio = (low + high) / 2
    ends = offsets(ratio)
    return ratio, (ends[0] + ends[1]) / 2


def _clamped(plain: Scaling, high: int) -> Iterator[Scaling]:
    """Return a scaling without a clamp, with one at 0, and with one at 0 and at the highest code."""
    yield plain
    yield replace(plain, limits=(0, None))
    upper = round((high - plain.zero - SIGN) * 2.0**plain.last / plain.second)
    if 0 <= upper <= ACCUMULATOR:
        yield replace(plain, limits=(0, upper))


def _candidates(convolution: Convolution, most: int, rises: Array, reached: Array) -> Iterator[Scaling]:
    """Return scalings that may be exact: first those without an offset."""
    zero = convolution.limits.zero - SIGN
    for pair in _pairs(convolution.step / convolution.limits.step, most, ACCUMULATOR):
        yield Scaling(*pair, zero)
    if len(rises) < 2:
        return
    ratio, offset = _line(rises, reached - convolution.limits.zero)
    for pair in _pairs(ratio, most, ACCUMULATOR // 4):
        added = round(offset * 2.0 ** pair[3] / pair[2])
        if abs(added) <= LARGEST_OFFSET:
            yield Scaling(*pair, zero, offset=added)


def exact_scaling(convolution: Convolution) -> Scaling | None:
    """Return multipliers with which the NPU computes the codes of all sums, or None if there are none.

    Sums are those that some input can give; both functions do not decrease, so they are equal everywhere if
    they are equal at both ends and on both sides of every step.
    """
    low, high = convolution.ends
    most = max(abs(low), abs(high))
    if most > ACCUMULATOR:
        return None
    rises, reached = stairs(convolution.codes, low, high)
    ends = np.array([low, high], np.int64)
    sums = np.concatenate([ends, rises, rises - 1])
    wanted = np.concatenate([convolution.codes(ends), reached, reached - 1])
    for plain in _candidates(convolution, most, rises, reached):
        for found in _clamped(plain, int(wanted.max())):
            if all((found.codes(sums, up) == wanted).all() for up in (False, True)):
                return found
    return None


def layer_model(convolution: Convolution) -> CompiledModel | None:
    """Return the model of one layer with exactly the codes of a convolution, or None if there is none.

    Its input x is int8 (1, D, H, W), its output y int8 (1, OC, OH, OW); both are codes less 128.
    """
    scaling = exact_scaling(convolution)
    if scaling is None:
        return None
    height, width, depth = convolution.shape
    kernels, window = len(convolution.bias), convolution.window
    factors, zero = convolution.factors, 0
    if factors.min() < -SIGN or factors.max() >= SIGN:
        factors, zero = factors + convolution.w_zero - SIGN, convolution.w_zero - SIGN
    graph = g.Graph(convolution.name)
    cube, out = (depth, height, width), (kernels, *window.output)
    x = g.Tensor("x", (1, *cube), 1.0, convolution.x_zero - SIGN, cube)
    ratio = convolution.limits.step / convolution.step
    graph.tensors = {"x": x, "y": g.Tensor("y", (1, *out), ratio, scaling.zero, out)}
    weights = factors.astype(np.int8)
    shape = g.Window(window.kernel, window.strides, window.pads, window.dilations)
    ones, groups = np.ones(kernels), depth if convolution.depthwise else 1
    op = g.Conv(convolution.name, ("x",), "y", weights, ones, zero, convolution.bias, shape, groups)
    graph.ops = [op]
    graph.inputs = [g.GraphInput("x", "x", x.shape)]
    graph.outputs = [g.GraphOutput("y", (1, *out), "y", False)]
    try:
        plain = CompiledModel(graph)
        (step,) = plain.plan.steps
        if not isinstance(step, ConvStep):
            return None
        exact = replace(
            step,
            weights=op.npu_weights,
            weight_zero=zero,
            bias=convolution.bias,
            multipliers=np.full(kernels, scaling.first, np.int64),
            seconds=None,
            errors=None,
            shift=scaling.shift,
            limits=scaling.limits,
            converter=Converter(scaling.second, scaling.last, scaling.zero),
        )
        if scaling.offset:
            exact = _with_offset(graph, exact, scaling.offset)
        return CompiledModel(graph, plan=replan(replace(plain.plan, steps=[exact]), 1))
    except (ModelError, ValueError):  # more steps than one, or a layer that the NPU does not have
        return None


def _with_offset(graph: g.Graph, step: ConvStep, offset: int) -> ConvStep:
    """Return a step that adds an offset to v: a constant byte 1 of each channel, multiplied by it."""
    cube = (step.output.cube[0], 1, 1)
    graph.tensors["one"] = one = g.Tensor("one", (1, *cube), 1.0, 0, cube)
    graph.constants["one"] = np.ones(cube, np.int8)
    between = replace(step.output, name="between")
    room = ACCUMULATOR // 2
    addend = Addend(between, (-room, room), 1, offset)
    return replace(step, kind=f"{step.kind}+Add", inputs=(step.inputs[0], one), addend=addend)


def pool_model(name: str, shape: tuple[int, int, int], window: Geometry) -> CompiledModel | None:
    """Return the model of a maximum over windows of an input (H, W, D), or None if the NPU has no such layer.

    Input and output are as those of `layer_model`.
    """
    height, width, depth = shape
    cube, out = (depth, height, width), (depth, *window.output)
    graph = g.Graph(name)
    graph.tensors = {
        "x": g.Tensor("x", (1, *cube), 1.0, 0, cube),
        "y": g.Tensor("y", (1, *out), 1.0, 0, out),
    }
    graph.ops = [g.Pool(name, ("x",), "y", "max", g.Window(window.kernel, window.strides, window.pads))]
    graph.inputs = [g.GraphInput("x", "x", (1, *cube))]
    graph.outputs = [g.GraphOutput("y", (1, *out), "y", False)]
    try:
        model = CompiledModel(graph)
    except ModelError:
        return None
    return model if model.plan.tasks else None


def average_model(name: str, shape: tuple[int, int, int], window: Geometry) -> CompiledModel | None:
    """Return the model of an average over windows of an input (H, W, D), a depthwise convolution of ones.

    None if the windows have different numbers of elements inside the input, or no layer is exact.  Input and
    output are as those of `layer_model`.
    """
    counts = window.counts(*shape[:2])
    count = int(counts.max())
    if counts.min() != count:
        return None
    limits = Range(0.0, float(LEVELS * count))
    ones = np.ones((*window.kernel, shape[2], 1), np.uint8)
    zeros = np.zeros(shape[2], np.int64)

    def codes(sums: Array) -> Bytes:
        return average(np.asarray(sums), np.array(count))

    return layer_model(Convolution(name, shape, ones, 0, 0, window, zeros, True, codes, 1.0, limits))
