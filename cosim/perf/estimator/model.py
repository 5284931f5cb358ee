"""Cycles of tasks from their sizes."""

from __future__ import annotations

from collections.abc import Sequence

from cosim.perf.estimator.features import BEAT, POOL, TaskShape
from cosim.perf.estimator.flows import flow
from cosim.perf.estimator.memory import NO_LISTS, Coefficients, Lists, Memory, Time
from cosim.perf.estimator.turns import Flow, Span, spans

WORD_BYTES = 8


def task_time(shape: TaskShape, memory: Memory, c: Coefficients, lists: Lists = NO_LISTS) -> Time:
    """Cycles from a task's start to its end, with the command lists that are fetched meanwhile."""
    (((span,),),) = (spans([[flow(shape, memory, c, lists)]], memory, c),)
    return time_of(shape, span)


def task_times(shapes: Sequence[TaskShape], memory: Memory, c: Coefficients) -> list[Time]:
    """Times of tasks that follow each other."""
    return [task_time(shape, memory, c, lists) for shape, lists in zip(shapes, lists_of(shapes), strict=True)]


def shared_times(parts: Sequence[Sequence[TaskShape]], memory: Memory, c: Coefficients) -> list[list[Time]]:
    """Times of the tasks of cores that start one after the other and share DRAM."""
    if len(parts) == 1:
        return [task_times(parts[0], memory, c)]
    found = spans([_flows(part, memory, c, n) for n, part in enumerate(parts)], memory, c)
    return [
        [time_of(shape, span) for shape, span in zip(part, of, strict=True)]
        for part, of in zip(parts, found, strict=True)
    ]


def _flows(part: Sequence[TaskShape], memory: Memory, c: Coefficients, core: int) -> list[Flow]:
    found = []
    for number, (shape, lists) in enumerate(zip(part, lists_of(part), strict=True)):
        gap = c["gap"] + shape.lut_words if number else core * c["kick_next"]
        found.append(flow(shape, memory, c, lists, gap))
    return found


def time_of(shape: TaskShape, span: Span) -> Time:
    """The time of a task with its bound: what most cycles went to."""
    waits = dict(span.waits)
    waits["start and end"] = waits.get("start and end", 0.0) + max(span.cycles - sum(waits.values()), 0.0)
    if shape.kind == POOL and "array" in waits:
        waits["pooling"] = waits.pop("array")
    return Time(span.cycles, max(waits, key=lambda name: waits[name]))


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
