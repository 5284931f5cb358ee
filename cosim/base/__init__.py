"""What every other room may use: reading of user files, progress of long work, and the version.

Workers of a cluster must have the same version as their client, or their cycles cannot be compared.
"""

from __future__ import annotations

import functools
import hashlib
import os
from pathlib import Path
from typing import Any

import rkcosim

SOURCES = {".py", ".rdl", ".h", ".hpp", ".cpp", ".cc", ".sv", ".v"}
PACKAGE = Path(rkcosim.__path__[0])
"""The folder of the package, with its pages and examples."""

LEFT_OUT = {"docs", "examples"}
"""Folders of the package that do not affect any result."""

BAD_INPUT, DEVICE_ERROR = 2, 3
"""Exit codes of the command line, stored in exceptions as `exit_code` (all codes: `rkcosim.cli.exits`)."""


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
