"""Files to which the events of a run are written when its engine closes."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rkcosim.base import progress
from rkcosim.waves import events
from rkcosim.waves.events import EventLog

if TYPE_CHECKING:
    from rkcosim.waves.spec import TraceSpec

BESIDE = ".events.parquet"
"""Ending of the event log that is written next to a waveform; replaces the waveform's ending."""


FOREVER = (1 << 63) - 1
"""Later than every cycle."""


@dataclass(frozen=True)
class EventFiles:
    """The events to record and the files to write.

    Members
    -------
    events, timeline : event log (.parquet or .arrow) and Perfetto trace; None: not written.
    kinds : kinds of events, None for all.
    first, last : first and last cycle; None for `last`: to the end.
    window : True to cut the log at the end to the cycles of the engine's waveform, which are known only then.
    beside : True for the log next to a waveform, which nobody has named: without events it is not written.

    Raises
    ------
    EventsError
        if a package is missing that the files need.
    ValueError
        for an unknown kind.
    """

    events: Path | None = None
    timeline: Path | None = None
    kinds: tuple[str, ...] | None = None
    first: int = 0
    last: int | None = None
    window: bool = False
    beside: bool = False

    def __post_init__(self) -> None:
        events.check_kinds(self.kinds or ())
        if self.events is not None:
            events.check_path(self.events)
        if self.timeline is not None:
            from rkcosim.waves import timeline

            timeline.check()

    def write(self, recorded: EventLog) -> None:
        """Write the files of the recorded events, and report it."""
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
        if self.beside and not len(log):
            progress.say(f"events: none in the window, so that {self.events} is not written")
        elif self.events is not None:
            events.save(log, self.events)
            progress.say(f"events: {len(log):,} in {self.events}")
        if self.timeline is not None:
            from rkcosim.waves.timeline import write_timeline

            write_timeline(log, self.timeline)
            progress.say(f"timeline: {self.timeline} (open it at ui.perfetto.dev)")
        if log.dropped:
            lost = ", ".join(f"{kind} {count:,}" for kind, count in log.dropped.items())
            print(
                f"rkcosim: the event log was full after {log.meta['limit']:,} events; dropped: {lost} "
                "(record fewer kinds or a window of cycles)",
                file=sys.stderr,
            )


def beside(trace: TraceSpec) -> EventFiles | None:
    """Return the event log of a waveform's window; None (with a message) if pyarrow is missing."""
    if not events.can_save():
        progress.say(f"no event log is written next to {trace.path}: {events.MISSING}")
        return None
    path = trace.path.with_suffix(BESIDE)
    stop = trace.stop
    if trace.start.kind != "cycle" or (stop is not None and stop.kind != "cycle") or trace.limit:
        return EventFiles(path, window=True, beside=True)
    last = None if stop is None else max(stop.cycle - 1, trace.start.cycle)
    return EventFiles(path, first=trace.start.cycle, last=last, beside=True)


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
    """Return whether an engine opened now would write files."""
    return bool(_wanted.get())


def take() -> list[EventFiles]:
    """Return the files for the engine that is being opened; engines opened later get none."""
    files = _wanted.get()
    _wanted.set(None)
    return files or []
