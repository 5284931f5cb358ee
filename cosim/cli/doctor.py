"""What this machine has of what the project needs, and how to get the rest."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cosim.engines import cache, toolchain
from cosim.engines.errors import BuildError

PYTHON_MIN = (3, 11)

EXTRAS = {
    "onnx": (("onnx", "onnxruntime"), "comparing with onnxruntime"),
    "tflite": (("tflite", "flatbuffers"), "reading .tflite models"),
    "litert": (("ai_edge_litert",), "comparing with LiteRT"),
    "waves": (("pyarrow", "perfetto", "pywellen", "pylibfst"), "event logs, timelines, FST waveforms"),
    "shards": (("distributed",), "--shards and sweeps"),
    "cocotb": (("cocotb", "cocotbext.axi", "cocotb_coverage"), "tests with cocotb"),
    "dev": (("pytest", "hypothesis", "ruff", "mypy"), "running the tests"),
}
"""Extra of the package to the modules it brings and what they are for."""


@dataclass(frozen=True)
class Check:
    """One thing that was looked at.

    Members
    -------
    name : what it is.
    ok : whether it is there and works.
    detail : what was found, in one line.
    fix : what to do about it; empty when `ok`.
    required : without it nothing can be simulated; otherwise something is slower or missing.
    """

    name: str
    ok: bool
    detail: str
    fix: str = ""
    required: bool = True


def checks() -> list[Check]:
    """Look at everything; never raises and writes nothing that stays (the cache folder excepted)."""
    steps: list[tuple[str, bool, Callable[[], Check]]] = [
        ("Python", True, _python),
        ("C++ compiler", True, _compiler),
        ("Yosys", True, _yosys),
        ("Verilator", False, _verilator),
        ("make", False, _make),
        ("cache folder", True, _cache),
        ("address space", True, _address_space),
    ]
    found = []
    for name, required, step in steps:
        try:
            found.append(step())
        except Exception as error:
            text = str(error).partition("\n")[0]
            found.append(Check(name, False, f"check failed: {text}", "see the message", required))
    return found + [_extra(name) for name in EXTRAS]


def _python() -> Check:
    version = platform.python_version()
    wanted = ".".join(map(str, PYTHON_MIN))
    detail = f"{version} on {platform.system()} {platform.machine()}"
    ok = sys.version_info >= PYTHON_MIN
    return Check("Python", ok, detail, "" if ok else f"install Python {wanted} or newer")


def _compiler() -> Check:
    try:
        tool = toolchain.compiler()
    except BuildError as error:
        return Check("C++ compiler", False, str(error).partition(":")[0], toolchain.COMPILER_FIX)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "a.cpp").write_text("#include <memory>\nint f() { return *std::make_unique<int>(3); }\n")
        try:
            tool.run(["-std=c++17", "-shared", "-fPIC", "a.cpp", "-o", "a.so"], folder)
        except BuildError as error:
            why = str(error).splitlines()[-1]
            return Check("C++ compiler", False, f"{tool.version} cannot build: {why}", toolchain.COMPILER_FIX)
    return Check("C++ compiler", True, tool.version)


def _yosys() -> Check:
    try:
        return Check("Yosys", True, toolchain.yosys().version)
    except BuildError as error:
        return Check("Yosys", False, str(error).partition(":")[0], toolchain.YOSYS_FIX)


def _verilator() -> Check:
    tool = toolchain.verilator()
    if tool is None:
        detail = "not found: the slower engine cxxrtl is used"
        return Check("Verilator", False, detail, toolchain.VERILATOR_FIX, required=False)
    command, env = [*tool.command, "--version"], {**os.environ, **tool.env}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        detail = (
            f"{tool.version} does not start: {(done.stderr or done.stdout).strip().partition(chr(10))[0]}"
        )
        return Check("Verilator", False, detail, toolchain.VERILATOR_FIX, required=False)
    return Check("Verilator", True, tool.version, required=False)


def _make() -> Check:
    path = shutil.which("make")
    if path is None:
        fix = "install make (Debian, Ubuntu: apt install make), or call the commands of the Makefile"
        return Check("make", False, "not found", fix, required=False)
    return Check("make", True, path, required=False)


def _cache() -> Check:
    try:
        folder = cache.cache_folder()
    except BuildError as error:
        return Check("cache folder", False, str(error).partition(":")[0], "name another one in RKCOSIM_CACHE")
    free = shutil.disk_usage(folder).free >> 20
    built = len(list(folder.glob("*/model.so")))
    detail = f"{folder} ({built} built models, {free} MiB free)"
    if free < 500:
        return Check("cache folder", False, detail, "free some space or name another folder in RKCOSIM_CACHE")
    return Check("cache folder", True, detail)


def _address_space() -> Check:
    from cosim.engines.errors import EngineError
    from cosim.engines.memory import DeviceMemory

    try:
        DeviceMemory(lambda page, pages, mapped: None)
    except EngineError as error:
        fix = "raise the limit (ulimit -v unlimited; sysctl vm.overcommit_memory=0)"
        return Check("address space", False, str(error).partition("(")[0].strip(), fix)
    return Check("address space", True, "4 GiB can be reserved for device memory")


def _extra(name: str) -> Check:
    modules, purpose = EXTRAS[name]
    missing = [module for module in modules if not _importable(module)]
    title = f"extra {name}"
    if missing:
        detail = f"{', '.join(missing)} missing (for {purpose})"
        return Check(title, False, detail, f"pip install 'rkcosim[{name}]'", required=False)
    return Check(title, True, f"{', '.join(modules)} (for {purpose})", required=False)


def _importable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False
