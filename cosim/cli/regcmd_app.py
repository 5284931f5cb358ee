"""Declarations of `rkcosim regcmd ...`: register-command streams as text and back, and on RTL."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cosim.cli.app import App
from cosim.cli.options import EngineOption, ExactOption, JsonOption, traced
from cosim.cli.report_app import HtmlOption

if TYPE_CHECKING:
    from waves.spec import TraceSpec

regcmd_app = App(help="Register-command streams as text and back, and on RTL.")


@regcmd_app.command(epilog="Example: rkcosim regcmd dump task.bin -o task.txt")
def dump(
    file: Annotated[Path, typer.Argument(help="Words as a binary file, 8 bytes each, little-endian.")],
    output: Annotated[Path | None, typer.Option("-o", help="Write here instead of the screen.")] = None,
    json: JsonOption = None,
) -> None:
    """Print a command list as text, register by register and field by field."""
    from cosim.cli.regcmd import dump_command

    dump_command(file, output, json)


@regcmd_app.command(epilog="Example: rkcosim regcmd asm task.txt -o task.bin")
def asm(
    file: Annotated[Path, typer.Argument(help="Text form, as `dump` prints it.")],
    output: Annotated[Path, typer.Option("-o", help="Binary file to write.")],
    json: JsonOption = None,
) -> None:
    """Turn the text form back into the same words."""
    from cosim.cli.regcmd import asm_command

    asm_command(file, output, json)


@regcmd_app.command("import", epilog="Example: rkcosim regcmd import capture.json -o stream.json")
def regcmd_import(
    manifest: Annotated[Path, typer.Argument(help="Manifest of a capture (docs/capture.md).")],
    output: Annotated[Path, typer.Option("-o", help="Stream file to write.")],
    json: JsonOption = None,
) -> None:
    """Turn a capture of a board (command words, buffers, outputs as files) into a stream file."""
    from cosim.cli.diff import import_command

    import_command(manifest, output, json)


@regcmd_app.command("run", epilog="Example: rkcosim regcmd run pool.json --engine verilator --check")
@traced
def regcmd_run(
    file: Annotated[Path, typer.Argument(help="Stream file: command lists with their memory image (JSON).")],
    engine: EngineOption = None,
    exact: ExactOption = False,
    check: Annotated[bool, typer.Option("--check", help="Compare all memory with the golden model.")] = False,
    on_diagnostic: Annotated[str, typer.Option(help="'stop', or 'go on' as silicon does.")] = "stop",
    max_cycles: Annotated[int, typer.Option(min=1, help="Bound of the wait for the interrupt.")] = 10_000_000,
    json: JsonOption = None,
    trace: TraceSpec | None = None,
    html: HtmlOption = None,
) -> None:
    """Run a stream with its memory image, on RTL or on the golden model."""
    from cosim.cli.regcmd import run_command

    run_command(file, engine, exact, check, on_diagnostic, max_cycles, json, trace, html)
