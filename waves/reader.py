"""Reading a waveform back: values of chosen signals by cycle."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from vcdvcd import VCDVCD

CYCLE_SECONDS = 1e-9
"""Time that a cycle takes in a waveform."""


class TraceError(ValueError):
    """A waveform cannot be read or lacks a signal; the text names file and signal."""


@dataclass
class Trace:
    """Signals of a waveform; a cycle is one nanosecond, as the engines write it.

    `changes` holds for each signal its (cycle, value) pairs in order; value None is unknown.
    """

    file: Path
    changes: dict[str, list[tuple[int, int | None]]]

    def value(self, signal: str, cycle: int) -> int | None:
        """Value of a signal in a cycle; None before its first change."""
        pairs = self._of(signal)
        place = bisect_right(pairs, cycle, key=lambda pair: pair[0])
        return pairs[place - 1][1] if place else None

    def rises(self, signal: str) -> list[int]:
        """Cycles in which a one-bit signal goes from 0 to 1."""
        pairs = self._of(signal)
        return [cycle for (_, before), (cycle, now) in pairwise(pairs) if now == 1 and before == 0]

    def _of(self, signal: str) -> list[tuple[int, int | None]]:
        if signal not in self.changes:
            raise TraceError(f"{self.file}: no signal '{signal}' (there are: {', '.join(self.changes)})")
        return self.changes[signal]


def open_trace(file: Path, signals: list[str]) -> Trace:
    """Read signals of a VCD file.

    Parameters
    ----------
    file : the waveform.
    signals : ends of their full names, e.g. "core.irq"; each must fit exactly one signal (several
        names of one signal count once).

    Raises
    ------
    TraceError
        if the file is no VCD file or a name fits none or several signals.
    """
    try:
        names = VCDVCD(str(file), only_sigs=True).references_to_ids
    except (OSError, ValueError, IndexError, KeyError) as error:
        raise TraceError(f"{file}: not a readable VCD file: {error}") from error
    chosen: dict[str, str] = {}
    for wanted in signals:
        found = [n for n in names if _bare(n) == wanted or _bare(n).endswith("." + wanted)]
        if len({names[n] for n in found}) != 1:
            raise TraceError(f"{file}: {len(found)} signals are called '{wanted}', one is needed")
        chosen[wanted] = found[0]
    data = VCDVCD(str(file), signals=list(chosen.values()), store_tvs=True)
    units = round(CYCLE_SECONDS / float(data.timescale["timescale"]))
    changes: dict[str, list[tuple[int, int | None]]] = {}
    for wanted, name in chosen.items():
        changes[wanted] = [
            (when // units, int(bits, 2) if set(bits) <= {"0", "1"} else None) for when, bits in data[name].tv
        ]
    return Trace(Path(file), changes)


def _bare(name: str) -> str:
    """A signal's name without the range of a vector."""
    return name.split("[")[0]
