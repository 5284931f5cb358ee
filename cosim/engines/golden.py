"""The engine "golden": the task-level golden model with the members of the other engines."""

from __future__ import annotations

import os
from collections.abc import Iterable
from types import TracebackType
from typing import Any, NoReturn, Self

import numpy as np
import numpy.typing as npt

from rkcosim.engines.arrays import ArrayMemory, mapped_size, unmapped
from rkcosim.engines.protocol import (
    GOLDEN,
    EngineError,
    MemoryAccessError,
    WaveformError,
    described,
    require,
)
from rkcosim.engines.submissions import MAX_CYCLES, CoreWork, Submission, Submissions, T
from rkcosim.golden.task import GoldenError, GoldenNpu, Memory
from rkcosim.golden.task.errors import MemoryFault


class GoldenMemoryFault(MemoryFault, MemoryAccessError):
    """An access outside of the mapped ranges, by the golden model or by the host."""

    def __init__(self, address: int, size: int, text: str) -> None:
        super().__init__(address, size, "access")
        self.args = (text,)


class GoldenMemory(ArrayMemory, Memory):
    """The golden model's memory with the interface of the other engines' `DeviceMemory`."""

    def map(self, iova: int, size: int, fd: int | None = None) -> npt.NDArray[np.uint8]:
        """Map `size` bytes (rounded up to pages) from `iova` on; see `DeviceMemory.map`."""
        whole = mapped_size(iova, size, self.ranges)
        if fd is not None and os.fstat(fd).st_size < whole:
            raise MemoryAccessError(f"map: the file has fewer than {whole:#x} bytes")
        return Memory.map(self, iova, whole, fd)

    def unmap(self, iova: int) -> None:
        """Remove the range that starts at `iova`; raises MemoryAccessError if none does."""
        try:
            Memory.unmap(self, iova)
        except KeyError:
            raise MemoryAccessError(f"unmap: no range starts at {iova:#x}") from None

    @property
    def ranges(self) -> dict[int, int]:
        """Mapped ranges, from first address to size in bytes."""
        return dict(self.regions())

    def _bytes(self, iova: int, size: int) -> npt.NDArray[np.uint8]:
        try:
            return Memory.view(self, iova, size)
        except MemoryFault as fault:
            raise GoldenMemoryFault(iova, size, str(unmapped(iova, size, self.ranges))) from fault


class GoldenEngine(GoldenNpu):
    """The golden model `rkcosim.golden.task.GoldenNpu` as an engine.

    It computes bytes and counts no cycles. Members that the other engines have and it has not exist too: they
    raise an error that names the engines which have them.

    Parameters
    ----------
    cores, strict, options : as for `GoldenNpu`.

    Members
    -------
    closed : whether it was closed.
    """

    memory: GoldenMemory

    def __init__(self, cores: int = 3, *, strict: bool = True, options: Iterable[str] | None = None) -> None:
        super().__init__(cores, strict=strict, memory=GoldenMemory(), options=options)
        self.closed = False
        self._submissions = Submissions(self, (EngineError, GoldenError))

    def submit(
        self, work: CoreWork[T], core: int | None = None, max_cycles: int = MAX_CYCLES
    ) -> Submission[T]:
        """Start a `Stream` or a `TaskList` on a core, or queue it there; see `Submissions.submit`."""
        if self.closed:
            raise EngineError("the engine is closed")
        return self._submissions.submit(work, core, max_cycles)

    def close(self) -> None:
        """End the use of the engine; arrays returned by `memory.view` stay valid."""
        self._submissions.close()
        self.closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return described(self, self.closed)

    # Members of the other engines, which raise an error here

    def trace(self, *what: Any, **how: Any) -> NoReturn:
        """Raise WaveformError: this engine writes no waveforms."""
        _refuse("can_trace", "a waveform", WaveformError)

    def record(self, *what: Any, **how: Any) -> NoReturn:
        """Raise ValueError: this engine records no events."""
        _refuse("has_events", "an event log")

    def events(self) -> NoReturn:
        """Raise ValueError as `record`."""
        self.record()

    def counters(self, core: int) -> NoReturn:
        """Raise ValueError: this engine has no performance counters."""
        _refuse("has_counters", "reading one")

    def block_counters(self, core: int) -> NoReturn:
        """Raise ValueError as `counters`."""
        self.counters(core)

    def save(self, *what: Any, **how: Any) -> NoReturn:
        """Raise ValueError: this engine cannot be saved."""
        _refuse("has_snapshots", "a snapshot")


def _refuse(capability: str, wanted: str, error: type[ValueError] = ValueError) -> NoReturn:
    require(GOLDEN, capability, wanted, error)
    raise AssertionError(f"{GOLDEN} has {capability}")
