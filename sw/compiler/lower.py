"""Graph operations to steps: everything that a layer computes, as exact integers.

A step says what bytes a layer makes without saying how the NPU is programmed; the register programs
(`sw.compiler.programs`) and the graph-level check both start from it.  `rne` is division by a power
of two, half to even; x, y are signed bytes.

ConvStep      acc = sum((x - x_zero) * (w - w_zero)) + bias      (x = x_zero outside the image)
              v = clamp(rne(acc * multiplier[c] / 2^14))
              y = sat8(rne(v * scale / 2^shift) + zero)
AddStep       v = clamp((a - a_zero) * a_scale + (b - b_zero) * b_scale)
              y = sat8(rne(v * scale / 2^shift) + zero)
RescaleStep   v = clamp((x - x_zero) * 2^14); y as above
PoolStep      max, or the average over kh * kw taps of HARDWARE 6.1, on the bytes themselves
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from sw.compiler.graph import Add, Clamp, Conv, Graph, ModelError, Op, Pool, Rescale, Tensor, Window
from sw.compiler.requant import (
    ACCUMULATOR_LIMIT,
    BS_SHIFT,
    channel_multipliers,
    clamp_in_unit,
    output_scale,
    saturating_clamp,
)

Limits = tuple[int, int | None] | None
"""Clamp of v: (low, high or open), or none."""

PPU_KERNEL = 16
PPU_PAD = 7
CONV_KERNEL = 31
"""Largest kernel side of a convolution (WEIGHT_WIDTH has five bits)."""


@dataclass(frozen=True)
class Step:
    """What all steps have; `inputs` and `output` are the tensors whose bytes are read and written."""

    name: str
    kind: str
    inputs: tuple[Tensor, ...]
    output: Tensor


@dataclass(frozen=True)
class Converter:
    """The output converter: y = sat8(rne(v * scale / 2^shift) + zero)."""

    scale: int
    shift: int
    zero: int


@dataclass(frozen=True)
class ConvStep(Step):
    """A direct (weights (OC, IC, kh, kw)) or depthwise (weights (C, 1, kh, kw)) convolution."""

    weights: npt.NDArray[np.int8]
    weight_zero: int
    bias: npt.NDArray[np.int64]
    multipliers: npt.NDArray[np.int64]
    window: Window
    depthwise: bool
    limits: Limits
    converter: Converter

    @property
    def macs(self) -> int:
        """Multiply-accumulates with real operands."""
        _, height, width = self.output.cube
        return int(self.weights.size) * height * width


@dataclass(frozen=True)
class AddStep(Step):
    """The sum of two tensors; the second may be a constant."""

    scales: tuple[int, int]
    limits: Limits
    converter: Converter


@dataclass(frozen=True)
class RescaleStep(Step):
    """The input in the output's quantisation."""

    scale: int
    limits: Limits
    converter: Converter


@dataclass(frozen=True)
class PoolStep(Step):
    """Pooling on the PPU; `pad_value` is the byte that stands for padding."""

    method: Literal["max", "average"]
    window: Window
    pad_value: int


def lower(graph: Graph) -> list[Step]:
    """Turn a graph's operations into steps, in order.

    A max pool that also changes scale or clamps becomes a pool and a rescale; the tensor between
    them is added to the graph.

    Raises
    ------
    ModelError
        for an operation that the NPU cannot do, naming it.
    """
    lowering: dict[type[Op], Callable[..., list[Step]]] = {
        Conv: _conv,
        Add: _add,
        Pool: _pool,
        Rescale: _rescale,
    }
    steps: list[Step] = []
    for op in graph.ops:
        inputs = tuple(graph.tensors[name] for name in op.inputs)
        steps += lowering[type(op)](op, inputs, graph.tensors[op.output])
    for step in steps:
        graph.tensors.setdefault(step.output.name, step.output)
    return steps


def _dense(op: Conv) -> npt.NDArray[np.int8]:
    """Weights with the groups spread over all channels, others at the weight zero point."""
    if op.groups == 1:
        return op.weights
    kernels, depth, height, width = op.weights.shape
    full = np.full((kernels, depth * op.groups, height, width), op.weight_zero_point, dtype=np.int8)
    for kernel in range(kernels):
        first = kernel // (kernels // op.groups) * depth
        full[kernel, first : first + depth] = op.weights[kernel]
    return full


def _conv(op: Conv, inputs: tuple[Tensor, ...], output: Tensor) -> list[Step]:
    x = inputs[0]
    weights = op.weights if op.depthwise else _dense(op)
    unit = x.scale * float(op.weight_scales.max())
    reach = np.abs(weights.astype(np.int64) - op.weight_zero_point).reshape(weights.shape[0], -1).sum(1)
    if int((reach * 255 + np.abs(op.bias)).max()) > ACCUMULATOR_LIMIT:
        raise ModelError(f"{op.kind} '{op.name}': sums can pass 32 bits")
    scale, shift = output_scale(unit / output.scale, f"{op.kind} '{op.name}'")
    return [
        ConvStep(
            op.name,
            op.kind,
            inputs,
            output,
            weights,
            op.weight_zero_point,
            op.bias,
            channel_multipliers(op.weight_scales),
            op.window,
            op.depthwise,
            clamp_in_unit(op.clamp, unit, output, f"{op.kind} '{op.name}'"),
            Converter(scale, shift, output.zero_point),
        )
    ]


