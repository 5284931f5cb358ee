"""fp16 networks at graph level: binary32 arithmetic in the order that docs/reference specifies.

Tensors are float16 [C, H, W].  The sum of the products of one tile (32 channels of one kernel element)
is exact and rounded once to binary32, then added to the accumulator in binary32. The order of the
tiles is channel group (outermost), kernel row, kernel column.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Pair = tuple[int, int]
Half = NDArray[np.float16]
Single = NDArray[np.float32]
CHANNEL_GROUP = 32
NAN16 = np.uint16(0x7C01).view(np.float16)
"""The NaN of fp16 that the DPU writes."""


@dataclass(frozen=True, kw_only=True)
class FClamp:
    """ReLU (negative numbers become +0) and an upper limit, both on binary32."""

    relu: bool = False
    high: float | None = None


@dataclass(frozen=True, kw_only=True)
class FConv:
    """Convolution of fp16 x [C, H, W] to y [K, OH, OW].

    ``v = sum of tile sums in order; y = fp16(clamp(v + bias))``; outside the image x is 0.

    Members
    -------
    weights : fp16 [K, C, kh, kw], or [C, 1, kh, kw] when `depthwise`.
    bias : binary32 [K].
    slopes : one value, or one per kernel: numbers whose sign bit is set are multiplied by it before the
        clamp.
    """

    x: str
    y: str
    weights: Half
    bias: Single
    size: Pair
    stride: Pair = (1, 1)
    dilation: Pair = (1, 1)
    pad: Pair = (0, 0)
    insert: Pair = (1, 1)
    depthwise: bool = False
    clamp: FClamp = FClamp()
    slopes: Half | None = None


@dataclass(frozen=True, kw_only=True)
class FSlope:
    """``y = fp16(x * slope)`` where x has its sign bit set, otherwise x; one slope, or one per channel."""

    x: str
    y: str
    slopes: Half


@dataclass(frozen=True, kw_only=True)
class FBinary:
    """``y = fp16(clamp(a op b))`` in binary32; b may have one value per channel."""

    a: str
    b: str
    y: str
    op: Literal["add", "sub", "mul", "max", "min"]
    clamp: FClamp = FClamp()


@dataclass(frozen=True, kw_only=True)
class FClampNode:
    """``y = clamp(x)``."""

    x: str
    y: str
    clamp: FClamp = FClamp()


@dataclass(frozen=True, kw_only=True)
class FCopy:
    """Copy `size` elements of x from `source` on to y (of `shape`, initially 0) from `target` on."""

    x: str
    y: str
    shape: tuple[int, int, int]
    source: tuple[int, int, int]
    target: tuple[int, int, int]
    size: tuple[int, int, int]


@dataclass(frozen=True, kw_only=True)
class FPool:
    """Maximum of the taps inside the image, or the average, for which padding counts as 0.

    Average: the exact sum is rounded to binary32, multiplied by 1/kw, then by 1/kh (11 significant bits
    each); each product is rounded; the result is converted to fp16.
    """

    x: str
    y: str
    method: Literal["max", "average"]
    kernel: Pair
    size: Pair
    stride: Pair = (1, 1)
    pad: Pair = (0, 0)


@dataclass(frozen=True, kw_only=True)
class FHost:
    """A function of one number (computed in float64, then fp16), or a Softmax over the rows of `lines`.

    `lines`, `to` and `shape` are those of `HostSoftmax`.
    """

    x: str
    y: str
    function: str
    alpha: float | tuple[float, ...] = 0.0
    """One number for all channels, or one per channel."""
    beta: float = 0.0
    lines: NDArray[np.int64] | None = None
    to: NDArray[np.int64] | None = None
    shape: tuple[int, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class FAverage:
    """Average of the taps inside the image, computed in float64 on the host, then fp16."""

    x: str
    y: str
    kernel: Pair
    size: Pair
    stride: Pair = (1, 1)
    pad: Pair = (0, 0)


@dataclass(frozen=True, kw_only=True)
class FStage:
    """Operations on binary32 numbers, each rounded; `add` and `mul` are None or have 1 or C numbers.

    ReLU and the upper limit come last.
    """

    add: Single | None = None
    mul: Half | None = None
    relu: bool = False
    high: float | None = None


@dataclass(frozen=True, kw_only=True)
class FStages:
    """``v = (x + add) * mul`` (`first`), ``v * mul + add`` (`second`), ``v op operand``, limits of `last`.

    The operand is the number `operand`, the tensor `b` (one value per element or per channel), or nothing.
    ``div`` is ``fp16(x / b)``, or ``fp16(dividend / b)``, without anything before and after it [HW 7.8.10].
    """

    x: str
    y: str
    b: str | None = None
    first: FStage = FStage()
    second: FStage = FStage()
    method: str = ""
    operand: float | None = None
    dividend: float | None = None
    last: FStage = FStage()


@dataclass(frozen=True, kw_only=True)
class FTable:
    """Two tables with interpolation [HW 7.9]; the index is ``i = rne(x * scale)`` in binary32.

    The entries of `low` belong to ``i = -(N << select) .. 0``, those of `high` to ``0 .. N << select``, in
    steps of 2^select.  The result is the value, or with `fraction` fp16(value + 1) with an exponent field
    that is smaller by `fraction`.
    """

    x: str
    y: str
    scale: float
    low: NDArray[np.int16]
    high: NDArray[np.int16]
    select: int
    fraction: int


@dataclass(frozen=True, kw_only=True)
class FProduct:
    """Products of matrices, one for each head: ``y[m, n] = fp16(sum of tile sums of a[m, k] * b[k, n])``.

    The indices are arrays of positions in the C, H, W order of a tensor.

    Members
    -------
    a_index : [heads, M, K] in `a`.
    b_index : [heads, K, N] in `b`.
    y_index : [heads, M, N] in y, which has `shape`.
    scale : fp16 number by which the binary32 sums are multiplied.
    """

    a: str
    b: str
    y: str
    a_index: NDArray[np.int64]
    b_index: NDArray[np.int64]
    y_index: NDArray[np.int64]
    shape: tuple[int, int, int]
    scale: float = 1.0


FloatNode = (
    FProduct | FStages | FTable | FAverage | FConv | FBinary | FClampNode | FCopy | FPool | FHost | FSlope
)


def one_nan(value: Single) -> Single:
    """Results of arithmetic, whose NaN has no sign in the hardware [HW 3.4]; numpy's may have one."""
    return np.where(np.isnan(value), np.float32(np.nan), value)


