"""Engines: the same core compiled by Verilator or CXXRTL, or in Amaranth's simulator."""

from cosim.engines.engine import ENGINES, Engine, open_engine
from cosim.engines.errors import (
    BuildError,
    BusError,
    DiagnosticError,
    EngineError,
    MemoryAccessError,
    SnapshotError,
)
from cosim.engines.library import DramConfig
from cosim.engines.memory import DeviceMemory
from cosim.engines.snapshots.plan import resuming, saving
from cosim.engines.soc import EVENT_NAMES, CoreCounters, SocEngine, TaskRecord

__all__ = [
    "ENGINES",
    "EVENT_NAMES",
    "BuildError",
    "BusError",
    "CoreCounters",
    "DeviceMemory",
    "DiagnosticError",
    "DramConfig",
    "Engine",
    "EngineError",
    "MemoryAccessError",
    "SnapshotError",
    "SocEngine",
    "TaskRecord",
    "open_engine",
    "resuming",
    "saving",
]