def _add(op: Add, inputs: tuple[Tensor, ...], output: Tensor) -> list[Step]:
    largest = max(t.scale for t in inputs)
    scales = [max(1, round(2**BS_SHIFT * t.scale / largest)) for t in inputs]
    unit = largest / 2**BS_SHIFT
    limits = clamp_in_unit(op.clamp, unit, output, f"Add '{op.name}'")
    if limits is not None and limits[0] != 0:
        raise ModelError(f"Add '{op.name}': a clamp behind it must start at 0, not at {op.clamp.low:g}")
    scale, shift = output_scale(unit / output.scale, f"Add '{op.name}'")
    converter = Converter(scale, shift, output.zero_point)
    return [AddStep(op.name, op.kind, inputs, output, (scales[0], scales[1]), limits, converter)]


def _rescale(op: Rescale, inputs: tuple[Tensor, ...], output: Tensor) -> list[Step]:
    unit = inputs[0].scale / 2**BS_SHIFT
    what = f"{op.kind} '{op.name}'"
    scale, shift = output_scale(unit / output.scale, what)
    limits = clamp_in_unit(op.clamp, unit, output, what)
    converter = Converter(scale, shift, output.zero_point)
    return [RescaleStep(op.name, op.kind, inputs, output, 2**BS_SHIFT, limits, converter)]


def _pool(op: Pool, inputs: tuple[Tensor, ...], output: Tensor) -> list[Step]:
    x, what = inputs[0], f"{op.kind} '{op.name}'"
    kernel, strides, pads = op.window.kernel, op.window.strides, op.window.pads
    plain = saturating_clamp(op.clamp, output) == Clamp()
    fits = max(kernel) <= PPU_KERNEL and max(pads) <= PPU_PAD and (max(strides) <= PPU_KERNEL or op.whole)
    if op.method == "max":
        if not fits:
            raise ModelError(f"{what}: kernels and strides up to {PPU_KERNEL}, pads up to {PPU_PAD}")
        if x.same_values(output) and plain:
            return [PoolStep(op.name, op.kind, inputs, output, "max", op.window, -128)]
        between = replace(
            output, name=f"{op.output}.pooled", scale=x.scale, zero_point=x.zero_point, unsigned=x.unsigned
        )
        rescale = Rescale(op.name, (between.name,), op.output, clamp=op.clamp)
        return [
            PoolStep(op.name, op.kind, inputs, between, "max", op.window, -128),
            *_rescale(rescale, (between,), output),
        ]
    if x.same_values(output) and plain and fits:
        return [PoolStep(op.name, op.kind, inputs, output, "average", op.window, x.zero_point)]
    if op.whole and max(kernel) > CONV_KERNEL:
        return _staged_average(op, x, output)
    # Another output scale, or a map past the PPU's window: a depthwise convolution of ones rounds once.
    channels = x.cube[0]
    taps = kernel[0] * kernel[1]
    unit = x.scale / taps
    scale, shift = output_scale(unit / output.scale, what)
    return [
        ConvStep(
            op.name,
            op.kind,
            inputs,
            output,
            np.ones((channels, 1, *kernel), dtype=np.int8),
            0,
            np.zeros(channels, dtype=np.int64),
            np.full(channels, 2**BS_SHIFT, dtype=np.int64),
            op.window,
            True,
            clamp_in_unit(op.clamp, unit, output, what),
            Converter(scale, shift, output.zero_point),
        )
    ]


def _staged_average(op: Pool, x: Tensor, output: Tensor) -> list[Step]:
    """A global average past a convolution's kernel: block averages as bytes first, then their average."""
    sides = []
    for size in op.window.kernel:
        blocks = [n for n in range(1, CONV_KERNEL + 1) if size % n == 0 and size // n <= CONV_KERNEL]
        if not blocks:
            raise ModelError(f"{op.kind} '{op.name}': a map of {op.window.kernel} has no even blocks")
        sides.append(blocks[0])
    block = (sides[0], sides[1])
    cube = (x.cube[0], x.cube[1] // block[0], x.cube[2] // block[1])
    between = replace(x, name=f"{op.output}.blocks", shape=(1, *cube), cube=cube)
    first = Pool(op.name, op.inputs, between.name, "average", Window(block, block))
    second = replace(op, inputs=(between.name,), window=Window(cube[1:]))
    return [*_pool(first, (x,), between), *_pool(second, (between,), output)]
