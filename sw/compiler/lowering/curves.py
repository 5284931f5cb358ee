"""Functions that the tables of the LUT approximate in fp16."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rkcosim.compiler.graph import ModelError
from rkcosim.compiler.host_steps import REAL_FUNCTIONS, gauss
from rkcosim.compiler.lowering.common import Array
from rkcosim.compiler.steps import FloatStage

TABLE_SEGMENTS = 512
"""Segments of each table of the LUT [HW 7.9]."""
TABLE_FRACTION = 15
"""Fraction bits of an entry."""
MAX_HALF = 65504.0
"""Largest finite fp16 number."""

Curve = tuple[Callable[[Array], Array], float]
"""A function and the largest |x| at which it is not constant."""

GATES: dict[str, Callable[[float], Curve]] = {
    "Silu": lambda alpha: (lambda x: REAL_FUNCTIONS["Sigmoid"](x, 0, 0), 11.0),
    "Swish": lambda alpha: (lambda x: REAL_FUNCTIONS["Sigmoid"](alpha * x, 0, 0), 11.0 / alpha),
    "Gelu": lambda alpha: (lambda x: gauss(x, bool(alpha)), 4.5),
    "Mish": lambda alpha: (lambda x: np.tanh(REAL_FUNCTIONS["Softplus"](x, 0, 0)), 11.0),
}
"""Functions x * f(x) with f between 0 and 1: f, from the parameter alpha."""

CURVES: dict[str, tuple[Curve, bool]] = {
    "Sigmoid": ((lambda x: REAL_FUNCTIONS["Sigmoid"](x, 0, 0), 11.0), False),
    "Tanh": ((np.tanh, 5.5), True),
    "Erf": ((lambda x: REAL_FUNCTIONS["Erf"](x, 0, 0), 3.0), True),
}
"""Functions between -1 and 1 (with True) or between 0 and 1."""


@dataclass(frozen=True)
class Bend:
    """A function x -> max(slope * x, 0) + f(x), or the larger one of x and f(x), with a table of f.

    Members
    -------
    curve : f, and the largest |x| at which it is not constant.
    peak : largest |f(x)|.
    slope : factor of the positive part; 0 for the larger one of x and f(x).
    """

    curve: Curve
    peak: float
    slope: float = 0.0

    @property
    def exponent(self) -> int:
        """Power of two by which f is divided for its table, whose entries are below 1."""
        return max(math.ceil(math.log2(self.peak)), -8)


def _bend(height: float, width: float, slope: float, larger: bool) -> Bend | None:
    """Return height * expm1(x / width) for negative x with a positive part."""
    if not 2.0**-8 <= abs(height) <= 2.0**14 or not 2.0**-8 <= width <= 2.0**8:
        return None
    curve = (lambda x: height * np.expm1(np.minimum(x, 0.0) / width), 9.0 * width)
    return Bend(curve, abs(height), 0.0 if larger else slope)


BENDS: dict[str, Callable[[float, float], Bend | None]] = {
    "Elu": lambda a, b: _bend(a, 1.0, 1.0, 0 < a <= 1),
    "Selu": lambda a, b: _bend(a * b, 1.0, b, False),
    "Celu": lambda a, b: _bend(a, a, 1.0, True) if a > 0 else None,
    "Softplus": lambda a, b: Bend((lambda x: np.log1p(np.exp(-np.abs(x))), 11.0), math.log(2), 1.0),
}
"""Functions that grow as x does, from the parameters alpha and beta; None where no table fits.

As e^x - 1 >= x, Celu, and Elu with an alpha of at most 1, are the larger one of x and their negative part.
"""


@dataclass(frozen=True)
class CurveTable:
    """The tables of a function, as in `rkcosim.compiler.steps.TableStep`."""

    scale: float
    low: npt.NDArray[np.int16]
    high: npt.NDArray[np.int16]
    select: int


def curve_table(curve: Curve, signed: bool) -> CurveTable:
    """Return the tables of a function that is constant outside of its reach.

    The scale is the largest fp16 number with which the reach ends at the end of the tables.

    Parameters
    ----------
    curve
        The function of float64 arrays and its reach.
    signed
        Whether it has both signs; otherwise 1 is subtracted from each entry, which the step adds again.
    """
    function, reach = curve
    select = math.floor(math.log2(MAX_HALF * reach / TABLE_SEGMENTS))
    scale = float(np.float16(TABLE_SEGMENTS * 2.0**select / reach))
    places = np.arange(-TABLE_SEGMENTS, TABLE_SEGMENTS + 1) * 2.0**select / scale
    values = np.rint(function(places) * 2.0**TABLE_FRACTION) - (0 if signed else 1)
    entries = np.clip(values, -(2**15) + 1 if signed else 0, 2**15 - 1).astype(np.int16)
    return CurveTable(scale, entries[: TABLE_SEGMENTS + 1], entries[TABLE_SEGMENTS:], select)


EMPTY_STAGE = FloatStage()


def float_stage(scale: Array, shift: Array, limits: FloatStage = EMPTY_STAGE) -> FloatStage:
    """Return a stage that multiplies and adds, without operations that change nothing."""
    with np.errstate(over="ignore"):
        mul, add = scale.astype(np.float16), shift.astype(np.float32)
    if not np.isfinite(mul).all():
        raise ModelError("a factor is outside the range of fp16")
    return FloatStage(
        mul=None if (mul == 1).all() else mul,
        add=None if not add.any() else add,
        relu=limits.relu,
        high=limits.high,
    )
