"""Checks of a job before the first register is written."""

from __future__ import annotations

from rtl.regs import registers
from sw.driver.buffers import BufferSpace
from sw.driver.errors import DriverError
from sw.driver.job import Job, Task, fold_interrupts, interrupt_names, kicks, known_blocks
from sw.regcmd import disassemble, words_from_bytes
from sw.regcmd.tasks import FETCH_BYTES
from sw.regcmd.word import WORD_BYTES

CORE_MASKS = (1, 2, 4, 3, 7)
"""Masks that the vendor driver starts (H 1.9); 5 and 6 never run there."""


def check_job(job: Job, cores: int, buffers: BufferSpace) -> None:
    """Refuse a job that cannot run.

    Raises
    ------
    DriverError
        naming core, task and what is wrong.
    """
    if job.core_mask not in CORE_MASKS:
        raise DriverError(f"core mask 0x{job.core_mask:X}: must be one of {', '.join(map(hex, CORE_MASKS))}")
    if job.core_mask >> cores:
        raise DriverError(f"core mask 0x{job.core_mask:X}: the device has {cores} cores")
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
                f"core {core}: task range {first}..{first + number} does not lie in the job's "
                f"{len(job.tasks)} tasks"
            )
        used.update(range(first, first + number))
    for index in sorted(used):
        _check_task(index, job.tasks[index], buffers)
    for core in job.cores:
        for first, number in kicks(*job.range_of(core)):
            for index in range(first, first + number - 1):
                _check_link(index, job.tasks[index], job.tasks[index + 1], buffers)


def _check_task(index: int, task: Task, buffers: BufferSpace) -> None:
    where = f"task {index} ({task.name or 'unnamed'})"
    events = registers()["PC"]["INTERRUPT_MASK"].fields["int_mask"]
    if task.regcfg_amount < 0:
        raise DriverError(f"{where}: regcfg_amount {task.regcfg_amount} is negative")
    if task.regcmd_addr % FETCH_BYTES:
        raise DriverError(
            f"{where}: regcmd address 0x{task.regcmd_addr:X} is not a multiple of {FETCH_BYTES}"
        )
    size = (task.amount + 1) * FETCH_BYTES
    if buffers.find(task.regcmd_addr, size) is None:
        raise DriverError(
            f"{where}: its {size} bytes of commands at 0x{task.regcmd_addr:X} are not inside one buffer "
            f"(buffers: {buffers.describe()})"
        )
    for name, mask in (("int_mask", task.int_mask), ("int_clear", task.int_clear)):
        if mask >> events.width or mask < 0:
            raise DriverError(f"{where}: {name} 0x{mask:X} has bits outside the {events.width} events")
    if not task.int_mask or fold_interrupts(task.int_mask) != task.int_mask:
        names = ", ".join(interrupt_names(task.int_mask)) or "nothing"
        raise DriverError(
            f"{where}: int_mask 0x{task.int_mask:X} ({names}) must be whole pairs of events, "
            "or its end is never recognised"
        )
    if not task.enable_mask or task.enable_mask & ~known_blocks():
        raise DriverError(f"{where}: enable_mask 0x{task.enable_mask:X} names no block or an unknown one")


def _check_link(index: int, task: Task, following: Task, buffers: BufferSpace) -> None:
    """The tail of a task must name the next one of its kick: the PC follows the list, not the records."""
    address = task.regcmd_addr + task.regcfg_amount * WORD_BYTES
    link, amount = disassemble(words_from_bytes(buffers.memory.read(address, 2 * WORD_BYTES)))
    where = f"task {index} ({task.name or 'unnamed'})"
    pc = registers()["PC"]
    if link.register is not pc["BASE_ADDRESS"] or amount.register is not pc["REGISTER_AMOUNTS"]:
        raise DriverError(
            f"{where}: no link to the next task at 0x{address:X} (found {link.name}, {amount.name})"
        )
    target = link.fields["PC_SOURCE_ADDR"] * FETCH_BYTES
    if target != following.regcmd_addr or amount.fields["PC_DATA_AMOUNT"] != following.amount:
        raise DriverError(
            f"{where}: links to 0x{target:X} with amount {amount.fields['PC_DATA_AMOUNT']}, "
            f"but task {index + 1} is at 0x{following.regcmd_addr:X} with amount {following.amount}"
        )
