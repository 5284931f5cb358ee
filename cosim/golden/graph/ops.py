"""Operations of the graph-level golden model: integer arithmetic on tensors.

A tensor is an int8, int16 or int32 array [channels, rows, columns] with a name.  Nodes have every
number that the arithmetic needs as an explicit integer; they are independent of registers, layouts and
tiles.  Rounding is to nearest, ties to even, unless a node specifies another rule [HW 14.1].

Notation: `R(p, s)` is p / 2^s rounded, `sat(v, bits)` saturates to a signed range.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rkcosim.golden.graph.floats import FloatNode

Pair = tuple[int, int]
"""(rows, columns)."""


@dataclass(frozen=True, kw_only=True)
class Output:
    """Last step of most nodes: from a 32-bit value v to the output tensor.

    ``y = sat(R(v * scale + offset * 2^shift, shift), bits)``: a tie is rounded to the even y.
    """

    scale: int = 1
    shift: int = 0
    offset: int = 0
    """Output zero point."""
    bits: Literal[8, 16, 32] = 8
    half_away: bool = False
    """Round ties away from zero instead of to even."""


@dataclass(frozen=True, kw_only=True)
class Clamp:
    """Limits of the 32-bit value v before `Output`; None means no limit.  ReLU is low = 0."""

    low: int | None = None
    high: int | None = None


@dataclass(frozen=True, kw_only=True)
class Stage:
    """Per-channel addition and multiplication: ``v = sat(R((a + add) * mul, shift), 32)``, then the clamp.

    Members
    -------
    add, mul : one integer or one per channel; if `mul` is None, ``v = sat(a + add, 32)``.
    shift_negative : replaces `shift` where the product is negative.
    """

    add: ArrayLike = 0
    mul: ArrayLike | None = None
    shift: int = 0
    shift_negative: int | None = None
    clamp: Clamp = field(default_factory=Clamp)


@dataclass(frozen=True, kw_only=True)
class Operand:
    """Conversion of a tensor before it is combined: ``sat(R((x + offset) * scale, shift), 32)``."""

    offset: int = 0
    scale: int = 1
    shift: int = 0
    half_away: bool = False


@dataclass(frozen=True, kw_only=True)
class _Windowed:
    """Parameters that direct and depthwise convolutions have in common."""

    x: str
    y: str
    weights: NDArray[np.int8]
    size: Pair
    """Size of the output (OH, OW)."""
    stride: Pair = (1, 1)
    dilation: Pair = (1, 1)
    pad: Pair = (0, 0)
    """(top, left)."""
    pad_value: int = 0
    window_mul: ArrayLike = 0
    """One integer or one per kernel: the negated weight zero point."""
    truncate: int = 0
    stage: Stage = field(default_factory=Stage)
    second: Stage | None = None
    """A second stage on the first one's result."""
    output: Output = field(default_factory=Output)
    insert: Pair = (1, 1)
    """Distance of the input's pixels in the image that the window covers; the pixels between them are 0."""
    correction: NDArray[np.int32] | None = None
    """[K, OH, OW], added (saturating) between `stage` and `output`."""
    b: str | None = None
    """A tensor of y's shape (or one value per channel) that is added (saturating) after the correction."""
    b_operand: Operand = field(default_factory=Operand)
    scale: int = 1
    """Factor of the stage's result (saturating), applied before b is added or slopes are applied."""
    slopes: ArrayLike | None = None
    """One integer or one per kernel: negative v become ``sat(R(v * slope, slope_shift), 32)``."""
    slope_shift: int = 0
    clamp: Clamp = field(default_factory=Clamp)
    """Clamp after correction and addition."""


@dataclass(frozen=True, kw_only=True)
class QConv(_Windowed):
    """Convolution: int8 x [C, H, W] -> y [K, OH, OW], weights [K, C, kh, kw].

    For every output pixel and kernel k, over the window (outside the image x is `pad_value`):
    ``s = sum x`` (all channels), ``a = sat(R(sum x * w + s * window_mul[k], truncate), 32)``, then
    `stage`, then `output`.  The top left element of the window of output (oy, ox) is input
    (oy * stride - pad); right and bottom padding follow from `size`.
    """


@dataclass(frozen=True, kw_only=True)
class QDepthwise(_Windowed):
    """Depthwise convolution: int8 x [C, H, W] -> y [C, OH, OW], weights [C, kh, kw].

    As `QConv`, but separately for each channel; `s` is the sum over the window of the channel.
    """


