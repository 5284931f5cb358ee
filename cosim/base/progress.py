"""Progress of long work. Libraries report it here, independently of how it is displayed.

A long piece of work is a `step`; an engine calls `tick` a few times per second while it runs. Without a
listener (`listen`), only the lines of `say` are printed, on standard error.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass
class Step:
    """A piece of work in progress.

    Members
    -------
    what : short description for the user.
    total, done : amount of work, and the amount done, in `unit`; `total` is None if it is unknown.
    unit : what `done` counts; "" if the parts have no meaning for the user.
    since, limit : the engine's cycle at the start, and the number of cycles after which the work is given up.
    detail : what exactly is being done now.
    follow : called with the engine at each of its ticks; may set `done` and `detail`.
    poll : the same without an engine; called from another thread, so it may only read.
    background : True if the step is shown only when there is no other one.
    started : `time.monotonic()` at the start.
    """

    what: str
    total: float | None = None
    unit: str = ""
    since: int = 0
    limit: int | None = None
    done: float = 0.0
    detail: str = ""
    follow: Callable[[Any], None] | None = None
    poll: Callable[[], None] | None = None
    background: bool = False
    started: float = field(default_factory=time.monotonic)

    def advance(self, count: float = 1) -> None:
        """Add to the work done."""
        self.done += count


class Listener(Protocol):
    """Shows steps; it may read `steps` at any time."""

    def say(self, text: str) -> None:
        """Take a line about something that takes long."""

    def tick(self, engine: Any) -> None:
        """Take the state of a running engine; called on the thread that runs it."""


steps: list[Step] = []
"""Steps in progress, the outermost first."""

_listeners: list[Listener] = []


@contextmanager
def step(
    what: str,
    total: float | None = None,
    unit: str = "",
    *,
    since: int = 0,
    limit: int | None = None,
    background: bool = False,
) -> Iterator[Step]:
    """Declare the work of the `with` block as a step."""
    entry = Step(what, total, unit, since, limit, background=background)
    steps.append(entry)
    try:
        yield entry
    finally:
        steps.remove(entry)


@contextmanager
def listen(listener: Listener) -> Iterator[None]:
    """Report to `listener` within the `with` block."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def is_shown() -> bool:
    """Return whether a listener shows the progress."""
    return bool(_listeners)


def say(text: str) -> None:
    """Show one line about something that takes long."""
    if _listeners:
        _listeners[-1].say(text)
    else:
        print(f"rkcosim: {text}", file=sys.stderr, flush=True)


def tick(engine: Any) -> None:
    """Report that an engine is running, so that listeners can read its state."""
    if _listeners and steps:
        _listeners[-1].tick(engine)


class Chunks:
    """Number of cycles that an engine runs between checks for Ctrl-C and ticks: about a tenth of a second's.

    Parameters
    ----------
    most : maximum number of cycles, for phases in which cycles take hardly any time.
    """

    WANTED = 0.1
    FIRST, LEAST = 64, 16
    GROWTH = 8

    def __init__(self, most: int) -> None:
        self.cycles, self._most = self.FIRST, most

    def took(self, cycles: int, seconds: float) -> None:
        """Adapt to the measurement that `cycles` cycles took `seconds`."""
        ideal = cycles * self.WANTED / max(seconds, 1e-6)
        self.cycles = int(min(max(ideal, self.LEAST), self.cycles * self.GROWTH, self._most))
