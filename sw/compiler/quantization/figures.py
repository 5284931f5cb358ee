"""How far a tensor is from another one: cosine, signal to noise, and the largest difference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclass
class Figures:
    """How far a tensor is from the float model's, over all samples.

    Members
    -------
    cosine
        Cosine of the angle between the two tensors; 1 if both are 0.
    sqnr
        Ratio of the signal to the error in dB; None if there is no error.
    worst
        Largest absolute difference of an element.
    steps
        The same in steps of the tensor's quantisation; None for a tensor in floating point.
    """

    cosine: float = 1.0
    sqnr: float | None = None
    worst: float = 0.0
    steps: float | None = None


@dataclass
class Sums:
    """Sums from which `Figures` follow."""

    both: float = 0.0
    theirs: float = 0.0
    ours: float = 0.0
    error: float = 0.0
    worst: float = 0.0

    def add(self, original: Array, found: Array) -> None:
        """Add the elements of one sample."""
        a, b = original.astype(np.float64).reshape(-1), found.astype(np.float64).reshape(-1)
        apart = b - a
        self.both += float(a @ b)
        self.theirs += float(a @ a)
        self.ours += float(b @ b)
        self.error += float(apart @ apart)
        self.worst = max(self.worst, float(np.abs(apart).max(initial=0.0)))

    def figures(self, scale: float | None = None) -> Figures:
        """Return the figures; `scale` is a step of the tensor's quantisation."""
        norm = np.sqrt(self.theirs * self.ours)
        cosine = self.both / norm if norm else float(self.theirs == self.ours)
        sqnr = None
        if self.error:
            ratio = self.theirs / self.error
            sqnr = float(10 * np.log10(ratio)) if ratio else -999.0
        return Figures(float(cosine), sqnr, self.worst, self.worst / scale if scale else None)


def order(figures: Figures) -> float:
    """Return the SQNR in dB, infinity if there is no error: smaller is worse."""
    return float("inf") if figures.sqnr is None else figures.sqnr


def worst_of(figures: Mapping[str, Figures]) -> Figures:
    """Return the figures of the tensor with the smallest SQNR."""
    return min(figures.values(), key=order)
