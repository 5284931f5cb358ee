"""Device time: cycles of the engine at the clock frequency of the NPU."""

from __future__ import annotations

from collections import deque

NANOSECONDS = 1_000_000_000
STEPS_HZ = tuple(mhz * 1_000_000 for mhz in range(300, 1001, 100))
"""Frequencies that devfreq offers [HW 12.1]."""


class Clock:
    """Conversion between cycles and nanoseconds.

    Parameters
    ----------
    hz
        Current frequency; `set` changes it without changing the time.
    """

    def __init__(self, hz: int) -> None:
        self.hz = hz
        self._cycle = self._time = 0

    def time(self, cycle: int) -> int:
        """Nanoseconds of device time at a cycle."""
        return self._time + (cycle - self._cycle) * NANOSECONDS // self.hz

    def cycles(self, nanoseconds: int) -> int:
        """Number of cycles in a time, rounded up."""
        return -(-nanoseconds * self.hz // NANOSECONDS)

    def set(self, hz: int, cycle: int) -> None:
        """Change the frequency from a cycle on."""
        self._time, self._cycle, self.hz = self.time(cycle), cycle, hz

    @property
    def microvolts(self) -> int:
        """Supply voltage at this frequency [HW 12.1]."""
        steps = {800_000_000: 750_000, 900_000_000: 800_000, 1_000_000_000: 850_000}
        return max((volts for hz, volts in steps.items() if self.hz >= hz), default=700_000)


class Load:
    """Load of the cores in the last full second of device time."""

    def __init__(self, cores: int) -> None:
        self._spans: list[deque[tuple[int, int]]] = [deque(maxlen=4096) for _ in range(cores)]

    def add(self, core: int, start: int, end: int) -> None:
        """Record that a core was busy between two times in ns."""
        self._spans[core].append((start, end))

    def percent(self, core: int, now: int, since: int | None) -> int:
        """Busy share of the last full second; `since`: start time of the core's running job, or None."""
        end = now // NANOSECONDS * NANOSECONDS
        start = end - NANOSECONDS
        spans = [*self._spans[core], *([(since, now)] if since is not None else [])]
        busy = sum(max(0, min(b, end) - max(a, start)) for a, b in spans)
        return busy * 100 // NANOSECONDS
