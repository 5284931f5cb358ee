"""Build of the plug-ins' libraries on first use."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rkcosim.base import PACKAGE, version
from rkcosim.devices.preload import SANITIZERS, c_compiler
from rkcosim.devices.rknn_library import FLAGS
from rkcosim.engines import cache, toolchain
from rkcosim.engines.cache import Progress
from rkcosim.plugins.protocol import PROTOCOL

SOURCES = PACKAGE / "plugins" / "native"
COMMON = PACKAGE / "rknn_api" / "native"
WORKER = "rkcosim.plugins.worker"
"""The module of the process that the plug-ins start."""

DELEGATE = "librkcosim_delegate.so"
PROVIDER = "librkcosim_provider.so"

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
    flags = (*FLAGS, *(SANITIZERS if sanitize else ()))
    return _library(_Library("delegate", DELEGATE, "litert*"), flags, progress)


def provider_library(
    *, api: int | None = None, sanitize: bool = False, progress: Progress = cache.say
) -> Path:
    """Return the path of the execution provider for onnxruntime; compile it if it is not in the cache.

    The library starts this Python with this package, whatever Python loads it.

    Parameters
    ----------
    api : version of onnxruntime's C interface that the library asks for, for tests; default: that of the
        newest entry that it uses.
    sanitize : use the address and undefined-behaviour sanitizers, for tests.
    progress : called with a line of text before each step that takes long.

    Raises
    ------
    BuildError
        if there is no compiler, it fails, or the cache cannot be written.
    """
    flags = [*FLAGS, *(SANITIZERS if sanitize else ())]
    if api is not None:
        flags.append(f"-DORT_VERSION={api}")
    return _library(_Library("provider", PROVIDER, "ort*"), flags, progress)


@dataclass(frozen=True)
class _Library:
    """A library: its name in the cache, its file, and a pattern of its own sources."""

    name: str
    file: str
    own: str


def _library(made: _Library, flags: Sequence[str], progress: Progress) -> Path:
    """Return the path of a plug-in's library."""
    return worker_library(made.name, made.file, sorted(SOURCES.glob(made.own)), flags, WORKER, progress)


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
