"""The preload library and the library for LD_AUDIT that leads programs to it.

Both are compiled by the system's C compiler into the cache of the engines on first use.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import sys
from pathlib import Path

from rkcosim.base import PACKAGE
from rkcosim.engines import cache, toolchain
from rkcosim.engines.cache import Progress
from rkcosim.engines.protocol import BuildError

SOURCES = PACKAGE / "driver" / "native"
NAME = "npu_preload.so"

AUDIT = "npu_audit.c"
AUDIT_NAME = "npu_audit.so"
"""Source and file name of the library for LD_AUDIT, a part of no other library."""

COMPILER_FIX = (
    "install a C compiler (Debian, Ubuntu: apt install gcc; Fedora: dnf install gcc; pip install ziglang) or "
    "set the variable CC to one"
)

CANDIDATES = ("cc", "gcc", "clang", "g++ -x c", "clang++ -x c", "zig cc")

FLAGS = ("-shared", "-fPIC", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-fvisibility=hidden")
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-g")


def c_compiler() -> tuple[str, ...]:
    """Return the command of the C compiler: the variable CC, or the first of `CANDIDATES` on the path.

    Raises
    ------
    BuildError
        if there is none; the message says what to install.
    """
    named = os.environ.get("CC")
    for candidate in [named] if named else CANDIDATES:
        command = shlex.split(candidate)
        if command and shutil.which(command[0]):
            return tuple(command)
    if not named and toolchain.package_folder("ziglang") is not None:
        return (*toolchain.PYTHON, "-m", "ziglang", "cc")
    missing = f"CC names {named!r}, which does not run" if named else "no C compiler found"
    raise BuildError(f"{missing}: {COMPILER_FIX}")


def preload_library(*, sanitize: bool = False, progress: Progress = cache.say) -> Path:
    """Return the library's path; the library is compiled if it is not in the cache.

    Parameters
    ----------
    sanitize : with the address and undefined-behaviour sanitizers, for tests.
    progress : called with one line for each step that takes long.

    Raises
    ------
    BuildError
        if there is no compiler, it fails, or the cache cannot be written.
    """
    if sys.platform != "linux":
        raise BuildError(f"native programs on the simulated device need Linux, this is {sys.platform}")
    sources = [file for file in sorted(SOURCES.glob("*.c")) if file.name != AUDIT]
    if not sources:
        raise BuildError(f"{SOURCES}: the preload library's sources are missing")
    command = [*c_compiler(), *FLAGS, *(SANITIZERS if sanitize else ())]
    digest = hashlib.sha256(repr((command, os.uname().machine)).encode())
    for file in [*sources, *sorted(SOURCES.glob("*.h"))]:
        digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    key = f"preload-{digest.hexdigest()[:24]}"
    arguments = [*command, "-o", NAME, *map(str, sources), "-ldl", "-lpthread"]
    return cache.built(
        key,
        NAME,
        "preload library",
        lambda work: toolchain.run(arguments, work, "C compiler"),
        progress,
        None if sanitize else toolchain.check_loads,
    )


def audit_library(*, progress: Progress = cache.say) -> Path:
    """Return the path of the library for LD_AUDIT; for parameters and errors see `preload_library`.

    It gives the preload library's functions to programs that take them from the C library's own handle, and
    redirects requests for `librknnrt.so` with a path if the variable RKCOSIM_RKNN_LIBRARY names one.
    """
    command = [*c_compiler(), *FLAGS]
    source = (SOURCES / AUDIT).read_bytes()
    digest = hashlib.sha256(repr((command, os.uname().machine)).encode() + source)

    def work(folder: Path) -> None:
        toolchain.run([*command, "-o", AUDIT_NAME, str(SOURCES / AUDIT)], folder, "C compiler")

    key = f"audit-{digest.hexdigest()[:24]}"
    return cache.built(key, AUDIT_NAME, AUDIT_NAME, work, progress, toolchain.check_loads)


def sanitizer_runtime() -> str:
    """Return what LD_PRELOAD must contain before a library with sanitizers.

    Empty if the compiler has none.
    """
    import subprocess

    asked = subprocess.run(
        [*c_compiler(), "-print-file-name=libasan.so"], capture_output=True, text=True, check=False
    )
    path = asked.stdout.strip()
    return path if os.path.isabs(path) and os.path.exists(path) else ""
