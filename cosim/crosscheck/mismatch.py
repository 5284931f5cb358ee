"""The waveform around the write of a wrong byte: the run is repeated, as it is the same every time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from waves.spec import AFTER, SpecError, TraceSpec, When

Rerun = Callable[[TraceSpec | None, int | None], list[int]]
"""Runs all again with a waveform, or with a watch on an address, and gives the cycles of its writes."""


def wants_mismatch(trace: TraceSpec | None, check: bool) -> bool:
    """Whether a waveform is to begin at a wrong byte.

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


def trace_mismatch(trace: TraceSpec, address: int, rerun: Rerun) -> tuple[int | None, str]:
    """Trace the cycles around the last write to an address whose byte is wrong.

    Returns
    -------
    The cycle of that write, None if there is none, and a line for people.
    """
    writes = rerun(None, address)
    if not writes:
        return None, f"no waveform: nothing wrote the wrong byte at 0x{address:08X}, it kept its old value"
    cycle, before = writes[-1], trace.before or 0
    stop = trace.stop if trace.stop is not None else When.parse(cycle + AFTER)
    start = When.parse(max(cycle - before, 0))
    rerun(replace(trace, start=start, before=0, stop=stop), None)
    return cycle, f"the wrong byte at 0x{address:08X} was written in cycle {cycle:,}"


def run_watched(
    device: Any, trace: TraceSpec | None, address: int | None, run: Callable[[], object]
) -> list[int]:
    """Run on a fresh device as a `Rerun` asks for."""
    if trace is not None:
        device.trace(trace)
    if address is not None:
        device.watch_memory(address)
    run()
    return device.memory_writes() if address is not None else []
