"""Which version of the project a process runs: workers must have the client's, or cycles mean nothing."""

from __future__ import annotations

import functools
import hashlib
from importlib import import_module, metadata
from pathlib import Path

PACKAGES = ("rtl", "sw", "cosim", "waves")
SOURCES = {".py", ".rdl", ".h", ".hpp", ".cpp", ".cc", ".sv", ".v"}


@functools.cache
def version() -> str:
    """Version of the package and a hash of its sources, as "0.1.0 (sources 1a2b3c4d5e6f)"."""
    digest = hashlib.sha256()
    for package in PACKAGES:
        for folder in map(Path, import_module(package).__path__):
            files = (path for path in folder.rglob("*") if path.suffix in SOURCES)
            for path in sorted(files, key=lambda path: path.relative_to(folder).as_posix()):
                digest.update(f"{package}/{path.relative_to(folder).as_posix()}\0".encode())
                digest.update(path.read_bytes())
    try:
        number = metadata.version("rkcosim")
    except metadata.PackageNotFoundError:
        number = "not installed"
    return f"{number} (sources {digest.hexdigest()[:12]})"


QUERY = "__import__('cosim.shards.version', fromlist=['version']).version()"
"""Expression that gives `version()` in a process of which nothing is known; fails without this package."""
