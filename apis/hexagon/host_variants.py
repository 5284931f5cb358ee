"""Fused convolutions with groups, dilations, or inserted zeros; the NPU computes their sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.apis.hexagon.arithmetic import f32
from rkcosim.apis.hexagon.geometry import Geometry, geometry, window_of
from rkcosim.apis.hexagon.host_bytes import limits_at
from rkcosim.apis.hexagon.host_sums import finish
from rkcosim.apis.hexagon.operations import NodeCall, operation
from rkcosim.apis.hexagon.tensors import Failure, Value, check_size

Array = npt.NDArray[Any]


def _step(call: NodeCall, first: int, second: int) -> float:
    return float(f32(limits_at(call, first).step) * f32(limits_at(call, second).step))


@operation("QuantizedGroupedConv2d_8x8p32to8", ins=(13, 14), outs=3, place="sums")
def grouped(call: NodeCall) -> list[Value]:
    """Convolve each group of channels with its own kernels, which are the next ones of all."""
    x, w, bias, groups = call.inputs[0], call.inputs[1], call.inputs[2], call.inputs[10].whole
    if groups < 1 or x.shape[3] != w.shape[2] * groups or w.shape[3] % groups:
        raise Failure(f"{groups} groups of a depth of {x.shape[3]} for weights of {w.shape}")
    given, weights = limits_at(call, 3), limits_at(call, 5)
    window = geometry(x, w.shape[:2], window_of(call.inputs[9], "strides"), call.padding)
    parts = zip(np.split(x.codes, groups, 3), np.split(w.codes, groups, 3), strict=True)
    sums = [call.arithmetic.convolve(a, given.zero, b, weights.zero, window) for a, b in parts]
    return finish(np.concatenate(sums, 3), _step(call, 3, 5), bias, call, (7, 11, 13))


@operation("QuantizedDilatedConv2d_8x8p32to8", ins=(13, 14), outs=3, place="sums")
def dilated(call: NodeCall) -> list[Value]:
    x, w, bias = call.inputs[:3]
    factors, strides = call.inputs[10].list[:2], window_of(call.inputs[9], "strides")
    if len(factors) != 2 or min(factors) < 1 or x.shape[3] != w.shape[2]:
        raise Failure(f"dilations {factors} of weights of {w.shape} for a depth of {x.shape[3]}")
    given, weights = limits_at(call, 3), limits_at(call, 5)
    window = geometry(x, w.shape[:2], strides, call.padding, (factors[0], factors[1]))
    total = call.arithmetic.convolve(x.codes, given.zero, w.codes, weights.zero, window)
    return finish(total, _step(call, 3, 5), bias, call, (7, 11, 13))


def _spread(x: Array, zero: int, strides: tuple[int, int]) -> Array:
    """Return an input with strides - 1 elements of real zero between its pixels."""
    b, h, w, d = x.shape
    check_size(b, h * strides[0], w * strides[1], d)
    full = np.full((b, (h - 1) * strides[0] + 1, (w - 1) * strides[1] + 1, d), zero, np.uint8)
    full[:, :: strides[0], :: strides[1]] = x
    return full


@operation(
    "QuantizedTransposeConv2d_8x8p32to8",
    "QuantizedTransposeConv2d_8x8p8to8",
    ins=(13, 15),
    outs=3,
    place="sums",
)
def transposed(call: NodeCall) -> list[Value]:
    """Convolve the input with zeros between its pixels; weights are (OC, kh, kw, IC), pads are cut off."""
    x, w, bias = call.inputs[0], call.inputs[1].codes, call.inputs[8]
    pads, strides = call.inputs[6].list[:4], window_of(call.inputs[7], "strides")
    if len(call.inputs) > 14 and call.inputs[14].whole != 1:
        raise Failure(f"{call.inputs[14].whole} groups; only one is there")
    if len(pads) != 4 or min(*pads, 0) < 0 or min(strides) < 1 or x.shape[3] != w.shape[3]:
        raise Failure(f"pads {pads}, strides {strides} and weights of {w.shape} for a depth of {x.shape[3]}")
    given, weights = limits_at(call, 2), limits_at(call, 4)
    spread = _spread(x.codes, given.zero, strides)
    turned = np.ascontiguousarray(w[:, ::-1, ::-1].transpose(1, 2, 3, 0))
    rows, columns = w.shape[1:3]
    size = spread.shape[1] + rows - 1, spread.shape[2] + columns - 1
    window = Geometry((rows, columns), (1, 1), (rows - 1, columns - 1, rows - 1, columns - 1), size)
    total = call.arithmetic.convolve(spread, given.zero, turned, weights.zero, window)
    top, bottom, left, right = pads
    if top + bottom >= size[0] or left + right >= size[1]:
        raise Failure(f"pads {pads} of {size[0]}x{size[1]} pixels")
    cut = total[:, top : size[0] - bottom, left : size[1] - right]
    return finish(np.ascontiguousarray(cut), _step(call, 2, 4), bias, call, (9, 11, 13))
