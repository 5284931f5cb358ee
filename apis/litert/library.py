"""The delegate for LiteRT, compiled on first use."""

from __future__ import annotations

from pathlib import Path

from rkcosim.apis.link.library import worker_library
from rkcosim.base import PACKAGE
from rkcosim.engines import cache
from rkcosim.engines.cache import Progress

SOURCES = PACKAGE / "apis" / "litert" / "native"
MODULE = "rkcosim.apis.litert.worker"
NAME = "librkcosim_delegate.so"


def delegate_library(*, sanitize: bool = False, progress: Progress = cache.say) -> Path:
    """Return the path of the delegate; for parameters and errors see `NativeLibrary.path`."""
    made = worker_library("delegate", NAME, SOURCES, MODULE)
    return made.path(sanitize=sanitize, progress=progress)
