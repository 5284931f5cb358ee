"""Tasks: lists of register words with their four tail words, and chains of tasks (H 1.6)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rtl.regs import registers
from sw.regcmd.disassembler import decode_word
from sw.regcmd.word import (
    FETCH_WORDS,
    WORD_BYTES,
    RegcmdError,
    blocks_of_mask,
    op_enable_mask,
    op_enable_word,
    pack_word,
    register_word,
    target_code,
    words_to_bytes,
)

TAIL_WORDS = 4
"""Words after the registers of a task: link, amount, end of configuration, op-enable."""

FETCH_BYTES = FETCH_WORDS * WORD_BYTES
"""Alignment of a task in memory."""

TASK_ALIGN = 64
"""Alignment that compilers use in practice (H 1.6)."""


def amount_code(n_words: int) -> int:
    """REGISTER_AMOUNTS value of a task of `n_words` words, its tail included (H 1.6).

    Raises
    ------
    RegcmdError
        if the task is empty or longer than the field can say.
    """
    field = registers()["PC"]["REGISTER_AMOUNTS"].fields["PC_DATA_AMOUNT"]
    code = (n_words + FETCH_WORDS - 1) // FETCH_WORDS - 1
    if not 0 <= code < 1 << field.width:
        raise RegcmdError(f"a task of {n_words} words cannot be fetched (1..{FETCH_WORDS << field.width})")
    return code


def words_of_amount(code: int) -> int:
    """Words that the PC fetches for an amount code."""
    return (code + 1) * FETCH_WORDS


class TaskBuilder:
    """Collects the register writes of one task.

    `set` may name a register again; the list keeps both writes and the last one counts, as in the
    programs of the vendor.  `words()` adds the tail.
    """

    def __init__(self, name: str = "task") -> None:
        self.name = name
        self.mask = 0
        self._words: list[int] = []
        self._link: tuple[int, int] | None = None

    def set(self, block: str, register: str, **fields: int | str) -> TaskBuilder:
        """Append a write of a register; fields that are not named are 0.

        Raises
        ------
        RegcmdError
            for an unknown register or field or a value out of range, with task and word index.
        """
        try:
            described = registers()[block][register]
            return self._append(register_word(described, described.encode(**fields)))
        except (ValueError, KeyError) as error:
            raise self._error(f"{block}.{register}", error) from error

    def set_word(self, block: str, register: str, value: int) -> TaskBuilder:
        """Append a write of a whole 32-bit register value.

        Raises
        ------
        RegcmdError
            for an unknown register or a value that is not 32 bits, with task and word index.
        """
        try:
            return self._append(register_word(registers()[block][register], value))
        except (ValueError, KeyError) as error:
            raise self._error(f"{block}.{register}", error) from error

    def raw(self, word: int) -> TaskBuilder:
        """Append any 64-bit word."""
        if not 0 <= word < 1 << registers().word.width:
            raise self._error("RAW", RegcmdError(f"{word:#x} is no 64-bit word"))
        return self._append(word)

    def enable(self, *blocks: str) -> TaskBuilder:
        """Choose the blocks that the task starts (H 1.5)."""
        try:
            self.mask = op_enable_mask(blocks)
        except ValueError as error:
            raise self._error("OP_ENABLE", error) from error
        return self

    def link(self, next_address: int, next_amount: int) -> TaskBuilder:
        """Let the tail name the next task: its byte address and its amount code.

        Raises
        ------
        RegcmdError
            if the address is not a multiple of 16 or a value does not fit.
        """
        if next_address % FETCH_BYTES:
            problem = RegcmdError(f"0x{next_address:X} is not a multiple of {FETCH_BYTES}")
            raise self._error("PC.BASE_ADDRESS", problem)
        self._link = next_address, next_amount
        self._tail()
        return self

    @property
    def n_words(self) -> int:
        """Words of the task with its tail."""
        return self._padded() + TAIL_WORDS

    @property
    def amount(self) -> int:
        """Amount code of this task, for the task before it or for the driver."""
        return amount_code(self.n_words)

    @property
    def blocks(self) -> list[str]:
        """Blocks that the task starts."""
        return blocks_of_mask(self.mask)

    def words(self) -> list[int]:
        """All words of the task, an even number.

        The PC fetches pairs, and a word behind the op-enable would be written too; so an odd list
        is filled with a no-op in front of the tail.

        Raises
        ------
        RegcmdError
            if no block was chosen by `enable`.
        """
        if not self.mask:
            raise self._error("OP_ENABLE", RegcmdError("the task starts no block"))
        padding = [0] * (self._padded() - len(self._words))
        return [*self._words, *padding, *self._tail()]

    def _padded(self) -> int:
        return len(self._words) + len(self._words) % FETCH_WORDS

    def _tail(self) -> list[int]:
        pc = registers()["PC"]
        base, amounts = pc["BASE_ADDRESS"], pc["REGISTER_AMOUNTS"]
        try:
            if self._link is None:
                first, second = 0, register_word(amounts, 0)
            else:
                address, amount = self._link
                first = register_word(base, base.encode(PC_SOURCE_ADDR=address // FETCH_BYTES))
                second = register_word(amounts, amounts.encode(PC_DATA_AMOUNT=amount))
        except ValueError as error:
            raise self._error("tail", error) from error
        end = pack_word(target_code("CONFIG_END"), 0, 0)
        return [first, second, end, op_enable_word(self.mask)]

    def _append(self, word: int) -> TaskBuilder:
        self._words.append(word)
        return self

    def _error(self, what: str, error: Exception) -> RegcmdError:
        reason = error.args[0] if error.args else error
        return RegcmdError(f"{self.name}, word {len(self._words)} ({what}): {reason}")


@dataclass(frozen=True)
class TaskEntry:
    """Where one task of a chain lies: byte address, words with tail, amount code, block mask."""

    name: str
    address: int
    n_words: int
    amount: int
    mask: int


@dataclass(frozen=True)
class TaskList:
    """A chain in memory: its bytes from `address` on, and its tasks."""

    address: int
    data: bytes
    tasks: list[TaskEntry]


def task_list_bytes(tasks: Sequence[TaskBuilder], align: int = TASK_ALIGN) -> int:
    """Bytes that `build_task_list` will need."""
    return sum(-(-task.n_words * WORD_BYTES // align) * align for task in tasks)


def build_task_list(tasks: Sequence[TaskBuilder], address: int, align: int = TASK_ALIGN) -> TaskList:
    """Lay tasks out one after the other from a byte address and link each to the next.

    Raises
    ------
    RegcmdError
        if there is no task, or address or alignment are not multiples of 16.
    """
    if not tasks:
        raise RegcmdError("a task list needs at least one task")
    if align <= 0 or align % FETCH_BYTES or address % align:
        raise RegcmdError(f"address 0x{address:X} and alignment {align} must be multiples of {FETCH_BYTES}")
    places = [address]
    for task in tasks:
        places.append(places[-1] + task_list_bytes([task], align))
    data = bytearray()
    entries = []
    for number, task in enumerate(tasks):
        if number + 1 < len(tasks):
            task.link(places[number + 1], tasks[number + 1].amount)
        words = task.words()
        data += words_to_bytes(words).ljust(places[number + 1] - places[number], b"\0")
        entries.append(TaskEntry(task.name, places[number], len(words), task.amount, task.mask))
    return TaskList(address, bytes(data), entries)


def walk_tasks(
    fetch: Callable[[int, int], Sequence[int]], address: int, amount: int, count: int
) -> list[tuple[int, list[int]]]:
    """Follow a chain as the PC does.

    Parameters
    ----------
    fetch
        (byte address, number of words) -> words.
    address, amount
        of the first task, as in BASE_ADDRESS and REGISTER_AMOUNTS.
    count
        tasks to run, as in TASK_NUMBER.

    Returns
    -------
    list of (byte address, words)
        one item per task; shorter than `count` when a task has no link.

    Raises
    ------
    RegcmdError
        if a task has no op-enable word.
    """
    pc = registers()["PC"]
    found: list[tuple[int, list[int]]] = []
    while len(found) < count:
        words = list(fetch(address, words_of_amount(amount)))
        found.append((address, words))
        linked = None
        enabled = False
        for index, word in enumerate(words):
            command = decode_word(word, index)
            enabled |= command.kind == "op_enable"
            if command.register is pc["BASE_ADDRESS"]:
                linked = command.fields["PC_SOURCE_ADDR"] * FETCH_BYTES
            elif command.register is pc["REGISTER_AMOUNTS"]:
                amount = command.fields["PC_DATA_AMOUNT"]
        if not enabled:
            raise RegcmdError(
                f"task {len(found) - 1} at 0x{address:X}: no op-enable word among its {len(words)} words"
            )
        if linked is None:
            break
        address = linked
    return found
