"""Reading a waveform back: signals by name, and values by cycle."""

from __future__ import annotations

import difflib
import fnmatch
import heapq
import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from functools import cached_property
from itertools import groupby, pairwise
from operator import itemgetter
from pathlib import Path

from rkcosim.waves.backends import Backend, Changes, Signal, Value
from rkcosim.waves.clocking import Cycles
from rkcosim.waves.files import WaveError
from rkcosim.waves.ports import TELLING_PINS

_SHOWN = 4  # maximum number of names in an error


class Reader:
    """The signals of a waveform. A name may be given by its end ("core0.irq", "PPU.registers.OUT_W").

    Cycles count from 0 as in the file: cycle n is at n nanoseconds in the waveforms of the engines
    (`rkcosim.waves.clocking` has the cycles of others). A value "in" a cycle is the one at its end; several
    changes within a cycle count once.

    Members
    -------
    format : "vcd" or "fst".
    cycles : relation of cycles and times.
    first, last : first and last cycle in the file.
    signals : all names in the file's order.
    """

    def __init__(
        self,
        file: Path,
        format: str,
        backend: Backend,
        cycles: Cycles,
        times: tuple[int, int],
        core_scopes: dict[int, str] | None = None,
    ) -> None:
        self.file = file
        self.format = format
        self.signals: list[Signal] = list(backend.signals)
        self._backend = backend
        self._given_scopes = core_scopes
        self._times = times
        self._read: dict[str, Changes] = {}
        self.count(cycles)

    def count(self, cycles: Cycles) -> None:
        """Count cycles in another way from now on."""
        self._read.clear()
        self.cycles = cycles
        self.first = cycles.cycle(self._times[0])
        self.last = max(self.first, cycles.last(self._times[1]))

    def moments(self, name: str) -> Changes:
        """Return the changes of a signal with their times in the file's units."""
        signal = self.find(name)
        return self._backend.read([signal])[signal.reference]

    @property
    def reader(self) -> str:
        """The library that reads the file."""
        return self._backend.name

    # Names.

    @cached_property
    def _by_name(self) -> dict[str, Signal]:
        return {signal.name: signal for signal in self.signals}

    @cached_property
    def _by_leaf(self) -> dict[str, list[Signal]]:
        return _grouped(self.signals, "leaf")

    @cached_property
    def _by_scope(self) -> dict[str, list[Signal]]:
        return _grouped(self.signals, "scope")

    @cached_property
    def _children(self) -> dict[str, list[str]]:
        found: dict[str, dict[str, None]] = defaultdict(dict)
        for scope in self._by_scope:
            while scope:
                parent = scope.rpartition(".")[0]
                found[parent][scope] = None
                scope = parent
        return {parent: list(scopes) for parent, scopes in found.items()}

    def has(self, name: str) -> bool:
        """Return whether there is a signal with exactly this full name."""
        return name in self._by_name

    def __contains__(self, name: str) -> bool:
        return bool(self._fitting(name))

    def _fitting(self, name: str) -> list[Signal]:
        """Return the signals that a name may mean: the one with exactly this name, or all that end in it."""
        if name in self._by_name:
            return [self._by_name[name]]
        leaf = name.rpartition(".")[2]
        return [signal for signal in self._by_leaf.get(leaf, []) if signal.name.endswith("." + name)]

    def find(self, name: str) -> Signal:
        """Return the signal whose name is, or ends in, `name`; several names of one signal count once.

        Raises
        ------
        WaveError
            if no name matches (the message has the nearest names) or several do.
        """
        found = self._fitting(name)
        if len({signal.reference for signal in found}) == 1:
            return found[0]
        if found:
            shown = ", ".join(signal.name for signal in found[:_SHOWN])
            more = ", ..." if len(found) > _SHOWN else ""
            raise WaveError(
                f"{self.file}: {len(found)} signals are called '{name}', give more of the name: {shown}{more}"
            )
        near = self.near(name)
        hint = f"; near: {', '.join(near)}" if near else ""
        raise WaveError(f"{self.file}: no signal is called '{name}'{hint}")

    def near(self, name: str) -> list[str]:
        """Return names similar to one that does not exist."""
        parts = name.count(".") + 1
        ends: dict[str, str] = {}
        for signal in self.signals:
            ends.setdefault(".".join(signal.name.split(".")[-parts:]).lower(), signal.name)
        leaves = {leaf.lower(): signals[0].name for leaf, signals in self._by_leaf.items()}
        leaf = name.rpartition(".")[2]
        found = [ends[word] for word in difflib.get_close_matches(name.lower(), ends, n=_SHOWN)]
        found += [leaves[word] for word in difflib.get_close_matches(leaf.lower(), leaves, n=_SHOWN)]
        return list(dict.fromkeys(found))[:_SHOWN]

    def glob(self, *patterns: str) -> list[Signal]:
        """Return signals whose name or its end matches a pattern (`*`, `?`, `[...]`), in the file's order."""
        chosen: set[str] = set()
        for pattern in patterns:
            chosen.update(
                fnmatch.filter(self._by_name, pattern) or fnmatch.filter(self._by_name, "*." + pattern)
            )
        return [signal for signal in self.signals if signal.name in chosen]

    def scopes(self, parent: str = "") -> list[str]:
        """Return the full names of the scopes directly inside a scope; by default the top scopes."""
        return self._children.get(parent, [])

    def within(self, scope: str) -> list[Signal]:
        """Return the signals directly inside a scope."""
        return self._by_scope.get(scope, [])

    @cached_property
    def core_scopes(self) -> dict[int, str]:
        """Return the number of each core in the waveform and its scope.

        Cores are called `core0` to `core2`. In a waveform of the core's Verilog, the outermost scope with the
        port `watch_valid` is core 0; without that port, the one with all pins of a bus. Several scopes at the
        same depth are several cores, with the numbers at the ends of their names, or in the order of these.
        """
        if self._given_scopes is not None:
            return self._given_scopes
        tops = {scope: re.fullmatch(r"core(\d+)", scope) for scope in self.scopes()}
        found = {int(match[1]): scope for scope, match in tops.items() if match}
        if found:
            return found
        for ports in TELLING_PINS:
            scopes = [signal.scope for signal in self._by_leaf.get(ports[0], [])]
            whole = [scope for scope in scopes if all(self.has(_below(scope, port)) for port in ports)]
            if whole:
                depth = min(scope.count(".") for scope in whole)
                return _numbered([scope for scope in whole if scope.count(".") == depth])
        return {}

    @property
    def cores(self) -> list[int]:
        """Numbers of the cores in the waveform."""
        return list(self.core_scopes)

    # Values.

    def load(self, *names: str) -> None:
        """Read several signals at once; for a large file this is much faster than one after the other."""
        self._load([self.find(name) for name in names])

    def changes(self, name: str, first: int | None = None, last: int | None = None) -> Changes:
        """Return ordered (cycle, new value) from cycle `first` to `last`, both included; None is unknown."""
        pairs = self._changes(name)
        low = 0 if first is None else bisect_left(pairs, first, key=itemgetter(0))
        high = len(pairs) if last is None else bisect_right(pairs, last, key=itemgetter(0))
        return pairs[low:high]

    def value(self, name: str, cycle: int) -> Value:
        """Return the value in a cycle; None before the first change and if a bit is unknown."""
        pairs = self._changes(name)
        place = bisect_right(pairs, cycle, key=itemgetter(0))
        return pairs[place - 1][1] if place else None

    def rises(self, name: str, first: int | None = None, last: int | None = None) -> list[int]:
        """Return the cycles in which a one-bit signal goes from 0 to 1."""
        return self._edges(name, 0, 1, first, last)

    def falls(self, name: str, first: int | None = None, last: int | None = None) -> list[int]:
        """Return the cycles in which a one-bit signal goes from 1 to 0."""
        return self._edges(name, 1, 0, first, last)

    def when(self, name: str, value: int) -> list[tuple[int, int]]:
        """Return the stretches (first cycle, cycle after the last) in which a signal has a value."""
        return [(begin, end) for begin, end, (now,) in self.steps([name]) if now == value]

    def steps(
        self, names: Sequence[str], first: int | None = None, last: int | None = None
    ) -> Iterator[tuple[int, int, tuple[Value, ...]]]:
        """Yield stretches without changes of the signals: (first cycle, cycle after the last, values)."""
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

    # Time.

    def seconds(self, cycle: int) -> Fraction:
        """Return the time at which a cycle begins, in seconds."""
        return self.cycles.time(cycle) * self._backend.unit

    @property
    def unit(self) -> Fraction:
        """The file's unit of time in seconds."""
        return self._backend.unit

    # Internals.

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
        """Return the same changes in cycles: the last one of each cycle, and only if the value differs."""
        out: Changes = []
        for time, value in pairs:
            cycle = self.cycles.cycle(time)
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


