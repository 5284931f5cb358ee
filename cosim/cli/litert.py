"""`rkcosim delegate` and `rkcosim litert`: scripts that use LiteRT on the simulated NPU."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rkcosim.cli.app import Options, command, option
from rkcosim.cli.options import EngineOptions, Html, Program, Share

RESULT_SECONDS = 30.0
"""Seconds after the end of a script within which its interpreters' results are expected."""


@dataclass(frozen=True, kw_only=True)
class DelegateOptions(Options):
    """Options of `rkcosim delegate`."""


@command("rkcosim delegate")
def delegate_command(asked: DelegateOptions) -> None:
    """Print the path of the external delegate for LiteRT.

    A script passes it to load_delegate. The library is compiled on first use.
    """
    from rkcosim.plugins.library import delegate_library

    path = delegate_library()
    print(path)
    asked.write({"delegate": str(path)})


@dataclass(frozen=True, kw_only=True)
class LiteRtOptions(EngineOptions):
    """Options of `rkcosim litert`."""

    program: Program = ()
    cores: Share = 1
    check: bool = option("Compare every tensor bit for bit with both golden models.", default=False)
    float_: Literal["fp16", "host"] = option(
        "Operators on float32 tensors: in fp16 on the NPU (fp16), or in float32 by LiteRT (host).",
        default="fp16",
    )
    html: Html = None
    trace: Path | None = option("Write a waveform to this file (docs/waves.md).", writes=True)
    events: Path | None = option(
        "Write the event log to this file: .parquet or .arrow (docs/events.md).", writes=True
    )
    timeline: Path | None = option("Write a timeline for ui.perfetto.dev to this file.", writes=True)

    FILES = ("report", "trace", "events", "timeline")
    """Options of the delegate that name files."""

    def given(self) -> dict[str, str]:
        """Return the options of the delegate (`rkcosim.plugins.settings`)."""
        files = {"report": self.html, "trace": self.trace, "events": self.events, "timeline": self.timeline}
        options = {name: str(path.absolute()) for name, path in files.items() if path is not None}
        if self.engine is not None:
            options["engine"] = self.engine
        switches = {"exact": self.exact, "check": self.check, "summary": True}
        options |= {name: str(int(value)) for name, value in switches.items()}
        return {**options, "cores": str(self.cores), "float": self.float_}


@command(
    "rkcosim litert -- python classify.py",
    "rkcosim litert --engine golden --check -- python examples/litert/classify.py",
    "rkcosim litert --html run.html --json run.json -- python script.py arguments",
    context={"allow_interspersed_args": False},
    waits=True,
)
def litert_command(asked: LiteRtOptions) -> None:
    """Run an unmodified LiteRT script on the simulated NPU.

    Every Interpreter gets the delegate. The exit code is that of the script.
    """
    from rkcosim.devices import program as run
    from rkcosim.plugins import litert_site
    from rkcosim.plugins.library import delegate_library
    from rkcosim.plugins.settings import read_settings

    program = list(asked.program)
    if not program:
        raise ValueError("litert: no program given: rkcosim litert -- python SCRIPT ARGUMENTS...")
    options = asked.given()
    read_settings(options)  # errors appear before the script starts
    library = delegate_library()
    with tempfile.TemporaryDirectory(prefix="rkcosim-") as name:
        folder = Path(name)
        shutil.copyfile(litert_site.__file__, folder / "sitecustomize.py")
        settings = {"delegate": str(library), "options": options, "files": asked.FILES, "folder": name}
        (folder / "settings.json").write_text(json.dumps(settings))
        before = os.environ.get("PYTHONPATH", "")
        path = os.pathsep.join(filter(None, (name, before)))
        variable = {litert_site.SETTINGS_VARIABLE: str(folder / "settings.json")}
        code = run.run_program(program, {**os.environ, "PYTHONPATH": path, **variable})
        models, left = _collected(folder)
    if not models and not code:
        print("rkcosim: no model ran on the simulated NPU", file=sys.stderr)
    asked.write({"exit_code": code, "models": models, "left": left})
    raise SystemExit(code)


def _collected(folder: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the models, and the operators left to LiteRT, of all interpreters of a script that has ended."""
    models: list[dict[str, Any]] = []
    left: list[dict[str, Any]] = []
    last = time.monotonic() + RESULT_SECONDS
    for number in range(len(list(folder.glob("*.interpreter")))):
        file = folder / f"{number}.json"
        while not file.is_file() and time.monotonic() < last:
            time.sleep(0.02)
        if not file.is_file():
            print(f"rkcosim: interpreter {number + 1} of the script gave no results", file=sys.stderr)
            continue
        document = json.loads(file.read_text())
        models += document["models"]
        left += [one for one in document["left"] if one not in left]
    return models, left
