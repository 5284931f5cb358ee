"""The engine "fast": cycles of the RTL's timing model, bytes of the task-level golden model.

The timing model is the part of the RTL that determines when something happens (rkcosim.engines.timing).
It does every register access, request and interrupt in the cycle in which the whole RTL does it, but computes
no bytes. These are computed by `rkcosim.golden.task`, to which every register write goes as well, in a thread
of its own while the timing model runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import Any

from rkcosim.engines import cache
from rkcosim.engines.cache import Progress
from rkcosim.engines.changes import timing_source
from rkcosim.engines.complaints import START
from rkcosim.engines.library import DramConfig
from rkcosim.engines.memory import PAGE
from rkcosim.engines.protocol import FAST, EngineError
from rkcosim.engines.soc import SocEngine
from rkcosim.engines.system import Source

CELL = "timing"


class FastEngine(SocEngine):
    """An engine whose bytes come from the task-level golden model; see `rkcosim.engines.protocol.Engine`.

    A job's bytes are in memory when `run` or `run_until_irq` returns, also those that the hardware would
    write later. Without data there are no waveforms, probes and snapshots.

    Parameters
    ----------
    source, cores, dram, on_diagnostic, options : as for `SocEngine`.

    Raises
    ------
    EngineError
        by `run` and `run_until_irq`, if the golden model cannot compute a job that the RTL executes.
    """

    def __init__(
        self,
        source: Source,
        *,
        cores: int = 3,
        dram: DramConfig | None = None,
        on_diagnostic: str = "stop",
        options: Iterable[str] | None = None,
    ) -> None:
        self._model: Any = None
        self._known = START
        self._waiting: list[Future[object]] = []
        self._thread = ThreadPoolExecutor(1, "rkcosim-bytes")
        super().__init__(
            FAST, CELL, source, cores=cores, dram=dram, on_diagnostic=on_diagnostic, options=options
        )
        from rkcosim.golden.task import GoldenNpu
        from rkcosim.golden.task.memory import Memory

        self._bytes = Memory()  # nothing is mapped yet
        self._model = GoldenNpu(cores, strict=False, memory=self._bytes, options=self.options)

    def write32(self, core: int, offset: int, value: int) -> None:
        """Write a register of both models; raises as `SocEngine.write32`."""
        super().write32(core, offset, value)
        self._also(lambda: self._model.write32(core, offset, value))

    def reset(self, core_mask: int) -> None:
        """Reset cores of both models; memory keeps its contents."""
        super().reset(core_mask)
        if self._model is not None:
            self._also(lambda: self._model.reset(core_mask))

    def _run(self, cycles: int, mask: int) -> None:
        before = self.cycle
        try:
            super()._run(cycles, mask)
        finally:
            passed = self.cycle - before
            self._also(lambda: self._model.run(passed))
            self._settle()

    def _also(self, work: Callable[[], object]) -> None:
        """Have the golden model do something after everything that it was given before."""
        with self._in_library:
            self.opened()
            self._waiting.append(self._thread.submit(work))

    def _settle(self) -> None:
        """Wait until the golden model has done everything."""
        from rkcosim.golden.task.errors import GoldenError

        waiting, self._waiting = self._waiting, []
        try:
            errors = [error for one in waiting if (error := one.exception()) is not None]
        except CancelledError:
            raise EngineError("the engine is closed") from None
        found, self._known = self._known, self.complaints(self._known).place
        for error in errors:
            if not isinstance(error, GoldenError):
                raise error
            if self._known == found:  # else the core has reported it
                raise EngineError(
                    f"the golden model does not compute the bytes of this job: {error}"
                ) from error

    def _mapping_changed(self, page: int, pages: int, mapped: bool) -> None:
        super()._mapping_changed(page, pages, mapped)
        if self._model is not None:
            self._settle()
            if mapped:
                self._bytes.share(page * PAGE, self.memory.array[page * PAGE : (page + pages) * PAGE])
            else:
                self._bytes.unmap(page * PAGE)

    def close(self) -> None:
        """End both models; see `SocEngine.close`."""
        with self._in_library:
            self._thread.shutdown(wait=True, cancel_futures=True)
            super().close()


def open_fast(
    *,
    cores: int = 3,
    dram: DramConfig | None = None,
    on_diagnostic: str = "stop",
    options: Iterable[str] | None = None,
    progress: Progress = cache.say,
) -> FastEngine:
    """Open the engine "fast"; its timing model is built first if it is not in the cache.

    Parameters
    ----------
    cores, dram, on_diagnostic, options, progress : as for `rkcosim.engines.engine.open_engine`.

    Raises
    ------
    BuildError
        if the compiler is missing or fails.
    """
    source = timing_source(CELL, progress)
    return FastEngine(source, cores=cores, dram=dram, on_diagnostic=on_diagnostic, options=options)
