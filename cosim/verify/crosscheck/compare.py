"""Comparison of two memory images, and a waveform around the write of the first wrong byte."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from rkcosim.base import progress
from rkcosim.golden.task import Memory
from rkcosim.waves.spec import AFTER, SpecError, TraceSpec, When


class Image(Protocol):
    """Bytes at addresses: an engine's memory or the golden model's."""

    @property
    def ranges(self) -> dict[int, int]:
        """Return the size of every mapped range by its first address."""
        ...

    def view(self, iova: int, size: int, /) -> NDArray[np.uint8]:
        """Return the bytes of a part of one mapped range, uint8 of shape (size,)."""
        ...


def copy_memory(memory: Image) -> Memory:
    """Copy everything that is mapped into a memory of the golden model."""
    copy = Memory()
    for address, size in memory.ranges.items():
        copy.map(address, size)[:] = memory.view(address, size)
    return copy


@dataclass(frozen=True)
class Difference:
    """Result of a comparison: the first difference and the number of differing bytes."""

    address: int
    rtl: int
    golden: int
    count: int


def compare_images(rtl: Image, golden: Image, ranges: Iterable[tuple[int, int]]) -> Difference | None:
    """Compare two images over (address, size) ranges.

    Returns
    -------
    None if they are equal, else the first difference in address order with the count of differing bytes.
    """
    first: tuple[int, int, int] | None = None
    count = 0
    for address, size in sorted(ranges):
        left, right = rtl.view(address, size), golden.view(address, size)
        where = np.flatnonzero(left != right)
        count += where.size
        if first is None and where.size:
            at = int(where[0])
            first = (address + at, int(left[at]), int(right[at]))
    return None if first is None else Difference(*first, count)


def wants_mismatch(trace: TraceSpec | None, check: bool) -> bool:
    """Return whether a waveform begins at a wrong byte.

    Raises
    ------
    SpecError
        if nothing compares the results.
    """
    if trace is None or trace.start.kind != "mismatch":
        return False
    if not check:
        raise SpecError("--from mismatch needs --check: without it nothing is compared")
    return True


Repeat = Callable[[TraceSpec | None], AbstractContextManager[tuple[Any, Callable[[], object]]]]
"""Opens an engine like that of the first run, with or without a waveform.

Yields it with a function that runs it.
"""


def trace_mismatch(trace: TraceSpec, verdict: dict[str, Any], repeat: Repeat) -> dict[str, Any]:
    """Run twice again: to find the write of the first wrong byte, and for a waveform around it.

    Simulations are deterministic, so both runs repeat the one that was compared.

    Parameters
    ----------
    trace : what to write; begins at "mismatch".
    verdict : has the "address" of the wrong byte if something differs.

    Returns
    -------
    Additions to the verdict: the "cycle" of that write, None if nothing wrote the byte.
    """
    if "address" not in verdict:
        progress.say("no waveform: nothing differs")
        return {}
    address = verdict["address"]
    with repeat(None) as (engine, run):
        engine.watch_memory(address)
        run()
        writes = engine.memory_writes()
    if not writes:
        progress.say(f"no waveform: nothing wrote the wrong byte at 0x{address:08X}, it kept its old value")
        return {"cycle": None}
    cycle = writes[-1]
    stop = trace.stop if trace.stop is not None else When.parse(cycle + AFTER)
    start = When.parse(max(cycle - (trace.before or 0), 0))
    with repeat(replace(trace, start=start, before=0, stop=stop)) as (_, run):
        run()
    progress.say(f"the wrong byte at 0x{address:08X} was written in cycle {cycle:,}")
    return {"cycle": cycle}
