"""The HTML report of a run that has just ended: its events are kept until the page is written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rkcosim.base import versioned

if TYPE_CHECKING:
    from rkcosim.waves.events import EventLog

KINDS = ("burst", "mac", "stall", "busy", "packet", "irq", "task")
"""Kinds of events that the charts of a page use (`rkcosim.measure.report.eventcharts`)."""


class Kept:
    """The recorded events of a run for a page; `log` is None if the engine records none."""

    log: EventLog | None = None


@contextmanager
def keeping(html: Path | None) -> Iterator[Kept]:
    """Let the engine that is opened within the block keep its events, if a page is requested."""
    kept = Kept()
    if html is None:
        yield kept
        return
    from rkcosim.engines.event_files import EventFiles, take, writing

    class Keep(EventFiles):
        def write(self, recorded: EventLog) -> None:
            kept.log = recorded

    with writing([*take(), Keep(kinds=KINDS)]):
        yield kept


def write_page(path: Path, data: dict[str, Any], log: Any = None) -> None:
    """Write the page of a run that has just ended, from the contents of its JSON file."""
    from rkcosim.measure.report.data import from_json
    from rkcosim.measure.report.page import write

    write(path, from_json(versioned(data)), log)
    print(f"report: {path}")
