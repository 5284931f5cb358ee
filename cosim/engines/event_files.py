"""Files that the events of a run go to when its engine closes."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cosim import progress
from waves import events
from waves.events import EventLog

if TYPE_CHECKING:
    from waves.spec import TraceSpec

BESIDE = ".events.parquet"
"""Ending of the event log that is written beside a waveform, in place of the waveform's own."""


FOREVER = (1 << 63) - 1
"""Later than every cycle."""


@dataclass(frozen=True)
class EventFiles:
    """What is recorded and where it goes.

    Members
    -------
    events, timeline : event log (.parquet or .arrow) and Perfetto trace; None: not wanted.
    kinds : of events, None for all.
    first, last : first and last cycle, None: to the end.
    window : cut at the end to the cycles of the engine's waveform, whose window only the run tells.

    Raises
    ------
    EventsError
        where a package is missing that the files need.
    ValueError
        for an unknown kind.
    """

    events: Path | None = None
    timeline: Path | None = None
    kinds: tuple[str, ...] | None = None
    first: int = 0
    last: int | None = None
    window: bool = False

    def __post_init__(self) -> None:
        events.check_kinds(self.kinds or ())
        if self.events is not None:
            events.check_path(self.events)
        if self.timeline is not None:
            from waves import timeline

            timeline.check()

    def write(self, recorded: EventLog) -> None:
        """Write the files of what has been recorded, and say so."""
        log = recorded
        if self.kinds is not None:
            log = recorded.where(kind=set(self.kinds))
            log.meta = {**log.meta, "kinds": list(self.kinds)}
        first, last = self.first, self.last
        if self.window and recorded.meta.get("traced"):
            first, last = recorded.meta["traced"]
        if first > recorded.meta["first"] or last != recorded.meta["last"]:
            log = log.between(first, FOREVER if last is None else last)
            log.meta = {**log.meta, "first": max(first, recorded.meta["first"]), "last": last}
        if self.events is not None:
            events.save(log, self.events)
            progress.say(f"events: {len(log):,} in {self.events}")
        if self.timeline is not None:
            from waves.timeline import write_timeline

            write_timeline(log, self.timeline)
            progress.say(f"timeline: {self.timeline} (open it at ui.perfetto.dev)")
        if log.dropped:
            lost = ", ".join(f"{kind} {count:,}" for kind, count in log.dropped.items())
            print(
                f"rkcosim: the event log was full after {log.meta['limit']:,} events; left out: {lost} "
                "(fewer kinds or a window of cycles leave room)",
                file=sys.stderr,
            )


def beside(trace: TraceSpec) -> EventFiles | None:
    """The event log of a waveform's window, None (and a line that says so) where pyarrow is missing."""
    if not events.can_save():
        progress.say(f"no event log beside {trace.path}: {events.MISSING}")
        return None
    path = trace.path.with_suffix(BESIDE)
    stop = trace.stop
    if trace.start.kind != "cycle" or (stop is not None and stop.kind != "cycle") or trace.limit:
        return EventFiles(path, window=True)
    last = None if stop is None else max(stop.cycle - 1, trace.start.cycle)
    return EventFiles(path, first=trace.start.cycle, last=last)


_wanted: ContextVar[list[EventFiles] | None] = ContextVar("rkcosim_event_files", default=None)


@contextmanager
def writing(files: Sequence[EventFiles]) -> Iterator[None]:
    """The first engine that is opened within the `with` block writes these files when it closes."""
    token = _wanted.set(list(files) or None)
    try:
        yield
    finally:
        _wanted.reset(token)


def asked() -> bool:
    """Whether an engine opened now would write files."""
    return bool(_wanted.get())


def take() -> list[EventFiles]:
    """What the engine that is being opened shall write; nothing for those after it."""
    files = _wanted.get()
    _wanted.set(None)
    return files or []
