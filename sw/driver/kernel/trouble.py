"""What the device refused, in the words of the IOMMU's driver."""

from __future__ import annotations

from typing import Any

from sw.driver.core_port import CorePort
from sw.driver.job import interrupt_bits
from sw.driver.kernel.scheduler import Scheduler

IOMMUS = ("fdab9000.iommu", "fdaca000.iommu", "fdada000.iommu")
SHOWN = 8
"""Faults of one interrupt that are told."""


def report_faults(scheduler: Scheduler, port: CorePort, raw: int, *, look: bool = False) -> None:
    """Log the memory accesses that were refused since the last call.

    Looks only if the raw status says that there are any, or with `look`; engines without a list of faults
    have told already.
    """
    if not look and not raw & interrupt_bits("DMA_READ_ERROR", "DMA_WRITE_ERROR"):
        return
    faults: Any = getattr(scheduler.device, "faults", None)
    if faults is None:
        return
    known: list[Any] = scheduler.guard(lambda: list(faults()), [])
    for fault in known[scheduler.faults_told :][:SHOWN]:
        scheduler.log.err(f"rk_iommu {IOMMUS[fault.core]}: Page fault at {fault.address:#x}: {fault}")
    scheduler.faults_told = len(known)
