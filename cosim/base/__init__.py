"""What every other room may use: reading of user files, progress of long work, errors, and the version.

Workers of a cluster must have the same version as their client, or their cycles cannot be compared.
"""

from __future__ import annotations

import functools
import hashlib
import os
from pathlib import Path
from typing import Any, Self

import rkcosim

SOURCES = {".py", ".rdl", ".h", ".hpp", ".cpp", ".cc", ".sv", ".v"}
PACKAGE = Path(rkcosim.__path__[0])
"""The folder of the package, with its pages and examples."""

LEFT_OUT = {"docs", "examples"}
"""Folders of the package that do not affect any result."""

BAD_INPUT, DEVICE_ERROR = 2, 3
"""Exit codes of the command line, stored in exceptions as `exit_code` (all codes: `rkcosim.cli.exits`)."""


class Error(Exception):
    """A request cannot be carried out; the message says what is wrong, and where.

    The classes of errors that the package raises deliberately are derived from it.  The place is also in the
    members below, as far as it is known; those that do not apply are None.

    Members
    -------
    layer
        Name of a model's layer (node).
    tensor
        Name of a tensor: an input, an output, or one between layers.
    task
        Number of a task in its job.
    register
        Name of a register, as "DPU.DATA_CUBE_WIDTH".
    core
        Number of a core.
    """

    layer: str | None = None
    tensor: str | None = None
    task: int | None = None
    register: str | None = None
    core: int | None = None

    def __init__(self, *args: object, **place: str | int | None) -> None:
        super().__init__(*args)
        self.at(**place)

    def at(self, **place: str | int | None) -> Self:
        """Set members of the place, and return the error."""
        unknown = place.keys() - PLACE
        if unknown:
            raise TypeError(f"an error has no member {', '.join(sorted(unknown))}")
        for name, value in place.items():
            setattr(self, name, value)
        return self

    def place(self) -> dict[str, str | int]:
        """Return the known members of the place by name."""
        return {name: getattr(self, name) for name in PLACE if getattr(self, name) is not None}


PLACE = ("layer", "tensor", "task", "register", "core")
"""Members of an `Error` that say where it occurred."""


@functools.cache
def version() -> str:
    """Return the version of the package and a hash of its sources, as "0.1.0 (sources 1a2b3c4d5e6f)"."""
    from importlib import metadata

    digest = hashlib.sha256()
    root = PACKAGE
    files = []
    for folder, folders, names in os.walk(root, followlinks=True):
        if Path(folder) == root:
            folders[:] = [name for name in folders if name not in LEFT_OUT]
        files += [Path(folder, name) for name in names if Path(name).suffix in SOURCES]
    for path in sorted(files, key=lambda path: path.relative_to(root).as_posix()):
        digest.update(f"{path.relative_to(root).as_posix()}\0".encode())
        digest.update(path.read_bytes())
    try:
        number = metadata.version("rkcosim")
    except metadata.PackageNotFoundError:
        number = "not installed"
    return f"{number} (sources {digest.hexdigest()[:12]})"


def versioned(data: dict[str, Any]) -> dict[str, Any]:
    """Add the versions of this program and of the document's form (1 by default) in front of a document."""
    return {"rkcosim_version": version(), "schema_version": 1, **data}


QUERY = "__import__('rkcosim.base', fromlist=['version']).version()"
"""Expression that evaluates `version()` in a remote process.

It fails if the package is not installed there.
"""
