"""The work that every engine does, and its duration: processor time inside the engine's calls."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rkcosim.compiler import CompiledModel, compile_conv_layer, compile_model
from rkcosim.driver import Driver
from rkcosim.engines.cache import Progress, say
from rkcosim.engines.engine import open_engine
from rkcosim.engines.settings import processors
from rkcosim.engines.soc import SocEngine
from rkcosim.measure.perf import layer_models
from rkcosim.measure.perf.boards.networks import NetworkError, network_file
from rkcosim.measure.perf.gate import NETWORKS
from rkcosim.measure.perf.measure import fastest, loaded, random_values
from rkcosim.measure.perf.workloads import MEMORY

LAYER: dict[str, Any] = dict(channels=64, kernels=64, height=56, width=56, kernel=3, pad=1)
ADDED = (64, 112, 112)
"""Shape of the tensors that the workload "dma" adds."""

NETWORK: Path = NETWORKS["digits"]
MAX_CYCLES = 10_000_000
WARM_UP = 20_000
"""Largest number of cycles before the timed part of a job begins."""

_LOOK = 100  # cycles between two checks whether it has begun
_FIRST_STEP, _LAST_STEP = 32, 16384
IDLE_PASS = 100_000
JUMP = 1 << 40
"""Cycles that the idle system skips if its cores may sleep."""


@dataclass
class Pass:
    """One pass over a job's timed part; `complete` is false if the time limit ended it."""

    cycles: int = 0
    seconds: float = 0.0
    slots: int = 0
    complete: bool = True


class EnoughError(Exception):
    """Ends a job that has used up its time limit."""


Count = Callable[[SocEngine], int]
"""Reads a counter of an engine."""


class Timed:
    """An engine for the driver, which measures the time inside its calls.

    Parameters
    ----------
    engine : engine with one core.
    seconds : processor time after which the job is abandoned.
    begins : a counter; the timed part begins at its first change.  None: immediately.
    """

    def __init__(self, engine: SocEngine, seconds: float, begins: Count | None = None) -> None:
        self._engine, self._limit, self._begins = engine, seconds, begins
        self.found = Pass()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def read32(self, core: int, offset: int) -> int:
        """See the engine."""
        return self._time(partial(self._engine.read32, core, offset))

    def write32(self, core: int, offset: int, value: int) -> None:
        """See the engine."""
        self._time(partial(self._engine.write32, core, offset, value))

    def run_until_irq(self, core_mask: int, max_cycles: int) -> int:
        """As the engine; raises EnoughError at the time limit, RuntimeError if no timed part began."""
        engine, end = self._engine, self._engine.cycle + max_cycles
        if self._begins is not None:
            limit, before = engine.cycle + WARM_UP, self._begins(engine)
            while self._begins(engine) == before:
                if engine.run_until_irq(core_mask, _LOOK) or engine.cycle >= limit:
                    raise RuntimeError(f"engine {engine.name}: the part to be timed never began")
            self._begins = None
        raised, step = 0, _FIRST_STEP
        while not raised and engine.cycle < end:
            if self.found.seconds > self._limit:
                self.found.complete = False
                raise EnoughError
            cycles = min(step, end - engine.cycle)
            raised = self._time(partial(engine.run_until_irq, core_mask, cycles))
            step = min(2 * step, _LAST_STEP)
        return raised

    def _time(self, call: Callable[[], Any]) -> Any:
        if self._begins is not None:
            return call()
        engine, found = self._engine, self.found
        cycle, slots = engine.cycle, _slots(engine)
        start = time.thread_time()
        result = call()
        found.seconds += time.thread_time() - start
        found.cycles += engine.cycle - cycle
        found.slots += _slots(engine) - slots
        return result


def _slots(engine: SocEngine) -> int:
    return engine.counters(0).events.get("mac_slots", 0)


def _written(engine: SocEngine) -> int:
    return sum(engine.counters(0).bytes_written.values())


Runner = Callable[[SocEngine, float], Pass]
"""Runs one pass of a workload on an engine with a limit in seconds."""


@dataclass(frozen=True)
class Job:
    """A workload; `make` returns a function that does one pass."""

    name: str
    title: str
    make: Callable[[], Runner]


