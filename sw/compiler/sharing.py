"""Which layers several cores share: those that save more time than their submits take.

Cores start and end a divided layer together, so that it is a submit of its own; the layers before and behind
it on one core are others.  A driver takes a time for each submit (`rkcosim.spec.submit`) in which no core
works, so that the shortest inference does not divide every layer that takes fewer cycles on several cores.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from math import inf
from typing import NamedTuple

from rkcosim.compiler.graph import ModelError
from rkcosim.spec.submit import SUBMIT_US

DIVIDE_VARIABLE = "RKCOSIM_DIVIDE"
"""Environment variable that says what a division has to save: "time" (the default) or "cycles"."""

CLOCK_MHZ = 1000
"""Clock of the NPU for which the driver's time is counted in cycles."""


def submit_cycles() -> int:
    """Return the cycles that a driver takes for a submit, or 0 if layers are divided to save cycles alone.

    Raises
    ------
    ModelError
        If `DIVIDE_VARIABLE` has another value than "time" or "cycles".
    """
    wanted = os.environ.get(DIVIDE_VARIABLE) or "time"
    if wanted not in ("time", "cycles"):
        raise ModelError(f'{DIVIDE_VARIABLE} is "time" or "cycles", not "{wanted}"')
    return round(SUBMIT_US * CLOCK_MHZ) if wanted == "time" else 0


def one_core_reason() -> str:
    """Return why no layer is divided among several cores, for a plan without such a layer."""
    if submit_cycles() == 0:
        return "no layer takes fewer cycles if it is divided: all are on one core"
    return (
        f"no layer saves the {SUBMIT_US:g} us of a further submit: all are on one core "
        f"({DIVIDE_VARIABLE}=cycles divides those that save cycles)"
    )


class _Way(NamedTuple):
    """A way to run the steps so far; the smallest is the shortest, and divides the fewest steps.

    Members
    -------
    cycles : its time, less the time of all steps on one core without submits.
    shared : number of divided steps.
    divided : the divided steps.
    """

    cycles: float
    shared: int = 0
    divided: tuple[int, ...] = ()

    def further(self, cycles: int, *divided: int) -> _Way:
        """Return this way with more cycles and more divided steps."""
        return _Way(self.cycles + cycles, self.shared + len(divided), self.divided + divided)


_NO_WAY = _Way(inf)


def steps_to_share(savings: Sequence[int | None], submit: int) -> tuple[int, ...]:
    """Return the steps whose division gives the shortest time, including that of all submits.

    Parameters
    ----------
    savings
        For each step the cycles that its division saves, 0 or less if it stays on one core in any case; None
        for a step of the host, which ends a submit.
    submit
        Cycles of a submit.
    """
    ended, chain = _Way(0), _NO_WAY  # the shortest ways whose last submit has ended, or accepts another step
    for number, saving in enumerate(savings):
        shortest = min(ended, chain)
        if saving is None:
            ended, chain = shortest, _NO_WAY
        else:
            alone = min(chain, ended.further(submit))
            ended = shortest.further(submit - saving, number) if saving > 0 else _NO_WAY
            chain = alone
    return min(ended, chain).divided
