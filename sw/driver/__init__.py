"""Driver of the device: buffers, jobs on up to three cores, interrupts, time-out, reset (H 1.9, 1.10)."""

from sw.driver.buffers import Buffer, BufferSpace
from sw.driver.device import Device, Memory
from sw.driver.driver import Driver
from sw.driver.errors import CoreReport, DriverDmaError, DriverError, DriverTimeout
from sw.driver.job import CoreRun, Job, JobResult, Task, completion_mask, fold_interrupts, interrupt_bits

__all__ = [
    "Buffer",
    "BufferSpace",
    "CoreReport",
    "CoreRun",
    "Device",
    "Driver",
    "DriverDmaError",
    "DriverError",
    "DriverTimeout",
    "Job",
    "JobResult",
    "Memory",
    "Task",
    "completion_mask",
    "fold_interrupts",
    "interrupt_bits",
]
