"""Whole models: time and memory of a checked run, in a separate process on one core."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rkcosim.base import progress as under_way
from rkcosim.engines.library import DramConfig
from rkcosim.engines.settings import changed
from rkcosim.measure.perf.bench.machine import apart, machine, peak_bytes
from rkcosim.measure.perf.page import table

SCHEMA_VERSION = 1
THREADS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
"""Variables that limit numpy's libraries to one thread (the simulation itself uses one)."""


@dataclass(frozen=True)
class WholeRun:
    """A model run once on random inputs, every tensor compared with both golden models.

    Members
    -------
    macs : useful multiply-accumulates.
    processor_seconds, wall_seconds : time of the whole process, from loading the model to the verdict.
    peak_bytes : its peak memory.
    """

    model: str
    cycles: int
    macs: int
    match: bool
    processor_seconds: float
    wall_seconds: float
    peak_bytes: int

    @property
    def cycles_per_second(self) -> float:
        """Cycles per second of processor time, including loading, compiling and checking."""
        return self.cycles / self.processor_seconds


def _run(path: Path, dram: DramConfig | None) -> WholeRun:
    from rkcosim.measure.models.run import run_model

    begun = time.perf_counter()
    found = run_model(path, check=True, dram=dram)
    return WholeRun(
        path.name,
        found.cycles,
        sum(layer.macs for layer in found.layers),
        bool(found.verdict["match"]),
        round(time.process_time(), 2),
        round(time.perf_counter() - begun, 2),
        peak_bytes(),
    )


@contextmanager
def _one_thread() -> Iterator[None]:
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update(dict.fromkeys(THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def run_models(paths: Sequence[Path], dram: DramConfig | None = None) -> list[WholeRun]:
    """Run model files one after the other on the default engine, which is built first if necessary.

    Parameters
    ----------
    dram : timing of the memory; None for the RK3588's.

    Raises
    ------
    ValueError, OSError
        If a file cannot be read or run.
    """
    from rkcosim.engines.engine import open_engine

    for path in paths:
        path.open("rb").close()
    open_engine(cores=1).close()
    found = []
    with under_way.step("models", total=len(paths)) as step, _one_thread():
        for path in paths:
            step.detail = path.name
            found.append(apart(path.name, _run, path, dram))
            step.advance()
    return found


def document(runs: Sequence[WholeRun], dram: DramConfig | None = None) -> dict[str, Any]:
    """Return the JSON of `rkcosim bench --model`."""
    rows = [{**asdict(run), "cycles_per_second": round(run.cycles_per_second)} for run in runs]
    return {
        "schema_version": SCHEMA_VERSION,
        "command": "bench --model",
        "machine": machine(),
        "dram_changed": changed(dram),
        "rows": rows,
    }


HEADS = ("model", "cycles", "MMAC", "seconds, checked", "cycles a second", "peak memory", "verdict")


def cells(run: WholeRun) -> list[str]:
    """Return a run as cells under `HEADS`."""
    return [
        run.model,
        f"{run.cycles:,}",
        f"{run.macs / 1e6:,.0f}",
        f"{run.processor_seconds:.1f}",
        f"{run.cycles_per_second:,.0f}",
        f"{run.peak_bytes / 2**20:,.0f} MiB",
        "match" if run.match else "MISMATCH",
    ]


def markdown(runs: Sequence[WholeRun]) -> str:
    """Return the section "networks" of docs/results/performance.md."""
    return "\n".join(table(HEADS, map(cells, runs)))
