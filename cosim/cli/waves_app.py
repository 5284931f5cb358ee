"""Declaration of `rkcosim waves`: files for waveform viewers, and pictures."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from cosim.cli.app import App, examples
from cosim.cli.options import JsonOption


class Viewer(StrEnum):
    """Programs that show waveforms."""

    gtkwave = "gtkwave"
    surfer = "surfer"


def declare(app: App) -> None:
    """Add the command to an application."""
    app.command(
        epilog=examples(
            "rkcosim waves build/pool.vcd",
            "rkcosim waves build/pool.vcd --svg pool.svg --from task:0 --signals 'core0.watch_*'",
        )
    )(waves)


def waves(
    wave: Annotated[Path, typer.Argument(help="Waveform (VCD or FST) that a run wrote with --trace.")],
    viewer: Annotated[
        Viewer | None, typer.Option(help="Viewer to open; default: the first of them that is installed.")
    ] = None,
    open_: Annotated[
        bool,
        typer.Option("--open/--no-open", help="Open a viewer (only if the output is a terminal)."),
    ] = True,
    svg: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw a window of the wave to this file instead.")
    ] = None,
    first: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="WHEN",
            help="Begin of the window: a cycle, task:N, layer:NAME, write:..., error.",
        ),
    ] = None,
    last: Annotated[
        str | None,
        typer.Option("--to", metavar="WHEN", help="End of the window (task:N, layer:NAME: where it ends)."),
    ] = None,
    signals: Annotated[
        list[str] | None,
        typer.Option(metavar="GLOB", help="Signals to draw, by the end of their names; repeatable."),
    ] = None,
    width: Annotated[int, typer.Option(min=400, max=20000, help="Width of the picture in pixels.")] = 1200,
    json: JsonOption = None,
) -> None:
    """Write the files that GTKWave and Surfer need to show a waveform well, and open a viewer; or draw it."""
    from cosim.cli.waves import draw_command, waves_command

    if svg is not None:
        draw_command(wave, svg, first, last, signals or [], width, json)
        return
    given = {"--from": first, "--to": last, "--signals": signals}
    waves_command(wave, viewer.value if viewer else None, open_, [n for n, v in given.items() if v], json)
