"""The comparison of a result of the NPU with the host's: four units in the last place of fp16."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.apis.diopi.values import DiopiError
from rkcosim.verify.crosscheck.file_meaning import ulp16

Array = npt.NDArray[Any]

ULPS = 4
"""Allowed difference, in units in the last place of fp16 of the largest partial sum."""


def check_bound(
    found: Array, arrays: Sequence[Array], host: Callable[..., Any], sums: Callable[..., Any] | None
) -> None:
    """Compare a result of the NPU with the host's.

    Parameters
    ----------
    found : the NPU's result.
    arrays : the operands.
    host : computes the result from the operands, in float64.
    sums : computes bounds of the partial sums from the operands' magnitudes; without it the largest magnitude
        of operands and result is the bound.  Both count at least as the smallest normal number of fp16.

    Raises
    ------
    DiopiError
        if an element differs by more than `ULPS`.  NaN equals NaN, and what is beyond fp16 is infinite.
    """
    with np.errstate(all="ignore"):
        right = np.asarray(host(*arrays), np.float64).reshape(found.shape)
        if sums is None:
            finite = [np.abs(a[np.isfinite(a)].astype(np.float64)).max(initial=0) for a in (*arrays, right)]
            largest = np.full(found.shape, max(finite, default=0.0))
        else:
            largest = np.abs(np.asarray(sums(*(np.abs(a) for a in arrays)), np.float64)).reshape(found.shape)
        limit = ULPS * ulp16(np.maximum(largest, 2.0**-14))
        rounded = right.astype(np.float16).astype(np.float64)
        given = found.astype(np.float16).astype(np.float64)
        same = (given == rounded) | (np.isnan(given) & np.isnan(rounded)) | (np.abs(given - right) <= limit)
    if not same.all():
        place = tuple(int(i) for i in np.argwhere(~same)[0])
        raise DiopiError(
            f"{int((~same).sum())} of {same.size} elements are not within {ULPS} units of the host's result, "
            f"for example {given[place]:g} at {place}, not {right[place]:g}"
        )
