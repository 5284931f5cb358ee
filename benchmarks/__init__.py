"""Costs of the ways into the simulation: `python -m benchmarks.device`, `.events`, `.trace`, `.growth`.

`python -m benchmarks.onnx_nodes` runs the node tests of the package onnx, `python -m benchmarks.quantize`
quantises networks and measures their accuracy, and `python -m benchmarks.zoo` measures networks that people
run on the RK3588 (docs/results/zoo.md).

`rkcosim bench` compares engines, and measures layers and whole models.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rkcosim.compiler import CompiledModel
from rkcosim.driver import Driver
from rkcosim.engines import open_engine
from rkcosim.engines.soc import SocEngine
from rkcosim.measure.perf.measure import loaded
from rkcosim.measure.perf.workloads import MEMORY

SCHEMA_VERSION = 1
MAX_CYCLES = 10_000_000
JSON = {"type": Path, "help": "write the rows to this file"}
"""Definition of the option --json."""


@dataclass(frozen=True)
class JobRun:
    """Cycles and processor time of jobs, and an additional result."""

    cycles: int
    seconds: float
    result: Any


def timed(
    model: CompiledModel,
    begin: Callable[[SocEngine], None] = lambda engine: None,
    end: Callable[[SocEngine], None] = lambda engine: None,
    result: Callable[[SocEngine], Any] = lambda engine: None,
    *,
    jobs: int = 1,
    traced: bool = False,
) -> JobRun:
    """Run a model on a new engine of one core.

    Parameters
    ----------
    begin : called with the engine before the model is loaded.
    end, result : called after the last job; the time of `end` is included in the measurement.
    jobs : number of runs of the model.
    traced : as for `open_engine`.
    """
    with open_engine(cores=1, dram=MEMORY, traced=traced) as engine:
        begin(engine)
        with loaded(model, Driver(engine, MAX_CYCLES)) as ready:
            first, begun = engine.cycle, time.thread_time()
            for _ in range(jobs):
                ready.run()
            cycles = engine.cycle - first
            end(engine)
            return JobRun(cycles, time.thread_time() - begun, result(engine))


def write(path: Path | None, rows: Sequence[Any], **members: Any) -> None:
    """Write rows (dataclasses) and other members as JSON, if a path is given."""
    if path is not None:
        data = {"schema_version": SCHEMA_VERSION, "rows": [asdict(row) for row in rows], **members}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(data, indent=2) + "\n")
