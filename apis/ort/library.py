"""The execution provider for onnxruntime, compiled on first use."""

from __future__ import annotations

from pathlib import Path

from rkcosim.apis.link.library import worker_library
from rkcosim.base import PACKAGE
from rkcosim.engines import cache
from rkcosim.engines.cache import Progress

SOURCES = PACKAGE / "apis" / "ort" / "native"
MODULE = "rkcosim.apis.ort.worker"
NAME = "librkcosim_provider.so"


def provider_library(
    *, api: int | None = None, module: str = "", sanitize: bool = False, progress: Progress = cache.say
) -> Path:
    """Return the path of the execution provider; for other parameters and errors see `NativeLibrary.path`.

    Parameters
    ----------
    api : version of onnxruntime's C interface that the library asks for, for tests; default: that of the
        newest entry that it uses.
    module : the Python module of the process that it starts; default: `MODULE`.
    """
    macros = {} if api is None else {"ORT_VERSION": api}
    made = worker_library("provider", NAME, SOURCES, module or MODULE, macros=macros)
    return made.path(sanitize=sanitize, progress=progress)
