"""Element-wise operations on quantised tensors, and their concatenation.

The facts are from nnlib's docs/ops.txt and hexagon/ops/src.  Where nnlib computes with the fixed point of one
processor (products of bytes to bytes, sums whose range is not given), the real result is rounded once to the
output's codes here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.apis.hexagon.arithmetic import (
    LEVELS,
    Adder,
    Range,
    f32,
    half_away,
    requantise8,
    requantise32,
    saturate,
    sums_range,
    with_zero,
    with_zero_between,
)
from rkcosim.apis.hexagon.host_floats import (
    broadcast,
    softmax_of_depth,
)
from rkcosim.apis.hexagon.host_moves import axis_of, joined
from rkcosim.apis.hexagon.operations import NodeCall, operation
from rkcosim.apis.hexagon.tensors import Failure, Value, quantised, range_of, single, value

Array = npt.NDArray[Any]
MANY = None


def limits_at(call: NodeCall, first: int) -> Range:
    """Return the range in two inputs of a node."""
    return range_of(call.inputs[first], call.inputs[first + 1])


# -- between float32, int32 and bytes ---------------------------------------------------------------------


@operation("Quantize", ins=3, outs=3)
def quantize(call: NodeCall) -> list[Value]:
    given = limits_at(call, 1)
    if given.low > given.high:
        raise Failure(f"a range from {given.low:g} to {given.high:g}")
    limits = with_zero(given.low, given.high)
    return quantised(limits.codes(call.inputs[0].reals), limits)


@operation("AutoQuantize", ins=(1, 5), outs=3)
def auto_quantize(call: NodeCall) -> list[Value]:
    x = call.inputs[0].reals
    if not np.isfinite(x).all():
        raise Failure("a tensor with infinite numbers, or NaN")
    limits = with_zero(float(x.min(initial=0)), float(x.max(initial=0)))
    return quantised(limits.codes(x), limits)


@operation("Dequantize", ins=3, outs=1)
def dequantize(call: NodeCall) -> list[Value]:
    return [value(limits_at(call, 1).reals(call.inputs[0].codes))]


@operation("Dequantize_qint32_f", ins=3, outs=1)
def dequantize_sums(call: NodeCall) -> list[Value]:
    return [value(limits_at(call, 1).reals32(call.inputs[0].ints))]


@operation("Quantize_int32", ins=3, outs=3)
def quantize_int32(call: NodeCall) -> list[Value]:
    given = limits_at(call, 1)
    most = f32(max(-given.low, given.high))
    codes = half_away(call.inputs[0].reals * (f32(2.0**24) / (most + most))).astype(np.int32)
    return [value(codes), single(-float(most) * 256), single(float(most) * 256)]


@operation("Requantize_32to8", ins=5, outs=3)
def requantize_32to8(call: NodeCall) -> list[Value]:
    wanted = limits_at(call, 3)
    limits = with_zero(wanted.low, wanted.high)
    return quantised(requantise32(call.inputs[0].ints, limits_at(call, 1), limits), limits)


@operation("Requantize_8to8", ins=5, outs=3)
def requantize_8to8(call: NodeCall) -> list[Value]:
    wanted = limits_at(call, 3)
    limits = with_zero(wanted.low, wanted.high)
    if limits != wanted:
        raise Failure(
            f"0 has no exact code in the range {wanted.low:g} to {wanted.high:g}; "
            f"it has in {limits.low:g} to {limits.high:g}"
        )
    return quantised(requantise8(call.inputs[0].codes, limits_at(call, 1), limits), limits)


def _found_range(call: NodeCall) -> Range:
    """Return the real limits of a tensor of int32, which include 0."""
    sums, given = call.inputs[0].ints, limits_at(call, 1)
    ends = given.reals32(np.array([sums.min(initial=0), sums.max(initial=0)], np.int32))
    return Range(float(ends[0]), float(ends[1]))


@operation("RequantizationRange_32", ins=3, outs=2)
def requantization_range(call: NodeCall) -> list[Value]:
    found = _found_range(call)
    return [single(found.low), single(found.high)]


@operation("QuantizeDownAndShrinkRange_32to8", ins=3, outs=3)
def quantize_down(call: NodeCall) -> list[Value]:
    found = _found_range(call)
    limits = with_zero(found.low, found.high)
    return quantised(requantise32(call.inputs[0].ints, limits_at(call, 1), limits), limits)


# -- one operand ------------------------------------------------------------------------------------------


@operation("QuantizedRelu_8", ins=3, outs=3)
def relu(call: NodeCall) -> list[Value]:
    return [value(np.maximum(call.inputs[0].codes, np.uint8(limits_at(call, 1).zero))), *call.inputs[1:3]]


def _clamped(call: NodeCall, low: float, high: float) -> list[Value]:
    ends = limits_at(call, 1).codes(np.array([low, high], np.float32))
    codes = np.minimum(np.maximum(call.inputs[0].codes, ends[0]), ends[1])
    return [value(codes), *call.inputs[1:3]]


@operation("QuantizedReluX_8", ins=4, outs=3)
def relu_x(call: NodeCall) -> list[Value]:
    return _clamped(call, 0.0, call.inputs[3].scalar)


@operation("QuantizedClamp_8", ins=5, outs=3)
def clamp(call: NodeCall) -> list[Value]:
    return _clamped(call, call.inputs[3].scalar, call.inputs[4].scalar)


def _curve(call: NodeCall, gain: float, scale: float) -> Array:
    """Return codes of (tanh(x * gain) + 1) * scale."""
    given = limits_at(call, 1)
    real = f32(given.low) + f32(given.step) * call.inputs[0].codes.astype(np.float32)
    return saturate(half_away((np.tanh(real * f32(gain)) + f32(1)) * f32(scale)))


@operation("QuantizedSigmoid_8", ins=3, outs=3)
def sigmoid(call: NodeCall) -> list[Value]:
    return quantised(_curve(call, 0.5, LEVELS / 2), Range(0.0, 1.0))


@operation("QuantizedTanh_8", ins=3, outs=3)
def tanh(call: NodeCall) -> list[Value]:
    return quantised(_curve(call, 1.0, 127.0), Range(-1.0, float(f32(128 / 127))))


@operation("QuantizedSoftmax_8", ins=(3, 4), outs=3)
def quantized_softmax(call: NodeCall) -> list[Value]:
    beta = call.inputs[3].scalar if len(call.inputs) > 3 else 1.0
    x = call.inputs[0].codes.astype(np.float64) * (beta * limits_at(call, 1).step)
    return quantised(saturate(half_away(softmax_of_depth(x) * LEVELS)), Range(0.0, 1.0))


@operation("Softmax_uint8", ins=(3, 4), outs=1)
def softmax_to_float(call: NodeCall) -> list[Value]:
    beta = call.inputs[3].scalar if len(call.inputs) > 3 else 1.0
    return [
        value(softmax_of_depth(limits_at(call, 1).reals(call.inputs[0].codes) * f32(beta)).astype(np.float32))
    ]


@operation("QuantizedNeg_8", ins=3, outs=3)
def negative(call: NodeCall) -> list[Value]:
    given = limits_at(call, 1)
    return quantised(LEVELS - call.inputs[0].codes, Range(-given.high, -given.low))


@operation("QuantizedPRelu_8", ins=4, outs=3)
def p_relu(call: NodeCall) -> list[Value]:
    x, slopes = call.inputs[0].codes.astype(np.int64), call.inputs[3].reals.reshape(-1)
    if slopes.size not in (1, x.shape[3]) or not ((slopes >= 0) & (slopes <= 1)).all():
        raise Failure(f"{slopes.size} slopes for a depth of {x.shape[3]}: one or one for each, from 0 to 1")
    zero, parts = limits_at(call, 1).zero, (slopes.astype(np.float64) * 65536).astype(np.int64)
    steep = ((x * parts + 0x8000) >> 16) + zero - ((zero * parts + 0x8000) >> 16)
    return [value(np.where(x < zero, steep, x).astype(np.uint8)), *call.inputs[1:3]]


@operation("QuantizedSqrt_8", ins=3, outs=3)
def square_root(call: NodeCall) -> list[Value]:
    """The root of codes by a table: 255 sqrt(code / 255), as if the range began at 0 (op_sqrt.c)."""
    given = limits_at(call, 1)
    if given.low < 0:
        raise Failure(f"a square root in a range from {given.low:g}")
    limits = Range(math.sqrt(given.low), math.sqrt(given.high))
    roots = np.rint(255 * np.sqrt(np.arange(256) / 255)).astype(np.uint8)
    return quantised(roots[call.inputs[0].codes], limits)


# -- several operands -------------------------------------------------------------------------------------


def _real_operands(call: NodeCall) -> tuple[Array, Array, Range, Range]:
    a, b = (x.codes for x in call.inputs[:2])
    broadcast(a, b)
    first, second = limits_at(call, 2), limits_at(call, 4)
    return first.reals(a), second.reals(b), first, second


def _wanted(call: NodeCall, low: float, high: float) -> Range:
    """Return the range in inputs 6 and 7, each replaced by a limit of the result if absent or infinite."""
    given = [one.scalar for one in call.inputs[6:8]]
    if len(given) > 0 and math.isfinite(given[0]):
        low = given[0]
    if len(given) > 1 and math.isfinite(given[1]):
        high = given[1]
    return with_zero(low, high)


def _added(call: NodeCall, sign: int) -> list[Value]:
    """Add or subtract: in nnlib's integers to a given range, otherwise to the range that the inputs allow."""
    a, b, first, second = _real_operands(call)
    given = [one.scalar for one in call.inputs[6:8]]
    if len(given) == 2 and all(map(math.isfinite, given)):
        limits = with_zero_between(given[0], given[1])
        adder = Adder.of(first, second, limits, sign)
        if adder is None:
            raise Failure(f"the range {limits.low:g} to {limits.high:g} is too small for the inputs' ranges")
        return quantised(adder.codes(call.inputs[0].codes, call.inputs[1].codes), limits)
    ends = (second.low, second.high) if sign > 0 else (-second.high, -second.low)
    limits = _wanted(call, first.low + ends[0], first.high + ends[1])
    return quantised(limits.codes(a + sign * b), limits)


