"""The engine "golden": the task-level golden model with the members of the other engines."""

from __future__ import annotations

from types import TracebackType
from typing import Any, NoReturn, Self

from rkcosim.engines.protocol import GOLDEN, WaveformError, described, require
from rkcosim.golden.task import GoldenNpu


class GoldenEngine(GoldenNpu):
    """The golden model `rkcosim.golden.task.GoldenNpu` as an engine.

    It computes bytes and counts no cycles. Members that the other engines have and it has not exist too: they
    raise an error that names the engines which have them.

    Parameters are those of `GoldenNpu`.
    """

    closed = False

    def close(self) -> None:
        """End the use of the engine; arrays returned by `memory.view` stay valid."""
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