class Repeats:
    """Cycles in which pins repeat a transfer without a change, as far as a file of this size is credible.

    A file of a few bytes can claim a transfer in each of 10^15 cycles; a wrong length of a cycle does, too.

    Parameters
    ----------
    least, per_byte : number of repeated transfers that are allowed: a fixed part, and for each byte of the
        file.
    """

    def __init__(self, wave: Reader, least: int = 1 << 20, per_byte: int = 1) -> None:
        self._file = wave.file
        self._left = self._most = least + per_byte * wave.file.stat().st_size

    def __call__(self, begin: int, end: int) -> range:
        """Return the cycles of a stretch.

        Raises
        ------
        WaveError
            if there are too many in this waveform.
        """
        self._left -= end - begin - 1
        if self._left < 0:
            raise WaveError(
                f"{self._file}: more than {self._most:,} transfers without a change of their pins, the last "
                f"in cycles {begin} to {end - 1}; is the length of a cycle right (--clock, --cycle)?"
            )
        return range(begin, end)


def _numbered(scopes: Sequence[str]) -> dict[int, str]:
    """Return scopes by the numbers at the ends of their names, or else in their order, from 0 on."""
    scopes = sorted(set(scopes))
    ends = [re.search(r"(\d{1,3})\]?$", scope) for scope in scopes]
    numbers = [int(end[1]) for end in ends if end]
    if len(scopes) < 2 or len(set(numbers)) < len(scopes):
        return dict(enumerate(scopes))
    return dict(sorted(zip(numbers, scopes, strict=True)))


def _below(scope: str, leaf: str) -> str:
    return f"{scope}.{leaf}" if scope else leaf


def _grouped(signals: Iterable[Signal], by: str) -> dict[str, list[Signal]]:
    found: dict[str, list[Signal]] = defaultdict(list)
    for signal in signals:
        found[getattr(signal, by)].append(signal)
    return dict(found)
