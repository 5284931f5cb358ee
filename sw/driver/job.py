"""Tasks and jobs as the vendor driver's submit call describes them (H 1.9)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rtl.regs import registers
from sw.regcmd import TaskEntry, amount_code, blocks_of_mask, op_enable_mask
from sw.regcmd.tasks import TAIL_WORDS

MAX_TASKS_PER_KICK = 4095
"""Largest number the TASK_NUMBER field takes; the vendor driver's max_submit_number (H 1.2)."""


def interrupt_bits(*names: str) -> int:
    """Mask of interrupt events by name (`DPU_0`, ...; H 7)."""
    events = registers()["PC"]["INTERRUPT_MASK"].fields["int_mask"].enum or {}
    mask = 0
    for name in names:
        mask |= events[name]
    return mask


def interrupt_names(mask: int) -> list[str]:
    """Names of the events in a mask, from bit 0 up."""
    events = registers()["PC"]["INTERRUPT_MASK"].fields["int_mask"].enum or {}
    return [name for name, bit in events.items() if mask & bit]


def fold_interrupts(mask: int) -> int:
    """Both groups of every event of which either is set; error bits dropped (H 1.9)."""
    events = registers()["PC"]["INTERRUPT_MASK"].fields["int_mask"].enum or {}
    folded = 0
    for name, bit in events.items():
        other = name[:-2] + {"_0": "_1", "_1": "_0"}.get(name[-2:], "")
        if mask & bit and other in events:
            folded |= bit | events[other]
    return folded


@dataclass(frozen=True)
class Task:
    """One record of a task list.

    Parameters
    ----------
    regcmd_addr
        byte address of the words, a multiple of 16.
    regcfg_amount
        words without the four of the tail.
    int_mask
        events that end a kick of which this is the last task; whole pairs.
    int_clear
        events to clear (kept for completeness; drivers clear with `int_mask`, H 1.9).
    enable_mask
        blocks that the task starts (H 1.5).
    op_idx
        number of the layer it belongs to.
    name
        for messages.
    """

    regcmd_addr: int
    regcfg_amount: int
    int_mask: int
    int_clear: int
    enable_mask: int
    op_idx: int = 0
    name: str = ""

    @classmethod
    def of_entry(cls, entry: TaskEntry, op_idx: int = 0) -> Task:
        """The record of a task that `sw.regcmd.build_task_list` has placed."""
        mask = completion_mask(entry.mask)
        return cls(entry.address, entry.n_words - TAIL_WORDS, mask, mask, entry.mask, op_idx, entry.name)

    @property
    def amount(self) -> int:
        """Amount code (H 1.6)."""
        return amount_code(self.regcfg_amount + TAIL_WORDS)


def completion_mask(enable_mask: int) -> int:
    """Events that end a task with these blocks: of the PPU if it takes part, else of the DPU (H 7)."""
    block = "PPU" if "PPU" in blocks_of_mask(enable_mask) else "DPU"
    return interrupt_bits(f"{block}_0", f"{block}_1")


def known_blocks() -> int:
    """Mask of all blocks that an op-enable word can start (H 1.5)."""
    fields = registers()["GLOBAL"]["OPERATION_ENABLE"].fields
    return op_enable_mask(name.removesuffix("_OP_EN") for name in fields)


@dataclass(frozen=True)
class Job:
    """Tasks to run on one or more cores.

    Parameters
    ----------
    tasks
        all records.
    core_mask
        1, 2, 4, 3 or 7 (H 1.9).
    ranges
        core to (first task, number of tasks), as subcore_task; may be left out for one core.
    task_base_addr
        added to the data addresses of all tasks, a multiple of 16.
    pingpong
        let the PC fetch the next task's registers while one runs.
    max_cycles
        bound of the whole job, or None for the driver's.
    layers
        names of the layers by `Task.op_idx`, for devices that show them (`annotate`).
    """

    tasks: Sequence[Task]
    core_mask: int = 1
    ranges: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    task_base_addr: int = 0
    pingpong: bool = True
    max_cycles: int | None = None
    layers: Mapping[int, str] = field(default_factory=dict)

    def layers_of(self, first: int, number: int) -> list[tuple[int, int, str]]:
        """Layers of some tasks: (first task, number of tasks, name), counted from `first`."""
        found: list[tuple[int, int, str]] = []
        for place, task in enumerate(self.tasks[first : first + number]):
            name = self.layers.get(task.op_idx, "")
            if found and found[-1][2] == name:
                found[-1] = (found[-1][0], found[-1][1] + 1, name)
            else:
                found.append((place, 1, name))
        return [layer for layer in found if layer[2]]

    @property
    def cores(self) -> list[int]:
        """Cores of the mask, lowest first."""
        return [core for core in range(self.core_mask.bit_length()) if self.core_mask & (1 << core)]

    def range_of(self, core: int) -> tuple[int, int]:
        """First task and number of tasks of a core."""
        if not self.ranges and len(self.cores) == 1:
            return 0, len(self.tasks)
        return self.ranges.get(core, (0, 0))


def kicks(first: int, number: int) -> Iterable[tuple[int, int]]:
    """Split a range into kicks of at most `MAX_TASKS_PER_KICK` tasks: (first task, number)."""
    for start in range(first, first + number, MAX_TASKS_PER_KICK):
        yield start, min(MAX_TASKS_PER_KICK, first + number - start)


@dataclass(frozen=True)
class CoreRun:
    """What one core did for a job: cycles of its first kick and last interrupt, last int_status."""

    core: int
    start: int
    end: int
    tasks: int
    int_status: int

    @property
    def cycles(self) -> int:
        """Cycles from the first kick to the last interrupt."""
        return self.end - self.start


@dataclass(frozen=True)
class JobResult:
    """A finished job: cycles of submit and end, and each core's part."""

    start: int
    end: int
    cores: Mapping[int, CoreRun]

    @property
    def cycles(self) -> int:
        """Cycles from submit to the last interrupt."""
        return self.end - self.start
