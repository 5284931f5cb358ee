"""Cycles of a waveform: of a fixed length, or from each rising edge of a clock in it to the next.

A register that takes its inputs at a rising edge sees the values directly before the edge, so the value
"in" a cycle is the one at the cycle's end. With a clock, or with a first edge, cycle 0 ends at the first
rising edge, and cycle n begins at the n-th one.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Protocol

UNITS = {
    "s": Fraction(1),
    "ms": Fraction(1, 10**3),
    "us": Fraction(1, 10**6),
    "ns": Fraction(1, 10**9),
    "ps": Fraction(1, 10**12),
    "fs": Fraction(1, 10**15),
}
"""Units of time in seconds, by name."""

_TIME = re.compile(r"(\d{1,18}(?:\.\d{1,18})?) ?([a-zµ]+)")


def parse_time(text: str) -> Fraction:
    """Return a time such as `10ns` or `3.75 us` in seconds.

    Raises
    ------
    ValueError
        if it is not a number with a unit.
    """
    found = _TIME.fullmatch(text.strip())
    unit = found[2].replace("µ", "u") if found else ""
    if found is None or unit not in UNITS:
        raise ValueError(f"a time is a number with a unit ({', '.join(UNITS)}), as 10ns; not '{text}'")
    return Fraction(found[1]) * UNITS[unit]


class Cycles(Protocol):
    """Relation of cycles and times, which count in the file's units."""

    @property
    def text(self) -> str:
        """The relation in words, "" for that of the engines' waveforms."""
        ...

    def cycle(self, time: int) -> int:
        """Return the cycle that contains a time."""
        ...

    def time(self, cycle: int) -> int:
        """Return the first time in a cycle."""
        ...

    def last(self, end: int) -> int:
        """Return the last whole cycle of a file that ends before the time `end`."""
        ...


@dataclass(frozen=True)
class Regular:
    """Cycles of equal length.

    Members
    -------
    length : length of a cycle in the file's units.
    edge : time of the first rising edge in these units; None: cycle n begins at n times the length.
    """

    length: Fraction
    edge: Fraction | None = None
    text: str = ""

    def cycle(self, time: int) -> int:
        """See `Cycles`."""
        if self.edge is None:
            return int(time // self.length)
        return max(int((time - self.edge) // self.length) + 1, 0)

    def time(self, cycle: int) -> int:
        """See `Cycles`."""
        if self.edge is None:
            return math.ceil(cycle * self.length)
        return max(math.ceil(self.edge + (cycle - 1) * self.length), 0)

    def last(self, end: int) -> int:
        """See `Cycles`."""
        if self.edge is None:
            return math.ceil(end / self.length) - 1
        return max(math.floor((end - 1 - self.edge) / self.length), 0)


@dataclass(frozen=True)
class Edges:
    """Cycles between the rising edges of a clock, which may stop and change its period.

    Members
    -------
    times : times of the edges in the file's units, at least one.
    """

    times: Sequence[int]
    text: str = ""

    def cycle(self, time: int) -> int:
        """See `Cycles`."""
        return bisect_right(self.times, time)

    def time(self, cycle: int) -> int:
        """See `Cycles`."""
        return 0 if cycle < 1 else self.times[min(cycle, len(self.times)) - 1]

    def last(self, end: int) -> int:
        """See `Cycles`. After the last edge there is no whole cycle: nothing samples its values."""
        return max(bisect_right(self.times, end - 1) - 1, 0)


def periods(times: Sequence[int]) -> list[tuple[int, int]]:
    """Return the distances of consecutive edges with their numbers, the most frequent first."""
    found: dict[int, int] = {}
    for before, now in pairwise(times):
        found[now - before] = found.get(now - before, 0) + 1
    return sorted(found.items(), key=lambda item: (-item[1], item[0]))


def time_text(seconds: Fraction) -> str:
    """Return a time with the largest unit in which it is at least 1, as `3.75 ns`."""
    for name, unit in UNITS.items():
        if seconds >= unit:
            return f"{float(seconds / unit):.6g} {name}"
    return f"{float(seconds / UNITS['fs']):.6g} fs"
