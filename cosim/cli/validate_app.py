"""Declaration of `rkcosim validate`: published measurements of boards beside the simulation."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from cosim.cli.app import App, examples
from cosim.cli.options import JsonOption, PageOption


class Family(StrEnum):
    """Kinds of published rows (`cosim.perf.boards.table.FAMILIES`)."""

    dense = "dense"
    depthwise = "depthwise"
    first = "first"
    memory = "memory"
    matmul = "matmul"
    models = "models"


class MemoryChoice(StrEnum):
    """Whose memory the rows are run with."""

    fitted = "fitted"
    default = "default"


def declare(app: App) -> None:
    """Add the command to an application."""
    app.command(
        epilog=examples(
            "rkcosim validate --rows UNET-22,UNET-64x34",
            "rkcosim validate --family memory --memory default",
            "rkcosim validate --estimate --json -",
        )
    )(validate)


def validate(
    family: Annotated[
        list[Family] | None, typer.Option("--family", help="Only rows of this family; repeatable.")
    ] = None,
    rows: Annotated[
        list[str] | None,
        typer.Option(
            "--rows", metavar="ID", help="Only these rows (--list shows all): repeatable, or with commas."
        ),
    ] = None,
    rtl: Annotated[bool, typer.Option("--rtl", help="Run every row on the RTL, however long.")] = False,
    estimate: Annotated[bool, typer.Option("--estimate", help="Estimate every row, run none.")] = False,
    memory: Annotated[
        MemoryChoice,
        typer.Option(help="Memory: the bandwidth of a core fitted to boards, or what `rkcosim run` has."),
    ] = MemoryChoice.fitted,
    constants: Annotated[
        bool, typer.Option("--constants", help="List the timing constants and their sources instead.")
    ] = False,
    list_: Annotated[bool, typer.Option("--list", help="List the published rows, run none.")] = False,
    page: PageOption = None,
    json: JsonOption = None,
) -> None:
    """Run or estimate what boards were measured with, and print measured, simulated, error."""
    from cosim.cli.validate import constants_command, list_command, validate_command

    if rtl and estimate:
        raise ValueError("--rtl and --estimate exclude each other")
    families = [name.value for name in family or ()]
    ids = [id.strip() for given in rows or () for id in given.split(",") if id.strip()]
    if constants:
        constants_command(page, json)
    elif list_:
        list_command(families, ids, json)
    else:
        validate_command(
            families,
            ids,
            "rtl" if rtl else "estimate" if estimate else "auto",
            memory.value,
            page,
            json,
        )
