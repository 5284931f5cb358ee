"""Activations."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.apis.diopi.npu import EmittedNode
from rkcosim.apis.diopi.operators.flat import compute_elements, one
from rkcosim.apis.diopi.operators.registry import OperatorCall, operator
from rkcosim.apis.diopi.operators.types import (
    TOO_FINE,
    as_factor,
    as_number,
    fits_half,
    real,
    refuse,
    wide,
    with_scalar,
)
from rkcosim.apis.diopi.tensor import diopiTensor
from rkcosim.apis.diopi.values import DiopiError, diopiScalar

Array = npt.NDArray[Any]

ERF = np.vectorize(math.erf, otypes=[np.float64])
"""The error function of float64; numpy has none."""


def _unary(
    call: OperatorCall,
    out: diopiTensor,
    input: diopiTensor,
    function: Callable[[Array], Any],
    nodes: Sequence[EmittedNode] | str,
    constants: dict[str, Array] | None = None,
    refused: str = "",
) -> None:
    x = input.array()
    refuse(x, refused)
    compute_elements(call, out, [x], function, nodes, constants)


def _number(value: float) -> Array:
    return np.array(value, np.float32)


@operator("Relu", inplace=True)
def _relu(call: OperatorCall, out: diopiTensor, input: diopiTensor) -> None:
    """The larger of x and 0."""
    _unary(call, out, input, lambda x: np.maximum(x, x.dtype.type(0)), one("Relu"), refused="b")


@operator("Hardtanh", inplace=True)
def _hardtanh(
    call: OperatorCall, out: diopiTensor, input: diopiTensor, min_val: diopiScalar, max_val: diopiScalar
) -> None:
    """x within two bounds."""
    dtype = input.array().dtype
    low, high = as_number(min_val.value, dtype), as_number(max_val.value, dtype)
    bounds = {"low": _number(low), "high": _number(high)}
    _unary(
        call,
        out,
        input,
        lambda x: np.minimum(np.maximum(wide(x), low), high),
        one("Clip", "a", "low", "high"),
        bounds,
    )


@operator("Hardswish", inplace=True)
def _hardswish(call: OperatorCall, out: diopiTensor, input: diopiTensor) -> None:
    """x times x + 3 within 0 and 6, divided by 6."""
    _unary(
        call, out, input, lambda x: real(x) * np.clip(real(x) + 3, 0, 6) / 6, one("HardSwish"), refused="biu"
    )


@operator("Threshold", inplace=True)
def _threshold(
    call: OperatorCall, out: diopiTensor, input: diopiTensor, threshold: diopiScalar, value: diopiScalar
) -> None:
    """x where it is above a threshold, otherwise a value."""
    dtype = input.array().dtype
    limit, other = as_number(threshold.value, dtype), as_number(value.value, dtype)
    nodes = one("Relu") if limit == other == 0 else "a threshold or value that is not 0"
    _unary(call, out, input, lambda x: np.where(wide(x) <= limit, other, wide(x)), nodes)


def gelu(x: Array) -> Array:
    """Return Gelu by the error function."""
    return np.asarray(0.5 * x * (1 + ERF(x / math.sqrt(2))))


def gelu_tanh(x: Array) -> Array:
    """Return Gelu by the hyperbolic tangent."""
    return np.asarray(0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))))


@operator("Gelu")
def _gelu(call: OperatorCall, out: diopiTensor, input: diopiTensor, approximate: str | bytes) -> None:
    """Gelu; `approximate` is none or tanh."""
    form = approximate.decode() if isinstance(approximate, bytes) else approximate
    if form not in ("none", "tanh"):
        raise DiopiError(f"approximate is '{form}', not none or tanh")
    function = gelu if form == "none" else gelu_tanh
    _unary(call, out, input, lambda x: function(real(x)), one("Gelu", approximate=form), refused="biu")


@operator("LeakyRelu", inplace=True)
def _leaky_relu(
    call: OperatorCall, out: diopiTensor, input: diopiTensor, negative_slope: diopiScalar
) -> None:
    """x, or x times a slope where it is negative."""
    slope = float(as_factor(negative_slope.value, input.array().dtype))
    nodes = one("LeakyRelu", alpha=slope) if fits_half(slope) else TOO_FINE
    _unary(call, out, input, lambda x: np.where(real(x) > 0, real(x), real(x) * slope), nodes, refused="biu")


@operator("Tanh", inplace=True)
def _tanh(call: OperatorCall, out: diopiTensor, input: diopiTensor) -> None:
    """The hyperbolic tangent."""
    _unary(call, out, input, lambda x: np.tanh(real(x)), one("Tanh"))


def sigmoid(x: Array) -> Array:
    """Return the logistic function without overflow, also of numbers far below 0 with full precision."""
    power = np.exp(-np.abs(x))
    return np.asarray(np.where(x < 0, power, 1) / (1 + power))


@operator("Sigmoid", inplace=True)
def _sigmoid(call: OperatorCall, out: diopiTensor, input: diopiTensor) -> None:
    """The logistic function."""
    _unary(call, out, input, lambda x: sigmoid(real(x)), one("Sigmoid"))


@operator("Silu", inplace=True)
def _silu(call: OperatorCall, out: diopiTensor, input: diopiTensor) -> None:
    """x times its logistic function."""
    nodes = (EmittedNode("Sigmoid", ("a",), "s"), EmittedNode("Mul", ("a", "s"), "y"))
    _unary(call, out, input, lambda x: real(x) * sigmoid(real(x)), nodes, refused="biu")


def _within(
    call: OperatorCall, out: diopiTensor, input: diopiTensor, low: float | None, high: float | None
) -> None:
    names = ["a", "" if low is None else "low", *(["high"] if high is not None else [])]
    bounds = {name: _number(v) for name, v in (("low", low), ("high", high)) if v is not None}

    def function(x: Array) -> Array:
        made = wide(x)
        if any(isinstance(bound, float) for bound in (low, high)):
            made = made.astype(np.float64)
        made = made if low is None else np.maximum(made, low)
        return np.asarray(made if high is None else np.minimum(made, high))

    _unary(call, out, input, function, one("Clip", *names), bounds)


def _bounds(
    input: diopiTensor, low: diopiScalar | None, high: diopiScalar | None
) -> tuple[float | None, float | None]:
    """Return bounds as numbers of the result's type, which is real if one of them is."""
    dtype = input.array().dtype
    for scalar in (low, high):
        dtype = dtype if scalar is None else with_scalar(dtype, scalar)
    first, second = (None if one is None else as_number(one.value, dtype) for one in (low, high))
    return first, second


