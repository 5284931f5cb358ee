"""The function that builds and opens an engine of the RTL."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rkcosim.engines import build, cache, event_files, toolchain, verilog
from rkcosim.engines.build import Variant
from rkcosim.engines.cache import Progress
from rkcosim.engines.library import DramConfig
from rkcosim.engines.protocol import CHANGES, ENGINES, FAST, GOLDEN, require
from rkcosim.engines.protocol import Engine as Engine  # re-exported next to the functions that open one
from rkcosim.engines.snapshots import plan as snapshot_plan
from rkcosim.engines.snapshots.contents import read_snapshot
from rkcosim.engines.soc import SocEngine
from rkcosim.engines.system import Source

ASSERTIONS = "RKCOSIM_ASSERTIONS"
"""Variable of the environment that has engines check the assertions of the RTL if it is 1."""

CHECKED = ("verilator", "amaranth")
"""Engines that can do so."""


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
    assertions: bool | None = None,
    threads: int | None = None,
    snapshot: str | Path | None = None,
    options: Iterable[str] | None = None,
    progress: Progress = cache.say,
) -> SocEngine:
    """Open an engine; its model is built first if it is not in the cache.

    Parameters
    ----------
    name : "verilator", "cxxrtl" or "amaranth"; None: Verilator, or CXXRTL if Verilator is not installed.
    exact : simulate the array cell as RTL instead of its C++ equivalent (same cycles, slower).
    cores : number of cores, 1..3.
    config : `rkcosim.spec.config.NpuConfig`, default `RK3588`.
    dram : memory timing, default `DramConfig()`.
    design : another core with the same ports: a component, or a function that makes one.
    on_diagnostic : "stop" or "go on".
    traced : load the build that can write waveforms from the start (see `SocEngine.trace`).
    probed : record the values that a lockstep run compares (see `SocEngine.probes`); Verilator only.
    watched : report registers that change while their clock would be gated, on the output (see `Variant`);
        the default engine only.
    assertions : check the assertions of the RTL (rtl/assertions.py) in each cycle, which takes longer; a
        failed one raises `AssertionFailed`. Verilator and "amaranth" only; None: if the environment variable
        RKCOSIM_ASSERTIONS is 1.
    threads : threads that simulate busy cores in parallel, 1..3; None: one per processor, as long as that is
        faster than one thread. Cycles, bytes and logs do not depend on it.
    snapshot : file of `SocEngine.save` to resume; engine, cell, build, cores, options and memory timing are
        then those of the file (docs/snapshots.md).
    options : names of interpretations of the hardware (spec/regs/options.py), for the RTL and for the golden
        models that check it; None: those of the environment variable RKCOSIM_OPTIONS.
    progress : called with one line for each step that takes long.

    Raises
    ------
    SnapshotError
        for a snapshot that cannot be used; the message gives the reason.
    BuildError
        if a tool is missing (the message names it) or fails, or the cache cannot be written.
    ValueError
        for a name or number other than those above.
    """
    plan, saved = snapshot_plan.take_plan(), None
    traced = traced or plan.traced
    if snapshot is not None:
        saved = read_snapshot(Path(snapshot))
        name, cores, exact = saved.header["engine"], saved.header["cores"], saved.header["cell"] == "rtl"
        dram = DramConfig(**saved.header["dram"])
        options = saved.header.get("options", ())
        traced, probed, watched, assertions = (word in saved.header["variant"] for word in build.VARIANTS)
    if name is None:
        name = "verilator"
        if toolchain.verilator() is None:
            progress(
                "no Verilator was found, the slower engine cxxrtl is used (for more speed: "
                f"{toolchain.VERILATOR_FIX})"
            )
            name = "cxxrtl"
    if name not in ENGINES:
        golden = " (open_named opens it)" if name in (CHANGES, FAST, GOLDEN) else ""
        raise ValueError(f"engine must be one of {', '.join(ENGINES)}, not {name!r}{golden}")
    if on_diagnostic not in ("stop", "go on"):
        raise ValueError(f"on_diagnostic must be 'stop' or 'go on', not {on_diagnostic!r}")
    if probed:
        require(name, "has_probes", "a lockstep run")
    if assertions is None:
        assertions = name in CHECKED and os.environ.get(ASSERTIONS) == "1"
    if assertions and name not in CHECKED:
        raise ValueError(f"assertions=True needs one of the engines {' and '.join(CHECKED)}, not {name}")
    if watched and assertions:
        raise ValueError("watched=True and assertions=True exclude each other")
    if watched and (name != "verilator" or exact):
        raise ValueError("watched=True needs the engine verilator with the C++ cell")
    if design is None:
        if config is None:
            from rkcosim.spec.config import RK3588

            config = RK3588
        design = verilog.npu_design(config)
    described = verilog.as_design(design)
    if name == "amaranth":
        source, cell = _amaranth_source(described, cores, progress, assertions), "rtl"
    else:
        cell = "cpp" if described.has_cell and not exact else "rtl"

        def variant(traced: bool) -> Variant:
            return Variant(name, cell, traced, probed, watched, bool(assertions))

        def library(traced: bool) -> Path:
            return build.build(described, variant(traced), progress)

        def identity(traced: bool) -> dict[str, str]:
            geometry = getattr(config, "name", "of another design")
            return {
                "variant": str(variant(traced)),
                "geometry": geometry,
                "build": build.state_of(library(traced)),
            }

        source = Source(library, raw_names=name == "cxxrtl", identity=identity)
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
        plan.carry_out(engine.snapshots)
    engine.recording.into(event_files.take())
    return engine


def _amaranth_source(design: verilog.Design, cores: int, progress: Progress, assertions: bool) -> Source:
    from rkcosim.engines.amaranth_cores import AmaranthCores  # imports Amaranth's simulator

    running = AmaranthCores(design, cores, assertions)
    return Source(
        lambda traced: build.build(None, Variant("external"), progress),
        running.step,
        lambda: running.failure,
        running.trace,
        running.close,
    )
