"""cocotb testbenches for the NPU: agent, memory, monitors, scoreboard, coverage, runner (docs/cocotb.md).

from rkcosim.cocotb import NpuAgent, simulate
"""

from __future__ import annotations

import importlib
from typing import Any

from rkcosim.base import extras

_MODULES = {
    "agent": "NpuAgent AgentDevice",
    "coverage": "Coverage",
    "host": "BusError",
    "memory": "DramSlave",
    "monitors": "Monitors CommandMonitor TaskMonitor StripeMonitor BurstMonitor PacketMonitor IrqMonitor "
    "DiagnosticMonitor BusyMonitor Event",
    "runner": "simulate missing SimulationError",
    "scoreboard": "Scoreboard Mismatch",
    "stimulus": "random_streams",
    "values": "InterruptTimeout DiagnosticFound RegisterValue words_stream",
}
"""Module -> its names offered here; imported on first use, since cocotb may be missing."""

_PLACES = {name: module for module, names in _MODULES.items() for name in names.split()}

__all__ = sorted(_PLACES)


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)
    except ModuleNotFoundError as error:
        if extras.extra_of(error.name or "") == "cocotb":
            raise ModuleNotFoundError(extras.missing(str(error.name)), name=error.name) from error
        raise
