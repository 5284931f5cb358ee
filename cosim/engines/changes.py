"""The engine "changes": the RTL as C++ that evaluates only what has changed (`rkcosim.engines.timing`)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rkcosim.engines import build, cache, verilog
from rkcosim.engines.build import Variant
from rkcosim.engines.cache import Progress
from rkcosim.engines.library import DramConfig
from rkcosim.engines.protocol import CHANGES
from rkcosim.engines.soc import SocEngine
from rkcosim.engines.system import Source
from rkcosim.spec.config import RK3588


def open_changes(
    *,
    cores: int = 3,
    dram: DramConfig | None = None,
    on_diagnostic: str = "stop",
    threads: int | None = None,
    options: Iterable[str] | None = None,
    progress: Progress = cache.say,
) -> SocEngine:
    """Open the engine "changes"; its model is built first if it is not in the cache.

    Its bytes and cycles are those of the default engine. It writes no waveforms and cannot be saved.

    Parameters
    ----------
    cores, dram, on_diagnostic, threads, options, progress : as for `rkcosim.engines.engine.open_engine`.

    Raises
    ------
    BuildError
        if the compiler is missing or fails.
    """
    source = timing_source("cpp", progress)
    return SocEngine(
        CHANGES,
        "cpp",
        source,
        cores=cores,
        dram=dram,
        on_diagnostic=on_diagnostic,
        threads=threads,
        options=options,
    )


def timing_source(cell: str, progress: Progress) -> Source:
    """Return the library of an engine that follows changes.

    Parameters
    ----------
    cell : "cpp" for the whole core, "timing" for what determines its cycles.
    progress : called with one line for each step that takes long.
    """
    design, variant = verilog.npu_design(RK3588), Variant("timing", cell)

    def library(traced: bool) -> Path:
        return build.build(design, variant, progress)

    return Source(library, identity=lambda traced: {"variant": str(variant), "geometry": RK3588.name})
