"""Build of the interfaces' libraries on first use."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from rkcosim.apis.link.protocol import PROTOCOL
from rkcosim.base import PACKAGE, version
from rkcosim.devices.preload import c_compiler
from rkcosim.engines import cache, toolchain
from rkcosim.engines.cache import Progress

SOURCES = PACKAGE / "apis" / "link" / "native"
COMMON = PACKAGE / "rknn_api" / "native"
_LINKED = ("-lpthread", "-Wl,-z,nodelete")


def worker_library(
    name: str, file: str, own: Sequence[Path], flags: Sequence[str], module: str, progress: Progress
) -> Path:
    """Return the path of a library of its own sources, the worker's client and the sockets.

    Parameters
    ----------
    name : its name in the cache.
    file : its file name.
    own : its own sources and headers.
    flags : flags of the compiler.
    module : the Python module of the process that it starts.
    progress : called with a line of text before each step that takes long.

    Raises
    ------
    BuildError
        if there is no compiler, it fails, or the cache cannot be written.
    """
    sources = [*own, *sorted(SOURCES.glob("rk_*")), *sorted(COMMON.glob("rk_socket.*"))]
    constants = {
        "RK_PYTHON": sys.executable,
        "RK_PATH": str(PACKAGE.absolute().parent),
        "RK_PROTOCOL": PROTOCOL,
        "RK_VERSION": version().split()[0],
        "RK_MODULE": module,
    }
    command = [*c_compiler(), *flags]
    command += [f"-D{key}={json.dumps(value)}" for key, value in constants.items()]
    command += [f"-I{SOURCES}", f"-I{COMMON}"]
    digest = hashlib.sha256(repr((command, name, file, _LINKED, os.uname().machine)).encode())
    for source in sources:
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    files = [str(source) for source in sources if source.suffix == ".c"]
    arguments = [*command, "-o", file, *files, *_LINKED]
    return cache.built(
        f"{name}-{digest.hexdigest()[:24]}",
        file,
        file,
        lambda work: toolchain.run(arguments, work, "C compiler"),
        progress,
    )
