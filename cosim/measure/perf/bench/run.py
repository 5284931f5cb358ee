"""Measurement of each engine in a separate process, which makes its peak memory known."""

from __future__ import annotations

from collections.abc import Sequence

from rkcosim.base import progress as under_way
from rkcosim.engines.cache import Progress, say
from rkcosim.measure.perf.bench.engines import BOUND, DEFAULT_ENGINES, ENGINES, bound_rate
from rkcosim.measure.perf.bench.jobs import JOBS, Pass, ThreadRow, jump_rate, measure_threads
from rkcosim.measure.perf.bench.machine import apart, machine, peak_bytes
from rkcosim.measure.perf.bench.rows import Bench, BenchRow, bound_row, facts_of, row_of, with_ratios

SECONDS = 3.0
THREADED = "verilator"
"""Engine for which several threads are measured too."""

MOST_PASSES = 1000


def measure_job(engine_name: str, job_name: str, seconds: float, progress: Progress = say) -> BenchRow:
    """Measure one workload in one engine, in this process.

    Parameters
    ----------
    seconds : processor time after which no new pass begins; a pass that takes longer is abandoned.
    """
    run = JOBS[job_name].make()
    passes: list[Pass] = []
    jump = None
    while sum(one.seconds for one in passes) < seconds and len(passes) < MOST_PASSES:
        with ENGINES[engine_name].open(progress) as engine:  # a new one, so that the cycles are the same
            passes.append(run(engine, seconds))
            if job_name == "idle" and jump is None:
                jump = jump_rate(engine)
        if not passes[-1].complete:
            break
    if len(passes) > 1 and not passes[-1].complete:
        passes.pop()
    return row_of(engine_name, job_name, passes, jump)


def _measure_engine(name: str, jobs: Sequence[str], seconds: float) -> tuple[list[BenchRow], int]:
    """Measure all workloads, in one pass each on one engine if opening it is slow; and the peak memory."""
    if ENGINES[name].slow:
        with ENGINES[name].open(say) as engine:
            rows = [row_of(name, job, [JOBS[job].make()(engine, seconds)]) for job in jobs]
    else:
        rows = [measure_job(name, job, seconds) for job in jobs]
    return rows, peak_bytes()


def run_bench(
    engines: Sequence[str] = DEFAULT_ENGINES,
    jobs: Sequence[str] = tuple(JOBS),
    *,
    seconds: float = SECONDS,
    progress: Progress = say,
) -> Bench:
    """Measure engines on workloads, one after the other.

    Parameters
    ----------
    engines, jobs : names of `ENGINES` (or "bound") and of `JOBS`.
    seconds : processor time for each engine and workload.
    progress : called with a line of text before each long operation.

    Raises
    ------
    ValueError
        If a name is unknown or given twice.
    BuildError, EngineError
        If an engine cannot be built or fails.
    """
    _check("engine", engines, [*ENGINES, BOUND])
    _check("workload", jobs, JOBS)
    for name in engines:  # build them before anything is timed: other processes disturb measurements
        if name != BOUND and not ENGINES[name].slow:
            with ENGINES[name].open(progress):
                pass
    facts, rows = [], []
    with under_way.step("measuring", total=len(engines)) as step:
        for name in engines:
            step.detail = name
            if name == BOUND:
                found, peak = [bound_row(bound_rate(progress))], None
            else:
                found, peak = apart(f"the engine {name}", _measure_engine, name, jobs, seconds)
            rows += found
            facts.append(facts_of(name, peak))
            step.advance()
    threads: list[ThreadRow] = []
    if THREADED in engines and "busy" in jobs:
        threads = apart("several threads", measure_threads, seconds)
    return Bench(machine(), facts, with_ratios(rows), threads)


def _check(what: str, given: Sequence[str], known: Sequence[str] | dict) -> None:
    if not given:
        raise ValueError(f"no {what} was given; there are {', '.join(known)}")
    for name in given:
        if name not in known:
            raise ValueError(f"there is no {what} {name!r}; there are {', '.join(known)}")
    if len(set(given)) < len(given):
        raise ValueError(f"the same {what} was given twice")
