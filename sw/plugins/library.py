"""Build of the plug-ins' libraries on first use."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path

from rkcosim.base import PACKAGE
from rkcosim.devices.preload import SANITIZERS, c_compiler
from rkcosim.devices.rknn_library import FLAGS
from rkcosim.engines import cache, toolchain
from rkcosim.engines.cache import Progress
from rkcosim.plugins.protocol import PROTOCOL

SOURCES = PACKAGE / "plugins" / "native"
COMMON = PACKAGE / "rknn_api" / "native"
DELEGATE = "librkcosim_delegate.so"

_LINKED = ("-lpthread", "-Wl,-z,nodelete")


def delegate_library(*, sanitize: bool = False, progress: Progress = cache.say) -> Path:
    """Return the path of the delegate for LiteRT; compile it if it is not in the cache.

    The library starts this Python with this package, whatever Python loads it.

    Parameters
    ----------
    sanitize : use the address and undefined-behaviour sanitizers, for tests.
    progress : called with a line of text before each step that takes long.

    Raises
    ------
    BuildError
        if there is no compiler, it fails, or the cache cannot be written.
    """
    sources = [*sorted(SOURCES.glob("*.[ch]")), *sorted(COMMON.glob("rk_socket.*"))]
    constants = {
        "RK_PYTHON": sys.executable,
        "RK_PATH": str(PACKAGE.absolute().parent),
        "RK_PROTOCOL": PROTOCOL,
    }
    command = [*c_compiler(), *FLAGS, *(SANITIZERS if sanitize else ())]
    command += [f"-D{name}={json.dumps(value)}" for name, value in constants.items()]
    command += [f"-I{SOURCES}", f"-I{COMMON}"]
    digest = hashlib.sha256(repr((command, _LINKED, os.uname().machine)).encode())
    for file in sources:
        digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    arguments = [*command, "-o", DELEGATE, *(str(file) for file in sources if file.suffix == ".c"), *_LINKED]
    return cache.built(
        f"delegate-{digest.hexdigest()[:24]}",
        DELEGATE,
        DELEGATE,
        lambda work: toolchain.run(arguments, work, "C compiler"),
        progress,
    )
