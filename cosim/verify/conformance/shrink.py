"""Shrinking: the choices of a failing draw are simplified one by one while it still fails."""

from __future__ import annotations

import time

from rkcosim.verify.conformance.choices import Refused
from rkcosim.verify.conformance.groups import draw_case
from rkcosim.verify.conformance.runner import Outcome, Runner

BUDGET = 250
"""Maximum number of cases for one shrinking."""

SECONDS = 20.0
"""Seconds after which shrinking stops with the best case found."""


def shrink(outcome: Outcome, seed: int, index: int, runner: Runner, budget: int = BUDGET) -> Outcome:
    """Return the simplest outcome with the same kind of problem.

    Parameters
    ----------
    outcome : outcome of the failing case.
    seed, index : seed and number of the case.
    runner : runs candidates; it is reset before each, so that no state remains.
    budget : maximum number of cases.
    """
    group, attempt = outcome.case.group, outcome.case.refused
    best, left = outcome, budget
    end = time.monotonic() + SECONDS
    forced: dict[str, int] = {}

    def works(candidate: dict[str, int]) -> bool:
        nonlocal best, left
        if left <= 0 or time.monotonic() > end:
            return False
        try:
            case = draw_case(group, seed, index, candidate, attempt)
        except (Refused, ValueError):
            return False
        left -= 1
        runner.reset()
        found = runner.run(case)
        if found.problem != outcome.problem:
            return False
        best = found
        return True

    if not works({}):  # it needs state left by earlier cases
        outcome.detail += " (only after the cases before it)"
        return outcome
    progress = True
    while progress and left > 0 and time.monotonic() < end:
        progress = False
        for choice in list(best.case.choices):
            if choice.value == choice.simple or left <= 0:
                continue
            steps = [choice.simple]
            if choice.high - choice.low > 2:
                steps += [
                    (choice.value + choice.simple) // 2,
                    choice.value - (1 if choice.value > choice.simple else -1),
                ]
            for value in steps:
                if value != choice.value and works({**forced, choice.key: value}):
                    forced = {**forced, choice.key: value}
                    progress = True
                    break
    return best
