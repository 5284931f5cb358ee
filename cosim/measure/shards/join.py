"""Joins shards: cycles of jobs, measurements of tasks on one time line, and the first wrong byte."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rkcosim.compiler.plan import Plan
from rkcosim.compiler.runtime import LayerReport, RunReport, TaskMeasure
from rkcosim.measure.shards.golden import Wrote
from rkcosim.measure.shards.images import Wrong
from rkcosim.measure.shards.plan import Shard
from rkcosim.measure.shards.run import Counted, Outcome


@dataclass(frozen=True)
class ShardDifference:
    """First byte of a shard's memory that differs from the golden model."""

    shard: Shard
    wrong: Wrong
    task: int | None
    layer: str
    engine: str

    @property
    def address(self) -> int:
        """Address of the byte."""
        return self.wrong.address

    def __str__(self) -> str:
        who = f"task {self.task} (layer '{self.layer}')" if self.task is not None else "no task of the model"
        return (
            f"shard {self.shard.number} ({self.shard.tasks}): {self.wrong.count} bytes differ, first at "
            f"0x{self.wrong.address:08X}, written by {who}: {self.engine} {self.wrong.ours}, "
            f"task golden {self.wrong.wanted}"
        )


def difference(shard: Shard, outcome: Outcome, plan: Plan, wrote: Sequence[Wrote]) -> ShardDifference | None:
    """Return the shard's first wrong byte, with the last task up to the shard's end that should write it."""
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
    """All shards of an inference as one run: cycles of each job, and measurements of all tasks.

    The starts of the measurements are relative to the submit of the first job, as if the jobs followed each
    other without a gap: the simulated clock stops while the host computes.
    """

    jobs: tuple[int, ...]
    measures: tuple[TaskMeasure, ...]

    @property
    def cycles(self) -> int:
        """Cycles of all jobs."""
        return sum(self.jobs)


def join(shards: Sequence[Shard], counted: Sequence[Sequence[Counted]]) -> Joined:
    """Join shards, in order.

    Parameters
    ----------
    shards : all shards of one inference.
    counted : cycles and measurements of each of their spans.

    Raises
    ------
    ValueError
        If spans are missing or do not follow each other.
    """
    jobs: list[int] = []
    measures: list[TaskMeasure] = []
    task = clock = 0
    for shard, parts in zip(shards, counted, strict=True):
        for span, part in zip(shard.spans, parts, strict=True):
            if span.first != task or len(part.measures) != span.count:
                raise ValueError(
                    f"tasks {task} to {span.first} are in no shard, or {span} was not completely counted"
                )
            if span.begins:
                jobs.append(0)
            jobs[-1] += part.cycles
            measures += [replace(m, start=clock + (m.start or 0)) for m in part.measures]
            clock += part.cycles
            task = span.end
    return Joined(tuple(jobs), tuple(measures))


def report(golden: RunReport, plan: Plan, joined: Joined) -> RunReport:
    """Return the report of a run whose bytes come from the golden model and whose cycles come from shards.

    Parameters
    ----------
    golden : the runtime's report about the golden model's run.
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
