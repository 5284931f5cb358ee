"""A simulated machine: an engine, the kernel's model on it, and an account of what they did."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from cosim.engines.cache import Progress, say
from cosim.engines.engine import ENGINES, open_engine
from cosim.engines.library import DramConfig
from cosim.engines.settings import Number, changed, timing_line
from rtl.regs import registers
from sw.driver.kernel import Kernel, Log
from waves.spec import TraceSpec

if TYPE_CHECKING:
    from cosim.devices.recorder import Captured, Recorder

GOLDEN = "golden"

SCHEMA_VERSION = 1
"""Of the JSON form of `Report`."""


@dataclass
class Report:
    """What programs had the device do.

    Members
    -------
    engine : its name.
    jobs, tasks : that were started; `cycles` that passed.
    seconds : since the count began; `simulator_seconds` of them inside the engine.
    dram_changed : settings of the memory's timing that are not the default, by name.
    """

    engine: str
    jobs: int
    tasks: int
    cycles: int
    seconds: float
    simulator_seconds: float
    dram_changed: dict[str, Number] = field(default_factory=dict)

    @property
    def outside(self) -> float:
        """Share of the time that was not spent in the engine."""
        return 1 - self.simulator_seconds / self.seconds if self.seconds else 0.0

    def as_json(self) -> dict[str, object]:
        """Every member, ready for `json.dump`."""
        return {"schema_version": SCHEMA_VERSION, **asdict(self), "outside": self.outside}

    def text(self) -> str:
        """Some lines for people."""
        timing = timing_line(self.dram_changed)
        rate = f", {self.jobs / self.seconds:.0f} jobs/s" if self.seconds and self.jobs else ""
        return (
            f"{self.jobs} jobs, {self.tasks} tasks, {self.cycles} cycles on {self.engine}\n"
            f"{self.seconds:.3f} s, {self.simulator_seconds:.3f} s of them in the simulator, "
            f"{self.outside:.1%} outside it{rate}" + (f"\n{timing}" if timing else "")
        )


class Metered:
    """A device that keeps account of the time inside it; everything else goes to the engine itself."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self.seconds = 0.0
        self.tasks = self.kicks = 0
        self._control = registers()["PC"]["TASK_CON"]
        self._enable = registers()["PC"]["OPERATION_ENABLE"].offset
        self._numbers = [0] * engine.cores

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def read32(self, core: int, offset: int) -> int:
        """As the engine's."""
        begun = time.perf_counter()
        try:
            return self._engine.read32(core, offset)
        finally:
            self.seconds += time.perf_counter() - begun

    def write32(self, core: int, offset: int, value: int) -> None:
        """As the engine's."""
        if offset == self._control.offset:
            self._numbers[core] = self._control.decode(value)["TASK_NUMBER"]
        elif offset == self._enable and value & 1:
            self.kicks += 1
            self.tasks += self._numbers[core]
        begun = time.perf_counter()
        try:
            self._engine.write32(core, offset, value)
        finally:
            self.seconds += time.perf_counter() - begun

    def run_until_irq(self, core_mask: int, max_cycles: int) -> int:
        """As the engine's."""
        begun = time.perf_counter()
        try:
            return self._engine.run_until_irq(core_mask, max_cycles)
        finally:
            self.seconds += time.perf_counter() - begun

    def reset(self, core_mask: int) -> None:
        """As the engine's."""
        begun = time.perf_counter()
        try:
            self._engine.reset(core_mask)
        finally:
            self.seconds += time.perf_counter() - begun


class SimulatedMachine:
    """An engine with the kernel's model.

    Parameters
    ----------
    engine : "verilator", "cxxrtl", "amaranth", "golden" or None for the fastest RTL there is.
    cores : 1..3.
    exact : simulate the array cell's RTL too.
    dram : timing of the memory, None for the RK3588's.
    drivers : which of "rknpu" and "rocket" have their nodes.
    log : stream for the kernel's log, or None; `verbose` adds every failed ioctl to it.
    trace : waveform to write (a path: of everything), or None.
    capture : called with every kick as it ends (`cosim.devices.recorder.Captured`), a stream to run again.
    progress : called with one line for each thing that takes long.

    Raises
    ------
    ValueError, cosim.engines.EngineError
    """

    def __init__(
        self,
        engine: str | None = None,
        *,
        cores: int = 3,
        exact: bool = False,
        dram: DramConfig | None = None,
        drivers: Iterable[str] = ("rknpu", "rocket"),
        log: TextIO | None = None,
        verbose: bool = False,
        trace: TraceSpec | Path | None = None,
        capture: Callable[[Captured], None] | None = None,
        progress: Progress = say,
    ) -> None:
        if engine is not None and engine not in (*ENGINES, GOLDEN):
            raise ValueError(f"engine must be one of {', '.join((*ENGINES, GOLDEN))}, not {engine!r}")
        self._engine = _open(engine, cores, exact, dram, trace, progress)
        self.device = Metered(self._engine)
        recorder = None if capture is None else _recorder(self.device, capture)
        try:
            log_ = Log(log, "debug" if verbose else "info")
            self.kernel = Kernel(recorder or self.device, drivers=drivers, log=log_)
            if recorder is not None:
                recorder.scheduler = self.kernel.scheduler
        except BaseException:
            self._close_engine()
            raise
        self._begun, self._first_cycle = time.perf_counter(), self._engine.cycle
        self._first_job = 0

    def start_clock(self) -> None:
        """Count from now on."""
        self._begun, self._first_cycle = time.perf_counter(), self._engine.cycle
        self._first_job = self.kernel.scheduler.submitted
        self.device.seconds, self.device.tasks = 0.0, 0

    def report(self) -> Report:
        """What has happened so far."""
        return Report(
            self._engine.name,
            self.kernel.scheduler.submitted - self._first_job,
            self.device.tasks,
            self._engine.cycle - self._first_cycle,
            time.perf_counter() - self._begun,
            self.device.seconds,
            changed(getattr(self._engine, "dram", None)),
        )

    def close(self) -> None:
        """Stop kernel and engine."""
        self.kernel.close()
        self._close_engine()

    def _close_engine(self) -> None:
        close = getattr(self._engine, "close", None)
        if close is not None:
            close()

    def __enter__(self) -> SimulatedMachine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _recorder(device: Metered, sink: Callable[[Captured], None]) -> Recorder:
    from cosim.devices.recorder import Recorder

    return Recorder(device, sink)


def _open(
    engine: str | None,
    cores: int,
    exact: bool,
    dram: DramConfig | None,
    trace: TraceSpec | Path | None,
    progress: Progress,
) -> Any:
    if engine == GOLDEN:
        from cosim.golden.task import GoldenNpu

        if trace is not None:
            raise ValueError("the engine golden has no cycles, so it writes no waveform")
        return GoldenNpu(cores, strict=False)
    traced = trace is not None and engine != "amaranth"
    device = open_engine(
        engine, exact=exact, cores=cores, dram=dram, on_diagnostic="go on", traced=traced, progress=progress
    )
    if trace is not None:
        spec = TraceSpec.of(trace)
        spec.path.parent.mkdir(parents=True, exist_ok=True)
        device.trace(spec)
    return device
