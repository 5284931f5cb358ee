"""Convolutions and products of bytes: sums of products, biases, and fused convolutions ("Supernode")."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.apis.hexagon.arithmetic import (
    Quotient,
    bias_sums,
    f32,
    half_away,
    sums_range,
    with_zero,
    with_zero_between,
)
from rkcosim.apis.hexagon.geometry import Geometry
from rkcosim.apis.hexagon.host_bytes import limits_at
from rkcosim.apis.hexagon.host_floats import convolution, depthwise, kernel_window, matrix_rows
from rkcosim.apis.hexagon.operations import NodeCall, operation
from rkcosim.apis.hexagon.tensors import Failure, Value, quantised, single, value
from rkcosim.hostops.pooling import largest, sums

Array = npt.NDArray[Any]
Sums = npt.NDArray[np.int32]


class HostArithmetic:
    """Sums of products by numpy, exact."""

    def convolve(self, x: Array, x_zero: int, w: Array, w_zero: int, window: Geometry) -> Sums:
        """See `rkcosim.apis.hexagon.operations.Arithmetic`."""
        total = convolution(x.astype(np.float64) - x_zero, w.astype(np.float64) - w_zero, window)
        return total.astype(np.int64).astype(np.int32)

    def depthwise(self, x: Array, x_zero: int, w: Array, w_zero: int, window: Geometry) -> Sums:
        """See `rkcosim.apis.hexagon.operations.Arithmetic`."""
        total = depthwise(x.astype(np.float64) - x_zero, w.astype(np.float64) - w_zero, window)
        return total.astype(np.int64).astype(np.int32)

    def max_pool(self, x: Array, window: Geometry) -> npt.NDArray[np.uint8]:
        """See `rkcosim.apis.hexagon.operations.Arithmetic`."""
        found: npt.NDArray[np.uint8] = largest(x, window.sliding, 1, 0)
        return found

    def average_pool(self, x: Array, window: Geometry) -> npt.NDArray[np.uint8]:
        """See `rkcosim.apis.hexagon.operations.Arithmetic`."""
        total = sums(x.astype(np.int64), window.sliding, 1)
        return average(total, window.counts(*x.shape[1:3])[None, :, :, None])


def average(total: Array, counts: Array) -> npt.NDArray[np.uint8]:
    """Return averages of sums of `counts` codes: nnlib's reciprocal of 15 bits, rounded at bit 15."""
    parts = np.minimum(0x8000 // counts, 0x7FFF)
    found: npt.NDArray[np.uint8] = ((total.astype(np.int64) * parts + 0x4000) >> 15).astype(np.uint8)
    return found


def _sums(call: NodeCall, depthwise: bool = False) -> tuple[Sums, float]:
    """Return the sums of inputs 0 to 6 (data, weights, their ranges, strides), and the size of their step."""
    x, w = call.inputs[:2]
    given, weights = limits_at(call, 2), limits_at(call, 4)
    window = kernel_window(call, x, w, call.inputs[6])
    compute = call.arithmetic.depthwise if depthwise else call.arithmetic.convolve
    total = compute(x.codes, given.zero, w.codes, weights.zero, window)
    return total, float(f32(given.step) * f32(weights.step))


def _with_range(total: Sums, step: float) -> list[Value]:
    limits = sums_range(step)
    return [value(total), single(limits.low), single(limits.high)]


@operation("QuantizedConv2d_8x8to32", ins=7, outs=3, place="layer")
def conv2d(call: NodeCall) -> list[Value]:
    return _with_range(*_sums(call))


@operation("QuantizedDepthwiseConv2d_8x8to32", ins=7, outs=3, place="layer")
def depthwise_conv2d(call: NodeCall) -> list[Value]:
    return _with_range(*_sums(call, depthwise=True))


def _product(call: NodeCall) -> tuple[Sums, float]:
    """Return the sums of a product of inputs 0 and 1, and the size of their step."""
    a, b = call.inputs[:2]
    given, weights = limits_at(call, 2), limits_at(call, 4)
    matrix_rows(a, b)
    x = a.codes.reshape(1, 1, -1, b.shape[2])
    window = Geometry((1, 1), (1, 1), (0, 0, 0, 0), (1, x.shape[2]))
    total = call.arithmetic.convolve(x, given.zero, b.codes, weights.zero, window)
    return total, float(f32(given.step) * f32(weights.step))


@operation("QuantizedMatMul_8x8to32", ins=6, outs=3, place="layer")
def mat_mul(call: NodeCall) -> list[Value]:
    return _with_range(*_product(call))


def check_bias(bias: Value, depth: int) -> None:
    """Raise Failure if a bias has not one number for each channel."""
    if bias.shape != (1, 1, 1, depth):
        raise Failure(f"a bias of {bias.shape} for a depth of {depth}")


@operation("QuantizedBiasAdd_32p32to32", ins=6, outs=3)
def bias_add_32(call: NodeCall) -> list[Value]:
    x, bias = call.inputs[:2]
    check_bias(bias, x.shape[3])
    added = bias_sums(bias.ints.reshape(-1), limits_at(call, 4), limits_at(call, 2).step32)
    return [value((x.ints + added).astype(np.int32)), *call.inputs[2:4]]


@operation("QuantizedBiasAdd_8p8to32", ins=6, outs=3)
def bias_add_8(call: NodeCall) -> list[Value]:
    """Add in float32, in steps of the larger end of both ranges / 2^14."""
    x, bias = call.inputs[:2]
    check_bias(bias, x.shape[3])
    given, other = limits_at(call, 2), limits_at(call, 4)
    most = f32(max(abs(given.low), given.high, abs(other.low), other.high)) * f32(2**17)
    step = (most + most) / f32(2.0**32)
    first = (x.codes.astype(np.int32) - given.zero).astype(np.float32) * (f32(given.step) / step)
    second = (bias.codes.astype(np.int32) - other.zero).astype(np.float32) * (f32(other.step) / step)
    total = np.trunc(first + second + f32(0.5)).astype(np.int64).astype(np.int32)
    return [value(total), single(-float(most)), single(float(most))]


def channel_scales(call: NodeCall, place: int, depth: int) -> Array | None:
    """Return the factors of the channels' weights, if the node has them; float32 (depth,)."""
    if len(call.inputs) <= place:
        return None
    scales = call.inputs[place].reals.reshape(-1)
    if scales.size != depth or not ((scales > 0) & (scales <= 1)).all():
        raise Failure(f"{scales.size} factors for a depth of {depth}: one for each, above 0, at most 1")
    return scales


def finish(
    total: Sums, step: float, bias: Value, call: NodeCall, places: tuple[int, int, int]
) -> list[Value]:
    """Return the outputs of a fused convolution from its sums.

    Parameters
    ----------
    total, step : the sums and the size of their step.
    bias : the bias.
    call : the execution.
    places : of the bias's range, the output's range, and the factors of the channels.
    """
    check_bias(bias, total.shape[3])
    numbers = bias.codes if bias.itemsize == 1 else bias.ints
    scales = channel_scales(call, places[2], total.shape[3])
    whole = total.astype(np.int64)
    if scales is not None:
        whole = half_away(whole * scales.astype(np.float64)).astype(np.int64)
    whole = whole + bias_sums(numbers.reshape(-1), limits_at(call, places[0]), step)
    low, high = (call.inputs[places[1] + n].scalar for n in range(2))
    if math.isfinite(low) and math.isfinite(high):
        limits = with_zero_between(low, high)
    else:
        low = low if math.isfinite(low) else float(whole.min(initial=0)) * step
        high = high if math.isfinite(high) else float(whole.max(initial=0)) * step
        limits = with_zero(low, high)
    return quantised(Quotient(step, limits).codes(whole), limits)


SUPERNODE = (8, 10, 12)
"""Inputs of a fused convolution: the ranges of its bias and of its output, the factors of the channels."""

_SUPER = ("Supernode_8x8p8to8", "Supernode_8x8p32to8", "Supernode3322_8x8p8to8", "Supernode3322_8x8p32to8")


@operation(*_SUPER, ins=(12, 13), outs=3, place="layer")
def supernode(call: NodeCall) -> list[Value]:
    total, step = _sums(call)
    return finish(total, step, call.inputs[7], call, SUPERNODE)


@operation(
    "InputSupernode_8x8p8to8_outd32", "InputSupernode_8x8p32to8_outd32", ins=(12, 13), outs=3, place="layer"
)
def input_supernode(call: NodeCall) -> list[Value]:
    return supernode(call)


@operation("DepthwiseSupernode_8x8p8to8", "DepthwiseSupernode_8x8p32to8", ins=(12, 13), outs=3, place="layer")
def depthwise_supernode(call: NodeCall) -> list[Value]:
    total, step = _sums(call, depthwise=True)
    return finish(total, step, call.inputs[7], call, SUPERNODE)


DENSE = (7, 9, 11)
"""The same of a fused product: the ranges of its bias and of its output; it has no factors of channels."""


@operation("SuperFC_8x8p32to8", ins=11, outs=3, place="layer")
def super_product(call: NodeCall) -> list[Value]:
    total, step = _product(call)
    return finish(total, step, call.inputs[6], call, DENSE)


@operation("QuantizedBatchNorm_8x8p8to8", "QuantizedBatchNorm_8x8p32to8", ins=11, outs=3)
def batch_norm(call: NodeCall) -> list[Value]:
    x, w, bias = call.inputs[0].codes, call.inputs[1].codes.reshape(-1), call.inputs[6]
    given, weights = limits_at(call, 2), limits_at(call, 4)
    if w.size not in (1, x.shape[3]) or bias.elements not in (1, x.shape[3]):
        raise Failure(f"{w.size} factors and {bias.elements} summands for a depth of {x.shape[3]}")
    step = float(f32(given.step) * f32(weights.step))
    total = (x.astype(np.int32) - given.zero) * (w.astype(np.int32) - weights.zero)
    spread = np.broadcast_to(bias.raw.reshape(-1), (x.shape[3],))
    wide = value(np.ascontiguousarray(spread).view(np.int32 if bias.itemsize == 4 else np.uint8))
    return finish(total, step, wide, call, DENSE)
