"""`rkcosim report`: a page of one run, or of two compared, from their files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

EVENTS = (".parquet", ".arrow", ".feather", ".ipc")
"""Endings of event logs."""


def report_command(files: list[Path], output: Path, clock: float) -> None:
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
        return
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
