"""What is under way, for whoever shows it: libraries report here and know nothing of terminals.

A long piece of work is a `step`; an engine calls `tick` a few times a second while it runs.  Without a
listener (`listen`) all of this does nothing but print the lines of `say` on the error stream.
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
    """A piece of work under way.

    Members
    -------
    what : a few words, for people.
    total, done : how much there is and how much is done, in `unit`; `total` None where nobody knows.
    unit : word for what `done` counts; "" for parts that mean nothing to people.
    since, limit : engine's cycle at the beginning, and cycles after which the work is given up.
    detail : what exactly is being done now.
    follow : called with the engine at each of its ticks, to set `done` and `detail`.
    poll : the same without an engine, called from another thread: it may only look.
    background : only worth showing where nothing else is under way.
    started : `time.monotonic()` of the beginning.
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
        """Count what was done."""
        self.done += count


class Listener(Protocol):
    """Shows steps: it reads `steps` whenever it likes."""

    def say(self, text: str) -> None:
        """Take a line about something that takes long."""

    def tick(self, engine: Any) -> None:
        """Take the state of an engine that is running; on the thread that runs it."""


steps: list[Step] = []
"""What is under way, the outermost first."""

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


def say(text: str) -> None:
    """Tell people about something that takes long, in one line."""
    if _listeners:
        _listeners[-1].say(text)
    else:
        print(f"rkcosim: {text}", file=sys.stderr, flush=True)


def tick(engine: Any) -> None:
    """An engine is running and lets others look at it."""
    if _listeners and steps:
        _listeners[-1].tick(engine)


class Chunks:
    """How many cycles an engine runs before it looks up (Ctrl-C, `tick`): about a tenth of a second's.

    Parameters
    ----------
    most : cycles at most, where hardly any of them cost time.
    """

    WANTED = 0.1
    FIRST, LEAST = 64, 16
    GROWTH = 8

    def __init__(self, most: int) -> None:
        self.cycles, self._most = self.FIRST, most

    def took(self, cycles: int, seconds: float) -> None:
        """Learn that `cycles` cycles took `seconds`."""
        ideal = cycles * self.WANTED / max(seconds, 1e-6)
        self.cycles = int(min(max(ideal, self.LEAST), self.cycles * self.GROWTH, self._most))
