"""The cross-check: one job on an engine and on the golden model, from the same memory, all of it compared."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from cosim.crosscheck.compare import Image, TensorMap, Verdict, judge
from cosim.crosscheck.kick import Device, Kick, run_kick
from cosim.golden.task import GoldenError, GoldenNpu, Memory, TaskReport
from sw.driver.job import Job, kicks


class EngineMemory(Image, Protocol):
    """Memory of an engine, which also tells what is mapped."""

    @property
    def ranges(self) -> dict[int, int]:
        """First address -> size of every mapped range."""
        ...


def copy_memory(memory: EngineMemory) -> Memory:
    """Copy everything that is mapped into a memory of the golden model."""
    copy = Memory()
    for address, size in memory.ranges.items():
        copy.map(address, size)[:] = memory.view(address, size)
    return copy


def use_memory(golden: GoldenNpu, memory: Memory) -> None:
    """Let a golden device go on with another memory; its registers and CBUF stay."""
    golden.memory = memory
    for device in golden.devices:
        device.memory = memory


def job_kicks(job: Job, core: int) -> list[Kick]:
    """Return the kicks of one core of a job, as the driver makes them (H1.9)."""
    out = []
    for first, number in kicks(*job.range_of(core)):
        start, last = job.tasks[first], job.tasks[first + number - 1]
        out.append(
            Kick(
                start.regcmd_addr, start.amount, number, last.int_mask, job.task_base_addr, int(job.pingpong)
            )
        )
    return out


def cross_check(
    job: Job,
    engine: Device,
    golden: GoldenNpu | None = None,
    tensors: Iterable[TensorMap] = (),
    max_cycles: int = 200_000_000,
) -> Verdict:
    """Run a job on an engine and on the golden model and compare the whole mapped memory.

    Parameters
    ----------
    job
        tasks and cores; every core's kicks run one after the other.
    engine
        device with `memory.ranges`; its memory is the starting image of both.
    golden
        keeps registers and CBUF from job to job; a fresh one by default.
    tensors
        where tensors lie, to name the coordinate of a difference.
    max_cycles
        bound of a kick on the engine.

    Returns
    -------
    The verdict; the engine's memory is left as the engine wrote it.
    """
    golden = golden or GoldenNpu(engine.cores, options=engine.options)
    use_memory(golden, copy_memory(engine.memory))
    notes: list[str] = []
    reports: list[TaskReport] = []
    for core in job.cores:
        for kick in job_kicks(job, core):
            try:
                mine = run_kick(golden, kick, core)
                if not mine.done:
                    notes.append(f"golden model, core {core}: {mine.state}")
            except GoldenError as error:
                notes.append(f"golden model, core {core}: {error}")
            reports += golden.devices[core].reports
            theirs = run_kick(engine, kick, core, max_cycles)
            if not theirs.done:
                notes.append(f"engine, core {core}: no interrupt in {max_cycles} cycles: {theirs.state}")
    ranges = list(engine.memory.ranges.items())
    return judge(engine.memory, golden.memory, ranges, reports, tensors, notes)
