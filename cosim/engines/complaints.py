"""The logs of diagnostics and refused accesses: complete, in part, or each kind once with its count.

A job whose DMA leaves its buffers fills both logs. The cost of a query is therefore at most proportional to
their length, and texts are made only for the requested records.
"""

from __future__ import annotations

import ctypes as ct
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from rkcosim.engines import diagnostics as words
from rkcosim.engines import library as lib
from rkcosim.engines.diagnostics import Diagnostic, Fault, TaskSpan
from rkcosim.spec.port_codes import DIAGNOSTICS, diagnostic_name

MOST = 1 << 16
"""Number of records kept in each log, the oldest ones (MOST_DIAGNOSTICS of soc.h, MOST of dram.h)."""

_ROOM_FIRST, _ROOM_THEN = 16, 8192
"""Records per call: usually there are no new ones."""


class Place(NamedTuple):
    """A position in the logs: the number of diagnostics and faults before it."""

    diagnostics: int = 0
    faults: int = 0


START = Place()


@dataclass(frozen=True)
class Complaint:
    """All records of one kind: the same finding of a core at the same register, or for the same client.

    Members
    -------
    count : how many there were.
    first, last : the oldest and the newest of them.
    """

    count: int
    first: Diagnostic | Fault
    last: Diagnostic | Fault

    @property
    def kind(self) -> tuple[str | int, ...]:
        """Return what all of them have in common."""
        first = self.first
        if isinstance(first, Diagnostic):
            return first.core, first.code, first.register, first.client
        return first.core, first.text, first.client

    def __str__(self) -> str:
        if self.count == 1:
            return str(self.first)
        return f"{self.first} ({self.count} times, the last in cycle {self.last.cycle})"


class Complaints(NamedTuple):
    """Kinds of diagnostics and of faults, each in the order of its first record, and the position after them.

    Members
    -------
    full : True if a log holds as many records as are kept, so that more may have been dropped.
    """

    diagnostics: list[Complaint]
    faults: list[Complaint]
    place: Place
    full: bool = False


class ComplaintLog:
    """Reads the logs of an engine.

    Parameters
    ----------
    read : (function of the library, struct, first) returns the records from a number on as an array.
    tasks : returns the tasks in the order of their start.
    """

    def __init__(
        self,
        read: Callable[[str, type[ct.Structure], int], np.ndarray],
        tasks: Callable[[], Sequence[TaskSpan]],
    ) -> None:
        self._read, self._tasks = read, tasks

    def diagnostics(self, first: int = 0, most: int | None = None) -> list[Diagnostic]:
        """Return the records from number `first` on, the oldest first, at most `most` of them."""
        raw = self._raw_diagnostics(first)[:most]
        around = self._around(raw)
        return [around.diagnostic(one) for one in raw.tolist()]

    def faults(self, first: int = 0, most: int | None = None) -> list[Fault]:
        """Return the records from number `first` on, the oldest first, at most `most` of them."""
        raw = self._raw_faults(first)[:most]
        around = _Around(self._tasks() if raw.size else (), raw[:0])
        return [around.fault(one) for one in raw.tolist()]

    def kinds(self, since: Place = START, core: int | None = None, cycle: int = 0) -> Complaints:
        """Return each kind once, for records after a position, optionally of one core and from a cycle on."""
        raw, refused = self._raw_diagnostics(since.diagnostics), self._raw_faults(since.faults)
        place = Place(since.diagnostics + len(raw), since.faults + len(refused))
        if core is not None or cycle:
            raw, refused = (
                one[(one["cycle"] >= cycle) & ((one["core"] == core) if core is not None else True)]
                for one in (raw, refused)
            )
        around = self._around(raw) if raw.size else _Around(self._tasks() if refused.size else (), refused)
        errors = np.isin(raw["code"], [int(code) for code in _dma_codes()])
        keys = _key(raw["core"], raw["code"], raw["block"], raw["reg"], np.where(errors, raw["value"], 0))
        found = [
            Complaint(count, around.diagnostic(raw[first].tolist()), around.diagnostic(raw[last].tolist()))
            for count, first, last in _kinds(keys)
        ]
        keys = _key(refused["core"], refused["client"], refused["kind"])
        lost = [
            Complaint(count, around.fault(refused[first].tolist()), around.fault(refused[last].tolist()))
            for count, first, last in _kinds(keys)
        ]
        return Complaints(found, lost, place, max(place) >= MOST)

    def _raw_diagnostics(self, first: int) -> np.ndarray:
        return self._read("rk_diagnostics", lib.DiagnosticEventC, first)

    def _raw_faults(self, first: int = 0) -> np.ndarray:
        return self._read("rk_faults", lib.FaultEventC, first)

    def _around(self, raw: np.ndarray) -> _Around:
        """Return what explains some diagnostics.

        Refused accesses are included only if one of them is a DMA error.
        """
        if not raw.size:
            return _Around((), self._raw_faults(MOST)[:0])
        errors = np.isin(raw["code"], [int(code) for code in _dma_codes()]).any()
        return _Around(self._tasks(), self._raw_faults(0 if errors else MOST))


