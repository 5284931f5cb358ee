"""Engines: the same core compiled by Verilator or CXXRTL, or run in Amaranth's simulator."""

from rkcosim.engines.engine import open_engine, open_named
from rkcosim.engines.library import DramConfig
from rkcosim.engines.memory import DeviceMemory
from rkcosim.engines.protocol import (
    ENGINES,
    BuildError,
    BusError,
    Capabilities,
    DiagnosticError,
    Engine,
    EngineError,
    MemoryAccessError,
    SnapshotError,
    capabilities,
)
from rkcosim.engines.records import EVENT_NAMES, CoreCounters, TaskRecord
from rkcosim.engines.snapshots.plan import resuming, saving
from rkcosim.engines.soc import SocEngine

__all__ = [
    "ENGINES",
    "EVENT_NAMES",
    "BuildError",
    "BusError",
    "Capabilities",
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
    "capabilities",
    "open_engine",
    "open_named",
    "resuming",
    "saving",
]
