"""Repetition in the simulation of a task (`turns`): most stripes take as long as those before them.

Between two events all rates are constant, so that a core whose state differs from that of some steps ago in
its place alone does the same again, as long as the steps that follow have the same form.  Such periods are
skipped: places, beats and cycles advance by whole periods, and the events between are not simulated.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from rkcosim.measure.perf.estimator.accesses import FEATURES, LISTS, WEIGHTS, Flow, Step, Wishes

FEWEST = 12
"""Steps of a task from which on periods are looked for."""

PLACES = 6
"""Decimal places to which the beats and cycles of two states have to be the same."""

FRUITLESS = 300
"""States without a period after which no more of them are looked for in a task."""

Ends = Mapping[tuple[str, str], float]


@dataclass(frozen=True)
class State:
    """A core when its array has come to a stripe.

    Members
    -------
    step, now : index of the step, and the cycle.
    read : beats that each client has read.
    free : whether a client reads ahead of the array without a limit; its place is not part of the form.
    ends : cycles in each pair of states (`turns.Span`).
    form : all else, relative to the step and to the cycle.
    """

    step: int
    now: float
    read: Sequence[float]
    free: bool
    ends: Ends
    form: Hashable


@dataclass(frozen=True)
class Skip:
    """Steps that are skipped at once: their number, their cycles, the beats that each client reads meanwhile.

    `ends` are the cycles in each pair of states.
    """

    steps: int
    cycles: float
    read: Sequence[float]
    ends: Ends


class Periods:
    """The periods of one task."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self._seen: dict[Hashable, list[State]] = {}
        self._left = FRUITLESS if len(flow.steps) >= FEWEST and not flow.little else 0

    def __bool__(self) -> bool:
        """Return whether periods are still looked for."""
        return self._left > 0

    @cached_property
    def totals(self) -> list[float]:
        """Beats of the whole task, of each client."""
        totals = [reads.allow for reads in self.flow.reads]
        totals[WEIGHTS] = max(totals[WEIGHTS], self.flow.weights)
        totals[LISTS] += self.flow.lists
        for step in self.flow.steps:
            for who, beats in (*step.allows, *step.drain_allows):
                totals[who] = max(totals[who], beats)
        return totals

    @cached_property
    def bases(self) -> list[list[float]]:
        """For each step, the beats of each client that the steps up to it need."""
        bases = []
        now = [0.0] * len(self.flow.reads)
        for step in self.flow.steps:
            now = list(now)
            for who, beats in (*step.needs, *step.drain_needs):
                now[who] = max(now[who], beats)
            bases.append(now)
        return bases

    @cached_property
    def forms(self) -> list[int]:
        """For each step, a number that is the same for steps that differ in their place alone."""
        known: dict[Hashable, int] = {}
        before, forms = [0.0] * len(self.flow.reads), []
        for step, base in zip(self.flow.steps, self.bases, strict=True):
            form = _form(step, base), tuple(round(a - b, PLACES) for a, b in zip(base, before, strict=True))
            forms.append(known.setdefault(form, len(known)))
            before = base
        return forms

    def find(self, state: State) -> Skip | None:
        """Note a state; return what can be skipped from it on, if it ends a period.

        If a client reads ahead, the period must have come twice in the same number of cycles: then the array
        does not wait for that client.
        """
        self._left -= 1
        before = self._seen.setdefault(state.form, [])
        before.append(state)
        if len(before) < 2 + state.free:
            return None
        *first, middle, last = before[-2 - state.free :]
        steps, cycles, beats = _between(middle, last)
        if any(_between(one, middle) != (steps, cycles, beats) for one in first):
            return None
        periods = min([self._alike(middle.step, last.step) // steps, *self._limits(middle, last, beats)]) - 1
        if periods < 1:
            return None
        self._seen.clear()
        self._left = FRUITLESS
        return Skip(
            periods * steps,
            periods * cycles,
            [periods * read for read in beats],
            {pair: periods * (now - middle.ends.get(pair, 0.0)) for pair, now in last.ends.items()},
        )

    def _alike(self, first: int, second: int) -> int:
        """Return how many steps behind `second` have the forms of those behind `first`."""
        pairs = zip(self.forms[first + 1 :], self.forms[second + 1 :], strict=False)
        return next((number for number, (a, b) in enumerate(pairs) if a != b), len(self.forms) - second - 1)

    def _limits(self, before: State, now: State, beats: Sequence[float]) -> list[int]:
        """Return after how many periods a client reads in another way, or the array has used up its lead."""
        limits = []
        for who, rate in enumerate(beats):
            reads, read = self.flow.reads[who], now.read[who]
            gives_way = self.flow.give_way if who == FEATURES and self.flow.weights else 0.0
            for mark in (reads.window, self.totals[who] - max(reads.tail, gives_way), self.totals[who]):
                if rate and mark > read:
                    limits.append(int((mark - read) / rate))
            need = self.bases[now.step][who]
            used = need - self.bases[before.step][who]
            if used > rate and read < self.totals[who]:
                limits.append(int((read - need - used) / (used - rate)) - 1)
        return limits


def _between(first: State, second: State) -> tuple[int, float, list[float]]:
    """Return the steps, the cycles and the beats of each client between two states."""
    beats = [round(now - then, PLACES) for now, then in zip(second.read, first.read, strict=True)]
    return second.step - first.step, round(second.now - first.now, PLACES), beats


def _form(step: Step, base: Sequence[float]) -> Hashable:
    """Return what steps that differ in their place alone have in common."""

    def relative(wishes: Wishes) -> Hashable:
        return tuple((who, round(beats - base[who], PLACES)) for who, beats in wishes)

    return (
        (step.work, step.drain, step.writes, step.bursts, step.first, step.last, step.land, step.placed),
        relative(step.needs),
        relative(step.allows),
        relative(step.drain_needs),
        relative(step.drain_allows),
    )
