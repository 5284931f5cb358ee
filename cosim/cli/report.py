"""`rkcosim report`: a page of one run, or of two compared, from their files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

EVENTS = (".parquet", ".arrow", ".feather", ".ipc")
"""Endings of event logs."""


def report_command(files: list[Path], output: Path, clock: float) -> None:
    """Write the page of a run (and its event log).

    Raises
    ------
    ReportError, waves.events.EventsError
        for files that no page can be made of.
    """
    from cosim import report

    logs = [file for file in files if file.suffix in EVENTS]
    runs = [file for file in files if file.suffix not in EVENTS]
    if len(runs) != 1 or len(logs) > 1:
        raise report.ReportError("give the JSON file of one run, and its event log if there is one")
    log = None
    if logs:
        from waves import events

        log = events.load(logs[0])
    run = report.read(runs[0])
    report.write(output, run, log, clock)
    print(f"report of {run.title}: {output}")


def write_page(path: Path, data: dict[str, Any], log: Any = None) -> None:
    """Write the page of a run that just ended, from what its JSON file would have."""
    from cosim import report

    report.write(path, report.from_json(data), log)
    print(f"report: {path}")
