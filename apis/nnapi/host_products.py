"""Sums of products on the host: convolutions, products of matrices.

Sums of codes are exact: they are sums of whole numbers in float64.
"""

from __future__ import annotations

import math

import numpy as np

from rkcosim.apis.nnapi import geometry
from rkcosim.apis.nnapi.geometry import Geometry
from rkcosim.apis.nnapi.host_moves import TO_FIRST, TO_LAST, as_given, channels_last
from rkcosim.apis.nnapi.model import OperandType
from rkcosim.apis.nnapi.values import Array, OperationCall, Reals, bounded, host
from rkcosim.hostops.convolution import convolved, transposed
from rkcosim.hostops.geometry import Sliding

BATCHED = (OperandType.TENSOR_FLOAT32, OperandType.TENSOR_FLOAT16)


def sliding(x: Reals, window: Geometry) -> Sliding:
    """Return the windows over maps (N, H, W, C).

    Raises
    ------
    ExecutionError
        If the padded maps are too large.
    ValueError
        If the window does not fit.
    """
    top, left, bottom, right = window.pads
    rows, columns = x.shape[1] + top + bottom, x.shape[2] + left + right
    bounded([x.shape[0], rows, columns, x.shape[3]])
    found = window.over((x.shape[1], x.shape[2]))
    if min(found.counts) < 1:
        high, wide = found.reaches
        raise ValueError(f"a window of {high} x {wide} does not fit {(rows, columns)}")
    return found


def _finished(call: OperationCall, sums: Reals, scale: Reals, act: int, nchw: bool) -> list[Array]:
    """Add the bias to sums (..., channels) of offsets, scale, clamp and store them."""
    bias = call.value(2)
    offsets = bias.array.astype(np.float64).reshape(-1)
    values = (sums + offsets) * scale if scale.size > 1 or scale.item() != 1.0 else sums + offsets
    return [as_given(call.put(call.clamped(values, act)), nchw)]


def _scales(call: OperationCall) -> Reals:
    """Return input scale times filter scale, one for each output channel or one for all."""
    return call.value(0).scales * call.value(1).scales.reshape(-1)


@host("CONV_2D", "GROUPED_CONV_2D")
def _conv(call: OperationCall) -> list[Array]:
    window = geometry.convolution(call)
    x = channels_last(call.value(0).offsets, window.nchw)
    kernels = call.value(1).offsets
    groups = window.number
    if call.kind.name == "CONV_2D" and kernels.shape[3]:
        groups = x.shape[3] // kernels.shape[3]
    count, depth = kernels.shape[0], kernels.shape[3]
    if groups < 1 or depth * groups != x.shape[3] or count % groups:
        raise call.wrong(f"filter {kernels.shape}, {groups} groups and {x.shape[3]} channels")
    if not x.shape[0]:
        return [_empty(call, (0, *window.output((x.shape[1], x.shape[2])), count), window.nchw)]
    sums = _convolved(x, kernels.transpose(TO_FIRST), window, groups)
    return _finished(call, sums, _scales(call), window.act, window.nchw)


def _convolved(x: Reals, filters: Reals, window: Geometry, groups: int) -> Reals:
    """Return the sums of maps (N, H, W, C) and filters (OC, C / groups, kh, kw) as (N, OH, OW, OC)."""
    sums = convolved(x.transpose(TO_FIRST), filters, sliding(x, window), groups)
    return np.ascontiguousarray(sums.transpose(TO_LAST))


def _empty(call: OperationCall, shape: tuple[int, ...], nchw: bool) -> Array:
    return as_given(np.zeros(shape, call.outputs[0].type.dtype), nchw)


@host("DEPTHWISE_CONV_2D")
def _depthwise(call: OperationCall) -> list[Array]:
    window = geometry.convolution(call)
    x = channels_last(call.value(0).offsets, window.nchw)
    kernels = call.value(1).offsets
    depth, count = x.shape[3], kernels.shape[3]
    if kernels.shape[0] != 1 or count != depth * window.number:
        raise call.wrong(f"filter {kernels.shape}, multiplier {window.number} and {depth} channels")
    if not x.shape[0]:
        return [_empty(call, (0, *window.output((x.shape[1], x.shape[2])), count), window.nchw)]
    sums = _convolved(x, kernels.transpose(3, 0, 1, 2), window, depth)
    return _finished(call, sums, _scales(call), window.act, window.nchw)


@host("TRANSPOSE_CONV_2D")
def _transposed(call: OperationCall) -> list[Array]:
    window = geometry.transposed(call)
    x = channels_last(call.value(0).offsets, window.nchw)
    kernels = call.value(1).offsets
    if kernels.shape[3] != x.shape[3]:
        raise call.wrong(f"filter {kernels.shape} and {x.shape[3]} channels")
    (n, h, w, _), (kh, kw), (sh, sw) = x.shape, window.kernel, window.strides
    rows, columns = window.transposed_output((h, w))
    if rows < 1 or columns < 1:
        raise call.wrong(f"a result of {rows} x {columns} pixels")
    top, left = window.pads[0], window.pads[1]
    bounded([n, rows + abs(top) + h * sh + kh, columns + abs(left) + w * sw + kw, len(kernels)])
    filters = kernels.transpose(3, 0, 1, 2)
    made = transposed(
        x.transpose(TO_FIRST), filters, window.strides, window.dilations, (top, left), (rows, columns)
    )
    sums = np.ascontiguousarray(made.transpose(TO_LAST))
    return _finished(call, sums, _scales(call), window.act, window.nchw)


@host("FULLY_CONNECTED")
def _connected(call: OperationCall) -> list[Array]:
    x, matrix = call.value(0).offsets, call.value(1).offsets
    depth = matrix.shape[1]
    if depth == 0 or x.size % depth:
        raise call.wrong(f"{x.size} elements are no rows of {depth}")
    return _finished(call, x.reshape(-1, depth) @ matrix.T, _scales(call), call.integer(3), False)


@host("BATCH_MATMUL")
def _matmul(call: OperationCall) -> list[Array]:
    first, second = call.value(0).offsets, call.value(1).offsets
    first = first.swapaxes(-1, -2) if call.flag(2) else first
    second = second.swapaxes(-1, -2) if call.flag(3) else second
    if first.shape[-1] != second.shape[-2]:
        raise call.wrong(f"{first.shape} times {second.shape}")
    sums = first @ second
    return [call.put(sums * call.value(0).scales * call.value(1).scales)]


def product(x: Reals, matrix: Reals | None) -> Reals:
    """Return x times the transposed matrix, 0 if there is none."""
    return x @ matrix.T if matrix is not None and math.prod(matrix.shape) else np.zeros(1)
