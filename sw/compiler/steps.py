"""What a layer computes as exact integers, one class per way of computing it (see `sw.compiler.lower`)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from sw.compiler.graph import BinaryMethod, Tensor, Window

Limits = tuple[int, int | None] | None
"""Clamp of v: (low, high or open), or none."""

Cube = tuple[int, int, int]


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
class Addend:
    """A tensor added to a convolution's v: `inputs[1]`, without its zero point, times `scale`.

    v is a code of `between`, what the convolution alone would have made, without its zero point; it
    ends at `own_limits` and is multiplied by `own_scale`.
    """

    between: Tensor
    own_limits: tuple[int, int]
    own_scale: int
    scale: int


@dataclass(frozen=True)
class Activation:
    """A table that a convolution's v goes through: y = table[v - limits[0]], int8.

    v is a code of `between`, what the convolution alone would have made, without its zero point; it
    ends at `limits`, and the table has an entry for each code from the first to the last.
    """

    between: Tensor
    limits: tuple[int, int]
    table: npt.NDArray[np.int8]


@dataclass(frozen=True)
class Slopes:
    """Factors of negative numbers, one or one a channel: int64 / 2^shift, or float16 for floats.

    Behind a convolution of bytes v is a code of `between`, what that alone would have made, without its
    zero point, times `own_scale`.
    """

    values: npt.NDArray[np.int64] | npt.NDArray[np.float16]
    shift: int
    between: Tensor | None = None
    own_scale: int = 1

    @property
    def words(self) -> npt.NDArray[np.int64]:
        """The operands of BN as signed 16 bits: integers, or the patterns of fp16 numbers."""
        values = self.values
        return (values.view(np.int16) if values.dtype == np.float16 else values).astype(np.int64)


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
    x_zero: int
    insert: tuple[int, int] = (1, 1)
    correction: npt.NDArray[np.int32] | None = None
    """int32 (OC, OH, OW), added to v; None for none."""

    shift: int = 14
    """Right shift of the product with a channel's multiplier."""
    addend: Addend | None = None
    activation: Activation | None = None
    slopes: Slopes | None = None
    """Of negative v; without limits, correction, addend and activation."""

    @property
    def alone(self) -> ConvStep:
        """The convolution of one with an addition, a table or (of bytes) slopes, giving `between`."""
        if self.addend is not None:
            between, limits = self.addend.between, self.addend.own_limits
        elif self.activation is not None:
            between, limits = self.activation.between, self.activation.limits
        elif self.slopes is not None and self.slopes.between is not None:
            between, limits = self.slopes.between, None
        else:
            return self
        plain = Converter(1, 0, between.zero_point)
        return replace(
            self,
            name=between.name,
            kind=self.kind.split("+")[0],
            inputs=self.inputs[:1],
            output=between,
            limits=limits,
            converter=plain,
            addend=None,
            activation=None,
            slopes=None,
        )

    @property
    def added_per_channel(self) -> bool:
        """Whether the addend is one value a channel."""
        return self.addend is not None and self.inputs[1].cube != self.output.cube

    @property
    def macs(self) -> int:
        """Multiply-accumulates with real operands."""
        _, height, width = self.output.cube
        return int(self.weights.size) * height * width


@dataclass(frozen=True)
class BinaryStep(Step):
    """Two tensors element by element; the second may be a constant, or one value a channel."""

    method: BinaryMethod
    scales: tuple[int, int]
    limits: Limits
    converter: Converter

    @property
    def per_channel(self) -> bool:
        """Whether the second operand is one value a channel."""
        return self.inputs[1].cube != self.inputs[0].cube


@dataclass(frozen=True)
class RescaleStep(Step):
    """The input in the output's quantisation."""

    scale: int
    limits: Limits
    converter: Converter


@dataclass(frozen=True)
class SlopeStep(Step):
    """v = x * scale with negative numbers times slopes."""

    slopes: Slopes
    scale: int
    converter: Converter


@dataclass(frozen=True)
class LookupStep(Step):
    """A function of one byte; `table` int8 (256,) by x + 128."""

    table: npt.NDArray[np.int8]


@dataclass(frozen=True)
class CopyStep(Step):
    """`size` elements from `source` in x, rescaled, to `target` in y, all (C, H, W)."""

    source: Cube
    target: Cube
    size: Cube
    scale: int
    converter: Converter


@dataclass(frozen=True)
class HostStep(Step):
    """A function that the host computes from whole tensors."""

    function: str
    attributes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class PoolStep(Step):
    """Pooling on the PPU; `pad_value` is the byte that stands for padding."""

    method: Literal["max", "average"]
    window: Window
    pad_value: int
