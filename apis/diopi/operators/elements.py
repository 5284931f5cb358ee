"""Functions of elements that only the host computes: mathematics, comparisons, logic, quotients, powers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.apis.diopi.enums import RoundMode
from rkcosim.apis.diopi.operators.activations import ERF
from rkcosim.apis.diopi.operators.registry import OperatorCall, axis_of, operator
from rkcosim.apis.diopi.operators.types import as_factor, promoted, real, refuse, with_scalar
from rkcosim.apis.diopi.tensor import diopiTensor
from rkcosim.apis.diopi.values import DiopiError, diopiScalar
from rkcosim.hostops.softmax import log_softmax, softmax

Array = npt.NDArray[Any]

MATHEMATICS: dict[str, Callable[[Array], Any]] = {
    "Sin": np.sin,
    "Cos": np.cos,
    "Tan": np.tan,
    "Asin": np.arcsin,
    "Acos": np.arccos,
    "Atan": np.arctan,
    "Sinh": np.sinh,
    "Cosh": np.cosh,
    "Asinh": np.arcsinh,
    "Acosh": np.arccosh,
    "Atanh": np.arctanh,
    "Exp": np.exp,
    "Expm1": np.expm1,
    "Log": np.log,
    "Log2": np.log2,
    "Log10": np.log10,
    "Log1p": np.log1p,
    "Sqrt": np.sqrt,
    "Rsqrt": lambda x: 1 / np.sqrt(x),
    "Erf": ERF,
    "Reciprocal": lambda x: 1 / x,
}
"""Functions of real numbers; integers are converted."""

KEPT: dict[str, Callable[[Array], Any]] = {
    "Abs": np.abs,
    "Neg": np.negative,
    "Floor": np.floor,
    "Ceil": np.ceil,
}
"""Functions that keep the type."""


def _unary(
    name: str, function: Callable[[Array], Any], convert: bool, inplace: bool = True, refused: str = ""
) -> None:
    def compute(call: OperatorCall, out: diopiTensor, input: diopiTensor) -> None:
        x = input.array()
        refuse(x, refused)
        call.on_host(out, lambda: function(real(x) if convert else x))

    compute.__doc__ = f"{name} of each element."
    operator(name, inplace=inplace)(compute)


for _name, _function in MATHEMATICS.items():
    _unary(_name, _function, True)
for _name, _function in KEPT.items():
    _unary(_name, _function, False, refused="b")
_unary(
    "Sign", lambda x: x if x.dtype.kind == "b" else np.nan_to_num(np.sign(x), nan=0.0), False, inplace=False
)
_unary("IsNan", np.isnan, False, inplace=False)
_unary("LogicalNot", np.logical_not, False)
_unary("BitwiseNot", np.invert, False)

COMPARISONS: dict[str, Callable[[Array, Array], Any]] = {
    "Eq": np.equal,
    "Ne": np.not_equal,
    "Ge": np.greater_equal,
    "Gt": np.greater,
    "Le": np.less_equal,
    "Lt": np.less,
}
BITS: dict[str, Callable[[Array, Array], Any]] = {"BitwiseAnd": np.bitwise_and, "BitwiseOr": np.bitwise_or}
LOGIC: dict[str, Callable[[Array, Array], Any]] = {"LogicalAnd": np.logical_and, "LogicalOr": np.logical_or}


def _binary(name: str, function: Callable[[Array, Array], Any], scalars: bool) -> None:
    def compute(call: OperatorCall, out: diopiTensor, input: diopiTensor, other: diopiTensor) -> None:
        a, b = input.array(), other.array()
        dtype = promoted(a.dtype, b.dtype)
        call.on_host(out, lambda: function(a.astype(dtype), b.astype(dtype)))

    def with_number(call: OperatorCall, out: diopiTensor, input: diopiTensor, other: diopiScalar) -> None:
        a = input.array()
        dtype = with_scalar(a.dtype, other)
        call.on_host(out, lambda: function(a.astype(dtype), np.array(other.value).astype(dtype)))

    compute.__doc__ = f"{name} of two elements."
    with_number.__doc__ = f"{name} of an element and a number."
    operator(name, inplace=True)(compute)
    if scalars:
        operator(f"{name}Scalar", inplace=True)(with_number)


for _name, _pair in (COMPARISONS | BITS).items():
    _binary(_name, _pair, True)
for _name, _pair in LOGIC.items():
    _binary(_name, _pair, False)


def _quotient(a: Array, b: Array, dtype: np.dtype, mode: int) -> Array:
    """Return quotients, rounded as the mode says.

    The quotient of real numbers is rounded to their type, to float32 of float16, before it is rounded to a
    whole number; integers are divided exactly, or as float32 if the result is not rounded, as in PyTorch.

    Raises
    ------
    DiopiError
        for a whole quotient of integers by 0.
    """
    exact = mode != RoundMode.RoundModeNone and dtype.kind in "iu"
    if mode != RoundMode.RoundModeNone and dtype.kind == "b":
        raise DiopiError("no whole quotient of booleans")
    kind = dtype if exact or dtype in (np.float64, np.complex64, np.complex128) else np.dtype(np.float32)
    x, y = a.astype(kind), b.astype(kind)
    if exact and not y.all():
        raise DiopiError("an integer is divided by 0")
    if mode == RoundMode.RoundModeNone:
        return np.asarray(x / y)
    down = np.floor_divide(x, y)
    if mode == RoundMode.RoundModeFloor:
        return np.asarray(down)
    if not exact:
        return np.asarray(np.trunc(x / y))
    return np.asarray(down + ((down < 0) & (down * y != x)).astype(kind))


@operator("Div", inplace=True)
def _div(
    call: OperatorCall, out: diopiTensor, input: diopiTensor, other: diopiTensor, rounding_mode: RoundMode
) -> None:
    """a / b, as it is, rounded towards zero, or down."""
    a, b = input.array(), other.array()
    call.on_host(out, lambda: _quotient(a, b, promoted(a.dtype, b.dtype), rounding_mode))


@operator("DivScalar", inplace=True)
def _div_scalar(
    call: OperatorCall, out: diopiTensor, input: diopiTensor, other: diopiScalar, rounding_mode: RoundMode
) -> None:
    """a / s, as it is, rounded towards zero, or down."""
    a, dtype = input.array(), with_scalar(input.array().dtype, other)
    number = np.array(as_factor(other.value, dtype))
    call.on_host(out, lambda: _quotient(a, number, dtype, rounding_mode))


@operator("Softmax")
def _softmax(call: OperatorCall, out: diopiTensor, input: diopiTensor, dim: int) -> None:
    """Softmax over an axis."""
    refuse(input.array(), "biu")
    x = real(input.array())
    axis = axis_of(dim, x.ndim)

    def host() -> Array:
        if not x.ndim:
            return np.ones(())
        return softmax(x, axis)

    call.on_host(out, host)


@operator("LogSoftmax")
def _log_softmax(call: OperatorCall, out: diopiTensor, input: diopiTensor, dim: int) -> None:
    """The logarithm of Softmax over an axis."""
    refuse(input.array(), "biu")
    x = real(input.array())
    axis = axis_of(dim, x.ndim)

    def host() -> Array:
        if not x.ndim:
            return np.zeros(())
        return log_softmax(x, axis)

    call.on_host(out, host)
