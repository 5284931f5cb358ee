"""Operations on neighbours of quantised tensors: windows, reductions, normalisations, and resizing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.apis.hexagon.arithmetic import LEVELS, Range, half_away, saturate, sums_range, with_zero
from rkcosim.apis.hexagon.host_bytes import limits_at
from rkcosim.apis.hexagon.host_floats import bilinear, normalised, pool_window, squeezed
from rkcosim.apis.hexagon.host_moves import axis_of
from rkcosim.apis.hexagon.operations import NodeCall, operation
from rkcosim.apis.hexagon.tensors import Failure, Value, quantised, single, value

Array = npt.NDArray[Any]


@operation("QuantizedMaxPool_8", ins=5, outs=3, place="pool")
def max_pool(call: NodeCall) -> list[Value]:
    x = call.inputs[0]
    window = pool_window(call, x, *call.inputs[3:5])
    return [value(call.arithmetic.max_pool(x.codes, window)), *call.inputs[1:3]]


@operation("QuantizedAvgPool_8", ins=5, outs=3, place="pool")
def avg_pool(call: NodeCall) -> list[Value]:
    """Average valid elements only; see `average`."""
    x = call.inputs[0]
    window = pool_window(call, x, *call.inputs[3:5])
    return [value(call.arithmetic.average_pool(x.codes, window)), *call.inputs[1:3]]


@operation("QuantizedMean_8", ins=(4, 6), outs=3)
def mean(call: NodeCall) -> list[Value]:
    axes = tuple(sorted({axis_of(n) for n in call.inputs[3].list[: call.inputs[3].elements]}))
    given, x = limits_at(call, 1), call.inputs[0].codes
    if not x.size:
        raise Failure("an empty tensor")
    real = given.reals(x).astype(np.float64).mean(axis=axes, keepdims=True)
    limits = with_zero(*(one.scalar for one in call.inputs[4:6])) if len(call.inputs) == 6 else given
    return [squeezed(limits.codes(real), axes, call.padding), single(limits.low), single(limits.high)]


@operation("QuantizedSum_8to32", ins=4, outs=3)
def sum_to_32(call: NodeCall) -> list[Value]:
    axes = tuple(sorted({axis_of(n) for n in call.inputs[3].list[: call.inputs[3].elements]}))
    given = limits_at(call, 1)
    total = (call.inputs[0].codes.astype(np.int32) - given.zero).sum(axis=axes, keepdims=True, dtype=np.int32)
    limits = sums_range(given.step)
    return [squeezed(total, axes, call.padding), single(limits.low), single(limits.high)]


def _place(call: NodeCall, function: Callable[..., Array]) -> Array:
    axis = axis_of(call.inputs[1].whole)
    return np.expand_dims(function(call.inputs[0].codes, axis=axis), axis)


@operation("ArgMax_8toInt32", ins=4, outs=1)
def arg_max(call: NodeCall) -> list[Value]:
    return [value(_place(call, np.argmax).astype(np.int32))]


@operation("ArgMin_8", ins=4, outs=1)
def arg_min(call: NodeCall) -> list[Value]:
    return [value(_place(call, np.argmin).astype(np.int32))]


@operation("ArgMax_8", ins=4, outs=3)
def arg_max_code(call: NodeCall) -> list[Value]:
    found = _place(call, np.argmax)
    if found.max() > LEVELS:
        raise Failure(f"an axis of {call.inputs[0].shape} has more than 256 places")
    return quantised(found.astype(np.uint8), Range(0.0, float(LEVELS)))


@operation("QuantizedLRN_8", ins=7, outs=3)
def lrn(call: NodeCall) -> list[Value]:
    """LRN of codes; the range of the result is that of its numbers and 0, which needs no code (op_lrn.c)."""
    (bias, alpha, beta), n = (one.scalar for one in call.inputs[4:7]), int(call.inputs[3].scalar)
    if n < 1 or bias < 1 or alpha < 0 or beta < 0:
        raise Failure(f"a window of {n}, bias {bias:g}, alpha {alpha:g}, beta {beta:g}")
    given = limits_at(call, 1)
    reals = given.low + given.step * call.inputs[0].codes.astype(np.float64)
    x = normalised(reals, call.inputs[3], n, bias, alpha, beta)
    limits = Range(float(np.float32(min(x.min(), 0.0))), float(np.float32(max(x.max(), 0.0))))
    return quantised(limits.codes(x), limits)


@operation("L2Normalize_8", ins=(3, 4), outs=3)
def l2_normalize(call: NodeCall) -> list[Value]:
    axis = axis_of(call.inputs[3].whole) if len(call.inputs) > 3 else 3
    x = limits_at(call, 1).reals(call.inputs[0].codes).astype(np.float64)
    length = np.sqrt((x**2).sum(axis=axis, keepdims=True))
    limits = with_zero(-1.0, 1.0)
    return quantised(limits.codes(x / np.maximum(length, 1e-12)), limits)


@operation("QuantizedResizeBilinear_8", ins=(4, 5), outs=3)
def resize_bilinear(call: NodeCall) -> list[Value]:
    corners = len(call.inputs) > 4 and bool(call.inputs[4].whole)
    codes = saturate(half_away(bilinear(call.inputs[0].codes, call.inputs[1], corners)))
    return [value(codes), *call.inputs[2:4]]
