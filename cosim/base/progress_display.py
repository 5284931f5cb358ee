"""Progress display: a live line on a terminal or in a notebook, and occasional plain lines elsewhere."""

from __future__ import annotations

import html
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rkcosim.base import progress
from rkcosim.base.progress import Step

AFTER = 2.0
"""Seconds before a line appears."""

PLAIN_EVERY = 20.0
"""Seconds between two plain lines, and before the first one."""

LINGER = 0.4
"""Seconds for which the line remains after the last step, so that it does not flicker between two steps."""

REFRESH = 0.1
"""Seconds between two updates."""

RATE_WINDOW = 3.0
"""Seconds over which the rate is averaged."""

NOTEBOOK_REFRESH = 0.5
"""Seconds between two updates in a notebook."""

BAR = 22
"""Columns of the bar."""

LONG = 3600.0
"""Bounds on the time left are not shown from this number of seconds on."""

WORDS = 24
"""Minimum number of columns for the words before the bar; if they do not fit, there is no bar."""


@contextmanager
def shown(quiet: bool = False) -> Iterator[None]:
    """Show progress within the `with` block, as far as the terminal and the user allow it."""
    if quiet:
        with progress.listen(Silent()):
            yield
        return
    live = sys.stderr.isatty() and os.environ.get("TERM", "") not in ("", "dumb")
    watcher = LiveLine() if live else NotebookLine() if in_notebook() else PlainLines()
    try:
        with progress.listen(watcher):
            yield
    finally:
        watcher.close()


@contextmanager
def shown_once() -> Iterator[None]:
    """Show progress within the `with` block, unless something shows it already."""
    if progress.is_shown():
        yield
        return
    with shown():
        yield


def in_notebook() -> bool:
    """Return whether this process runs the cells of a notebook, whose display IPython provides."""
    ipython = sys.modules.get("IPython")
    running = ipython.get_ipython() if ipython is not None else None
    return running is not None and hasattr(running, "kernel")


class Silent:
    """Shows no progress."""

    def say(self, text: str) -> None:
        """Ignore the line."""

    def tick(self, engine: Any) -> None:
        """Do nothing."""


