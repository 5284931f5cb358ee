"""Progress of a model's run, from the tasks that have ended and the expected cost of each task."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rkcosim.base import progress
from rkcosim.measure.perf import formula

TASK_CYCLES = 400
"""Approximate cycles of a task in addition to its formula: fetch of its commands, latency of memory."""

CHECK_SHARE = 0.3
"""Share of an inference's time spent on checking, used before anything has been measured."""

NEARLY = 0.95
"""Largest progress that a running task can show from its cycles alone."""


class Inferences:
    """The progress step "inference" of a run, with the current layer and task, and the total progress.

    Parameters
    ----------
    plan : the compiled model's plan, or None if it has none.
    device : the device; a device without cycles is polled from another thread.
    count : number of inferences.
    checks : whether each inference is checked after it has run.
    """

    def __init__(self, plan: Any, device: Any, count: int, checks: bool) -> None:
        self._step = progress.Step("inference", count)
        self._device, self._checks = device, checks
        self._times = [0.0, 0.0]
        self._number = self._base = 0
        costs = []
        self._names: list[str] = []
        dram = None if device is None else device.dram
        for task in plan.tasks if plan is not None else ():
            costs.append(TASK_CYCLES + max(task.formula_npu, formula.ddr(task.reads, task.writes, dram)))
            self._names.append(plan.steps[task.layer].name)
        self._before = [0, *itertools.accumulate(costs)]

    @contextmanager
    def running(self, number: int) -> Iterator[None]:
        """Context manager around inference `number` (from 0)."""
        self._number, self._base = number, self._started()
        self._step.what = f"inference {number + 1}/{self._step.total:.0f}" if self._many else "inference"
        self._step.done, self._step.detail = number, ""
        timed = self._device.has_cycles
        with self._shown(0):
            self._step.follow = self._follow if timed else None
            self._step.poll = None if timed else self._look
            try:
                yield
            finally:
                self._step.follow = self._step.poll = None

    @contextmanager
    def checking(self) -> Iterator[None]:
        """Context manager around the comparison of the last inference with the golden models."""
        self._step.done = self._number + self._run_share
        self._step.detail = "comparing every tensor with the golden models"
        with self._shown(1):
            yield

    @property
    def _many(self) -> bool:
        return bool(self._step.total and self._step.total > 1)

    @contextmanager
    def _shown(self, kind: int) -> Iterator[None]:
        begun = time.monotonic()
        progress.steps.append(self._step)
        try:
            yield
        finally:
            progress.steps.remove(self._step)
            self._times[kind] += time.monotonic() - begun

    @property
    def _run_share(self) -> float:
        """Share of an inference's time that the run takes; checking takes the rest."""
        if not self._checks:
            return 1.0
        run, check = self._times
        return run / (run + check) if check else 1 - CHECK_SHARE

    def _started(self) -> int:
        """Number of tasks that the device has started so far."""
        return int(self._device.task_count())

    def _look(self) -> None:
        self._place(self._started() - self._base, 0.0)

    def _follow(self, engine: Any) -> None:
        log = engine.task_log()
        begun = log[self._base :]
        ended = sum(record.end is not None for record in begun)
        spent = sum(record.cycles or 0 for record in begun)
        last = begun[-1] if begun else None
        within = 0.0
        if last is not None and last.end is None and ended < len(self._names):
            expected = self._before[ended + 1] - self._before[ended]
            slower = max(spent / self._before[ended], 1.0) if ended else 1.0
            within = min((engine.cycle - last.start) / (expected * slower), NEARLY)
        self._place(ended, within)

    def _place(self, ended: int, within: float) -> None:
        """Set progress and text for `ended` finished tasks and a fraction of the next one."""
        tasks = len(self._names)
        if ended >= tasks:
            self._step.done = self._number + (self._run_share if tasks else 0)
            return
        cost = self._before[ended] + within * (self._before[ended + 1] - self._before[ended])
        self._step.done = self._number + self._run_share * cost / self._before[-1]
        self._step.detail = f"{self._names[ended]}, task {ended + 1} of {tasks}"
