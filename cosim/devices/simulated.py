"""A simulated machine: an engine, the kernel model on it, and an account of their work."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypedDict

from rkcosim.base.failures import Failures
from rkcosim.devices.faults import FaultyDevice
from rkcosim.driver.kernel import Kernel, KernelError, Log
from rkcosim.driver.kernel.rknpu_jobs import CLEARS
from rkcosim.driver.kernel.rocket_interface import DEFAULT
from rkcosim.driver.kernel.trouble import Kind
from rkcosim.engines.cache import Progress, say
from rkcosim.engines.engine import open_engine
from rkcosim.engines.library import DramConfig
from rkcosim.engines.protocol import capabilities
from rkcosim.engines.settings import Number, changed, timing_line
from rkcosim.spec.regs import registers
from rkcosim.waves.spec import TraceSpec

if TYPE_CHECKING:
    from rkcosim.devices.recorder import Captured, Recorder

DRIVERS = {"rknpu": ("rknpu",), "rocket": ("rocket",), "both": ("rknpu", "rocket")}
"""Kernel drivers by the name used in options."""

SCHEMA_VERSION = 1
"""Version of the JSON form of `Report`."""


class MachineOptions(TypedDict, total=False):
    """The keywords of `SimulatedMachine`, which describes them."""

    cores: int
    exact: bool
    dram: DramConfig | None
    drivers: Iterable[str]
    rocket_interface: str
    soft_reset: str
    board: str | None
    sram: int
    faults: Iterable[str]
    fault_each: int
    log: TextIO | None
    verbose: bool
    trace: TraceSpec | Path | None
    capture: Callable[[Captured], None] | None
    progress: Progress


@dataclass
class Report:
    """The work of the device for programs.

    Members
    -------
    engine : its name.
    jobs, tasks : numbers of those that were started.
    cycles : cycles that passed (without meaning for the engine golden, which has no time; null in the JSON).
    seconds : elapsed time since the count began.
    simulator_seconds : part of it inside the engine.
    dram_changed : settings of the memory's timing that differ from the default, by name.
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
        """Return every member, ready for `json.dump`."""
        data: dict[str, object] = {"schema_version": SCHEMA_VERSION, **asdict(self), "outside": self.outside}
        return data if capabilities(self.engine).has_cycles else {**data, "cycles": None}

    def text(self) -> str:
        """Describe the report in a few lines."""
        timing = timing_line(self.dram_changed)
        cycles = self.cycles if capabilities(self.engine).has_cycles else "-"
        rate = f", {self.jobs / self.seconds:.0f} jobs/s" if self.seconds and self.jobs else ""
        return (
            f"{self.jobs} jobs, {self.tasks} tasks, {cycles} cycles on {self.engine}\n"
            f"{self.seconds:.3f} s, {self.simulator_seconds:.3f} s of them in the simulator, "
            f"{self.outside:.1%} outside it{rate}" + (f"\n{timing}" if timing else "")
        )


class Metered:
    """A device that measures the time inside it; everything else is passed on to the engine."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self.seconds = 0.0
        self.tasks = self.kicks = 0
        self._control = registers()["PC"]["TASK_CON"]
        self._enable = registers()["PC"]["OPERATION_ENABLE"].offset
        self._numbers = [0] * engine.cores
        self.begun, self.first_cycle = time.perf_counter(), engine.cycle

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def start_clock(self) -> None:
        """Count from now on."""
        self.begun, self.first_cycle = time.perf_counter(), self._engine.cycle
        self.seconds, self.tasks, self.kicks = 0.0, 0, 0

    def _timed(self, call: Callable[..., Any], *args: int) -> Any:
        begun = time.perf_counter()
        try:
            return call(*args)
        finally:
            self.seconds += time.perf_counter() - begun

    def read32(self, core: int, offset: int) -> int:
        """See the engine's method."""
        return self._timed(self._engine.read32, core, offset)

    def write32(self, core: int, offset: int, value: int) -> None:
        """See the engine's method."""
        if offset == self._control.offset:
            self._numbers[core] = self._control.decode(value)["TASK_NUMBER"]
        elif offset == self._enable and value & 1:
            self.kicks += 1
            self.tasks += self._numbers[core]
        self._timed(self._engine.write32, core, offset, value)

    def run_until_irq(self, core_mask: int, max_cycles: int) -> int:
        """See the engine's method."""
        return self._timed(self._engine.run_until_irq, core_mask, max_cycles)

    def reset(self, core_mask: int) -> None:
        """See the engine's method."""
        self._timed(self._engine.reset, core_mask)


