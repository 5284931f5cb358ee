"""The driver for callers in this process: buffers and jobs on the kernel's model of `rknpu`.

`Driver` is the kernel's model without processes: its buffers, IOMMU domain, scheduler and jobs are those
that programs use by ioctls (`rkcosim.driver.kernel.rknpu_jobs`), but the caller's thread runs the device,
jobs are checked before they are queued, and time-outs and DMA errors become exceptions.
"""

from __future__ import annotations

import logging
import os
from bisect import insort
from errno import ECANCELED, ETIMEDOUT

import numpy as np

from rkcosim.driver.check import CoreReport, DriverDmaError, DriverError, DriverTimeout, check_job
from rkcosim.driver.core_port import CorePort
from rkcosim.driver.device import Device
from rkcosim.driver.kernel import structs as s
from rkcosim.driver.kernel.clock import NANOSECONDS, Clock
from rkcosim.driver.kernel.fences import Fence
from rkcosim.driver.kernel.files import File
from rkcosim.driver.kernel.interface import Credentials, KernelError
from rkcosim.driver.kernel.log import Log
from rkcosim.driver.kernel.memory import PAGE, Backing, GemObject, Ram, RangeSpace
from rkcosim.driver.kernel.rknpu_jobs import RknpuCore, RknpuJob, record_of
from rkcosim.driver.kernel.scheduler import Scheduler
from rkcosim.driver.kernel.sysfs import TextFile, rknpu_files
from rkcosim.regcmd.job import CoreRun, Job, JobResult, interrupt_bits
from rkcosim.spec.interrupts import interrupt_names
from rkcosim.spec.regs import registers

log = logging.getLogger("rkcosim.driver")

DEFAULT_MAX_CYCLES = 200_000_000
"""Default cycle limit of a job: 0.2 s at the nominal 1 GHz [HW 12.1]."""

IOVA_FIRST, IOVA_END = 0x0010_0000, 1 << 32
"""Limits of buffer addresses.

Buffers keep a page of distance from both. A null address is thus never valid, and address registers have 32
bits [HW 11].
"""

DATA, RECORDS = 0, 1
"""IOMMU domains: one for buffers and jobs, and one for the task records, which only the kernel reads."""

REPORTED = ("INTERRUPT_STATUS", "INTERRUPT_RAW_STATUS", "INTERRUPT_MASK", "TASK_STATUS", "TASK_CON")
"""PC registers in a time-out message, the same as in the vendor driver's log."""

DMA_ERRORS = interrupt_bits("DMA_READ_ERROR", "DMA_WRITE_ERROR")

LEVELS = {"err": logging.ERROR, "warn": logging.WARNING, "info": logging.INFO, "debug": logging.DEBUG}


class _Log(Log):
    """The kernel's log as records of the logger `rkcosim.driver`."""

    def add(self, level: str, text: str) -> None:
        log.log(LEVELS[level], "%s", text)


class Buffer:
    """A range of device memory.

    `iova` is the device address of its first byte, `size` the requested number of bytes; the mapping is
    rounded up to whole pages.
    """

    def __init__(self, driver: Driver, name: str, size: int, item: GemObject) -> None:
        self.name, self.size, self.iova, self.mapped_size = name, size, item.iova, item.size
        self.freed = False
        self._driver, self._item = driver, item

    @property
    def fd(self) -> int | None:
        """The file that holds the pages, of a driver with `shared`; None where the device alone has them."""
        return self._item.backing.fd

    def view(self, offset: int = 0, size: int | None = None) -> np.ndarray:
        """Bytes shared with the device: uint8 of shape (size,), by default all from `offset` on.

        Raises
        ------
        DriverError
            If the range exceeds the buffer or the buffer has been freed.
        """
        size = self.size - offset if size is None else size
        if self.freed:
            raise DriverError(f"buffer {self.name!r} has been freed")
        if offset < 0 or size < 0 or offset + size > self.size:
            raise DriverError(f"buffer {self.name!r} has {self.size} bytes; not {size} from {offset}")
        return self._driver.device.memory.view(self.iova + offset, size)

    def read(self, offset: int = 0, size: int | None = None) -> bytes:
        """A copy of bytes of the buffer; raises as `view`."""
        return self.view(offset, size).tobytes()

    def write(self, data: bytes | bytearray | memoryview | np.ndarray, offset: int = 0) -> None:
        """Write bytes, or an array in C order; raises as `view`."""
        if isinstance(data, np.ndarray):
            data = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        source = np.frombuffer(data, np.uint8)
        self.view(offset, source.size)[:] = source

    def free(self) -> None:
        """Release the memory; a second call does nothing."""
        if not self.freed:
            self.freed = True
            self._driver.release(self, self._item)

    def __repr__(self) -> str:
        return f"Buffer({self.name!r}, iova=0x{self.iova:X}, size={self.size})"


