"""Operations that move elements, in bytes and in fp16."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rkcosim.compiler import graph as g
from rkcosim.compiler.constraints.movements import block_size, moved_channels, pad_edges, slice_steps
from rkcosim.compiler.graph import ModelError, Op, Tensor, Window
from rkcosim.compiler.limits import INSERTS, MAX_LINES, MAX_NOTCH, MAX_REPEAT
from rkcosim.compiler.lowering.common import Array, Lowering
from rkcosim.compiler.permutation import Permute
from rkcosim.compiler.resampling import Resample, Sampling, linear
from rkcosim.compiler.steps import (
    Converter,
    CopyStep,
    PermuteStep,
    RepeatStep,
    Step,
)


class Moves(Lowering):
    """Operations that move elements: copies of parts, and convolutions of small whole numbers."""

    def movements(self) -> dict[type[Op], Callable[[], list[Step]]]:
        return {
            g.Concat: self.concat,
            g.Slice: self.slice,
            g.Pad: self.pad,
            g.Upsample: self.upsample,
            g.Bilinear: self.bilinear,
            g.Blocks: self.blocks,
            Permute: self.permute,
            Resample: self.resample,
        }

    def concat(self) -> list[Step]:
        """Copy each input; if channels do not begin at an atom, `joined_channels` decides."""
        steps: list[Step] = []
        place, axis = [0, 0, 0], self.op.axis
        for x in self.inputs:
            if axis == 0 and place[0] % self.atom_channels:
                most = max(part.cube[0] for part in self.inputs)
                if moved_channels.rule(self.output.cube[0], most):
                    return self.host("Concat", axis=0)
                return self.joined_channels()
            steps += self.copy(x, (0, 0, 0), (place[0], place[1], place[2]), x.cube)
            place[axis] += x.cube[axis]
        return steps

    def joined_channels(self) -> list[Step]:
        """Concatenate channels that do not begin at an atom."""
        return self.host("Concat", axis=0)

    @abstractmethod
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
        """Return a convolution of small whole numbers, whose sum in each real window is `norm`.

        With zeros and ones, and at most a single 1 in each kernel, it moves elements exactly.

        Parameters
        ----------
        weights
            (OC, IC, kh, kw), with IC 1 if depthwise.
        window, insert
            As in `rkcosim.compiler.graph.Conv`; with `insert` each window must contain the same real sum.
        value
            Code of elements outside the image and of channels without weights (None: real zero).
        norm
            Divisor of the sum.
        ends
            Input and output if they are not those of the operation.
        """

    @abstractmethod
    def whole(self, weights: Array) -> tuple[Array, int] | None:
        """Return real weights, of which those in a window add up to 1, as weights and divisor of `select`.

        None if they are no quotients of small whole numbers, as bytes need them.
        """

    def permute(self) -> list[Step]:
        """Move whole atoms."""
        return self.step(PermuteStep, stored=self.op.stored, order=self.op.order)

    def slice(self) -> list[Step]:
        """Copy a part; strides, and channels that do not begin at an atom, are convolutions with ones."""
        op, (first, *start) = self.op, self.op.begin
        cube, strides = self.output.cube, self.op.strides
        if strides == (1, 1, 1) and first % self.atom_channels == 0:
            return self.copy(self.x, op.begin, (0, 0, 0), cube)
        alone = first == 0 and strides[0] == 1 and cube[0] == self.x.cube[0]
        large = not alone and moved_channels.rule(cube[0], self.x.cube[0])
        if large or slice_steps.rule(strides[1:]):
            return self.host("Slice", begin=op.begin, strides=strides)
        steps, x = [], self.x
        if any(start):
            size = (x.cube[0], x.cube[1] - start[0], x.cube[2] - start[1])
            part = replace(x, name=f"{op.output}.part", shape=(1, *size), cube=size, channels_last=False)
            steps = self.also(g.Slice(op.name, (x.name,), part.name, (0, *start)), (x,), part)
            x = part
        window = Window((1, 1), (strides[1], strides[2]))
        if alone:
            weights = np.ones((cube[0], 1, 1, 1), dtype=np.int8)
            return [*steps, *self.select(weights, window.used(self.output), depthwise=True, inputs=(x,))]
        weights = np.zeros((cube[0], x.cube[0], 1, 1), dtype=np.int8)
        weights[np.arange(cube[0]), first + strides[0] * np.arange(cube[0])] = 1
        return [*steps, *self.select(weights, window.used(self.output), inputs=(x,))]

    def pad(self) -> list[Step]:
        """Add elements around a map and its channels."""
        op, value = self.op, self.op.value
        moved = op.channels != (0, 0) and moved_channels.rule(self.output.cube[0], self.x.cube[0])
        if moved or pad_edges.rule(op.pads, value, self.output.real):
            return self.host(
                "Pad",
                pads=op.pads,
                channels=op.channels,
                value=self.x.zero_point if value is None else value,
            )
        window = Window((1, 1), pads=op.pads)
        if op.channels == (0, 0):
            weights = np.ones((self.x.cube[0], 1, 1, 1), dtype=np.int8)
            return self.select(weights, window, depthwise=True, value=value)
        weights = np.zeros((self.output.cube[0], self.x.cube[0], 1, 1), dtype=np.int8)
        weights[op.channels[0] + np.arange(self.x.cube[0]), np.arange(self.x.cube[0])] = 1
        return self.select(weights, window, value=value)

    def upsample(self) -> list[Step]:
        """Repeat pixels: by unpooling, or if the quantisation changes with a convolution of ones."""
        factors, x, y = self.op.factors, self.x, self.output
        lines = (factors[0] - 1) * y.cube[2] > MAX_NOTCH  # a task for each line
        if max(factors) <= MAX_REPEAT and not (lines and x.cube[1] > MAX_LINES):
            if x.same_values(y) and not self.clamped:
                return self.step(RepeatStep, factors=factors)
            middle = replace(y, name=f"{y.name}.small", shape=x.shape, cube=x.cube, channels_last=False)
            rescale = g.Rescale(self.op.name, self.op.inputs, middle.name, clamp=self.op.clamp)
            return [
                *self.also(rescale, (x,), middle),
                *self.step(RepeatStep, inputs=(middle,), factors=factors),
            ]
        rows, columns = (
            Sampling("nearest", picks=tuple(i // factor for i in range(n)))
            for factor, n in zip(factors, y.cube[1:], strict=True)
        )
        return self.also(Resample(self.op.name, self.op.inputs, y.name, rows, columns), (x,), y)

    def bilinear(self) -> list[Step]:
        """Interpolate: repeat the edges where needed, then a depthwise transposed convolution."""
        x, y = self.x, self.output
        halves = self._bilinear_halves()
        if halves is not None:
            return halves
        axes = [
            _interpolation(size, out, self.op.form) for size, out in zip(x.cube[1:], y.cube[1:], strict=True)
        ]
        if None in axes or max(axes[0].taps) * max(axes[1].taps) > 127:  # type: ignore[union-attr]
            pairs = zip(x.cube[1:], y.cube[1:], strict=True)
            rows, columns = (linear(self.op.form, size, out) for size, out in pairs)
            return self.also(Resample(self.op.name, self.op.inputs, y.name, rows, columns), (x,), y)
        down, across = (axis for axis in axes if axis is not None)
        steps, x = self.repeated_edges(x, y.name, down.edges, across.edges)
        kernel = np.outer(down.taps, across.taps).astype(np.int8)
        weights = np.broadcast_to(kernel, (x.cube[0], 1, *kernel.shape)).copy()
        window = Window(
            (len(down.taps), len(across.taps)),
            pads=(
                down.pad,
                across.pad,
                down.after(x.cube[1], y.cube[1]),
                across.after(x.cube[2], y.cube[2]),
            ),
        )
        insert = (down.factor, across.factor)
        norm = down.norm * across.norm
        return [*steps, *self.select(weights, window, depthwise=True, insert=insert, norm=norm, inputs=(x,))]

    def _bilinear_halves(self) -> list[Step] | None:
        """Divide an interpolation with aligned corners by a factor above 8 into two; None for others."""
        x, y, op = self.x, self.output, self.op
        pairs = [(n - 1, out - 1) for n, out in zip(x.cube[1:], y.cube[1:], strict=True)]
        if op.form != "align_corners" or any(n < 1 or out % n for n, out in pairs):
            return None
        factors = [out // n for n, out in pairs]
        if max(factors) <= INSERTS[-1] or any(factor not in (1, 16, 32, 64) for factor in factors):
            return None
        rows, columns = (8 * n + 1 if f > 1 else n + 1 for (n, _), f in zip(pairs, factors, strict=True))
        cube = (x.cube[0], rows, columns)
        middle = replace(x, name=f"{y.name}.middle", shape=(1, *cube), cube=cube, channels_last=False)
        first = g.Bilinear(op.name, op.inputs, middle.name, op.form)
        second = replace(op, inputs=(middle.name,))
        return [*self.also(first, (x,), middle), *self.also(second, (middle,), y)]

    def resample(self) -> list[Step]:
        """Lower a resize with places of results; the host takes the elements that the NPU cannot take."""
        from rkcosim.compiler.lowering.resample import resampled

        rows, columns = self.op.rows, self.op.columns
        if rows.method != "nearest":
            return resampled(self, rows, columns)
        try:
            return resampled(self, rows, columns)
        except ModelError:
            return self.host("Pick", rows=rows.picks, columns=columns.picks)

    def repeated_edges(
        self, x: Tensor, name: str, rows: tuple[int, int], columns: tuple[int, int]
    ) -> tuple[list[Step], Tensor]:
        """Return steps that repeat the first and last rows and columns of `x`, and their result."""
        if (*rows, *columns) == (0, 0, 0, 0):
            return [], x
        channels, height, width = x.cube
        cube = (channels, height + sum(rows), width + sum(columns))
        wide = replace(x, name=f"{name}.edges", shape=(1, *cube), cube=cube, channels_last=False)
        parts = [(x, (0, 0, 0), (0, rows[0], columns[0]), x.cube)]
        line = (channels, 1, width)
        parts += [(x, (0, 0, 0), (0, row, columns[0]), line) for row in range(rows[0])]
        parts += [(x, (0, height - 1, 0), (0, cube[1] - 1 - row, columns[0]), line) for row in range(rows[1])]
        line = (channels, cube[1], 1)
        parts += [(wide, (0, 0, columns[0]), (0, 0, place), line) for place in range(columns[0])]
        last = cube[2] - columns[1] - 1
        parts += [(wide, (0, 0, last), (0, 0, cube[2] - 1 - place), line) for place in range(columns[1])]
        zero = x.zero_point
        steps: list[Step] = []
        for source, begin, target, size in parts:
            places = {"source": begin, "target": target, "size": size}
            ends = {"inputs": (source,), "output": wide}
            steps += self.step(CopyStep, **ends, **places, scale=1, converter=Converter(1, 0, zero))
        return steps, wide

    def blocks(self) -> list[Step]:
        """Move blocks of pixels into channels or back, with a convolution of ones."""
        op, size = self.op, self.op.size
        deep, flat = (self.output, self.x) if op.inward else (self.x, self.output)
        block_size(self.what, size, op.inward)
        weights = np.zeros((deep.cube[0], flat.cube[0], size, size), dtype=np.int8)
        for row in range(size):
            for column in range(size):
                place, channel = row * size + column, np.arange(flat.cube[0])
                deeper = channel * size * size + place if op.channel_first else place * flat.cube[0] + channel
                weights[deeper, channel, row, column] = 1
        if op.channels:
            weights = weights[list(op.channels)]
        if op.inward:
            return self.select(weights, Window((size, size), (size, size)))
        turned = np.ascontiguousarray(weights.transpose(1, 0, 2, 3)[:, :, ::-1, ::-1])
        edge = size - 1
        return self.select(turned, Window((size, size), pads=(edge,) * 4), insert=(size, size))


@dataclass(frozen=True)
class _Axis:
    """A bilinear resize along an axis as a transposed convolution.

    `factor` - 1 zeros are put between the elements; `taps` / `norm` slide over them from `pad` places
    before the first one.  `edges` are the copies of the first and of the last element that are needed.
    """

    factor: int
    taps: tuple[int, ...]
    norm: int
    pad: int
    edges: tuple[int, int] = (0, 0)

    def after(self, size: int, out: int) -> int:
        """Padding after the last of `size` elements for `out` results."""
        return out + len(self.taps) - 1 - self.pad - ((size - 1) * self.factor + 1)


def _interpolation(size: int, out: int, form: g.BilinearForm) -> _Axis | None:
    """Return a bilinear resize by a whole factor from `size` to `out` elements; None for other factors."""
    if size == out:
        return _Axis(1, (1,), 1, 0)
    if form == "align_corners":
        factor, rest = divmod(out - 1, size - 1) if size > 1 else (0, 1)
    else:
        factor, rest = divmod(out, size)
    if rest or factor not in INSERTS:
        return None
    if form == "half_pixel":
        odd = tuple(range(1, 2 * factor, 2))
        return _Axis(factor, (*odd, *odd[::-1]), 2 * factor, factor // 2 - 1, (1, 1))
    ramp = tuple(range(1, factor))
    edges = (0, 1) if form == "asymmetric" else (0, 0)
    return _Axis(factor, (*ramp, factor, *ramp[::-1]), factor, factor - 1, edges)
