"""Sums, differences and products of elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.apis.diopi.enums import Dtype
from rkcosim.apis.diopi.npu import EmittedNode
from rkcosim.apis.diopi.operators.flat import compute_elements, one
from rkcosim.apis.diopi.operators.registry import OperatorCall, operator
from rkcosim.apis.diopi.operators.types import (
    LARGEST,
    TOO_FINE,
    as_factor,
    as_number,
    fits_half,
    promoted,
    wide,
    wide_as,
    with_scalar,
)
from rkcosim.apis.diopi.tensor import diopiTensor
from rkcosim.apis.diopi.values import REALS, DiopiError, diopiScalar

Array = npt.NDArray[Any]


def _check_sum(dtype: np.dtype, alpha: diopiScalar, sign: int, *operands: np.dtype) -> None:
    """Raise DiopiError for a sum that PyTorch refuses."""
    if sign < 0 and any(one.kind == "b" for one in operands):
        raise DiopiError("there is no difference of booleans")
    if dtype.kind in "biu" and alpha.stype in REALS:
        raise DiopiError(f"alpha is a real number, but the result is {dtype.name}")


def _sum(
    call: OperatorCall,
    out: diopiTensor,
    input: diopiTensor,
    other: diopiTensor,
    alpha: diopiScalar,
    sign: int,
) -> None:
    a, b = input.array(), other.array()
    dtype = promoted(a.dtype, b.dtype)
    factor = alpha.value * sign
    _check_sum(dtype, alpha, sign, a.dtype, b.dtype)

    def host(a: Array, b: Array) -> Array:
        if dtype.kind == "b":
            return np.logical_or(a, b)
        x, y = wide_as(a, dtype), wide_as(b, dtype)
        if abs(factor) != 1:
            y = np.multiply(y, x.dtype.type(as_number(alpha.value, dtype)))
            y = y.astype(dtype).astype(y.dtype) if dtype == np.float16 else y  # PyTorch rounds in between
            return np.asarray(x + y if sign == 1 else x - y)
        return np.asarray(x + y if factor == 1 else x - y)

    if abs(factor) == 1:
        nodes = one("Add" if factor == 1 else "Sub", "a", "b")
        compute_elements(call, out, [a, b], host, nodes)
        return
    nodes = (EmittedNode("Mul", ("b", "factor"), "scaled"), EmittedNode("Add", ("a", "scaled"), "y"))
    compute_elements(call, out, [a, b], host, nodes, {"factor": np.array(factor, np.float32)})


def _sum_with_scalar(
    call: OperatorCall,
    out: diopiTensor,
    input: diopiTensor,
    other: diopiScalar,
    alpha: diopiScalar,
    sign: int,
) -> None:
    a = input.array()
    dtype = with_scalar(a.dtype, other)
    _check_sum(dtype, alpha, sign, a.dtype, np.dtype(bool if other.stype is Dtype.bool else np.int64))
    value = as_number(as_number(other.value, dtype) * as_number(alpha.value * sign, dtype), dtype)

    def host(a: Array) -> Array:
        return np.asarray(wide_as(a, dtype) + value).astype(np.float64 if dtype.kind == "f" else dtype)

    nodes = one("Add", "a", "v") if abs(value) <= LARGEST else TOO_FINE
    compute_elements(call, out, [a], host, nodes, {"v": np.array(value, np.float32)})


@operator("Add", inplace=True)
def _add(
    call: OperatorCall, out: diopiTensor, input: diopiTensor, other: diopiTensor, alpha: diopiScalar
) -> None:
    """a + alpha * b."""
    _sum(call, out, input, other, alpha, 1)


@operator("AddScalar", inplace=True)
def _add_scalar(
    call: OperatorCall, out: diopiTensor, input: diopiTensor, other: diopiScalar, alpha: diopiScalar
) -> None:
    """a + alpha * s."""
    _sum_with_scalar(call, out, input, other, alpha, 1)


@operator("Sub", inplace=True)
def _sub(
    call: OperatorCall, out: diopiTensor, input: diopiTensor, other: diopiTensor, alpha: diopiScalar
) -> None:
    """a - alpha * b."""
    _sum(call, out, input, other, alpha, -1)


@operator("SubScalar", inplace=True)
def _sub_scalar(
    call: OperatorCall, out: diopiTensor, input: diopiTensor, other: diopiScalar, alpha: diopiScalar
) -> None:
    """a - alpha * s."""
    _sum_with_scalar(call, out, input, other, alpha, -1)


@operator("Mul", inplace=True)
def _mul(call: OperatorCall, out: diopiTensor, input: diopiTensor, other: diopiTensor) -> None:
    """a * b."""
    a, b = input.array(), other.array()
    dtype = promoted(a.dtype, b.dtype)

    def host(a: Array, b: Array) -> Array:
        return np.asarray(wide_as(a, dtype) * wide_as(b, dtype))

    compute_elements(call, out, [a, b], host, one("Mul", "a", "b"))


def _product_with_scalar(
    call: OperatorCall, out: diopiTensor, input: diopiTensor, other: diopiScalar
) -> None:
    a = input.array()
    dtype = with_scalar(a.dtype, other)
    value = as_factor(other.value, dtype)

    def host(a: Array) -> Array:
        return np.asarray(wide_as(a, dtype) * value).astype(np.float64 if dtype.kind == "f" else dtype)

    nodes = one("Mul", "a", "v") if fits_half(value) else TOO_FINE
    compute_elements(call, out, [a], host, nodes, {"v": np.array(value, np.float32)})


@operator("MulScalar", inplace=True)
def _mul_scalar(call: OperatorCall, out: diopiTensor, input: diopiTensor, other: diopiScalar) -> None:
    """a * s."""
    _product_with_scalar(call, out, input, other)


def _extreme(call: OperatorCall, out: diopiTensor, input: diopiTensor, other: diopiTensor, kind: str) -> None:
    a, b = input.array(), other.array()
    function = np.maximum if kind == "Max" else np.minimum
    compute_elements(call, out, [a, b], lambda a, b: function(wide(a), wide(b)), one(kind, "a", "b"))


@operator("Maximum")
def _maximum(call: OperatorCall, out: diopiTensor, input: diopiTensor, other: diopiTensor) -> None:
    """The larger of two elements."""
    _extreme(call, out, input, other, "Max")


@operator("Minimum")
def _minimum(call: OperatorCall, out: diopiTensor, input: diopiTensor, other: diopiTensor) -> None:
    """The smaller of two elements."""
    _extreme(call, out, input, other, "Min")
