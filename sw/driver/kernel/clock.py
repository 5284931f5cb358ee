"""Device time: cycles of the engine at the NPU's clock."""

from __future__ import annotations

from collections import deque

NANOSECONDS = 1_000_000_000
STEPS_HZ = tuple(mhz * 1_000_000 for mhz in range(300, 1001, 100))
"""Frequencies that devfreq offers (H 9.1)."""


class Clock:
    """Converts between cycles and nanoseconds.

    Parameters
    ----------
    hz
        frequency now; `set` changes it, time goes on.
    """

    def __init__(self, hz: int) -> None:
        self.hz = hz
        self._cycle = self._time = 0

    def time(self, cycle: int) -> int:
        """Nanoseconds of device time at a cycle."""
        return self._time + (cycle - self._cycle) * NANOSECONDS // self.hz

    def cycles(self, nanoseconds: int) -> int:
        """Cycles that a time takes, rounded up."""
        return -(-nanoseconds * self.hz // NANOSECONDS)

    def set(self, hz: int, cycle: int) -> None:
        """Go on with another frequency from a cycle on."""
        self._time, self._cycle, self.hz = self.time(cycle), cycle, hz

    @property
    def microvolts(self) -> int:
        """The supply at this frequency (H 9.1)."""
        steps = {800_000_000: 750_000, 900_000_000: 800_000, 1_000_000_000: 850_000}
        return max((volts for hz, volts in steps.items() if self.hz >= hz), default=700_000)


class Load:
    """How busy the cores were in the last full second of device time."""

    def __init__(self, cores: int) -> None:
        self._spans: list[deque[tuple[int, int]]] = [deque(maxlen=4096) for _ in range(cores)]

    def add(self, core: int, start: int, end: int) -> None:
        """A core was busy between two times in ns."""
        self._spans[core].append((start, end))

    def percent(self, core: int, now: int, since: int | None) -> int:
        """Busy share of the last full second; `since`: when the job it runs now began, or None."""
        end = now // NANOSECONDS * NANOSECONDS
        start = end - NANOSECONDS
        spans = [*self._spans[core], *([(since, now)] if since is not None else [])]
        busy = sum(max(0, min(b, end) - max(a, start)) for a, b in spans)
        return busy * 100 // NANOSECONDS
