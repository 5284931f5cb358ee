"""`rkcosim diopi`: programs that use DIOPI's Python package, on the simulated NPU."""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rkcosim.cli.app import command, option
from rkcosim.cli.scripts import ScriptOptions


@dataclass(frozen=True, kw_only=True)
class DiopiOptions(ScriptOptions):
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
    from rkcosim.devices.program import run_program
    from rkcosim.frontends.diopi.package import environment, lay_out
    from rkcosim.plugins.settings import read_settings

    if asked.prefix is not None:
        if asked.program:
            raise ValueError("diopi: --prefix only writes files; omit the program")
        lay_out(asked.prefix)
        print(f"installed: {asked.prefix}/diopilib")
        return
    if not asked.program:
        raise ValueError("diopi: name a program: rkcosim diopi -- PROGRAM ARGUMENTS...")
    options = asked.given()
    read_settings(options)  # errors appear before the program starts
    with tempfile.TemporaryDirectory(prefix="rkcosim-") as name:
        folder = Path(name)
        lay_out(folder)
        code = run_program(list(asked.program), environment(folder, options))
        documents = [json.loads(file.read_text()) for file in sorted((folder / "results").glob("*.json"))]
    if not any(document["diopi"] for document in documents) and not code:
        print("rkcosim: no operator ran on the simulated NPU", file=sys.stderr)
    operators = [{"process": number} | document["diopi"] for number, document in enumerate(documents)]
    models = [model for document in documents for model in document["models"]]
    asked.write({"exit_code": code, "diopi": operators, "models": models})
    raise SystemExit(code)