def follows(a: Single | np.float32, b: Single | np.float32) -> NDArray[np.bool_]:
    """Whether a comes after b in the order from -NaN over -0 < +0 to NaN [HW 3.5]."""
    ranks = []
    for number in (a, b):
        bits = np.ascontiguousarray(number, np.float32).view(np.int32)
        ranks.append(np.where(bits < 0, bits ^ 0x7FFFFFFF, bits).reshape(np.shape(number)))
    return ranks[0] > ranks[1]


def clamp32(value: Single, clamp: FClamp) -> Single:
    """Apply a clamp to binary32 numbers; a NaN without a sign is above every limit."""
    if clamp.relu:
        value = np.where(np.signbit(value) & ~np.isnan(value), np.float32(0), value)
    if clamp.high is not None:
        value = np.where(follows(value, np.float32(clamp.high)), np.float32(clamp.high), value)
    return value


def ew_sum(a: Single, b: Single | np.float32) -> Single:
    """The EW stage's sum, in which two negative zeros give +0 [HW 7.8.4]."""
    return one_nan(a + b) + np.float32(0)


def ew_difference(a: Single, b: Single | np.float32) -> Single:
    """The EW stage's difference, with infinity for infinities of the same sign, NaN for others."""
    odd = np.where(np.signbit(a) == np.signbit(b), np.float32(np.inf), np.float32(np.nan))
    return np.where(np.isinf(a) & np.isinf(b), odd, one_nan(a - b))


def quotient(a: Half, b: Half) -> Half:
    """The divider's quotient; a zero or infinite operand gives the sign of the dividend."""
    with np.errstate(all="ignore"):
        out = (a.astype(np.float64) / b.astype(np.float64)).astype(np.float16)
    endless, gone = np.isinf(a) | (b == 0), (a == 0) | np.isinf(b)
    out = np.where(
        endless, np.copysign(np.float16(np.inf), a), np.where(gone, np.copysign(np.float16(0), a), out)
    )
    both = (a == 0) & (b == 0) & ~np.signbit(a) & ~np.signbit(b)
    return np.where(np.isnan(a) | np.isnan(b) | both, NAN16, out)


