"""Cycles of one task from its sizes."""

from __future__ import annotations

from collections.abc import Sequence

from cosim.perf.estimator.convolution import Convolution
from cosim.perf.estimator.features import BEAT, CONV, FLYING, TaskShape
from cosim.perf.estimator.flying import flying
from cosim.perf.estimator.memory import NO_LISTS, Coefficients, Lists, Memory, Time
from cosim.perf.estimator.pooling import pooling

WORD_BYTES = 8


def task_time(shape: TaskShape, memory: Memory, c: Coefficients, lists: Lists = NO_LISTS) -> Time:
    """Cycles from a task's start to its end, with the command lists that are fetched meanwhile."""
    if shape.kind == CONV:
        return Convolution(shape, memory, c, lists).run()
    if shape.kind == FLYING:
        return flying(shape, memory, c, lists)
    return pooling(shape, memory, c, lists)


def task_times(shapes: Sequence[TaskShape], memory: Memory, c: Coefficients) -> list[Time]:
    """Times of tasks that follow each other."""
    return [task_time(shape, memory, c, lists) for shape, lists in zip(shapes, lists_of(shapes), strict=True)]


def lists_of(shapes: Sequence[TaskShape]) -> list[Lists]:
    """Lists that are fetched during each of the tasks that follow each other.

    The registers of a task are written while the one before runs, which makes room for the list after
    it; during the first task that is so twice.
    """
    beats = [shape.words * WORD_BYTES / BEAT for shape in shapes]
    return [
        Lists(beats[1] if number == 0 and len(beats) > 1 else 0.0, sum(beats[number + 2 : number + 3]))
        for number in range(len(beats))
    ]
