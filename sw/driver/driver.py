"""The driver: buffers, jobs, the commit sequence of the vendor driver, interrupts, time-out, reset."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

from rtl.regs import registers
from sw.driver.buffers import Buffer, BufferSpace
from sw.driver.check import check_job
from sw.driver.core_port import CorePort, Kick
from sw.driver.device import Device
from sw.driver.errors import CoreReport, DriverDmaError, DriverError, DriverTimeout
from sw.driver.job import (
    CoreRun,
    Job,
    JobResult,
    Task,
    fold_interrupts,
    interrupt_bits,
    interrupt_names,
    kicks,
)

log = logging.getLogger("rkcosim.driver")

DEFAULT_MAX_CYCLES = 200_000_000
"""Bound of a job: 0.2 s at the nominal 1 GHz (H 9.1)."""

REPORTED = ("INTERRUPT_STATUS", "INTERRUPT_RAW_STATUS", "INTERRUPT_MASK", "TASK_STATUS", "TASK_CON")
"""PC registers in a time-out message, as the vendor driver's log has them."""


@dataclass
class _Running:
    """A core at work: its remaining kicks and the one under way."""

    core: int
    rest: Iterator[tuple[int, int]]
    start: int
    first: int = 0
    number: int = 0
    done: int = 0
    end: int = 0
    int_status: int = 0
    dma_errors: int = 0


