"""Reading a waveform back: signals by name, values by cycle, and what they mean as objects."""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from functools import cached_property
from itertools import groupby, pairwise
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

from rtl.regs.events import EVENTS
from waves.backends import Backend, Changes, Signal, Value, open_backend
from waves.errors import WaveError
from waves.files import inspect
from waves.lookup import Names
from waves.pins import event_place, find_cores, spelled

if TYPE_CHECKING:
    from waves.bursts import Burst
    from waves.decode import DiagnosticSeen, Irq, MacActivity, RegisterWrite, Stall, WaveTask

CYCLE = Fraction(1, 10**9)
"""Seconds that a cycle takes in the waveforms of the engines: 1 GHz."""


def open_wave(
    file: Path | str, *, reader: str = "auto", cycle: Fraction | float | None = None, partial: bool = False
) -> Wave:
    """Open a VCD or FST file.

    Nothing but names is read now; a signal's changes are read when they are first asked for.

    Parameters
    ----------
    file : the waveform.
    reader : "pywellen", "vcdvcd", or "auto": pywellen for FST and large files where it is installed.
    cycle : seconds of a clock cycle; default 1e-9, as the engines write it.
    partial : read a VCD file that is cut off as far as it goes.

    Raises
    ------
    WaveError
        if there is no such file, it is no waveform, or it is cut off.
    """
    path = Path(file)
    facts = inspect(path)
    if facts.cut and not partial:
        raise WaveError(f"{path}: cut off: {facts.cut} (partial=True reads what is there)")
    backend = open_backend(path, facts, reader)
    seconds = CYCLE if cycle is None else Fraction(cycle).limit_denominator(10**15)
    units = seconds / backend.unit
    if units < 1:
        raise WaveError(f"{path}: a cycle of {float(seconds)} s is shorter than the file's unit of time")
    return Wave(path, facts.format, backend, units, (facts.first, facts.end))