class PlainLines:
    """Lines on standard error: messages of libraries, and occasionally the present steps.

    A thread reads the steps; engines store their figures when they tick.

    Parameters
    ----------
    every : seconds between two lines about the steps.
    pause : minimum number of seconds between two updates from an engine.
    """

    def __init__(self, every: float = PLAIN_EVERY, pause: float = 1.0) -> None:
        self._every, self._pause, self._looked = every, pause, 0.0
        self._cycle: int | None = None
        self._trace: int | None = None
        self._ended = threading.Event()
        self._thread: threading.Thread | None = threading.Thread(
            target=self._watch, name="progress", daemon=True
        )
        try:
            self._thread.start()
        except RuntimeError:  # the limit of threads; the command can do without
            self._thread = None

    def say(self, text: str) -> None:
        """Print the line."""
        print(f"rkcosim: {text}", file=sys.stderr, flush=True)

    def tick(self, engine: Any) -> None:
        """Store an engine's figures and let the steps read it, at most once per `pause`."""
        now = time.monotonic()
        if now - self._looked < self._pause:
            return
        self._looked, self._cycle = now, engine.cycle
        self._trace = engine.trace_bytes() if engine.can_trace else None
        for step in list(progress.steps):
            if step.follow is not None:
                step.follow(engine)

    def close(self) -> None:
        """Stop showing progress."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _watch(self) -> None:
        said = time.monotonic()
        while not self._ended.wait(min(self._every / 10, 1.0)):
            now = time.monotonic()
            steps = [step for step in list(progress.steps) if not step.background]
            if not steps:
                said, self._cycle = now, None
            elif now - max(said, steps[0].started) >= self._every:
                said = now
                words = looked_at(steps)
                cycles = f", {self._cycle:,} cycles" if self._cycle is not None else ""
                self.say(f"{words} ({clock(now - steps[0].started)}{cycles})")


class StepLine(PlainLines):
    """A line that shows the steps all the time, and takes lines of text as the detail of the last one."""

    def __init__(self) -> None:
        super().__init__(pause=REFRESH)

    def say(self, text: str) -> None:
        """Show a line as the detail of the step in progress, or on standard error if there is none."""
        if progress.steps and not progress.steps[-1].background:
            progress.steps[-1].detail = text
        else:
            super().say(text)


class LiveLine(StepLine):
    """One line of a terminal: the steps in words, a bar, and figures."""

    def __init__(self) -> None:
        self._bar: Any = None
        super().__init__()

    def _watch(self) -> None:
        seen = 0.0
        try:
            while not self._ended.wait(REFRESH):
                now, steps = time.monotonic(), list(progress.steps)
                if steps:
                    seen = now
                    if self._bar is None and now - steps[0].started >= AFTER:
                        self._begin()
                elif now - seen > LINGER:
                    self._end()
                if self._bar is not None and steps:
                    self._draw([step for step in steps if not step.background] or steps, now)
        finally:
            self._end()

    def _begin(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn
        from rich.table import Column

        self._bar = Progress(
            TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True)),
            BarColumn(BAR),
            TextColumn("{task.fields[figures]}", markup=False, table_column=Column(no_wrap=True)),
            console=Console(file=sys.stderr, highlight=False),
            auto_refresh=False,
            transient=True,
            # Text printed while the line is shown appears above it; pipes are not affected.
            redirect_stdout=sys.stdout.isatty(),
            speed_estimate_period=RATE_WINDOW,
        )
        self._bar.add_task("", total=1.0, figures="")
        self._bar.add_task("cycles", total=None, visible=False)  # measures the rate
        self._bar.start()

    def _end(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _draw(self, steps: list[Step], now: float) -> None:
        """Show the steps in words, a bar if the share is known and there is room, and the figures."""
        words = looked_at(steps)
        main = next((step for step in steps if step.total), steps[0])
        limited = next((step for step in reversed(steps) if step.limit), None)
        figures, filled = self._figures(main, limited, now)
        line, cycles = self._bar.task_ids
        room = self._bar.console.width - 1 - len(figures)
        bar = filled is not None and room >= BAR + WORDS
        self._bar.columns[1].bar_width = BAR if bar else 0
        room = max(room - (BAR + 2 if bar else 2), 1)
        words = words if len(words) <= room else f"{words[: room - 1]}…"
        self._bar.update(cycles, completed=self._cycle)
        self._bar.update(line, description=words, completed=min(filled or 0.0, 1.0), figures=figures)
        self._bar.refresh()

    def _figures(self, main: Step, limited: Step | None, now: float) -> tuple[str, float | None]:
        """Return the known figures (share, cycles, rate, time left, size of trace), and the share done."""
        parts, left = [], None
        share = min(main.done / main.total, 1.0) if main.total else None
        filled = share
        if share is not None:
            parts.append(f"{share:.0%}")
        if self._cycle is not None:
            rate = self._bar.tasks[1].speed
            if limited is not None and limited.limit:
                gone = self._cycle - limited.since
                parts.append(f"{gone:,} of at most {limited.limit:,} cycles")
                filled = gone / limited.limit if share is None else share
                most = (limited.limit - gone) / rate if rate else LONG
                left = f"at most {clock(most)} left" if most < LONG else None
            else:
                parts.append(f"{self._cycle:,} cycles")
            if rate:
                parts.append(f"{quantity(rate)}/s")
        passed = now - main.started
        if share and (share > 0.005 or passed > 10):
            left = f"{clock(passed * (1 - share) / share)} left"
        parts.append(left or clock(passed))
        if self._trace is not None:
            parts.append(f"trace {quantity(self._trace)}B")
        return "  ".join(parts), filled


class NotebookLine(StepLine):
    """One line below a notebook's cell, which disappears at the end: the steps in words, a bar, the time."""

    def __init__(self) -> None:
        self._shown: Any = None
        super().__init__()

    def _watch(self) -> None:
        try:
            while not self._ended.wait(NOTEBOOK_REFRESH):
                now, steps = time.monotonic(), list(progress.steps)
                if steps and now - steps[0].started >= AFTER:
                    self._draw([step for step in steps if not step.background] or steps, now)
        finally:
            if self._shown is not None:
                self._shown.update({"text/plain": ""}, raw=True)

    def _draw(self, steps: list[Step], now: float) -> None:
        words = looked_at(steps)
        main = next((step for step in steps if step.total), steps[0])
        share = min(main.done / main.total, 1.0) if main.total else None
        figures = f"{share:.0%}, " if share is not None else ""
        figures += f"{self._cycle:,} cycles, " if self._cycle is not None else ""
        figures += clock(now - steps[0].started)
        value = "" if share is None else f' value="{share:.4f}"'
        bar = f'<progress max="1"{value} style="width: 12em"></progress>'
        page = f"<div>{html.escape(words)} {bar} {html.escape(figures)}</div>"
        data = {"text/plain": f"{words} ({figures})", "text/html": page}
        if self._shown is None:
            from IPython.display import DisplayHandle

            self._shown = DisplayHandle()
            self._shown.display(data, raw=True)
        else:
            self._shown.update(data, raw=True)


def looked_at(steps: list[Step]) -> str:
    """Return the steps in words, after updating each."""
    for step in steps:
        if step.poll is not None:
            step.poll()
    return " · ".join(describe(step) for step in steps)


def describe(step: Step) -> str:
    """Describe a step in words: what it does, how much of it is done, and the detail."""
    words = step.what
    if step.total and step.unit:
        words += f" {min(int(step.done), int(step.total)):,}/{step.total:,.0f} {step.unit}"
    return f"{words}: {step.detail}" if step.detail else words


def clock(seconds: float) -> str:
    """Format seconds as 0:07, 12:34 or 3:07:00."""
    whole = max(0, round(seconds))
    hours, rest = divmod(whole, 3600)
    minutes, left = divmod(rest, 60)
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes}:{left:02}"


def quantity(value: float) -> str:
    """Format a number with a unit prefix: 779 k, 1.2 M, 85."""
    for limit, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if value >= limit:
            scaled = value / limit
            return f"{scaled:.0f}{unit}" if scaled >= 100 else f"{scaled:.1f}{unit}"
    return f"{value:.0f} "


@contextmanager
def kick(what: str, tasks: int, device: Any, max_cycles: int) -> Iterator[None]:
    """Declare a kick of `tasks` tasks on `device` as a step; it is given up after `max_cycles`."""
    timed = device.has_cycles
    before = device.task_count()
    total = tasks if tasks > 1 else None
    limit = max_cycles if timed else None
    with progress.step(what, total, "tasks", since=device.cycle, limit=limit) as step:

        def follow(engine: Any) -> None:
            ended = sum(record.end is not None for record in engine.task_log()[before:])
            step.done = min(ended, tasks)

        def poll() -> None:
            step.done = min(device.task_count() - before, tasks)

        if timed:
            step.follow = follow
        else:
            step.poll = poll
        yield
