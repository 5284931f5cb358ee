"""Where a model's tasks may be divided, and how they are divided into shards of about equal cost.

A model is a sequence of jobs with host steps between them.  The tasks of a job on one core are a chain
that may be divided between any two tasks; a job that several cores share is simulated as a whole.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rkcosim.compiler.plan import Plan
from rkcosim.compiler.programs.task import Task
from rkcosim.engines.library import DramConfig
from rkcosim.measure.perf import formula

TASK_CYCLES = 400
"""Approximate cycles of a task in addition to its formula: fetch of its commands, latency of memory."""

OPEN_CYCLES = 60_000
"""Approximate cost of opening an engine and sending an image, in cycles that could be simulated instead."""

MOST_FOR_ONE = 4
"""Largest number of shards per worker that `shards_for` considers."""


@dataclass(frozen=True)
class Unit:
    """A part that is never divided: a task of a chain, or a whole job of several cores.

    Members
    -------
    job : number of its job in the model.
    first, count : its tasks, numbered through the model.
    cost : expected cycles.
    leans : whether it needs state that an earlier task of its job left in the core (weights in CBUF, tables
        in the LUT).
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
    first, count : tasks that are counted, numbered through the model.
    lead : number of tasks simulated before them, which are not counted.
    begins, ends : whether they include the job's first or last task: then cycles count from the submit of the
        job, or to its last interrupt; otherwise from and to the end of a task.
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
        """Index after the last task that is counted."""
        return self.first + self.count


@dataclass(frozen=True)
class Shard:
    """Spans that one worker simulates one after the other; `cost` in estimated cycles, including the lead."""

    number: int
    spans: tuple[Span, ...]
    cost: int

    @property
    def first(self) -> int:
        """First task that is counted."""
        return self.spans[0].first

    @property
    def end(self) -> int:
        """Index after the last task that is counted."""
        return self.spans[-1].end

    @property
    def tasks(self) -> str:
        """Its tasks as text."""
        last = self.end - 1
        return f"task {self.first}" if last == self.first else f"tasks {self.first} to {last}"


def task_cost(task: Task, dram: DramConfig | None = None) -> int:
    """Estimate the cycles of a task from its formulas alone; `dram` is the memory's timing."""
    return TASK_CYCLES + max(task.formula_npu, formula.ddr(task.reads, task.writes, dram))


def task_costs(plan: Plan, dram: DramConfig | None = None) -> list[int]:
    """Return the expected cycles of each task of a plan, from the estimator if possible, else `task_cost`."""
    from rkcosim.measure.perf.estimator import estimate_model

    try:
        return [max(1, task.cycles + task.gap) for task in estimate_model(plan, dram=dram).tasks]
    except ValueError:  # the estimator does not support a kind of task
        return [task_cost(task, dram) for task in plan.tasks]


def leans(task: Task) -> bool:
    """Whether a task needs data or weights that an earlier task left in CBUF, or its tables in the LUT.

    The compiler's tasks write all other registers themselves.
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
    """Return the units of a plan, in order.

    Parameters
    ----------
    plan : the compiled model's plan.
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
    """Return, for each unit, how many units a shard that counts from it must simulate before it.

    At the start of a job it is none, because the host starts the job after the previous job has ended.
    Otherwise it is one, plus those that it depends on.
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
    """Divide a chain of units into `shards` shards with the smallest possible maximum cost.

    There are fewer shards if there are fewer units.

    Raises
    ------
    ValueError
        If `shards` is not positive.
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
    """Return the first units of `shards` shards with the smallest possible maximum of cost and lead."""
    count = len(extra)
    best = ends[1:] - ends[0] + extra[0]  # cost if the first n + 1 units are one shard
    choices = []
    for _ in range(shards - 1):
        fewer, best, choice = best, np.full(count, np.iinfo(np.int64).max), np.zeros(count, np.int64)
        for last in range(1, count):
            # The last shard has units `at` to `last`; those before them are divided already.
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
    """Return the ranges of units that belong to one job each."""
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
    """Return the number of shards with which `workers` workers end soonest, by the units' costs.

    More shards than workers compensate for wrong estimates; each shard costs its lead and an engine.
    """
    best, least = 1, float("inf")
    for count in range(1, min(len(chain), MOST_FOR_ONE * workers) + 1):
        loads = [0] * workers  # a heap: each shard goes to the worker with the least work
        for shard in sorted(cut(chain, count), key=lambda shard: -shard.cost):
            heapq.heapreplace(loads, loads[0] + shard.cost + OPEN_CYCLES)
        if max(loads) < least:
            best, least = count, max(loads)
    return best
