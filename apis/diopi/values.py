"""Values that DIOPI's functions take by structure: sizes and scalars; errors."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from rkcosim.apis.diopi.enums import Dtype, Error

REALS = (Dtype.float16, Dtype.float32, Dtype.float64, Dtype.bfloat16, Dtype.tfloat32)


class DiopiError(Exception):
    """A call failed.

    Members
    -------
    code : the call's result; the text is that of `diopiGetLastErrorString`.
    """

    def __init__(self, text: str, code: Error = Error.diopi_error_occurred) -> None:
        super().__init__(text)
        self.code = code


class diopiSize:
    """A list of integers: a shape, strides, or the parameters of a window.

    Parameters
    ----------
    data : the integers; None for none.
    len : their number.

    Raises
    ------
    ValueError
        if the number is another one.
    """

    def __init__(self, data: Sequence[int] | None = None, len: int = 0) -> None:
        self._values = tuple(int(value) for value in data or ())
        if data is not None and len != self._values.__len__():
            raise ValueError(f"a size of {len} integers was given {self._values.__len__()}")

    @property
    def len(self) -> int:
        """Number of integers."""
        return self._values.__len__()

    @property
    def data(self) -> list[int]:
        """The integers, as a new list."""
        return list(self._values)


class diopiScalar:
    """A number with its type: a union of float64 and int64.

    Parameters
    ----------
    dtype : `stype`; it decides which member is the number.
    value : an int sets `ival`, a float sets `fval`.
    """

    def __init__(self, dtype: Dtype = Dtype.float64, value: float = 0) -> None:
        self.stype = Dtype(dtype)
        self._bits = b""
        if isinstance(value, float):
            self.fval = value
        else:
            self.ival = int(value)
            # A caller that names a type of real numbers and gives an integer means its value.
            if self.stype in REALS:
                self.fval = float(value)

    @property
    def fval(self) -> float:
        """The eight bytes as float64."""
        return float(struct.unpack("<d", self._bits)[0])

    @fval.setter
    def fval(self, value: float) -> None:
        self._bits = struct.pack("<d", value)

    @property
    def ival(self) -> int:
        """The eight bytes as int64."""
        return int(struct.unpack("<q", self._bits)[0])

    @ival.setter
    def ival(self, value: int) -> None:
        self._bits = struct.pack("<q", value)

    @property
    def value(self) -> float:
        """The number: `fval` for types of real numbers, otherwise `ival`."""
        return self.fval if self.stype in REALS else self.ival
