"""A register program: the tasks of one kick with what the host writes to start it, from any source."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from rtl.regs import registers
from sw.regcmd.disassembler import Command, disassemble
from sw.regcmd.tasks import FETCH_BYTES, words_of_amount
from sw.regcmd.word import WORD_BYTES, RegcmdError, words_from_bytes

Fetch = Callable[[int, int], Sequence[int]]
"""(byte address, number of words) -> words; RegcmdError where nothing is."""


@dataclass(frozen=True)
class ListedTask:
    """One task's words.

    Parameters
    ----------
    words
        as the PC fetches them, tail included.
    address
        of the first word, None where it is not known.
    amount
        amount code it is fetched with, None where nothing says so.
    title
        what it is, for people: layer and part.
    """

    words: tuple[int, ...]
    address: int | None = None
    amount: int | None = None
    title: str = ""

    @cached_property
    def commands(self) -> list[Command]:
        """Its words, decoded."""
        return disassemble(self.words)


@dataclass
class Program:
    """The tasks of one kick, in the order in which they run.

    Parameters
    ----------
    name
        for people.
    tasks
        as far as the chain could be followed.
    number
        TASK_NUMBER; None: nothing starts it, its tasks are just listed.
    mask
        interrupt mask, None: unknown.
    dma_base, core, slave, writes
        what the host writes: TASK_DMA_BASE, index of the core, slave mode, (offset, value) before the start.
    ranges
        (first address, bytes) of all memory, None: unknown.
    stopped
        why the chain could not be followed further, "" when it could.
    chained
        whether each task was found by the link of the one before.
    following
        words behind the last task that runs, where its link leads to another one.
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


def program_of_words(words: Iterable[int], name: str = "words", address: int | None = None) -> Program:
    """The tasks of a list of words, cut behind each op-enable word and what fills its fetch."""
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
    """Follow a chain as the PC does, as far as it goes; `settings` are members of `Program`.

    A damaged chain is no error here: `stopped` says what is wrong with it.
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
            program.stopped = "no op-enable word"
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
    """Address and amount code that a task's tail names; None where it has no such word."""
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
        raise RegcmdError(f"{count} command words at 0x{address:X} are not in the memory at hand")

    return fetch
