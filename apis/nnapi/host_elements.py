"""Operations on elements: sums, comparisons, functions of one number, conversions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rkcosim.apis.nnapi.values import QUANTISED, Array, OperationCall, bounded, host, stored

BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "ADD": np.add,
    "SUB": np.subtract,
    "MUL": np.multiply,
    "DIV": np.divide,
    "MAXIMUM": np.maximum,
    "MINIMUM": np.minimum,
    "POW": np.power,
}
COMPARISONS: dict[str, Callable[[Array, Array], Array]] = {
    "EQUAL": np.equal,
    "NOT_EQUAL": np.not_equal,
    "GREATER": np.greater,
    "GREATER_EQUAL": np.greater_equal,
    "LESS": np.less,
    "LESS_EQUAL": np.less_equal,
}


def sigmoid(values: Array) -> Array:
    """Return 1 / (1 + exp(-x))."""
    with np.errstate(over="ignore"):
        return np.asarray(1.0 / (1.0 + np.exp(-values)))


UNARY: dict[str, Callable[[Array], Array]] = {
    "FLOOR": np.floor,
    "LOGISTIC": sigmoid,
    "RELU": lambda x: np.maximum(x, 0),
    "RELU1": lambda x: np.clip(x, -1, 1),
    "RELU6": lambda x: np.clip(x, 0, 6),
    "TANH": np.tanh,
    "ABS": np.abs,
    "EXP": np.exp,
    "LOG": np.log,
    "NEG": np.negative,
    "RSQRT": lambda x: 1.0 / np.sqrt(x),
    "SIN": np.sin,
    "SQRT": np.sqrt,
    "HARD_SWISH": lambda x: x * np.clip(x + 3, 0, 6) / 6,
}
"""Functions of one number by the operation's name."""


@host(*BINARY)
def _binary(call: OperationCall) -> list[Array]:
    function = BINARY[call.kind.name]
    first, second = call.value(0), call.value(1)
    act = call.integer(2) if len(call.inputs) > 2 else 0
    with np.errstate(all="ignore"):
        if first.array.dtype.kind == "i" and first.type not in QUANTISED:
            a, b = first.array.astype(np.int64), second.array.astype(np.int64)
            if call.kind.name == "DIV":
                return [call.clamped(np.where(b == 0, 0, a // np.where(b == 0, 1, b)), act).astype(np.int32)]
            return [call.clamped(function(a, b), act).astype(np.int32)]
        return [call.put(call.clamped(function(first.real, second.real), act))]


@host(*COMPARISONS)
def _compare(call: OperationCall) -> list[Array]:
    return [COMPARISONS[call.kind.name](call.real(0), call.real(1))]


@host("LOGICAL_AND", "LOGICAL_OR")
def _logical(call: OperationCall) -> list[Array]:
    function = np.logical_and if call.kind.name == "LOGICAL_AND" else np.logical_or
    return [function(call.array(0), call.array(1))]


@host("LOGICAL_NOT")
def _not(call: OperationCall) -> list[Array]:
    return [np.logical_not(call.array(0))]


@host(*UNARY)
def _unary(call: OperationCall) -> list[Array]:
    value = call.value(0)
    function = UNARY[call.kind.name]
    with np.errstate(all="ignore"):
        if value.array.dtype.kind == "i" and value.type not in QUANTISED:
            return [function(value.array)]
        return [call.put(function(value.real))]


@host("ELU")
def _elu(call: OperationCall) -> list[Array]:
    x = call.real(0)
    return [call.put(np.where(x < 0, call.number(1) * np.expm1(np.minimum(x, 0)), x))]


@host("PRELU")
def _prelu(call: OperationCall) -> list[Array]:
    x = call.real(0)
    return [call.put(np.where(x < 0, x * call.real(1), x))]


@host("SELECT")
def _select(call: OperationCall) -> list[Array]:
    chosen = call.array(0)
    if call.array(1).dtype.kind == "i" and call.value(1).type not in QUANTISED:
        return [np.where(chosen, call.array(1), call.array(2))]
    return [call.put(np.where(chosen, call.real(1), call.real(2)))]


@host("QUANTIZE", "DEQUANTIZE")
def _requantise(call: OperationCall) -> list[Array]:
    return [call.put(call.real(0))]


@host("CAST")
def _cast(call: OperationCall) -> list[Array]:
    """Convert the elements as they are stored, without scale and zero point; integers saturate."""
    values, dtype = call.array(0), call.outputs[0].type.dtype
    if dtype.kind in "iu" and values.dtype.kind == "f":
        values = np.nan_to_num(np.trunc(values.astype(np.float64)))
    if dtype.kind in "iu" and values.dtype.kind != "b":
        limits = np.iinfo(dtype)
        values = np.clip(values.astype(np.float64), limits.min, limits.max)
    return [values.astype(dtype)]


@host("FILL")
def _fill(call: OperationCall) -> list[Array]:
    value = call.array(1).reshape(-1)[0]
    return [np.full(bounded(call.ints(0)), value, call.outputs[0].type.dtype)]


def spread(codes: Array, call: OperationCall, index: int = 0) -> Array:
    """Return codes of input `index` in the quantisation of the first result; unchanged if they are equal."""
    value, made = call.value(index), call.outputs[0]
    same = (value.operand.scale, value.zero) == (made.scale, made.zero_point)
    if value.type not in QUANTISED or same:
        return codes
    return stored((codes.astype(np.float64) - value.zero) * value.operand.scale, made)
