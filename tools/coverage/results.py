"""What the counters say: lines that ran, and bits that rose and fell."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tools.coverage.annotate import Signal
from tools.coverage.model import Counters


@dataclass
class Line:
    """A line of the sources that makes an assignment under a condition.

    Members
    -------
    branches, ran : branches of the Verilog that have it, and those of them that ran.
    """

    file: str
    number: int
    branches: int = 0
    ran: int = 0

    def text(self, root: Path) -> str:
        """Return the line without its indentation."""
        return (root / self.file).read_text().splitlines()[self.number - 1].strip()


@dataclass
class Toggles:
    """A signal with the bits that were not seen to become 1, and not seen to become 0."""

    signal: Signal
    never_1: list[int]
    never_0: list[int]

    @property
    def missing(self) -> list[int]:
        """Bits that did not do both."""
        return sorted({*self.never_1, *self.never_0})


@dataclass
class Coverage:
    """Lines by file and number, and signals."""

    lines: dict[tuple[str, int], Line] = field(default_factory=dict)
    signals: list[Toggles] = field(default_factory=list)

    def uncovered(self) -> list[Line]:
        """Return the lines that never ran, by file and number."""
        return [line for _, line in sorted(self.lines.items()) if not line.ran]

    def files(self) -> list[str]:
        """Return the files with lines or signals."""
        return sorted({file for file, _ in self.lines} | {file_of(s.signal) for s in self.signals})


def file_of(signal: Signal) -> str:
    """Return the file in which a signal is declared."""
    return signal.place.partition(":")[0]


def coverage(counters: Counters, seen: np.ndarray, *others: tuple[Counters, np.ndarray]) -> Coverage:
    """Return the coverage.

    Parameters
    ----------
    counters : counters of the library with everything that is counted.
    seen : for each of them, whether it was above 0 in a run.
    others : the same of libraries with parts of it.
    """
    ran: set[tuple[str, tuple[str, ...]]] = set()
    moved: dict[tuple[str, str], np.ndarray] = {}
    for known, above in ((counters, seen), *others):
        ran |= {(branch, places) for counter, branch, places in known.statements if above[counter]}
        for counter, signal in known.signals:
            own = above[counter : counter + 2 * (max(signal.bits) + 1)]
            before = moved.get((signal.module, signal.name))
            if before is None:
                moved[signal.module, signal.name] = own
            elif before.size == own.size:
                moved[signal.module, signal.name] = before | own
    found = Coverage()
    for _, branch, places in counters.statements:
        for place in places:
            file, _, number = place.partition(":")
            line = found.lines.setdefault((file, int(number)), Line(file, int(number)))
            line.branches += 1
            line.ran += (branch, places) in ran
    for _, signal in counters.signals:
        own = moved[signal.module, signal.name]
        never_0 = [bit for bit in signal.bits if not own[2 * bit]]
        never_1 = [bit for bit in signal.bits if not own[2 * bit + 1]]
        found.signals.append(Toggles(signal, never_1, never_0))
    return found
