"""Builds and opens an engine that simulates the RTL: Verilator, CXXRTL or Amaranth's simulator."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rkcosim.engines import build, toolchain, verilog
from rkcosim.engines.build import Variant
from rkcosim.engines.cache import Progress
from rkcosim.engines.library import DramConfig
from rkcosim.engines.protocol import require
from rkcosim.engines.snapshots import plan as snapshot_plan
from rkcosim.engines.snapshots.contents import read_snapshot
from rkcosim.engines.soc import SocEngine
from rkcosim.engines.system import Source

ASSERTIONS = "RKCOSIM_ASSERTIONS"
"""Variable of the environment that has engines check the assertions of the RTL if it is 1."""

CHECKED = ("verilator", "amaranth")
"""Engines that can do so."""


def open_rtl_engine(
    name: str | None,
    *,
    exact: bool,
    cores: int,
    config: Any,
    dram: DramConfig | None,
    design: Any,
    on_diagnostic: str,
    traced: bool,
    probed: bool,
    watched: bool,
    assertions: bool | None,
    threads: int | None,
    snapshot: str | Path | None,
    options: Iterable[str] | None,
    progress: Progress,
) -> SocEngine:
    """Open an engine of `rkcosim.engines.ENGINES`, or resume a snapshot.

    Parameters and errors are those of `rkcosim.engines.engine.open_engine`, which is the function for users.
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
            return Variant(name, cell, traced, probed, watched, assertions)

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
