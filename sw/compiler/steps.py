"""The exact arithmetic of layers, one class for each kind of step (`rkcosim.compiler.lowering.lower`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from rkcosim.compiler.graph import Program, Tensor, Window
from rkcosim.compiler.graph_products import Factors

Limits = tuple[int, int | None] | None
"""Clamp of v: (low, high), with high None if there is no upper limit; None for no clamp."""

Cube = tuple[int, int, int]


@dataclass(frozen=True)
class Step:
    """Base of all steps; `inputs` and `output` are the tensors whose bytes are read and written."""

    name: str
    kind: str
    inputs: tuple[Tensor, ...]
    output: Tensor

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """All tensors that are written: `output`, and for a `CallStep` those after it."""
        return (self.output,)


def layer_names(steps: Iterable[Step]) -> list[str]:
    """Return a name for each step: its own; if several are equal, all but the first end with .2, .3 etc."""
    own = [step.name for step in steps]
    taken, seen, found = set(own), Counter[str](), list[str]()
    for name in own:
        seen[name] += 1
        unique = name
        while seen[name] > 1 and unique in taken:
            unique = f"{name}.{seen[name]}"
            seen[name] += unique in taken
        taken.add(unique)
        found.append(unique)
    return found


@dataclass(frozen=True)
class Converter:
    """The output converter: y = sat8(rne(v * scale / 2^shift) + zero)."""

    scale: int
    shift: int
    zero: int


@dataclass(frozen=True)
class Addend:
    """A tensor added to a convolution's v: `inputs[1]`, without its zero point, times `scale`.

    v is a code of `between`, the output that the convolution has without the addition, less its zero point;
    it is clamped to `own_limits` and multiplied by `own_scale`.
    """

    between: Tensor
    own_limits: tuple[int, int]
    own_scale: int
    scale: int


@dataclass(frozen=True)
class Activation:
    """A table applied to a convolution's v: y = table[v - limits[0]], int8.

    v is a code of `between`, the output that the convolution has without the table, less its zero point;
    it is clamped to `limits`, and the table has one entry for each code between them.
    """

    between: Tensor
    limits: tuple[int, int]
    table: npt.NDArray[np.int8]


@dataclass(frozen=True)
class Slopes:
    """Factors of negative numbers, one or one per channel: int64 / 2^shift, or float16 for floats.

    After a convolution of bytes v is a code of `between`, the output that the convolution has without the
    slopes, less its zero point, times `own_scale`.
    """

    values: npt.NDArray[np.int64] | npt.NDArray[np.float16]
    shift: int
    between: Tensor | None = None
    own_scale: int = 1

    @property
    def words(self) -> npt.NDArray[np.int64]:
        """Operands of BN as signed 16-bit numbers: integers, or the bit patterns of fp16 numbers."""
        values = self.values
        return (values.view(np.int16) if values.dtype == np.float16 else values).astype(np.int64)


@dataclass(frozen=True, kw_only=True)
class ConvStep(Step):
    """A direct (weights (OC, IC, kh, kw)) or depthwise (weights (C, 1, kh, kw)) convolution."""

    weights: npt.NDArray[np.int8]
    weight_zero: int = 0
    bias: npt.NDArray[np.int64]
    multipliers: npt.NDArray[np.int64]
    window: Window
    depthwise: bool
    limits: Limits = None
    converter: Converter = Converter(1, 0, 0)
    x_zero: int = 0
    insert: tuple[int, int] = (1, 1)
    correction: npt.NDArray[np.int32] | None = None
    """int32 (OC, OH, OW), added to v; None if nothing is added."""

    shift: int = 14
    """Right shift of the product with a channel's multiplier."""
    seconds: npt.NDArray[np.int64] | None = None
    """Second multiplier of each channel, with a right shift of 14; not together with addend or slopes."""
    errors: npt.NDArray[np.float64] | None = None
    """Estimated error of each channel, in steps of the output, that the rounded multipliers cause."""
    addend: Addend | None = None
    activation: Activation | None = None
    slopes: Slopes | None = None
    """Slopes of negative v; not together with limits, correction, addend or activation."""

    @property
    def alone(self) -> ConvStep:
        """The convolution without its addition, table or (for bytes) slopes, with the output `between`."""
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
        """Whether the addend has one value per channel."""
        return self.addend is not None and self.inputs[1].cube != self.output.cube

    @property
    def macs(self) -> int:
        """Multiply-accumulates with real operands."""
        _, height, width = self.output.cube
        return int(self.weights.size) * height * width


