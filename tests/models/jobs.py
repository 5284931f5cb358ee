"""Jobs of drawn and small tasks for the driver, and what the golden model makes of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from cosim.conformance.arena import BASE, COMMAND_BYTES, COMMAND_OFFSET
from cosim.conformance.case import Case
from cosim.conformance.groups import draw_case
from cosim.crosscheck.check import copy_memory, job_kicks, use_memory
from cosim.crosscheck.kick import run_kick
from cosim.engines import BuildError, DramConfig, SocEngine, open_engine
from cosim.golden.task import GoldenNpu, Memory
from sw.driver import Buffer, Driver, Job, Task
from sw.driver.buffers import PAGE_BYTES, BufferSpace
from sw.regcmd import TaskBuilder, build_task_list, decode_word, task_list_bytes
from sw.regcmd.tasks import TAIL_WORDS

AREA_BYTES = COMMAND_OFFSET + COMMAND_BYTES + PAGE_BYTES
"""Memory of a case: data, guard page, command lists, guard page."""


def engine_or_skip(cores: int = 3, on_diagnostic: str = "stop", dram: DramConfig | None = None) -> SocEngine:
    """The default engine; the test is skipped where it cannot be built."""
    from cosim.engines import toolchain

    try:
        toolchain.compiler()
        toolchain.yosys()
    except BuildError as error:
        pytest.skip(str(error))
    return open_engine(cores=cores, on_diagnostic=on_diagnostic, dram=dram)


def draw_at(group: str, seed: int, index: int = 0, area: int = 0) -> Case:
    """A case of a conformance group for the driver, without TASK_DMA_BASE, in one of several areas."""
    base = BASE + area * AREA_BYTES
    return draw_case(group, seed, index, {"kick.based": 0}, base=base)


def memory_of(case: Case) -> Memory:
    """A golden memory that holds a case."""
    memory = Memory()
    for address, data in case.regions:
        memory.map(address, data.size)[:] = data
    return memory


def driver_for(engine: SocEngine, cases: Sequence[Case]) -> Driver:
    """A driver whose first buffers are the memory of some cases, given in address order."""
    driver = Driver(engine)
    driver.buffers = BufferSpace(engine.memory, first=cases[0].arena.base - PAGE_BYTES)
    for number, case in enumerate(cases):
        for address, data in case.regions:
            buffer = driver.alloc(
                data.size, f"core {number} {'data' if data.size > COMMAND_BYTES else 'commands'}"
            )
            assert buffer.iova == address, f"{buffer} is not at 0x{address:X}"
            buffer.write(data)
    return driver


def records_of(case: Case) -> list[Task]:
    """The driver's records of a case's command lists."""
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
    """A buffer with random bytes."""
    buffer = driver.alloc(size, name)
    buffer.write(np.random.default_rng(seed).integers(0, 256, size, np.uint8))
    return buffer


def golden_image(engine: SocEngine, job: Job, golden: GoldenNpu | None = None) -> Memory:
    """Memory as the golden model leaves it when it runs a job from the engine's present memory."""
    golden = golden or GoldenNpu(engine.cores)
    use_memory(golden, copy_memory(engine.memory))
    for core in job.cores:
        for kick in job_kicks(job, core):
            result = run_kick(golden, kick, core)
            assert result.done, result.state
    return golden.memory


def first_difference(engine: SocEngine, golden: Memory) -> str | None:
    """Where engine and golden memory differ first, or None; everything that is mapped counts."""
    for address, size in engine.memory.ranges.items():
        left, right = engine.memory.view(address, size), golden.view(address, size)
        where = np.flatnonzero(left != right)
        if where.size:
            at = int(where[0])
            return f"{address + at:#x}: {left[at]:#x}, golden {right[at]:#x}; {where.size} bytes differ"
    return None
