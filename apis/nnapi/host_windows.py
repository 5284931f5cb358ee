"""Pools, reductions, normalisations and resizes on the host."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rkcosim.apis.nnapi import geometry
from rkcosim.apis.nnapi.host_moves import as_given, channels_last, coordinates, resized
from rkcosim.apis.nnapi.host_products import sliding
from rkcosim.apis.nnapi.values import Array, OperationCall, host
from rkcosim.hostops import resize
from rkcosim.hostops.pooling import largest
from rkcosim.hostops.resize import Coordinates
from rkcosim.hostops.softmax import log_softmax, softmax
from rkcosim.hostops.windows import counted, windows


@host("AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D")
def _pool(call: OperationCall) -> list[Array]:
    """Means are sums by numpy's order of real numbers, since their last bits decide halves between codes."""
    window = geometry.pool(call)
    x = channels_last(call.real(0), window.nchw)
    if not x.shape[0]:
        rows, columns = window.output((x.shape[1], x.shape[2]))
        return [as_given(np.zeros((0, rows, columns, x.shape[3]), call.array(0).dtype), window.nchw)]
    kind, places = call.kind.name, sliding(x, window)
    if kind == "MAX_POOL_2D":
        made = largest(x, places, 1)
    else:
        inside = counted(places, x.shape[1:3])[..., None]
        values = x * x if kind == "L2_POOL_2D" else x
        with np.errstate(all="ignore"):
            made = windows(values, places, 1).sum(axis=(4, 5)) / inside
        made = np.sqrt(made) if kind == "L2_POOL_2D" else made
    return [as_given(call.put(call.clamped(made, window.act)), window.nchw)]


REDUCTIONS: dict[str, Callable[..., Array]] = {
    "MEAN": np.mean,
    "REDUCE_MAX": np.max,
    "REDUCE_MIN": np.min,
    "REDUCE_PROD": np.prod,
    "REDUCE_SUM": np.sum,
    "REDUCE_ALL": np.all,
    "REDUCE_ANY": np.any,
}


@host(*REDUCTIONS)
def _reduce(call: OperationCall) -> list[Array]:
    value, rank = call.value(0), call.array(0).ndim
    axes = call.ints(1)
    if any(not -rank <= axis < rank for axis in axes):
        raise call.wrong(f"axes {axes} of a tensor of rank {rank}")
    places = tuple({axis % rank for axis in axes}) or tuple(range(rank))
    function, keep = REDUCTIONS[call.kind.name], call.flag(2)
    if value.array.dtype.kind == "b":
        made = function(value.array, axis=places, keepdims=keep)
    else:
        made = call.put(np.asarray(function(value.real, axis=places, keepdims=keep)))
    return [np.asarray(made).reshape(np.shape(made) or (1,))]


@host("ARGMAX", "ARGMIN")
def _arg(call: OperationCall) -> list[Array]:
    x = call.real(0)
    function = np.argmax if call.kind.name == "ARGMAX" else np.argmin
    made = np.asarray(function(x, axis=call.axis(1, x.ndim))).astype(np.int32)
    return [made.reshape(made.shape or (1,))]


@host("TOPK_V2")
def _topk(call: OperationCall) -> list[Array]:
    x, count = call.array(0), call.integer(1)
    if not 0 < count <= x.shape[-1]:
        raise call.wrong(f"{count} of {x.shape[-1]} elements")
    order = np.argsort(-x.astype(np.float64), axis=-1, kind="stable")[..., :count]
    return [np.take_along_axis(x, order, -1), order.astype(np.int32)]


@host("SOFTMAX", "LOG_SOFTMAX")
def _softmax(call: OperationCall) -> list[Array]:
    x = call.real(0)
    axis = call.axis(2, x.ndim)
    if call.number(1) <= 0 and call.kind.name == "SOFTMAX":
        raise call.wrong(f"beta {call.number(1)} is not above 0")
    function = softmax if call.kind.name == "SOFTMAX" else log_softmax
    return [call.put(function(x, axis, call.number(1)))]


@host("L2_NORMALIZATION")
def _l2(call: OperationCall) -> list[Array]:
    x = call.real(0)
    norm = np.sqrt((x * x).sum(axis=call.axis(1, x.ndim), keepdims=True))
    return [call.put(x / np.maximum(norm, 1e-6))]


@host("LOCAL_RESPONSE_NORMALIZATION")
def _lrn(call: OperationCall) -> list[Array]:
    x, radius = call.real(0), call.integer(1)
    bias, alpha, beta = (call.number(index) for index in (2, 3, 4))
    axis = call.axis(5, x.ndim)
    squares = np.moveaxis(x * x, axis, -1)
    pads = [(0, 0)] * (x.ndim - 1) + [(radius, radius)]
    views = np.lib.stride_tricks.sliding_window_view(np.pad(squares, pads), 2 * radius + 1, axis=-1)
    sums = np.moveaxis(views.sum(axis=-1), -1, axis)
    return [call.put(x / np.power(bias + alpha * sums, beta))]


@host("INSTANCE_NORMALIZATION")
def _instance(call: OperationCall) -> list[Array]:
    nchw = call.flag(4)
    x = channels_last(call.real(0), nchw)
    gamma, beta, epsilon = (call.number(index) for index in (1, 2, 3))
    mean = x.mean(axis=(1, 2), keepdims=True)
    spread = np.sqrt(((x - mean) ** 2).mean(axis=(1, 2), keepdims=True) + epsilon)
    return [as_given(call.put(gamma * (x - mean) / spread + beta), nchw)]


@host("RESIZE_BILINEAR")
def _bilinear(call: OperationCall) -> list[Array]:
    nchw, align, half = (call.flag(index) for index in (3, 4, 5))
    x = channels_last(call.real(0), nchw)
    made = resized(call, x.shape[2], x.shape[1])
    for axis, (size, count) in enumerate(zip(x.shape[1:3], made, strict=True), 1):
        rule = Coordinates.CENTRES if align else Coordinates.HALF_PIXEL
        places = coordinates(size, count, align, rule if half else Coordinates.ASYMMETRIC)
        x = resize.linear(x, axis, places, past=False)
    return [as_given(call.put(x), nchw)]
