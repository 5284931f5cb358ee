"""A register program from any source: the tasks of one kick, and the host's writes that start it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from rkcosim.regcmd.disassembler import Command, disassemble
from rkcosim.regcmd.tasks import FETCH_BYTES, words_of_amount
from rkcosim.regcmd.word import WORD_BYTES, RegcmdError, words_from_bytes
from rkcosim.spec.regs import registers

Fetch = Callable[[int, int], Sequence[int]]
"""(byte address, number of words) -> words; raises RegcmdError where there is no memory."""


NO_ENABLE = "no op-enable word"
"""Reason for the end of a chain at a task that starts nothing."""


@dataclass(frozen=True)
class ListedTask:
    """The words of one task.

    Parameters
    ----------
    words
        Words as the PC fetches them, including the tail.
    address
        Address of the first word; None if unknown.
    amount
        Amount code with which the task is fetched; None if unknown.
    title
        Description for users: layer and part.
    """

    words: tuple[int, ...]
    address: int | None = None
    amount: int | None = None
    title: str = ""

    @cached_property
    def commands(self) -> list[Command]:
        """The decoded words."""
        return disassemble(self.words)


@dataclass
class Program:
    """The tasks of one kick, in the order in which they run.

    Parameters
    ----------
    name
        Name for users.
    tasks
        Tasks as far as the chain could be followed.
    number
        TASK_NUMBER; None: nothing starts the tasks, they are only listed.
    mask
        Interrupt mask; None: unknown.
    dma_base, core, slave, writes
        Writes of the host: TASK_DMA_BASE, index of the core, slave mode, (offset, value) before the start.
    ranges
        (first address, bytes) of all memory; None: unknown.
    stopped
        Why the chain could not be followed further; "" if it could.
    chained
        Whether each task was found through the link of the previous one.
    held
        (first address, bytes) of memory that the host or other kicks read and write as well.
    following
        Words after the last task that runs, if its link leads to another task.
    contents
        (first address, bytes) of memory as it is before the first task; empty: unknown.
    """

    name: str
    tasks: list[ListedTask]
    number: int | None = None
    mask: int | None = None
    dma_base: int = 0
    core: int | None = None
    slave: bool = False
    writes: list[tuple[int, int]] = field(default_factory=list)
    ranges: list[tuple[int, int]] | None = None
    stopped: str = ""
    chained: bool = False
    following: int | None = None
    held: list[tuple[int, int]] = field(default_factory=list)
    contents: list[tuple[int, memoryview]] = field(default_factory=list)


def program_of_words(words: Iterable[int], name: str = "words", address: int | None = None) -> Program:
    """The tasks of a list of words, split after each op-enable word and the padding of its fetch."""
    items = list(words)
    tasks: list[ListedTask] = []
    start = 0
    for command in disassemble(items):
        if command.kind != "op_enable" or command.index < start:
            continue
        end = command.index + 1
        while end < len(items) and items[end] == 0:
            end += 1
        place = None if address is None else address + start * WORD_BYTES
        tasks.append(ListedTask(tuple(items[start:end]), place))
        start = end
    if start < len(items) or not items:
        place = None if address is None else address + start * WORD_BYTES
        tasks.append(ListedTask(tuple(items[start:]), place))
    return Program(name, tasks)


def program_of_chain(
    name: str, fetch: Fetch, base: int, amount: int, number: int, **settings: object
) -> Program:
    """Follow a chain as the PC does, as far as possible; `settings` are members of `Program`.

    A damaged chain is not an error: `stopped` tells what is wrong with it.
    """
    program = Program(name, [], number, chained=True, **settings)  # type: ignore[arg-type]
    address, code = base, amount
    for index in range(number):
        try:
            words = tuple(fetch(address, words_of_amount(code)))
        except RegcmdError as error:
            program.stopped = str(error)
            return program
        task = ListedTask(words, address, code)
        program.tasks.append(task)
        linked, code_after = link_of(task)
        if not any(command.kind == "op_enable" for command in task.commands):
            program.stopped = NO_ENABLE
            return program
        if linked is None:
            if index + 1 < number:
                program.stopped = "no link"
            return program
        address, code = linked, code if code_after is None else code_after
    try:
        words = tuple(fetch(address, words_of_amount(code)))
        if any(command.kind == "op_enable" for command in disassemble(words)):
            program.following = address
    except RegcmdError:
        pass
    return program


def link_of(task: ListedTask) -> tuple[int | None, int | None]:
    """Address and amount code in a task's tail; None where there is no such word."""
    pc = registers()["PC"]
    address = amount = None
    for command in task.commands:
        if command.register is pc["BASE_ADDRESS"]:
            address = command.fields["PC_SOURCE_ADDR"] * FETCH_BYTES
        elif command.register is pc["REGISTER_AMOUNTS"]:
            amount = command.fields["PC_DATA_AMOUNT"]
    return address, amount


def fetch_from(parts: Iterable[tuple[int, bytes]]) -> Fetch:
    """A `Fetch` from pieces of memory, each (address, bytes)."""
    pieces = [(address, memoryview(data)) for address, data in parts]

    def fetch(address: int, count: int) -> list[int]:
        size = count * WORD_BYTES
        for first, data in pieces:
            start = address - first
            if 0 <= start and start + size <= len(data):
                return words_from_bytes(bytes(data[start : start + size]))
        raise RegcmdError(f"{count} command words at 0x{address:X} are not in the given memory")

    return fetch
