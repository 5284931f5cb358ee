"""Where a model's tasks may be cut, and how they are cut into shards of about equal cost.

A model is a row of jobs with steps of the host between them.  The tasks of a job on one core are a chain
that may be cut between any two; a job that several cores share is simulated whole.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from cosim.engines.library import DramConfig
from cosim.perf import formula
from sw.compiler.plan import Plan
from sw.compiler.programs.task import Task

TASK_CYCLES = 400
"""Cycles that a task takes besides its formula, about: fetching its words, latencies of memory."""

OPEN_CYCLES = 60_000
"""What opening an engine and sending an image cost, in cycles that could be simulated meanwhile, about."""

MOST_FOR_ONE = 4
"""Shards for each worker that `shards_for` considers."""


@dataclass(frozen=True)
class Unit:
    """What is never cut: a task of a chain, or a whole job of several cores.

    Members
    -------
    job : number of its job in the model.
    first, count : its tasks, numbered through the model.
    cost : cycles that it is expected to take.
    leans : needs what an earlier task of its job left in the core (weights in CBUF, the LUT's tables).
    """

    job: int
    first: int
    count: int
    cost: int
    leans: bool = False


@dataclass(frozen=True)
class Span:
    """Tasks of one job that a shard simulates and counts.

    Members
    -------
    job : number of the job in the model.
    first, count : tasks that count, numbered through the model.
    lead : tasks simulated ahead of them, which do not count.
    begins, ends : whether the job's first or last task is among them: cycles count from the submit of the
        job, or to its last interrupt, else from and to the end of a task.
    """

    job: int
    first: int
    count: int
    lead: int
    begins: bool
    ends: bool

    @property
    def start(self) -> int:
        """First task that is simulated."""
        return self.first - self.lead

    @property
    def end(self) -> int:
        """One past the last task that counts."""
        return self.first + self.count


@dataclass(frozen=True)
class Shard:
    """Spans that one worker simulates one after the other; `cost` in estimated cycles, lead included."""

    number: int
    spans: tuple[Span, ...]
    cost: int

    @property
    def first(self) -> int:
        """First task that counts."""
        return self.spans[0].first

    @property
    def end(self) -> int:
        """One past the last task that counts."""
        return self.spans[-1].end

    @property
    def tasks(self) -> str:
        """Its tasks in words."""
        last = self.end - 1
        return f"task {self.first}" if last == self.first else f"tasks {self.first} to {last}"


def task_cost(task: Task, dram: DramConfig | None = None) -> int:
    """Cycles that a task takes about, by its formulas alone; `dram` is the memory's timing."""
    return TASK_CYCLES + max(task.formula_npu, formula.ddr(task.reads, task.writes, dram))


def task_costs(plan: Plan, dram: DramConfig | None = None) -> list[int]:
    """Cycles that each task of a plan is expected to take: the estimator's, else `task_cost`."""
    from cosim.perf.estimator import estimate_model

    try:
        return [max(1, task.cycles + task.gap) for task in estimate_model(plan, dram=dram).tasks]
    except ValueError:  # a kind of task that it does not know
        return [task_cost(task, dram) for task in plan.tasks]


def leans(task: Task) -> bool:
    """Whether a task needs data or weights that an earlier one left in CBUF, or its tables in the LUT.

    All other registers are written by each task of the compiler's.
    """
    looks_up = loads = reuses = False
    for setting in task.settings:
        values = setting.fields
        reuses |= bool(values.get("WEIGHT_REUSE") or values.get("DATA_REUSE"))
        if setting.register == "EW_CFG":
            looks_up = not values.get("EW_BYPASS") and not values.get("EW_LUT_BYPASS")
        loads |= setting.register == "LUT_ACCESS_DATA"
    return reuses or (looks_up and not loads)


def units(plan: Plan, costs: Sequence[int] | None = None, dram: DramConfig | None = None) -> list[Unit]:
    """The units of a plan, in order.

    Parameters
    ----------
    plan : the compiled model's.
    costs : expected cycles of each task; by default `task_costs` with the memory `dram`.
    """
    costs = task_costs(plan, dram) if costs is None else costs
    result: list[Unit] = []
    job = 0
    for segment in plan.segments():
        if segment.host is not None:
            continue
        if len(segment.parts) == 1:
            for number in range(segment.first, segment.first + segment.count):
                result.append(Unit(job, number, 1, costs[number], leans(plan.tasks[number])))
        else:
            starts = [(segment.first + first, count) for first, count in segment.parts]
            most = max(sum(costs[first : first + count]) for first, count in starts)
            result.append(Unit(job, segment.first, segment.count, most))
        job += 1
    return result


def leads(chain: Sequence[Unit]) -> list[int]:
    """For each unit, how many units a shard that counts from it simulates ahead of it.

    None at the start of a job: the host starts it only after all of the job before has ended.  Else one,
    and those that it leans on.
    """
    result = []
    for number, unit in enumerate(chain):
        back = 0
        while number - back > 0 and chain[number - back - 1].job == unit.job:
            back += 1
            if not chain[number - back].leans:
                break
        result.append(back)
    return result


def cut(chain: Sequence[Unit], shards: int) -> list[Shard]:
    """Cut a chain of units into `shards` shards, the costliest as cheap as can be; fewer units, fewer shards.

    Raises
    ------
    ValueError
        if `shards` is not positive.
    """
    if shards < 1:
        raise ValueError(f"a run has at least one shard, not {shards}")
    if not chain:
        return []
    shards = min(shards, len(chain))
    ahead = leads(chain)
    ends = np.array([0, *itertools.accumulate(unit.cost for unit in chain)])
    extra = np.array([ends[n] - ends[n - back] for n, back in enumerate(ahead)])
    starts = _starts(ends, extra, shards)
    result = []
    for number, (start, end) in enumerate(itertools.pairwise([*starts, len(chain)])):
        spans = [_span(chain, ahead, start, low, high) for low, high in _jobs(chain, start, end)]
        result.append(Shard(number, tuple(spans), int(ends[end] - ends[start] + extra[start])))
    return result


def _starts(ends: np.ndarray, extra: np.ndarray, shards: int) -> list[int]:
    """First units of `shards` shards with the smallest possible maximum of cost and lead."""
    count = len(extra)
    best = ends[1:] - ends[0] + extra[0]  # of the first n + 1 units in one shard
    choices = []
    for _ in range(shards - 1):
        fewer, best, choice = best, np.full(count, np.iinfo(np.int64).max), np.zeros(count, np.int64)
        for last in range(1, count):
            # The last shard is units `at` to `last`; those before them are cut already.
            most = np.maximum(fewer[:last], ends[last + 1] - ends[1 : last + 1] + extra[1 : last + 1])
            at = int(most.argmin())
            best[last], choice[last] = most[at], at + 1
        choices.append(choice)
    starts, last = [], count - 1
    for choice in reversed(choices):
        starts.append(int(choice[last]))
        last = starts[-1] - 1
    return [0, *reversed(starts)]


def _jobs(chain: Sequence[Unit], start: int, end: int) -> list[tuple[int, int]]:
    """Ranges of units that belong to one job each."""
    marks = [start, *(n for n in range(start + 1, end) if chain[n].job != chain[n - 1].job), end]
    return list(itertools.pairwise(marks))


def _span(chain: Sequence[Unit], ahead: Sequence[int], start: int, low: int, high: int) -> Span:
    first, last = chain[low], chain[high - 1]
    back = ahead[low] if low == start else 0
    lead = first.first - chain[low - back].first
    begins = low == 0 or chain[low - 1].job != first.job
    ends = high == len(chain) or chain[high].job != first.job
    return Span(first.job, first.first, last.first + last.count - first.first, lead, begins, ends)


def shards_for(chain: Sequence[Unit], workers: int) -> int:
    """How many shards let `workers` workers end soonest, by the units' costs.

    More shards than workers even out what estimates get wrong; each costs its lead and an engine.
    """
    best, least = 1, float("inf")
    for count in range(1, min(len(chain), MOST_FOR_ONE * workers) + 1):
        loads = _Loads(workers)
        for shard in sorted(cut(chain, count), key=lambda shard: -shard.cost):
            loads.give(shard.cost + OPEN_CYCLES)
        if loads.most < least:
            best, least = count, loads.most
    return best


@dataclass
class _Loads:
    """Work given to whoever has least."""

    workers: int
    loads: list[int] = field(default_factory=list)

    def give(self, cost: int) -> None:
        if len(self.loads) < self.workers:
            self.loads.append(cost)
        else:
            self.loads[self.loads.index(min(self.loads))] += cost

    @property
    def most(self) -> int:
        return max(self.loads, default=0)
