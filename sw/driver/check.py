"""Checks of a job before the first register is written, and the driver's exceptions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from rkcosim.base import DEVICE_ERROR, Error
from rkcosim.driver.device import Device
from rkcosim.regcmd import words_from_bytes
from rkcosim.regcmd.job import Job, Task, kicks, record_problem
from rkcosim.regcmd.tasks import FETCH_BYTES
from rkcosim.regcmd.word import WORD_BYTES
from rkcosim.spec.regs import registers


class DriverError(Error):
    """A request was rejected or failed; the message has the request and the reason."""

    exit_code = DEVICE_ERROR


@dataclass(frozen=True)
class CoreReport:
    """State of one core when a job was given up.

    Members
    -------
    task : index of the unfinished task in the job's task list.
    registers : registers of the PC, by name.
    blocks : S_STATUS of each block, as text.
    waits : the device's description of what the core waits for.
    """

    core: int
    task: int
    task_name: str
    registers: Mapping[str, int]
    blocks: Mapping[str, str]
    waits: str
    layer: str | None = None
    """Name of the task's layer, if the job names its layers."""

    def __str__(self) -> str:
        registers = ", ".join(f"{name} 0x{value:X}" for name, value in self.registers.items())
        blocks = ", ".join(f"{name} {state}" for name, state in self.blocks.items())
        waits = self.waits.replace("\n", "\n  ")
        return (
            f"core {self.core}: task {self.task} ({self.task_name}) did not end\n"
            f"  registers: {registers}\n"
            f"  S_STATUS: {blocks}\n"
            f"  {waits}"
        )


class DriverTimeout(DriverError):
    """A job did not end within its cycle limit; the cores that it ran on have been reset.

    Parameters
    ----------
    cycles
        The limit.
    cores
        One report for each core that had not finished.
    """

    def __init__(self, cycles: int, cores: list[CoreReport]) -> None:
        self.cycles = cycles
        self.cores = cores
        super().__init__(f"no completion interrupt within {cycles} cycles\n" + "\n".join(map(str, cores)))
        if cores:
            self.at(core=cores[0].core, task=cores[0].task, layer=cores[0].layer)


class DriverDmaError(DriverError):
    """A job ended, but one of its DMA accesses returned an error response: its results may be wrong."""


class Allocated(Protocol):
    """Interface of a buffer for the checks (`rkcosim.driver.Buffer`)."""

    name: str
    iova: int
    size: int
    mapped_size: int


CORE_MASKS = (1, 2, 4, 3, 7)
"""Core masks that the vendor driver starts [HW 10.3]; it never runs jobs with 5 and 6."""


def check_job(job: Job, device: Device, buffers: Sequence[Allocated]) -> None:
    """Reject a job that cannot run.

    Raises
    ------
    DriverError
        If the job is wrong; the message has the core, the task and the problem.
    """
    if job.core_mask not in CORE_MASKS:
        raise DriverError(f"core mask 0x{job.core_mask:X}: must be one of {', '.join(map(hex, CORE_MASKS))}")
    if job.core_mask >> device.cores:
        raise DriverError(f"core mask 0x{job.core_mask:X}: the device has {device.cores} cores")
    if not job.tasks:
        raise DriverError("the job has no tasks")
    base = registers()["PC"]["TASK_DMA_BASE_ADDR"]
    if job.task_base_addr % FETCH_BYTES or not 0 <= job.task_base_addr <= base.mask:
        raise DriverError(f"task base address 0x{job.task_base_addr:X} is not a multiple of {FETCH_BYTES}")
    if job.max_cycles is not None and job.max_cycles <= 0:
        raise DriverError(f"max_cycles must be positive, not {job.max_cycles}")
    for core in job.ranges:
        if core not in job.cores:
            raise DriverError(f"core {core} has a task range but is not in core mask 0x{job.core_mask:X}")
    used: set[int] = set()
    for core in job.cores:
        first, number = job.range_of(core)
        if number <= 0 or first < 0 or first + number > len(job.tasks):
            raise DriverError(
                f"core {core}: task range {first}..{first + number} is not within the job's "
                f"{len(job.tasks)} tasks"
            )
        used.update(range(first, first + number))
    for index in sorted(used):
        _check_task(index, job.tasks[index], buffers)
    for core in job.cores:
        for first, number in kicks(*job.range_of(core)):
            for index in range(first, first + number - 1):
                _check_link(index, job.tasks[index], job.tasks[index + 1], device)


def _check_task(index: int, task: Task, buffers: Sequence[Allocated]) -> None:
    where = f"task {index} ({task.name or 'unnamed'})"
    if task.regcfg_amount < 0:
        raise DriverError(f"{where}: regcfg_amount {task.regcfg_amount} is negative", task=index)
    if task.regcmd_addr % FETCH_BYTES:
        raise DriverError(
            f"{where}: regcmd address 0x{task.regcmd_addr:X} is not a multiple of {FETCH_BYTES}", task=index
        )
    size = (task.amount + 1) * FETCH_BYTES
    start, end = task.regcmd_addr, task.regcmd_addr + size
    if not any(b.iova <= start and end <= b.iova + b.mapped_size for b in buffers):
        listed = ", ".join(f"{b.name} 0x{b.iova:X}..0x{b.iova + b.size:X}" for b in buffers)
        raise DriverError(
            f"{where}: its {size} bytes of commands at 0x{task.regcmd_addr:X} are not inside one buffer "
            f"(buffers: {listed or 'none'})",
            task=index,
        )
    if problem := record_problem(task):
        raise DriverError(f"{where}: {problem}", task=index)


def _check_link(index: int, task: Task, following: Task, device: Device) -> None:
    """Check that a task's tail links to the next task: the PC follows the links, not the records."""
    address = task.regcmd_addr + task.regcfg_amount * WORD_BYTES
    from rkcosim.regcmd.disassembler import disassemble

    link, amount = disassemble(words_from_bytes(device.memory.read(address, 2 * WORD_BYTES)))
    where = f"task {index} ({task.name or 'unnamed'})"
    pc = registers()["PC"]
    if link.register is not pc["BASE_ADDRESS"] or amount.register is not pc["REGISTER_AMOUNTS"]:
        raise DriverError(
            f"{where}: no link to the next task at 0x{address:X} (found {link.name}, {amount.name})",
            task=index,
        )
    target = link.fields["PC_SOURCE_ADDR"] * FETCH_BYTES
    if target != following.regcmd_addr or amount.fields["PC_DATA_AMOUNT"] != following.amount:
        raise DriverError(
            f"{where}: links to 0x{target:X} with amount {amount.fields['PC_DATA_AMOUNT']}, "
            f"but task {index + 1} is at 0x{following.regcmd_addr:X} with amount {following.amount}",
            task=index,
        )
