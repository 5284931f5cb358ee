"""Engines: the same core compiled by Verilator or CXXRTL, or run in Amaranth's simulator."""

from typing import TYPE_CHECKING

from rkcosim.base.homes import lazy

if TYPE_CHECKING:
    from rkcosim.engines.engine import open_engine
    from rkcosim.engines.library import DramConfig
    from rkcosim.engines.memory import DeviceMemory
    from rkcosim.engines.named import open_named
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

__getattr__ = lazy(
    __name__,
    {
        "open_engine": "rkcosim.engines.engine",
        "DramConfig": "rkcosim.engines.library",
        "DeviceMemory": "rkcosim.engines.memory",
        "open_named": "rkcosim.engines.named",
        "ENGINES": "rkcosim.engines.protocol",
        "BuildError": "rkcosim.engines.protocol",
        "BusError": "rkcosim.engines.protocol",
        "Capabilities": "rkcosim.engines.protocol",
        "DiagnosticError": "rkcosim.engines.protocol",
        "Engine": "rkcosim.engines.protocol",
        "EngineError": "rkcosim.engines.protocol",
        "MemoryAccessError": "rkcosim.engines.protocol",
        "SnapshotError": "rkcosim.engines.protocol",
        "capabilities": "rkcosim.engines.protocol",
        "EVENT_NAMES": "rkcosim.engines.records",
        "CoreCounters": "rkcosim.engines.records",
        "TaskRecord": "rkcosim.engines.records",
        "resuming": "rkcosim.engines.snapshots.plan",
        "saving": "rkcosim.engines.snapshots.plan",
        "SocEngine": "rkcosim.engines.soc",
    },
)
