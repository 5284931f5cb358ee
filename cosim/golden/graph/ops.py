"""Operations of the graph-level golden model: integer arithmetic on tensors, nothing else.

A tensor is an int8, int16 or int32 array [channels, rows, columns] with a name.  Nodes carry every
number that the arithmetic needs as explicit integers; they know neither registers nor layouts nor
tiles.  Rounding is to the nearest, ties to even, unless a node says otherwise (HARDWARE 12).

Notation: `R(p, s)` is p / 2^s rounded, `sat(v, bits)` clamps to a signed range.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cosim.golden.graph.floats import FloatNode

Pair = tuple[int, int]
"""(rows, columns)."""


@dataclass(frozen=True, kw_only=True)
class Output:
    """Last step of most nodes: from a 32-bit value v to the output tensor.

    ``y = sat(R(v * scale + offset * 2^shift, shift), bits)``: of two neighbours equally near, y is the
    even one.
    """

    scale: int = 1
    shift: int = 0
    offset: int = 0
    """Output zero point."""
    bits: Literal[8, 16, 32] = 8
    half_away: bool = False
    """Ties away from zero instead of to even."""


@dataclass(frozen=True, kw_only=True)
class Clamp:
    """Limits on the 32-bit value v before `Output`; None leaves a side open.  ReLU is low = 0."""

    low: int | None = None
    high: int | None = None


@dataclass(frozen=True, kw_only=True)
class Stage:
    """Per-channel add and multiply: ``v = sat(R((a + add) * mul, shift), 32)``, then the clamp.

    `add` and `mul` are one integer or one per channel; with `mul` None ``v = sat(a + add, 32)``.
    `shift_negative` replaces `shift` where the product is negative.
    """

    add: ArrayLike = 0
    mul: ArrayLike | None = None
    shift: int = 0
    shift_negative: int | None = None
    clamp: Clamp = field(default_factory=Clamp)


@dataclass(frozen=True, kw_only=True)
class Operand:
    """Conversion of a tensor that is combined with another: ``sat(R((x + offset) * scale, shift), 32)``."""

    offset: int = 0
    scale: int = 1
    shift: int = 0
    half_away: bool = False


@dataclass(frozen=True, kw_only=True)
class _Windowed:
    """What direct and depthwise convolutions share."""

    x: str
    y: str
    weights: NDArray[np.int8]
    size: Pair
    """Output (OH, OW)."""
    stride: Pair = (1, 1)
    dilation: Pair = (1, 1)
    pad: Pair = (0, 0)
    """(top, left)."""
    pad_value: int = 0
    window_mul: ArrayLike = 0
    """One integer or one per kernel: minus the weight zero point."""
    truncate: int = 0
    stage: Stage = field(default_factory=Stage)
    output: Output = field(default_factory=Output)
    insert: Pair = (1, 1)
    """Distance of the input's pixels in the image that the window sees; 0 lies between them."""
    correction: NDArray[np.int32] | None = None
    """[K, OH, OW], added (saturating) between `stage` and `output`."""
    b: str | None = None
    """A tensor of y's shape (or one value a channel), added (saturating) behind the correction."""
    b_operand: Operand = field(default_factory=Operand)
    scale: int = 1
    """What the stage's result is multiplied by (saturating) before b is added or slopes are applied."""
    slopes: ArrayLike | None = None
    """One integer or one per kernel: negative v become ``sat(R(v * slope, slope_shift), 32)``."""
    slope_shift: int = 0
    clamp: Clamp = field(default_factory=Clamp)
    """After correction and addition."""


@dataclass(frozen=True, kw_only=True)
class QConv(_Windowed):
    """Convolution: int8 x [C, H, W] -> y [K, OH, OW], weights [K, C, kh, kw].

    For every output pixel and kernel k, over the window (outside the image x is `pad_value`):
    ``s = sum x`` (all channels), ``a = sat(R(sum x * w + s * window_mul[k], truncate), 32)``, then
    `stage`, then `output`.  Top-left element of the window of output (oy, ox) is input
    (oy * stride - pad); right and bottom padding follow from `size`.
    """


@dataclass(frozen=True, kw_only=True)
class QDepthwise(_Windowed):
    """Depthwise convolution: int8 x [C, H, W] -> y [C, OH, OW], weights [C, kh, kw].

    As `QConv`, each channel on its own; `s` is the sum over the channel's own window.
    """


@dataclass(frozen=True, kw_only=True)
class QGemm:
    """Fully connected layer: int8 x of any shape, flattened, -> y [N, 1, 1]; as `QConv` with one pixel."""

    x: str
    y: str
    weights: NDArray[np.int8]
    """[N, elements of x], columns in the order of x's elements."""
    window_mul: ArrayLike = 0
    truncate: int = 0
    stage: Stage = field(default_factory=Stage)
    output: Output = field(default_factory=Output)


