"""Cores that work side by side on one DRAM."""

from __future__ import annotations

from collections.abc import Sequence

from cosim.engines.library import DramConfig
from cosim.perf.estimator.features import TaskShape
from cosim.perf.estimator.model import Coefficients, Memory, Time, task_time

ROUNDS = 4
"""How often the shares are worked out anew; they settle after two or three."""


def shared_times(parts: Sequence[Sequence[TaskShape]], dram: DramConfig, c: Coefficients) -> list[list[Time]]:
    """Times of the tasks of cores that start together.

    A core gets what the others leave of the peak on average, but no less than its equal share: DRAM
    serves the cores in turns.
    """
    count = len(parts)
    if count == 1:
        memory = Memory.of(dram)
        return [[task_time(shape, memory, c) for shape in parts[0]]]
    peak = dram.peak_bytes_per_cycle * dram.efficiency
    moved = [float(sum(sum(shape.moved()) for shape in part)) for part in parts]
    shares = [1 / count] * count
    times: list[list[Time]] = []
    for _ in range(ROUNDS):
        times = [
            [task_time(shape, Memory.of(dram, share), c) for shape in part]
            for part, share in zip(parts, shares, strict=True)
        ]
        spent = [sum(time.cycles for time in of) for of in times]
        longest = max(spent)
        for core in range(count):
            others = sum(moved[n] / longest for n in range(count) if n != core)
            share = max(1 / count, 1 - others / peak)
            shares[core] = (shares[core] + share) / 2
    return times
