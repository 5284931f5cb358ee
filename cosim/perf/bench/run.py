"""Measuring: each engine in a process of its own, so that its peak memory is its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cosim import progress as under_way
from cosim.engines.cache import Progress, say
from cosim.perf.bench.apart import apart, peak_bytes
from cosim.perf.bench.engines import BOUND, DEFAULT_ENGINES, ENGINES, bound_rate
from cosim.perf.bench.jobs import JOBS, Pass, jump_rate
from cosim.perf.bench.machine import machine
from cosim.perf.bench.rows import Bench, EngineFacts, Row, bound_row, facts_of, row_of, with_ratios
from cosim.perf.bench.threads import ThreadRow, measure_threads

SECONDS = 3.0
THREADED = "verilator"
"""Engine whose cores are also run in several threads."""

MOST_PASSES = 1000


def measure_job(engine_name: str, job_name: str, seconds: float, progress: Progress = say) -> Row:
    """One workload in one engine, in this process.

    Parameters
    ----------
    seconds : processor time after which no pass begins; one that has taken longer is abandoned.
    """
    run = JOBS[job_name].make()
    passes: list[Pass] = []
    jump = None
    while sum(one.seconds for one in passes) < seconds and len(passes) < MOST_PASSES:
        with ENGINES[engine_name].open(progress) as engine:  # a fresh one, so that the cycles are the same
            passes.append(run(engine, seconds))
            if job_name == "idle" and jump is None:
                jump = jump_rate(engine)
        if not passes[-1].complete:
            break
    if len(passes) > 1 and not passes[-1].complete:
        passes.pop()
    return row_of(engine_name, job_name, passes, jump)


def _measure_slow(name: str, jobs: Sequence[str], seconds: float) -> list[Row]:
    """One pass of every workload on one engine."""
    rows = []
    with ENGINES[name].open(say) as engine:
        for job in jobs:
            rows.append(row_of(name, job, [JOBS[job].make()(engine, seconds)]))
    return rows


def _measure_engine(name: str, jobs: Sequence[str], seconds: float) -> tuple[list[Row], int]:
    if ENGINES[name].slow:
        rows = _measure_slow(name, jobs, seconds)
    else:
        rows = [measure_job(name, job, seconds) for job in jobs]
    return rows, peak_bytes()


def run_bench(
    engines: Sequence[str] = DEFAULT_ENGINES,
    jobs: Sequence[str] = tuple(JOBS),
    *,
    seconds: float = SECONDS,
    progress: Progress = say,
    each: Callable[[EngineFacts, list[Row]], None] = lambda facts, rows: None,
) -> Bench:
    """Measure engines on workloads, one after the other.

    Parameters
    ----------
    engines, jobs : names of `ENGINES` (or "bound") and of `JOBS`.
    seconds : processor time for each engine and workload.
    progress : called with one line for each thing that takes long.
    each : called with what an engine gave, without ratios.

    Raises
    ------
    ValueError
        for an unknown name, or the same twice.
    BuildError, EngineError
        when an engine cannot be built or breaks.
    """
    _check("engine", engines, [*ENGINES, BOUND])
    _check("workload", jobs, JOBS)
    for name in engines:  # before anything is timed: other processes disturb
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
            each(facts[-1], found)
            step.advance()
    threads: list[ThreadRow] = []
    if THREADED in engines and "busy" in jobs:
        threads = apart("several threads", measure_threads, seconds)
    return Bench(machine(), facts, with_ratios(rows), threads)


def _check(what: str, given: Sequence[str], known: Sequence[str] | dict) -> None:
    if not given:
        raise ValueError(f"no {what} was named; there are {', '.join(known)}")
    for name in given:
        if name not in known:
            raise ValueError(f"no {what} is named {name!r}; there are {', '.join(known)}")
    if len(set(given)) < len(given):
        raise ValueError(f"the same {what} was named twice")