@operation("QuantizedAdd_8p8to8", ins=(6, 8), outs=3)
def add(call: NodeCall) -> list[Value]:
    return _added(call, 1)


@operation("QuantizedSub_8p8to8", ins=(6, 8), outs=3)
def subtract(call: NodeCall) -> list[Value]:
    return _added(call, -1)


@operation("QuantizedMul_8x8to8", ins=6, outs=3)
def multiply(call: NodeCall) -> list[Value]:
    a, b, first, second = _real_operands(call)
    ends = [x * y for x in (first.low, first.high) for y in (second.low, second.high)]
    limits = with_zero(min(ends), max(ends))
    return quantised(limits.codes(a * b), limits)


@operation("QuantizedDiv_8", ins=(6, 8), outs=3)
def divide(call: NodeCall) -> list[Value]:
    """Divide; a quotient by 0 is the largest or smallest of the other quotients, or of a given range."""
    a, b, _, _ = _real_operands(call)
    with np.errstate(divide="ignore", invalid="ignore"):
        quotient = np.nan_to_num(a / b, nan=0.0, posinf=np.inf, neginf=-np.inf)
    finite = quotient[np.isfinite(quotient)]
    limits = _wanted(call, float(finite.min(initial=0)), float(finite.max(initial=0)))
    return quantised(limits.codes(np.clip(quotient, limits.low, limits.high)), limits)


