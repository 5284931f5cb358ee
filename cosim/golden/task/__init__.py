"""Task-level golden model: a numpy interpreter of register commands (DESIGN 6)."""

from cosim.golden.task.context import Finding, TaskReport, Traffic
from cosim.golden.task.device import GoldenDevice
from cosim.golden.task.errors import GoldenError, GoldenHang, MemoryFault
from cosim.golden.task.memory import Memory
from cosim.golden.task.npu import GoldenNpu

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
