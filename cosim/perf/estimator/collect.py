"""Measure the estimator's data set on the RTL.

python -m cosim.perf.estimator.collect            # all of it: some 45 million cycles
python -m cosim.perf.estimator.collect --check 8  # a few layers; their cycles must be the stored ones
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from cosim.engines.engine import Engine, open_engine
from cosim.engines.soc import TaskRecord
from cosim.perf import layer_models
from cosim.perf.estimator.data import FILE, Measured, MeasuredJob, as_settings, read_data, write_data
from cosim.perf.estimator.layers import SETTINGS, Layer, drawn, held_out, layers
from cosim.perf.estimator.tasks import PlannedTask, planned_tasks, product_tasks
from cosim.perf.workloads import multiply
from sw.compiler import CompiledModel, compile_model, using_cores
from sw.compiler.matmul import Matmul
from sw.driver import Driver, Job

MAX_CYCLES = 50_000_000


def measure(layer: Layer, setting: str, engine: Engine) -> list[MeasuredJob]:
    """Run a layer or network once on random data; `engine` has the memory timing named `setting`."""
    with using_cores(layer.cores):
        made = layer.make()
    if isinstance(made, Matmul):
        return [_run_product(made, layer, setting, engine)]
    return _run_model(made, layer, setting, engine)


def _run_model(model: CompiledModel, layer: Layer, setting: str, engine: Engine) -> list[MeasuredJob]:
    before = len(engine.task_log())
    driver = _Timed(engine, MAX_CYCLES)
    loaded = model.load(driver)
    try:
        rng = np.random.default_rng(1)
        for number, info in enumerate(model.inputs):
            values: Any = rng.normal(size=info.shape).astype(info.dtype)
            if info.quantised:
                low = 0 if info.dtype == np.uint8 else -128
                values = rng.integers(low, low + 256, info.shape).astype(info.dtype)
            loaded.set_input(number, values)
        loaded.run()
    finally:
        loaded.close()
    plan = model.plan
    tasks = planned_tasks(plan)
    jobs = []
    records = engine.task_log()[before:]
    segments = [segment for segment in plan.segments() if segment.host is None]
    for segment, cycles in zip(segments, driver.cycles, strict=True):
        here, records = records[: segment.count], records[segment.count :]
        parts = [
            _part(
                layer,
                plan,
                tasks[segment.first + first :][:count],
                [record for record in here if record.core == number],
            )
            for number, (first, count) in enumerate(segment.parts)
        ]
        jobs.append(_job(layer, setting, parts, here, cycles))
    return jobs


def _run_product(product: Matmul, layer: Layer, setting: str, engine: Engine) -> MeasuredJob:
    before = len(engine.task_log())
    driver = _Timed(engine, MAX_CYCLES)
    rng = np.random.default_rng(1)
    sizes = product.a_bytes, product.b_bytes
    a, b = (rng.integers(0, 0x40, size).astype(np.uint8) for size in sizes)  # no float is special
    multiply(driver, product, a, b)
    records = engine.task_log()[before:]
    part = _part(layer, None, product_tasks(product), records)
    return _job(layer, setting, [part], records, driver.cycles[0])


class _Timed(Driver):
    """A driver that keeps the cycles of its jobs."""

    def __init__(self, engine: Engine, max_cycles: int) -> None:
        super().__init__(engine, max_cycles)
        self.cycles: list[int] = []

    def submit(self, job: Job) -> Any:
        result = super().submit(job)
        self.cycles.append(result.cycles)
        return result


def _part(layer: Layer, plan: Any, tasks: list[PlannedTask], records: list[TaskRecord]) -> list[Measured]:
    """Tasks of a core; the gap of the first one is its start, until `_job` knows that of the job."""
    found = []
    before = 0
    for task, record in zip(tasks, records, strict=True):
        if record.end is None:
            raise RuntimeError(f"{layer.name}: a task did not end")
        name = layer.name if plan is None else layer_name(layer, plan.steps[task.layer].name)
        found.append(Measured(name, task.shape, record.start - before, record.end - record.start))
        before = record.end
    return found


def layer_name(layer: Layer, step: str) -> str:
    """Name of a row: a layer of a network is one of its own."""
    return f"{layer.name}/{step}" if layer.family == "network" else layer.name


def _job(
    layer: Layer, setting: str, parts: list[list[Measured]], records: list[TaskRecord], cycles: int
) -> MeasuredJob:
    """A job; it began so long ago that its cycles end with its last task."""
    begin = max(record.end or 0 for record in records) - cycles
    for part in parts:
        part[0] = replace(part[0], gap=part[0].gap - begin)
    return MeasuredJob(layer.name, layer.family, setting, parts, cycles)


def measured(
    chosen: Iterable[tuple[Layer, str]], say: Callable[[str], None] = lambda _: None
) -> Iterator[list[MeasuredJob]]:
    """Measure (layer, setting) pairs, those that an engine can do one after the other together."""
    groups: dict[tuple[str, int], list[Layer]] = defaultdict(list)
    for layer, setting in chosen:
        groups[setting, layer.cores].append(layer)
    for (setting, cores), group in groups.items():
        started, cycles = time.process_time(), 0
        with open_engine(cores=cores, dram=SETTINGS[setting]) as engine:
            # The first job sets every core up, which takes the host some more writes.
            measure(replace(group[0], family="", make=_tiny), setting, engine)
            for layer in group:
                jobs = measure(layer, setting, engine)
                cycles += sum(job.cycles for job in jobs)
                yield jobs
        seconds = time.process_time() - started
        say(f"{setting}, {cores} cores: {len(group)} layers, {cycles:,} cycles, {seconds:.0f} s")


def _tiny() -> CompiledModel:
    """A convolution that every core has a part of, if there are several."""
    return compile_model(layer_models.conv(64, 96, (48, 48), int8=True))


def differences(stored: Iterable[MeasuredJob], now: Iterable[MeasuredJob]) -> list[str]:
    """A line for each job whose cycles or sizes are not the stored ones."""
    known: dict[tuple[str, str], list[MeasuredJob]] = defaultdict(list)
    for job in stored:
        known[job.name, job.setting].append(job)
    found = []
    fresh: dict[tuple[str, str], list[MeasuredJob]] = defaultdict(list)
    for job in now:
        fresh[job.name, job.setting].append(job)
    for (name, setting), jobs in fresh.items():
        before = known.get((name, setting), [])
        if list(map(_lasting, before)) != list(map(_lasting, jobs)):
            cycles = [sum(job.cycles for job in of) for of in (before, jobs)]
            found.append(f"{name}, {setting}: {cycles[0]} cycles stored, {cycles[1]} now")
    return found


def _lasting(job: MeasuredJob) -> list[list[tuple[Any, ...]]]:
    """What does not depend on the jobs before it: all but the cycles before its first tasks."""
    return [
        [(task.shape, task.cycles, task.gap if number else 0) for number, task in enumerate(part)]
        for part in job.parts
    ]


def resized(jobs: Iterable[MeasuredJob]) -> Iterator[MeasuredJob]:
    """Measured jobs with their tasks' sizes worked out anew, for the same compiler and RTL."""
    known = {(layer.name, layer.cores): layer for layer in layers()}
    named = {name: layer for (name, _), layer in known.items()}
    waiting: dict[tuple[str, str], list[list[PlannedTask]]] = {}
    for job in jobs:
        place = job.name, job.setting
        if not waiting.get(place):
            layer = named[job.name]
            with using_cores(layer.cores):
                made = layer.make()
            waiting[place] = _parts(made)
        parts = []
        for part in job.parts:
            tasks = waiting[place].pop(0)
            parts.append([replace(old, shape=new.shape) for old, new in zip(part, tasks, strict=True)])
        yield replace(job, parts=parts)


