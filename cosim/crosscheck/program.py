"""Building of command lists by register and field name, and of chains of tasks in memory (H1.4-H1.6)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from rtl.regs import registers
from sw.regcmd import amount_code, op_enable_mask, op_enable_word, pack_word, register_word, target_code
from sw.regcmd.tasks import TAIL_WORDS
from sw.regcmd.word import FETCH_WORDS

_RARE = ("LUT_", "DCOMP_AMOUNT", "CLK_GATE", "MAC_GATING")
"""Registers that real programs leave alone: written only where a task sets one of their fields."""

BLOCKS = ("CNA", "CORE", "DPU", "DPU_RDMA", "PPU", "PPU_RDMA")


@dataclass
class Task:
    """Register values of one task, by name; registers of its blocks that are not set are written as 0."""

    blocks: tuple[str, ...]
    fields: dict[tuple[str, str], dict[str, int]] = field(default_factory=dict)
    addresses: dict[tuple[str, str], int] = field(default_factory=dict)
    """Absolute addresses; the base of a kick is taken off when the words are made."""
    description: str = ""
    uploads: list[int] = field(default_factory=list)
    """Words ahead of the registers: tables of the LUT."""
    pointers: dict[str, int] = field(default_factory=dict)
    """S_POINTER that the list writes, by block; other blocks get the usual one."""

    def upload(self, block: str, register: str, value: int) -> None:
        """Write a register ahead of all others, as often as this is called."""
        self.uploads.append(register_word(registers()[block][register], value))

    def set(self, block: str, register: str, **values: int) -> None:
        """Set fields of a register (negative values for signed fields of any width)."""
        r = registers()[block][register]
        store = self.fields.setdefault((block, register), {})
        for name, value in values.items():
            store[name] = int(value) % (1 << r.fields[name].width) if value < 0 else int(value)

    def put(self, block: str, register: str, value: int) -> None:
        """Set the field that has its register's name."""
        self.set(block, register, **{register: value})

    def address(self, block: str, register: str, value: int) -> None:
        """Set an address register from an absolute byte address."""
        if value & ~registers()[block][register].mask & 0xFFFFFFFF:
            raise ValueError(f"{block}.{register}: {value:#x} is not aligned")
        self.addresses[block, register] = value

    def mask(self) -> int:
        """Op-enable mask (H1.5)."""
        return op_enable_mask(self.blocks)

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
        """Interrupt bits that end this task: the PPU's, else the DPU's (H7)."""
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
    tasks
        in order of execution.
    address
        of the first list, a multiple of 16.
    delta
        leave out registers that the task's group already holds from earlier in this kick (H1.6); only
        with the usual S_POINTER in all tasks.
    align
        of each list.
    dma_base
        TASK_DMA_BASE of the kick, taken off every address.
    clear
        clear pointer and executer in every task, as some programs do (H6.2).
    tail
        address and amount code of a link behind the last task, which nothing follows; (0, 0): none.
    """
    tasks = list(tasks)
    bodies = _bodies(tasks, delta, dma_base, clear)
    places, at = [], address
    for body in bodies:
        places.append(at)
        at += -(-8 * (len(body) + TAIL_WORDS) // align) * align
    pc = registers()["PC"]
    lists = []
    for i, (body, task) in enumerate(zip(bodies, tasks, strict=True)):
        last = i + 1 == len(tasks)
        following = tail if last else (places[i + 1], amount_code(len(bodies[i + 1]) + TAIL_WORDS))
        ending = [
            register_word(pc["BASE_ADDRESS"], following[0]) if following[0] else 0,
            register_word(pc["REGISTER_AMOUNTS"], following[1]),
            pack_word(target_code("CONFIG_END"), 0, 0),
            op_enable_word(task.mask()),
        ]
        lists.append((places[i], tuple(body + ending)))
    return Chain(address, amount_code(len(bodies[0]) + TAIL_WORDS), tuple(lists), tasks[-1].interrupt_mask())


def _bodies(tasks: list[Task], delta: bool, dma_base: int, clear: bool) -> list[list[int]]:
    delta = delta and not any(task.pointers for task in tasks)
    groups: dict[str, list[dict[int, int]]] = {b: [{}, {}] for b in BLOCKS}
    bodies = []
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
        if len(body) % FETCH_WORDS:
            body.append(0)
        bodies.append(body)
    return bodies
