"""Build of `libhexagon_nn.so` and `libhexagon_nn_v1.so` on first use, and their folder for programs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rkcosim.apis.hexagon.names import NAMES
from rkcosim.apis.link.library import worker_library
from rkcosim.base import PACKAGE
from rkcosim.devices.program import library_environment, place_headers, place_library
from rkcosim.engines import cache
from rkcosim.engines.cache import Progress

SOURCES = PACKAGE / "apis" / "hexagon" / "native"
MODULE = "rkcosim.apis.hexagon.worker"
NAME, V1_NAME = "libhexagon_nn.so", "libhexagon_nn_v1.so"

OTHER_NAMES = ("libhexagon_interface.so", "libcdsprpc.so")
"""Names by which programs also ask for the first library: LiteRT's delegate, and those with `rpcmem`."""

HEADERS = ("hexagon_nn.h", "hexagon_nn_common.h", "hexagon_nn_v1.h")
OPERATIONS_HEADER = "hexagon_nn_ops.h"

OPTIONS_VARIABLE, RESULTS_VARIABLE = "RKCOSIM_HEXAGON", "RKCOSIM_HEXAGON_RESULTS"
"""Environment variables of the library: options as lines name=value, and a folder for JSON documents."""


def hexagon_library(
    *, v1: bool = False, wide: bool = False, sanitize: bool = False, progress: Progress = cache.say
) -> Path:
    """Return the path of a library; compile it if it is not in the cache.

    Parameters
    ----------
    v1 : the oldest interface instead of that of nnlib 2.20.
    wide : entries of `get_perfinfo` with 24 bytes, as clients of some releases between the two declare them.
    sanitize, progress : see `NativeLibrary.path`, also for other errors.

    Raises
    ------
    ValueError
        for the oldest interface with wide entries.
    """
    if v1 and wide:
        raise ValueError("the oldest interface has entries of 16 bytes in get_perfinfo")
    macros = {"HEXAGON_NN_V1": None} if v1 else {"HEXAGON_NN_WIDE_PERFINFO": None} if wide else {}
    made = worker_library("hexagon", V1_NAME if v1 else NAME, SOURCES, MODULE, macros=macros, soname=True)
    return made.path(sanitize=sanitize, progress=progress)


def operations_header() -> str:
    """Return the text of the header with the numbers of the operations."""
    lines = [f"    OP_{name} = {number}," for number, name in enumerate(NAMES)]
    return "\n".join(
        [
            "/* Numbers of the operations of Hexagon NN; made by rkcosim.apis.hexagon.library. */",
            "#ifndef HEXAGON_NN_OPS_H",
            "#define HEXAGON_NN_OPS_H",
            "",
            "enum {",
            *lines,
            f"    NN_OPS_MAX = {len(NAMES)}",
            "};",
            "",
            "#endif",
            "",
        ]
    )


def lay_out(folder: Path, library: Path, v1: Path, *, copy: bool = False) -> None:
    """Create a folder with the subfolders `lib` and `include` in which programs find the libraries.

    Parameters
    ----------
    folder : path of the folder; created if it does not exist.
    library, v1 : paths of the libraries, from `hexagon_library`.
    copy : copy the libraries instead of linking to them.

    Raises
    ------
    OSError
        if a file cannot be written.
    """
    place_library(folder, NAME, library, OTHER_NAMES, copy=copy)
    place_library(folder, V1_NAME, v1, copy=copy)
    place_headers(folder, SOURCES, HEADERS, {OPERATIONS_HEADER: operations_header()})


def environment(folder: Path, options: Mapping[str, str]) -> dict[str, str]:
    """Return the variables by which a program finds the libraries, with options for their process.

    Parameters
    ----------
    folder : a folder made by `lay_out`; results are written to its subfolder `results`.
    options : names and values of `rkcosim.running.settings`.
    """
    return library_environment(folder, OPTIONS_VARIABLE, RESULTS_VARIABLE, options)
