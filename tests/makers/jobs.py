"""Jobs of drawn and small tasks for the driver, and the golden model's results."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from rkcosim.driver import Buffer, Driver, Job, Task
from rkcosim.driver.core_port import Kick
from rkcosim.driver.kernel.memory import PAGE
from rkcosim.engines import BuildError, DramConfig, SocEngine, open_engine
from rkcosim.golden.task import GoldenNpu, Memory
from rkcosim.regcmd import TaskBuilder, build_task_list, decode_word, task_list_bytes
from rkcosim.regcmd.job import kicks
from rkcosim.regcmd.tasks import TAIL_WORDS
from rkcosim.verify.conformance.arena import BASE, COMMAND_BYTES, COMMAND_OFFSET
from rkcosim.verify.conformance.case import Case
from rkcosim.verify.conformance.groups import draw_case
from rkcosim.verify.crosscheck.compare import copy_memory
from rkcosim.verify.crosscheck.kick import run_kick

AREA_BYTES = COMMAND_OFFSET + COMMAND_BYTES + PAGE
"""Memory of a case: data, guard page, command lists, guard page."""


def engine_or_skip(cores: int = 3, on_diagnostic: str = "stop", dram: DramConfig | None = None) -> SocEngine:
    """Return the default engine; the test is skipped if it cannot be built."""
    from rkcosim.engines import toolchain

    try:
        toolchain.compiler()
        toolchain.yosys()
    except BuildError as error:
        pytest.skip(str(error))
    return open_engine(cores=cores, on_diagnostic=on_diagnostic, dram=dram)


def draw_at(group: str, seed: int, index: int = 0, area: int = 0) -> Case:
    """Draw a case of a conformance group for the driver, without TASK_DMA_BASE, in one of several areas."""
    base = BASE + area * AREA_BYTES
    return draw_case(group, seed, index, {"kick.based": 0}, base=base)


def memory_of(case: Case) -> Memory:
    """Return a golden memory that contains a case."""
    memory = Memory()
    for address, data in case.regions:
        memory.map(address, data.size)[:] = data
    return memory


def driver_for(engine: SocEngine, cases: Sequence[Case]) -> Driver:
    """Return a driver whose first buffers are the memory of some cases, in address order."""
    driver = Driver(engine, first=cases[0].arena.base - PAGE)
    for number, case in enumerate(cases):
        for address, data in case.regions:
            buffer = driver.alloc(
                data.size, f"core {number} {'data' if data.size > COMMAND_BYTES else 'commands'}"
            )
            assert buffer.iova == address, f"{buffer} is not at 0x{address:X}"
            buffer.write(data)
    return driver


def records_of(case: Case) -> list[Task]:
    """Return the driver's records of a case's command lists."""
    out = []
    mask = case.chain.interrupt_mask
    for (address, words), task in zip(case.chain.lists, case.plan.tasks, strict=True):
        enable = decode_word(words[-1], len(words) - 1)
        assert enable.kind == "op_enable"
        out.append(Task(address, len(words) - TAIL_WORDS, mask, mask, enable.value, name=task.description))
    return out


def records_of_builders(driver: Driver, tasks: Sequence[TaskBuilder]) -> list[Task]:
    """Place a chain of task lists in a buffer of the driver."""
    commands = driver.alloc(task_list_bytes(tasks), "commands")
    placed = build_task_list(tasks, commands.iova)
    commands.write(placed.data)
    return [Task.of_entry(entry) for entry in placed.tasks]


def filled(driver: Driver, size: int, name: str, seed: int = 0) -> Buffer:
    """Return a buffer with random bytes."""
    buffer = driver.alloc(size, name)
    buffer.write(np.random.default_rng(seed).integers(0, 256, size, np.uint8))
    return buffer


def golden_image(engine: SocEngine, job: Job, golden: GoldenNpu | None = None) -> Memory:
    """Return the memory after the golden model has run a job from the engine's present memory."""
    golden = golden or GoldenNpu(engine.cores)
    golden.memory = copy_memory(engine.memory)
    for device in golden.devices:
        device.memory = golden.memory
    for core in job.cores:
        for first, number in kicks(*job.range_of(core)):
            start, mask = job.tasks[first], job.tasks[first + number - 1].int_mask
            settings = job.task_base_addr, int(job.pingpong)
            result = run_kick(golden, Kick(start.regcmd_addr, start.amount, number, mask, *settings), core)
            assert result.done, result.state
    return golden.memory


def first_difference(engine: SocEngine, golden: Memory) -> str | None:
    """Return where engine and golden memory differ first, or None; all mapped memory is compared."""
    for address, size in engine.memory.ranges.items():
        left, right = engine.memory.view(address, size), golden.view(address, size)
        where = np.flatnonzero(left != right)
        if where.size:
            at = int(where[0])
            return f"{address + at:#x}: {left[at]:#x}, golden {right[at]:#x}; {where.size} bytes differ"
    return None
