"""Changes timed in several processes."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import fields
from typing import Any

import numpy.typing as npt

from rkcosim.compiler.graph import ModelError
from rkcosim.compiler.options import LoadOptions, load_options, using_options
from rkcosim.driver import DriverError
from rkcosim.engines.protocol import EngineError
from rkcosim.measure.advice.change import NotApplicable, Subject
from rkcosim.measure.advice.timing import Timed, timed

Values = Mapping[str, npt.NDArray[Any]] | None

FAILURES = (ModelError, DriverError, EngineError, NotApplicable, ValueError)
"""What a change may end with that cannot be made or timed."""


def time_or_reason(
    subject: Subject, values: Values, engine: str | None, clock: float, options: LoadOptions
) -> Timed | str:
    """Return the time of a network as `timed`, or why there is none; files are read with `options`."""
    try:
        with using_options(**{one.name: getattr(options, one.name) for one in fields(options)}):
            return timed(subject, values, engine=engine, clock=clock)
    except FAILURES as problem:
        return " ".join(str(problem).split())[:200]


def times(
    subjects: Sequence[Subject],
    values: Values,
    engine: str | None,
    clock: float,
    workers: int,
    late: Callable[[], bool],
) -> Iterator[tuple[int, Timed | str]]:
    """Yield number and time of networks, or the reason why one has none, as they become known.

    Parameters
    ----------
    subjects, values, engine, clock
        As for `timed`.
    workers
        Processes; 1 for this one alone.
    late
        Whether no further network is to be begun; the others are not yielded.

    Raises
    ------
    EngineError
        If a process ends without a result.
    """
    options = load_options()
    if workers == 1:
        for number, subject in enumerate(subjects):
            if late():
                return
            yield number, time_or_reason(subject, values, engine, clock, options)
        return
    left = list(enumerate(subjects))
    running: dict[Future[Timed | str], int] = {}
    context = multiprocessing.get_context("spawn")
    try:
        with ProcessPoolExecutor(workers, mp_context=context) as pool:
            while running or (left and not late()):
                while left and len(running) < workers and not late():
                    number, subject = left.pop(0)
                    running[pool.submit(time_or_reason, subject, values, engine, clock, options)] = number
                for one in wait(running, return_when=FIRST_COMPLETED).done:
                    yield running.pop(one), one.result()
    except BrokenProcessPool as error:
        raise EngineError("a process that timed a change ended unexpectedly (out of memory?)") from error
