"""`rkcosim report`: an HTML page of one run, or of two runs compared, from their files."""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any

from rkcosim.cli.app import Options, argument, command, option

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
    advice: Path | None = option(
        "File that `rkcosim advise` wrote with --json for the same network; its changes become a section."
    )
    output: Path = option("HTML file to write.", "-o", "--output", default=MISSING, writes=True)
    clock: float = option(
        "Clock of the NPU in GHz, used to convert cycles to times.", metavar="GHZ", default=1.0
    )


@command(
    "rkcosim report run.json -o run.html",
    "rkcosim report run.json run.parquet -o run.html --clock 0.9",
    "rkcosim report run.json --advice advice.json -o run.html",
    "rkcosim report before.json after.json -o compared.html",
)
def report_command(asked: ReportOptions) -> None:
    """Make one HTML page of a run, or of two runs compared.

    It contains a table of layers, the roofline, bytes, waits, time, memory and an estimate of the energy.
    """
    from rkcosim.measure import report
    from rkcosim.measure.energy.text import summary
    from rkcosim.measure.report import compare
    from rkcosim.measure.report.energy import energy_or_none

    logs = [file for file in asked.files if file.suffix in EVENTS]
    runs = [file for file in asked.files if file.suffix not in EVENTS]
    if not 1 <= len(runs) <= 2 or len(logs) > 2 - len(runs):
        raise report.ReportError(
            "give the JSON file of a run, and optionally its event log or another run's JSON file"
        )
    if asked.advice is not None and len(runs) == 2:
        raise report.ReportError("--advice is about one run, not about two that are compared")
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
    advice = None
    if asked.advice is not None:
        from rkcosim.measure.report.advice import read_advice

        advice = read_advice(asked.advice, run)
    with report.damaged(*asked.files):
        report.write(asked.output, run, log, asked.clock, advice)
    print(f"report of {run.title}: {asked.output}")
    said: dict[str, Any] = {"run": run.title, "output": str(asked.output), "spent": run.spent()}
    if (energy := energy_or_none(run, asked.clock)) is not None:
        for line in summary(energy):
            print(line)
        said["energy"] = energy.as_json()
    asked.write(said)
