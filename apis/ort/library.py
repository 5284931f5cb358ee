"""Build of the execution provider for onnxruntime on first use."""

from __future__ import annotations

from pathlib import Path

from rkcosim.apis.link.library import worker_library
from rkcosim.base import PACKAGE
from rkcosim.devices.preload import SANITIZERS
from rkcosim.devices.rknn_library import FLAGS
from rkcosim.engines import cache
from rkcosim.engines.cache import Progress

SOURCES = PACKAGE / "apis" / "ort" / "native"
MODULE = "rkcosim.apis.ort.worker"
NAME = "librkcosim_provider.so"


def provider_library(
    *, api: int | None = None, module: str = "", sanitize: bool = False, progress: Progress = cache.say
) -> Path:
    """Return the path of the execution provider for onnxruntime; compile it if it is not in the cache.

    The library starts this Python with this package, whatever Python loads it.

    Parameters
    ----------
    api : version of onnxruntime's C interface that the library asks for, for tests; default: that of the
        newest entry that it uses.
    module : the Python module of the process that it starts; default: `MODULE`.
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
    return worker_library("provider", NAME, sorted(SOURCES.iterdir()), flags, module or MODULE, progress)
