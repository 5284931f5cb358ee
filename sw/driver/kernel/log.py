"""The simulated machine's kernel log."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TextIO

LEVELS = ("err", "warn", "info", "debug")
"""Most to least important."""


@dataclass(frozen=True)
class Line:
    """One line: `level` of `LEVELS`, `seconds` of device time, `text` without the time."""

    level: str
    seconds: float
    text: str

    def __str__(self) -> str:
        return f"[{self.seconds:12.6f}] {self.text}"


class Log:
    """Lines as `dmesg` has them; the oldest ones go when `keep` is reached.

    Parameters
    ----------
    stream
        every line up to `level` is written here at once; None: nowhere.
    level
        the least important level that goes to `stream`.
    keep
        lines kept for iteration.
    """

    def __init__(self, stream: TextIO | None = None, level: str = "info", keep: int = 10_000) -> None:
        if level not in LEVELS:
            raise ValueError(f"level must be one of {', '.join(LEVELS)}, not {level!r}")
        self.stream, self.level = stream, level
        self.clock: Callable[[], float] = lambda: 0.0
        """Seconds of device time."""
        self._lines: deque[Line] = deque(maxlen=keep)
        self._lock = threading.Lock()

    def add(self, level: str, text: str) -> None:
        """Append a text; each of its lines becomes one of the log's."""
        with self._lock:
            for part in text.splitlines() or [""]:
                line = Line(level, self.clock(), part)
                self._lines.append(line)
                if self.stream is not None and LEVELS.index(level) <= LEVELS.index(self.level):
                    try:
                        print(line, file=self.stream, flush=True)
                    except (OSError, ValueError):
                        self.stream = None  # a closed pipe must not stop the kernel

    def err(self, text: str) -> None:
        """Append a line of level `err`."""
        self.add("err", text)

    def warn(self, text: str) -> None:
        """Append a line of level `warn`."""
        self.add("warn", text)

    def info(self, text: str) -> None:
        """Append a line of level `info`."""
        self.add("info", text)

    def debug(self, text: str) -> None:
        """Append a line of level `debug`."""
        self.add("debug", text)

    def __iter__(self) -> Iterator[Line]:
        with self._lock:
            return iter(list(self._lines))

    def text(self) -> str:
        """All lines that are kept, as `dmesg` prints them."""
        return "".join(f"{line}\n" for line in self)
