"""Three busy cores in one, two and three threads: the same cycles, and how much sooner."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from cosim.engines.cache import Progress, say
from cosim.engines.engine import open_engine
from cosim.engines.threads import processors
from cosim.perf import layer_models
from sw.compiler import compile_model
from sw.driver import Driver

CORES = 3
LAYER: dict[str, Any] = dict(cin=128, cout=192, size=(56, 56), kernel=3, pad=1)
MAX_CYCLES = 10_000_000


@dataclass(frozen=True)
class ThreadRow:
    """A layer shared by `CORES` cores, simulated in some threads.

    Members
    -------
    cycles : of the job; equal for all numbers of threads.
    wall_seconds : of the best pass, by the clock: threads save no processor time.
    core_cycles_per_second : cycles of all cores together.
    speedup : to one thread.
    """

    threads: int
    cycles: int
    wall_seconds: float
    core_cycles_per_second: float
    speedup: float


def measure_threads(seconds: float, progress: Progress = say) -> list[ThreadRow]:
    """Run the layer in one thread, and in as many as there are processors for, at most one a core.

    Raises
    ------
    RuntimeError
        when the cycles depend on the threads, or a core has nothing to do.
    """
    model = compile_model(layer_models.conv(**LAYER, int8=True), cores=CORES)
    if {task.core for task in model.plan.tasks} != set(range(CORES)):
        raise RuntimeError("the layer does not keep all cores busy")
    values = np.random.default_rng(1).integers(-128, 128, model.inputs[0].shape).astype(np.int8)
    counts = range(1, min(CORES, processors()) + 1)
    best = dict.fromkeys(counts, float("inf"))
    cycles: set[int] = set()
    begun = time.perf_counter()
    while not cycles or time.perf_counter() - begun < seconds * len(counts):
        for count in counts:  # in turn, so that other work on the machine disturbs all alike
            with open_engine("verilator", cores=CORES, threads=count, progress=progress) as engine:
                loaded = model.load(Driver(engine, MAX_CYCLES))
                try:
                    loaded.set_input(0, values)
                    first, start = engine.cycle, time.perf_counter()
                    loaded.run()
                    best[count] = min(best[count], time.perf_counter() - start)
                    cycles.add(engine.cycle - first)
                finally:
                    loaded.close()
    if len(cycles) != 1:
        raise RuntimeError(f"the number of threads changes the cycles: {sorted(cycles)}")
    (took,) = cycles
    return [
        ThreadRow(count, took, round(wall, 4), round(CORES * took / wall, 1), round(best[1] / wall, 3))
        for count, wall in best.items()
    ]
