"""The simulated machine's kernel log."""

from __future__ import annotations

import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partialmethod
from typing import TextIO

from rkcosim.base.failures import Failures, is_internal, one_line

LEVELS = ("err", "warn", "info", "debug")
"""Levels from the most to the least important."""


@dataclass(frozen=True)
class Line:
    """One line: `level` of `LEVELS`, `seconds` of device time, `text` without the time."""

    level: str
    seconds: float
    text: str

    def __str__(self) -> str:
        return f"[{self.seconds:12.6f}] {self.text}"


class Log:
    """Lines as shown by `dmesg`; at most `keep` lines are kept, the oldest are dropped.

    Parameters
    ----------
    stream
        Every line up to `level` is written here immediately; None: nowhere.
    level
        The least important level that is written to `stream`.
    keep
        Number of lines that are kept for iteration.

    Raises
    ------
    ValueError
        If `level` is not one of `LEVELS`.
    """

    def __init__(self, stream: TextIO | None = None, level: str = "info", keep: int = 10_000) -> None:
        if level not in LEVELS:
            raise ValueError(f"level must be one of {', '.join(LEVELS)}, not {level!r}")
        self.stream, self.level = stream, level
        self.clock: Callable[[], float] = lambda: 0.0
        """Returns seconds of device time."""
        self.failures: Failures | None = None
        """Takes the unforeseen errors of the kernel's model, which are also lines of the log."""
        self._lines: deque[Line] = deque(maxlen=keep)
        self._lock = threading.Lock()

    def add(self, level: str, text: str) -> None:
        """Append a text; each of its lines becomes one line of the log."""
        with self._lock:
            for part in text.splitlines() or [""]:
                line = Line(level, self.clock(), part)
                self._lines.append(line)
                if self.stream is not None and LEVELS.index(level) <= LEVELS.index(self.level):
                    try:
                        print(line, file=self.stream, flush=True)
                    except (OSError, ValueError):
                        self.stream = None  # a closed pipe must not stop the kernel

    err, warn = partialmethod(add, "err"), partialmethod(add, "warn")
    info, debug = partialmethod(add, "info"), partialmethod(add, "debug")
    """Append a text with this level."""

    def failed(self, what: str, error: BaseException) -> None:
        """Report an exception that nothing has handled; `what` says where it occurred, as "SUBMIT"."""
        kind = "internal error" if is_internal(error) else "error"
        self.err(f"rkcosim: {kind} in {what}: {one_line(error)}")
        self.debug("".join(traceback.format_exception(error)))
        if self.failures is not None and is_internal(error):
            self.failures.add(what, error)

    def __iter__(self) -> Iterator[Line]:
        with self._lock:
            return iter(list(self._lines))

    def text(self) -> str:
        """All lines that are kept, in the format of `dmesg`."""
        return "".join(f"{line}\n" for line in self)
