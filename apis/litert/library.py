"""Build of the delegate for LiteRT on first use."""

from __future__ import annotations

from pathlib import Path

from rkcosim.apis.link.library import worker_library
from rkcosim.base import PACKAGE
from rkcosim.devices.preload import SANITIZERS
from rkcosim.devices.rknn_library import FLAGS
from rkcosim.engines import cache
from rkcosim.engines.cache import Progress

SOURCES = PACKAGE / "apis" / "litert" / "native"
MODULE = "rkcosim.apis.litert.worker"
NAME = "librkcosim_delegate.so"


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
    flags = [*FLAGS, *(SANITIZERS if sanitize else ())]
    return worker_library("delegate", NAME, sorted(SOURCES.iterdir()), flags, MODULE, progress)