def steep(value: Single, slopes: Half) -> Single:
    """Multiply numbers whose sign bit is set, in binary32."""
    factors = slopes.astype(np.float32).reshape(-1, 1, 1)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.where(np.signbit(value), one_nan(value * factors), value)


def to_half(value: Single) -> Half:
    """Round binary32 to fp16; a NaN becomes the one that OUT_CVT writes, and keeps its sign [HW 7.10]."""
    with np.errstate(over="ignore"):
        half = value.astype(np.float16)
    return np.where(np.isnan(value), np.copysign(NAN16, half), half)


def exact_sum(products: NDArray[np.float64], axis: int) -> Single:
    """The exact sum of float64 numbers along an axis, rounded once to binary32.

    Two-sums keep the rounding errors. If bits were lost, the last bit of the float64 sum is made odd, so that
    the second rounding, to 24 bits, gives the correctly rounded result.
    """
    parts = np.moveaxis(products, axis, 0)
    total = np.zeros(parts.shape[1:], np.float64)
    lost = np.zeros_like(total)
    for part in parts:
        fresh = total + part
        other = fresh - total
        lost = lost + ((total - (fresh - other)) + (part - other))
        total = fresh
    whole = total + lost
    rest = (total - whole) + lost
    bits = whole.view(np.int64)
    even = (bits & 1) == 0
    # Truncate towards zero if the error points there, then set the last bit: rounding to odd.
    toward = (rest != 0) & ((rest < 0) != (whole < 0))
    bits = np.where(toward, bits - 1, bits)
    even = (bits & 1) == 0
    bits = np.where((rest != 0) & even, bits | 1, bits)
    with np.errstate(over="ignore"):
        return np.where(whole == 0, 0.0, bits.view(np.float64)).astype(np.float32)


BLOCK = 1 << 21
"""Number of taps that `conv` processes at a time."""
ONE_THREAD = 1 << 18
"""Largest number of multiplications of a matrix product for which OpenBLAS takes one thread."""
SUMS = 1 << 16
"""Number of sums that `conv` processes at a time, if a row has fewer: they stay in the processor's cache."""

_SPLIT = 16.0
"""Unit for splitting fp16 numbers.

Each is split into a multiple of 1/16 below 2^16, and a rest of at most 1/32 that is a multiple of 2^-24.
"""


def tile_sums(x: NDArray[np.float64], weights: NDArray[np.float64]) -> Single:
    """Exact sums over at most 32 products each, rounded once to binary32.

    Operands are multiples of 2^-24, so that sums of products of which none is above 1 have at most 53 bits,
    which float64 represents exactly in any order. If they may be larger, operands above 16 are split, or one
    of two operands that are not: both parts (see `_SPLIT`) are integers of 20 bits in their units. Sums of
    products with a part have at most 53 bits if the other operand is a part, too, or does not exceed 16.
    `_sum_of_few` adds the matrix products of the parts.

    Parameters
    ----------
    x
        Finite fp16 values as float64, [32 or fewer, pixels].
    weights
        Finite fp16 values as float64, [K, as many as x has rows].
    """
    parts = []
    largest = [float(np.abs(values).max(initial=0.0)) for values in (x, weights)]
    xs: tuple[NDArray[np.float64], ...] = (x,)
    ws: tuple[NDArray[np.float64], ...] = (weights,)
    if largest[0] * largest[1] > 1.0:
        xs = _parts(x) if largest[0] > _SPLIT or largest[1] <= _SPLIT else xs
        ws = _parts(weights) if largest[1] > _SPLIT else ws
    for first in ws:
        for second in xs:
            if first.any() and second.any():
                parts.append(_product(first, second))
    if not parts:
        return np.zeros((len(weights), x.shape[1]), np.float32)
    if len(parts) == 1:
        return parts[0].astype(np.float32)
    return _sum_of_few(parts)


