"""`rkcosim report`: an HTML page of one run, or of two runs compared, from their files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rkcosim.cli.app import Options, argument, command, option
from rkcosim.cli.results import versioned

if TYPE_CHECKING:
    from rkcosim.waves.events import EventLog

KINDS = ("burst", "mac", "stall", "busy", "packet", "irq", "task")
"""Kinds of events that the charts of a page use (`rkcosim.measure.report.eventcharts`)."""

EVENTS = (".parquet", ".arrow", ".feather", ".ipc")
"""File endings of event logs."""


@dataclass(frozen=True, kw_only=True)
class ReportOptions(Options):
    """Options of `rkcosim report`."""

    files: tuple[Path, ...] = argument(
        "File that `rkcosim run` or `rkcosim regcmd run` wrote with --json or --html; optionally the run's "
        "event log, or the file of a second run to compare with.",
        metavar="RUN.json [EVENTS.parquet | OTHER.json]",
    )
    output: Path = option("HTML file to write.", "-o", "--output", default=MISSING)
    clock: float = option(
        "Clock of the NPU in GHz, used to convert cycles to times.", metavar="GHZ", default=1.0
    )


@command(
    "rkcosim report run.json -o run.html",
    "rkcosim report run.json run.parquet -o run.html --clock 0.9",
    "rkcosim report before.json after.json -o compared.html",
)
def report_command(asked: ReportOptions) -> None:
    """Make one HTML page of a run, or of two runs compared.

    It contains a table of layers, the roofline, bytes, waits, time and memory.
    """
    from rkcosim.measure import report
    from rkcosim.measure.report import compare

    logs = [file for file in asked.files if file.suffix in EVENTS]
    runs = [file for file in asked.files if file.suffix not in EVENTS]
    if not 1 <= len(runs) <= 2 or len(logs) > 2 - len(runs):
        raise report.ReportError(
            "give the JSON file of a run, and optionally its event log or another run's JSON file"
        )
    if len(runs) == 2:
        before, after = map(report.read, runs)
        with report.damaged(*runs):
            compare.write(asked.output, before, after, asked.clock)
        print(f"{before.title} and {after.title} compared: {asked.output}")
        asked.write(compare.as_json(before, after))
        return
    log = None
    if logs:
        from rkcosim.waves import events

        log = events.load(logs[0])
    run = report.read(runs[0])
    with report.damaged(*asked.files):
        report.write(asked.output, run, log, asked.clock)
    print(f"report of {run.title}: {asked.output}")
    asked.write({"run": run.title, "output": str(asked.output), "spent": run.spent()})


class Kept:
    """The recorded events of a run for a page; `log` is None if the engine records none."""

    log: EventLog | None = None


@contextmanager
def keeping(html: Path | None) -> Iterator[Kept]:
    """Let the engine that is opened within the block keep its events, if a page is requested."""
    from rkcosim.engines.event_files import EventFiles, take, writing

    kept = Kept()
    if html is None:
        yield kept
        return

    class Keep(EventFiles):
        def write(self, recorded: EventLog) -> None:
            kept.log = recorded

    with writing([*take(), Keep(kinds=KINDS)]):
        yield kept


def write_page(path: Path, data: dict[str, Any], log: Any = None) -> None:
    """Write the page of a run that has just ended, from the contents of its JSON file."""
    from rkcosim.measure import report

    report.write(path, report.from_json(versioned(data)), log)
    print(f"report: {path}")
