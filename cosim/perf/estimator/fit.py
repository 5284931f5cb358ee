"""Fit the estimator's coefficients to the cycles of the RTL, and say how far off the estimates are.

    python -m cosim.perf.estimator.fit            # fit and store
    python -m cosim.perf.estimator.fit --errors   # only print the errors of the stored fit

Only layers that are not held out are fitted; both halves' errors are stored with the coefficients.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from cosim.engines.library import DramConfig
from cosim.perf.estimator.coefficients import MEANINGS, Fit, said_error, stored_fit, write_fit
from cosim.perf.estimator.data import MeasuredJob, as_settings, read_data, settings_of
from cosim.perf.estimator.estimate import gap_before
from cosim.perf.estimator.features import CONV, FLYING, POOL, TaskShape
from cosim.perf.estimator.layers import held_out
from cosim.perf.estimator.memory import Lists, Memory
from cosim.perf.estimator.model import lists_of, shared_times, task_time
from cosim.perf.gate import read_baseline

START = {
    "kick": 56.0,
    "kick_next": 44.0,
    "gap": 1.0,
    "lut_gap": 3.0,
    "conv_start": 16.0,
    "weight_start": 9.0,
    "row_land": 16.0,
    "tile": 5.0,
    "drain": 6.0,
    "pipe": 9.0,
    "write_ask": 3.0,
    "write_turn": 4.0,
    "conv_end": 5.0,
    "flying_start": 5.0,
    "flying_fill": 4.0,
    "flying_end": 5.0,
    "pool_start": 18.0,
}
"""Where the search begins, read off the RTL."""

FITTED = {
    CONV: (
        "conv_start",
        "weight_start",
        "row_land",
        "tile",
        "drain",
        "pipe",
        "write_ask",
        "write_turn",
        "conv_end",
    ),
    FLYING: ("flying_start", "flying_fill", "flying_end"),
    POOL: ("pool_start",),
}
ROUNDS = 3
TAME = 0.01
"""Relative errors above count less: they come from what the model leaves out, not from a coefficient."""

FAITH = 2e-5
"""How much a coefficient is drawn back to `START`, so that those that mean nearly the same stay apart."""


@dataclass(frozen=True)
class Point:
    """A layer under a memory timing: cycles of the RTL and estimated."""

    name: str
    family: str
    setting: str
    cores: int
    cycles: float
    estimate: float

    @property
    def error(self) -> float:
        """(estimate - RTL) / RTL."""
        return self.estimate / self.cycles - 1


_Task = tuple[TaskShape, Lists, str]
"""A task, the lists fetched meanwhile, and the memory's timing."""


def fit(jobs: Sequence[MeasuredJob], settings: dict[str, DramConfig]) -> dict[str, float]:
    """Coefficients by least squares of the relative errors of all tasks that may be fitted."""
    c = dict(START)
    single = [job for job in jobs if len(job.parts) == 1]
    overheads, gaps, lut_gaps = [], [], []
    for job in single:
        for number, task in enumerate(job.parts[0]):
            if held_out(task.layer):
                continue
            if number == 0:
                overheads.append(task.gap - task.shape.words - settings[job.setting].read_latency)
            elif task.shape.lut_words:
                lut_gaps.append(task.gap - task.shape.lut_words)
            else:
                gaps.append(task.gap)
    nexts = [
        second[0].gap - first[0].gap - second[0].shape.words + first[0].shape.words
        for job in jobs
        for first, second in pairwise(job.parts)
        if not held_out(first[0].layer)
    ]
    medians = {"kick": overheads, "kick_next": nexts, "gap": gaps, "lut_gap": lut_gaps}
    for name, found in medians.items():
        if found:
            c[name] = float(statistics.median(found))
    for kind, names in FITTED.items():
        tasks: dict[_Task, tuple[int, int]] = {}
        for job in single:
            fetched = lists_of([task.shape for task in job.parts[0]])
            for task, lists in zip(job.parts[0], fetched, strict=True):
                if task.shape.kind == kind and not held_out(task.layer):
                    key = task.shape, lists, job.setting
                    tasks[key] = task.cycles, tasks.get(key, (0, 0))[1] + 1
        if tasks:
            _least_squares(c, names, tasks, settings)
    return {name: round(value, 3) for name, value in c.items()}