def _product(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """`a @ b` in parts that OpenBLAS computes on one thread.

    It takes several above 2^18 multiplications (GEMM_MULTITHREAD_THRESHOLD), which wait for each other longer
    than products with a depth of 32 take.
    """
    out = np.empty((len(a), b.shape[1]))
    step = max(1, ONE_THREAD // max(b.size, 1))
    for first in range(0, len(a), step):
        np.matmul(a[first : first + step], b, out=out[first : first + step])
    return out


def _sum_of_few(parts: list[NDArray[np.float64]]) -> Single:
    """`exact_sum` of at most four arrays, which is computed only where the error of a plain sum matters.

    The error of three additions of float64 is at most 3 * 2^-53 of the sum of the sizes.
    """
    total, size = parts[0] + parts[1], np.abs(parts[0]) + np.abs(parts[1])
    for part in parts[2:]:
        total += part
        size += np.abs(part)
    size *= 2.0**-51
    with np.errstate(over="ignore"):
        low, high = (total - size).astype(np.float32), (total + size).astype(np.float32)
    low += np.float32(0)  # no negative zero
    unsure = low != high
    if unsure.any():
        low[unsure] = exact_sum(np.stack([part[unsure] for part in parts]), 0)
    return low


def _parts(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    coarse = np.rint(values * _SPLIT) / _SPLIT
    return coarse, values - coarse


def tile_sums_plainly(x: NDArray[np.float64], weights: NDArray[np.float64]) -> Single:
    """As `tile_sums`, product by product; also for infinities and NaNs."""
    return np.stack([exact_sum(x * kernel[:, None], 0) for kernel in weights])


def _windows(
    x: Half, node: FConv | FPool | FAverage, kernel: Pair, dilation: Pair
) -> tuple[NDArray[Any], NDArray[Any]]:
    rows = (
        np.arange(node.size[0])[:, None] * node.stride[0] + np.arange(kernel[0]) * dilation[0] - node.pad[0]
    )
    columns = (
        np.arange(node.size[1])[:, None] * node.stride[1] + np.arange(kernel[1]) * dilation[1] - node.pad[1]
    )
    good = ((rows >= 0) & (rows < x.shape[1]))[:, None, :, None] & ((columns >= 0) & (columns < x.shape[2]))[
        None, :, None, :
    ]
    rows, columns = rows.clip(0, x.shape[1] - 1), columns.clip(0, x.shape[2] - 1)
    return x[:, rows[:, None, :, None], columns[None, :, None, :]], good


def conv(x: Half, node: FConv) -> Half:
    """Evaluate an `FConv`."""
    if node.insert != (1, 1):
        (fy, fx), (channels, height, width) = node.insert, x.shape
        wide = np.zeros((channels, (height - 1) * fy + 1, (width - 1) * fx + 1), x.dtype)
        wide[:, ::fy, ::fx] = x
        x = wide
    kh, kw = node.weights.shape[2:]
    weights = node.weights.astype(np.float64)
    finite = bool(np.isfinite(x).all() and np.isfinite(weights).all())
    out = np.empty((len(weights), *node.size), np.float16)
    height = max(1, min(BLOCK // (x.shape[0] * kh * kw), SUMS // len(weights)) // node.size[1])
    for top in range(0, node.size[0], height):
        rows = slice(top, min(top + height, node.size[0]))
        pad = node.pad[0] - top * node.stride[0], node.pad[1]
        part = replace(node, pad=pad, size=(rows.stop - top, node.size[1]))
        taps, good = _windows(x, part, (kh, kw), node.dilation)
        taps = np.where(good, taps, np.float16(0)).astype(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            acc = _depthwise(taps, weights) if node.depthwise else _direct(taps, weights, finite)
            acc = one_nan(acc + node.bias.astype(np.float32)[:, None, None])
            if node.slopes is not None:
                acc = steep(acc, node.slopes)
        out[:, rows] = to_half(clamp32(acc, node.clamp))
    return out


def _depthwise(taps: NDArray[np.float64], weights: NDArray[np.float64]) -> Single:
    """Accumulators [C, H, W] from windows [C, H, W, kh, kw]."""
    acc = np.zeros(taps.shape[:3], np.float32)
    for row, column in np.ndindex(*taps.shape[3:]):
        product = taps[:, :, :, row, column] * weights[:, 0, row, column, None, None]
        acc = acc + product.astype(np.float32)
    return acc


def _direct(taps: NDArray[np.float64], weights: NDArray[np.float64], finite: bool) -> Single:
    """Accumulators [K, H, W] from windows [C, H, W, kh, kw]: tile sums are added in order."""
    size = taps.shape[1:3]
    sums = tile_sums if finite else tile_sums_plainly
    acc = np.zeros((len(weights), size[0] * size[1]), np.float32)
    for group in range(0, taps.shape[0], CHANNEL_GROUP):
        part = slice(group, group + CHANNEL_GROUP)
        for row, column in np.ndindex(*taps.shape[3:]):
            window = np.ascontiguousarray(taps[part, :, :, row, column]).reshape(-1, acc.shape[1])
            acc = acc + sums(window, np.ascontiguousarray(weights[:, part, row, column]))
    return acc.reshape(-1, *size)


def product(a: Half, b: Half, node: FProduct) -> Half:
    """Evaluate an `FProduct`."""
    left, right = (array.reshape(-1).astype(np.float64) for array in (a, b))
    finite = bool(np.isfinite(left).all() and np.isfinite(right).all())
    y = np.zeros(node.shape, np.float16)
    heads = zip(node.a_index, node.b_index, node.y_index, strict=True)
    with np.errstate(over="ignore", invalid="ignore"):
        for first, second, target in heads:
            taps = left[first].T[:, :, None, None, None]  # [K, M, 1, 1, 1]: windows of one tap
            weights = right[second].T[:, :, None, None]
            acc = _direct(taps, weights, finite) * np.float32(np.float16(node.scale))
            y.reshape(-1)[target] = to_half(one_nan(acc))[:, :, 0].T
    return y


def binary(a: Half, b: Half, node: FBinary) -> Half:
    """Evaluate an `FBinary`."""
    first, second = a.astype(np.float32), np.broadcast_to(b.astype(np.float32), a.shape)
    with np.errstate(over="ignore", invalid="ignore"):
        value = {
            "add": lambda: ew_sum(first, second),
            "sub": lambda: ew_difference(first, second),
            "mul": lambda: one_nan(first * second),
            "max": lambda: np.where(follows(first, second), first, second),
            "min": lambda: np.where(follows(second, first), first, second),
        }[node.op]()
    return to_half(clamp32(value, node.clamp))


def pool(x: Half, node: FPool) -> Half:
    """Evaluate an `FPool`."""
    taps, good = _windows(x, node, node.kernel, (1, 1))
    if node.method == "max":
        outside = np.where(good, taps, np.float16(-np.inf))
        best = outside.max(axis=(3, 4))
        # +0 is greater than -0.
        zero = ((outside == 0) & ~np.signbit(outside)).any(axis=(3, 4))
        return np.where((best == 0) & zero, np.float16(0), best)
    total = np.where(good, taps, np.float16(0)).astype(np.float64).sum(axis=(3, 4)).astype(np.float32)
    for size in (node.kernel[1], node.kernel[0]):
        total = total * np.float32(_eleven_bits(1 / size))
    with np.errstate(over="ignore"):
        return one_nan(total).astype(np.float16)


def _eleven_bits(value: float) -> float:
    """Round a number to 11 significant bits, ties to even."""
    mantissa, exponent = np.frexp(value)
    return float(np.ldexp(np.rint(mantissa * 2048) / 2048, exponent))


def _scaled(value: Single, stage: FStage, first: bool) -> Single:
    def channels(numbers: NDArray[Any]) -> Single:
        return numbers.astype(np.float32).reshape(-1, 1, 1)

    if first and stage.add is not None:
        value = one_nan(value + channels(stage.add))
    if stage.mul is not None:
        value = one_nan(value * channels(stage.mul))
    if not first and stage.add is not None:
        value = one_nan(value + channels(stage.add))
    return clamp32(value, FClamp(relu=stage.relu, high=stage.high))


def stages(x: Half, b: Half | None, node: FStages) -> Half:
    """Evaluate an `FStages`."""
    if node.method == "div":
        assert b is not None
        return quotient(x if node.dividend is None else np.full_like(x, node.dividend), b)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        value = _scaled(x.astype(np.float32), node.first, True)
        value = _scaled(value, node.second, False)
        other = np.float32(0 if node.operand is None else node.operand) if b is None else b.astype(np.float32)
        value = {
            "": lambda: value,
            "add": lambda: ew_sum(value, other),
            "sub": lambda: ew_difference(value, other),
            "mul": lambda: one_nan(value * other),
            "max": lambda: np.where(follows(value, other), value, other),
            "min": lambda: np.where(follows(other, value), value, other),
            "abs": lambda: np.abs(value),
            "neg": lambda: -value,
            "floor": lambda: np.floor(value),
            "ceil": lambda: np.ceil(value),
        }[node.method]()
    return to_half(_scaled(value, node.last, False))


def table(x: Half, node: FTable) -> Half:
    """Evaluate an `FTable`."""
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = np.nan_to_num(np.rint(x.astype(np.float32) * np.float32(node.scale)), nan=0.0)
    count = len(node.low) - 1
    index = np.clip(scaled.astype(np.float64), -(2.0**31), 2.0**31 - 1).astype(np.int64)
    index = np.clip(index, -(count << node.select), count << node.select)
    entries = np.concatenate([node.low[:-1], node.high]).astype(np.int64)
    place = index + (count << node.select)
    at, rest = place >> node.select, place & ((1 << node.select) - 1)
    first, second = entries[at], entries[np.minimum(at + 1, 2 * count)]
    value = first + ((second - first) * rest >> node.select)
    if not node.fraction:
        return value.astype(np.float16)
    bits = (value + 1).astype(np.float16).view(np.uint16)
    exponent = ((bits >> 10 & 31) - node.fraction) & 31
    return ((bits & 0x83FF) | exponent << 10).astype(np.uint16).view(np.float16)


def shares(
    x: NDArray[np.float64],
    lines: NDArray[np.int64] | None,
    to: NDArray[np.int64] | None,
    shape: tuple[int, ...] | None,
) -> NDArray[np.float64]:
    """Return the Softmax of each row of `lines`; the arguments are those of `HostSoftmax`."""
    flat = x.reshape(-1)
    rows = np.arange(flat.size).reshape(1, -1) if lines is None else lines
    power = np.exp(flat[rows] - flat[rows].max(axis=1, keepdims=True))
    result = np.empty_like(flat)
    result[rows if to is None else to] = power / power.sum(axis=1, keepdims=True)
    return result.reshape(shape or x.shape)


def host(x: Half, node: FHost) -> Half:
    """Evaluate an `FHost`."""
    value = x.astype(np.float64)
    alpha = np.reshape(node.alpha, (-1, 1, 1)) if isinstance(node.alpha, tuple) else node.alpha
    with np.errstate(over="ignore", invalid="ignore"):
        match node.function:
            case "Softmax":
                result = shares(value, node.lines, node.to, node.shape)
            case "Sigmoid":
                result = 1.0 / (1.0 + np.exp(-np.clip(value, -700.0, 700.0)))
            case "Tanh":
                result = np.tanh(value)
            case "HardSigmoid":
                result = np.clip(value * node.alpha + node.beta, 0.0, 1.0)
            case "HardSwish":
                result = value * np.clip(value / 6 + 0.5, 0.0, 1.0)
            case "LeakyRelu":
                result = np.where(value < 0, value * alpha, value)
            case "Clip":
                result = np.clip(value, node.alpha, node.beta)
            case _:
                raise TypeError(f"unknown function {node.function}")
        return result.astype(np.float16)


def evaluate_float(node: FloatNode, tensors: Any) -> Half:
    """Evaluate one node on named tensors."""
    match node:
        case FConv():
            return conv(tensors[node.x], node)
        case FProduct():
            return product(tensors[node.a], tensors[node.b], node)
        case FBinary():
            return binary(tensors[node.a], tensors[node.b], node)
        case FSlope():
            return to_half(steep(tensors[node.x].astype(np.float32), node.slopes))
        case FClampNode():
            return to_half(clamp32(tensors[node.x].astype(np.float32), node.clamp))
        case FCopy():
            y = tensors[node.y].copy() if node.y in tensors else np.zeros(node.shape, np.float16)
            part = tuple(slice(b, b + n) for b, n in zip(node.source, node.size, strict=True))
            there = tuple(slice(b, b + n) for b, n in zip(node.target, node.size, strict=True))
            y[there] = tensors[node.x][part]
            return y
        case FStages():
            return stages(tensors[node.x], tensors[node.b] if node.b else None, node)
        case FTable():
            return table(tensors[node.x], node)
        case FPool():
            return pool(tensors[node.x], node)
        case FHost():
            return host(tensors[node.x], node)
        case FAverage():
            taps, good = _windows(tensors[node.x], node, node.kernel, (1, 1))
            total = np.where(good, taps.astype(np.float64), 0.0).sum(axis=(3, 4))
            return (total / good.sum(axis=(2, 3))).astype(np.float16)
    raise TypeError(f"unknown node {type(node).__name__}")
