"""Tensors and calls of DIOPI for tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.apis.diopi import runtime
from rkcosim.apis.diopi.enums import Device, Dtype, Error
from rkcosim.apis.diopi.operators import OPERATORS
from rkcosim.apis.diopi.tensor import diopiTensor
from rkcosim.apis.diopi.values import diopiScalar, diopiSize

Array = npt.NDArray[Any]


def size(*values: int) -> diopiSize:
    """Return a size."""
    return diopiSize(values, len(values))


def scalar(value: float) -> diopiScalar:
    """Return a scalar of int64 or float64."""
    return diopiScalar(Dtype.float64 if isinstance(value, float) else Dtype.int64, value)


class Calls:
    """Calls of operators in one context."""

    def __init__(self) -> None:
        self.context = runtime.Context()

    def tensor(self, array: Array) -> diopiTensor:
        """Return a tensor on the device with an array's elements, and with its strides."""
        strides = [step // array.itemsize for step in array.strides]
        return diopiTensor(
            size(*array.shape),
            diopiSize(strides, len(strides)),
            Dtype[array.dtype.name],
            Device.AIChip,
            self.context,
            array.ctypes.data,
        )

    def empty(self, shape: Sequence[int], dtype: Any = np.float16) -> diopiTensor:
        """Return a dense tensor of zeros on the device."""
        return diopiTensor(size(*shape), None, Dtype[np.dtype(dtype).name], Device.AIChip, self.context)

    def result(self, name: str, *arguments: Any) -> tuple[Error, str]:
        """Call an operator; returns its result, and the text of the error."""
        code = OPERATORS[f"diopi{name}"](self.context, *arguments)
        return code, runtime.get_last_error_string() if code else ""

    def compute(self, name: str, shape: Sequence[int], *arguments: Any, dtype: Any = np.float16) -> Array:
        """Call an operator with a result; arrays become tensors."""
        out = self.empty(shape, dtype)
        given = [self.tensor(a) if isinstance(a, np.ndarray) else a for a in arguments]
        code, text = self.result(name, out, *given)
        assert code is Error.diopi_success, text
        return out.array().copy()
