"""Driver of the device: buffers, jobs on up to three cores, interrupts, time-outs, resets [HW 10]."""

from rkcosim.driver.check import CoreReport, DriverDmaError, DriverError, DriverTimeout
from rkcosim.driver.device import Device, Memory
from rkcosim.driver.driver import Buffer, Driver
from rkcosim.regcmd.job import CoreRun, Job, JobResult, Task, completion_mask, fold_interrupts, interrupt_bits

__all__ = [
    "Buffer",
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

if not __name__.startswith("rkcosim."):
    raise ImportError(f"{__name__} is a folder of the checkout; its modules are imported as rkcosim.driver")
