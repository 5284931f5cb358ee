"""Shrinking: the choices of a failing draw are made plainer one by one while it still fails."""

from __future__ import annotations

import time
from collections.abc import Callable

from cosim.conformance.case import Case
from cosim.conformance.choices import Refused
from cosim.conformance.groups import draw_case
from cosim.conformance.runner import Outcome, Runner

BUDGET = 250
"""Cases that one shrinking runs at most."""

SECONDS = 20.0
"""Time after which it takes what it has."""

Draw = Callable[[dict[str, int]], Case]


def shrink(
    outcome: Outcome,
    seed: int,
    index: int,
    runner: Runner,
    budget: int = BUDGET,
) -> Outcome:
    """Return the plainest outcome with the same kind of problem that was found.

    Parameters
    ----------
    outcome
        of a case that failed.
    seed, index
        that drew it.
    runner
        to run candidates; it is reset before each, so that nothing is left of the ones before.
    budget
        cases to run at most.
    """
    group, attempt = outcome.case.group, outcome.case.refused

    def draw(forced: dict[str, int]) -> Case:
        return draw_case(group, seed, index, forced, attempt)

    return shrink_with(outcome, draw, runner, budget)


def shrink_with(outcome: Outcome, draw: Draw, runner: Runner, budget: int = BUDGET) -> Outcome:
    """As `shrink`, with any function that draws a case from forced choices."""
    best, left = outcome, budget
    end = time.monotonic() + SECONDS
    forced: dict[str, int] = {}

    def works(candidate: dict[str, int]) -> bool:
        nonlocal best, left
        if left <= 0 or time.monotonic() > end:
            return False
        try:
            case = draw(candidate)
        except (Refused, ValueError):
            return False
        left -= 1
        runner.reset()
        found = runner.run(case)
        if found.problem != outcome.problem:
            return False
        best = found
        return True

    if not works({}):  # it needs what earlier cases left behind
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
