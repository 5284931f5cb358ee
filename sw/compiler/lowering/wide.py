"""Convolutions whose kernel or stride exceeds the hardware's, as narrower ones on rearranged pixels.

Along each axis, b neighbouring pixels become channels, and m neighbouring results become kernels, with
b * t = s * m for the stride s of the convolution and the stride t of the narrower one.  Tap k of result
q * m + r lies at pixel q * t * b + r * s + k - pad, that is in block floor((r * s + k - pad) / b) from the
window's first one, at a fixed place in it.  So one sum has all products of a result, as before.

A depthwise convolution of floats is the sum of convolutions with parts of its kernel.  One of bytes, whose
sums would lose places between, becomes one with all channels in each kernel, of which all but one count 0.
Where the stride has a prime factor above 7, windows are copied first, to places at multiples of another
number.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from rkcosim.compiler import graph as g
from rkcosim.compiler.constraints.convolutions import wide_blocks, wide_copies, wide_depthwise, wide_form
from rkcosim.compiler.graph import Tensor, Window
from rkcosim.compiler.limits import CONV_KERNEL, CONV_PAD, CONV_STRIDE, INSERTS
from rkcosim.compiler.lowering.moves import Moves
from rkcosim.compiler.steps import Step

MOST_CHANNELS = 8191
"""Largest number of channels and of kernels of the narrower convolution (ORIG_CHANNEL, DATAOUT_CHANNEL)."""


MOST_BLOCK = 64
"""Largest number of neighbouring pixels of an axis that become channels."""


@dataclass(frozen=True)
class AxisDivision:
    """The division of one axis.

    Members
    -------
    block, results, stride
        b, m and t of the module's text.
    taps, pad, size, out
        Of the convolution: size of the kernel, padding before the first pixel, pixels, results.
    step
        Its stride s.
    """

    block: int
    results: int
    stride: int
    taps: int
    step: int
    pad: int
    size: int
    out: int

    def place(self, result: int, tap: int) -> tuple[int, int]:
        """Return the block of a tap, counted from the window's first one, and its place in the block."""
        at = result * self.step + tap - self.pad
        return at // self.block - self.first, at % self.block

    @property
    def first(self) -> int:
        """The window's first block, relative to the one that begins at the first pixel."""
        return -self.pad // self.block

    @cached_property
    def kernel(self) -> int:
        """Blocks of a window."""
        return max(self.place(result, self.taps - 1)[0] for result in range(self.results)) + 1

    @property
    def blocks(self) -> int:
        """Blocks of the input; the last one may exceed it."""
        return -(-self.size // self.block)

    @property
    def windows(self) -> int:
        """Windows of the narrower convolution; the results of the last one may exceed the output."""
        return -(-self.out // self.results)

    @property
    def pads(self) -> tuple[int, int]:
        """Padding in blocks before and after the input."""
        end = (self.windows - 1) * self.stride + self.kernel + self.first
        return -self.first, max(end - self.blocks, 0)


def _divisions(taps: int, step: int, pad: int, size: int, out: int) -> Iterator[AxisDivision]:
    """Yield the possible divisions of an axis; an axis within the limits stays as it is."""
    if taps <= CONV_KERNEL and step <= CONV_STRIDE:
        yield AxisDivision(1, 1, step, taps, step, pad, size, out)
        return
    for block, stride in itertools.product(range(2, MOST_BLOCK + 1), range(1, CONV_STRIDE + 1)):
        results = block * stride // step
        if block * stride != results * step or not results or (results > 1 and stride > 1):
            continue
        if None in (_factors(block, range(2, CONV_STRIDE + 1)), _factors(results, INSERTS[1:])):
            continue
        found = AxisDivision(block, results, stride, taps, step, pad, size, out)
        if found.kernel <= CONV_KERNEL and found.pads[0] <= CONV_PAD:
            yield found


def _factors(number: int, allowed: range | tuple[int, ...]) -> list[int] | None:
    """Return the smallest number of allowed factors of a number, [] for 1; None if there are none."""
    if number == 1:
        return []
    found = [
        [factor, *rest]
        for factor in allowed
        if number % factor == 0 and (rest := _factors(number // factor, allowed)) is not None
    ]
    return min(found, key=len, default=None)


def _stages(pair: tuple[int, int], allowed: range | tuple[int, ...]) -> list[tuple[int, int]]:
    """Return the factors of both axes for each stage of a rearrangement."""
    rows, columns = (_factors(number, allowed) or [] for number in pair)
    return list(itertools.zip_longest(rows, columns, fillvalue=1))


def divided(conv: g.Conv, x: Tensor, output: Tensor) -> tuple[AxisDivision, AxisDivision]:
    """Return the division with the fewest multiply-accumulates.

    Raises
    ------
    ModelError
        If there is none; the message has the limits.
    """
    window = conv.window.used(output)
    what = f"{conv.kind} '{conv.name}'"
    if conv.insert != (1, 1) or max(window.dilations) > 1:
        kind = "transposed" if conv.insert != (1, 1) else "dilated"
        raise wide_form.error(what, conv.window, kind)
    axes = zip(window.kernel, window.strides, window.pads[:2], x.cube[1:], output.cube[1:], strict=True)
    of_rows, of_columns = (list(_divisions(*axis)) for axis in axes)
    found = [
        (_cost(pair, x, len(conv.weights)), pair)
        for pair in itertools.product(of_rows, of_columns)
        if x.cube[0] * pair[0].block * pair[1].block <= MOST_CHANNELS
        and len(conv.weights) * pair[0].results * pair[1].results <= MOST_CHANNELS
    ]
    if not found:
        raise wide_blocks.error(what, conv.window, MOST_BLOCK, MOST_CHANNELS, False)
    return min(found, key=lambda item: item[0])[1]


def _cost(pair: tuple[AxisDivision, AxisDivision], x: Tensor, kernels: int) -> int:
    """Return the multiply-accumulates of the convolution and of the rearrangements around it."""
    rows, columns = pair
    channels, cost = x.cube[0], 0
    height, width = x.cube[1:]
    for down, across in _stages((rows.block, columns.block), range(2, CONV_STRIDE + 1)):
        height, width = -(-height // down), -(-width // across)
        cost += height * width * (channels * down * across) ** 2
        channels *= down * across
    height, width, kernels = rows.windows, columns.windows, kernels * rows.results * columns.results
    cost += height * width * kernels * channels * rows.kernel * columns.kernel
    for down, across in _stages((rows.results, columns.results), INSERTS[1:]):
        height, width = height * down, width * across
        cost += height * width * kernels * kernels // (down * across) * down * across
        kernels //= down * across
    return cost


def narrowed(maker: Moves) -> list[Step]:
    """Lower a convolution that `exceeds` the limits; raises ModelError as `divided`."""
    conv, x, output = maker.op, maker.x, maker.output
    if conv.depthwise:
        window = conv.window.used(output)
        parts = x.real and max(window.strides) <= CONV_STRIDE and window.dilations == (1, 1)
        steps = _in_parts(maker) if parts else maker.also(_dense(conv), (x,), output)
        return [replace(step, kind=conv.kind) for step in steps]
    if any(_factors(stride, range(2, CONV_STRIDE + 1)) is None for stride in _strides(conv, output)):
        return _apart(maker)
    rows, columns = divided(conv, x, output)
    steps, deep, places = _to_channels(maker, rows, columns)
    several = rows.results * columns.results > 1
    cube = (len(conv.weights) * rows.results * columns.results, rows.windows, columns.windows)
    between = output
    if several:
        name = f"{conv.output}.phases"
        between = replace(output, name=name, shape=(1, *cube), cube=cube, channels_last=False)
    (top, bottom), (left, right) = rows.pads, columns.pads
    copies = rows.results * columns.results
    narrow = replace(
        conv,
        inputs=(deep.name,),
        output=between.name,
        weights=_weights(conv, rows, columns, places),
        weight_scales=np.tile(conv.weight_scales, copies),
        bias=np.tile(conv.bias, copies),
        window=Window(
            (rows.kernel, columns.kernel), (rows.stride, columns.stride), (top, left, bottom, right)
        ),
        groups=1,
    )
    steps += maker.also(narrow, (deep,), between)
    return steps + _to_pixels(maker, between, rows, columns) if several else steps


def _strides(conv: g.Conv, output: Tensor) -> tuple[int, int]:
    return conv.window.used(output).strides


def _dense(conv: g.Conv) -> g.Conv:
    """Return a depthwise convolution as one with all channels in each kernel, of which all but one count 0.

    Raises
    ------
    ModelError
        If the host takes less time for so many multiplications.
    """
    kernels, _, height, width = conv.weights.shape
    wide_depthwise(f"{conv.kind} '{conv.name}'", conv.window, kernels)
    weights = np.full((kernels, kernels, height, width), conv.weight_zero_point, conv.weights.dtype)
    weights[np.arange(kernels), np.arange(kernels)] = conv.weights[:, 0]
    return replace(conv, weights=weights, groups=1)


def _in_parts(maker: Moves) -> list[Step]:
    """Lower a depthwise convolution of floats as the sum of those of parts of its kernel."""
    conv, y = maker.op, maker.output
    window = conv.window.used(y)
    steps, x = _framed(maker, window.pads)
    total: Tensor | None = None
    cuts = [
        [size * part // parts for part in range(parts + 1)]
        for size, parts in ((n, -(-n // CONV_KERNEL)) for n in window.kernel)
    ]
    places = list(itertools.product(itertools.pairwise(cuts[0]), itertools.pairwise(cuts[1])))
    for number, ((top, bottom), (left, right)) in enumerate(places):
        source = x
        if top or left:
            cube = (x.cube[0], x.cube[1] - top, x.cube[2] - left)
            name = f"{y.name}.from{number}"
            source = replace(x, name=name, shape=(1, *cube), cube=cube, channels_last=False)
            steps += maker.copy(x, (0, top, left), (0, 0, 0), cube, source)
        made = replace(y, name=f"{y.name}.part{number}")
        part = replace(
            conv,
            inputs=(source.name,),
            output=made.name,
            weights=np.ascontiguousarray(conv.weights[:, :, top:bottom, left:right]),
            bias=conv.bias if not number else np.zeros_like(conv.bias),
            window=Window((bottom - top, right - left), window.strides),
            clamp=g.Clamp(),
        )
        steps += maker.also(part, (source,), made)
        if total is None:
            total = made
            continue
        last = number == len(places) - 1
        both = y if last else replace(y, name=f"{y.name}.sum{number}")
        clamp = conv.clamp if last else g.Clamp()
        add = g.Binary(conv.name, (total.name, made.name), both.name, method="add", clamp=clamp)
        steps += maker.also(add, (total, made), both)
        total = both
    return steps


def _framed(maker: Moves, pads: tuple[int, int, int, int]) -> tuple[list[Step], Tensor]:
    """Return the steps that add padding of any size, and the map with it."""
    steps, x, left = list[Step](), maker.x, list(pads)
    for number in itertools.count():
        if not any(left):
            return steps, x
        now = [min(left[0], CONV_PAD), min(left[1], CONV_PAD), left[2], left[3]]
        left = [rest - pad for rest, pad in zip(left, now, strict=True)]
        cube = (x.cube[0], x.cube[1] + now[0] + now[2], x.cube[2] + now[1] + now[3])
        name = f"{maker.output.name}.padded{number}"
        made = replace(x, name=name, shape=(1, *cube), cube=cube, channels_last=False)
        op = g.Pad(maker.op.name, (x.name,), name, (now[0], now[1], now[2], now[3]))
        steps, x = [*steps, *maker.also(op, (x,), made)], made
    raise AssertionError("padding ends")


def _apart(maker: Moves) -> list[Step]:
    """Lower a convolution with a stride that has a prime factor above 7.

    Its windows are copied, so that they begin at multiples of a number that has none.  Behind a window there
    may be other elements of the map, which count 0.
    """
    conv, x, y = maker.op, maker.x, maker.output
    window = conv.window.used(y)
    what = f"{conv.kind} '{conv.name}': {conv.window}"
    axes = [n for n in (1, 2) if _factors(window.strides[n - 1], range(2, CONV_STRIDE + 1)) is None]
    steps, x, window = _padded(maker, window, axes)
    strides = [*window.strides]
    for axis in axes:
        stride, taps, count = strides[axis - 1], window.kernel[axis - 1], y.cube[axis]
        wide_copies(what, window, count)
        size = next(
            n for n in range(taps, 2 * taps + 8) if _factors(n, range(2, CONV_STRIDE + 1)) is not None
        )
        cube = [*x.cube]
        cube[axis] = count * size
        whole = (cube[0], cube[1], cube[2])
        made = replace(x, name=f"{y.name}.apart{axis}", shape=(1, *whole), cube=whole, channels_last=False)
        for number in range(count):
            first = number * stride
            there = min(size, x.cube[axis] - first)
            steps += _line(maker, x, made, axis, (first, number * size, there))
            if there < size:
                steps += _line(maker, x, made, axis, (0, number * size + there, size - there))
        x, strides[axis - 1] = made, size
    apart = replace(conv, inputs=(x.name,), window=replace(window, strides=(strides[0], strides[1])))
    return [*steps, *maker.also(apart, (x,), y)]


def _padded(maker: Moves, window: Window, axes: list[int]) -> tuple[list[Step], Tensor, Window]:
    """Return the steps that add a window's padding along some axes to its map, the map, and what is left."""
    x, pads = maker.x, [0] * 4
    for axis in axes:
        before, size, count = window.pads[axis - 1], x.cube[axis], maker.output.cube[axis]
        end = (count - 1) * window.strides[axis - 1] + window.kernel[axis - 1] - before
        pads[axis - 1], pads[axis + 1] = before, max(end - size, 0)
    steps, x = _framed(maker, (pads[0], pads[1], pads[2], pads[3]))
    left = [0 if n % 2 + 1 in axes else pad for n, pad in enumerate(window.pads)]
    return steps, x, replace(window, pads=(left[0], left[1], left[2], left[3]))


def _line(maker: Moves, x: Tensor, y: Tensor, axis: int, part: tuple[int, int, int]) -> list[Step]:
    """Copy rows (axis 1) or columns (axis 2): the first of them in both tensors, and their number."""
    source, target, size = [0, 0, 0], [0, 0, 0], [*x.cube]
    source[axis], target[axis], size[axis] = part
    ends = ((0, *source[1:]), (0, *target[1:]), (size[0], size[1], size[2]))
    return maker.copy(x, *ends, y)  # type: ignore[arg-type]


Places = npt.NDArray[np.int64]
"""For each channel of a deep tensor: channel, row in the block, column in the block; shape (N, 3)."""


def _to_channels(
    maker: Moves, rows: AxisDivision, columns: AxisDivision
) -> tuple[list[Step], Tensor, Places]:
    """Move the pixels of blocks into channels, in stages of at most the largest stride."""
    x, steps = maker.x, list[Step]()
    places = np.array([(channel, 0, 0) for channel in range(x.cube[0])], np.int64)
    done = (1, 1)
    for down, across in _stages((rows.block, columns.block), range(2, CONV_STRIDE + 1)):
        channels, height, width = x.cube
        cube = (channels * down * across, -(-height // down), -(-width // across))
        name = f"{x.name}.blocks{down}x{across}"  # the same for all convolutions of x: `lower` makes it once
        deep = replace(x, name=name, shape=(1, *cube), cube=cube, channels_last=False)
        weights = np.zeros((cube[0], channels, down, across), np.int8)
        moved = []
        for place, (row, column) in enumerate(itertools.product(range(down), range(across))):
            weights[place * channels + np.arange(channels), np.arange(channels), row, column] = 1
            moved.append(places + np.array((0, row * done[0], column * done[1])))
        places, done = np.concatenate(moved), (done[0] * down, done[1] * across)
        window = Window(
            (down, across), (down, across), (0, 0, cube[1] * down - height, cube[2] * across - width)
        )
        steps += _mover(maker, x, deep, inward=True).select(weights, window.used(deep), inputs=(x,))
        x = deep
    return steps, x, places


def _weights(
    conv: g.Conv, rows: AxisDivision, columns: AxisDivision, places: Places
) -> npt.NDArray[np.generic]:
    """Return the weights of the narrower convolution; kernels are ordered by their results' phases."""
    old = conv.npu_weights
    kernels = len(old)
    phases = rows.results * columns.results
    made = np.full(
        (phases, kernels, len(places), rows.kernel, columns.kernel), conv.weight_zero_point, old.dtype
    )
    blocks = np.empty((rows.block, columns.block, old.shape[1]), np.int64)
    blocks[places[:, 1], places[:, 2], places[:, 0]] = np.arange(len(places))
    for down, across in itertools.product(range(rows.results), range(columns.results)):
        phase = made[down * columns.results + across]
        for i, j in itertools.product(range(rows.taps), range(columns.taps)):
            (u, row), (v, column) = rows.place(down, i), columns.place(across, j)
            phase[:, blocks[row, column], u, v] = old[:, :, i, j]
    return made.reshape(-1, *made.shape[2:])


def _to_pixels(maker: Moves, x: Tensor, rows: AxisDivision, columns: AxisDivision) -> list[Step]:
    """Move the phases of results out of the channels, in stages of the distances that zeros may have."""
    steps, left = list[Step](), [rows.results, columns.results]
    stages = _stages((rows.results, columns.results), INSERTS[1:])
    for number, (down, across) in enumerate(stages):
        left = [left[0] // down, left[1] // across]
        last = number == len(stages) - 1
        kernels = x.cube[0] // (down * across)
        cube = (kernels, -(-rows.out // left[0]), -(-columns.out // left[1]))
        y = maker.output
        if not last:
            name = f"{maker.op.output}.phases{number + 1}"
            y = replace(y, name=name, shape=(1, *cube), cube=cube, channels_last=False)
        weights = np.zeros((kernels, x.cube[0], down, across), np.int8)
        # Channel (r, c, o) of the phases r < down * left, c < across * left; the outer part moves first.
        inner = kernels // (left[0] * left[1])
        numbers = np.arange(x.cube[0]).reshape(down, left[0], across, left[1], inner)
        for row, column in itertools.product(range(down), range(across)):
            source = numbers[row, :, column].reshape(-1)
            weights[np.arange(kernels), source, down - 1 - row, across - 1 - column] = 1
        window = Window(
            (down, across),
            pads=(
                down - 1,
                across - 1,
                cube[1] - (x.cube[1] - 1) * down - 1,
                cube[2] - (x.cube[2] - 1) * across - 1,
            ),
        )
        steps += _mover(maker, x, y, inward=False).select(weights, window, insert=(down, across), inputs=(x,))
        x = y
    return steps


def _mover(maker: Moves, x: Tensor, y: Tensor, inward: bool) -> Moves:
    """Return the lowering of a rearrangement from one tensor to another."""
    size = math.gcd(*x.cube[1:]) or 1
    return type(maker)(g.Blocks(maker.op.name, (x.name,), y.name, size, inward), (x,), y)
