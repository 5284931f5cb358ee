"""Destination of register words: two groups per block, pointers and executers; nothing is executed.

[HW 1.7], [HW 1.6].  For every value the word that wrote it is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from rkcosim.golden.task import registers as golden
from rkcosim.golden.task.registers import SHADOWED_BLOCKS, BlockState
from rkcosim.regcmd.disassembler import Command
from rkcosim.regcmd.program import ListedTask, Program
from rkcosim.regcmd.word import blocks_of_mask
from rkcosim.spec.regs import Register, registers

BLOCKS = SHADOWED_BLOCKS
HOST = -1
"""Task number for writes of the host."""


@dataclass(frozen=True)
class Origin:
    """The word that wrote a register: number of the task (`HOST` for the host) and of the word in it."""

    task: int
    word: int


class View(golden.View):
    """Registers of a block in one start: values by name, and the words that wrote them."""

    def __init__(self, block: str, held: dict[str, tuple[int, Origin]], group: int) -> None:
        known = registers()[block]
        super().__init__(block, {known[name].offset: value for name, (value, _) in held.items()})
        self.group, self._held = group, held

    def written(self, register: str) -> bool:
        """Whether the register has been written, in this task or before."""
        return register in self._held

    def origin(self, register: str) -> Origin | None:
        """The word that wrote the register last; None if it has its reset value."""
        return self._held[register][1] if register in self._held else None

    def items(self) -> Iterator[tuple[str, int, Origin]]:
        """(register, value, origin) of everything that was written."""
        for name, (value, origin) in self._held.items():
            yield name, value, origin


@dataclass
class _Block(BlockState):
    """Both groups of a block and its pointers, with the words that wrote them."""

    held: list[dict[str, tuple[int, Origin]]] = field(default_factory=lambda: [{}, {}])
    """Register to value and origin, by group."""
    control_origin: Origin | None = None

    def run(self) -> tuple[int, int]:
        """Op-enable and run to the end: (group that was enabled, group that ran)."""
        enabled, turn = self.pointer, self.executer
        self.enable()
        if enabled == turn:
            self.finish()
        return enabled, turn


@dataclass
class Start:
    """One op-enable word and the registers in effect when its blocks start.

    Members
    -------
    task : number of its task.
    word : number of the op-enable word in the task; -1 in slave mode.
    blocks : blocks that it starts.
    views : registers of each block, from the group that runs.
    enabled : block -> (group that the word enabled, group that runs).
    controls : block -> (last value of S_POINTER, its origin).
    """

    task: int
    word: int
    blocks: tuple[str, ...]
    views: dict[str, View]
    enabled: dict[str, tuple[int, int]]
    controls: dict[str, tuple[int, Origin | None]]

    def view(self, block: str) -> View | None:
        """Registers of a block; None if it does not start."""
        return self.views[block] if block in self.blocks else None


class Machine:
    """The register groups of one core, all at their reset values."""

    def __init__(self) -> None:
        self.blocks = {name: _Block(name) for name in BLOCKS}

    def arm(self, core: int) -> None:
        """Perform the host's writes to CNA and CORE before each kick [HW 10.3]."""
        for name in ("CNA", "CORE"):
            register = registers()[name]["S_POINTER"]
            toggles = {"POINTER_PP_MODE": 1, "EXECUTER_PP_EN": 1, "POINTER_PP_EN": 1}
            self.write(register, register.encode(CORE_INDEX=core, **toggles), Origin(HOST, -1))

    def write(self, register: Register, value: int, origin: Origin) -> None:
        """Write one register."""
        block = self.blocks.get(register.block)
        if block is None:
            return
        if register.name == "S_POINTER":
            block.write_pointer(value)
            block.control_origin = origin
        elif register.shadowed:
            block.held[block.pointer][register.name] = (value, origin)

    def start(self, blocks: tuple[str, ...], task: int, word: int) -> Start:
        """Op-enable blocks and run them to their end."""
        views, enabled, controls = {}, {}, {}
        for name in blocks:
            state = self.blocks[name]
            controls[name] = state.control, state.control_origin
            enabled[name] = state.run()
            turn = enabled[name][1]
            views[name] = View(name, dict(state.held[turn]), turn)
        return Start(task, word, blocks, views, enabled, controls)

    def task(self, index: int, task: ListedTask) -> list[Start]:
        """Write the words of a task; returns its starts, usually one."""
        starts = []
        for command in task.commands:
            if command.kind == "register" and command.register is not None:
                self.write(command.register, command.value, Origin(index, command.index))
            elif is_start(command):
                starts.append(self.start(tuple(blocks_of_mask(command.value)), index, command.index))
        return starts

    def host(self, writes: list[tuple[int, int]]) -> list[Start]:
        """Perform writes of the host, which may start blocks separately or together (slave mode)."""
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
            if register.block in waiting:  # a block that was already started gets a second task
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
    """Whether a word is an op-enable word that the PC executes [HW 1.4]."""
    return command.kind == "op_enable" and command.offset == registers()["PC"]["OPERATION_ENABLE"].offset


def starts_of(program: Program) -> Iterator[tuple[int, list[Start]]]:
    """(number of the task, its starts) for each task of a program, on a core after a reset."""
    machine = Machine()
    machine.arm(program.core or 0)
    begun = machine.host(program.writes)
    if begun:
        yield HOST, begun
    for index, task in enumerate(program.tasks):
        yield index, machine.task(index, task)


def task_count(program: Program) -> int:
    """Return the number of tasks: those of the chain, and those that the host's writes start."""
    return len(program.tasks) + len(Machine().host(program.writes))
