"""Shards put together: cycles of jobs, measures of tasks on one time line, where the first wrong byte is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cosim.shards.golden import Wrote
from cosim.shards.images import Wrong
from cosim.shards.plan import Shard
from cosim.shards.run import Counted, Outcome
from sw.compiler.plan import Plan
from sw.compiler.runtime import LayerReport, RunReport, TaskMeasure


@dataclass(frozen=True)
class ShardDifference:
    """First byte of a shard's memory that is not as the golden model has it."""

    shard: Shard
    wrong: Wrong
    task: int | None
    layer: str
    engine: str

    @property
    def address(self) -> int:
        """Its address."""
        return self.wrong.address

    def __str__(self) -> str:
        who = f"task {self.task} (layer '{self.layer}')" if self.task is not None else "no task of the model"
        return (
            f"shard {self.shard.number} ({self.shard.tasks}): {self.wrong.count} bytes differ, first at "
            f"0x{self.wrong.address:08X}, written by {who}: {self.engine} {self.wrong.ours}, "
            f"task golden {self.wrong.wanted}"
        )


def difference(shard: Shard, outcome: Outcome, plan: Plan, wrote: Sequence[Wrote]) -> ShardDifference | None:
    """The shard's first wrong byte, with the last task up to the shard's end that is to write it."""
    if outcome.wrong is None:
        return None
    address = outcome.wrong.address
    end = shard.spans[len(outcome.counted) - 1].end
    tasks = [
        item.task
        for item in wrote
        if item.task < end and any(first <= address < first + size for first, size in item.ranges)
    ]
    task = max(tasks, default=None)
    layer = plan.steps[plan.tasks[task].layer].name if task is not None else ""
    return ShardDifference(shard, outcome.wrong, task, layer, outcome.engine)


@dataclass(frozen=True)
class Joined:
    """All shards of an inference as one run: cycles of each job, and measures of all tasks.

    The starts of the measures count from the submit of the first job, as if the jobs followed each other
    without a gap: the simulated clock stands still while the host computes.
    """

    jobs: tuple[int, ...]
    measures: tuple[TaskMeasure, ...]

    @property
    def cycles(self) -> int:
        """Of all jobs."""
        return sum(self.jobs)


def join(shards: Sequence[Shard], counted: Sequence[Sequence[Counted]]) -> Joined:
    """Put shards together, in order.

    Parameters
    ----------
    shards : of one inference, all of them.
    counted : what each of their spans cost.

    Raises
    ------
    ValueError
        if spans are missing, or do not follow each other.
    """
    jobs: list[int] = []
    measures: list[TaskMeasure] = []
    task = clock = 0
    for shard, parts in zip(shards, counted, strict=True):
        for span, part in zip(shard.spans, parts, strict=True):
            if span.first != task or len(part.measures) != span.count:
                raise ValueError(
                    f"tasks {task} to {span.first} are in no shard, or {span} was not all counted"
                )
            if span.begins:
                jobs.append(0)
            jobs[-1] += part.cycles
            measures += [replace(m, start=clock + (m.start or 0)) for m in part.measures]
            clock += part.cycles
            task = span.end
    return Joined(tuple(jobs), tuple(measures))


def report(golden: RunReport, plan: Plan, joined: Joined) -> RunReport:
    """The report of a run whose bytes come from the golden model and whose cycles from shards.

    Parameters
    ----------
    golden : what the runtime says of the golden model's run.
    """
    together: dict[int, int] = {}
    jobs = iter(joined.jobs)
    for segment in plan.segments():
        if segment.host is None:
            cycles = next(jobs)
            if len(segment.parts) > 1:
                together[plan.tasks[segment.first].layer] = cycles
    return RunReport(joined.cycles, [_layer(item, plan, joined, together) for item in golden.layers])


def _layer(item: LayerReport, plan: Plan, joined: Joined, together: Mapping[int, int]) -> LayerReport:
    if item.step is None or item.target == "host":
        return item
    numbers = [n for n, task in enumerate(plan.tasks) if task.layer == item.step]
    seen = tuple(joined.measures[n] for n in numbers)
    if not seen:
        return item
    changed: dict[str, Any] = {
        "cycles": together.get(item.step, sum(m.cycles for m in seen)),
        "bytes_read": sum(m.bytes_read for m in seen),
        "bytes_written": sum(m.bytes_written for m in seen),
        "mac_busy": sum(m.mac_busy or 0 for m in seen),
        "measures": seen,
    }
    return replace(item, **changed)
