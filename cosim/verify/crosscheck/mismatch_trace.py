"""A waveform around the write of the first wrong byte."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from rkcosim.base import progress
from rkcosim.waves.spec import AFTER, SpecError, TraceSpec, When


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
