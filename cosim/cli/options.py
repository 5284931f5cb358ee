"""Options that several commands share, and the waveform they describe."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

INPUT_HELP = ".npz with images (and labels), pictures (BMP, PPM), or one .npy per model input."
EngineOption = Annotated[
    str | None,
    typer.Option(help="verilator, cxxrtl, amaranth or golden; default: the fastest there is."),
]
ExactOption = Annotated[bool, typer.Option("--exact", help="Simulate the array cell's RTL too (slower).")]
JsonOption = Annotated[Path | None, typer.Option("--json", help="Also write the result to this file.")]
ShareOption = Annotated[int, typer.Option(min=1, max=3, help="Cores that share large layers.")]
TraceOption = Annotated[Path | None, typer.Option(help="Write a waveform (VCD) to this file.")]
FromOption = Annotated[int, typer.Option("--from", help="First cycle of the waveform.")]
ToOption = Annotated[int | None, typer.Option("--to", help="Last cycle of the waveform.")]
CoresOption = Annotated[int, typer.Option(min=1, max=3, help="Cores of the simulated NPU.")]
LogOption = Annotated[
    str | None, typer.Option(metavar="FILE", help="The kernel's log (as dmesg) into a file, - for stderr.")
]
VerboseOption = Annotated[bool, typer.Option("--verbose", help="Every ioctl that fails into the log too.")]
ReportOption = Annotated[bool, typer.Option("--report", help="Jobs, tasks, cycles and host time at the end.")]


def window(trace: Path | None, first: int, last: int | None) -> tuple[Path, int, int | None] | None:
    """What to trace, with a folder for the file."""
    if trace is None:
        return None
    trace.parent.mkdir(parents=True, exist_ok=True)
    return trace, first, last
