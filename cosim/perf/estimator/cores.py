"""Cores that work side by side on one DRAM."""

from __future__ import annotations

from collections.abc import Sequence

from cosim.engines.library import DramConfig
from cosim.perf.estimator.features import TaskShape
from cosim.perf.estimator.memory import Coefficients, Memory, Time
from cosim.perf.estimator.model import task_times


def shared_times(parts: Sequence[Sequence[TaskShape]], dram: DramConfig, c: Coefficients) -> list[list[Time]]:
    """Times of the tasks of cores that start together.

    While all of them move something, each has an equal share of DRAM's turns; a core that has less to move
    leaves its turns to the others later on.  How much of that they still can use is fitted (`crowd`).
    """
    moved = [float(sum(sum(shape.moved()) for shape in part)) for part in parts]
    times = []
    for part, own in zip(parts, moved, strict=True):
        left = sum(min(own, other) for other in moved) / own if own else 1.0
        turns = c["crowd"] * len(parts) + (1 - c["crowd"]) * left
        memory = Memory.of(dram, turns)
        times.append(task_times(part, memory, c))
    return times