def _model_pass(model: CompiledModel, begins: Count | None = None) -> Runner:
    """Return a function that runs a compiled model once on random data."""
    values = random_values(model)

    def run(engine: SocEngine, seconds: float) -> Pass:
        timed = Timed(engine, seconds, begins)
        with loaded(model, Driver(timed, MAX_CYCLES), values) as ready:
            try:
                ready.run()
            except EnoughError:
                engine.reset(1)
        return timed.found

    return run


def _network() -> Runner:
    if not NETWORK.exists():
        raise ValueError(f"the workload network needs {NETWORK.name} of the repository's examples")
    return _model_pass(compile_model(NETWORK.read_bytes()))


def _yolov8n() -> Runner:
    try:
        path = network_file("yolov8n")
    except NetworkError as error:
        raise ValueError(f"the workload yolov8n cannot be made: {error}") from error
    return _model_pass(compile_model(path.read_bytes()))


def _idle() -> Runner:
    def run(engine: SocEngine, seconds: float) -> Pass:
        timed = Timed(engine, seconds)
        engine.may_sleep(False)
        try:
            timed.run_until_irq(1, IDLE_PASS)
        except EnoughError:
            pass
        finally:
            engine.may_sleep(True)
        return timed.found

    return run


def jump_rate(engine: SocEngine) -> float:
    """Return the cycles per second of an idle system whose cores may sleep, so that the clock jumps."""
    engine.run(1000)  # until the core reports that it is idle
    start = time.thread_time()
    engine.run(JUMP)
    return JUMP / max(time.thread_time() - start, 1e-9)


JOBS: dict[str, Job] = {
    job.name: job
    for job in (
        Job(
            "busy",
            "array fully busy: the inner part of a 3x3 convolution, 64 to 64 channels at 56x56",
            lambda: _model_pass(compile_conv_layer(**LAYER), _slots),
        ),
        Job(
            "dma",
            "array idle, DMA busy: an addition of two tensors of 64x112x112 bytes",
            lambda: _model_pass(compile_model(layer_models.add(ADDED, int8=True)), _written),
        ),
        Job("idle", "idle system that is evaluated every cycle", _idle),
        Job("network", "the whole digits network of examples/digits", _network),
        Job("yolov8n", "YOLOv8n at 640x640: SiLU in the DPU's LUT after nearly every layer", _yolov8n),
    )
}
"""Workloads by name."""


# Three busy cores in one, two and three threads: the cycles are the same; measured is the speedup.

CORES = 3
SHARED: dict[str, Any] = dict(cin=128, cout=192, size=(56, 56), kernel=3, pad=1)


@dataclass(frozen=True)
class ThreadRow:
    """A layer shared by `CORES` cores, simulated in several threads.

    Members
    -------
    cycles : cycles of the job; equal for all numbers of threads.
    wall_seconds : wall-clock time of the best pass; threads save no processor time.
    core_cycles_per_second : cycles of all cores together.
    speedup : speed relative to one thread.
    """

    threads: int
    cycles: int
    wall_seconds: float
    core_cycles_per_second: float
    speedup: float


def measure_threads(seconds: float, progress: Progress = say) -> list[ThreadRow]:
    """Run the layer in one thread, and in one thread per processor (at most one per core).

    Raises
    ------
    RuntimeError
        If the cycles depend on the number of threads, or a core has no work.
    """
    model = compile_model(layer_models.conv(**SHARED, int8=True), cores=CORES)
    if {task.core for task in model.plan.tasks} != set(range(CORES)):
        raise RuntimeError("the layer does not keep all cores busy")
    values = random_values(model)

    def run(threads: int) -> Pass:
        with (
            open_engine("verilator", cores=CORES, dram=MEMORY, threads=threads, progress=progress) as engine,
            loaded(model, Driver(engine, MAX_CYCLES), values) as ready,
        ):
            first, start = engine.cycle, time.perf_counter()
            ready.run()
            return Pass(engine.cycle - first, time.perf_counter() - start)

    ways = {count: partial(run, count) for count in range(1, min(CORES, processors()) + 1)}
    end = time.perf_counter() + seconds * len(ways)
    best = fastest(ways, lambda _: time.perf_counter() < end)
    return [
        ThreadRow(
            count,
            found.cycles,
            round(found.seconds, 4),
            round(CORES * found.cycles / found.seconds, 1),
            round(best[1].seconds / found.seconds, 3),
        )
        for count, found in best.items()
    ]
