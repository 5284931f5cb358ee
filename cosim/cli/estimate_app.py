"""Declaration of `rkcosim estimate`: seconds of a model without simulating it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cosim.cli.app import App, examples
from cosim.cli.options import JsonOption, PageOption, ShareOption


def declare(app: App) -> None:
    """Add the command to an application."""
    app.command(
        epilog=examples(
            "rkcosim estimate examples/digits/digits_int8.onnx",
            "rkcosim estimate model.tflite --clock 600 --cores 3 --ddr 3200MT/s",
            "rkcosim estimate model.onnx --what-if --roofline roofline.svg",
        )
    )(estimate)


def estimate(
    model: Annotated[Path, typer.Argument(help="ONNX or TFLite model, or what rkcosim compile made of one.")],
    clock: Annotated[
        float, typer.Option(metavar="MHZ", help="Clock of the NPU; DRAM keeps its own time.")
    ] = 1000.0,
    cores: ShareOption = 1,
    ddr: Annotated[
        str | None,
        typer.Option(
            metavar="SPEED",
            help="DRAM: transfers as 4224MT/s (the RK3588's LPDDR4X, of which 70 % are reached), or what is "
            "reached as 23.65GB/s.",
        ),
    ] = None,
    what_if: Annotated[
        bool,
        typer.Option("--what-if", help="Other bandwidths, clocks, numbers of cores and CBUF splits, too."),
    ] = False,
    roofline: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the layers below their roofs to this SVG file.")
    ] = None,
    json: JsonOption = None,
    page: PageOption = None,
) -> None:
    """Estimate the time of each layer of a model in a second, with the estimate's error against RTL."""
    from cosim.cli.estimate import estimate_command

    estimate_command(model, clock, cores, ddr, what_if, roofline, json, page)
