"""Task-level golden model: a numpy interpreter of register commands."""

from rkcosim.golden.task.context import Finding, TaskReport, Traffic
from rkcosim.golden.task.device import GoldenDevice
from rkcosim.golden.task.errors import GoldenError, GoldenHang, MemoryFault
from rkcosim.golden.task.memory import Memory
from rkcosim.golden.task.npu import GoldenNpu

__all__ = [
    "Finding",
    "GoldenDevice",
    "GoldenError",
    "GoldenHang",
    "GoldenNpu",
    "Memory",
    "MemoryFault",
    "TaskReport",
    "Traffic",
]