class Driver:
    """An open device.

    Parameters
    ----------
    device
        See `rkcosim.driver.device.Device`.
    max_cycles
        Default cycle limit of a job.
    first
        Buffers are allocated above this address, a multiple of 4 KiB.
    shared
        Whether other processes map buffers: each buffer is then a file in memory (`Buffer.fd`).

    Members
    -------
    buffers : allocated buffers, by address.
    """

    def __init__(
        self,
        device: Device,
        max_cycles: int = DEFAULT_MAX_CYCLES,
        *,
        first: int = IOVA_FIRST,
        shared: bool = False,
    ) -> None:
        self.device = device
        self.max_cycles = max_cycles
        self.buffers: list[Buffer] = []
        said = _Log()
        self._scheduler = Scheduler(device, Clock(NANOSECONDS), said, isolate=False, synchronous=True)
        spaces = (RangeSpace(first + PAGE, IOVA_END, guard=PAGE), RangeSpace(0, IOVA_END))
        self._kernel = RknpuCore(self._scheduler, said, Ram(IOVA_END), spaces, shared=shared)
        self._file = File(self._kernel, "render", "this process", Credentials(os.getpid()))

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Free every buffer; a second call does nothing.  The device remains open."""
        for buffer in list(self.buffers):
            buffer.free()
        self._file.close()

    def alloc(self, size: int, name: str = "buffer", at: int | None = None) -> Buffer:
        """A zeroed buffer of device memory at the address `at` (None: at any free address).

        Raises
        ------
        DriverError
            If the size is not positive, there is no room or the driver is closed.
        """
        self._check_open()
        if size <= 0:
            raise DriverError(f"buffer {name!r}: size must be positive, not {size}")
        with self._kernel.lock:
            try:
                flags = s.MEM_NON_CONTIGUOUS | s.MEM_LIMIT_IOVA_ALIGNMENT
                item = self._kernel.create(size, flags, DATA, at=at).hold()
            except KernelError as error:
                room = f"no room for {size} bytes in the 32-bit IOVA space"
                raise DriverError(f"buffer {name!r}: {room}") from error
            self._map()
            buffer = Buffer(self, name, size, item)
            insort(self.buffers, buffer, key=lambda known: known.iova)
        return buffer

    def adopt(self, backing: Backing, name: str = "dma-buf") -> Buffer:
        """Return a buffer of pages that a dma-buf also has; they are freed when nothing uses them.

        Raises
        ------
        DriverError
            If there is no room or the driver is closed.
        """
        self._check_open()
        with self._kernel.lock:
            try:
                flags = s.MEM_NON_CONTIGUOUS | s.MEM_LIMIT_IOVA_ALIGNMENT
                item = self._kernel.place(backing.hold(), flags, DATA, imported=True).hold()
            except KernelError as error:
                room = f"no room for {backing.size} bytes in the 32-bit IOVA space"
                raise DriverError(f"buffer {name!r}: {room}") from error
            self._map()
            buffer = Buffer(self, name, backing.size, item)
            insort(self.buffers, buffer, key=lambda known: known.iova)
        return buffer

    def release(self, buffer: Buffer, item: GemObject) -> None:
        """Unmap a buffer (`Buffer.free`)."""
        with self._kernel.lock:
            self.buffers.remove(buffer)
            item.drop()
            self._map()

    def _map(self) -> None:
        """Make the device's memory map exactly the existing buffers."""
        self._scheduler.mmu.use(self._kernel.domains[DATA])

    def read(self, core: int, block: str, register: str) -> int:
        """Read a register of a core by name."""
        return CorePort(self.device, core).read(block, register)

    def write(self, core: int, block: str, register: str, value: int) -> None:
        """Write a register of a core by name."""
        CorePort(self.device, core).write(block, register, value)

    def files(self) -> dict[str, TextFile]:
        """The texts of the vendor's driver that programs read, by path; they cannot change the clock."""
        return rknpu_files(self._kernel, fixed_clock=True)

    def version(self, core: int = 0) -> int:
        """Hardware version as the vendor driver prints it [HW 2.1]."""
        return CorePort(self.device, core).version()

    def check(self, job: Job) -> None:
        """Reject a job that cannot run: raises DriverError, see `check_job`."""
        self._check_open()
        check_job(job, self.device, self.buffers)

    def submit(self, job: Job) -> JobResult:
        """Run a job to its end.

        Returns
        -------
        JobResult
            Cycles of each core.

        Raises
        ------
        DriverError
            If the job is wrong, before anything is written; the message has the problem.
        DriverTimeout
            If a core does not finish in time; the cores of the job have been reset.
        DriverDmaError
            If the job ended but one of its DMA accesses returned an error response.
        """
        self.check(job)
        scheduler, lock = self._scheduler, self._kernel.lock
        bound = self.max_cycles if job.max_cycles is None else job.max_cycles
        data = b"".join(bytes(record_of(task)) for task in job.tasks)
        with lock:
            flags = s.MEM_KERNEL_MAPPING | s.MEM_LIMIT_IOVA_ALIGNMENT
            records = self._kernel.create(len(data), flags, RECORDS).hold()
        records.backing.write(0, data)

        def queue() -> _Run:
            scheduler.stamp()  # others may have used the device in the meantime
            run = _Run(self._kernel, self._file, job, records, bound)
            run.queue()
            return run

        try:
            run = scheduler.run(self._file, queue)
        except KeyboardInterrupt:
            self.soft_reset(job.core_mask)  # the cores still work on the job, and would refuse the next one
            raise
        finally:
            with lock:
                for left in list(self._file.jobs):  # the device raised an exception
                    scheduler.end(left, ECANCELED)
                records.drop()
        if run.error:
            error = DriverTimeout(bound, run.reports)
            log.error("job timeout: %s", error)
            self.soft_reset(job.core_mask)
            raise error
        self._report_dma_errors(run.dma_errors)
        cores = {core: run.result_of(core) for core in sorted(run.parts)}
        return JobResult(run.queued_at, self.device.cycle, cores)

    def soft_reset(self, core_mask: int) -> None:
        """Assert and release the resets of the cores; buffers keep their contents [HW 10.4]."""
        log.warning("soft reset, cores 0x%X", core_mask)
        self.device.reset(core_mask)

    def _report_dma_errors(self, broken: dict[int, int]) -> None:
        register = registers()["DDMA"]["CFG_ID_ERROR"]
        parts = []
        for core, bits in sorted(broken.items()):
            fields = register.decode(self.read(core, "DDMA", "CFG_ID_ERROR"))
            ids = ", ".join(f"{name} {value}" for name, value in fields.items())
            account = self.device.block_state(core).replace("\n", "\n  ")
            parts.append(f"core {core}: {', '.join(interrupt_names(bits))} ({ids})\n  {account}")
        if parts:
            raise DriverDmaError(
                "the job ended with DMA errors, its results may be wrong\n" + "\n".join(parts),
                core=min(broken),
            )

    def _check_open(self) -> None:
        if self._file.closed:
            raise DriverError("the driver is closed")


