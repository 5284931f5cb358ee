"""Resizes whose results lie at equal distances between the elements of each axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from rkcosim.compiler.graph import BilinearForm, Op


@dataclass(frozen=True)
class Sampling:
    """The places of the results of a resize along an axis, in units of elements.

    Members
    -------
    method
        nearest takes the elements of `picks`; linear interpolates between two elements, cubic between four
        (Keys, with the coefficient `a`).
    start, step
        Result i lies at start + i * step; element p at p.
    picks
        For nearest: the element that each result takes.
    a
        Coefficient of a cubic interpolation.
    reach
        Factor on the distances that the weights reach: above 1 for an antialiased resize to fewer elements.
    inside
        Whether elements outside have no weight.  Otherwise they are the first or the last element.
    """

    method: Literal["nearest", "linear", "cubic"]
    start: float = 0.0
    step: float = 1.0
    picks: tuple[int, ...] = ()
    a: float = -0.75
    reach: float = 1.0
    inside: bool = False

    def plain(self, size: int, out: int) -> bool:
        """Whether the results are the elements themselves."""
        if self.method == "nearest":
            return self.picks == tuple(range(size))
        return size == out and (self.start, self.step) == (0.0, 1.0)

    @property
    def most(self) -> int:
        """The largest number of neighbouring elements that a result depends on, not for nearest."""
        return 2 * math.ceil((2 if self.method == "cubic" else 1) * self.reach)

    def weights(self, apart: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Return the weights of elements at distances (float64, any shape) from a result, not for nearest.

        Cubic ones are those of ONNX' Resize (Keys 1981).
        """
        if self.method == "linear":
            return np.asarray((1.0 - apart).clip(0), np.float64)
        a = self.a
        near = ((a + 2) * apart - (a + 3)) * apart**2 + 1
        far = ((apart - 5) * apart + 8) * apart * a - 4 * a
        return np.where(apart <= 1, near, np.where(apart < 2, far, 0.0))

    def matrix(self, size: int, out: int) -> npt.NDArray[np.float64]:
        """Return the weights of `size` elements (columns) for `out` results (rows), not for nearest.

        The sum of each row is 1.
        """
        made, results = np.zeros((out, size)), np.arange(out)
        at = self.start + self.step * results
        for offset in range(1 - self.most // 2, self.most // 2 + 1):
            places = np.floor(at) + offset
            weights = self.weights(np.abs(places - at) / self.reach)
            if self.inside:
                weights[(places < 0) | (places >= size)] = 0.0
            np.add.at(made, (results, places.clip(0, size - 1).astype(np.int64)), weights)
        return made / made.sum(axis=1, keepdims=True) if self.inside or self.reach > 1 else made


@dataclass(frozen=True)
class Resample(Op):
    """A resize with the places of its rows and of its columns.

    A padding with copies of elements is one as well; `what` is its kind in tables.
    """

    rows: Sampling
    columns: Sampling
    what: str = "Resize"

    @property
    def kind(self) -> str:
        """Resize, or Pad."""
        return self.what


def linear(form: BilinearForm, size: int, out: int) -> Sampling:
    """Return the places of a linear resize to `out` elements for a coordinate transformation of ONNX."""
    if form == "align_corners":
        return Sampling("linear", 0.0, (size - 1) / max(out - 1, 1))
    step = size / out
    return Sampling("linear", 0.0 if form == "asymmetric" else (step - 1) / 2, step)


def neighbours(picks: Sequence[int]) -> list[tuple[int, int, int]]:
    """Return first result, first element and length of each range of results with neighbouring elements."""
    starts = [at for at in range(len(picks)) if not at or picks[at] != picks[at - 1] + 1]
    return [(at, picks[at], end - at) for at, end in zip(starts, [*starts[1:], len(picks)], strict=True)]