StepMethod = Literal["add", "sub", "mul", "max", "min"]
"""Operations of a `BinaryStep`; of bytes a difference adds with a negative scale."""


@dataclass(frozen=True)
class BinaryStep(Step):
    """An element-wise step on two tensors; the second may be a constant, or have one value per channel."""

    method: StepMethod
    scales: tuple[int, int]
    limits: Limits
    converter: Converter

    @property
    def per_channel(self) -> bool:
        """Whether the second operand has one value per channel."""
        return self.inputs[1].cube != self.inputs[0].cube


@dataclass(frozen=True)
class RescaleStep(Step):
    """Converts the input to the output's quantisation."""

    scale: int
    limits: Limits
    converter: Converter


@dataclass(frozen=True)
class SlopeStep(Step):
    """v = x * scale, with negative numbers multiplied by slopes."""

    slopes: Slopes
    scale: int
    converter: Converter


@dataclass(frozen=True)
class LookupStep(Step):
    """A function of one byte; `table` is int8 (256,), indexed by x + 128."""

    table: npt.NDArray[np.int8]


@dataclass(frozen=True)
class CopyStep(Step):
    """Copies `size` elements from `source` in x, rescaled, to `target` in y; all three are (C, H, W)."""

    source: Cube
    target: Cube
    size: Cube
    scale: int
    converter: Converter


FloatMethod = Literal["", "add", "sub", "mul", "div", "max", "min", "abs", "neg", "floor", "ceil"]


@dataclass(frozen=True, eq=False)
class FloatStage:
    """A stage of the DPU on binary32 numbers; each operation is rounded, None means no operation.

    `add` is float32 and `mul` float16, (1,) or one number per channel.  Then with `relu` negative numbers
    become 0, and numbers above `high` become `high`.
    """

    add: npt.NDArray[np.float32] | None = None
    mul: npt.NDArray[np.float16] | None = None
    relu: bool = False
    high: float | None = None

    def varies(self, name: str) -> bool:
        """Whether `add` or `mul` has one number per channel."""
        values = getattr(self, name)
        return values is not None and values.size > 1

    @property
    def empty(self) -> bool:
        """Whether the stage does nothing."""
        return self.add is None and self.mul is None and not self.relu and self.high is None


@dataclass(frozen=True, kw_only=True)
class FloatStep(Step):
    """Element-wise operations on fp16 in one task.

    `first` adds and then multiplies, `second` multiplies and then adds.  `method` combines the result with
    `operand` or, if that is None, with the second input (or with nothing: abs, neg, floor, ceil); `last` only
    limits.  The divider takes fp16 bits [HW 7.8.10]: div divides the first input, or the number `dividend`,
    by the second input, and there are no stages before and after it.

    Raises
    ------
    ValueError
        A division with other stages, or a dividend without a division.
    """

    first: FloatStage = FloatStage()
    second: FloatStage = FloatStage()
    method: FloatMethod = ""
    operand: float | None = None
    dividend: float | None = None
    last: FloatStage = FloatStage()

    def __post_init__(self) -> None:
        stages = all(stage.empty for stage in (self.first, self.second, self.last))
        if self.method == "div" and (not stages or self.operand is not None):
            raise ValueError(f"{self.kind}: the divider takes the first input or a constant as it is")
        if self.method != "div" and self.dividend is not None:
            raise ValueError(f"{self.kind}: a dividend without a division")

    @property
    def per_channel(self) -> bool:
        """Whether the second input has one value per channel."""
        return len(self.inputs) > 1 and self.inputs[1].cube != self.inputs[0].cube


@dataclass(frozen=True, kw_only=True)
class TableStep(Step):
    """A function of an fp16 number from two tables of int16 entries, with linear interpolation.

    The index is i = rne(x * scale).  Entry n of `low` belongs to i = (n - N) * 2^select with N the number of
    its last entry, entry n of `high` to i = n * 2^select.  The value y is interpolated and rounded down;
    outside the tables it is the first or last entry.  The result is y, or with `fraction`
    (y + 1) / 2^fraction, where 2^-fraction becomes 0.
    """

    scale: float
    low: npt.NDArray[np.int16]
    high: npt.NDArray[np.int16]
    select: int
    fraction: int