def _least_squares(
    c: dict[str, float],
    names: Sequence[str],
    tasks: dict[_Task, tuple[int, int]],
    settings: dict[str, DramConfig],
) -> None:
    """Gauss-Newton steps on the named coefficients, in place."""
    cycles = np.array([taken for taken, _ in tasks.values()], dtype=float)
    often = np.sqrt([min(times, 3) for _, times in tasks.values()])
    memories = {name: Memory.of(config) for name, config in settings.items()}

    def estimates() -> np.ndarray[Any, Any]:
        return np.array(
            [task_time(shape, memories[setting], c, lists).cycles for shape, lists, setting in tasks]
        )

    for _ in range(ROUNDS):
        now = estimates()
        errors = (cycles - now) / cycles
        slopes = np.empty((len(cycles), len(names)))
        for column, name in enumerate(names):
            value, step = c[name], max(1.0, abs(c[name]) / 20)
            c[name] = value + step
            slopes[:, column] = (estimates() - now) / step / cycles
            c[name] = value
        weights = often * np.sqrt(np.minimum(1, TAME / np.maximum(np.abs(errors), 1e-9)))
        a, b = slopes * weights[:, None], errors * weights
        back = np.array([START[name] - c[name] for name in names])
        move = np.linalg.solve(a.T @ a + FAITH * np.eye(len(names)), a.T @ b + FAITH * back)
        for name, by in zip(names, move, strict=True):
            c[name] += float(by)


def points(jobs: Iterable[MeasuredJob], settings: dict[str, DramConfig], c: dict[str, float]) -> list[Point]:
    """Every layer of the data set with its estimate; layers shared by cores as a whole job."""
    found = []
    for job in jobs:
        dram = settings[job.setting]
        times = shared_times([[task.shape for task in part] for part in job.parts], Memory.of(dram), c)
        cores = len(job.parts)
        taken: dict[str, float] = defaultdict(float)
        guessed: dict[str, float] = defaultdict(float)
        longest = 0.0
        for core, (part, spent) in enumerate(zip(job.parts, times, strict=True)):
            total, before = 0.0, None
            for task, time in zip(part, spent, strict=True):
                gap = gap_before(task.shape, before, dram, c, core)
                if before is not None:  # the first one's gap belongs to the job
                    taken[task.layer] += task.gap
                    guessed[task.layer] += gap
                taken[task.layer] += task.cycles
                guessed[task.layer] += time.cycles
                total, before = total + gap + time.cycles, time.cycles
            longest = max(longest, total)
        if cores > 1:
            name = job.parts[0][0].layer
            found.append(Point(name, job.family, job.setting, cores, job.cycles, longest))
        else:
            found += [Point(name, job.family, job.setting, 1, taken[name], guessed[name]) for name in taken]
    return found


def summary(of: Iterable[Point]) -> dict[str, float]:
    """Absolute relative errors of points."""
    errors = sorted(abs(point.error) for point in of)
    if not errors:
        return {"n": 0, "median": 0.0, "mean": 0.0, "p95": 0.0, "worst": 0.0}
    return {
        "n": len(errors),
        "median": round(statistics.median(errors), 5),
        "mean": round(statistics.fmean(errors), 5),
        "p95": round(errors[int(0.95 * (len(errors) - 1))], 5),
        "worst": round(errors[-1], 5),
    }


def judged(c: dict[str, float], jobs: Sequence[MeasuredJob], settings: dict[str, DramConfig]) -> Fit:
    """Coefficients with their errors."""
    every = points(jobs, settings, c)
    held = [point for point in every if held_out(point.name)]
    kinds: dict[str, list[Point]] = defaultdict(list)
    for point in held:
        kinds[point.family].append(point)
        if point.cores > 1:
            kinds["on several cores"].append(point)
        if point.setting != "default":
            kinds[f"memory: {point.setting}"].append(point)
    worst = sorted(held, key=lambda point: -abs(point.error))[:10]
    return Fit(
        c,
        {"fitted": summary(p for p in every if not held_out(p.name)), "held out": summary(held)},
        {kind: summary(of) for kind, of in sorted(kinds.items())},
        [
            {
                "layer": point.name,
                "setting": point.setting,
                "cores": point.cores,
                "cycles": round(point.cycles),
                "estimate": round(point.estimate),
                "error": round(point.error, 4),
            }
            for point in worst
        ],
        {name: row["cycles"] for name, row in read_baseline().items()},
        as_settings(settings),
    )


def report(found: Fit) -> str:
    """The errors, for people."""
    lines = [
        f"{'fit' if half == 'fitted' else half:24} n {e['n']:4.0f}  median {e['median']:7.2%}  "
        f"mean {e['mean']:7.2%}  95th percentile {e['p95']:7.2%}  worst {e['worst']:7.2%}"
        for half, e in {**found.errors, **found.kinds}.items()
    ]
    lines += [
        f"  {row['error']:+.1%}  {row['cycles']:9,} cycles, estimated {row['estimate']:9,}  {row['layer']}, "
        f"{row['setting']}"
        for row in found.worst
    ]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Fit and store, or print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--errors", action="store_true", help="print the errors of the stored fit")
    given = parser.parse_args(arguments)
    jobs = read_data()
    settings = {name: DramConfig(**values) for name, values in settings_of().items()}
    if given.errors:
        print(report(judged(dict(stored_fit().coefficients), jobs, settings)))
        return 0
    found = judged(fit(jobs, settings), jobs, settings)
    write_fit(found)
    for name, value in found.coefficients.items():
        print(f"{name:14} {value:8.2f}  {MEANINGS[name]}")
    print(report(found))
    print(said_error(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
