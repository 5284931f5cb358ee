"""Declaration of `rkcosim verilog`: the RTL as Verilog for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cosim.cli.app import App, examples
from cosim.cli.options import JsonOption

DESIGNS = (
    "core soc pc cna cbuf csc array_cell core_block dpu dpu_rdma ppu ppu_rdma ddma interrupt axil_slave "
    "register_fabric cna_registers core_registers dpu_registers dpu_rdma_registers ppu_registers "
    "ppu_rdma_registers"
)
"""Names of what can be written, as in `cosim.export.designs`, which is slow to import."""


def _designs(incomplete: str) -> list[str]:
    return [name for name in DESIGNS.split() if name.startswith(incomplete)]


def _geometries(incomplete: str) -> list[str]:
    return [name for name in ("rk3588", "small") if name.startswith(incomplete)]


def declare(app: App) -> None:
    """Add the command to an application."""
    app.command(
        epilog=examples(
            "rkcosim verilog -o build/verilog",
            "rkcosim verilog -o build/verilog --block core --geometry small",
            "rkcosim verilog -o build/verilog --block cbuf --block ddma",
        )
    )(verilog)


def verilog(
    output: Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="Folder to write to.")],
    block: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            autocompletion=_designs,
            help="core, soc, or a block as cna, cbuf, dpu_registers; may be given several times; "
            "default: everything.",
        ),
    ] = None,
    geometry: Annotated[
        str,
        typer.Option(metavar="NAME", autocompletion=_geometries, help="rk3588 or small."),
    ] = "rk3588",
    external_cell: Annotated[
        bool,
        typer.Option("--external-cell", help="Leave the array cell out, as a module npu_array_cell."),
    ] = False,
    src: Annotated[
        bool, typer.Option("--src", help="Say in comments where in the source things come from.")
    ] = False,
    json: JsonOption = None,
) -> None:
    """Write the RTL as Verilog, with port tables, lint waivers, testbenches and FuseSoC files."""
    from cosim.cli.verilog import verilog_command

    verilog_command(output, block or [], geometry, external_cell, src, json)
