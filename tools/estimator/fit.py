"""Fit the estimator's coefficients to the cycles of the RTL, and report the errors of the estimates.

    python -m tools.estimator.fit            # fit and store
    python -m tools.estimator.fit --errors   # only print the errors of the stored fit

Only layers that are not held out are used for the fit; the errors of both halves are stored too.
"""

from __future__ import annotations

import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from rkcosim.engines.library import DramConfig
from rkcosim.measure.perf.estimator.accesses import Memory
from rkcosim.measure.perf.estimator.coefficients import DELAYS, Fit, said_error, stored_fit, write_fit
from rkcosim.measure.perf.estimator.estimate import job_times, lists_of, task_time
from rkcosim.measure.perf.estimator.features import TaskShape
from rkcosim.measure.perf.estimator.flows import Lists
from rkcosim.measure.perf.gate import read_baseline
from rkcosim.measure.perf.measure import options
from tools.estimator.data import MeasuredJob, read_data
from tools.estimator.layers import held_out

ROUNDS = 3
TAME = 0.01
"""Relative errors above this count less: they result from omissions of the model, not from a coefficient."""

FAITH = 2e-5
"""Weight that pulls a coefficient to its start value; it separates coefficients with nearly equal effects."""


@dataclass(frozen=True)
class Point:
    """A layer with a memory timing: cycles of the RTL and the estimate."""

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


_Task = tuple[TaskShape, Lists, str, int]
"""A task, the lists fetched during it, the memory's timing, and its cycles."""


def fit(jobs: Sequence[MeasuredJob], settings: dict[str, DramConfig]) -> dict[str, float]:
    """Fit the coefficients by least squares of the relative errors of all tasks that may be used."""
    c = {name: float(delay.start) for name, delay in DELAYS.items()}
    medians: dict[str, list[int]] = defaultdict(list)
    tasks: dict[str, Counter[_Task]] = defaultdict(Counter)
    for job in jobs:
        for (first, *_), (second, *_) in pairwise(job.parts):
            if not held_out(first.layer):
                medians["kick_next"].append(second.gap - first.gap - second.shape.words + first.shape.words)
        if len(job.parts) > 1:
            continue
        lists = lists_of([task.shape for task in job.parts[0]])
        for number, task in enumerate(job.parts[0]):
            if held_out(task.layer):
                continue
            tasks[task.shape.kind][task.shape, lists[number], job.setting, task.cycles] += 1
            if number == 0:
                latency = settings[job.setting].read_latency
                medians["kick"].append(task.gap - task.shape.words - latency)
            elif task.shape.lut_words:
                medians["lut_gap"].append(task.gap - task.shape.lut_words)
            else:
                medians["gap"].append(task.gap)
    c |= {name: float(statistics.median(found)) for name, found in medians.items()}
    for kind, found in tasks.items():
        _least_squares(c, [name for name, delay in DELAYS.items() if delay.kind == kind], found, settings)
    return {name: round(value, 3) for name, value in c.items()}


def _least_squares(
    c: dict[str, float], names: Sequence[str], tasks: Counter[_Task], settings: dict[str, DramConfig]
) -> None:
    """Do Gauss-Newton steps on the named coefficients, in place."""
    cycles = np.array([taken for *_, taken in tasks], dtype=float)
    often = np.sqrt([min(times, 3) for times in tasks.values()])
    memories = {name: Memory.of(config) for name, config in settings.items()}

    def estimates(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        there = c | dict(zip(names, values, strict=True))
        return np.array(
            [task_time(shape, memories[setting], there, lists).cycles for shape, lists, setting, _ in tasks]
        )

    start = np.array([DELAYS[name].start for name in names], dtype=float)
    at = start.copy()
    for _ in range(ROUNDS):
        now = estimates(at)
        errors = (cycles - now) / cycles
        steps = np.maximum(1.0, np.abs(at) / 20)
        slopes = [(estimates(at + step) - now) / step.max() / cycles for step in np.diag(steps)]
        weights = often * np.sqrt(np.minimum(1, TAME / np.maximum(np.abs(errors), 1e-9)))
        a, b = np.array(slopes).T * weights[:, None], errors * weights
        at += np.linalg.solve(a.T @ a + FAITH * np.eye(len(at)), a.T @ b + FAITH * (start - at))
    c |= dict(zip(names, map(float, at), strict=True))


def points(jobs: Iterable[MeasuredJob], settings: dict[str, DramConfig], c: dict[str, float]) -> list[Point]:
    """Return every layer of the data set with its estimate; a layer shared by cores is a whole job."""
    found = []
    for job in jobs:
        shapes = [[task.shape for task in part] for part in job.parts]
        longest, times = job_times(shapes, settings[job.setting], c)
        if len(job.parts) > 1:
            name = job.parts[0][0].layer
            found.append(Point(name, job.family, job.setting, len(job.parts), job.cycles, longest))
            continue
        taken: dict[str, float] = defaultdict(float)
        guessed: dict[str, float] = defaultdict(float)
        for number, (task, (gap, time)) in enumerate(zip(job.parts[0], times[0], strict=True)):
            if number:  # the gap of the first one is part of the job
                taken[task.layer] += task.gap
                guessed[task.layer] += gap
            taken[task.layer] += task.cycles
            guessed[task.layer] += time.cycles
        found += [Point(name, job.family, job.setting, 1, taken[name], guessed[name]) for name in taken]
    return found


def summary(of: Iterable[Point]) -> dict[str, float]:
    """Return statistics of the absolute relative errors of points."""
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
    """Return the coefficients with their errors."""
    halves: dict[str, list[Point]] = {"fitted": [], "held out": []}
    kinds: dict[str, list[Point]] = defaultdict(list)
    for point in points(jobs, settings, c):
        held = held_out(point.name)
        halves["held out" if held else "fitted"].append(point)
        if held:
            kinds[point.family].append(point)
            if point.cores > 1:
                kinds["on several cores"].append(point)
            if point.setting != "default":
                kinds[f"memory: {point.setting}"].append(point)
    worst = sorted(halves["held out"], key=lambda point: -abs(point.error))[:10]
    return Fit(
        c,
        {half: summary(of) for half, of in halves.items()},
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
        {name: asdict(config) for name, config in settings.items()},
    )


def report(found: Fit) -> str:
    """Return the errors as text."""
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
    given = options(__doc__, arguments, errors="print the errors of the stored fit")
    jobs, settings = read_data()
    if given.errors:
        print(report(judged(dict(stored_fit().coefficients), jobs, settings)))
        return 0
    found = judged(fit(jobs, settings), jobs, settings)
    write_fit(found)
    for name, value in found.coefficients.items():
        print(f"{name:14} {value:8.2f}  {DELAYS[name].meaning}")
    print(report(found))
    print(said_error(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
