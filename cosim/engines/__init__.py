"""Engines: six ways to run the same device, behind one function and one protocol."""

from typing import TYPE_CHECKING

from rkcosim.base.homes import lazy

if TYPE_CHECKING:
    from rkcosim.engines.engine import AnyEngine, open_engine
    from rkcosim.engines.fast import FastEngine
    from rkcosim.engines.golden import GoldenEngine
    from rkcosim.engines.library import DramConfig
    from rkcosim.engines.memory import DeviceMemory
    from rkcosim.engines.protocol import (
        ALL_ENGINES,
        ENGINES,
        BuildError,
        BusError,
        Capabilities,
        DiagnosticError,
        Engine,
        EngineError,
        EngineMemory,
        JobError,
        JobTimeout,
        MemoryAccessError,
        SnapshotError,
        capabilities,
    )
    from rkcosim.engines.records import EVENT_NAMES, CoreCounters, TaskRecord
    from rkcosim.engines.snapshots.plan import resuming, saving
    from rkcosim.engines.soc import SocEngine
    from rkcosim.engines.submissions import Submission

__all__ = [
    "ALL_ENGINES",
    "ENGINES",
    "EVENT_NAMES",
    "AnyEngine",
    "BuildError",
    "BusError",
    "Capabilities",
    "CoreCounters",
    "DeviceMemory",
    "DiagnosticError",
    "DramConfig",
    "Engine",
    "EngineError",
    "EngineMemory",
    "FastEngine",
    "GoldenEngine",
    "JobError",
    "JobTimeout",
    "MemoryAccessError",
    "SnapshotError",
    "SocEngine",
    "Submission",
    "TaskRecord",
    "capabilities",
    "open_engine",
    "resuming",
    "saving",
]

__getattr__ = lazy(
    __name__,
    {
        "AnyEngine": "rkcosim.engines.engine",
        "open_engine": "rkcosim.engines.engine",
        "FastEngine": "rkcosim.engines.fast",
        "GoldenEngine": "rkcosim.engines.golden",
        "DramConfig": "rkcosim.engines.library",
        "DeviceMemory": "rkcosim.engines.memory",
        "ALL_ENGINES": "rkcosim.engines.protocol",
        "ENGINES": "rkcosim.engines.protocol",
        "BuildError": "rkcosim.engines.protocol",
        "BusError": "rkcosim.engines.protocol",
        "Capabilities": "rkcosim.engines.protocol",
        "DiagnosticError": "rkcosim.engines.protocol",
        "Engine": "rkcosim.engines.protocol",
        "EngineError": "rkcosim.engines.protocol",
        "JobError": "rkcosim.engines.protocol",
        "JobTimeout": "rkcosim.engines.protocol",
        "EngineMemory": "rkcosim.engines.protocol",
        "MemoryAccessError": "rkcosim.engines.protocol",
        "SnapshotError": "rkcosim.engines.protocol",
        "capabilities": "rkcosim.engines.protocol",
        "EVENT_NAMES": "rkcosim.engines.records",
        "CoreCounters": "rkcosim.engines.records",
        "TaskRecord": "rkcosim.engines.records",
        "resuming": "rkcosim.engines.snapshots.plan",
        "saving": "rkcosim.engines.snapshots.plan",
        "SocEngine": "rkcosim.engines.soc",
        "Submission": "rkcosim.engines.submissions",
    },
)
