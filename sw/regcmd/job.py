"""Tasks and jobs in the form of the vendor driver's submit call [HW 10.3]."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from rkcosim.regcmd import TaskEntry, amount_code, blocks_of_mask, op_enable_mask
from rkcosim.regcmd.tasks import TAIL_WORDS
from rkcosim.spec.interrupts import interrupt_names
from rkcosim.spec.regs import registers

MAX_TASKS_PER_KICK = 4095
"""Largest value of the TASK_NUMBER field; the vendor driver's max_submit_number [HW 1.2]."""


def interrupt_bits(*names: str) -> int:
    """Mask of interrupt events from their names (`DPU_0`, ...; [HW 10])."""
    events = registers()["PC"]["INTERRUPT_MASK"].fields["int_mask"].enum or {}
    mask = 0
    for name in names:
        mask |= events[name]
    return mask


@cache
def fold_interrupts(mask: int) -> int:
    """Set both groups of every event of which at least one is set; error bits are dropped [HW 10.3]."""
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
        Byte address of the words, a multiple of 16.
    regcfg_amount
        Number of words without the four of the tail.
    int_mask
        Events that end a kick whose last task is this one; always both groups of an event.
    int_clear
        Events to clear (kept for completeness; drivers clear with `int_mask`, [HW 10.3]).
    enable_mask
        Blocks that the task starts [HW 1.5].
    op_idx
        Number of the layer that the task belongs to.
    name
        Name in messages.
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
        """The record of a task that `rkcosim.regcmd.build_task_list` has placed in memory."""
        mask = completion_mask(entry.mask)
        return cls(entry.address, entry.n_words - TAIL_WORDS, mask, mask, entry.mask, op_idx, entry.name)

    @property
    def amount(self) -> int:
        """Amount code [HW 1.6]."""
        return amount_code(self.regcfg_amount + TAIL_WORDS)


def completion_mask(enable_mask: int) -> int:
    """Events that end a task with these blocks: of the PPU if it takes part, else of the DPU [HW 10]."""
    block = "PPU" if "PPU" in blocks_of_mask(enable_mask) else "DPU"
    return interrupt_bits(f"{block}_0", f"{block}_1")


def record_problem(task: Task) -> str:
    """Return what is wrong with the interrupt and block masks of a record; "" if nothing is."""
    events = registers()["PC"]["INTERRUPT_MASK"].fields["int_mask"]
    for name, mask in (("int_mask", task.int_mask), ("int_clear", task.int_clear)):
        if mask >> events.width or mask < 0:
            return f"{name} 0x{mask:X} has bits outside the {events.width} events"
    if not task.int_mask or fold_interrupts(task.int_mask) != task.int_mask:
        names = ", ".join(interrupt_names(task.int_mask)) or "nothing"
        return (
            f"int_mask 0x{task.int_mask:X} ({names}) must be whole pairs of events, or its end is never "
            "recognised"
        )
    if not task.enable_mask or task.enable_mask & ~known_blocks():
        return f"enable_mask 0x{task.enable_mask:X} names no block or an unknown one"
    return ""


def known_blocks() -> int:
    """Mask of all blocks that an op-enable word can start [HW 1.5]."""
    fields = registers()["GLOBAL"]["OPERATION_ENABLE"].fields
    return op_enable_mask(name.removesuffix("_OP_EN") for name in fields)


@dataclass(frozen=True)
class Job:
    """Tasks to run on one or more cores.

    Parameters
    ----------
    tasks
        All records.
    core_mask
        1, 2, 4, 3 or 7 [HW 10.3].
    ranges
        Core to (first task, number of tasks), as subcore_task; may be omitted for one core.
    task_base_addr
        Added to the data addresses of all tasks, a multiple of 16.
    pingpong
        Let the PC fetch the registers of the next task while a task runs.
    max_cycles
        Limit of cycles for the whole job; None: that of the driver.
    layers
        Names of the layers by `Task.op_idx`, for devices that show them (`annotate`).
    """

    tasks: Sequence[Task]
    core_mask: int = 1
    ranges: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    task_base_addr: int = 0
    pingpong: bool = True
    max_cycles: int | None = None
    layers: Mapping[int, str] = field(default_factory=dict)

    def layers_of(self, first: int, number: int) -> list[tuple[int, int, str]]:
        """Layers of a range of tasks: (first task, number of tasks, name), counted from `first`."""
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
    """Activity of one core in a job: cycles of its first kick and last interrupt, last int_status."""

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
    """A finished job: cycles of submit and end, and the activity of each core."""

    start: int
    end: int
    cores: Mapping[int, CoreRun]

    @property
    def cycles(self) -> int:
        """Cycles from submit to the last interrupt."""
        return self.end - self.start
