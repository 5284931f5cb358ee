"""`rkcosim nnapi`: programs that use NNAPI's C interface, on the simulated NPU."""

from __future__ import annotations

import contextlib
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rkcosim.cli.app import command, option
from rkcosim.cli.options import EngineOptions, Program


@dataclass(frozen=True, kw_only=True)
class NnapiOptions(EngineOptions):
    """Options of `rkcosim nnapi`."""

    program: Program = ()
    check: bool = option(
        "Compare every tensor of the NPU bit for bit with both golden models.", default=False
    )
    trace: Path | None = option("Write a waveform to this file (docs/waves.md).", writes=True)
    events: Path | None = option(
        "Write the event log to this file: .parquet or .arrow (docs/events.md).", writes=True
    )
    timeline: Path | None = option("Write a timeline for ui.perfetto.dev to this file.", writes=True)
    prefix: Path | None = option(
        "Install the library and headers in this folder; run no program.", metavar="FOLDER"
    )

    def given(self) -> dict[str, str]:
        """Return the options of the process that executes the models (`rkcosim.plugins.settings`)."""
        files = {"trace": self.trace, "events": self.events, "timeline": self.timeline}
        options = {name: str(path.absolute()) for name, path in files.items() if path is not None}
        if self.engine is not None:
            options["engine"] = self.engine
        switches = {"exact": self.exact, "check": self.check, "summary": True}
        return options | {name: str(int(value)) for name, value in switches.items()}


@command(
    "rkcosim nnapi -- ./program arguments",
    "rkcosim nnapi --engine golden --check -- ./program arguments",
    "rkcosim nnapi --prefix ~/nnapi",
    context={"allow_interspersed_args": False},
    waits=True,
)
def nnapi_command(asked: NnapiOptions) -> None:
    """Run a program of NNAPI models on the simulated NPU.

    The program finds libneuralnetworks.so (docs/nnapi.md). The exit code is that of the program.
    """
    from rkcosim.frontends.nnapi.ndk.library import lay_out, neural_networks_library
    from rkcosim.plugins.settings import read_settings

    if asked.prefix is not None:
        if asked.program:
            raise ValueError("nnapi: --prefix only installs files; omit the program")
        lay_out(asked.prefix, neural_networks_library(), copy=True)
        print(f"installed: {asked.prefix}/lib/libneuralnetworks.so")
        return
    if not asked.program:
        raise ValueError("nnapi: name a program: rkcosim nnapi -- PROGRAM ARGUMENTS...")
    read_settings(asked.given())  # errors appear before the program starts
    raise SystemExit(_run(asked))


def _run(asked: NnapiOptions) -> int:
    import json
    import sys

    from rkcosim.devices import program
    from rkcosim.frontends.nnapi.ndk.library import environment, lay_out, neural_networks_library

    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rkcosim-")))
        lay_out(folder, neural_networks_library())
        code = program.run_program(list(asked.program), environment(folder, asked.given()))
        documents = [json.loads(file.read_text()) for file in sorted((folder / "results").glob("*.json"))]
    models = [model for document in documents for model in document["nnapi"]]
    if not any(model["executions"] for model in models) and not code:
        print("rkcosim: no model was executed on the simulated NPU", file=sys.stderr)
    found = [document["match"] for document in documents if document["match"] is not None]
    traffic = [document["traffic"] for document in documents]
    match = all(found) if found else None
    asked.write({"exit_code": code, "match": match, "nnapi": models, "traffic": traffic})
    return code
