"""Which fields of a task could make its result wrong: candidates, each tried on the golden model."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rkcosim.debug.deviations.against import Deviation, Tolerance
from rkcosim.debug.deviations.candidates import Cause, candidates_of, distinct
from rkcosim.debug.golden.stepped import Executed, SteppedKick
from rkcosim.debug.opening import DebuggedJob
from rkcosim.regcmd.listing import address_field
from rkcosim.regcmd.machine import starts_of
from rkcosim.spec.regs import registers

MOST_TRIALS = 600
"""Maximum number of candidates that are tried for one deviation."""

MOST_SECONDS = 30.0
"""Time after which no further candidate is tried."""

REFINED = 64
"""First step of the search for a better value of a number."""


@dataclass
class Inquiry:
    """The fields that could make a task wrong, and what was tried.

    Members
    -------
    causes : those that make the result better, the most likely first.
    tried : number of candidates that were tried.
    untried : number of candidates for which there was no time.
    operands : what the task reads, one line each.
    """

    causes: list[Cause] = field(default_factory=list)
    tried: int = 0
    untried: int = 0
    operands: list[str] = field(default_factory=list)


def inquire(
    kick: SteppedKick,
    job: DebuggedJob,
    found: Deviation,
    tolerance: Tolerance,
    *,
    most_trials: int = MOST_TRIALS,
    most_seconds: float = MOST_SECONDS,
    clock: Callable[[], float] = time.monotonic,
) -> Inquiry:
    """Try other values of the fields of a task that deviates.

    Parameters
    ----------
    kick : stands at the start of the task.
    job, found, tolerance : the task, its deviation, and how far elements may be from the reference.
    most_trials, most_seconds : bounds; at least one candidate is tried.

    Returns
    -------
    The result; the kick stands at the start of the task again.
    """
    starts = [start for index, begun in starts_of(job.program) if index == found.task for start in begun]
    if not starts:
        return Inquiry()
    start, reference = starts[-1], found.reference
    candidates = distinct(candidates_of(start, job, found))
    candidates.sort(key=lambda cause: -cause.likely)
    result, total, begun = Inquiry(), int(found.wrong.sum()), clock()

    def look(memory: Any, done: Executed) -> tuple[int, float]:
        ranges = [piece for report in done.reports for one in report.writes for piece in one.ranges]
        compared = found.compared | reference.place.inside(ranges)
        got = reference.place.read(memory)
        wrong = tolerance.wrong(got, reference.want) & compared
        apart = np.abs(got[wrong].astype(np.float64) - reference.want[wrong].astype(np.float64))
        return int(wrong.sum()), float(np.nan_to_num(apart).sum())

    def tried(cause: Cause) -> None:
        cause.total = total
        answer = kick.trial(dict(cause.changes), look)
        result.tried += 1
        if isinstance(answer, str):
            cause.error = f"the task does not end with it: {answer}"
        else:
            cause.left, cause.distance = answer

    def time_left() -> bool:
        return result.tried < most_trials and clock() - begun < most_seconds

    for number, cause in enumerate(candidates):
        if number and not time_left():
            result.untried = len(candidates) - number
            break
        tried(cause)
    if not any(cause.explains for cause in candidates):
        candidates += _refined(candidates, tried, total)
    better = [cause for cause in candidates if cause.left is not None and cause.left < total]
    better.sort(key=lambda cause: (cause.left, -cause.likely))
    result.causes = better
    return result


def _refined(causes: list[Cause], tried: Callable[[Cause], None], total: int) -> list[Cause]:
    """Look for better values of the number that helps most: a scale or an offset of many bits."""
    helping = [
        cause
        for cause in causes
        if cause.left is not None and 2 * cause.left < total and len(cause.changes) == 1 and _is_number(cause)
    ]
    if not helping:
        return []
    best = min(helping, key=lambda cause: (cause.left, cause.distance, -cause.likely))
    (key, value), found = next(iter(best.changes.items())), []
    known = {cause.changes[key] for cause in causes if key in cause.changes and len(cause.changes) == 1}
    step = REFINED
    while step and best.left:
        for other in (value + step, value - step):
            if other < 0 or other in known:
                continue
            known.add(other)
            one = Cause({key: other}, best.before, best.likely)
            try:
                tried(one)
            except ValueError:  # it does not fit the field
                continue
            found.append(one)
            if one.left is not None and (one.left, one.distance) < (best.left, best.distance):
                best, value = one, other
                break
        else:
            step //= 2
    return found


def _is_number(cause: Cause) -> bool:
    """Whether the field of a cause is a number of more than 8 bits and no address."""
    path, name = next(iter(cause.changes))
    block, _, register_name = path.partition(".")
    register = registers()[block][register_name]
    return (
        register.fields[name].width > 8 and address_field(register) is None and not register.fields[name].enum
    )


def worded_operands(reports: Sequence[Any], named: Callable[[int], str]) -> list[str]:
    """Return what the reports of a task say it reads: client, bytes, and what is at the first address."""
    lines = []
    for report in reports:
        for one in report.reads:
            if one.ranges:
                lines.append(
                    f"{one.client}: {one.bytes} bytes from 0x{one.ranges[0][0]:08X}{named(one.ranges[0][0])}"
                )
    return list(dict.fromkeys(lines))