def _parts(made: CompiledModel | Matmul) -> list[list[PlannedTask]]:
    """Tasks of each core of each job, in order."""
    if isinstance(made, Matmul):
        return [product_tasks(made)]
    tasks = planned_tasks(made.plan)
    return [
        tasks[segment.first + first :][:count]
        for segment in made.plan.segments()
        if segment.host is None
        for first, count in segment.parts
    ]


def sample(count: int) -> list[tuple[Layer, str]]:
    """Some drawn layers that were held out, spread over the set."""
    held = [layer for layer in drawn() if held_out(layer.name) and layer.cores == 1]
    return [(layer, layer.settings[-1]) for layer in held[:: max(len(held) // count, 1)][:count]]


def main(arguments: list[str] | None = None) -> int:
    """Measure and store, or compare; 0 when nothing differs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--check", type=int, metavar="N", help="measure N layers and compare with the file")
    parser.add_argument("--sizes", action="store_true", help="keep the cycles, work the sizes out anew")
    given = parser.parse_args(arguments)
    if given.sizes:
        write_data(resized(read_data(any_columns=True)), as_settings(SETTINGS))
        return 0
    if given.check:
        found = differences(
            read_data(), [job for jobs in measured(sample(given.check), print) for job in jobs]
        )
        print("\n".join(found) or "as stored")
        return 1 if found else 0
    everything = [(layer, setting) for layer in layers() for setting in layer.settings]
    jobs = [job for jobs in measured(everything, print) for job in jobs]
    write_data(jobs, as_settings(SETTINGS))
    print(f"{len(jobs)} jobs: {FILE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