@operator("ClampScalar", inplace=True)
def _clamp_scalar(
    call: OperatorCall, out: diopiTensor, input: diopiTensor, min: diopiScalar | None, max: diopiScalar | None
) -> None:
    """x within two bounds, of which one may be missing."""
    _within(call, out, input, *_bounds(input, min, max))


@operator("ClampMaxScalar", inplace=True)
def _clamp_max(call: OperatorCall, out: diopiTensor, input: diopiTensor, max: diopiScalar) -> None:
    """The smaller of x and a bound."""
    _within(call, out, input, *_bounds(input, None, max))


@operator("ClampMinScalar", inplace=True)
def _clamp_min(call: OperatorCall, out: diopiTensor, input: diopiTensor, min: diopiScalar) -> None:
    """The larger of x and a bound."""
    _within(call, out, input, *_bounds(input, min, None))


def _between(
    call: OperatorCall,
    out: diopiTensor,
    input: diopiTensor,
    low: diopiTensor | None,
    high: diopiTensor | None,
) -> None:
    x = input.array()
    arrays: list[Array] = [x]
    nodes: list[EmittedNode] = []
    for kind, bound in (("Max", low), ("Min", high)):
        if bound is not None:
            arrays.append(bound.array())
            taken = nodes[-1].output if nodes else "a"
            nodes.append(EmittedNode(kind, (taken, "abc"[len(arrays) - 1]), f"y{len(arrays)}"))
    if not nodes:
        raise DiopiError("min and max are null")

    def host(x: Array, *bounds: Array) -> Array:
        made = wide(x)
        for bound, node in zip(bounds, nodes, strict=True):
            made = (np.maximum if node.kind == "Max" else np.minimum)(made, wide(bound))
        return np.asarray(made)

    compute_elements(call, out, arrays, host, nodes)


@operator("Clamp", inplace=True)
def _clamp(
    call: OperatorCall, out: diopiTensor, input: diopiTensor, min: diopiTensor | None, max: diopiTensor | None
) -> None:
    """x within two bounds of each element, of which one may be missing."""
    _between(call, out, input, min, max)


@operator("ClampMax", inplace=True)
def _clamp_max_tensor(call: OperatorCall, out: diopiTensor, input: diopiTensor, max: diopiTensor) -> None:
    """The smaller of x and a bound of each element."""
    _between(call, out, input, None, max)


@operator("ClampMin", inplace=True)
def _clamp_min_tensor(call: OperatorCall, out: diopiTensor, input: diopiTensor, min: diopiTensor) -> None:
    """The larger of x and a bound of each element."""
    _between(call, out, input, min, None)
