"""Measure the estimator's data set on the RTL.

python -m tools.estimator.collect            # the whole set: about 45 million cycles
python -m tools.estimator.collect --check 8  # a few layers; their cycles must equal the stored ones
python -m tools.estimator.collect --kind pool  # only layers with tasks of the kind, after a change of the PPU
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rkcosim.compiler import CompiledModel, compile_model, using_cores
from rkcosim.compiler.matmul import Matmul
from rkcosim.driver import Driver, Job
from rkcosim.engines.engine import Engine, open_engine
from rkcosim.measure.perf import layer_models
from rkcosim.measure.perf.estimator.features import CONV, FLYING, POOL
from rkcosim.measure.perf.estimator.tasks import PlannedTask, jobs_of
from rkcosim.measure.perf.measure import SEED, loaded, options
from rkcosim.measure.perf.workloads import multiply
from tools.estimator.data import FILE, Measured, MeasuredJob, read_data, write_data
from tools.estimator.layers import SETTINGS, Layer, drawn, held_out, layers

MAX_CYCLES = 50_000_000


class _Timed(Driver):
    """A driver that records the cycles of its jobs."""

    def __init__(self, engine: Engine, max_cycles: int) -> None:
        super().__init__(engine, max_cycles)
        self.cycles: list[int] = []

    def submit(self, job: Job) -> Any:
        result = super().submit(job)
        self.cycles.append(result.cycles)
        return result


def _made(layer: Layer) -> CompiledModel | Matmul:
    with using_cores(layer.cores):
        return layer.make()


def _jobs(made: CompiledModel | Matmul) -> list[list[list[PlannedTask]]]:
    """Return the planned tasks of each core of each job."""
    return [parts for _, parts in jobs_of(made if isinstance(made, Matmul) else made.plan)]


def measure(layer: Layer, setting: str, engine: Engine) -> list[MeasuredJob]:
    """Run a layer or network once on random data; `engine` has the memory timing named `setting`.

    Raises
    ------
    RuntimeError
        If a task did not end.
    """
    made = _made(layer)
    before = len(engine.task_log())
    driver = _Timed(engine, MAX_CYCLES)
    if isinstance(made, Matmul):
        rng = np.random.default_rng(SEED)
        sizes = made.a_bytes, made.b_bytes
        multiply(driver, made, *(rng.integers(0, 0x40, size).astype(np.uint8) for size in sizes))  # no NaN
    else:
        with loaded(made, driver) as ready:
            ready.run()
    records = engine.task_log()[before:]
    found = []
    for planned, cycles in zip(_jobs(made), driver.cycles, strict=True):
        count = sum(map(len, planned))
        here, records = records[:count], records[count:]
        if any(record.end is None for record in here):
            raise RuntimeError(f"{layer.name}: a task did not end")
        parts = []
        # Fetches before the job do not matter, so the job's cycles end with its last task.
        start = max(record.end or 0 for record in here) - cycles
        for core, tasks in enumerate(planned):
            part, end = [], start
            for task, record in zip(tasks, (r for r in here if r.core == core), strict=True):
                # A network's layer gets its own row, with the layer's name.
                name = f"{layer.name}/{task.layer_name}" if layer.family == "network" else layer.name
                assert record.end is not None
                part.append(Measured(name, task.shape, record.start - end, record.end - record.start))
                end = record.end
            parts.append(part)
        found.append(MeasuredJob(layer.name, layer.family, setting, parts, cycles))
    return found


def measured(
    chosen: Iterable[tuple[Layer, str]], say: Callable[[str], None] = lambda _: None
) -> Iterator[MeasuredJob]:
    """Measure (layer, setting) pairs; pairs that can use the same engine are measured together."""
    groups: dict[tuple[str, int], list[Layer]] = defaultdict(list)
    for layer, setting in chosen:
        groups[setting, layer.cores].append(layer)
    for (setting, cores), group in groups.items():
        started, cycles = time.process_time(), 0
        with open_engine(cores=cores, dram=SETTINGS[setting]) as engine:
            # The first job initialises every core, which takes the host some additional writes.
            measure(replace(group[0], family="", make=_tiny), setting, engine)
            for layer in group:
                for job in measure(layer, setting, engine):
                    cycles += job.cycles
                    yield job
        seconds = time.process_time() - started
        say(f"{setting}, {cores} cores: {len(group)} layers, {cycles:,} cycles, {seconds:.0f} s")


def _tiny() -> CompiledModel:
    """Return a small convolution of which every core has a part, if there are several."""
    return compile_model(layer_models.conv(64, 96, (48, 48), int8=True))


def differences(stored: Iterable[MeasuredJob], now: Iterable[MeasuredJob]) -> list[str]:
    """Return a line for each job whose cycles or sizes differ from the stored ones."""
    known, fresh = (_by_place(jobs) for jobs in (stored, now))
    return [
        f"{place[0]}, {place[1]}: {sum(job.cycles for job in known[place])} cycles stored, "
        f"{sum(job.cycles for job in jobs)} now"
        for place, jobs in fresh.items()
        if list(map(_lasting, known[place])) != list(map(_lasting, jobs))
    ]


def _by_place(jobs: Iterable[MeasuredJob]) -> dict[tuple[str, str], list[MeasuredJob]]:
    found: dict[tuple[str, str], list[MeasuredJob]] = defaultdict(list)
    for job in jobs:
        found[job.name, job.setting].append(job)
    return found


def _lasting(job: MeasuredJob) -> list[list[tuple[Any, ...]]]:
    """Return everything that does not depend on earlier jobs: all but the cycles before the first tasks."""
    return [
        [(task.shape, task.cycles, task.gap if number else 0) for number, task in enumerate(part)]
        for part in job.parts
    ]


def resized(jobs: Iterable[MeasuredJob]) -> Iterator[MeasuredJob]:
    """Recompute the sizes of the tasks of measured jobs; compiler and RTL must be the same."""
    named = {layer.name: layer for layer in layers()}
    for (name, _), of in _by_place(jobs).items():
        for job, planned in zip(of, _jobs(_made(named[name])), strict=True):
            parts = [
                [replace(old, shape=new.shape) for old, new in zip(part, tasks, strict=True)]
                for part, tasks in zip(job.parts, planned, strict=True)
            ]
            yield replace(job, parts=parts)


def replaced(stored: Sequence[MeasuredJob], now: Iterable[MeasuredJob]) -> list[MeasuredJob]:
    """Return the stored jobs with those of layers that were measured again in their places."""
    fresh = _by_place(now)
    found: list[MeasuredJob] = []
    for job in stored:
        place = job.name, job.setting
        if place not in fresh:
            found.append(job)
        else:
            found += fresh[place]
            fresh[place] = []
    return found


def of_kind(stored: Iterable[MeasuredJob], kind: str) -> list[tuple[Layer, str]]:
    """Return the layers and networks of stored jobs that have tasks of a kind, with their settings."""
    places = {
        (job.name, job.setting)
        for job in stored
        if any(task.shape.kind == kind for part in job.parts for task in part)
    }
    return [(layer, one) for layer in layers() for one in layer.settings if (layer.name, one) in places]


def sample(count: int) -> list[tuple[Layer, str]]:
    """Return some drawn layers that were held out, spread over the set."""
    held = [layer for layer in drawn() if held_out(layer.name) and layer.cores == 1]
    return [(layer, layer.settings[-1]) for layer in held[:: max(len(held) // count, 1)][:count]]


def main(arguments: list[str] | None = None) -> int:
    """Measure and store, or compare; return 0 if nothing differs."""
    check = {"type": int, "metavar": "N", "help": "measure N layers and compare with the file"}
    sizes = "keep the cycles and recompute the sizes"
    kind = {"choices": (CONV, FLYING, POOL), "help": "measure only layers with tasks of this kind again"}
    given = options(__doc__, arguments, check=check, sizes=sizes, kind=kind)
    if given.check:
        found = differences(read_data()[0], measured(sample(given.check), print))
        print("\n".join(found) or "as stored")
        return 1 if found else 0
    if given.sizes:
        jobs = list(resized(read_data(any_columns=True)[0]))
    elif given.kind:
        stored = read_data()[0]
        jobs = replaced(stored, measured(of_kind(stored, given.kind), print))
    else:
        chosen = [(layer, setting) for layer in layers() for setting in layer.settings]
        jobs = list(measured(chosen, print))
    write_data(jobs, SETTINGS)
    print(f"{len(jobs)} jobs: {FILE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
