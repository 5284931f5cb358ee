"""One case of a conformance run: a kick with its memory, from the draw to the stream file."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from rkcosim.driver.core_port import Kick
from rkcosim.spec.regs import registers
from rkcosim.verify.conformance.arena import COMMAND_BYTES, Arena, Bytes
from rkcosim.verify.conformance.choices import Choice, Chooser, Refused
from rkcosim.verify.crosscheck.program import Chain, Task, link
from rkcosim.verify.streams.stream import PAGE, Region, Stream

Fact = tuple[str, str, dict[str, int]]
"""(operator, type, limit -> value), for the support matrix."""


@dataclass
class Plan:
    """The result of a group's draw; `build` makes a case of it.

    Members
    -------
    tasks : in order.
    facts : facts for the support matrix.
    mask : interrupt mask; None: the last task's.
    dma_base : TASK_DMA_BASE; None: drawn.
    delta, pp_en, clear, tail : properties of the chain; None: drawn.
    loop : the last task links to the first, so that only TASK_NUMBER ends the kick.
    number : TASK_NUMBER, None: the number of tasks.
    writes : host writes before the start, or (with `slave`) all host writes.
    slave : no command list.
    words : changes of single words, (task, word, value); a negative word counts from the end.
    hang : the kick must not end, on either side.
    written : a kick that must not end is compared in memory too, since what it writes before it hangs does
        not depend on cycles.
    fault : memory refuses an access: an interrupt bit and a diagnostic report it.
    diagnostics : the tasks may raise some (the same on both sides).
    reset : the core must be reset afterwards, since state remains.
    reads : offsets read back after the end.
    probes : accesses while the kick runs, (offset, value) for a write, (offset, None) for a read of an
        unchanging register.
    peek : status is read on the device while the kick runs, which shows values that the end does not.
    """

    tasks: list[Task]
    facts: list[Fact] = field(default_factory=list)
    mask: int | None = None
    dma_base: int | None = None
    delta: bool | None = None
    pp_en: int | None = None
    clear: bool | None = None
    tail: tuple[int, int] = (0, 0)
    loop: bool = False
    number: int | None = None
    writes: list[tuple[int, int]] = field(default_factory=list)
    slave: bool = False
    words: list[tuple[int, int, int]] = field(default_factory=list)
    hang: bool = False
    written: bool = False
    fault: bool = False
    diagnostics: bool = False
    reset: bool = False
    reads: list[int] = field(default_factory=list)
    probes: list[tuple[int, int | None]] = field(default_factory=list)
    peek: bool = False
    note: str = ""

    @property
    def task(self) -> Task:
        """The first task."""
        return self.tasks[0]


@dataclass
class Case:
    """A kick that is ready to run."""

    group: str
    name: str
    """Identifies the draw: ``SEED/INDEX``."""
    plan: Plan
    chain: Chain
    kick: Kick
    arena: Arena
    commands: Bytes
    choices: list[Choice]
    refused: int = 0

    @property
    def regions(self) -> list[tuple[int, Bytes]]:
        """Everything that is mapped: (address, uint8 bytes)."""
        return [(self.arena.base, self.arena.image()), (self.arena.commands, self.commands)]

    @property
    def mapped(self) -> list[tuple[int, Bytes]]:
        """Contents of each of `ranges`: (address, uint8 bytes)."""
        base, image = self.arena.base, self.arena.image()
        pieces = [(address, image[address - base :][:size]) for address, size in self.arena.ranges()]
        return [*pieces, (self.arena.commands, self.commands)]

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """The same memory as it is mapped in the golden model: (address, bytes)."""
        return [*self.arena.ranges(), (self.arena.commands, self.commands.size)]

    @property
    def tasks(self) -> int:
        """Number of tasks of the kick that run."""
        return self.kick.tasks if self.plan.loop else len(self.plan.tasks)

    def text(self) -> str:
        """Describe the case in several lines."""
        kick = self.kick
        lines = [f"{self.group} {self.name}: {self.plan.note}".rstrip(": ")]
        shown = self.plan.tasks[:4]
        lines += [f"  task {i}: {task.description}" for i, task in enumerate(shown)]
        if self.tasks > len(shown):
            lines.append(f"  and {self.tasks - len(shown)} more")
        lines.append(
            f"  {'slave mode' if kick.slave else 'PC mode'}, {kick.tasks} tasks, mask "
            f"{kick.interrupt_mask:#x}, DMA base {kick.dma_base:#x}, TASK_PP_EN {kick.pp_en}"
        )
        return "\n".join(lines)

    def stream(self) -> Stream:
        """Return the case as a stream, without the pages that it does not use."""
        base, lists = self.arena.base, self.arena.commands
        used = -(-(self.arena.end - base) // PAGE) * PAGE
        image = self.arena.image()[:used]
        end = max((a + 8 * len(words) for a, words in self.chain.lists), default=lists) - lists
        size = max(PAGE, -(-end // PAGE) * PAGE)
        regions = [Region("arena", base, image), Region("command lists", lists, self.commands[:size])]
        return Stream(self.kick, regions, 0, list(self.plan.writes))

    def save(self, path: Path) -> None:
        """Write the stream file that ``rkcosim regcmd run`` replays."""
        self.stream().save(path)


def build(group: str, name: str, ch: Chooser, arena: Arena, plan: Plan, refused: int) -> Case:
    """Draw what a plan leaves open and place its command lists.

    Raises
    ------
    Refused
        if the lists do not fit.
    """
    base = plan.dma_base
    if base is None:
        base = 32 * ch.word("kick.dma_base", 27) if ch.chance("kick.based", 0.35) else 0
    delta = ch.chance("kick.delta", 0.3) if plan.delta is None else plan.delta
    clear = ch.chance("kick.clear", 0.1) if plan.clear is None else plan.clear
    pp_en = ch.integer("kick.pp_en", 0, 1, 1) if plan.pp_en is None else plan.pp_en
    aligned = base - base % 32  # the hardware clears the low five bits
    start = arena.commands + 16 * ch.integer("kick.offset", 0, 16)
    commands = np.zeros(COMMAND_BYTES, np.uint8)
    if plan.slave:
        chain = Chain(start, 0, (), plan.tasks[-1].interrupt_mask())
    else:
        align = ch.pick("kick.align", (64, 16))
        tail = plan.tail
        if plan.loop:
            once = link(plan.tasks, start, delta=False, align=align, dma_base=aligned, clear=clear)
            tail = (once.base, once.amount)
        chain = link(plan.tasks, start, delta=delta, align=align, dma_base=aligned, clear=clear, tail=tail)
        lists = [list(words) for _, words in chain.lists]
        for task, word, value in plan.words:
            lists[task][word] = value
        for (address, _), words in zip(chain.lists, lists, strict=True):
            raw = np.array(words, "<u8").view(np.uint8)
            at = address - arena.commands
            if at + raw.size > COMMAND_BYTES:
                raise Refused("the command lists are too long")
            commands[at : at + raw.size] = raw
    mask = chain.interrupt_mask if plan.mask is None else plan.mask
    kick = Kick(
        chain.base,
        chain.amount,
        len(plan.tasks) if plan.number is None else plan.number,
        mask,
        base,
        pp_en,
        int(plan.slave),
    )
    return Case(group, name, plan, chain, kick, arena, commands, ch.made, refused)


PING_PONG = {"POINTER_PP_MODE": 1, "EXECUTER_PP_EN": 1, "POINTER_PP_EN": 1}
CLEAR = {"POINTER_PP_CLEAR": 1, "EXECUTER_PP_CLEAR": 1}
"""Fields of S_POINTER: alternate both register groups, start with the first one."""

Write = tuple[int, int]
"""A host write: (offset, value)."""


def pointer_write(block: str, **values: int) -> Write:
    """Return the host write of a block's S_POINTER."""
    pointer = registers()[block]["S_POINTER"]
    return pointer.offset, pointer.encode(**values)


