"""The engine protocol, and the function that opens an engine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

from cosim.engines import build, cache, event_files, toolchain, verilog
from cosim.engines.build import Variant
from cosim.engines.cache import Progress
from cosim.engines.diagnostics import Diagnostic, Fault
from cosim.engines.library import DramConfig
from cosim.engines.memory import DeviceMemory
from cosim.engines.snapshots import plan as snapshot_plan
from cosim.engines.snapshots.file import SnapshotFile
from cosim.engines.snapshots.orders import SnapshotInfo
from cosim.engines.soc import CoreCounters, SocEngine, Source, TaskRecord
from cosim.engines.traces.writing import TraceResult
from waves.events import EventLog
from waves.spec import TraceSpec

ENGINES = ("verilator", "cxxrtl", "amaranth")


class Engine(Protocol):
    """A simulated device; the driver's device protocol is the first half.

    Members
    -------
    name, cell : "verilator", "cxxrtl" or "amaranth"; "cpp" or "rtl".
    cores : number of cores.
    options : readings of the hardware that differ from the default (rtl/regs/options.py).
    memory : device memory, shared by host and cores.
    cycle : cycles since the engine was opened.
    irq : interrupt lines, a bit for each core.
    on_diagnostic : "stop" (raise `DiagnosticError`) or "go on" (only record).
    """

    name: str
    cell: str
    cores: int
    options: frozenset[str]
    memory: DeviceMemory
    on_diagnostic: str

    @property
    def cycle(self) -> int: ...
    @property
    def irq(self) -> int: ...
    def read32(self, core: int, offset: int) -> int: ...
    def write32(self, core: int, offset: int, value: int) -> None: ...
    def run(self, cycles: int) -> None: ...
    def run_until_irq(self, core_mask: int, max_cycles: int) -> int: ...
    def reset(self, core_mask: int) -> None: ...
    def block_state(self, core: int) -> str: ...
    def counters(self, core: int) -> CoreCounters: ...
    def task_log(self) -> list[TaskRecord]: ...
    def diagnostics(self) -> list[Diagnostic]: ...
    def faults(self) -> list[Fault]: ...
    def record(
        self, kinds: Iterable[str] | None = None, *, first: int = 0, last: int | None = None
    ) -> None: ...
    def events(self) -> EventLog: ...
    def trace(self, what: TraceSpec | str | Path, start: int = 0, stop: int | None = None) -> None: ...
    def trace_bytes(self) -> int | None: ...
    def trace_result(self) -> TraceResult | None: ...
    def save(self, path: str | Path) -> SnapshotInfo: ...
    def restore(self, path: str | Path) -> None: ...
    def annotate(self, core: int, layers: Sequence[tuple[int, int, str]]) -> None: ...
    def mark_error(self) -> None: ...
    def close(self) -> None: ...


def open_engine(
    name: str | None = None,
    *,
    exact: bool = False,
    cores: int = 3,
    config: Any = None,
    dram: DramConfig | None = None,
    design: Any = None,
    on_diagnostic: str = "stop",
    traced: bool = False,
    probed: bool = False,
    watched: bool = False,
    threads: int | None = None,
    snapshot: str | Path | None = None,
    options: Iterable[str] | None = None,
    progress: Progress = cache.say,
) -> SocEngine:
    """Open an engine, building its model first if it is not in the cache.

    Parameters
    ----------
    name : "verilator", "cxxrtl" or "amaranth"; None: Verilator, or CXXRTL where there is none.
    exact : simulate the array cell's RTL instead of its C++ twin (same cycles, slower).
    cores : number of cores, 1..3.
    config : `rtl.config.NpuConfig`, default `RK3588`.
    dram : memory timing, default `DramConfig()`.
    design : another core with the same ports: a component, or a function that makes one.
    on_diagnostic : "stop" or "go on".
    traced : load the build that can write waveforms at once (see `SocEngine.trace`).
    probed : record what a lockstep run watches (see `SocEngine.probes`); Verilator only.
    watched : name registers that change while their clock is said not to matter, on the output
        (see `Variant`); the default engine only.
    threads : threads that simulate cores at work together, 1..3; None: one a processor, while that is
        faster than one alone.  Cycles, bytes and logs do not depend on it.
    snapshot : file of `SocEngine.save` to go on from; engine, cell, build, cores, options and memory timing
        are then those of the file (docs/snapshots.md).
    options : names of readings of the hardware (rtl/regs/options.py), for the RTL and for the golden models
        that check it; None: those of the environment variable RKCOSIM_OPTIONS.
    progress : called with one line for each thing that takes long.

    Raises
    ------
    SnapshotError
        for a snapshot that cannot be used; says why.
    BuildError
        when a tool is missing (the text names it) or fails, or the cache cannot be written.
    ValueError
        for a name or number that is not among those above.
    """
    plan, saved = snapshot_plan.take_plan(), None
    traced = traced or plan.traced
    if snapshot is not None:
        saved = SnapshotFile.read(Path(snapshot))
        name, cores, exact = saved.header["engine"], saved.header["cores"], saved.header["cell"] == "rtl"
        dram = DramConfig(**saved.header["dram"])
        options = saved.header.get("options", ())
        variants = ("traced", "probed", "watched")
        traced, probed, watched = (word in saved.header["variant"] for word in variants)
    if name is None:
        name = "verilator"
        if toolchain.verilator() is None:
            progress(
                f"no Verilator found, using the engine cxxrtl (for more speed: {toolchain.VERILATOR_FIX})"
            )
            name = "cxxrtl"
    if name not in ENGINES:
        raise ValueError(f"engine must be one of {', '.join(ENGINES)}, not {name!r}")
    if on_diagnostic not in ("stop", "go on"):
        raise ValueError(f"on_diagnostic must be 'stop' or 'go on', not {on_diagnostic!r}")
    if probed and name != "verilator":
        raise ValueError(f"only the engine verilator can be probed, not {name}")
    if watched and (name != "verilator" or exact):
        raise ValueError("only the engine verilator with the C++ cell can be watched")
    if design is None:
        if config is None:
            from rtl.config import RK3588

            config = RK3588
        design = verilog.npu_design(config)
    described = verilog.as_design(design)
    if name == "amaranth":
        source, cell = _amaranth_source(described, cores, progress), "rtl"
    else:
        cell = "cpp" if described.has_cell and not exact else "rtl"

        def variant(traced: bool) -> Variant:
            return Variant(name, cell, traced, probed, watched)

        def library(traced: bool) -> Path:
            return build.build(described, variant(traced), progress)

        def identity(traced: bool) -> dict[str, str]:
            geometry = getattr(config, "name", "of another design")
            return {
                "variant": str(variant(traced)),
                "geometry": geometry,
                "build": build.state_of(library(traced)),
            }

        source = Source(library, identity=identity)
    engine = SocEngine(
        name,
        cell,
        source,
        cores=cores,
        dram=dram,
        on_diagnostic=on_diagnostic,
        traced=traced,
        threads=threads,
        options=options,
    )
    if saved is not None:
        engine.restore(saved)
    else:
        plan.carry_out(engine)
    engine.recording.into(event_files.take())
    return engine


def _amaranth_source(design: verilog.Design, cores: int, progress: Progress) -> Source:
    from cosim.engines.amaranth_cores import AmaranthCores  # imports Amaranth's simulator

    running = AmaranthCores(design, cores)
    return Source(
        lambda traced: build.build(None, Variant("external"), progress),
        running.step,
        lambda: running.failure,
        running.trace,
        running.close,
    )
