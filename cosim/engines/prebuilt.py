"""Engines that an optional package brings along, so that no C++ compiler is needed.

`python -m tools.engine_wheel` (`make wheel-prebuilt`) builds the package. Its folder has entries as those of
the cache (rkcosim.engines.cache) and the stamps of the sources they were built from. The key of an entry
depends on the design and the harness, and on neither compiler nor processor.
"""

from __future__ import annotations

import functools
import os
import platform
from dataclasses import dataclass
from pathlib import Path

from rkcosim.engines import cache, toolchain
from rkcosim.engines.cache import Progress

PROJECT = "rkcosim-engine-x86-64-v3"
PACKAGE = PROJECT.replace("-", "_")

VARIABLE = "RKCOSIM_PREBUILT"
"""Environment variable that disables the package if it is 0."""

FLAGS = "-march=x86-64-v3 -static-libstdc++ -static-libgcc -Wl,--exclude-libs,ALL"
"""Flags of compiler and linker: the libraries need nothing but the C library."""

_FEATURES = ("avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave")
"""What x86-64-v3 has beyond x86-64-v2, by Linux's names; `abm` stands for lzcnt."""

_CPUINFO = Path("/proc/cpuinfo")


@dataclass(frozen=True)
class Installed:
    """The installed package.

    Members
    -------
    refusal : why it cannot be used on this machine; empty if it can.
    """

    folder: Path
    version: str
    refusal: str

    def __str__(self) -> str:
        return f"{PROJECT} {self.version}"


def installed() -> Installed | None:
    """Return the package, or None if it is not installed, or switched off by a variable.

    RKCOSIM_CXXFLAGS asks for other flags than those of the package, so it switches it off as well.
    """
    if os.environ.get(VARIABLE, "") == "0" or "RKCOSIM_CXXFLAGS" in os.environ:
        return None
    folder = toolchain.package_folder(PACKAGE)
    if folder is None:
        return None
    return Installed(folder, toolchain.package_version(PROJECT), _refusal())


def _refusal() -> str:
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return f"it is for Linux on x86-64, not for {platform.system()} on {platform.machine()}"
    missing = _missing(_CPUINFO)
    return f"this processor lacks {', '.join(missing)}" if missing else ""


@functools.cache
def _missing(cpuinfo: Path) -> tuple[str, ...]:
    """Return the needed features that the processor does not have."""
    try:
        lines = cpuinfo.read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    flags = next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), [])
    return tuple(name for name in _FEATURES if name not in flags)


def stamp_folders() -> list[Path]:
    """Return the folder with the hashes of known sources, if there is a package."""
    found = installed()
    return [found.folder] if found is not None else []


def find(key: str, name: str, progress: Progress) -> Path | None:
    """Return the file `name` of `key`; None, with a line for the user, if the package does not have it."""
    found = installed()
    if found is None:
        return None
    if found.refusal:
        progress(f"{found} is not used: {found.refusal}")
        return None
    if not (found.folder / key).exists():
        progress(f"{found} is not used: it has no such engine for these sources")
        return None
    return cache.fetch(found.folder, key, name, progress, own=False)
