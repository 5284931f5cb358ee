"""`rkcosim nnapi`: programs that use NNAPI's C interface, on the simulated NPU."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from rkcosim.apis.link.programs import LibraryOptions, all_equal, run_with_library
from rkcosim.cli.app import command


@dataclass(frozen=True, kw_only=True)
class NnapiOptions(LibraryOptions):
    """Options of `rkcosim nnapi`."""


@command(
    "rkcosim nnapi -- ./program arguments",
    "rkcosim nnapi --engine golden --check -- ./program arguments",
    "rkcosim nnapi --prefix ~/nnapi",
    context={"allow_interspersed_args": False},
    waits=True,
)
def nnapi_command(asked: NnapiOptions) -> None:
    """Run a program of NNAPI models on the simulated NPU.

    The program finds libneuralnetworks.so (docs/nnapi.md). The exit code is that of the program; 70
    if it is 0 and an internal error occurred behind a call.
    """
    from rkcosim.apis.nnapi.ndk.library import environment, lay_out, neural_networks_library

    def library(folder: Path, *, copy: bool = False) -> None:
        lay_out(folder, neural_networks_library(), copy=copy)

    if asked.only_installs("nnapi"):
        assert asked.prefix is not None
        library(asked.prefix, copy=True)
        print(f"installed: {asked.prefix}/lib/libneuralnetworks.so")
        return
    code, documents = run_with_library(asked, library, environment)
    models = [model for document in documents for model in document["nnapi"]]
    if not any(model["executions"] for model in models) and not code:
        print("rkcosim: no model was executed on the simulated NPU", file=sys.stderr)
    traffic = [document["traffic"] for document in documents]
    asked.write({"exit_code": code, "match": all_equal(documents), "nnapi": models, "traffic": traffic})
    raise SystemExit(code)
