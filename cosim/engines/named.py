"""The function that opens any engine by its name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rkcosim.engines.protocol import CHANGES, FAST, GOLDEN, require, require_rtl_cell

if TYPE_CHECKING:
    from rkcosim.engines.cache import Progress
    from rkcosim.engines.library import DramConfig
    from rkcosim.waves.spec import TraceSpec


def open_named(
    name: str | None,
    *,
    cores: int = 3,
    exact: bool = False,
    dram: DramConfig | None = None,
    on_diagnostic: str = "stop",
    trace: TraceSpec | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Any:
    """Open any engine: `SocEngine`, `rkcosim.engines.fast.FastEngine` or `rkcosim.golden.task.GoldenNpu`.

    Only this engine is imported.

    Parameters
    ----------
    name : one of `ENGINES`, "changes", "fast", "golden", or None for the default of `open_engine`.
    trace : a waveform to write from the start.
    cores, exact, dram, on_diagnostic, threads, progress : as for `open_engine`; "changes", "fast" and the
        golden model have only one form, and the last two only one thread.

    Raises
    ------
    BuildError, WaveformError
        as `open_engine` and `SocEngine.trace`.
    ValueError
        also for a memory timing or a waveform if the engine does not count cycles.
    """
    told: dict[str, Any] = {} if progress is None else {"progress": progress}
    if name in (CHANGES, FAST):
        from rkcosim.engines.changes import open_changes
        from rkcosim.engines.fast import open_fast

        if trace is not None:
            require(name, "can_trace", "a waveform")
        if exact:
            require_rtl_cell(name)
        if name == FAST:
            return open_fast(cores=cores, dram=dram, on_diagnostic=on_diagnostic, **told)
        return open_changes(cores=cores, dram=dram, on_diagnostic=on_diagnostic, threads=threads, **told)
    if name == GOLDEN:
        from rkcosim.golden.task import GoldenNpu

        if dram is not None:
            require(name, "has_cycles", "a memory timing")
        if trace is not None:
            require(name, "can_trace", "a waveform")
        return GoldenNpu(cores, strict=on_diagnostic == "stop")
    from rkcosim.engines.engine import open_engine

    engine = open_engine(
        name,
        exact=exact,
        cores=cores,
        dram=dram,
        on_diagnostic=on_diagnostic,
        traced=trace is not None,
        threads=threads,
        **told,
    )
    if trace is not None:
        try:
            engine.trace(trace)
        except BaseException:
            engine.close()
            raise
    return engine
