"""cocotb testbenches for the NPU: agent, memory, runner (docs/cocotb.md).

from cosim.cocotb import NpuAgent, simulate
"""

from __future__ import annotations

import importlib
from typing import Any

_PLACES = {
    "simulate": "runner",
    "missing": "runner",
    "SimulationError": "runner",
    "NpuAgent": "agent",
    "InterruptTimeout": "agent",
    "DiagnosticFound": "agent",
    "RegisterValue": "agent",
    "words_stream": "agent",
    "DramSlave": "memory",
}
"""Name -> module that has it; imported when first asked for, since cocotb may be missing."""

__all__ = sorted(_PLACES)


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name and error.name.split(".")[0] in ("cocotb", "cocotbext", "cocotb_tools"):
            raise ModuleNotFoundError(
                f"{error.name} is not installed: pip install 'rkcosim[cocotb]'", name=error.name
            ) from error
        raise
