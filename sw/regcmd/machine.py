"""Where register words land: two groups a block, pointers and executers, without running anything.

docs/hardware.md 7.1 to 7.3 and 7.5.  Every value remembers the word that wrote it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from rtl.regs import Register, registers
from sw.regcmd.disassembler import Command
from sw.regcmd.program import ListedTask, Program
from sw.regcmd.word import blocks_of_mask

BLOCKS = ("CNA", "CORE", "DPU", "DPU_RDMA", "PPU", "PPU_RDMA")
HOST = -1
"""Task number of what the host wrote."""


@dataclass(frozen=True)
class Origin:
    """The word that wrote a register: number of the task (`HOST`: the host's) and of the word in it."""

    task: int
    word: int


class View:
    """A block's registers in one start: values by name, and where they come from."""

    def __init__(self, block: str, held: dict[str, tuple[int, Origin]], group: int) -> None:
        self.block, self.group = block, group
        self._held = held
        self._block = registers()[block]
        self._fields: dict[str, dict[str, int]] = {}

    def raw(self, register: str) -> int:
        """The whole register."""
        return self._held[register][0] if register in self._held else self._block[register].reset

    def __call__(self, register: str, name: str | None = None) -> int:
        """A field (by default the one named as its register), unsigned."""
        fields = self._fields.get(register)
        if fields is None:
            fields = self._fields[register] = self._block[register].decode(self.raw(register))
        width = self._block[register].fields[name or register].width
        return fields[name or register] % (1 << width)

    def signed(self, register: str, name: str | None = None) -> int:
        """A field as a two's complement number."""
        value, width = self(register, name), self._block[register].fields[name or register].width
        return value - (1 << width) if value >> (width - 1) else value

    def written(self, register: str) -> bool:
        """Whether anything was written to it, in this task or before."""
        return register in self._held

    def origin(self, register: str) -> Origin | None:
        """The word that wrote it last, None: it holds its reset value."""
        return self._held[register][1] if register in self._held else None

    def items(self) -> Iterator[tuple[str, int, Origin]]:
        """(register, value, origin) of everything that was written."""
        for name, (value, origin) in self._held.items():
            yield name, value, origin


@dataclass
class _Block:
    """Both groups of a block and its pointers."""

    name: str
    groups: list[dict[str, tuple[int, Origin]]] = field(default_factory=lambda: [{}, {}])
    pointer: int = 0
    executer: int = 0
    control: int = 0
    control_origin: Origin | None = None

    def flag(self, name: str) -> int:
        return registers()[self.name]["S_POINTER"].decode(self.control)[name]

    def point(self, value: int, origin: Origin) -> None:
        self.control, self.control_origin = value, origin
        if self.flag("EXECUTER_PP_CLEAR"):
            self.executer = 0
        if self.flag("POINTER_PP_CLEAR"):
            self.pointer = 0
        elif not self.flag("POINTER_PP_EN"):
            self.pointer = self.flag("POINTER")

    def start(self) -> tuple[int, int]:
        """Op-enable and run to the end: (group that was enabled, group that was in turn)."""
        enabled, turn = self.pointer, self.executer
        if self.flag("POINTER_PP_EN"):
            self.pointer = 1 - enabled if self.flag("POINTER_PP_MODE") else 1 - turn
        if self.flag("EXECUTER_PP_EN") and enabled == turn:
            self.executer = 1 - turn
        return enabled, turn


@dataclass
class Start:
    """One op-enable word and what is in force when its blocks start.

    Members
    -------
    task : number of its task.
    word : of the op-enable word in the task; -1 in slave mode.
    blocks : that it starts.
    views : registers of each block, of the group in turn.
    enabled : block -> (group that the word enabled, group in turn).
    controls : block -> (last value of S_POINTER, its origin).
    """

    task: int
    word: int
    blocks: tuple[str, ...]
    views: dict[str, View]
    enabled: dict[str, tuple[int, int]]
    controls: dict[str, tuple[int, Origin | None]]

    def view(self, block: str) -> View | None:
        """Registers of a block that starts, else None."""
        return self.views[block] if block in self.blocks else None


class Machine:
    """The register groups of one core, all at their reset values."""

    def __init__(self) -> None:
        self.blocks = {name: _Block(name) for name in BLOCKS}

    def arm(self, core: int) -> None:
        """What the host writes to CNA and CORE before each kick (H 1.9)."""
        for name in ("CNA", "CORE"):
            register = registers()[name]["S_POINTER"]
            toggles = {"POINTER_PP_MODE": 1, "EXECUTER_PP_EN": 1, "POINTER_PP_EN": 1}
            self.blocks[name].point(register.encode(CORE_INDEX=core, **toggles), Origin(HOST, -1))

    def write(self, register: Register, value: int, origin: Origin) -> None:
        """Write one register."""
        block = self.blocks.get(register.block)
        if block is None:
            return
        if register.name == "S_POINTER":
            block.point(value, origin)
        elif register.shadowed:
            block.groups[block.pointer][register.name] = (value, origin)

    def start(self, blocks: tuple[str, ...], task: int, word: int) -> Start:
        """Op-enable blocks, which then run to their end."""
        views, enabled, controls = {}, {}, {}
        for name in blocks:
            state = self.blocks[name]
            controls[name] = state.control, state.control_origin
            enabled[name] = state.start()
            turn = enabled[name][1]
            views[name] = View(name, dict(state.groups[turn]), turn)
        return Start(task, word, blocks, views, enabled, controls)

    def task(self, index: int, task: ListedTask) -> list[Start]:
        """Write a task's words; what it starts, usually once."""
        starts = []
        for command in task.commands:
            if command.kind == "register" and command.register is not None:
                self.write(command.register, command.value, Origin(index, command.index))
            elif is_start(command):
                starts.append(self.start(tuple(blocks_of_mask(command.value)), index, command.index))
        return starts

    def host(self, writes: list[tuple[int, int]]) -> list[Start]:
        """Writes by the host, which may start blocks one by one or together (slave mode)."""
        regs = registers()
        starts: list[Start] = []
        waiting: list[str] = []
        for number, (offset, value) in enumerate(writes):
            register = regs.at(offset)
            if register is None:
                continue
            if register.path == "GLOBAL.OPERATION_ENABLE":
                starts.append(self.start(tuple(blocks_of_mask(value)), HOST, number))
                continue
            if register.block in waiting:  # more work for a block that was started: the next task
                starts.append(self.start(tuple(waiting), HOST, number))
                waiting = []
            if register.name == "OPERATION_ENABLE" and register.block in self.blocks:
                waiting += [register.block] if register.decode(value)["OP_EN"] else []
            else:
                self.write(register, value, Origin(HOST, number))
        if waiting:
            starts.append(self.start(tuple(waiting), HOST, len(writes)))
        return starts


def is_start(command: Command) -> bool:
    """Whether a word is an op-enable word that the PC takes (docs/hardware.md 7.6)."""
    return command.kind == "op_enable" and command.offset == registers()["PC"]["OPERATION_ENABLE"].offset


def starts_of(program: Program) -> Iterator[tuple[int, list[Start]]]:
    """(number of the task, what it starts) of a program on a core that was just reset."""
    machine = Machine()
    machine.arm(program.core or 0)
    begun = machine.host(program.writes)
    if begun:
        yield HOST, begun
    for index, task in enumerate(program.tasks):
        yield index, machine.task(index, task)
