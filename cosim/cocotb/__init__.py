"""cocotb testbenches for the NPU: agent, memory, monitors, scoreboard, coverage, runner (docs/cocotb.md).

from rkcosim.cocotb import NpuAgent, simulate
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from rkcosim.base import extras

if TYPE_CHECKING:
    from rkcosim.cocotb.agent import AgentDevice, NpuAgent
    from rkcosim.cocotb.coverage import Coverage
    from rkcosim.cocotb.host import BusError
    from rkcosim.cocotb.memory import DramSlave
    from rkcosim.cocotb.monitors import (
        BurstMonitor,
        BusyMonitor,
        CommandMonitor,
        DiagnosticMonitor,
        Event,
        IrqMonitor,
        Monitors,
        PacketMonitor,
        StripeMonitor,
        TaskMonitor,
    )
    from rkcosim.cocotb.runner import SimulationError, missing, simulate
    from rkcosim.cocotb.scoreboard import Mismatch, Scoreboard
    from rkcosim.cocotb.stimulus import random_streams
    from rkcosim.cocotb.values import DiagnosticFound, InterruptTimeout, RegisterValue, words_stream

__all__ = [
    "AgentDevice",
    "BurstMonitor",
    "BusError",
    "BusyMonitor",
    "CommandMonitor",
    "Coverage",
    "DiagnosticFound",
    "DiagnosticMonitor",
    "DramSlave",
    "Event",
    "InterruptTimeout",
    "IrqMonitor",
    "Mismatch",
    "Monitors",
    "NpuAgent",
    "PacketMonitor",
    "RegisterValue",
    "Scoreboard",
    "SimulationError",
    "StripeMonitor",
    "TaskMonitor",
    "missing",
    "random_streams",
    "simulate",
    "words_stream",
]

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


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)
    except ModuleNotFoundError as error:
        if extras.extra_of(error.name or "") == "cocotb":
            raise ModuleNotFoundError(extras.missing(str(error.name)), name=error.name) from error
        raise
