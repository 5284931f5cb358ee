"""The work that every engine does, and how long it takes: processor time inside the engine's calls."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from cosim.engines.soc import SocEngine
from cosim.perf import layer_models
from sw.compiler import compile_conv_layer, compile_model
from sw.driver import Driver

LAYER: dict[str, Any] = dict(channels=64, kernels=64, height=56, width=56, kernel=3, pad=1)
ADDED = (64, 112, 112)
"""Shape of the tensors that the workload "dma" adds."""

NETWORK = Path(__file__).parents[3] / "examples" / "digits" / "digits_int8.onnx"
MAX_CYCLES = 10_000_000
WARM_UP = 20_000
"""Cycles within which a job must have come to what is timed."""

_LOOK = 100  # cycles between two looks whether it has
_FIRST_STEP, _LAST_STEP = 32, 16384
IDLE_PASS = 100_000
JUMP = 1 << 40
"""Cycles that the idle system jumps over when it may."""


@dataclass
class Pass:
    """One pass over a job's timed part; `complete` is false where time was up before its end."""

    cycles: int = 0
    seconds: float = 0.0
    slots: int = 0
    complete: bool = True


class EnoughError(Exception):
    """Ends a job that nobody wants to wait for."""


class Timed:
    """An engine as the driver sees it, with the clock running inside its calls.

    Parameters
    ----------
    engine : of one core.
    seconds : processor time after which the job is abandoned.
    begun : tells from the engine that the part to be timed has begun; None: at once.
    """

    def __init__(
        self, engine: SocEngine, seconds: float, begun: Callable[[SocEngine], bool] | None = None
    ) -> None:
        self._engine, self._limit, self._begun = engine, seconds, begun
        self._on = begun is None
        self.found = Pass()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def read32(self, core: int, offset: int) -> int:
        """As of the engine."""
        return self._time(partial(self._engine.read32, core, offset))

    def write32(self, core: int, offset: int, value: int) -> None:
        """As of the engine."""
        self._time(partial(self._engine.write32, core, offset, value))

    def run_until_irq(self, core_mask: int, max_cycles: int) -> int:
        """As of the engine; raises EnoughError when time is up."""
        engine, end = self._engine, self._engine.cycle + max_cycles
        if not self._on:
            assert self._begun is not None
            limit = engine.cycle + WARM_UP
            while not self._begun(engine):
                if engine.run_until_irq(core_mask, _LOOK) or engine.cycle >= limit:
                    raise RuntimeError(f"engine {engine.name}: what is to be timed never began")
            self._on = True
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
        if not self._on:
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


@dataclass(frozen=True)
class Job:
    """A workload: `make` gives a function that does one pass on an engine within some seconds."""

    name: str
    title: str
    make: Callable[[], Callable[[SocEngine, float], Pass]]


def _model_pass(model: Any, begun: Callable[[SocEngine], bool] | None) -> Callable[[SocEngine, float], Pass]:
    """A pass that runs a compiled model once on random data."""
    rng = np.random.default_rng(layer_models.SEED)
    values = []
    for info in model.inputs:
        quantised = info.quantised
        values.append(
            rng.integers(-128, 128, info.shape).astype(np.int8)
            if quantised
            else rng.normal(size=info.shape).astype(info.dtype)
        )

    def run(engine: SocEngine, seconds: float) -> Pass:
        # Counters go on from pass to pass, so what has begun is seen in how they change.
        timed = Timed(engine, seconds, begun)
        loaded = model.load(Driver(timed, MAX_CYCLES))
        try:
            for number, value in enumerate(values):
                loaded.set_input(number, value)
            try:
                loaded.run()
            except EnoughError:
                engine.reset(1)
        finally:
            loaded.close()
        return timed.found

    return run


def _changed(count: Callable[[SocEngine], int]) -> Callable[[], Callable[[SocEngine], bool]]:
    """Maker of functions that tell whether a counter has moved since they were first asked."""

    def make() -> Callable[[SocEngine], bool]:
        first: list[int] = []

        def moved(engine: SocEngine) -> bool:
            now = count(engine)
            if not first:
                first.append(now)
            return now > first[0]

        return moved

    return make


def _busy() -> Callable[[SocEngine, float], Pass]:
    model = compile_conv_layer(**LAYER)
    maker = _changed(_slots)
    return lambda engine, seconds: _model_pass(model, maker())(engine, seconds)


def _written(engine: SocEngine) -> int:
    return sum(engine.counters(0).bytes_written.values())


def _dma() -> Callable[[SocEngine, float], Pass]:
    model = compile_model(layer_models.add(ADDED, int8=True))
    maker = _changed(_written)
    return lambda engine, seconds: _model_pass(model, maker())(engine, seconds)


def _network() -> Callable[[SocEngine, float], Pass]:
    if not NETWORK.exists():
        raise ValueError(f"the workload network needs {NETWORK.name} of the repository's examples")
    model = compile_model(NETWORK.read_bytes())
    return _model_pass(model, None)


def _idle() -> Callable[[SocEngine, float], Pass]:
    def run(engine: SocEngine, seconds: float) -> Pass:
        engine.may_sleep(False)
        try:
            timed = Timed(engine, seconds)
            timed.run_until_irq(1, IDLE_PASS)
        except EnoughError:
            pass
        finally:
            engine.may_sleep(True)
        return timed.found

    return run


def jump_rate(engine: SocEngine) -> float:
    """Cycles a second of an idle system whose cores may sleep: it jumps."""
    engine.run(1000)  # until the core has said that it is idle
    start = time.thread_time()
    engine.run(JUMP)
    return JUMP / max(time.thread_time() - start, 1e-9)


JOBS: dict[str, Job] = {
    job.name: job
    for job in (
        Job("busy", "array fully busy: inside of a 3x3 convolution, 64 to 64 channels at 56x56", _busy),
        Job("dma", "array idle, DMA busy: an addition of two tensors of 64x112x112 bytes", _dma),
        Job("idle", "nothing to do, and evaluated all the same", _idle),
        Job("network", "all of the digits network of examples/digits", _network),
    )
}
"""Workloads by name."""
