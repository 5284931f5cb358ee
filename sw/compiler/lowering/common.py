"""What the lowering of bytes and of fp16 numbers has in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy.typing as npt

from rkcosim.compiler import graph as g
from rkcosim.compiler.constraints.pools import max_pool_window
from rkcosim.compiler.graph import Clamp, ModelError, Op, Tensor, Window
from rkcosim.compiler.limits import CONV_KERNEL, CONV_STRIDE, INSERTS
from rkcosim.compiler.steps import (
    Converter,
    CopyStep,
    Cube,
    HostStep,
    Limits,
    RescaleStep,
    Slopes,
    SlopeStep,
    Step,
)

Array = npt.NDArray[Any]

MAX_CORRECTION = 2**16
"""Largest size in bytes of the data that correct a transposed convolution for inserted zeros."""
BLOCK_STEPS = 64
"""Steps of the rest of a block's sum in one step of its average."""


class Lowering(ABC):
    """Turns one operation into steps; subclasses implement the arithmetic of bytes and of fp16 numbers."""

    atom_channels: int
    unit: int
    """Multiplier of the BS stage if it need not scale."""

    def __init__(self, op: Op, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        self.op: Any = op
        self.inputs, self.output = inputs, output
        self.x = inputs[0]
        self.what = f"{op.kind} '{op.name}'"

    def steps(self) -> list[Step]:
        """Return the steps of the operation."""
        table: dict[type[Op], Callable[[], list[Step]]] = {
            g.Conv: self.conv,
            g.ConvAdd: self.conv_add,
            g.ConvLookup: self.conv_lookup,
            g.ConvSlope: self.conv_slope,
            g.Binary: self.binary,
            g.Pool: self.pool,
            g.Rescale: self.rescale,
            g.Slope: self.slope,
            g.Lookup: self.lookup,
            g.Affine: self.affine,
            g.RealFunction: self.real_function,
            g.OnHost: lambda: self.host(self.op.function, **self.op.attributes),
        }
        return {**table, **self.movements()}[type(self.op)]()

    @abstractmethod
    def movements(self) -> dict[type[Op], Callable[[], list[Step]]]:
        """Return the functions that lower operations which move elements."""

    @abstractmethod
    def converter(self, unit: float) -> Converter:
        """Return the output converter for results in units of `unit`."""

    @abstractmethod
    def limits(self, unit: float) -> Limits:
        """Return the operation's clamp for results in units of `unit`."""

    @abstractmethod
    def conv(self) -> list[Step]:
        """Lower a convolution."""

    @abstractmethod
    def conv_slope(self) -> list[Step]:
        """Lower a convolution with slopes."""

    @abstractmethod
    def binary(self) -> list[Step]:
        """Lower an element-wise operation on two tensors."""

    @abstractmethod
    def pool(self) -> list[Step]:
        """Lower a pooling."""

    @abstractmethod
    def slopes(self) -> Slopes:
        """Return the slopes of the operation."""

    def also(self, op: Op, inputs: tuple[Tensor, ...], output: Tensor) -> list[Step]:
        """Return the steps of another operation on tensors of the same type."""
        return type(self)(op, inputs, output).steps()

    @property
    def clamped(self) -> bool:
        """Whether the clamp changes results."""
        return bool(self.op.clamp != Clamp())

    def step(self, kind: type[Step], **fields: Any) -> list[Step]:
        """Return one step from the inputs to the output; `fields` may replace both."""
        ends = {"inputs": self.inputs, "output": self.output}
        return [kind(name=self.op.name, kind=self.op.kind, **{**ends, **fields})]

    def host(self, function: str, /, **attributes: Any) -> list[Step]:
        """Return one step in which the host computes the whole operation."""
        return self.step(HostStep, function=function, attributes=attributes)

    def clamp_apart(self, suffix: str, like: Tensor | None = None) -> list[Step]:
        """Lower the operation without its clamp, quantised as `like`, followed by clamp and rescaling."""
        like, op, output = like or self.output, self.op, self.output
        name, zero = f"{output.name}.{suffix}", like.zero_point
        between = replace(output, name=name, scale=like.scale, zero_point=zero, unsigned=like.unsigned)
        first = self.also(replace(op, output=between.name, clamp=Clamp()), self.inputs, between)
        rescale = g.Rescale(op.name, (between.name,), op.output, clamp=op.clamp)
        return [*first, *self.also(rescale, (between,), output)]

    def inserted_by_host(self) -> list[Step] | None:
        """Lower a transposed convolution whose zeros the host inserts; None if the NPU can insert them."""
        op, (channels, height, width) = self.op, self.x.cube
        if op.insert[0] in INSERTS and op.insert[1] in INSERTS:
            return None
        cube = (channels, (height - 1) * op.insert[0] + 1, (width - 1) * op.insert[1] + 1)
        wide = replace(self.x, name=f"{op.output}.spread", shape=(1, *cube), cube=cube, channels_last=False)
        first = self.step(
            HostStep, inputs=(self.x,), output=wide, function="Insert", attributes={"factors": op.insert}
        )
        plain = replace(op, inputs=(wide.name,), insert=(1, 1))
        return [*first, *self.also(plain, (wide,), self.output)]

    def conv_add(self) -> list[Step]:
        """Lower a convolution with an addition."""
        raise ModelError(f"{self.what} is not supported on floats")

    conv_lookup = lookup = conv_add

    def affine(self) -> list[Step]:
        """Lower a product and a sum with constants."""
        raise ModelError(f"{self.what} is not supported on bytes")

    real_function = affine

    def rescale(self) -> list[Step]:
        """Lower a change of quantisation."""
        unit = self.x.scale / self.unit
        converter = self.converter(unit)
        return self.step(RescaleStep, scale=self.unit, limits=self.limits(unit), converter=converter)

    def slope(self) -> list[Step]:
        """Lower the multiplication of negative numbers by slopes."""
        if self.clamped:
            return self.clamp_apart("unclamped")
        converter = self.converter(self.x.scale / self.unit)
        return self.step(SlopeStep, slopes=self.slopes(), scale=self.unit, converter=converter)

    def copy(
        self, x: Tensor, source: Cube, target: Cube, size: Cube, output: Tensor | None = None
    ) -> list[Step]:
        """Copy a part of `x`, rescaled, to a part of the output."""
        y = output or self.output
        converter = self.converter(x.scale / self.unit) if y == self.output else Converter(1, 0, x.zero_point)
        scale = self.unit if y == self.output else 1
        places = {"source": source, "target": target, "size": size}
        return self.step(CopyStep, inputs=(x,), output=y, scale=scale, converter=converter, **places)

    def past_convolution(self) -> bool:
        """Whether a pooling's window is larger than a convolution supports."""
        window = self.op.window
        return max(window.kernel) > CONV_KERNEL or max(window.used(self.output).strides) > CONV_STRIDE


def staged_blocks(
    size: tuple[int, int], halved: bool = False
) -> tuple[tuple[int, int], tuple[int, int], int] | None:
    """Return a division of a map into blocks that a convolution sums, and that another one can add.

    Parameters
    ----------
    size
        Rows and columns of the map.
    halved
        Whether the second convolution needs room for twice as many blocks along one axis.

    Returns
    -------
    Size of a block, number of blocks along each axis (the last one may exceed the map), and the axis of
    the cube (1 rows, 2 columns) with room for twice as many; None if there is no division.
    """
    for axis in (1, 2):
        limits = [CONV_KERNEL // 2 if halved and axis == place else CONV_KERNEL for place in (1, 2)]
        block = [-(-n // limit) for n, limit in zip(size, limits, strict=True)]
        if max(block) <= CONV_STRIDE:
            counts = [-(-n // b) for n, b in zip(size, block, strict=True)]
            return (block[0], block[1]), (counts[0], counts[1]), axis
    return None


def ppu_does(op: g.Pool, output: Tensor) -> bool:
    """Whether the PPU supports the window and the map of a pool."""
    return not max_pool_window.rule(op.window, op.whole, output.cube[1:])


def reaches_outside(window: Window, x: Tensor, y: Tensor) -> bool:
    """Whether any window has taps in the padding."""
    ends = [
        (y.cube[1 + axis] - 1) * window.strides[axis] + window.kernel[axis] - window.pads[axis]
        for axis in range(2)
    ]
    return any(window.pads[:2]) or any(end > size for end, size in zip(ends, x.cube[1:], strict=True))


def exceeds(conv: g.Conv, output: Tensor) -> bool:
    """Whether a convolution's window is larger than the hardware's (`rkcosim.compiler.lowering.wide`)."""
    window = conv.window.used(output)
    return max(window.kernel) > CONV_KERNEL or max(window.strides) > CONV_STRIDE