class Wave:
    """A waveform.  Names may be given by their end ("core0.irq", "PPU.registers.OUT_W").

    Cycles count from 0 as in the file: cycle n is n nanoseconds in the waveforms of the engines.  A value
    "in" a cycle is the one at its end; changes within a cycle count once.

    `format` is "vcd" or "fst", `first` and `last` the first and last cycle that the file has.
    """

    def __init__(
        self, file: Path, format: str, backend: Backend, units: Fraction, times: tuple[int, int]
    ) -> None:
        self.file = file
        self.format = format
        self._backend = backend
        self._units = units
        self._names = Names(str(file), backend.signals)
        self._read: dict[str, Changes] = {}
        self.first = self._cycle(times[0])
        self.last = max(self.first, math.ceil(times[1] / units) - 1)

    @property
    def reader(self) -> str:
        """The library that reads the file."""
        return self._backend.name

    # Names.

    @property
    def signals(self) -> list[Signal]:
        """All names, in the file's order."""
        return self._names.signals

    def find(self, name: str) -> Signal:
        """The signal whose name is, or ends in, `name`.

        Raises
        ------
        WaveError
            if none fits (the nearest names are in the text) or several do.
        """
        return self._names.find(name)

    def __contains__(self, name: str) -> bool:
        return bool(self._names.fitting(name))

    def glob(self, *patterns: str) -> list[Signal]:
        """Signals whose name, or the end of it, fits a pattern (`*`, `?`, `[...]`), in the file's order."""
        return self._names.glob(patterns)

    def scopes(self, parent: str = "") -> list[str]:
        """Full names of the scopes right inside a scope; by default those at the top."""
        return self._names.scopes(parent)

    def within(self, scope: str) -> list[Signal]:
        """Signals right inside a scope."""
        return self._names.within(scope)

    def has(self, name: str) -> bool:
        """Whether there is a signal of exactly this full name."""
        return self._names.has(name)

    @cached_property
    def core_scopes(self) -> dict[int, str]:
        """Number of each core in the waveform and the scope that it is."""
        return find_cores(self)

    @property
    def cores(self) -> list[int]:
        """Numbers of the cores that are in the waveform."""
        return list(self.core_scopes)

    # Values.

    def load(self, *names: str) -> None:
        """Read several signals in one go: of a large file that is much faster than one after the other."""
        self._load([self.find(name) for name in names])

    def load_pins(self) -> None:
        """Read in one go what `tasks`, `register_writes`, `bursts` and the others look at."""
        from waves.bursts import BURST_PINS
        from waves.decode import DECODED_PINS, JOBS, counters

        names: list[str | None] = [JOBS] if self.has(JOBS) else []
        for core in self.cores:
            names += [spelled(self, core, pin) for pin in (*DECODED_PINS, *BURST_PINS)]
            names += [place[0] for event in EVENTS if (place := event_place(self, core, event))]
            names += [*counters(self, core).values(), f"npu.core{core}.layer_name"]
        self.load(*dict.fromkeys(name for name in names if name and self.has(name)))

    def changes(self, name: str, first: int | None = None, last: int | None = None) -> Changes:
        """(cycle, new value) in order, from cycle `first` to `last`, both included; None is unknown."""
        pairs = self._changes(name)
        low = 0 if first is None else bisect_left(pairs, first, key=itemgetter(0))
        high = len(pairs) if last is None else bisect_right(pairs, last, key=itemgetter(0))
        return pairs[low:high]

    def value(self, name: str, cycle: int) -> Value:
        """Value in a cycle; None before the first change and where a bit is unknown."""
        pairs = self._changes(name)
        place = bisect_right(pairs, cycle, key=itemgetter(0))
        return pairs[place - 1][1] if place else None

    def rises(self, name: str, first: int | None = None, last: int | None = None) -> list[int]:
        """Cycles in which a one-bit signal goes from 0 to 1."""
        return self._edges(name, 0, 1, first, last)

    def falls(self, name: str, first: int | None = None, last: int | None = None) -> list[int]:
        """Cycles in which a one-bit signal goes from 1 to 0."""
        return self._edges(name, 1, 0, first, last)

    def when(self, name: str, value: int) -> list[tuple[int, int]]:
        """Stretches (first cycle, cycle after the last) in which a signal has a value."""
        return [(begin, end) for begin, end, (now,) in self.steps([name]) if now == value]

    def steps(
        self, names: Sequence[str], first: int | None = None, last: int | None = None
    ) -> Iterator[tuple[int, int, tuple[Value, ...]]]:
        """Stretches in which none of some signals changes: (first cycle, cycle after the last, values)."""
        signals = [self.find(name) for name in names]
        self._load(signals)
        low = self.first if first is None else max(first, self.first)
        high = self.last if last is None else min(last, self.last)
        now: list[Value] = [self.value(signal.name, low) for signal in signals]
        columns = [
            [(cycle, n, value) for cycle, value in self.changes(signal.name, low + 1, high)]
            for n, signal in enumerate(signals)
        ]
        begin = low
        for cycle, group in groupby(heapq.merge(*columns, key=itemgetter(0)), key=itemgetter(0)):
            yield begin, cycle, tuple(now)
            for _, n, value in group:
                now[n] = value
            begin = cycle
        if begin <= high:
            yield begin, high + 1, tuple(now)

    # What it means.

    def tasks(self) -> list[WaveTask]:
        """Tasks of all cores in order of their start."""
        from waves.decode import tasks

        return tasks(self)

    def register_writes(self, core: int | None = None) -> list[RegisterWrite]:
        """Register writes of one core or of all, in order."""
        from waves.decode import register_writes

        return register_writes(self, self._chosen(core))

    def bursts(self, core: int | None = None) -> list[Burst]:
        """AXI bursts of one core or of all, in order of their start."""
        from waves.bursts import bursts

        return bursts(self, self._chosen(core))

    def mac_activity(self, core: int | None = None, window: int = 1000) -> list[MacActivity]:
        """What the MAC array of each core did, with its use in windows of `window` cycles."""
        from waves.decode import mac_activity

        return mac_activity(self, self._chosen(core), window)

    def stalls(self, core: int | None = None) -> list[Stall]:
        """Stretches in which something waited, and for what."""
        from waves.decode import stalls

        return stalls(self, self._chosen(core))

    def irqs(self, core: int | None = None) -> list[Irq]:
        """Stretches in which an interrupt line was high."""
        from waves.decode import irqs

        return irqs(self, self._chosen(core))

    def diagnostics(self, core: int | None = None) -> list[DiagnosticSeen]:
        """What the cores found fault with."""
        from waves.decode import diagnostics

        return diagnostics(self, self._chosen(core))

    # Time.

    def seconds(self, cycle: int) -> Fraction:
        """The time at which a cycle begins."""
        return -(-cycle * self._units // 1) * self._backend.unit

    @property
    def unit(self) -> Fraction:
        """Seconds of the file's unit of time."""
        return self._backend.unit

    # Inside.

    def _chosen(self, core: int | None) -> list[int]:
        if core is not None and core not in self.cores:
            there = ", ".join(map(str, self.cores)) or "none"
            raise WaveError(f"{self.file}: no core {core} in this waveform (there are: {there})")
        return self.cores if core is None else [core]

    def _cycle(self, time: int) -> int:
        return int(time // self._units)

    def _changes(self, name: str) -> Changes:
        signal = self.find(name)
        self._load([signal])
        return self._read[signal.reference]

    def _load(self, signals: Iterable[Signal]) -> None:
        wanted = list({s.reference: s for s in signals if s.reference not in self._read}.values())
        if wanted:
            for reference, pairs in self._backend.read(wanted).items():
                self._read[reference] = self._by_cycle(pairs)

    def _by_cycle(self, pairs: Changes) -> Changes:
        """The same changes in cycles: the last of each cycle, and only where the value is another."""
        out: Changes = []
        for time, value in pairs:
            cycle = self._cycle(time)
            if out and out[-1][0] == cycle:
                out.pop()
            if not out or out[-1][1] != value:
                out.append((cycle, value))
        return out

    def _edges(self, name: str, low: int, high: int, first: int | None, last: int | None) -> list[int]:
        return [
            cycle
            for (_, before), (cycle, now) in pairwise(self._changes(name))
            if (before, now) == (low, high)
            and (first is None or cycle >= first)
            and (last is None or cycle <= last)
        ]
