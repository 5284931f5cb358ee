"""The first write of a task whose bytes are wrong: its cycle, its burst, and the stage that made it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rkcosim.debug.opening import DebuggedJob
from rkcosim.debug.rtl.held import started_blocks
from rkcosim.debug.rtl.run import RtlRun
from rkcosim.engines.memory import PAGE
from rkcosim.waves.events import Event

BEAT = 32
"""Bytes of a beat."""


@dataclass(frozen=True)
class WrongBytes:
    """Bytes of the memory after a task that are not what they must be.

    Members
    -------
    job, task : the task.
    addresses : int64 [bytes], ascending.
    got, want : uint8 [bytes], what the RTL has, and what is right.
    begin, end : cycles of the start and the end of the task.
    against_golden : whether the golden model has the right bytes, not a reference.
    """

    job: int
    task: int
    addresses: NDArray[np.int64]
    got: NDArray[np.uint8]
    want: NDArray[np.uint8]
    begin: int
    end: int
    against_golden: bool = True

    def __str__(self) -> str:
        return (
            f"task {self.task}: {self.addresses.size} bytes differ, the first at 0x{self.addresses[0]:08X}: "
            f"0x{self.got[0]:02X}, must be 0x{self.want[0]:02X}"
        )


@dataclass(frozen=True)
class WrongWrite:
    """The first write of a task with a wrong byte.

    Members
    -------
    cycle : the cycle in which the byte is on the bus, about 33 cycles before it is in the contents of the
        memory; that of the end of the task if nothing wrote it.
    address, got, want : the byte.
    burst : the burst that carried it, None if no burst did.
    """

    cycle: int
    address: int
    got: int
    want: int
    burst: Event | None

    def __str__(self) -> str:
        byte = f"0x{self.address:08X}: 0x{self.got:02X}, must be 0x{self.want:02X}"
        if self.burst is None:
            return f"no burst of the task writes {byte}"
        return (
            f"cycle {self.cycle}: {byte}, from the burst of {self.burst.client} of {self.burst.value} beats "
            f"to 0x{self.burst.address:08X} in cycle {self.burst.cycle}"
        )


def compare(
    memory: Any, right: Any, ranges: Sequence[tuple[int, int]]
) -> tuple[NDArray[np.int64], NDArray[np.uint8], NDArray[np.uint8]]:
    """Return addresses, bytes of a memory and right bytes where they differ, each once and ascending.

    Parameters
    ----------
    memory, right : memories with `view(address, size)`.
    ranges : (first byte, number of bytes) to compare.
    """
    found: dict[int, tuple[int, int]] = {}
    for first, size in ranges:
        ours, theirs = memory.view(first, size), right.view(first, size)
        for place in np.flatnonzero(ours != theirs).tolist():
            found[first + place] = int(ours[place]), int(theirs[place])
    addresses = np.array(sorted(found), np.int64)
    pairs = np.array([found[one] for one in addresses.tolist()], np.uint8).reshape(-1, 2)
    return addresses, pairs[:, 0], pairs[:, 1]


def written_pages(run: RtlRun, task_ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the whole pages around ranges, within mapped memory, as (first byte, number of bytes)."""
    pages = sorted(
        {
            page
            for first, size in task_ranges
            if size
            for page in range(first // PAGE, (first + size - 1) // PAGE + 1)
        }
    )
    mapped = run.engine.memory.ranges
    return [
        (page * PAGE, PAGE)
        for page in pages
        if any(first <= page * PAGE < first + size for first, size in mapped.items())
    ]


def first_write(run: RtlRun, wrong: WrongBytes) -> WrongWrite:
    """Find the first write with a wrong byte; the run stands in its cycle afterwards.

    The task runs again twice: once to record its bursts, once to find the cycle.
    """
    core = run.cores[wrong.job].core
    run.go_to(wrong.begin)
    run.record_bursts(True)
    run.run(wrong.end)
    burst, index = _first_burst(run.bursts(), core, wrong.addresses)
    run.record_bursts(False)
    address = int(wrong.addresses[index])
    cycle = wrong.end
    if burst is not None:
        run.go_to(wrong.begin)
        run.engine.watch_memory(address)
        run.run(wrong.end)
        cycle = next((one for one in run.engine.memory_writes() if one > burst.cycle), wrong.end)
    run.go_to(cycle)
    return WrongWrite(cycle, address, int(wrong.got[index]), int(wrong.want[index]), burst)


def _first_burst(
    bursts: Sequence[Event], core: int, addresses: NDArray[np.int64]
) -> tuple[Event | None, int]:
    """Return the first write burst with one of some addresses, and the index of the first address in it."""
    for event in bursts:
        if event.core != core or event.direction != "write":
            continue
        at = int(np.searchsorted(addresses, event.address))
        if at < addresses.size and addresses[at] < event.address + BEAT * event.value:
            return event, at
    return None, 0


def stage(job: DebuggedJob, wrong: WrongBytes, write: WrongWrite, opened: Any) -> list[str]:
    """Return which stage made a wrong byte, one line each, from a lockstep run of the whole kick.

    Parameters
    ----------
    opened : opens an engine that records what is written into CBUF and what CORE delivers.
    """
    from rkcosim.verify.crosscheck.lockstep import lockstep

    client = write.burst.client if write.burst is not None else "the output"
    with opened(cores=job.stream.core + 1) as engine:
        job.stream.load_into(engine.memory)
        result = lockstep(engine, job.stream.kick, job.stream.core, writes=job.stream.writes)
    found = result.divergence
    if found is None or found.cycle == 0 or found.task > wrong.task:
        # What is wrong in a later task follows from the wrong byte.
        if "CORE" not in started_blocks(job, wrong.task):
            return [f"the task has no convolution: made in the stages before the writes of {client}"]
        return [
            "what the task wrote into CBUF and what CORE delivered are as in the golden model: made after "
            f"CORE, in the stages before the writes of {client}"
        ]
    where = f"cycle {found.cycle}, task {found.task}: {found.place}: {found.rtl}, golden model {found.golden}"
    if found.place.startswith("CBUF"):
        kind = found.place.split()[1]
        return [
            f"made in CNA: its {kind} loader writes a wrong byte into CBUF",
            where,
        ]
    if found.place.startswith("CORE"):
        return [
            "made in CORE: the operands in CBUF are as in the golden model, the sums are not",
            where,
        ]
    return [f"the lockstep run of the kick differs otherwise: {found}"]
