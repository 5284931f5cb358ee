"""The preload library and the library for LD_AUDIT that leads programs to it."""

from __future__ import annotations

import sys
from pathlib import Path

from rkcosim.base import PACKAGE
from rkcosim.devices.native_library import COMMON, NativeLibrary
from rkcosim.engines import cache
from rkcosim.engines.cache import Progress
from rkcosim.engines.protocol import BuildError

SOURCES = PACKAGE / "driver" / "native"
AUDIT = SOURCES / "npu_audit.c"
"""Source of the library for LD_AUDIT, a part of no other library."""


def preload_library(*, sanitize: bool = False, progress: Progress = cache.say) -> Path:
    """Return the preload library's path; for parameters and errors see `NativeLibrary.path`."""
    if sys.platform != "linux":
        raise BuildError(f"native programs on the simulated device need Linux, this is {sys.platform}")
    sources = [file for file in sorted(SOURCES.iterdir()) if file != AUDIT]
    sources += sorted(COMMON.iterdir())
    made = NativeLibrary("preload", "npu_preload.so", sources, linked=("-ldl", "-lpthread"))
    return made.path(sanitize=sanitize, progress=progress)


def audit_library(*, progress: Progress = cache.say) -> Path:
    """Return the path of the library for LD_AUDIT; for parameters and errors see `NativeLibrary.path`.

    It gives the preload library's functions to programs that take them from the C library's own handle, and
    redirects requests for `librknnrt.so` with a path if the variable RKCOSIM_RKNN_LIBRARY names one.
    """
    return NativeLibrary("audit", "npu_audit.so", [AUDIT]).path(progress=progress)
