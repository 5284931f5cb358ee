"""Programs whose models run in a process of `rkcosim.apis.link`: options, and a C library before them."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rkcosim.cli.app import option
from rkcosim.cli.options import EngineOptions, Program


@dataclass(frozen=True, kw_only=True)
class PluginOptions(EngineOptions):
    """Options of a program whose models run in such a process."""

    program: Program = ()
    check: bool = option("Compare every tensor bit for bit with both golden models.", default=False)
    trace: Path | None = option("Write a waveform to this file (docs/waves.md).", writes=True)
    events: Path | None = option(
        "Write the event log to this file: .parquet or .arrow (docs/events.md).", writes=True
    )
    timeline: Path | None = option("Write a timeline for ui.perfetto.dev to this file.", writes=True)

    def given(self) -> dict[str, str]:
        """Return the options of the process (`rkcosim.running.settings`)."""
        files = {"trace": self.trace, "events": self.events, "timeline": self.timeline}
        options = {name: str(path.absolute()) for name, path in files.items() if path is not None}
        if self.engine is not None:
            options["engine"] = self.engine
        switches = {"exact": self.exact, "check": self.check, "summary": True}
        return options | {name: str(int(value)) for name, value in switches.items()}


@dataclass(frozen=True, kw_only=True)
class LibraryOptions(PluginOptions):
    """Options of a command that puts a C library before a program."""

    prefix: Path | None = option(
        "Install libraries and headers in this folder; run no program.", metavar="FOLDER"
    )

    def only_installs(self, name: str) -> bool:
        """Return whether `--prefix` is given; check the options of the command `name`.

        Raises
        ------
        ValueError
            for a program with `--prefix` or none without it, and for a wrong option.
        """
        from rkcosim.running.settings import read_settings

        if self.prefix is not None:
            if self.program:
                raise ValueError(f"{name}: --prefix only installs files; omit the program")
            return True
        if not self.program:
            raise ValueError(f"{name}: name a program: rkcosim {name} -- PROGRAM ARGUMENTS...")
        read_settings(self.given())  # errors appear before the program starts
        return False


def run_with_library(
    asked: LibraryOptions,
    lay_out: Callable[[Path], None],
    environment: Callable[[Path, Mapping[str, str]], Mapping[str, str]],
) -> tuple[int, list[dict[str, Any]]]:
    """Run a program in whose environment a library is found.

    Parameters
    ----------
    asked : the program and the options.
    lay_out : puts the library into a folder.
    environment : returns the variables for this folder and the options of the process.

    Returns
    -------
    The program's exit code (70 if it is 0 and an internal error occurred behind a call), and the JSON
    document of each process that the library has started.
    """
    from rkcosim.base.failures import FOLDER_VARIABLE
    from rkcosim.devices import program

    with tempfile.TemporaryDirectory(prefix="rkcosim-") as name:
        folder = Path(name)
        lay_out(folder)
        variables = {**environment(folder, asked.given()), FOLDER_VARIABLE: name}
        code = failed(program.run_program(list(asked.program), variables), folder)
        return code, [json.loads(file.read_text()) for file in sorted((folder / "results").glob("*.json"))]


def failed(code: int, folder: Path) -> int:
    """Return a program's exit code; 70 if it is 0 and a process told of an internal error in the folder."""
    from rkcosim.base.failures import INTERNAL, told

    return code or (INTERNAL if told(folder) else 0)


def all_equal(documents: Sequence[Mapping[str, Any]]) -> bool | None:
    """Return whether every process found everything equal, None if none compared."""
    known = [document["match"] for document in documents if document["match"] is not None]
    return all(known) if known else None