def enable_write(task: Task) -> Write:
    """Return the host write that starts all blocks of a task."""
    enable = registers()["GLOBAL"]["OPERATION_ENABLE"]
    return enable.offset, enable.encode(**{f"{block}_OP_EN": 1 for block in task.blocks})


def register_writes(task: Task, dma_base: int) -> list[Write]:
    """Return the host writes of all registers of a task."""
    return [(offset, value) for offset, (_, value) in task.values(dma_base).items()]


def slave_writes(ch: Chooser, tasks: list[Task], dma_base: int) -> list[Write]:
    """Return host writes that run tasks one after the other without the PC [HW 1.7].

    All tasks but the last must have ended when the next one's registers are written. Therefore only one task
    is possible, or two that use the two register groups.
    """
    toggling = len(tasks) > 1 or ch.chance("slave.toggle", 0.5)
    values = CLEAR | PING_PONG if toggling else CLEAR
    blocks = dict.fromkeys(block for task in tasks for block in task.blocks)
    writes = [pointer_write(block, **values) for block in blocks]
    for task in tasks:
        writes += register_writes(task, dma_base)
        if ch.chance("slave.whole", 0.5):
            writes.append(enable_write(task))
            continue
        readers = [b for b in task.blocks if b in ("DPU_RDMA", "PPU_RDMA")]
        left = [b for b in task.blocks if b not in readers]
        while left:  # in any order, but after the readers, since a DPU may need none of their data
            readers.append(left.pop(ch.integer("slave.order", 0, len(left) - 1)))
        for block in readers:
            enable = registers()[block]["OPERATION_ENABLE"]
            writes.append((enable.offset, enable.encode(OP_EN=1)))
    return writes


def twice_writes(task: Task, dma_base: int, again: bool) -> list[Write]:
    """Return host writes that set both register groups of every block to one task.

    The groups are started one after the other, and the pointers are moved by host writes [HW 1.7].
    With `again` the first group is started once more while the second one runs: the write of a
    register of each block waits until its first group is free.
    """

    def pointers(group: int, clear: int = 0) -> list[Write]:
        values = {"POINTER": group, "EXECUTER_PP_EN": 1} | {name: clear for name in CLEAR}
        return [pointer_write(block, **values) for block in task.blocks]

    settings, begin = register_writes(task, dma_base), enable_write(task)
    writes = pointers(0, clear=1) + settings + pointers(1) + settings
    writes += [*pointers(0), begin, *pointers(1), begin]
    if again:
        firsts = {block: (offset, value) for offset, (block, value) in task.values(dma_base).items()}
        writes += [*pointers(0), *firsts.values(), begin]
    return writes