def _extreme(
    name: str, function: Callable[[Array, Array], Array], choose: Callable[[float, float], float]
) -> None:
    @operation(name, ins=(6, 8), outs=3)
    def extreme(call: NodeCall) -> list[Value]:
        a, b, first, second = _real_operands(call)
        limits = _wanted(call, choose(first.low, second.low), choose(first.high, second.high))
        return quantised(limits.codes(function(a, b)), limits)


_extreme("QuantizedMinimum_8", np.minimum, min)
_extreme("QuantizedMaximum_8", np.maximum, max)

COARSE = 0x7F80
"""Factor of the operand with the larger step in a sum of bytes to int32."""


def _to_32(name: str, sign: int) -> None:
    @operation(name, ins=6, outs=3)
    def add_to_32(call: NodeCall) -> list[Value]:
        a, b = (x.codes.astype(np.int64) for x in call.inputs[:2])
        broadcast(a, b)
        first, second = limits_at(call, 2), limits_at(call, 4)
        largest = max(first.step, second.step)
        if largest <= 0:
            raise Failure("both operands have an empty range")
        ours, theirs = (
            int(half_away(np.array(f32(r.step) * f32(COARSE) / f32(largest)))) for r in (first, second)
        )
        total = ours * (a - first.zero) + sign * theirs * (b - second.zero)
        most = float(f32(2.0**31 / COARSE) * f32(largest))
        return [value(total.astype(np.int32)), single(-most), single(most)]


