"""Declaration of `rkcosim timeline`: an event log as a trace for ui.perfetto.dev."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cosim.cli.app import App, examples
from cosim.cli.options import JsonOption


def declare(app: App) -> None:
    """Add the command to an application."""
    app.command(
        epilog=examples(
            "rkcosim timeline build/run.events.parquet -o build/run.pftrace",
            "rkcosim timeline run.parquet -o window.pftrace --from 12000 --to 14000 --core 0",
        )
    )(timeline)


def timeline(
    events: Annotated[Path, typer.Argument(help="Event log (.parquet or .arrow) that a run wrote.")],
    output: Annotated[
        Path | None,
        typer.Option("-o", metavar="FILE", help="Trace to write; default: the log's name with .pftrace."),
    ] = None,
    first: Annotated[int, typer.Option("--from", min=0, metavar="CYCLE", help="First cycle to show.")] = 0,
    last: Annotated[
        int | None, typer.Option("--to", min=0, metavar="CYCLE", help="Last cycle to show.")
    ] = None,
    core: Annotated[int | None, typer.Option(min=0, max=2, help="Only this core.")] = None,
    json: JsonOption = None,
) -> None:
    """Turn an event log into a timeline: tracks per core and block, slices per task, counters.

    Open the file at https://ui.perfetto.dev (it stays on your machine).
    """
    from cosim.cli.timeline import timeline_command

    timeline_command(events, output, first, last, core, json)
