"""Declarations of `rkcosim report` and of the option `--html`: a run as one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cosim.cli.app import App, examples
from cosim.cli.options import JsonOption

HtmlOption = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE", help="Also write the run as one HTML page to this file."),
]


def declare(app: App) -> None:
    """Add the command to an application."""
    app.command(
        epilog=examples(
            "rkcosim report run.json -o run.html",
            "rkcosim report run.json run.parquet -o run.html --clock 0.9",
            "rkcosim report before.json after.json -o compared.html",
        )
    )(report)


def report(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN.json [EVENTS.parquet | OTHER.json]",
            help="What `rkcosim run --json` or `rkcosim regcmd run --json` wrote (or --html: a page "
            "holds it); its event log, or a second run to compare with.",
        ),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="HTML file to write.")],
    clock: Annotated[float, typer.Option(metavar="GHZ", help="Clock for times.")] = 1.0,
    json: JsonOption = None,
) -> None:
    """Make one HTML page of a run: table, roofline, bytes, waits, time, memory; or of two compared."""
    from cosim.cli.report import report_command

    report_command(files, output, clock, json)
