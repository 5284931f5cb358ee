"""`rkcosim registers`: write the register description in the form of another tool."""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from pathlib import Path

from rkcosim.cli.app import Options, command, option


@dataclass(frozen=True, kw_only=True)
class RegistersOptions(Options):
    """Options of `rkcosim registers`."""

    format: str = option(
        "Form to write: rdl, uvm, pyuvm, c, html, json or svd.",
        metavar="NAME",
        words="rkcosim.export.registers:FORMATS",
        default=MISSING,
    )
    output: Path = option(
        "File to write; for html a folder that does not exist.",
        "-o",
        "--output",
        metavar="FILE",
        default=MISSING,
        writes=True,
    )
    window: str = option(
        "Registers to write: core, or counters (the performance counters); for uvm, pyuvm and html.",
        metavar="NAME",
        words="rkcosim.export.registers:MAPS",
        default="core",
    )


@command(
    "rkcosim registers --format rdl -o npu.rdl",
    "rkcosim registers --format uvm -o npu_registers.sv",
    "rkcosim registers --format html -o registers",
)
def registers_command(asked: RegistersOptions) -> None:
    """Write the register description in the form of another tool.

    The file appears when it is complete. SystemRDL, the C header, JSON and SVD need no further package.
    """
    from rkcosim.export.registers import FORMATS, export_registers

    export_registers(asked.format, asked.output, window=asked.window)
    print(f"{asked.output}: {FORMATS[asked.format]}")
    asked.write({"format": asked.format, "output": str(asked.output), "window": asked.window})
