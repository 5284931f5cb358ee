"""Opens the session that an engine needs."""

from __future__ import annotations

from collections.abc import Sequence

from rkcosim.debug.base import BaseSession
from rkcosim.debug.deviations.against import Reference, Tolerance
from rkcosim.debug.golden.session import Session
from rkcosim.debug.opening import Debugged
from rkcosim.engines.protocol import GOLDEN, capabilities


def session_on(
    engine: str | None,
    work: Debugged,
    references: Sequence[Reference] = (),
    tolerance: Tolerance | None = None,
) -> BaseSession:
    """Return a session on an engine.

    Parameters
    ----------
    engine : name of the engine; "golden" or None: the task-level golden model.
    work, references, tolerance : as for `BaseSession`.

    Raises
    ------
    ValueError
        for an engine whose state cannot be saved, and for a stream that cannot be stepped through.
    BuildError
        if the engine cannot be built.
    """
    if not capabilities(engine or GOLDEN).has_cycles:
        return Session(work, references, tolerance)
    from rkcosim.debug.rtl.session import RtlSession

    return RtlSession(work, references, tolerance, engine=engine)