_to_32("QuantizedAdd_8p8to32", 1)
_to_32("QuantizedSub_8p8to32", -1)


@operation("QuantizedMul_8x8to32", ins=6, outs=3)
def multiply_to_32(call: NodeCall) -> list[Value]:
    """Multiply codes without their zero points, times 128."""
    a, b = (x.codes.astype(np.int32) for x in call.inputs[:2])
    broadcast(a, b)
    first, second = limits_at(call, 2), limits_at(call, 4)
    limits = sums_range(float(f32(first.step) * f32(second.step) / f32(128)))
    return [value((a - first.zero) * (b - second.zero) * 128), single(limits.low), single(limits.high)]


def _compared(name: str, function: Callable[[Array, Array], Array]) -> None:
    @operation(name, ins=6, outs=1)
    def compared(call: NodeCall) -> list[Value]:
        a, b, _, _ = _real_operands(call)
        return [value(function(a, b).astype(np.uint8))]


_compared("QuantizedLess_8", np.less)
_compared("QuantizedLessEqual_8", np.less_equal)
_compared("QuantizedGreater_8", np.greater)
_compared("QuantizedGreaterEqual_8", np.greater_equal)


def _together(call: NodeCall) -> tuple[list[Array], Range]:
    """Return the tensors of a concatenation as codes of their common range, and the range.

    The inputs are an axis, the tensors, their lower and their higher ends.
    """
    count, rest = divmod(len(call.inputs) - 1, 3)
    if rest:
        raise Failure(f"{len(call.inputs)} inputs: an axis, and three for each tensor")
    ranges = [range_of(call.inputs[1 + count + n], call.inputs[1 + 2 * count + n]) for n in range(count)]
    limits = Range(min(0.0, *(one.low for one in ranges)), max(one.high for one in ranges))
    parts = []
    for x, given in zip(call.inputs[1 : 1 + count], ranges, strict=True):
        own = Range(min(0.0, given.low), given.high)
        offset = max(0, int(half_away(np.array((f32(own.low) - f32(limits.low)) / f32(own.step)))))
        gain = f32(LEVELS) / (f32(limits.high) - f32(limits.low)) * f32(own.step) * f32(32768)
        parts.append(
            saturate(
                ((x.codes.astype(np.int64) + offset) * min(int(half_away(np.array(gain))), 32767) + 2**14)
                >> 15
            )
        )
    return parts, limits


@operation("QuantizedConcat_8", "QuantizedConcat_8_nond32", ins=(4, MANY), outs=3)
def concat(call: NodeCall) -> list[Value]:
    parts, limits = _together(call)
    return [joined(parts, axis_of(call.inputs[0].whole)), single(limits.low), single(limits.high)]


@operation("QuantizedPack_8", ins=(4, MANY), outs=3)
def pack(call: NodeCall) -> list[Value]:
    """Join tensors of three dimensions (height, width, depth) along a new axis."""
    parts, limits = _together(call)
    axis = axis_of(call.inputs[0].whole)
    if any(part.shape[0] != 1 for part in parts):
        raise Failure(f"tensors of {[part.shape for part in parts]}: their batches must be 1")
    found = joined([np.expand_dims(part[0], axis) for part in parts], axis)
    return [found, single(limits.low), single(limits.high)]