def account_of(device: Metered) -> Report:
    """What a device did since `Metered.start_clock`; each start of a core counts as a job."""
    return Report(
        device.name,
        device.kicks,
        device.tasks,
        device.cycle - device.first_cycle,
        time.perf_counter() - device.begun,
        device.seconds,
        changed(device.dram),
    )


class SimulatedMachine:
    """An engine with the kernel model.

    Parameters
    ----------
    engine : "verilator", "cxxrtl", "amaranth", "changes", "fast", "golden" or None for Verilator, and CXXRTL
        without it.
    cores : 1..3.
    exact : simulate the array cell as RTL.
    dram : timing of the memory, None for the RK3588's.
    drivers : which of "rknpu" and "rocket" have device nodes.
    rocket_interface : version of the Rocket uapi (`rkcosim.driver.kernel.rocket_interface.INTERFACES`).
    board : name of the board in the device tree (`rkcosim.driver.kernel.boards.BOARDS`), None for the default
        one.
    sram : bytes of on-chip memory that the vendor's driver has (`rkcosim.driver.kernel.Kernel`).
    faults, fault_each : faults that are injected (`rkcosim.devices.faults.FaultyDevice`).
    log : stream for the kernel's log, or None; `verbose` adds every failed ioctl to it.
    trace : waveform to write (a path: of everything), or None.
    capture : called with every kick when it ends (`rkcosim.devices.recorder.Captured`), as a stream that can
        be run again.
    begun : called with every kick before it starts, in the thread of the kernel, which may wait there.
    progress : called with one line for each step that takes long.

    Members
    -------
    failures : unforeseen errors behind the calls of programs.

    Raises
    ------
    ValueError, rkcosim.engines.EngineError
        for invalid options, and if the engine cannot be opened.
    """

    def __init__(
        self,
        engine: str | None = None,
        *,
        cores: int = 3,
        exact: bool = False,
        dram: DramConfig | None = None,
        drivers: Iterable[str] = DRIVERS["both"],
        rocket_interface: str = DEFAULT,
        soft_reset: str = CLEARS,
        board: str | None = None,
        sram: int = 0,
        faults: Iterable[str] = (),
        fault_each: int = 2,
        log: TextIO | None = None,
        verbose: bool = False,
        trace: TraceSpec | Path | None = None,
        capture: Callable[[Captured], None] | None = None,
        begun: Callable[[Captured], None] | None = None,
        progress: Progress = say,
    ) -> None:
        self._engine = open_engine(
            engine,
            cores=cores,
            exact=exact,
            dram=dram,
            on_diagnostic="go on",
            trace=trace,
            progress=progress,
        )
        self.device = Metered(self._engine)
        recorder = _recorder(self.device, capture, begun)
        faults = tuple(faults)
        try:
            log_ = Log(log, "debug" if verbose else "info")
            self.failures = log_.failures = Failures()
            device = recorder or self.device
            self.kernel = Kernel(
                FaultyDevice(device, faults, each=fault_each) if faults else device,
                drivers=drivers,
                log=log_,
                rocket_interface=rocket_interface,
                soft_reset=soft_reset,
                board=board,
                sram=sram,
            )
            if recorder is not None:
                recorder.scheduler = self.kernel.scheduler
        except BaseException:
            self._engine.close()
            raise
        self._begun, self._first_cycle = time.perf_counter(), self._engine.cycle
        self._first_job = 0

    def start_clock(self) -> None:
        """Begin to count."""
        self._begun, self._first_cycle = time.perf_counter(), self._engine.cycle
        self._first_job = self.kernel.scheduler.submitted
        self.device.seconds, self.device.tasks = 0.0, 0

    def report(self) -> Report:
        """Return the account so far."""
        return Report(
            self._engine.name,
            self.kernel.scheduler.submitted - self._first_job,
            self.device.tasks,
            self._engine.cycle - self._first_cycle,
            time.perf_counter() - self._begun,
            self.device.seconds,
            changed(self._engine.dram),
        )

    def trouble(self) -> list[Kind]:
        """Return the device's errors so far: each kind of diagnostic and time-out once, with its count."""
        trouble, scheduler = self.kernel.scheduler.trouble, self.kernel.scheduler
        with contextlib.suppress(KernelError):  # it has stopped: its last state counts
            scheduler.call(trouble.look)
        return trouble.kinds()

    def close(self) -> None:
        """Stop kernel and engine."""
        self.kernel.close()
        self._engine.close()

    def __enter__(self) -> SimulatedMachine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _recorder(
    device: Metered,
    sink: Callable[[Captured], None] | None,
    begun: Callable[[Captured], None] | None,
) -> Recorder | None:
    if sink is None and begun is None:
        return None
    from rkcosim.devices.recorder import Recorder

    return Recorder(device, sink or (lambda captured: None), begun)
