"""Runs of unmodified scripts with a plug-in: what `rkcosim litert` and `rkcosim ort` have in common."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rkcosim.apis.link.programs import PluginOptions, failed
from rkcosim.cli.app import option
from rkcosim.cli.options import Html, Share

RESULT_SECONDS = 30.0
"""Seconds after the end of a script within which the results of its interpreters or sessions are expected."""


@dataclass(frozen=True, kw_only=True)
class ScriptOptions(PluginOptions):
    """Options of a script's run."""

    cores: Share = 1
    float_: Literal["fp16", "host"] = option(
        "Operators on float32 tensors: in fp16 on the NPU (fp16), or in float32 by the runtime (host).",
        default="fp16",
    )
    html: Html = None

    FILES = ("report", "trace", "events", "timeline")
    """Options of the plug-in that name files."""

    def given(self) -> dict[str, str]:
        """Return the options of the plug-in (`rkcosim.running.settings`)."""
        report = {} if self.html is None else {"report": str(self.html.absolute())}
        return {**report, **super().given(), "cores": str(self.cores), "float": self.float_}


def run_script(asked: ScriptOptions, runtime: str, library: Callable[[], Path]) -> None:
    """Run a script with a plug-in, and exit with its code, or 70 after an internal error behind a call.

    Parameters
    ----------
    asked : the options and the program.
    runtime : "litert" or "onnxruntime".
    library : makes the plug-in's library.

    Raises
    ------
    ValueError
        without a program, or for a wrong option.
    """
    from rkcosim.apis.link import script_site
    from rkcosim.base.failures import FOLDER_VARIABLE
    from rkcosim.devices import program as run
    from rkcosim.running.settings import read_settings

    program = list(asked.program)
    if not program:
        name = "litert" if runtime == "litert" else "ort"
        raise ValueError(f"{name}: no program given: rkcosim {name} -- python SCRIPT ARGUMENTS...")
    options = asked.given()
    read_settings(options)  # errors appear before the script starts
    path = library()
    with tempfile.TemporaryDirectory(prefix="rkcosim-") as name:
        folder = Path(name)
        shutil.copyfile(script_site.__file__, folder / "sitecustomize.py")
        settings = {"runtime": runtime, "library": str(path), "options": options, "files": asked.FILES}
        settings["folder"] = name
        (folder / "settings.json").write_text(json.dumps(settings))
        before = os.environ.get("PYTHONPATH", "")
        places = os.pathsep.join(filter(None, (name, before)))
        variable = {script_site.SETTINGS_VARIABLE: str(folder / "settings.json"), FOLDER_VARIABLE: name}
        code = run.run_program(program, {**os.environ, "PYTHONPATH": places, **variable})
        models, left, graphs = _collected(folder)
        code = failed(code, folder)
    if not models and not code:
        print("rkcosim: no model ran on the simulated NPU", file=sys.stderr)
    asked.write({"exit_code": code, "models": models, "left": left, "graphs": graphs})
    raise SystemExit(code)


def _collected(folder: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[dict[str, Any]]]:
    """Return models, operators left to the runtime, and counts of graphs, of a script that has ended."""
    models: list[dict[str, Any]] = []
    left: list[dict[str, Any]] = []
    graphs: list[dict[str, Any]] = []
    last = time.monotonic() + RESULT_SECONDS
    for number in range(len(list(folder.glob("*.plugin")))):
        file = folder / f"{number}.json"
        while not file.is_file() and time.monotonic() < last:
            time.sleep(0.02)
        if not file.is_file():
            print(f"rkcosim: model {number + 1} of the script gave no results", file=sys.stderr)
            continue
        document = json.loads(file.read_text())
        models += document["models"]
        left += [one for one in document["left"] if one not in left]
        graphs += document["graphs"]
    return models, left, graphs
