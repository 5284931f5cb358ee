"""Values of operands during an execution, and the call of a host operation."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.apis.nnapi.model import Operand, OperandType
from rkcosim.apis.nnapi.operations import OperationType
from rkcosim.compiler.graph import MAX_ELEMENTS
from rkcosim.hostops.quantise import coded

Array = npt.NDArray[Any]
Reals = npt.NDArray[np.float64]
T = OperandType

QUANTISED = {
    T.TENSOR_QUANT8_ASYMM,
    T.TENSOR_QUANT8_ASYMM_SIGNED,
    T.TENSOR_QUANT8_SYMM,
    T.TENSOR_QUANT8_SYMM_PER_CHANNEL,
    T.TENSOR_QUANT16_SYMM,
    T.TENSOR_QUANT16_ASYMM,
}
"""Types whose elements are codes of real numbers."""

LIMITS = {0: (-np.inf, np.inf), 1: (0.0, np.inf), 2: (-1.0, 1.0), 3: (0.0, 6.0)}
"""Limits of the fused activations by code."""


class ExecutionError(ValueError):
    """An operation cannot be executed on these inputs; the message names it and the reason."""


class MissedDeadline(ExecutionError):
    """A WHILE took longer than its own limit or that of the execution."""


@dataclass(frozen=True)
class Value:
    """An array with the operand that says what its elements mean."""

    array: Array
    operand: Operand

    @property
    def type(self) -> OperandType:
        """The type of the operand."""
        return self.operand.type

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array."""
        return self.array.shape

    @property
    def zero(self) -> int:
        """The zero point."""
        return self.operand.zero_point

    @property
    def real(self) -> Reals:
        """The real numbers, float64, in the array's shape."""
        return self.offsets * self.scales

    @property
    def offsets(self) -> Reals:
        """Codes less the zero point, or the numbers themselves if there are no codes; float64."""
        values = self.array.astype(np.float64)
        return values - self.operand.zero_point if self.type in QUANTISED else values

    @property
    def scales(self) -> Reals:
        """What the offsets are multiplied with: one number, or one per channel in broadcasting shape."""
        extra = self.operand.extra_params
        if self.type is T.TENSOR_QUANT8_SYMM_PER_CHANNEL and extra is not None:
            shape = [1] * self.array.ndim
            shape[extra.channel_dim] = len(extra.scales)
            return np.asarray(extra.scales, np.float64).reshape(shape)
        return np.asarray(np.float64(self.operand.scale) if self.type in QUANTISED else 1.0)


def stored(values: Array, operand: Operand) -> Array:
    """Return real numbers in the type of an operand: rounded to codes, or to the type's precision.

    Codes are those next to the number, halves to the even one, and saturate.
    """
    dtype = operand.type.dtype
    if operand.type in QUANTISED:
        steps = np.nan_to_num(values / np.float64(operand.scale), nan=0.0)
        return coded(steps, operand.zero_point, dtype)
    if dtype.kind == "i" and values.dtype.kind == "f":
        limits = np.iinfo(dtype)
        return np.clip(np.nan_to_num(np.trunc(values)), limits.min, limits.max).astype(dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        return values.astype(dtype)


def bounded(shape: Sequence[int]) -> tuple[int, ...]:
    """Return a shape; raises ExecutionError if it has more than `MAX_ELEMENTS` elements."""
    if math.prod(int(n) for n in shape) > MAX_ELEMENTS:
        raise ExecutionError(f"a tensor of the shape {tuple(shape)} is too large")
    return tuple(shape)


@dataclass
class OperationCall:
    """One execution of an operation.

    Members
    -------
    kind : the operation.
    inputs : its inputs, None for omitted ones.
    outputs : the operands of its results, of which types and quantisation are used.
    """

    kind: OperationType
    inputs: Sequence[Value | None]
    outputs: Sequence[Operand]

    def has(self, index: int) -> bool:
        """Whether an input is there."""
        return index < len(self.inputs) and self.inputs[index] is not None

    def value(self, index: int) -> Value:
        """Return an input.

        Raises
        ------
        ExecutionError
            If it is omitted.
        """
        found = self.inputs[index] if index < len(self.inputs) else None
        if found is None:
            raise ExecutionError(f"{self.kind.name}: input {index} is missing")
        return found

    def array(self, index: int) -> Array:
        """Return the elements of an input."""
        return self.value(index).array

    def real(self, index: int) -> Reals:
        """Return the real numbers of an input, float64."""
        return self.value(index).real

    def maybe(self, index: int) -> Reals | None:
        """Return the real numbers of an input, None if it is omitted or empty."""
        return self.real(index) if self.has(index) and self.array(index).size else None

    def integer(self, index: int, default: int = 0) -> int:
        """Return a scalar, `default` if it is missing."""
        return int(self.array(index).reshape(-1)[0]) if self.has(index) else default

    def flag(self, index: int) -> bool:
        """Return a scalar, False if it is missing."""
        return bool(self.integer(index))

    def number(self, index: int) -> float:
        """Return a scalar in floating point."""
        return float(self.array(index).reshape(-1)[0])

    def ints(self, index: int) -> list[int]:
        """Return the elements of an input as integers."""
        return [int(n) for n in self.array(index).reshape(-1)]

    def axis(self, index: int, rank: int, default: int = -1) -> int:
        """Return an axis from 0 on; raises ExecutionError if there is none."""
        axis = self.integer(index, default)
        if not -rank <= axis < rank:
            raise self.wrong(f"axis {axis} of rank {rank}")
        return axis % rank

    def put(self, values: Array, index: int = 0) -> Array:
        """Return real numbers in the type of a result."""
        return stored(values, self.outputs[index])

    def clamped(self, values: Array, act: int) -> Array:
        """Return the numbers after a fused activation; raises ExecutionError for an unknown one."""
        if act not in LIMITS:
            raise self.wrong(f"there is no fused activation {act}")
        return np.clip(values, *LIMITS[act]) if act else values

    def wrong(self, text: str) -> ExecutionError:
        """Return an error that names the operation."""
        return ExecutionError(f"{self.kind.name}: {text}")


Function = Callable[[OperationCall], list[Array]]
HOST: dict[OperationType, Function] = {}
"""The operations that the host has, filled by the modules `host_*`."""


def host(*names: str) -> Callable[[Function], Function]:
    """Register a function for operations."""

    def register(function: Function) -> Function:
        for name in names:
            assert OperationType[name] not in HOST, name
            HOST[OperationType[name]] = function
        return function

    return register
