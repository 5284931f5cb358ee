"""`rkcosim diopi`: programs that use DIOPI's Python package, on the simulated NPU."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rkcosim.apis.link.programs import LibraryOptions, run_with_library
from rkcosim.apis.link.scripts import ScriptOptions
from rkcosim.cli.app import command, option


@dataclass(frozen=True, kw_only=True)
class DiopiOptions(ScriptOptions, LibraryOptions):
    """Options of `rkcosim diopi`."""

    float_: Literal["fp16", "host"] = option(
        "Operators on float32 tensors: in fp16 on the NPU (fp16), or in float32 on the host (host).",
        default="host",
    )
    prefix: Path | None = option(
        "Write the package diopilib into this folder; run no program.", metavar="FOLDER"
    )


@command(
    "rkcosim diopi -- python main.py --mode run_test --fname conv2d",
    "rkcosim diopi --engine golden --check -- python examples/diopi/block.py",
    "rkcosim diopi --prefix ~/diopi",
    context={"allow_interspersed_args": False},
    waits=True,
)
def diopi_command(asked: DiopiOptions) -> None:
    """Run a program of DIOPI operators on the simulated NPU.

    The program finds the Python package diopilib (docs/diopi.md). The exit code is that of the program.
    """
    from rkcosim.apis.diopi.package import environment, lay_out

    if asked.only_installs("diopi"):
        assert asked.prefix is not None
        lay_out(asked.prefix)
        print(f"installed: {asked.prefix}/diopilib")
        return
    code, documents = run_with_library(asked, lay_out, environment)
    if not any(document["diopi"] for document in documents) and not code:
        print("rkcosim: no operator ran on the simulated NPU", file=sys.stderr)
    operators = [{"process": number} | document["diopi"] for number, document in enumerate(documents)]
    models = [model for document in documents for model in document["models"]]
    asked.write({"exit_code": code, "diopi": operators, "models": models})
    raise SystemExit(code)
