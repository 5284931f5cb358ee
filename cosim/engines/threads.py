"""How many threads simulate the cores of an engine; what comes out does not depend on it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

MOST = 3
"""A thread for each core."""

_chosen: int | None = None


def processors() -> int:
    """Processors that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1


def thread_count(wanted: int | None) -> int:
    """Threads of an engine: what is wanted, else what `using_threads` says, else one a processor.

    Raises
    ------
    ValueError
        for a number outside 1..3.
    """
    if wanted is None:
        wanted = _chosen
    if wanted is None:
        return min(MOST, processors())
    if not isinstance(wanted, int) or not 1 <= wanted <= MOST:
        raise ValueError(f"threads must be 1..{MOST}, not {wanted!r}")
    return wanted


def threads_chosen(wanted: int | None) -> bool:
    """Whether somebody chose the number; else the engine takes one thread while that is faster."""
    return wanted is not None or _chosen is not None


@contextmanager
def using_threads(count: int | None) -> Iterator[None]:
    """Engines opened in this process within the context have so many threads; None: no change."""
    global _chosen
    before = _chosen
    _chosen = thread_count(count) if count is not None else before
    try:
        yield
    finally:
        _chosen = before