@dataclass(frozen=True, kw_only=True)
class QGemm:
    """Fully connected layer: int8 x of any shape, flattened, -> y [N, 1, 1]; as `QConv` with one pixel."""

    x: str
    y: str
    weights: NDArray[np.int8]
    """[N, elements of x]; columns are in the order of x's elements."""
    window_mul: ArrayLike = 0
    truncate: int = 0
    stage: Stage = field(default_factory=Stage)
    output: Output = field(default_factory=Output)


@dataclass(frozen=True, kw_only=True)
class QAdd:
    """Element-wise combination of two tensors: ``v = sat(a' op b', 32)``, the clamp, `output`.

    b may have one row and one column: then it has one value per channel.
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
    """Element-wise requantisation of a tensor: `stage` on a = x, then `output` (Relu, Clip, Rescale)."""

    x: str
    y: str
    stage: Stage = field(default_factory=Stage)
    output: Output = field(default_factory=Output)


@dataclass(frozen=True, kw_only=True)
class QPool:
    """Pooling: int8 x [C, H, W] -> y [C, OH, OW].

    Maximum and minimum include the real elements of the window, and `pad_value` once if the window
    extends outside.  The average counts outside elements as `pad_value`:
    ``m = floor(|sum| * reciprocal_h * reciprocal_w / 2^32 + 1/2)``, with the tie rule of [HW 9.3]
    (a window with an even number of elements whose exact average is j + 1/2 gives j, or the even one of
    j, j + 1 if both sides of the window are powers of two), with the sign restored, saturated to int8.
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
    """The elements of x in the same order with another shape."""

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
    """Copy `size` elements of x from `source` on, through `stage` and `output`, to y from `target` on.

    y has `shape`; elements that no copy has written yet are 0.
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
class QSums:
    """The bytes of ``zero * sum over k of (w[k, n] - weight_zero)``, int32 in ascending order of bytes.

    `index` [heads, K, N] are positions in the C, H, W order of `x`; y is [4 * heads * N, 1, 1].
    """

    x: str
    y: str
    index: NDArray[np.int64]
    zero: int
    weight_zero: int


@dataclass(frozen=True, kw_only=True)
class QProduct:
    """Products of matrices of codes, one for each head.

    ``v[m, n] = sat(sat(sum of a[m, k] * (w[k, n] - weight_zero), 32) - c[n], 32)``, then `output`; c are the
    numbers of `sums` (bytes as of `QSums`, 32 bits for each kernel of a group of 32), 0 without it.

    Members
    -------
    a_index : positions [heads, M, K] in the C, H, W order of `a`.
    b_index : positions [heads, K, N] in `b`.
    y_index : positions [heads, M, N] in y, which has `shape`.
    """

    a: str
    b: str
    y: str
    sums: str | None
    a_index: NDArray[np.int64]
    b_index: NDArray[np.int64]
    y_index: NDArray[np.int64]
    shape: tuple[int, int, int]
    weight_zero: int
    output: Output = field(default_factory=Output)


@dataclass(frozen=True, kw_only=True)
class HostSoftmax:
    """Softmax on the host: ``q = (x - zero_point) * scale``, then exp / sum over rows of `lines`, in float32.

    `lines` has the places of the elements in the flat x, a row for each sum; None: all are of one sum. The
    results are at the places `to` of the flat y, which has the shape `shape`; None: where the elements were.
    With `output_scale` the result is quantised: ``round(result / output_scale) + output_zero_point``.
    """

    x: str
    y: str
    scale: float
    zero_point: int
    lines: NDArray[np.int64] | None = None
    to: NDArray[np.int64] | None = None
    shape: tuple[int, ...] | None = None
    output_scale: float | None = None
    output_zero_point: int = 0


@dataclass(frozen=True, kw_only=True)
class HostGather:
    """Elements of the concatenated inputs at `index`; -1 gives `fill`.

    Each input is first converted from its (scale, zero point) in `codings` to that of y, by rounding float64.
    """

    xs: tuple[str, ...]
    y: str
    index: NDArray[np.int64]
    codings: tuple[tuple[float, int], ...]
    coding: tuple[float, int]
    fill: float = 0


@dataclass(frozen=True, kw_only=True)
class HostPool:
    """Maximum, or average of the taps inside the image (halves away from zero), in the coding of y."""

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
    | QSums
    | QProduct
    | Reshape
    | HostSoftmax
    | HostGather
    | HostPool
    | FloatNode
)
