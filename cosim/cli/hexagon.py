"""`rkcosim hexagon`: programs that build graphs with Hexagon NN's C interface, on the simulated NPU."""

from __future__ import annotations

import contextlib
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rkcosim.cli.app import command, option
from rkcosim.cli.options import EngineOptions, Program


@dataclass(frozen=True, kw_only=True)
class HexagonOptions(EngineOptions):
    """Options of `rkcosim hexagon`."""

    program: Program = ()
    check: bool = option(
        "Compare every layer of the NPU bit for bit with both golden models, and sums with their definition.",
        default=False,
    )
    wide_perfinfo: bool = option(
        "Entries of hexagon_nn_get_perfinfo have 24 bytes instead of 16.", default=False
    )
    trace: Path | None = option("Write a waveform to this file (docs/waves.md).", writes=True)
    events: Path | None = option(
        "Write the event log to this file: .parquet or .arrow (docs/events.md).", writes=True
    )
    timeline: Path | None = option("Write a timeline for ui.perfetto.dev to this file.", writes=True)
    prefix: Path | None = option(
        "Install libraries and headers in this folder; run no program.", metavar="FOLDER"
    )

    def given(self) -> dict[str, str]:
        """Return the options of the process that executes the graphs (`rkcosim.plugins.settings`)."""
        files = {"trace": self.trace, "events": self.events, "timeline": self.timeline}
        options = {name: str(path.absolute()) for name, path in files.items() if path is not None}
        if self.engine is not None:
            options["engine"] = self.engine
        switches = {"exact": self.exact, "check": self.check, "summary": True}
        return options | {name: str(int(value)) for name, value in switches.items()}


@command(
    "rkcosim hexagon -- ./graph_app --elementsize 4 picture.dat",
    "rkcosim hexagon --engine golden --check -- ./program arguments",
    "rkcosim hexagon --prefix ~/hexagon",
    context={"allow_interspersed_args": False},
    waits=True,
)
def hexagon_command(asked: HexagonOptions) -> None:
    """Run a program of Hexagon NN graphs on the simulated NPU.

    The program finds libhexagon_nn.so and libhexagon_nn_v1.so (docs/hexagon.md). The exit code is that of
    the program.
    """
    from rkcosim.frontends.hexagon_nn.library import hexagon_library, lay_out
    from rkcosim.plugins.settings import read_settings

    if asked.prefix is not None:
        if asked.program:
            raise ValueError("hexagon: --prefix only installs files; omit the program")
        lay_out(asked.prefix, hexagon_library(wide=asked.wide_perfinfo), hexagon_library(v1=True), copy=True)
        print(f"installed: {asked.prefix}/lib/libhexagon_nn.so")
        return
    if not asked.program:
        raise ValueError("hexagon: name a program: rkcosim hexagon -- PROGRAM ARGUMENTS...")
    read_settings(asked.given())  # errors appear before the program starts
    raise SystemExit(_run(asked))


def _run(asked: HexagonOptions) -> int:
    import json
    import sys

    from rkcosim.devices import program
    from rkcosim.frontends.hexagon_nn.library import environment, hexagon_library, lay_out

    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rkcosim-")))
        lay_out(folder, hexagon_library(wide=asked.wide_perfinfo), hexagon_library(v1=True))
        code = program.run_program(list(asked.program), environment(folder, asked.given()))
        documents = [json.loads(file.read_text()) for file in sorted((folder / "results").glob("*.json"))]
    graphs = [graph for document in documents for graph in document["graphs"]]
    if not graphs and not code:
        print("rkcosim: no graph was executed on the simulated NPU", file=sys.stderr)
    models = [model for document in documents for model in document["models"]]
    found = [document["match"] for document in documents]
    asked.write({"exit_code": code, "match": _all(found), "graphs": graphs, "models": models})
    return code


def _all(found: list[bool | None]) -> bool | None:
    """Return whether every process found everything equal, None if none compared."""
    known = [match for match in found if match is not None]
    return all(known) if known else None