class Driver:
    """An open device.

    Parameters
    ----------
    device
        see `sw.driver.device.Device`.
    max_cycles
        default bound of a job.
    """

    def __init__(self, device: Device, max_cycles: int = DEFAULT_MAX_CYCLES) -> None:
        self.device = device
        self.max_cycles = max_cycles
        self.buffers = BufferSpace(device.memory)
        self._open = True

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Free every buffer; a second call does nothing.  The device itself stays open."""
        if self._open:
            self._open = False
            self.buffers.free_all()

    def alloc(self, size: int, name: str = "buffer") -> Buffer:
        """A zeroed buffer of device memory.

        Raises
        ------
        DriverError
            if the size is not positive, no room is left or the driver is closed.
        """
        self._check_open()
        return self.buffers.alloc(size, name)

    def read(self, core: int, block: str, register: str) -> int:
        """Read a register of a core by name."""
        return CorePort(self.device, core).read(block, register)

    def write(self, core: int, block: str, register: str, value: int) -> None:
        """Write a register of a core by name."""
        CorePort(self.device, core).write(block, register, value)

    def version(self, core: int = 0) -> int:
        """Hardware version as the vendor driver prints it (H 2.1)."""
        return CorePort(self.device, core).version()

    def submit(self, job: Job) -> JobResult:
        """Run a job to its end.

        Returns
        -------
        JobResult
            cycles of every core's part.

        Raises
        ------
        DriverError
            before anything is written, if the job is not well formed; the message says what.
        DriverTimeout
            if a core does not finish in time; the job's cores have been reset.
        DriverDmaError
            if the job ended but a DMA transfer of it got an error response.
        """
        self._check_open()
        check_job(job, self.device.cores, self.buffers)
        bound = self.max_cycles if job.max_cycles is None else job.max_cycles
        begin = self.device.cycle
        running: dict[int, _Running] = {}
        for core in job.cores:
            state = _Running(core, iter(kicks(*job.range_of(core))), self.device.cycle)
            running[core] = state
            self._next_kick(job, state)
        finished: dict[int, _Running] = {}
        while running:
            left = begin + bound - self.device.cycle
            mask = sum(1 << core for core in running)
            raised = self.device.run_until_irq(mask, left) if left > 0 else 0
            if not raised:
                self._give_up(job, list(running.values()), bound)
            for core in [core for core in running if raised & (1 << core)]:
                state = running[core]
                if self._handle_interrupt(job, state) and not self._next_kick(job, state):
                    state.end = self.device.cycle
                    finished[core] = running.pop(core)
        self._report_dma_errors(finished)
        parts = {
            core: CoreRun(core, state.start, state.end, state.done, state.int_status)
            for core, state in sorted(finished.items())
        }
        return JobResult(begin, self.device.cycle, parts)

    def soft_reset(self, core_mask: int) -> None:
        """Assert and release the resets of some cores; buffers keep their contents (H 1.10)."""
        log.warning("soft reset, cores 0x%X", core_mask)
        self.device.reset(core_mask)

    def _next_kick(self, job: Job, state: _Running) -> bool:
        """Start the next kick of a core; False if there is none."""
        kick = next(state.rest, None)
        if kick is None:
            return False
        state.first, state.number = kick
        tasks = job.tasks[state.first : state.first + state.number]
        annotate = getattr(self.device, "annotate", None)
        if annotate is not None and job.layers:
            annotate(state.core, job.layers_of(state.first, state.number))
        self._commit(job, state.core, tasks[0], tasks[-1], state.number)
        return True

    def _commit(self, job: Job, core: int, first: Task, last: Task, number: int) -> None:
        """The register writes of one kick."""
        kick = Kick(
            base=first.regcmd_addr,
            amount=first.amount,
            tasks=number,
            mask=last.int_mask,
            clear=first.int_mask,
            dma_base=job.task_base_addr,
            pp_en=int(job.pingpong),
        )
        CorePort(self.device, core).start(kick)
        log.debug("core %d: %d tasks from 0x%X", core, number, first.regcmd_addr)

    def _handle_interrupt(self, job: Job, state: _Running) -> bool:
        """Answer an interrupt; whether it ends the kick."""
        core, port = state.core, CorePort(self.device, state.core)
        last = job.tasks[state.first + state.number - 1]
        status, raw = port.interrupt()
        state.dma_errors |= raw & interrupt_bits("DMA_READ_ERROR", "DMA_WRITE_ERROR")
        complete = fold_interrupts(status) == fold_interrupts(last.int_mask)
        if not complete:
            log.warning(
                "core %d: invalid irq status: 0x%X, raw status: 0x%X, require mask: 0x%X, task counter: 0x%X",
                core,
                status,
                raw,
                last.int_mask,
                port.task_counter(),
            )
        port.acknowledge()
        if complete:
            state.done += state.number
            state.int_status = status
        return complete

    def _report_dma_errors(self, finished: dict[int, _Running]) -> None:
        broken = [state for state in finished.values() if state.dma_errors]
        if broken:
            parts = []
            for state in broken:
                ids = self._error_ids(state.core)
                names = ", ".join(interrupt_names(state.dma_errors))
                account = self.device.block_state(state.core).replace("\n", "\n  ")
                parts.append(f"core {state.core}: {names} ({ids})\n  {account}")
            raise DriverDmaError(
                "the job ended with DMA errors, its results are suspect\n" + "\n".join(parts)
            )

    def _error_ids(self, core: int) -> str:
        register = registers()["DDMA"]["CFG_ID_ERROR"]
        ids = register.decode(self.read(core, "DDMA", "CFG_ID_ERROR"))
        return ", ".join(f"{name} {value}" for name, value in ids.items())

    def _give_up(self, job: Job, states: list[_Running], bound: int) -> None:
        reports = [self._report(job, state) for state in states]
        error = DriverTimeout(bound, reports)
        log.error("job timeout: %s", error)
        self.soft_reset(job.core_mask)
        raise error

    def _report(self, job: Job, state: _Running) -> CoreReport:
        core = state.core
        values = {name: self.read(core, "PC", name) for name in REPORTED}
        blocks = {}
        for block in registers():
            if block.has_groups:
                register = block["S_STATUS"]
                fields = register.decode(self.read(core, block.name, "S_STATUS"))
                busy = [
                    f"group {name[-1]} {(register.fields[name].label(value) or value)}".lower().replace(
                        "_", " "
                    )
                    for name, value in fields.items()
                    if value
                ]
                blocks[block.name] = " and ".join(busy) or "idle"
        counter = registers()["PC"]["TASK_STATUS"].decode(values["TASK_STATUS"])["TASK_COUNTER"]
        index = min(state.first + counter, state.first + state.number - 1)
        return CoreReport(
            core, index, job.tasks[index].name or "unnamed", values, blocks, self.device.block_state(core)
        )

    def _check_open(self) -> None:
        if not self._open:
            raise DriverError("the driver is closed")
