"""Integers divided by powers of two and rounded, with the rule for halves as a parameter."""

from __future__ import annotations

from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]


class Halves(Enum):
    """Where a number in the middle between two integers is rounded to."""

    EVEN = "to the even integer"
    AWAY = "to the integer that is further from zero"


def shifted(values: npt.NDArray[Any], shift: int, halves: Halves) -> Integers:
    """Return `values / 2**shift`, rounded to the nearest integer.

    Parameters
    ----------
    values
        Integers of any shape, below 2**62 in magnitude.
    shift
        0 to 62.
    halves
        The rule for halves.

    Raises
    ------
    ValueError
        If `shift` is outside its range.
    """
    if not 0 <= shift <= 62:
        raise ValueError(f"a shift of {shift} bits is outside 0..62")
    wide = np.asarray(values, np.int64)
    if shift == 0:
        return wide
    magnitude = np.abs(wide)
    if halves is Halves.AWAY:
        whole = (magnitude + (1 << (shift - 1))) >> shift
    else:
        whole = magnitude >> shift
        rest = magnitude - (whole << shift)
        whole += rest > (1 << (shift - 1)) - (whole & 1)
    return np.where(wide < 0, -whole, whole)


def nearest(values: npt.ArrayLike, halves: Halves) -> npt.NDArray[np.float64]:
    """Return real numbers rounded to integers as float64; numbers that are not finite are kept.

    Parameters
    ----------
    values
        Real numbers of any shape.
    halves
        The rule for halves.
    """
    wide = np.asarray(values, np.float64)
    if halves is Halves.EVEN:
        return np.asarray(np.rint(wide))
    return np.asarray(np.copysign(np.floor(np.abs(wide) + 0.5), wide))
