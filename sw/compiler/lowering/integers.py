"""Lowering of operations on bytes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.compiler import graph as g
from rkcosim.compiler.graph import Clamp, ModelError, Op, Tensor, Window
from rkcosim.compiler.graph_products import ByteTiles, ColumnSums, Product
from rkcosim.compiler.limits import CONV_KERNEL
from rkcosim.compiler.lowering.common import (
    BLOCK_STEPS,
    MAX_CORRECTION,
    Array,
    exceeds,
    ppu_does,
    reaches_outside,
    staged_blocks,
)
from rkcosim.compiler.lowering.moves import Moves
from rkcosim.compiler.requant import (
    BS_SHIFT,
    MAX_SHIFT,
    MULTIPLIER_LIMIT,
    SECOND_SHIFT,
    SINGLE_ERROR,
    Scaled,
    check_sums,
    clamp_in_unit,
    fixed_slopes,
    output_scale,
    saturating_clamp,
    scaled_channels,
)
from rkcosim.compiler.steps import (
    Activation,
    Addend,
    BinaryStep,
    ByteTilesStep,
    Converter,
    ConvStep,
    CopyStep,
    Limits,
    LookupStep,
    PoolStep,
    ProductStep,
    Slopes,
    Step,
    SumsStep,
)

MAX_DEPTH = (2**31 - 1) // 255**2
"""Largest depth of a product of two activations whose sums always fit 32 bits."""


class Bytes(Moves):
    atom_channels = 16
    unit = 2**BS_SHIFT

    def movements(self) -> dict[type[Op], Callable[[], list[Step]]]:
        own = {ByteTiles: self.byte_tiles, ColumnSums: self.column_sums, Product: self.product}
        return {**super().movements(), **own}

    def byte_tiles(self) -> list[Step]:
        """Bring a factor into the layout of weights."""
        return self.step(ByteTilesStep, factors=self.op.factors)

    def column_sums(self) -> list[Step]:
        """Sum the weights of each kernel."""
        fields = {"zero": self.op.zero, "weight_zero": self.x.zero_point}
        return self.step(SumsStep, factors=self.op.factors, **fields)

    def product(self) -> list[Step]:
        """Multiply two activations; the sums are rounded once."""
        if self.clamped:
            return self.clamp_apart("unclamped")
        weights = self.inputs[1]
        if self.op.factors.depth > MAX_DEPTH:
            raise ModelError(f"{self.what}: sums of {self.op.factors.depth} products may exceed 32 bits")
        converter = self.converter(self.x.scale * weights.scale)
        return self.step(
            ProductStep, factors=self.op.factors, weight_zero=weights.zero_point, converter=converter
        )

    @property
    def clamped(self) -> bool:
        """Whether the clamp changes results that saturate to int8."""
        return saturating_clamp(self.op.clamp, self.output) != Clamp()

    def converter(self, unit: float) -> Converter:
        return Converter(*output_scale(unit / self.output.scale, self.what), self.output.zero_point)

    def limits(self, unit: float) -> Limits:
        return clamp_in_unit(self.op.clamp, unit, self.output, self.what)

    def conv(self) -> list[Step]:
        if inserted := self.inserted_by_host():
            return inserted
        op, x = self.op, self.x
        if exceeds(op, self.output):
            from rkcosim.compiler.lowering.wide import narrowed

            return narrowed(self)
        if x.zero_point and op.insert[0] == op.insert[1] > 1 and self._correction_bytes() > MAX_CORRECTION:
            return self._phases()
        scaled = scaled_channels(
            op.npu_weights, op.weight_scales, op.weight_zero_point, op.bias, x.scale / self.output.scale
        )
        unit = x.scale * scaled.unit
        check_sums(scaled.weights, op.weight_zero_point, scaled.bias, self.what)
        converter = self.converter(unit)
        limits, correction = self.limits(unit), None
        transposed = op.insert != (1, 1)  # inserted zeros are bytes 0, whatever the zero point
        if transposed and x.zero_point:
            correction = self._missing_zeros(scaled)
            if limits is not None and limits[0] != 0:
                return self.clamp_apart("unclamped")
        return self.step(
            ConvStep,
            inputs=self.inputs[:1],
            weights=scaled.weights,
            weight_zero=op.weight_zero_point,
            bias=scaled.bias,
            multipliers=scaled.multipliers,
            shift=scaled.shift,
            seconds=scaled.seconds,
            errors=scaled.errors,
            window=op.window.used(self.output),
            depthwise=op.depthwise,
            limits=limits,
            converter=converter,
            x_zero=0 if transposed else x.zero_point,
            insert=op.insert,
            correction=correction,
        )

    def _correction_bytes(self) -> int:
        """Size of the data of `_missing_zeros`: int32 for whole groups of 32 channels."""
        kernels, height, width = self.output.cube
        return 4 * 32 * -(-kernels // 32) * height * width

    def _phases(self) -> list[Step]:
        """Lower a transposed convolution as a plain one with a kernel for each phase of the output.

        Pixel (s * y + i, s * x + j) of channel k is pixel (y, x) of channel (i * s + j) * K + k, with s the
        distance of the input's pixels.  Zeros are inserted only where `Blocks` puts the phases together.
        """
        op, x, s = self.op, self.x, self.op.insert[0]
        axes = []
        for taps, dilation, pad in zip(
            op.window.kernel, op.window.dilations, op.window.pads[:2], strict=True
        ):
            places = [(r, k, r + k * dilation - pad) for r in range(s) for k in range(taps)]
            real = [(r, k, at // s) for r, k, at in places if at % s == 0]
            first = min(0, *(at for _, _, at in real))
            axes.append((first, max(0, *(at for _, _, at in real)) - first + 1, real))
        (top, rows, down), (left, columns, across) = axes
        old, kernels = op.npu_weights, len(op.weights)
        weights = np.full((s, s, kernels, old.shape[1], rows, columns), op.weight_zero_point, dtype=np.int8)
        if op.depthwise:
            old = _dense(old, op.weight_zero_point)
            weights = np.full((s, s, *old.shape[:2], rows, columns), op.weight_zero_point, dtype=np.int8)
        for i, k, row in down:
            for j, m, column in across:
                weights[i, j, :, :, row - top, column - left] = old[:, :, k, m]
        cube = (s * s * kernels, *(-(-n // s) for n in self.output.cube[1:]))
        pads = (
            -top,
            -left,
            *(
                q + taps - 1 + first - size
                for q, taps, first, size in zip(
                    cube[1:], (rows, columns), (top, left), x.cube[1:], strict=True
                )
            ),
        )
        between = replace(self.output, name=f"{op.output}.phases", shape=(1, *cube), cube=cube)
        conv = g.Conv(
            op.name,
            op.inputs,
            between.name,
            weights.reshape(-1, *weights.shape[3:]),
            np.tile(op.weight_scales, s * s),
            op.weight_zero_point,
            np.tile(op.bias, s * s),
            Window((rows, columns), pads=(pads[0], pads[1], max(pads[2], 0), max(pads[3], 0))),
            source=op.source,
            clamp=op.clamp,
        )
        blocks = g.Blocks(op.name, (between.name,), op.output, s)
        return [*self.also(conv, self.inputs[:1], between), *self.also(blocks, (between,), self.output)]

    def _missing_zeros(self, scaled: Scaled) -> npt.NDArray[np.int32]:
        """Return the contribution of -x_zero to v at each output pixel; only taps on input pixels count."""
        op, (_, height, width) = self.op, self.x.cube
        kernels, out_height, out_width = self.output.cube
        sums = (scaled.weights.astype(np.int64) - op.weight_zero_point).sum(axis=1)  # (OC, kh, kw)
        total = np.zeros((kernels, out_height, out_width), dtype=np.int64)
        for row in range(op.window.kernel[0]):
            vy = np.arange(out_height) + row * op.window.dilations[0] - op.window.pads[0]
            good_y = (vy % op.insert[0] == 0) & (vy >= 0) & (vy <= (height - 1) * op.insert[0])
            for column in range(op.window.kernel[1]):
                vx = np.arange(out_width) + column * op.window.dilations[1] - op.window.pads[1]
                good_x = (vx % op.insert[1] == 0) & (vx >= 0) & (vx <= (width - 1) * op.insert[1])
                total += sums[:, row, column, None, None] * (good_y[:, None] & good_x[None])
        factors = scaled.multipliers / 2.0**scaled.shift
        if scaled.seconds is not None:
            factors = factors * scaled.seconds / 2.0**SECOND_SHIFT
        return np.rint(-self.x.zero_point * total * factors[:, None, None]).astype(np.int32)

    def _to_codes(self, second: bool = False) -> tuple[dict[str, Any], tuple[int, int]]:
        """Return the fields of a `ConvStep` that rounds to the codes of `between`, with 15-bit multipliers.

        `second` tells whether BN is free for a second multiplier.

        Returns
        -------
        The fields, and the limits (low, high) of these codes less their zero point: those of the
        convolution's clamp and of int8.
        """
        conv, between, x = self.op.conv, self.op.between, self.x
        if conv.insert != (1, 1):
            raise ModelError("a transposed convolution needs EW itself")
        if exceeds(conv, self.output):
            raise ModelError("a convolution of this size has several tasks")
        zero, factor = conv.weight_zero_point, x.scale / between.scale
        scaled = scaled_channels(
            conv.npu_weights, conv.weight_scales, zero, conv.bias, factor, second=second, codes=True
        )
        if not second and float(scaled.errors.max()) > SINGLE_ERROR:
            raise ModelError(
                f"channel {int(scaled.errors.argmax())} needs a second multiplier in BN, which is in use"
            )
        check_sums(scaled.weights, zero, scaled.bias, self.what)
        fields = {
            "weights": scaled.weights,
            "weight_zero": zero,
            "bias": scaled.bias,
            "multipliers": scaled.multipliers,
            "seconds": scaled.seconds,
            "errors": scaled.errors,
            "window": conv.window.used(self.output),
            "depthwise": conv.depthwise,
            "x_zero": x.zero_point,
            "shift": scaled.shift,
        }
        ends = []
        for real, end in ((conv.clamp.low, -128), (conv.clamp.high, 127)):
            code = round(real / between.scale) + between.zero_point if math.isfinite(real) else end
            ends.append(min(max(code, -128), 127) - between.zero_point)
        return fields, (ends[0], ends[1])

    def conv_add(self) -> list[Step]:
        """Add in the convolution's task, with the arithmetic of two separate tasks.

        BS rounds the sums to codes of the convolution's output.  BN limits them to int8 or to the
        activation's range, and scales them to the unit of the addition.  The rest is the same as in a
        separate addition: both terms are in steps of 2^-14 of the coarser operand (each is below 2^22), the
        other operand passes EW's converter, and OUT_CVT rounds once more.
        """
        between, b = self.op.between, self.inputs[1]
        unit = max(between.scale, b.scale) / 2**BS_SHIFT
        own, other = (max(1, round(t.scale / unit)) for t in (between, b))
        limits = self.limits(unit)
        if self.op.conv.insert == (1, 1) and limits is not None and limits[0] != 0:
            raise ModelError("EW can clamp only at 0")
        fields, ends = self._to_codes()
        addend = Addend(between, ends, own, other)
        return self.step(ConvStep, limits=limits, converter=self.converter(unit), addend=addend, **fields)

    def conv_lookup(self) -> list[Step]:
        """Convert sums to codes of the convolution's output in BS; the LUT has one entry for each code."""
        between = self.op.between
        fields, ends = self._to_codes(second=True)
        first, last = (limit + between.zero_point + 128 for limit in ends)
        activation = Activation(between, ends, self.op.table[first : last + 1])
        return self.step(ConvStep, inputs=self.inputs[:1], limits=ends, activation=activation, **fields)

    def conv_slope(self) -> list[Step]:
        """Multiply negative numbers in the convolution's task, with the arithmetic of two separate tasks.

        BS rounds the sums to codes of the convolution's output, BN scales them to steps of 2^-14, EW
        multiplies the negative ones, and OUT_CVT rounds once more.  No stage is left that could saturate
        the convolution's codes to int8, so the output must saturate at the same points.
        """
        op, between = self.op, self.op.between
        if op.conv.insert == (1, 1):
            if op.slopes.size > 1:
                raise ModelError("EW has one slope for all channels of bytes")
            self._check_ends()
        fields, _ = self._to_codes()
        slopes = replace(self.slopes(), between=between, own_scale=self.unit)
        converter = self.converter(between.scale / self.unit)
        return self.step(ConvStep, inputs=self.inputs[:1], converter=converter, slopes=slopes, **fields)

    def _check_ends(self) -> None:
        """Refuse an output range that exceeds, by more than a step, what codes of `between` can produce."""
        output, slope = self.output, float(self.op.slopes[0])
        (low, high), (bottom, top) = (
            [(code - tensor.zero_point) * tensor.scale for code in (-128, 127)]
            for tensor in (self.op.between, output)
        )
        if slope < 0 or top > high + output.scale or bottom < low * slope - output.scale:
            raise ModelError("the output's range exceeds that of the convolution's int8 result")

    def binary(self) -> list[Step]:
        a, b = self.inputs
        method = self.op.method
        if b.cube != a.cube and b.cube[1:] != (1, 1):
            raise ModelError(f"{self.what}: operands {a.shape} and {b.shape} cannot be combined")
        if b.cube[1:] == (1, 1) and b.cube != a.cube and b.cube[0] != a.cube[0]:
            raise ModelError(f"{self.what}: '{b.name}' has {b.cube[0]} channels, '{a.name}' {a.cube[0]}")
        if method == "div":
            raise ModelError(f"{self.what} is not supported on bytes")
        if method == "mul":
            scales, unit = (1, 1), a.scale * b.scale
        else:
            largest = max(a.scale, b.scale)
            first, second = (max(1, round(2**BS_SHIFT * t.scale / largest)) for t in self.inputs)
            signs = (-1 if method == "rsub" else 1, -1 if method == "sub" else 1)
            scales, unit = (first * signs[0], second * signs[1]), largest / 2**BS_SHIFT
            method = "add" if method == "rsub" else method
        limits = self.limits(unit)
        if limits is not None and limits[0] != 0:
            return self.clamp_apart("unclamped")
        converter = self.converter(unit)
        return self.step(BinaryStep, method=method, scales=scales, limits=limits, converter=converter)

    def pool(self) -> list[Step]:
        op, x, output = self.op, self.x, self.output
        same = x.same_values(output) and not self.clamped
        if op.method == "max":
            if not same:
                return self.clamp_apart("pooled", like=x)
            if not ppu_does(op, output):
                return self.host("MaxPool", window=op.window)
            return self.step(PoolStep, method="max", window=op.window, pad_value=-128)
        if not op.count_pad and reaches_outside(op.window, x, output):
            return self.clamp_apart("pooled") if self.clamped else self.host("AveragePool", window=op.window)
        if same and ppu_does(op, output):
            return self.step(PoolStep, method="average", window=op.window, pad_value=x.zero_point)
        if op.whole and max(op.window.kernel) > CONV_KERNEL:
            return self._staged_average()
        if self.past_convolution():
            return self.host("AveragePool", window=op.window)
        # For another output scale, or a map larger than the PPU's window: a depthwise convolution of ones,
        # which rounds once.
        unit = x.scale / (op.window.kernel[0] * op.window.kernel[1])
        return self._ones(op.window.used(output), unit, self.limits(unit))

    def _staged_average(self) -> list[Step]:
        """Lower a global average over a map larger than a kernel, with one rounding to the output's codes.

        The sums of blocks are stored with 14 bits: a byte for their average, and a byte for 64 times the
        rest.  A depthwise convolution over both adds them with the weights 64 and 1.
        """
        op, x = self.op, self.x
        found = staged_blocks(op.window.kernel, halved=True)
        if found is None:
            return self.host("AveragePool", window=op.window)
        block, counts, axis = found
        taps = block[0] * block[1]
        pads = (0, 0, *(n * b - size for n, b, size in zip(counts, block, op.window.kernel, strict=True)))
        window = Window(block, block, pads)
        cube = (x.cube[0], *counts)
        mean = replace(
            x, name=f"{op.output}.blocks", shape=(1, *cube), cube=cube, channels_last=False, unsigned=False
        )
        rest = replace(mean, name=f"{op.output}.rests", scale=x.scale / BLOCK_STEPS, zero_point=0)
        whole = list(cube)
        whole[axis] *= 2
        both = replace(mean, name=f"{op.output}.both", shape=(1, *whole), cube=(whole[0], whole[1], whole[2]))
        first = {
            "weights": np.ones((cube[0], 1, *block), dtype=np.int8),
            "bias": np.zeros(cube[0], dtype=np.int64),
            "multipliers": np.full(cube[0], 2**BS_SHIFT, dtype=np.int64),
            "window": window,
            "depthwise": True,
            "x_zero": x.zero_point,
        }
        converter = Converter(*output_scale(1 / taps, self.what), mean.zero_point)
        steps = self.step(ConvStep, output=mean, converter=converter, **first)
        converter = Converter(*output_scale(BLOCK_STEPS / taps, self.what), 0)
        addend = Addend(replace(mean, name=f"{op.output}.sums"), (-(2**24), 2**24), 1, -taps)
        steps += self.step(
            ConvStep, inputs=(x, mean), output=rest, converter=converter, addend=addend, **first
        )
        target = [0, 0, 0]
        for part in (mean, rest):
            steps += self.step(
                CopyStep,
                inputs=(part,),
                output=both,
                source=(0, 0, 0),
                target=tuple(target),
                size=cube,
                scale=1,
                converter=Converter(1, 0, part.zero_point),
            )
            target[axis] += cube[axis]
        weights = np.ones((cube[0], 1, *both.cube[1:]), dtype=np.int8)
        weights[:, :, : counts[0], : counts[1]] = BLOCK_STEPS
        unit = x.scale * taps / (BLOCK_STEPS * math.prod(op.window.kernel))
        bias = -BLOCK_STEPS * mean.zero_point * counts[0] * counts[1]
        return steps + self.step(
            ConvStep,
            inputs=(both,),
            weights=weights,
            bias=np.full(cube[0], bias, dtype=np.int64),
            multipliers=first["multipliers"],
            window=Window(both.cube[1:]),
            depthwise=True,
            limits=self.limits(unit),
            converter=self.converter(unit),
        )

    def _ones(self, window: Window, unit: float, limits: Limits = None) -> list[Step]:
        """Return a depthwise convolution of ones, that is, sums of windows in `unit`."""
        channels = self.x.cube[0]
        return self.step(
            ConvStep,
            weights=np.ones((channels, 1, *window.kernel), dtype=np.int8),
            bias=np.zeros(channels, dtype=np.int64),
            multipliers=np.full(channels, 2**BS_SHIFT, dtype=np.int64),
            window=window,
            depthwise=True,
            limits=limits,
            converter=self.converter(unit),
            x_zero=self.x.zero_point,
        )

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
        x = ends.get("inputs", self.inputs)[0]
        outside = x.zero_point if value is None else int(value)
        if insert != (1, 1):
            outside = 0  # the inserted bytes; each window has the real sum `norm`
        kernels = len(weights)
        unit = x.scale / norm
        return self.step(
            ConvStep,
            weights=weights,
            bias=np.full(kernels, (outside - x.zero_point) * norm, dtype=np.int64),
            multipliers=np.full(kernels, 2**BS_SHIFT, dtype=np.int64),
            window=window,
            depthwise=depthwise,
            limits=self.limits(unit),
            converter=self.converter(unit),
            x_zero=outside,
            insert=insert,
            **{"inputs": (x,), **ends},
        )

    def whole(self, weights: Array) -> tuple[Array, int] | None:
        smallest = float(np.abs(weights[weights != 0]).min())
        for parts in range(1, 5):
            codes = np.rint(weights * (parts / smallest))
            norm = codes.sum() / weights.sum()
            exact = np.allclose(codes / norm, weights, atol=1e-6) and abs(norm - round(norm)) < 1e-6
            if exact and np.abs(codes).max() <= 127:
                return codes.astype(np.int8), round(norm)
        return None

    def joined_channels(self) -> list[Step]:
        """Place the channels of each input with a convolution of ones that adds what is there already."""
        y, steps, first = self.output, [], 0
        before: Tensor | None = None
        for number, x in enumerate(self.inputs):
            last = number == len(self.inputs) - 1
            made = y if last else replace(y, name=f"{y.name}.join{number}")
            weights = np.zeros((y.cube[0], x.cube[0], 1, 1), dtype=np.int8)
            weights[first + np.arange(x.cube[0]), np.arange(x.cube[0])] = 1
            first += x.cube[0]
            step = self.select(weights, Window((1, 1)), inputs=(x,), output=made)[0]
            if before is not None:
                step = self._added_to(step, x, before)
            steps.append(step)
            before = made
        return steps

    def _added_to(self, step: Step, x: Tensor, before: Tensor) -> Step:
        """Return a convolution of ones with the codes of `before`, quantised as its output, added."""
        assert isinstance(step, ConvStep)
        y, factor = step.output, x.scale / step.output.scale
        if not MULTIPLIER_LIMIT / 2.0**MAX_SHIFT < factor <= MULTIPLIER_LIMIT:
            raise ModelError(f"{self.what}: the scales of '{x.name}' and '{y.name}' are too far apart")
        shift = math.floor(math.log2(MULTIPLIER_LIMIT / factor))
        ends = (-128 - y.zero_point, 127 - y.zero_point)
        addend = Addend(replace(y, name=f"{y.name}.alone"), ends, 2**BS_SHIFT, 2**BS_SHIFT)
        return replace(
            step,
            inputs=(x, before),
            multipliers=np.full(len(step.multipliers), round(factor * 2.0**shift), dtype=np.int64),
            shift=shift,
            converter=self.converter(y.scale / 2**BS_SHIFT),
            addend=addend,
        )

    def slopes(self) -> Slopes:
        return Slopes(*fixed_slopes(self.op.slopes, self.what))

    def lookup(self) -> list[Step]:
        """Lower a table."""
        return self.step(LookupStep, table=self.op.table)


def _dense(weights: Array, zero: int) -> Array:
    """Return depthwise weights (C, 1, kh, kw) as dense ones (C, C, kh, kw)."""
    full = np.full((len(weights), len(weights), *weights.shape[2:]), zero, dtype=weights.dtype)
    full[np.arange(len(weights)), np.arange(len(weights))] = weights[:, 0]
    return full
