"""Resizes by ratios of small whole numbers, as depthwise convolutions.

Along an axis, result i lies at start + i * b / n between the elements.  With n places for each element the
results are b places apart, so that one convolution of stride b computes all of them.

- For n = 1 it slides over the elements themselves.
- For n of 2, 4 and 8 and b = 1, zeros lie between the elements (a transposed convolution).
- Otherwise elements are repeated n times.  The mean of n neighbouring places of that is the linear
  interpolation, and one place is the nearest element; a cubic interpolation has zeros between the elements,
  and of its results every b-th is taken.

The nearest elements of other ratios are copied, a range of lines that follow each other in one task.

Strides above the hardware's are two strides: of the convolution, and of one that takes every other result.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Protocol

import numpy as np

from rkcosim.compiler.constraints.movements import nearest_ranges, resize_of_codes, resize_ratio
from rkcosim.compiler.graph import Tensor, Window
from rkcosim.compiler.limits import CONV_KERNEL, CONV_PAD, CONV_STRIDE, INSERTS, MAX_REPEAT, MOST_PLACES
from rkcosim.compiler.lowering.common import Array
from rkcosim.compiler.resampling import Sampling, neighbours
from rkcosim.compiler.steps import Cube, RepeatStep, Step

MOST_EDGES = 3
"""Largest number of copies of the first and of the last element."""
FEW_COPIES = 6
"""Number of such tasks up to which they take less time than a convolution of repeated elements."""
TOGETHER, TOGETHER_BYTES = 4, 9
"""Places for each element of a map up to which both axes are resized in one convolution: with more, two take
less time, but bytes are rounded between them."""


class Mover(Protocol):
    """What the lowering of movements (`rkcosim.compiler.lowering.moves`) offers to a resize."""

    what: str
    x: Tensor
    output: Tensor

    def step(self, kind: type[Step], **fields: Any) -> list[Step]:
        """Return one step."""

    def copy(
        self, x: Tensor, source: Cube, target: Cube, size: Cube, output: Tensor | None = None
    ) -> list[Step]:
        """Copy a part of a tensor."""

    def select(
        self,
        weights: Array,
        window: Window,
        *,
        depthwise: bool = False,
        insert: tuple[int, int] = (1, 1),
        value: float | None = None,
        norm: int = 1,
        **ends: Any,
    ) -> list[Step]:
        """Return a convolution of small whole numbers."""

    def whole(self, weights: Array) -> tuple[Array, int] | None:
        """Return real weights as weights and divisor of `select`."""

    def repeated_edges(
        self, x: Tensor, name: str, rows: tuple[int, int], columns: tuple[int, int]
    ) -> tuple[list[Step], Tensor]:
        """Return steps that repeat the first and last rows and columns, and their result."""


@dataclass(frozen=True)
class Axis:
    """A resize along an axis as a convolution.

    Members
    -------
    factor, repeated
        n places for each element, and whether these are its copies; otherwise zeros lie behind it.
    stride, then
        Their product is b: the stride of the convolution, and of what is taken of its results.
    taps, first
        Weights of a window, and the place where the first window begins.
    edges
        Copies of the first and of the last element.
    """

    factor: int
    repeated: bool
    stride: int
    then: int
    taps: Array
    first: int
    edges: tuple[int, int]

    @property
    def plain(self) -> bool:
        """Whether the axis stays as it is."""
        return self.factor == self.stride == self.then == 1 and self.taps.size == 1 and not any(self.edges)

    def pads(self, size: int, out: int) -> tuple[int, int]:
        """Return the padding before and after the places of `size` elements for `out` windows."""
        places = size * self.factor - (0 if self.repeated else self.factor - 1)
        return -self.first, max((out - 1) * self.stride + self.taps.size + self.first - places, 0)


def axis_of(sampling: Sampling, size: int, out: int) -> Axis | None:
    """Return a resize of `size` to `out` elements as a convolution; None if it exceeds the limits."""
    if sampling.method == "nearest":
        return _nearest(sampling.picks, size)
    if sampling.inside or sampling.reach > 1:
        return None
    ratio = Fraction(sampling.step if out > 1 else 1.0).limit_denominator(MOST_PLACES)
    n, b = ratio.denominator, ratio.numerator
    if abs(float(ratio) - sampling.step) * (out - 1) > 1e-4 or b < 1:
        return None
    start = round(sampling.start * n * 2) / 2 if out > 1 else sampling.start * n
    if abs(start - sampling.start * n) > 1e-4 * n:
        start = sampling.start * n
    zeros = n in INSERTS and (b == 1 or n == 1 or sampling.method == "cubic")
    if zeros:
        reach = n * (2 if sampling.method == "cubic" else 1)
        places = np.arange(math.floor(start - reach) + 1, math.ceil(start + reach))
        apart = np.abs(places - start) / n
        taps = sampling.weights(apart)
    elif sampling.method == "linear":
        begin = math.floor(start)
        places = np.arange(begin, begin + n + 1)
        taps = np.array([1 - (start - begin), *[1.0] * (n - 1), start - begin]) / n
    else:
        return None
    used = np.flatnonzero(taps)
    places, taps = places[used[0] : used[-1] + 1], taps[used[0] : used[-1] + 1]
    return _axis(n, not zeros, b, taps, int(places[0]), size, out)


def _nearest(picks: tuple[int, ...], size: int) -> Axis | None:
    """Return a selection of elements as a convolution."""
    wanted, at = np.array(picks), np.arange(len(picks))
    for n, b in itertools.product(range(1, MAX_REPEAT**2 + 1), range(1, CONV_STRIDE**2 + 1)):
        if not _repeats(n) or math.gcd(n, b) > 1 or abs(b / n - size / len(picks)) > 1 / len(picks) + 1e-9:
            continue
        for start in range(-n, n + b):
            if ((at * b + start) // n).clip(0, size - 1).tolist() != wanted.tolist():
                continue
            zeros = n in INSERTS and (b == 1 or n == 1)
            taps, first = (np.ones(n), start - n + 1) if zeros else (np.ones(1), start)
            if (found := _axis(n, not zeros, b, taps, first, size, len(picks))) is not None:
                return found
    return None


def _axis(n: int, repeated: bool, b: int, taps: Array, first: int, size: int, out: int) -> Axis | None:
    """Return the axis with copies of the ends and without a place before the first one, if it is possible."""
    stride, then = next(((s, b // s) for s in range(CONV_STRIDE, 0, -1) if b % s == 0), (b, 1))
    if n > 1 and not repeated:  # zeros between elements have a convolution of stride 1
        stride, then = 1, b
    last = first + (out - 1) * b + taps.size - 1
    low, high = (first // n, last // n) if repeated else (-(-first // n), last // n)
    edges = (max(-low, 0), max(high - size + 1, 0))
    first += n * edges[0]
    if first > 0:
        taps, first = np.concatenate([np.zeros(first), taps]), 0
    if then > CONV_STRIDE or taps.size > CONV_KERNEL or max(edges) > MOST_EDGES or -first > CONV_PAD:
        return None
    return Axis(n, repeated, stride, then, taps, first, edges) if not repeated or _repeats(n) else None


def _repeats(n: int) -> list[int]:
    """Return up to two factors of repetitions whose product is n; none if there are none."""
    if n <= MAX_REPEAT:
        return [n]
    return next(([n // f, f] for f in range(MAX_REPEAT, 1, -1) if n % f == 0 and n // f <= MAX_REPEAT), [])


def resampled(maker: Mover, rows: Sampling, columns: Sampling) -> list[Step]:
    """Return the steps of a resize.

    Raises
    ------
    ModelError
        If it exceeds the limits; the message names the axis, its sizes and what is possible.
    """
    x, y = maker.x, maker.output
    found = [axis_of(*axis) for axis in zip((rows, columns), x.cube[1:], y.cube[1:], strict=True)]
    if rows.method == "nearest":
        ranges = len(neighbours(rows.picks)) + len(neighbours(columns.picks))
        if None in found or ranges <= FEW_COPIES:
            return _copied(maker, rows.picks, columns.picks)
    for name, axis, size, out in zip(("rows", "columns"), found, x.cube[1:], y.cube[1:], strict=True):
        resize_ratio(maker.what, rows.method, name, size, out, axis is not None)
    down, across = (axis for axis in found if axis is not None)
    if _at_once(down, across, x.real) and maker.whole(np.outer(down.taps, across.taps)) is not None:
        return _resized(maker, x, y, down, across)
    resize_of_codes(maker.what, rows.method, x.real or min(down.taps.min(), across.taps.min()) >= 0)
    one = Axis(1, False, 1, 1, np.ones(1), 0, (0, 0))
    # The axis that becomes longer is the second one.
    turned = y.cube[1] * x.cube[2] > y.cube[2] * x.cube[1]
    cube = (x.cube[0], x.cube[1], y.cube[2]) if turned else (x.cube[0], y.cube[1], x.cube[2])
    middle = replace(x, name=f"{y.name}.resized", shape=(1, *cube), cube=cube, channels_last=False)
    first, second = ((one, across), (down, one)) if turned else ((down, one), (one, across))
    return [*_resized(maker, x, middle, *first), *_resized(maker, middle, y, *second)]


def _copied(maker: Mover, rows: tuple[int, ...], columns: tuple[int, ...]) -> list[Step]:
    """Return the steps that copy lines: of the axis first that becomes shorter.

    Raises
    ------
    ModelError
        If these are more than `MOST_COPIES` tasks.
    """
    x, y = maker.x, maker.output
    count = len(neighbours(rows)) + len(neighbours(columns))
    nearest_ranges(maker.what, count, x.cube[1:], y.cube[1:])
    sizes = [len(picks) / size for picks, size in zip((rows, columns), x.cube[1:], strict=True)]
    order = [(1, rows), (2, columns)] if sizes[0] <= sizes[1] else [(2, columns), (1, rows)]
    order = [(axis, picks) for axis, picks in order if picks != tuple(range(x.cube[axis]))]
    steps: list[Step] = []
    for axis, picks in order:
        cube = [*x.cube]
        cube[axis] = len(picks)
        made = y
        if axis != order[-1][0]:
            name, whole = f"{y.name}.picked", (cube[0], cube[1], cube[2])
            made = replace(x, name=name, shape=(1, *whole), cube=whole, channels_last=False)
        steps += _lines(maker, x, made, axis, picks)
        x = made
    return steps


def _lines(maker: Mover, x: Tensor, y: Tensor, axis: int, picks: tuple[int, ...]) -> list[Step]:
    """Return the steps that copy rows (axis 1) or columns (axis 2)."""
    steps: list[Step] = []
    for at, first, count in neighbours(picks):
        source, target, size = [0, 0, 0], [0, 0, 0], [*y.cube]
        source[axis], target[axis], size[axis] = first, at, count
        places = (tuple(source), tuple(target), tuple(size))
        steps += maker.copy(x, *places, y)  # type: ignore[arg-type]
    return steps


def _at_once(down: Axis, across: Axis, real: bool) -> bool:
    """Whether one convolution resizes both axes; zeros between elements need a stride of 1."""
    if down.plain or across.plain:
        return True
    zeros = any(axis.factor > 1 and not axis.repeated for axis in (down, across))
    if zeros:
        return not any(axis.repeated or axis.stride > 1 for axis in (down, across))
    return down.factor * across.factor <= (TOGETHER if real else TOGETHER_BYTES)


def _resized(maker: Mover, x: Tensor, y: Tensor, down: Axis, across: Axis) -> list[Step]:
    """Return the steps of a resize of one or both axes in one convolution."""
    if down.plain and across.plain and x.same_values(y):
        weights = np.ones((x.cube[0], 1, 1, 1), np.int8)
        return maker.select(weights, Window((1, 1)), depthwise=True, inputs=(x,), output=y)
    steps, x = maker.repeated_edges(x, y.name, down.edges, across.edges)
    repeats = [[*_repeats(axis.factor), 1][:2] if axis.repeated else [1, 1] for axis in (down, across)]
    for number, factors in enumerate(zip(*repeats, strict=True)):
        if factors == (1, 1):
            continue
        cube = (x.cube[0], x.cube[1] * factors[0], x.cube[2] * factors[1])
        many = replace(x, name=f"{y.name}.repeated{number}", shape=(1, *cube), cube=cube)
        steps += maker.step(RepeatStep, inputs=(x,), output=many, factors=factors)
        x = many
    taps = np.outer(down.taps, across.taps)
    found = maker.whole(taps)
    if found is None:
        raise resize_of_codes.error(maker.what, "linear", False)
    weights, norm = found
    zeros = any(axis.factor > 1 and not axis.repeated for axis in (down, across))
    insert = tuple(1 if axis.repeated else axis.factor for axis in (down, across)) if zeros else (1, 1)
    counts = [(out - 1) * axis.then + 1 for axis, out in zip((down, across), y.cube[1:], strict=True)]
    sizes = [
        n // (axis.factor if axis.repeated else 1) for axis, n in zip((down, across), x.cube[1:], strict=True)
    ]
    (top, bottom), (left, right) = (
        axis.pads(size, count) for axis, size, count in zip((down, across), sizes, counts, strict=True)
    )
    window = Window((taps.shape[0], taps.shape[1]), (down.stride, across.stride), (top, left, bottom, right))
    kernels = np.tile(weights, (x.cube[0], 1, 1, 1))
    made = y
    thinned = (down.then, across.then) != (1, 1)
    if thinned:
        cube = (x.cube[0], counts[0], counts[1])
        made = replace(y, name=f"{y.name}.close", shape=(1, *cube), cube=cube, channels_last=False)
    ends: dict[str, Any] = {"inputs": (x,), "output": made}
    window, zeros_between = window.used(made), (insert[0], insert[1])
    steps += maker.select(kernels, window, depthwise=True, insert=zeros_between, norm=norm, **ends)
    if thinned:
        weights = np.ones((x.cube[0], 1, 1, 1), np.int8)
        window = Window((1, 1), (down.then, across.then)).used(y)
        steps += maker.select(weights, window, depthwise=True, inputs=(made,), output=y)
    return steps
