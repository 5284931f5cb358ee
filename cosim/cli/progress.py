"""One live line on a terminal for work that takes over two seconds; plain lines or nothing elsewhere."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cosim import progress
from cosim.progress import Step

AFTER = 2.0
"""Seconds before a line appears."""

LINGER = 0.4
"""Seconds for which the line stays when nothing is under way, lest it flickers between two steps."""

REFRESH = 0.1
"""Seconds between two looks at what is under way."""

RATE_WINDOW = 3.0
"""Seconds over which the rate is taken."""

BAR = 22
"""Columns of the bar."""

LONG = 3600.0
"""Seconds from which a bound on the time left says nothing."""

WORDS = 24
"""Columns that the words ahead of the bar have at least; where they would not, there is no bar."""


def wanted(quiet: bool) -> bool:
    """Whether a live line may be shown: on a terminal that understands it, unless told to be quiet."""
    return not quiet and sys.stderr.isatty() and os.environ.get("TERM", "") not in ("", "dumb")


@contextmanager
def shown(quiet: bool = False) -> Iterator[None]:
    """Show what is under way within the `with` block, as far as the terminal and the user allow it."""
    if quiet:
        with progress.listen(Silent()):
            yield
    elif wanted(quiet):
        line = LiveLine()
        try:
            with progress.listen(line):
                yield
        finally:
            line.close()
    else:
        yield


class Silent:
    """Shows nothing."""

    def say(self, text: str) -> None:
        """Drop the line."""

    def tick(self, engine: Any) -> None:
        """Do not look."""


class LiveLine:
    """The line: a thread looks at the steps and draws; engines leave their figures in passing."""

    def __init__(self) -> None:
        self._live: Any = None
        self._console: Any = None
        self._ended = threading.Event()
        self._engine: int | None = None
        self._looked = 0.0
        self._samples: deque[tuple[float, int]] = deque()
        self._trace: int | None = None
        self._thread = threading.Thread(target=self._watch, name="progress", daemon=True)
        self._thread.start()

    # What libraries report

    def say(self, text: str) -> None:
        """Show a line in the live one, or above it where no step can take it."""
        if progress.steps and not progress.steps[-1].background:
            progress.steps[-1].detail = text
        else:
            print(f"rkcosim: {text}", file=sys.stderr, flush=True)

    def tick(self, engine: Any) -> None:
        """Note an engine's cycle and let the steps look at it, a few times a second."""
        now = time.monotonic()
        if now - self._looked < REFRESH:
            return
        self._looked = now
        if self._engine != id(engine):
            self._engine = id(engine)
            self._samples.clear()
        self._samples.append((now, engine.cycle))
        while self._samples[0][0] < now - RATE_WINDOW:
            self._samples.popleft()
        written = getattr(engine, "trace_bytes", None)
        self._trace = written() if written is not None else None
        for step in list(progress.steps):
            if step.follow is not None:
                step.follow(engine)

    def close(self) -> None:
        """Take the line away."""
        self._ended.set()
        self._thread.join()

    # The thread that draws

    def _watch(self) -> None:
        seen = 0.0
        try:
            while not self._ended.wait(REFRESH):
                now = time.monotonic()
                under_way = list(progress.steps)
                if under_way:
                    seen = now
                if self._live is None:
                    if under_way and now - under_way[0].started >= AFTER:
                        self._begin()
                elif not under_way and now - seen > LINGER:
                    self._end()
                if self._live is not None:
                    for step in under_way:
                        if step.poll is not None:
                            step.poll()
                    self._live.refresh()
        finally:
            self._end()

    def _begin(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = Console(file=sys.stderr, highlight=False)
        self._live = Live(
            get_renderable=self._line,
            console=self._console,
            auto_refresh=False,
            transient=True,
            # What is printed while the line is there goes above it; a pipe is left alone.
            redirect_stdout=sys.stdout.isatty(),
            redirect_stderr=True,
        )
        self._live.start()

    def _end(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _line(self) -> Any:
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        steps = list(progress.steps)
        if not steps:
            return Text("")
        steps = [step for step in steps if not step.background] or steps
        now = time.monotonic()
        main = next((step for step in steps if step.total), steps[0])
        limited = next((step for step in reversed(steps) if step.limit), None)
        share = min(main.done / main.total, 1.0) if main.total else None
        figures, used = self._figures(main, limited, share, now)
        numbers, room = "  ".join(figures), self._console.width
        table = Table.grid(padding=(0, 1))
        table.add_column(no_wrap=True, overflow="ellipsis")
        cells: list[Any] = [Text(" · ".join(describe(step) for step in steps))]
        filled = share if share is not None else used
        if filled is not None and room >= len(numbers) + BAR + WORDS:
            table.add_column(width=BAR)
            cells.append(ProgressBar(total=1.0, completed=min(filled, 1.0), width=BAR))
        table.add_column(no_wrap=True, min_width=min(len(numbers), room - 1))
        cells.append(Text(numbers))
        table.add_row(*cells)
        return table

    def _figures(
        self, main: Step, limited: Step | None, share: float | None, now: float
    ) -> tuple[list[str], float | None]:
        """Share, cycles, rate, time left, size of the trace as far as known; part of the limit used."""
        parts, used, left = [], None, None
        if share is not None:
            parts.append(f"{share:.0%}")
        rate = self._rate()
        if self._samples:
            cycle = self._samples[-1][1]
            if limited is not None and limited.limit:
                gone = cycle - limited.since
                parts.append(f"{gone:,} of at most {limited.limit:,} cycles")
                used = gone / limited.limit
                most = (limited.limit - gone) / rate if rate else LONG
                left = f"at most {clock(most)} left" if most < LONG else None
            else:
                parts.append(f"{cycle:,} cycles")
            if rate:
                parts.append(f"{quantity(rate)}/s")
        passed = now - main.started
        if share and (share > 0.005 or passed > 10):
            left = f"{clock(passed * (1 - share) / share)} left"
        parts.append(left or clock(passed))
        if self._trace is not None:
            parts.append(f"trace {quantity(self._trace)}B")
        return parts, used

    def _rate(self) -> float | None:
        """Cycles a second over the last seconds."""
        if len(self._samples) < 2:
            return None
        (begun, first), (now, last) = self._samples[0], self._samples[-1]
        return (last - first) / (now - begun) if now > begun and last > first else None


def describe(step: Step) -> str:
    """A step in words: what, how much of it, and the detail."""
    words = step.what
    if step.total and step.unit:
        words += f" {min(int(step.done), int(step.total)):,}/{step.total:,.0f} {step.unit}"
    return f"{words}: {step.detail}" if step.detail else words


def clock(seconds: float) -> str:
    """Seconds as 0:07, 12:34 or 3:07:00."""
    whole = max(0, round(seconds))
    hours, rest = divmod(whole, 3600)
    minutes, left = divmod(rest, 60)
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes}:{left:02}"


def quantity(value: float) -> str:
    """A number with a prefix: 779 k, 1.2 M, 85."""
    for limit, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if value >= limit:
            scaled = value / limit
            return f"{scaled:.0f}{unit}" if scaled >= 100 else f"{scaled:.1f}{unit}"
    return f"{value:.0f} "


@contextmanager
def kick(what: str, tasks: int, device: Any, max_cycles: int) -> Iterator[None]:
    """The step of a kick of `tasks` tasks on `device`, given up after `max_cycles`."""
    golden = hasattr(device, "reports")
    before = 0 if golden else len(device.task_log())
    limit = None if golden else max_cycles
    total = tasks if tasks > 1 else None
    with progress.step(what, total, "tasks", since=device.cycle, limit=limit) as step:

        def follow(engine: Any) -> None:
            ended = sum(record.end is not None for record in engine.task_log()[before:])
            step.done = min(ended, tasks)

        def poll() -> None:
            step.done = min(sum(len(reports) for reports in device.reports), tasks)

        if golden:
            step.poll = poll
        else:
            step.follow = follow
        yield
