"""`rkcosim hexagon`: programs that build graphs with Hexagon NN's C interface, on the simulated NPU."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from rkcosim.apis.link.programs import LibraryOptions, all_equal, run_with_library
from rkcosim.cli.app import command, option


@dataclass(frozen=True, kw_only=True)
class HexagonOptions(LibraryOptions):
    """Options of `rkcosim hexagon`."""

    check: bool = option(
        "Compare every layer of the NPU bit for bit with both golden models, and sums with their definition.",
        default=False,
    )
    wide_perfinfo: bool = option(
        "Entries of hexagon_nn_get_perfinfo have 24 bytes instead of 16.", default=False
    )


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
    the program; 70 if it is 0 and an internal error occurred behind a call.
    """
    from rkcosim.apis.hexagon.library import environment, hexagon_library, lay_out

    def libraries(folder: Path, *, copy: bool = False) -> None:
        lay_out(folder, hexagon_library(wide=asked.wide_perfinfo), hexagon_library(v1=True), copy=copy)

    if asked.only_installs("hexagon"):
        assert asked.prefix is not None
        libraries(asked.prefix, copy=True)
        print(f"installed: {asked.prefix}/lib/libhexagon_nn.so")
        return
    code, documents = run_with_library(asked, libraries, environment)
    graphs = [graph for document in documents for graph in document["graphs"]]
    if not graphs and not code:
        print("rkcosim: no graph was executed on the simulated NPU", file=sys.stderr)
    models = [model for document in documents for model in document["models"]]
    asked.write({"exit_code": code, "match": all_equal(documents), "graphs": graphs, "models": models})
    raise SystemExit(code)
