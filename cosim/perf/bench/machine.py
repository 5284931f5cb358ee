"""What the figures were measured on: processor, compiler, versions."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from pathlib import Path

from cosim.engines import toolchain
from cosim.engines.errors import BuildError


def machine() -> dict[str, str | int]:
    """Names and versions; "none" for tools that are not there."""
    compiler = yosys = "none"
    try:
        compiler = toolchain.compiler().version
        yosys = toolchain.yosys().version
    except BuildError:
        pass  # the engines that need them will say what to install
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


def _cpu() -> str:
    """Name of the processor, as precise as the system says."""
    found: dict[str, str] = {}
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            key, _, value = line.partition(":")
            found.setdefault(key.strip(), value.strip())
    except OSError:
        pass
    name = found.get("model name") or platform.processor() or platform.machine()
    details = [f"{key} {found[key]}" for key in ("cpu family", "model") if key in found]
    return f"{name} ({', '.join(details)})" if details else name
