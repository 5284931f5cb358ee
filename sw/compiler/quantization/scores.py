"""Errors of quantised models on held-out samples, and whether one is better than another beyond the noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.compiler.quantization.figures import Sums, channel_squares, relative_error, worst_of
from rkcosim.compiler.quantization.trials import Trial

Outputs = Sequence[Mapping[str, npt.NDArray[Any]]]

CHANCE, SHARE = 0.01, 0.02
"""Chance that a change without a gain is advised; part of the error by which an advised change lowers it."""

WORSE_DB = 0.5
"""SQNR of the worst output in dB that a change may cost where the channels gain."""


class Score:
    """Errors of a model on held-out samples.

    Parameters
    ----------
    right, found
        Outputs of the float model and of the other one by name, for each sample.

    Members
    -------
    error
        Mean relative error of the channels: the mean over outputs and samples.
    sqnr
        SQNR of the worst output in dB; None if there is no error.
    """

    def __init__(self, right: Outputs, found: Outputs) -> None:
        sums = {name: Sums() for name in right[0]}
        self._each = np.zeros(len(right))
        for place, (want, have) in enumerate(zip(right, found, strict=True)):
            errors = []
            for name, one in sums.items():
                one.add(want[name], have[name])
                errors.append(relative_error(channel_squares(want[name], have[name])))
            self._each[place] = np.mean(errors)
        self.error = float(self._each.mean())
        self.sqnr = worst_of({name: one.figures() for name, one in sums.items()}).sqnr

    def against(self, start: Score, trial: Trial) -> Trial:
        """Return a trial with these errors, and whether they are better than those of a start."""
        gained = start._each - self._each
        noise = float(gained.std(ddof=1) / np.sqrt(len(gained)))
        better = gained.mean() > max(standard_errors(len(gained)) * noise, SHARE * start.error)
        keeps = self._decibels() >= start._decibels() - WORSE_DB
        return replace(trial, error=self.error, sqnr=self.sqnr, noise=noise, advised=bool(better and keeps))

    def _decibels(self) -> float:
        return float("inf") if self.sqnr is None else self.sqnr


def standard_errors(samples: int) -> float:
    """Return by how many standard errors the mean of so many differences must exceed 0.

    This is the quantile of Student's t for the chance `CHANCE`, by the expansion in the reciprocal of the
    degrees of freedom (Abramowitz and Stegun 26.7.5, two terms).
    """
    z, degrees = NormalDist().inv_cdf(1 - CHANCE), samples - 1
    return z + (z**3 + z) / (4 * degrees) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)
