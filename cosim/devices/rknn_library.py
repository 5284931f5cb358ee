"""Build of `librknnrt.so` on first use, and layout of the folder in which programs find it."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from rkcosim.base import PACKAGE, version
from rkcosim.devices import program
from rkcosim.devices.native_library import COMMON, NativeLibrary
from rkcosim.devices.program import place_headers, place_library, put_first
from rkcosim.engines import cache
from rkcosim.engines.cache import Progress
from rkcosim.rknn_api import declarations
from rkcosim.rknn_api.types import VERSION

SOURCES = PACKAGE / "rknn_api" / "native"
LITE = PACKAGE / "rknn_api" / "lite"
LITE_MODULES = ("rknn_lite.py", "rknn_log.py", "rknn_runtime.py")
LITE_API = """from rknnlite.api import rknn_log, rknn_runtime
from rknnlite.api.rknn_lite import RKNNLite

__all__ = ["RKNNLite", "rknn_log", "rknn_runtime"]
"""
"""Text of the module `rknnlite.api`."""

DISTRIBUTIONS = ("rknn-toolkit-lite2", "rknn-toolkit2")
"""Names under which programs look for the modules `rknnlite` and `rknn` among the installed packages."""

TOOLKIT = PACKAGE / "rknn_api" / "toolkit"
NAME = "librknnrt.so"
OLD_NAMES = ("librknn_api.so",)
"""Names of the library that older programs use."""

SEVERAL = PACKAGE / "compiler" / "several.py"
"""Module of the compiler that the toolkit uses as well."""

LINKED = ("-lpthread", f"-Wl,-soname,{NAME}", "-Wl,-z,nodelete")
"""Options of the linker. The library is never unloaded, because ending threads call it."""

SOCKET_VARIABLE = "RKCOSIM_RKNN_SOCKET"

PYTHON_VARIABLE = "RKCOSIM_PYTHON"
"""Environment variable with the interpreter in which the module `rknn` starts commands of `rkcosim`."""

AUDIT_VARIABLE = "RKCOSIM_RKNN_LIBRARY"
"""Environment variable by which the library for LD_AUDIT finds `librknnrt.so`."""


def library() -> NativeLibrary:
    """Return the description of the library; some sources are generated from the table of functions."""
    generated = {
        declarations.HEADER: declarations.header(),
        "rk_table.h": declarations.table_header(),
        "rk_library.c": declarations.library(),
    }
    sources = [*sorted(SOURCES.iterdir()), *sorted(COMMON.iterdir())]
    return NativeLibrary("rknnrt", NAME, sources, generated, linked=LINKED)


def rknn_library(*, sanitize: bool = False, progress: Progress = cache.say) -> Path:
    """Return the path of the library; for parameters and errors see `NativeLibrary.path`."""
    return library().path(sanitize=sanitize, progress=progress)


def lay_out(folder: Path, library: Path, *, copy: bool = False) -> None:
    """Create a folder in which programs find the library, with the subfolders `lib`, `include` and `python`.

    Parameters
    ----------
    folder : path of the folder; created if it does not exist.
    library : path of the library, from `rknn_library`.
    copy : copy the library instead of linking to it, and add a file for pkg-config.

    Raises
    ------
    OSError
        if a file cannot be written.
    """
    place_library(folder, NAME, library, OLD_NAMES, copy=copy)
    if copy:
        (folder / "lib" / "pkgconfig").mkdir(exist_ok=True)
        (folder / "lib" / "pkgconfig" / "rknnrt.pc").write_text(_package(folder))
    place_headers(folder, SOURCES, (), {declarations.HEADER: declarations.header()})
    for name in ("rknnlite/api", "rknn"):
        (folder / "python" / name).mkdir(parents=True, exist_ok=True)
    package = folder / "python" / "rknnlite"
    (package / "__init__.py").write_text(
        '"""Look-alike of RKNN-Toolkit Lite2 on librknnrt.so of rkcosim."""\n'
    )
    (package / "api" / "__init__.py").write_text(LITE_API)
    for module in LITE_MODULES:
        shutil.copyfile(LITE / module, package / "api" / module)
    (package / "api" / "declarations.json").write_text(declarations.as_json())
    package = folder / "python" / "rknn"
    (package / "__init__.py").write_text('"""Look-alike of RKNN-Toolkit2 on rkcosim."""\n')
    for module in ("api.py", "conversion.py", "hybrid.py"):
        shutil.copyfile(TOOLKIT / module, package / module)
    shutil.copyfile(SEVERAL, package / SEVERAL.name)
    for name in DISTRIBUTIONS:
        about = folder / "python" / f"{name.replace('-', '_')}-{VERSION}.dist-info"
        about.mkdir(exist_ok=True)
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {VERSION}+rkcosim\n")


def _package(folder: Path) -> str:
    return (
        f"prefix={folder.absolute()}\n"
        "Name: rknnrt\n"
        "Description: librknnrt.so on the simulated NPU; programs start with `rkcosim rknn -- PROGRAM`\n"
        f"Version: {version().split()[0]}\n"
        "Cflags: -I${prefix}/include\n"
        "Libs: -L${prefix}/lib -lrknnrt\n"
    )


def environment(folder: Path, socket: Path, audit: Path | None = None) -> dict[str, str]:
    """Return the environment in which a program finds the library in a folder and the server at a socket.

    With `audit`, the result of `rkcosim.devices.preload.audit_library`, requests for the library with a path
    are redirected to it.
    """
    joined = put_first("LD_LIBRARY_PATH", folder / "lib") | put_first("PYTHONPATH", folder / "python")
    if audit is not None:
        joined |= put_first("LD_AUDIT", program.for_linker(audit.absolute()))
        joined[AUDIT_VARIABLE] = str(folder.absolute() / "lib" / NAME)
    joined[PYTHON_VARIABLE] = sys.executable
    return {**os.environ, **joined, SOCKET_VARIABLE: str(socket.absolute())}


def seeing(env: Mapping[str, str], path: Path, machine: str | None = None) -> dict[str, str]:
    """Return an environment in which a program also sees the files of the board's server at a socket.

    Parameters
    ----------
    env : the result of `environment`.
    path : path of the socket (`rkcosim.driver.server.Server`).
    machine : what uname tells the program as the machine; None for the real one.

    Raises
    ------
    BuildError
        if the libraries cannot be compiled.
    """
    added = program.environment(path, machine=machine)
    names = ("LD_PRELOAD", "LD_AUDIT", "ASAN_OPTIONS", program.SOCKET_VARIABLE, program.MACHINE_VARIABLE)
    return {**env, **{name: added[name] for name in names if name in added}}
