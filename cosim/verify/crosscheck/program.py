"""Construction of command lists by register and field name, and of chains of tasks in memory [HW 1]."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache

from rkcosim.regcmd import TaskBuilder, build_task_list, pack_word, register_word
from rkcosim.spec.regs import registers

_RARE = ("LUT_", "DCOMP_AMOUNT", "CLK_GATE", "MAC_GATING")
"""Registers that real programs do not write: written only if a task sets one of their fields."""

BLOCKS = ("CNA", "CORE", "DPU", "DPU_RDMA", "PPU", "PPU_RDMA")


@cache
def holder(block: str, field: str) -> str:
    """Return the name of the register of a block that has a field.

    Raises
    ------
    ValueError
        if no register of the block, or more than one, has such a field.
    """
    found = [r.name for r in registers()[block] if field in r.fields]
    if len(found) != 1:
        raise ValueError(f"{block}: field {field} is in {len(found)} registers, not in one")
    return found[0]


@dataclass
class Task:
    """Register values of one task, by name; registers of its blocks that are not set are written as 0."""

    blocks: tuple[str, ...]
    fields: dict[tuple[str, str], dict[str, int]] = field(default_factory=dict)
    addresses: dict[tuple[str, str], int] = field(default_factory=dict)
    """Absolute addresses; the base of a kick is subtracted when the words are made."""
    description: str = ""
    uploads: list[int] = field(default_factory=list)
    """Words before the registers: tables of the LUT."""
    pointers: dict[str, int] = field(default_factory=dict)
    """S_POINTER that the list writes, by block; other blocks get the default one."""

    def upload(self, block: str, register: str, value: int) -> None:
        """Write a register before all others, once per call."""
        self.uploads.append(register_word(registers()[block][register], value))

    def set(self, block: str, register: str = "", /, **values: int) -> None:
        """Set fields of a block (negative values for signed fields of any width).

        Without `register` each field is looked up by its name, which must occur once in the block.
        """
        for name, value in values.items():
            r = registers()[block][register or holder(block, name)]
            store = self.fields.setdefault((block, r.name), {})
            store[name] = int(value) % (1 << r.fields[name].width) if value < 0 else int(value)

    def get(self, block: str, name: str) -> int:
        """Return the value of a field that occurs once in its block; 0 if it is not set."""
        return self.fields.get((block, holder(block, name)), {}).get(name, 0)

    def drop(self, *blocks: str) -> None:
        """Remove blocks from the task, with all their settings."""
        self.blocks = tuple(b for b in self.blocks if b not in blocks)
        self.fields = {key: value for key, value in self.fields.items() if key[0] not in blocks}
        self.addresses = {key: value for key, value in self.addresses.items() if key[0] not in blocks}

    def put(self, block: str, register: str, value: int) -> None:
        """Set the field that has its register's name."""
        self.set(block, register, **{register: value})

    def address(self, block: str, register: str, value: int) -> None:
        """Set an address register from an absolute byte address."""
        if value & ~registers()[block][register].mask & 0xFFFFFFFF:
            raise ValueError(f"{block}.{register}: {value:#x} is not aligned")
        self.addresses[block, register] = value

    def values(self, dma_base: int = 0) -> dict[int, tuple[str, int]]:
        """Return offset -> (block, value) of every shadowed register of the task's blocks."""
        out = {}
        for block in self.blocks:
            for r in registers()[block]:
                if not r.shadowed or (r.name.startswith(_RARE) and (block, r.name) not in self.fields):
                    continue
                value = r.encode(**self.fields.get((block, r.name), {}))
                if (block, r.name) in self.addresses:
                    value = (self.addresses[block, r.name] - dma_base) % (1 << 32)
                out[r.offset] = (block, value)
        unused = [key for key in (*self.fields, *self.addresses) if key[0] not in self.blocks]
        if unused:
            raise ValueError(f"registers set outside the task's blocks {self.blocks}: {unused}")
        return out

    def interrupt_mask(self) -> int:
        """Interrupt bits that end this task: the PPU's, else the DPU's [HW 10]."""
        return 0xC00 if "PPU" in self.blocks else 0x300


@dataclass(frozen=True)
class Chain:
    """Command lists of one kick, placed in memory."""

    base: int
    amount: int
    lists: tuple[tuple[int, tuple[int, ...]], ...]
    """(address, words) of each task."""
    interrupt_mask: int

    @property
    def tasks(self) -> int:
        """Number of tasks."""
        return len(self.lists)


def link(
    tasks: Iterable[Task],
    address: int,
    *,
    delta: bool = False,
    align: int = 64,
    dma_base: int = 0,
    clear: bool = False,
    tail: tuple[int, int] = (0, 0),
) -> Chain:
    """Place tasks one after the other from `address` and link them.

    Parameters
    ----------
    tasks : in order of execution.
    address : address of the first list, a multiple of 16.
    delta : leave out registers that the task's group already holds from earlier in this kick [HW 1.6]; only
        with the default S_POINTER in all tasks.
    align : alignment of each list.
    dma_base : TASK_DMA_BASE of the kick, subtracted from every address.
    clear : clear pointer and executer in every task, as some programs do [HW 9.9].
    tail : address and amount code of a link after the last task, which nothing follows; (0, 0): none.
    """
    tasks = list(tasks)
    builders = _builders(tasks, delta, dma_base, clear)
    builders[-1].link(*tail)
    placed = build_task_list(builders, address, align)
    lists = [
        (entry.address, tuple(builder.words())) for entry, builder in zip(placed.tasks, builders, strict=True)
    ]
    return Chain(address, placed.tasks[0].amount, tuple(lists), tasks[-1].interrupt_mask())


def _builders(tasks: list[Task], delta: bool, dma_base: int, clear: bool) -> list[TaskBuilder]:
    delta = delta and not any(task.pointers for task in tasks)
    groups: dict[str, list[dict[int, int]]] = {b: [{}, {}] for b in BLOCKS}
    builders = []
    for task in tasks:
        body = list(task.uploads)
        for block in task.blocks:
            r = registers()[block]["S_POINTER"]
            if block in task.pointers:
                body.append(register_word(r, task.pointers[block]))
            elif block not in ("CNA", "CORE"):  # the host writes those two, with its core's index
                cleared = {"POINTER_PP_CLEAR": 1, "EXECUTER_PP_CLEAR": 1} if clear else {}
                value = r.encode(POINTER_PP_MODE=1, EXECUTER_PP_EN=1, POINTER_PP_EN=1, **cleared)
                body.append(register_word(r, value))
            if clear and block not in ("CNA", "CORE"):
                groups[block] = [{}, {}]
        for offset, (block, value) in task.values(dma_base).items():
            held = groups[block][0]
            if not (delta and held.get(offset) == value):
                body.append(pack_word(registers()[block].target, value, offset))
            held[offset] = value
        for block in task.blocks:
            groups[block].reverse()
        builder = TaskBuilder().enable(*task.blocks)
        for word in body:
            builder.raw(word)
        builders.append(builder)
    return builders