@dataclass(frozen=True, kw_only=True)
class QAdd:
    """Two tensors element by element: ``v = sat(a' op b', 32)``, the clamp, `output`.

    b may have one row and column: then it is one value a channel.
    """

    a: str
    b: str
    y: str
    op: Literal["add", "mul", "max", "min"] = "add"
    a_operand: Operand = field(default_factory=Operand)
    b_operand: Operand = field(default_factory=Operand)
    clamp: Clamp = field(default_factory=Clamp)
    output: Output = field(default_factory=Output)


@dataclass(frozen=True, kw_only=True)
class QScale:
    """Element-wise requantisation of one tensor: `stage` on a = x, then `output` (Relu, Clip, Rescale)."""

    x: str
    y: str
    stage: Stage = field(default_factory=Stage)
    output: Output = field(default_factory=Output)


@dataclass(frozen=True, kw_only=True)
class QPool:
    """Pooling: int8 x [C, H, W] -> y [C, OH, OW].

    Maximum and minimum run over the real elements of the window, and `pad_value` once if the window
    reaches outside.  The average counts outside elements as `pad_value`:
    ``m = floor(|sum| * reciprocal_h * reciprocal_w / 2^32 + 1/2)``, with the tie rule of HARDWARE 6.1
    (a window of an even number of elements whose exact average is j + 1/2 gives j; the even one of
    j, j + 1 when both sides of the window are powers of two), sign restored, saturated to int8.
    `reciprocal` is round(65536 / k) per axis (rows, columns); by default it is derived from `kernel`.
    """

    x: str
    y: str
    method: Literal["max", "min", "average"]
    kernel: Pair
    size: Pair
    stride: Pair = (1, 1)
    pad: Pair = (0, 0)
    """(top, left)."""
    pad_value: int = 0
    reciprocal: Pair | None = None


@dataclass(frozen=True, kw_only=True)
class Reshape:
    """The elements of x in order under another shape."""

    x: str
    y: str
    shape: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class QSlope:
    """``a = (x + offset) * scale``; where a < 0, ``a = R(a * slope, shift)``; then `output`."""

    x: str
    y: str
    offset: int
    scale: int
    slopes: ArrayLike
    """One integer or one per channel."""
    shift: int
    output: Output = field(default_factory=Output)


@dataclass(frozen=True, kw_only=True)
class QLookup:
    """``y = table[x + 128]``, 256 entries."""

    x: str
    y: str
    table: NDArray[np.int8]


@dataclass(frozen=True, kw_only=True)
class QCopy:
    """`size` elements of x from `source` on go, each through `stage` and `output`, to y from `target` on.

    y has `shape`; what no copy has written yet is 0.
    """

    x: str
    y: str
    shape: tuple[int, int, int]
    source: tuple[int, int, int]
    target: tuple[int, int, int]
    size: tuple[int, int, int]
    stage: Stage = field(default_factory=Stage)
    output: Output = field(default_factory=Output)


@dataclass(frozen=True, kw_only=True)
class HostSoftmax:
    """Softmax on the host: ``q = (x - zero_point) * scale``, then exp / sum over `axis`, float32.

    With `bits` the result is quantised: ``round(result / output_scale) + output_zero_point``.
    """

    x: str
    y: str
    scale: float
    zero_point: int
    axis: int = 0
    output_scale: float | None = None
    output_zero_point: int = 0


@dataclass(frozen=True, kw_only=True)
class HostGather:
    """y's elements are those of the inputs (all of them in a row) at `index`; -1 gives `fill`.

    Each input first goes from its (scale, zero point) in `codings` to that of y, by rounded float64.
    """

    xs: tuple[str, ...]
    y: str
    index: NDArray[np.int64]
    codings: tuple[tuple[float, int], ...]
    coding: tuple[float, int]
    fill: int = 0


@dataclass(frozen=True, kw_only=True)
class HostPool:
    """Maximum, or average of the taps inside the image alone (halves away from zero), to y's coding."""

    x: str
    y: str
    method: Literal["max", "average"]
    kernel: Pair
    size: Pair
    stride: Pair = (1, 1)
    pad: Pair = (0, 0)
    coding: tuple[float, int] = (1.0, 0)
    output_coding: tuple[float, int] = (1.0, 0)


Node = (
    QConv
    | QDepthwise
    | QGemm
    | QAdd
    | QScale
    | QSlope
    | QLookup
    | QCopy
    | QPool
    | Reshape
    | HostSoftmax
    | HostGather
    | HostPool
    | FloatNode
)
