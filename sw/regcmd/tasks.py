"""Tasks: lists of register words with their four tail words, and chains of tasks [HW 1.6]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rkcosim.regcmd.word import (
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
from rkcosim.spec.regs import registers

TAIL_WORDS = 4
"""Number of words after the registers of a task: link, amount, end of configuration, op-enable."""

FETCH_BYTES = FETCH_WORDS * WORD_BYTES
"""Alignment of a task in memory."""

TASK_ALIGN = 64
"""Alignment that compilers use in practice [HW 1.6]."""


def amount_code(n_words: int) -> int:
    """REGISTER_AMOUNTS value of a task of `n_words` words, including its tail [HW 1.6].

    Raises
    ------
    RegcmdError
        If the task is empty or longer than the field can express.
    """
    field = registers()["PC"]["REGISTER_AMOUNTS"].fields["PC_DATA_AMOUNT"]
    code = (n_words + FETCH_WORDS - 1) // FETCH_WORDS - 1
    if not 0 <= code < 1 << field.width:
        raise RegcmdError(f"a task of {n_words} words cannot be fetched (1..{FETCH_WORDS << field.width})")
    return code


def words_of_amount(code: int) -> int:
    """Number of words that the PC fetches for an amount code."""
    return (code + 1) * FETCH_WORDS


class TaskBuilder:
    """Collect the register writes of one task.

    `set` may name a register again; the list keeps both writes and the last one takes effect, as in the
    vendor's programs.  `words()` adds the tail.
    """

    def __init__(self, name: str = "task") -> None:
        self.name = name
        self.mask = 0
        self._words: list[int] = []
        self._link = 0, 0

    @property
    def body(self) -> list[int]:
        """A copy of the words so far, without padding and tail."""
        return list(self._words)

    def replace(self, index: int, word: int) -> TaskBuilder:
        """Replace a word of `body`."""
        self._words[index] = word
        return self

    def set(self, block: str, register: str, **fields: int | str) -> TaskBuilder:
        """Append a write of a register; fields that are not named are 0.

        Raises
        ------
        RegcmdError
            For an unknown register or field or a value out of range; the message has task and word index.
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
            For an unknown register or a value that does not fit 32 bits; the message has task and word index.
        """
        try:
            return self._append(register_word(registers()[block][register], value))
        except (ValueError, KeyError) as error:
            raise self._error(f"{block}.{register}", error) from error

    def raw(self, word: int) -> TaskBuilder:
        """Append any 64-bit word."""
        if not 0 <= word < 1 << registers().word.width:
            raise self._error("RAW", RegcmdError(f"{word:#x} is not a 64-bit word"))
        return self._append(word)

    def enable(self, *blocks: str) -> TaskBuilder:
        """Select the blocks that the task starts [HW 1.5]."""
        try:
            self.mask = op_enable_mask(blocks)
        except ValueError as error:
            raise self._error("OP_ENABLE", error) from error
        return self

    def link(self, next_address: int, next_amount: int) -> TaskBuilder:
        """Set the link in the tail: byte address of the next task (0: no link word) and its amount code.

        Raises
        ------
        RegcmdError
            If the address is not a multiple of 16 or a value does not fit.
        """
        if next_address % FETCH_BYTES:
            problem = RegcmdError(f"0x{next_address:X} is not a multiple of {FETCH_BYTES}")
            raise self._error("PC.BASE_ADDRESS", problem)
        self._link = next_address, next_amount
        self._tail()
        return self

    @property
    def n_words(self) -> int:
        """Number of words of the task including its tail."""
        return self._padded() + TAIL_WORDS

    @property
    def amount(self) -> int:
        """Amount code of this task, for the previous task or for the driver."""
        return amount_code(self.n_words)

    @property
    def blocks(self) -> list[str]:
        """Blocks that the task starts."""
        return blocks_of_mask(self.mask)

    def words(self) -> list[int]:
        """All words of the task, an even number.

        The PC fetches pairs of words and would also write a word after the op-enable; therefore an odd list
        is padded with a no-op before the tail.

        Raises
        ------
        RegcmdError
            If `enable` has selected no block.
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
            address, amount = self._link
            link = register_word(base, base.encode(PC_SOURCE_ADDR=address // FETCH_BYTES))
            second = register_word(amounts, amounts.encode(PC_DATA_AMOUNT=amount))
        except ValueError as error:
            raise self._error("tail", error) from error
        end = pack_word(target_code("CONFIG_END"), 0, 0)
        return [link if address else 0, second, end, op_enable_word(self.mask)]

    def _append(self, word: int) -> TaskBuilder:
        self._words.append(word)
        return self

    def _error(self, what: str, error: Exception) -> RegcmdError:
        reason = error.args[0] if error.args else error
        return RegcmdError(f"{self.name}, word {len(self._words)} ({what}): {reason}")


@dataclass(frozen=True)
class TaskEntry:
    """Place of one task in a chain: byte address, words including the tail, amount code, block mask."""

    name: str
    address: int
    n_words: int
    amount: int
    mask: int


@dataclass(frozen=True)
class PlacedTasks:
    """A chain in memory: its bytes from `address` on, and its tasks."""

    address: int
    data: bytes
    tasks: list[TaskEntry]


def task_list_bytes(tasks: Sequence[TaskBuilder], align: int = TASK_ALIGN) -> int:
    """Number of bytes that `build_task_list` will need."""
    return sum(-(-task.n_words * WORD_BYTES // align) * align for task in tasks)


def build_task_list(tasks: Sequence[TaskBuilder], address: int, align: int = TASK_ALIGN) -> PlacedTasks:
    """Place tasks one after the other from a byte address on, and link each to the next.

    Raises
    ------
    RegcmdError
        If there is no task, or address or alignment are not multiples of 16.
    """
    if not tasks:
        raise RegcmdError("a task list needs at least one task")
    if align <= 0 or align % FETCH_BYTES or address % FETCH_BYTES:
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
    return PlacedTasks(address, bytes(data), entries)
