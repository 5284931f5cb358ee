"""The client's side: a driver whose device is the task-level golden model, run from border to border.

`rkcosim.rknn_api` runs a model on it as on any device.  When the golden model has passed the last border
that a shard needs, the shard is sent with its images, while the golden model continues.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from rkcosim.compiler.plan import Plan
from rkcosim.driver import Driver, DriverError
from rkcosim.engines.library import DramConfig
from rkcosim.golden.task import GoldenNpu
from rkcosim.golden.task.context import TaskReport
from rkcosim.measure.perf import formula
from rkcosim.measure.shards.images import Image, Pages, Tracker, merged
from rkcosim.measure.shards.plan import Shard, Span, leans, task_cost
from rkcosim.measure.shards.run import Piece
from rkcosim.regcmd.job import Job, JobResult

DDR_SURE = 0.75
"""Share of a task's DRAM bound that it certainly takes, whatever the plan omits."""

AHEAD = 2
"""Number of tasks after a span that its kick includes: while a task runs, the PC writes the words of the next
one and fetches those of the one after it (`rkcosim.rtl.pc_dma`)."""

Send = Callable[[Shard, list[Piece], Image], None]
"""Receives a shard that can now be simulated, with the image that its pages are relative to."""


@dataclass(frozen=True)
class Wrote:
    """The bytes that a task of the model writes, as ranges (first, number)."""

    task: int
    ranges: tuple[tuple[int, int], ...]


class GoldenDriver(Driver):
    """Runs jobs on the golden model and sends shards out as soon as their images are known.

    Parameters
    ----------
    cores : number of cores of the device.
    dram : timing of the memory that the shards are simulated with; None for the default.

    Members
    -------
    wrote : the bytes that each task of the last inference wrote, oldest first.
    """

    def __init__(self, cores: int, dram: DramConfig | None = None) -> None:
        self.npu = GoldenNpu(cores)
        self._dram = dram
        super().__init__(self.npu)
        self.wrote: list[Wrote] = []
        self._plan: Plan | None = None
        self._shards: Sequence[Shard] = ()
        self._send: Send | None = None
        self._tracker: Tracker | None = None
        self._used: dict[int, tuple[int, Job]] = {}
        """Core -> (cost, job of one task): the cheapest one that does not depend on an earlier task."""

    def begin(self, plan: Plan, shards: Sequence[Shard], send: Send) -> None:
        """Prepare for an inference of a model that is divided into `shards`."""
        self._plan, self._shards, self._send = plan, shards, send
        self._changes: list[Pages] = []
        self._before: dict[int, int] = {}
        """Task -> number of changes that had been made before it started."""
        self._after: dict[int, int] = {}
        """Task -> number of changes that had been made when the previous task had ended."""
        self._jobs: dict[int, Job] = {}
        self._warm: dict[int, tuple[Job, ...]] = {}
        self._number = 0
        self._task = 0
        self._sent = 0
        self.wrote = []

    def submit(self, job: Job) -> JobResult:
        """Run a job; its cycles are 0, because golden models have no cycles.

        Raises
        ------
        DriverError
            If the job is malformed.
        GoldenError, GoldenHang
            If the hardware would raise a diagnostic or hang.
        """
        assert self._plan is not None
        self.check(job)
        if self._tracker is None:
            self._tracker = Tracker(self.npu.memory)
        number, first = self._number, self._task
        self._jobs[number] = job
        self._warm[number] = tuple(self._used[core][1] for core in job.cores if core in self._used)
        self._change()
        if len(job.cores) > 1:
            self._before[first] = len(self._changes)
            self._run(job, first)
            self._passed(first + len(job.tasks))
        else:
            for low, high in self._stretches(number, first, first + len(job.tasks)):
                self._before[low] = len(self._changes)
                self._run(replace(job, tasks=job.tasks[low - first : high - first]), low)
                self._passed(high)
        self._use(job, first)
        self._number += 1
        self._task = first + len(job.tasks)
        return JobResult(0, 0, {})

    @property
    def image(self) -> Image:
        """The memory before the first job."""
        assert self._tracker is not None
        return self._tracker.base

    def _stretches(self, job: int, first: int, end: int) -> Iterable[tuple[int, int]]:
        """Return the ranges of tasks of a job between borders that some shard needs."""
        spans = [span for shard in self._shards for span in shard.spans if span.job == job]
        marks = {first, end, *(span.start for span in spans), *(span.end for span in spans)}
        return itertools.pairwise(sorted(marks))

    def _run(self, job: Job, first: int) -> None:
        for core in job.cores:  # cores of a job are independent, so they can run one after the other
            start, count = job.range_of(core)
            task = job.tasks[start]
            reports = self.npu.devices[core].run_kick(task.regcmd_addr, task.amount, count)
            if len(reports) != count:
                raise DriverError(f"{len(reports)} of {count} tasks ran on the golden model")
            self.wrote += [_wrote(first + start + n, report) for n, report in enumerate(reports)]

    def _use(self, job: Job, first: int) -> None:
        """Record the tasks that the cores of a job have run."""
        assert self._plan is not None
        for core in job.cores:
            start, count = job.range_of(core)
            for number in range(start, start + count):
                task = self._plan.tasks[first + number]
                cost = task_cost(task, self._dram)
                if not leans(task) and (core not in self._used or cost < self._used[core][0]):
                    alone = replace(job, tasks=[job.tasks[number]], core_mask=1 << core, ranges={})
                    self._used[core] = cost, alone

    def _passed(self, task: int) -> None:
        """Record the changes at a border, and send the shards that needed it."""
        self._change()
        self._after[task] = len(self._changes)
        while self._sent < len(self._shards) and self._shards[self._sent].end <= task:
            shard = self._shards[self._sent]
            assert self._send is not None
            self._send(shard, self._pieces(shard), self.image)
            self._sent += 1

    def _change(self) -> None:
        assert self._tracker is not None
        changed = self._tracker.take()
        # An inference starts with the memory that earlier ones left.
        self._changes.append(changed if self._changes else self._tracker.since_base())

    def _pieces(self, shard: Shard) -> list[Piece]:
        pieces: list[Piece] = []
        known = 0
        for span in shard.spans:
            start, end = self._before[span.start], self._after[span.end]
            before, after = merged(self._changes[known:start]), merged(self._changes[start:end])
            warm = self._warm[span.job] if not pieces and not span.lead else ()
            pieces.append(Piece(span, self._job(span), self._least(span), before, after, warm))
            known = end
        return pieces

    def _job(self, span: Span) -> Job:
        """Return the part of its job that a span needs, with the following tasks that are fetched ahead."""
        assert self._plan is not None
        job = self._jobs[span.job]
        if len(job.cores) > 1:
            return job
        first = self._first(span)
        return replace(job, tasks=job.tasks[span.start - first : span.end - first + AHEAD])

    def _first(self, span: Span) -> int:
        """Return the number of the first task of a span's job."""
        return sum(len(self._jobs[number].tasks) for number in range(span.job))

    def _least(self, span: Span) -> list[int]:
        assert self._plan is not None
        return [
            max(task.formula_npu, int(DDR_SURE * formula.ddr(task.reads, task.writes, self._dram)))
            for task in self._plan.tasks[span.start : span.end + AHEAD]
        ]


def _wrote(task: int, report: TaskReport) -> Wrote:
    return Wrote(task, tuple(found for traffic in report.writes for found in traffic.ranges))
