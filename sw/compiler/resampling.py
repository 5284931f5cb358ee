"""Resizes whose results lie at equal distances between the elements of each axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rkcosim.compiler.graph import BilinearForm, Op


@dataclass(frozen=True)
class Sampling:
    """The places of the results of a resize along an axis, in units of elements.

    Members
    -------
    method
        nearest takes the elements of `picks`; linear interpolates between two elements, cubic between four
        (Keys, with the coefficient `a`).  Elements outside are the first or the last one.
    start, step
        Result i lies at start + i * step; element p at p.
    picks
        For nearest: the element that each result takes.
    """

    method: Literal["nearest", "linear", "cubic"]
    start: float = 0.0
    step: float = 1.0
    picks: tuple[int, ...] = ()
    a: float = -0.75


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
