"""Both register groups of the blocks in a cycle, from the writes that a core has done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rkcosim.debug.opening import DebuggedJob
from rkcosim.debug.rtl.run import CoreRun
from rkcosim.golden.task.registers import SHADOWED_BLOCKS, BlockState
from rkcosim.spec.regs import registers

if TYPE_CHECKING:
    from rkcosim.engines.records import TaskRecord


@dataclass
class RegisterContents:
    """What the registers of a core hold.

    Members
    -------
    blocks : the blocks with two groups, and their pointers.
    plain : offset -> word of registers without groups that were written.
    """

    blocks: dict[str, BlockState] = field(
        default_factory=lambda: {name: BlockState(name) for name in SHADOWED_BLOCKS}
    )
    plain: dict[int, int] = field(default_factory=dict)

    def write(self, offset: int, value: int) -> None:
        """Take a write; one to a register with groups goes to the group under the pointer."""
        register = registers().at(offset)
        state = None if register is None else self.blocks.get(register.block)
        if register is None or register.name == "S_STATUS":
            return
        if state is not None and register.name == "S_POINTER":
            state.write_pointer(value)
        elif state is not None and register.shadowed:
            state.groups[state.pointer][offset] = value
        else:
            self.plain[offset] = value


def contents(run: CoreRun, tasks: Sequence[TaskRecord], before: int | None = None) -> RegisterContents:
    """Return what the registers hold after the writes of a core.

    A group is enabled by the op-enable word of its task, which no bus shows: it counts as executed when the
    blocks have started, or when a word of a later task was written.

    Parameters
    ----------
    tasks : the tasks that have started.
    before : leave out the writes from this cycle on.
    """
    found, enabled, ended = RegisterContents(), 0, 0

    def enable_before(task: int) -> None:
        nonlocal enabled
        while enabled < task:
            for name in started_blocks(run.job, enabled):
                found.blocks[name].enable()
            enabled += 1

    def end_before(cycle: int) -> None:
        nonlocal ended
        while ended < len(tasks) and (end := tasks[ended].end) is not None and end <= cycle:
            enable_before(tasks[ended].task + 1)
            for name in started_blocks(run.job, tasks[ended].task):
                found.blocks[name].finish()
            ended += 1

    for one in run.written:
        if before is not None and one.cycle >= before:
            break
        end_before(one.cycle)
        if one.place is not None:
            enable_before(one.place[0])
        found.write(one.offset, one.value)
    enable_before(len(tasks))
    if tasks:
        end_before(max(task.end or 0 for task in tasks))
    return found


def started_blocks(job: DebuggedJob, task: int) -> list[str]:
    """Return the blocks with register groups that a task starts."""
    fields = registers()["GLOBAL"]["OPERATION_ENABLE"]
    names: list[str] = []
    for command in job.program.tasks[task].commands:
        if command.kind == "op_enable":
            names += [name.removesuffix("_OP_EN") for name, on in fields.decode(command.value).items() if on]
    return [name for name in dict.fromkeys(names) if name in SHADOWED_BLOCKS]