class _Run(RknpuJob):
    """A job of the kernel that records the activity of its cores.

    Members
    -------
    starts, ends : cycle of a core's first kick and of its last interrupt.
    dma_errors : error events of the cores that had some.
    reports : state of the cores that had not finished at the time-out.
    """

    def __init__(self, kernel: RknpuCore, file: File, job: Job, records: GemObject, bound: int) -> None:
        flags = s.JOB_PC | (s.JOB_PINGPONG if job.pingpong else 0)
        args = s.RknpuSubmit(flags=flags, task_base_addr=job.task_base_addr)
        ranges = {core: job.range_of(core) for core in job.cores}
        super().__init__(kernel, file, args, job.cores, ranges, records, Fence("driver"), [])
        self.job, self.bound = job, bound  # one cycle is one nanosecond
        self.starts: dict[int, int] = {}
        self.ends: dict[int, int] = {}
        self.dma_errors: dict[int, int] = {}
        self.reports: list[CoreReport] = []

    def begin(self, port: CorePort) -> None:
        self.starts[port.core] = port.device.cycle
        super().begin(port)

    def kicks_off(self, port: CorePort, first: int, number: int) -> None:
        annotate = getattr(port.device, "annotate", None)
        if annotate is not None and self.job.layers:
            annotate(port.core, self.job.layers_of(first, number))
        log.debug("core %d: %d tasks from 0x%X", port.core, number, self.job.tasks[first].regcmd_addr)

    def interrupt(self, port: CorePort) -> bool:
        finished = super().interrupt(port)
        errors = self.parts[port.core].raw & DMA_ERRORS
        if errors:
            self.dma_errors[port.core] = self.dma_errors.get(port.core, 0) | errors
        if finished:
            self.ends[port.core] = port.device.cycle
        return finished

    def result_of(self, core: int) -> CoreRun:
        """Activity of a core, after it has finished."""
        part = self.parts[core]
        return CoreRun(core, self.starts[core], self.ends[core], part.number, part.status)

    def _expired(self) -> None:
        scheduler = self.driver.scheduler
        self.reports = [self._report(scheduler.ports[core]) for core in sorted(self.waiting)]
        scheduler.end(self, ETIMEDOUT)

    def _report(self, port: CorePort) -> CoreReport:
        values = {name: port.read("PC", name) for name in REPORTED}
        blocks = {}
        for block in registers():
            if block.has_groups:
                register = block["S_STATUS"]
                busy = [
                    f"group {name[-1]} {(register.fields[name].label(value) or value)}"
                    for name, value in register.decode(port.read(block.name, "S_STATUS")).items()
                    if value
                ]
                blocks[block.name] = " and ".join(busy).lower().replace("_", " ") or "idle"
        counter = registers()["PC"]["TASK_STATUS"].decode(values["TASK_STATUS"])["TASK_COUNTER"]
        part = self.parts[port.core]
        index = min(part.first_task + counter, part.last_task)
        task = self.job.tasks[index]
        name, layer = task.name or "unnamed", self.job.layers.get(task.op_idx)
        waits = port.device.block_state(port.core)
        return CoreReport(port.core, index, name, values, blocks, waits, layer)