@dataclass(frozen=True, kw_only=True)
class FoldStep(Step):
    """The largest of `size` surfaces, lane by lane, of the first `surfaces` surfaces of an fp16 tensor.

    Channel 8n + e of y is the largest of the channels 8(n * size + k) + e of x with k below `size`.
    """

    size: int
    surfaces: int


@dataclass(frozen=True)
class RepeatStep(Step):
    """Writes every pixel `factors` times (rows, columns); the bytes do not change."""

    factors: tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class AtomsStep(Step):
    """The atoms of 32 elements of a kernel next to each other; the elements do not change.

    Element e of y's channel 8b + e, row n, column s is element k = 32b + 8s + e of kernel n: x's channel k in
    row n or, unless `factors.turned`, x's channel n in row k.
    """

    factors: Factors

    @property
    def surfaces_read(self) -> int:
        """Surfaces of the input: whole weight tiles if its channels are the depth."""
        blocks = self.output.cube[0] // 8
        return 4 * blocks if self.factors.turned else -(-self.inputs[0].cube[0] // 8)


@dataclass(frozen=True, kw_only=True)
class TilesStep(Step):
    """The weights of all heads in the CNA's layout, from the result of an `AtomsStep`.

    Channel 8(g + h * groups) + e, row b, column 4j + s of y is x's channel 8(b + h * block_step) + e,
    row 16g + j + h * row_step, column s.
    """

    factors: Factors


@dataclass(frozen=True, kw_only=True)
class ByteTilesStep(Step):
    """The weights of all heads in the CNA's layout; the codes do not change.

    Channel 16(g + h * groups) + e, row b, column 2j + s of y is element k = 32b + 16s + e of the kernel
    n = 32g + j of head h: x's channel k in row n or, unless `factors.turned`, x's channel n in row k.
    """

    factors: Factors

    @property
    def surfaces_read(self) -> int:
        """Surfaces of the input: whole weight tiles if its channels are the depth."""
        factors = self.factors
        own = -(-self.inputs[0].cube[0] // factors.atom)
        if not factors.turned:
            return own
        before = (factors.heads - 1) * -(-factors.depth // factors.atom) if factors.split_b else 0
        return max(own, before + factors.block_atoms * factors.blocks)


@dataclass(frozen=True, kw_only=True)
class PermuteStep(Step):
    """The array of x in memory, pixels before channels, of sizes `stored`; its axes in `order` in y's."""

    stored: tuple[int, ...]
    order: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class SumsStep(Step):
    """Bytes of int32, for each kernel: `zero` * sum over k of (w[k] - weight_zero)."""

    factors: Factors
    zero: int
    weight_zero: int


@dataclass(frozen=True, kw_only=True)
class ProductStep(Step):
    """Each head's rows of x times its weights.

    fp16: sums of tiles of 32 products in binary32 [HW 6.2]; with `scale` other than 1 they are multiplied by
    it, in binary32.  Codes: v = sum of x[k] * (w[k] - weight_zero), less the kernel's entry of `inputs[2]`,
    if there is one, to `converter`.
    """

    factors: Factors
    scale: float = 1.0
    weight_zero: int = 0
    converter: Converter = Converter(1, 0, 0)

    @property
    def surfaces_read(self) -> int:
        """Surfaces of the first factor: whole weight tiles from the last head's first channel on."""
        factors = self.factors
        before = (factors.heads - 1) * -(-factors.depth // factors.atom) if factors.split_a else 0
        return before + factors.block_atoms * factors.blocks

    @property
    def surfaces_written(self) -> int:
        """Surfaces of the result: whole kernel groups from the last head's first channel on."""
        factors = self.factors
        before = (factors.heads - 1) * -(-factors.columns // factors.atom) if factors.split_y else 0
        return before + 2 * factors.groups


@dataclass(frozen=True)
class HostStep(Step):
    """A function that the host computes on whole tensors."""

    function: str
    attributes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class CallStep(HostStep):
    """A part of the model that another runtime computes on the host (`rkcosim.compiler.host_runtimes`).

    `inputs` and `outputs` correspond to the program's `takes` and `gives`.  There may be no input.
    """

    function: str = "Call"
    program: Program
    more: tuple[Tensor, ...] = ()
    """The outputs after the first."""

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """All outputs of the program."""
        return (self.output, *self.more)


@dataclass(frozen=True)
class PoolStep(Step):
    """Pooling on the PPU; `pad_value` is the byte used for padding."""

    method: Literal["max", "average"]
    window: Window
    pad_value: int
