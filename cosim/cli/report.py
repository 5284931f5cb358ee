"""`rkcosim report`: a page of one run, or of two compared, from their files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cosim.cli.exits import write_json
from cosim.engines.event_files import EventFiles, take, writing

if TYPE_CHECKING:
    from waves.events import EventLog

KINDS = ("burst", "mac", "stall", "busy", "packet", "irq", "task")
"""Kinds of events that a page's charts are made of (`cosim.report.eventcharts`)."""

EVENTS = (".parquet", ".arrow", ".feather", ".ipc")
"""Endings of event logs."""


@dataclass(frozen=True)
class Kept(EventFiles):
    """Events that are kept for a page instead of written to a file."""

    kinds: tuple[str, ...] | None = KINDS
    logs: list[EventLog] = field(default_factory=list)

    def write(self, recorded: EventLog) -> None:
        """Keep what has been recorded."""
        self.logs.append(recorded)

    @property
    def log(self) -> EventLog | None:
        """The events, once the engine has closed; None where it records none."""
        return self.logs[0] if self.logs else None


@contextmanager
def keeping(html: Path | None) -> Iterator[Kept]:
    """Let the engine that is opened within the block keep its events if a page is wanted."""
    kept = Kept()
    if html is None:
        yield kept
        return
    with writing([*take(), kept]):
        yield kept


def report_command(files: list[Path], output: Path, clock: float, json: Path | None) -> None:
    """Write the page of a run (and its event log), or of two runs compared.

    Raises
    ------
    ReportError, waves.events.EventsError
        for files that no page can be made of.
    """
    from cosim import report
    from cosim.report import compare

    logs = [file for file in files if file.suffix in EVENTS]
    runs = [file for file in files if file.suffix not in EVENTS]
    if not 1 <= len(runs) <= 2 or len(logs) > 2 - len(runs):
        raise report.ReportError("give the JSON file of a run, and its event log or another run's JSON file")
    if len(runs) == 2:
        before, after = map(report.read, runs)
        compare.write(output, before, after, clock)
        print(f"{before.title} and {after.title} compared: {output}")
        if json:
            write_json(json, compare.as_json(before, after))
        return
    log = None
    if logs:
        from waves import events

        log = events.load(logs[0])
    run = report.read(runs[0])
    report.write(output, run, log, clock)
    print(f"report of {run.title}: {output}")
    if json:
        write_json(json, {"schema_version": 1, "run": run.title, "output": str(output), "spent": run.spent()})


def write_page(path: Path, data: dict[str, Any], log: Any = None) -> None:
    """Write the page of a run that just ended, from what its JSON file would have."""
    from cosim import report

    report.write(path, report.from_json(data), log)
    print(f"report: {path}")
