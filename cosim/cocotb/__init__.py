"""cocotb testbenches for the NPU: agent, memory, monitors, scoreboard, coverage, runner (docs/cocotb.md).

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
    "InterruptTimeout": "values",
    "DiagnosticFound": "values",
    "RegisterValue": "values",
    "words_stream": "values",
    "DramSlave": "memory",
    "AgentDevice": "device",
    "Monitors": "monitors",
    "CommandMonitor": "monitors",
    "TaskMonitor": "monitors",
    "StripeMonitor": "monitors",
    "BurstMonitor": "monitors",
    "PacketMonitor": "monitors",
    "IrqMonitor": "monitors",
    "DiagnosticMonitor": "monitors",
    "BusyMonitor": "monitors",
    "Event": "monitors",
    "Scoreboard": "scoreboard",
    "Mismatch": "scoreboard",
    "Coverage": "coverage",
    "random_streams": "stimulus",
}
"""Name -> module that has it; imported when first asked for, since cocotb may be missing."""

__all__ = sorted(_PLACES)


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name and error.name.split(".")[0] in (
            "cocotb",
            "cocotbext",
            "cocotb_tools",
            "cocotb_coverage",
        ):
            raise ModuleNotFoundError(
                f"{error.name} is not installed: pip install 'rkcosim[cocotb]'", name=error.name
            ) from error
        raise
