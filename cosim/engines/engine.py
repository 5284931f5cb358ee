"""The function that opens every engine."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict, Unpack, overload

from rkcosim.engines.protocol import ALL_ENGINES, CHANGES, ENGINES, FAST, GOLDEN, require, require_rtl_cell
from rkcosim.engines.protocol import Engine as Engine  # re-exported next to the function that opens one

if TYPE_CHECKING:
    from rkcosim.engines.cache import Progress
    from rkcosim.engines.fast import FastEngine
    from rkcosim.engines.golden import GoldenEngine
    from rkcosim.engines.library import DramConfig
    from rkcosim.engines.soc import SocEngine
    from rkcosim.waves.spec import TraceSpec

AnyEngine: TypeAlias = "SocEngine | GoldenEngine"
"""What `open_engine` returns for a name that is known only at run time."""


class EngineOptions(TypedDict, total=False):
    """The keywords of `open_engine`, which describes them."""

    cores: int
    exact: bool
    dram: DramConfig | None
    on_diagnostic: str
    trace: TraceSpec | str | Path | None
    threads: int | None
    options: Iterable[str] | None
    snapshot: str | Path | None
    traced: bool
    probed: bool
    watched: bool
    assertions: bool | None
    config: Any
    design: Any
    progress: Progress | None


@overload
def open_engine(name: Literal["golden"], **settings: Unpack[EngineOptions]) -> GoldenEngine: ...


@overload
def open_engine(name: Literal["fast"], **settings: Unpack[EngineOptions]) -> FastEngine: ...


@overload
def open_engine(
    name: Literal["verilator", "cxxrtl", "amaranth", "changes"] | None = None,
    **settings: Unpack[EngineOptions],
) -> SocEngine: ...


@overload
def open_engine(name: str | None, **settings: Unpack[EngineOptions]) -> AnyEngine: ...


def open_engine(
    name: str | None = None,
    *,
    cores: int = 3,
    exact: bool = False,
    dram: DramConfig | None = None,
    on_diagnostic: str = "stop",
    trace: TraceSpec | str | Path | None = None,
    threads: int | None = None,
    options: Iterable[str] | None = None,
    snapshot: str | Path | None = None,
    traced: bool = False,
    probed: bool = False,
    watched: bool = False,
    assertions: bool | None = None,
    config: Any = None,
    design: Any = None,
    progress: Progress | None = None,
) -> AnyEngine:
    """Open an engine; what it needs is built first if it is not in the cache.

    An engine is a context manager: `with open_engine() as engine:` closes it at the end of the block. Only
    the modules of the engine that is opened are imported.

    Parameters
    ----------
    name : "verilator", "cxxrtl", "amaranth", "changes", "fast" or "golden" (docs/engines.md); None:
        Verilator, or CXXRTL if Verilator is not installed.
    cores : number of cores, 1..3.
    exact : simulate the cells (array, DPU) as RTL instead of their C++ equivalents (same cycles, slower).
    dram : memory timing, default `DramConfig()`; not for "golden", which counts no cycles.
    on_diagnostic : "stop" raises an exception at the first diagnostic of the device, "go on" collects
        diagnostics and continues as silicon does.
    trace : a waveform to write from the start: its file, or a `rkcosim.waves.spec.TraceSpec`; a folder that
        is missing is made.
    threads : threads that simulate busy cores in parallel, 1..3; None: one per processor, as long as that is
        faster than one thread. Cycles, bytes and logs do not depend on it. "fast" and "golden" use one.
    options : names of interpretations of the hardware (spec/regs/options.py), for the RTL and for the golden
        models that check it; None: those of the environment variable RKCOSIM_OPTIONS.
    snapshot : file of `SocEngine.save` to resume; engine, cell, build, cores, options and memory timing are
        then those of the file (docs/snapshots.md).
    traced : load the build that can write waveforms from the start (see `SocEngine.trace`).
    probed : record the values that a lockstep run compares (see `SocEngine.probes`); "verilator" only.
    watched : report registers that change while their clock would be gated, on the output
        (`rkcosim.engines.build.Variant`); "verilator" with the C++ cell only.
    assertions : check the assertions of the RTL (rtl/assertions.py) in each cycle, which takes longer; a
        failed one raises `AssertionFailed`. "verilator" and "amaranth" only; None: where possible, if the
        environment variable RKCOSIM_ASSERTIONS is 1.
    config : `rkcosim.spec.config.NpuConfig`, default `RK3588`; for engines that build the RTL.
    design : another core with the same ports: a component, or a function that makes one; for engines that
        build the RTL.
    progress : called with one line for each step that takes long; None: `rkcosim.base.progress.say`.

    Returns
    -------
    SocEngine, FastEngine or GoldenEngine
        a `SocEngine` for all engines but "fast" (`rkcosim.engines.fast.FastEngine`, one as well) and "golden"
        (`rkcosim.engines.golden.GoldenEngine`).

    Raises
    ------
    SnapshotError
        for a snapshot that cannot be used; the message gives the reason.
    BuildError
        if a tool is missing (the message names it) or fails, or the cache cannot be written.
    WaveformError
        for a waveform that the engine cannot write.
    ValueError
        for a name or number other than those above, and for what the engine does not have; the message names
        the engines that have it.
    """
    if name is not None and name not in ALL_ENGINES:
        raise ValueError(f"engine must be one of {', '.join(ALL_ENGINES)}, not {name!r}")
    if on_diagnostic not in ("stop", "go on"):
        raise ValueError(f"on_diagnostic must be 'stop' or 'go on', not {on_diagnostic!r}")
    if exact:
        require_rtl_cell(name)
    if dram is not None:
        from rkcosim.engines.library import DramConfig as Timing

        require(name, "has_cycles", "a memory timing")
        if not isinstance(dram, Timing):
            raise ValueError(f"dram must be a rkcosim.engines.DramConfig, not {dram!r}")
    if trace is not None or traced:
        require(name, "can_trace", "a waveform")
    if probed:
        require(name, "has_probes", "a lockstep run")
    if snapshot is not None:
        require(name, "has_snapshots", "a snapshot")
    if name is not None and name not in ENGINES:
        given = {
            "watched": watched,
            "assertions": bool(assertions),
            "config": config is not None,
            "design": design is not None,
        }
        if asked := [keyword for keyword, value in given.items() if value]:
            raise ValueError(
                f"the engine {name} does not build the RTL; {asked[0]} needs one of: {', '.join(ENGINES)}"
            )
    engine: AnyEngine
    if name == GOLDEN:
        from rkcosim.engines.golden import GoldenEngine

        return GoldenEngine(cores, strict=on_diagnostic == "stop", options=options)
    from rkcosim.engines import cache, event_files
    from rkcosim.waves.spec import TraceSpec

    told = cache.say if progress is None else progress

    if name == FAST:
        from rkcosim.engines.fast import open_fast

        engine = open_fast(
            cores=cores, dram=dram, on_diagnostic=on_diagnostic, options=options, progress=told
        )
    elif name == CHANGES:
        from rkcosim.engines.changes import open_changes

        engine = open_changes(
            cores=cores,
            dram=dram,
            on_diagnostic=on_diagnostic,
            threads=threads,
            options=options,
            progress=told,
        )
    else:
        from rkcosim.engines.rtl_engine import open_rtl_engine

        engine = open_rtl_engine(
            name,
            exact=exact,
            cores=cores,
            config=config,
            dram=dram,
            design=design,
            on_diagnostic=on_diagnostic,
            traced=traced or trace is not None,
            probed=probed,
            watched=watched,
            assertions=assertions,
            threads=threads,
            snapshot=snapshot,
            options=options,
            progress=told,
        )
    try:
        engine.recording.into(event_files.take())
        if trace is not None:
            spec = TraceSpec.of(trace)
            spec.path.parent.mkdir(parents=True, exist_ok=True)
            engine.trace(spec)
    except BaseException:
        engine.close()
        raise
    return engine
