"""C libraries of the interfaces, each with the way to the process of its models (`native/rk_worker.c`)."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

from rkcosim.apis.link.protocol import PROTOCOL
from rkcosim.base import PACKAGE, version
from rkcosim.devices.native_library import COMMON, NativeLibrary

SOURCES = PACKAGE / "apis" / "link" / "native"


def worker_library(
    key: str,
    name: str,
    own: Path,
    module: str,
    *,
    macros: Mapping[str, object] | None = None,
    soname: bool = False,
) -> NativeLibrary:
    """Return the description of a library of its own sources, the way to its process, and the sockets.

    The library starts this Python with this package, whatever Python or program loads it.

    Parameters
    ----------
    key : beginning of its name in the cache.
    name : its file name.
    own : the folder of its own sources and headers.
    module : the Python module of the process that it starts.
    macros : further macros with their C values; None as a value for a macro without one.
    soname : whether it contains its name, for programs that are linked to it.
    """
    constants = {
        "RK_PYTHON": sys.executable,
        "RK_PATH": str(PACKAGE.absolute().parent),
        "RK_PROTOCOL": PROTOCOL,
        "RK_VERSION": version().split()[0],
        "RK_MODULE": module,
    }
    defined = {macro: json.dumps(value) for macro, value in constants.items()} | dict(macros or {})
    flags = [f"-D{macro}" if value is None else f"-D{macro}={value}" for macro, value in defined.items()]
    linked = ["-lpthread", "-Wl,-z,nodelete", *([f"-Wl,-soname,{name}"] if soname else [])]
    sources = [*sorted(own.iterdir()), *sorted(SOURCES.iterdir()), *sorted(COMMON.glob("rk_socket.*"))]
    return NativeLibrary(key, name, sources, flags=flags, linked=linked, checked=False)
