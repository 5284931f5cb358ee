"""Description of the machine, and separate processes for measurements."""

from __future__ import annotations

import importlib.metadata
import multiprocessing
import os
import platform
import resource
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import ParamSpec, TypeVar

from rkcosim.engines import toolchain
from rkcosim.engines.protocol import BuildError, EngineError

P = ParamSpec("P")
T = TypeVar("T")


def apart(what: str, function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """Call a function in a new process and return its result, or raise its exception.

    Raises
    ------
    EngineError
        If the process ends without a result; `what` names it.
    """
    context = multiprocessing.get_context("spawn")
    try:
        with ProcessPoolExecutor(1, mp_context=context) as pool:
            return pool.submit(function, *arguments, **named).result()
    except BrokenProcessPool as error:
        raise EngineError(f"the process for {what} ended unexpectedly (out of memory?)") from error


def peak_bytes() -> int:
    """Return the peak memory of this process so far, in bytes.

    On Linux `ru_maxrss` is inherited from the parent process, so the process's own peak is read from /proc.
    """
    mark = _fields(Path("/proc/self/status")).get("VmHWM")
    if mark:
        return int(mark.split()[0]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def machine() -> dict[str, str | int]:
    """Return names and versions; "none" for tools that are not installed."""
    compiler = yosys = "none"
    try:
        compiler = toolchain.compiler().version
        yosys = toolchain.yosys().version
    except BuildError:
        pass  # the engines that need them report what to install
    verilator = toolchain.verilator()
    return {
        "cpu": _cpu(),
        "processors": os.cpu_count() or 1,
        "system": f"{platform.system()} {platform.machine()}",
        "compiler": compiler,
        "verilator": verilator.version if verilator else "none",
        "yosys": yosys,
        "amaranth": importlib.metadata.version("amaranth"),
        "python": platform.python_version(),
        "numpy": importlib.metadata.version("numpy"),
    }


def machine_line(machine: dict[str, str | int]) -> str:
    """Return the machine's description in one line."""
    skip = ("cpu", "processors", "system")
    tools = {name: str(value) for name, value in machine.items() if name not in skip}
    versions = [value if name in value.lower() else f"{name} {value}" for name, value in tools.items()]
    place = f"{machine['cpu']}, {machine['processors']} processors, {machine['system']}"
    return f"{place}; {', '.join(versions)}"


def _cpu() -> str:
    """Return the name of the processor, as precisely as the system knows it."""
    found = _fields(Path("/proc/cpuinfo"))
    name = found.get("model name") or platform.processor() or platform.machine()
    details = [f"{key} {found[key]}" for key in ("cpu family", "model") if key in found]
    return f"{name} ({', '.join(details)})" if details else name


def _fields(path: Path) -> dict[str, str]:
    """Values of a file of /proc by key, the first of each key; empty on other systems."""
    found: dict[str, str] = {}
    try:
        for line in path.read_text(encoding="utf-8").splitlines():
            key, _, value = line.partition(":")
            found.setdefault(key.strip(), value.strip())
    except OSError:
        pass
    return found