class _Around:
    """Tasks and refused accesses, ordered for bisection."""

    def __init__(self, tasks: Sequence[TaskSpan], faults: np.ndarray) -> None:
        self._faults = faults
        self._begun: dict[int, tuple[list[int], list[TaskSpan]]] = {}
        for task in tasks:
            starts, records = self._begun.setdefault(task.core, ([], []))
            starts.append(task.start)
            records.append(task)
        self._refused: dict[tuple[int, int, bool], tuple[list[int], list[int]]] = {}

    def task(self, core: int, cycle: int) -> int | None:
        """See `diagnostics.task_at`."""
        starts, records = self._begun.get(core, ([], []))
        at = bisect_right(starts, cycle)
        if not at:
            return None
        record = records[at - 1]
        return record.task if record.end is None or cycle <= record.end else None

    def address(self, core: int, client: int, write: bool, cycle: int) -> int | None:
        """See `diagnostics.refused_at`."""
        key = core, client, write
        if key not in self._refused:
            faults = self._faults
            mine = (faults["core"] == core) & (faults["client"] == client)
            mine &= np.isin(faults["kind"], words.WRITE_FAULTS) == write
            self._refused[key] = faults["cycle"][mine].tolist(), faults["address"][mine].tolist()
        cycles, addresses = self._refused[key]
        at = bisect_right(cycles, cycle)
        return addresses[at - 1] if at else None

    def diagnostic(self, record: Any) -> Diagnostic:
        """Return the text for a `DiagnosticEventC`, given as a tuple."""
        cycle, core, code, block, offset, value, _ = record
        write = words.DMA_ERRORS.get(diagnostic_name(code))
        address = None if write is None else self.address(core, value, write, cycle)
        task = self.task(core, cycle - words.LAG)
        return words.make_diagnostic(cycle, core, code, block, offset, value, task, address)

    def fault(self, record: Any) -> Fault:
        """Return the text for a `FaultEventC`, given as a tuple."""
        cycle, address, core, client, kind, _ = record
        return words.make_fault(cycle, core, client, address, kind, self.task(core, cycle))


def read_log(call: Callable[[int, Any, int], int], struct: type[ct.Structure], first: int = 0) -> np.ndarray:
    """Return the records of a library's log from number `first` on, as an array with the struct's members.

    Parameters
    ----------
    call : (first, buffer, its size in records) fills the buffer and returns the number of records.
    """
    parts: list[np.ndarray] = []
    room = _ROOM_FIRST
    while True:
        buffer = (struct * room)()
        count = call(first, buffer, room)
        parts.append(np.frombuffer(memoryview(buffer), np.dtype(struct), count))
        if count < room:
            return parts[0] if len(parts) == 1 else np.concatenate(parts)
        first, room = first + count, _ROOM_THEN


def _dma_codes() -> tuple[int, ...]:
    return tuple(DIAGNOSTICS.index(name) for name in words.DMA_ERRORS)


def _key(*columns: np.ndarray) -> np.ndarray:
    """Combine columns into one number, the first one in the lowest bits."""
    key = np.zeros(len(columns[0]), np.uint64)
    for column, place in zip(columns, (0, 4, 20, 28, 44), strict=False):
        key |= column.astype(np.uint64) << np.uint64(place)
    return key


def _kinds(keys: np.ndarray) -> list[tuple[int, int, int]]:
    """Return (count, first position, last position) of each number, in the order of the first positions."""
    _, first, counts = np.unique(keys, return_index=True, return_counts=True)
    _, behind = np.unique(keys[::-1], return_index=True)
    found = zip(counts.tolist(), first.tolist(), (len(keys) - 1 - behind).tolist(), strict=True)
    return sorted(found, key=lambda kind: kind[1])
