"""One case of a conformance run: a kick with its memory, from draw to stream file."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from cosim.conformance.arena import COMMAND_BYTES, Arena, Bytes
from cosim.conformance.choices import Choice, Chooser, Refused
from cosim.crosscheck.kick import Kick
from cosim.crosscheck.program import Chain, Task, link
from cosim.streams.stream import PAGE, Region, Stream
from rtl.regs import registers

Fact = tuple[str, str, dict[str, int]]
"""(operator, type, limit -> value), for the support matrix."""


@dataclass
class Plan:
    """What a group's draw returns; `build` makes a case of it.

    Members
    -------
    tasks : in order.
    facts : what they are, for the support matrix.
    mask : interrupt mask; None: the last task's.
    dma_base : TASK_DMA_BASE; None: drawn.
    delta, pp_en, clear, tail : of the chain; None: drawn.
    loop : the last task links to the first, so that TASK_NUMBER alone ends the kick.
    number : TASK_NUMBER, None: as many as there are.
    writes : host writes ahead of the start, or (with `slave`) all of them.
    slave : no command list.
    words : changes of single words, (task, word, value); a negative word counts from the end.
    hang : the kick must not end, on either side.
    fault : memory refuses an access: an interrupt bit and a diagnostic say so.
    diagnostics : the tasks may raise some (the same on both sides).
    reset : the core is reset afterwards, since something is left behind.
    reads : offsets read back after the end.
    probes : accesses while the kick runs, (offset, value) a write, (offset, None) a read of what stays.
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
    fault: bool = False
    diagnostics: bool = False
    reset: bool = False
    reads: list[int] = field(default_factory=list)
    probes: list[tuple[int, int | None]] = field(default_factory=list)
    peek: bool = False
    note: str = ""


@dataclass
class Case:
    """A kick ready to run."""

    group: str
    name: str
    """Repeats the draw: ``SEED/INDEX``."""
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
    def tasks(self) -> int:
        """Tasks of the kick that run."""
        return self.kick.tasks if self.plan.loop else len(self.plan.tasks)

    def text(self) -> str:
        """Lines for people."""
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
        """Return the case as a stream, without the pages that it leaves alone."""
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
        when the lists do not fit.
    """
    base = plan.dma_base
    if base is None:
        base = 32 * ch.word("kick.dma_base", 27) if ch.chance("kick.based", 0.35) else 0
    delta = ch.chance("kick.delta", 0.3) if plan.delta is None else plan.delta
    clear = ch.chance("kick.clear", 0.1) if plan.clear is None else plan.clear
    pp_en = ch.integer("kick.pp_en", 0, 1, 1) if plan.pp_en is None else plan.pp_en
    aligned = base - base % 32  # the hardware drops what is no multiple of 32
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


def slave_writes(ch: Chooser, tasks: list[Task], dma_base: int, core: int = 0) -> list[tuple[int, int]]:
    """Host writes that run tasks one after the other without the PC (docs/hardware.md 7.1, 7.2).

    All tasks but the last must be over when the next one's registers are written; so this takes one
    task, or two that use the two register groups.
    """
    writes = []
    regs = registers()
    toggling = len(tasks) > 1 or ch.chance("slave.toggle", 0.5)
    for block in dict.fromkeys(block for task in tasks for block in task.blocks):
        pointer = regs[block]["S_POINTER"]
        values = {"POINTER_PP_CLEAR": 1, "EXECUTER_PP_CLEAR": 1}
        if toggling:
            values |= {"POINTER_PP_MODE": 1, "EXECUTER_PP_EN": 1, "POINTER_PP_EN": 1}
        if block in ("CNA", "CORE"):
            values["CORE_INDEX"] = core
        writes.append((pointer.offset, pointer.encode(**values)))
    for task in tasks:
        writes += [(offset, value) for offset, (_, value) in task.values(dma_base).items()]
        if ch.chance("slave.whole", 0.5):
            enable = regs["GLOBAL"]["OPERATION_ENABLE"]
            writes.append((enable.offset, enable.encode(**{f"{b}_OP_EN": 1 for b in task.blocks})))
        else:
            blocks = [b for b in task.blocks if b not in ("DPU_RDMA", "PPU_RDMA")]
            for block in task.blocks:  # the readers of data first, since a DPU may do without its own
                if block not in blocks:
                    enable = regs[block]["OPERATION_ENABLE"]
                    writes.append((enable.offset, enable.encode(OP_EN=1)))
            while blocks:  # the others in any order
                block = blocks.pop(ch.integer("slave.order", 0, len(blocks) - 1))
                enable = regs[block]["OPERATION_ENABLE"]
                writes.append((enable.offset, enable.encode(OP_EN=1)))
    return writes


def twice_writes(task: Task, dma_base: int, again: bool, core: int = 0) -> list[tuple[int, int]]:
    """Host writes that set both register groups of every block to one task and start them one behind
    the other, the pointers moved by hand (docs/hardware.md 7.1, 7.2).

    With `again` the first group is started once more while the second one runs: the write of a register
    of each block waits until its first group is free.
    """
    regs = registers()

    def pointers(group: int, clear: int) -> list[tuple[int, int]]:
        out = []
        for block in task.blocks:
            values = {"POINTER": group, "EXECUTER_PP_EN": 1}
            values |= {"POINTER_PP_CLEAR": clear, "EXECUTER_PP_CLEAR": clear}
            if block in ("CNA", "CORE"):
                values["CORE_INDEX"] = core
            pointer = regs[block]["S_POINTER"]
            out.append((pointer.offset, pointer.encode(**values)))
        return out

    settings = [(offset, value) for offset, (_, value) in task.values(dma_base).items()]
    enable = regs["GLOBAL"]["OPERATION_ENABLE"]
    begin = (enable.offset, enable.encode(**{f"{b}_OP_EN": 1 for b in task.blocks}))
    writes = pointers(0, 1) + settings + pointers(1, 0) + settings
    writes += [*pointers(0, 0), begin, *pointers(1, 0), begin]
    if again:
        firsts = {block: (offset, value) for offset, (block, value) in task.values(dma_base).items()}
        writes += [*pointers(0, 0), *firsts.values(), begin]
    return writes
