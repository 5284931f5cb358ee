"""Search for command lists in a memory image: their starts, ends and links, and the image's address."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from rkcosim.regcmd.disassembler import decode_word
from rkcosim.regcmd.machine import is_start
from rkcosim.regcmd.program import (
    ListedTask,
    Program,
    fetch_from,
    link_of,
    program_of_chain,
    program_of_words,
)
from rkcosim.regcmd.tasks import FETCH_BYTES
from rkcosim.regcmd.word import FETCH_WORDS, WORD_BYTES, words_from_bytes
from rkcosim.spec.regs import registers

LEAST_WRITES = 2
"""Minimum number of register writes before an op-enable word that is not considered accidental."""


MOSTLY = 0.9
"""Minimum share of commands in a file of command words; the others may be invalid on purpose."""

SHORT = 4096
"""Maximum words of a file that is listed unchanged, if it is padded with zeros or contains no list."""


@dataclass(frozen=True)
class Found:
    """A list found in memory: number of its first word there, and its words."""

    first: int
    words: tuple[int, ...]

    @property
    def link(self) -> int | None:
        """Address of the next list according to its tail."""
        return link_of(ListedTask(self.words))[0]


def find_lists(words: list[int]) -> list[Found]:
    """Lists in words of memory, each up to its op-enable word.

    A list is a sequence of canonical words that ends with an op-enable word of known blocks; words that are
    no commands end a sequence, as does an op-enable word.
    """
    blocks = registers()["GLOBAL"]["OPERATION_ENABLE"]
    found: list[Found] = []
    start = 0
    writes = 0
    for number, word in enumerate(words):
        command = decode_word(word, number)
        if is_start(command) and command.canonical:
            mask = command.value
            if writes >= LEAST_WRITES and mask and not mask & ~blocks.mask:
                first = start
                while words[first] == 0:
                    first += 1
                first -= first % FETCH_WORDS if first > start else 0
                found.append(Found(first, tuple(words[first : number + 1])))
            start, writes = number + 1, 0
        elif not command.canonical:
            start, writes = number + 1, 0
        elif command.kind == "register":
            writes += 1
    return found


def is_listing(words: list[int], found: list[Found]) -> bool:
    """Whether words are a file of commands rather than a buffer that contains some.

    Almost all words must be commands; a short file without any list counts as well.
    """
    real = [word for word in words if word]
    if not found:
        return len(words) <= SHORT or (bool(real) and _share(real) >= MOSTLY)
    return (len(words) <= SHORT or 2 * len(real) >= len(words)) and _share(real) >= MOSTLY


def _share(words: list[int]) -> float:
    return sum(decode_word(word).canonical for word in words) / len(words)


def address_of(found: list[Found]) -> int | None:
    """Address of the first word in memory, from the links between lists: the one that fits most links."""
    votes: Counter[int] = Counter()
    for item in found:
        link = item.link
        if link is None:
            continue
        for other in found:
            base = link - other.first * WORD_BYTES
            if other is not item and base >= 0 and base % FETCH_BYTES == 0:
                votes[base] += 1
    if not votes:
        return None
    (best, count), *rest = votes.most_common(2)
    return best if not rest or rest[0][1] < count or len(found) == 2 else None


def programs_of_buffer(data: bytes, name: str = "buffer", address: int | None = None) -> list[Program]:
    """The chains in a memory image.

    Parameters
    ----------
    data
        Bytes, aligned to 8; a rest of less than a word is ignored.
    address
        Address of the first byte; None: derived from the links, if there are any.

    Raises
    ------
    RegcmdError
        Never because of the contents; a buffer without lists gives no program.
    """
    words = words_from_bytes(data[: len(data) // WORD_BYTES * WORD_BYTES])
    found = find_lists(words)
    if address is None:
        address = address_of(found)
    if is_listing(words, found):
        return [program_of_words(words, name, address)] if words else []
    if address is None:
        return [
            Program(f"{name} + 0x{item.first * WORD_BYTES:X}", [ListedTask(item.words)]) for item in found
        ]
    places = {address + item.first * WORD_BYTES: item for item in found}
    fetch = fetch_from([(address, data)])
    linked = {item.link for item in found}
    left = dict(places)
    programs = []
    heads = [at for at in places if at not in linked] or list(places)[:1]
    for head in [*heads, *places]:
        if head not in left:
            continue
        amount = -(-len(places[head].words) // FETCH_WORDS) - 1
        program = program_of_chain(f"{name} + 0x{head - address:X}", fetch, head, amount, len(left))
        kept = []
        for task in program.tasks:
            if task.address is None or left.pop(task.address, None) is None:
                break
            kept.append(task)
        program.tasks = kept
        program.number = program.following = None
        program.stopped = "" if program.stopped == "no link" else program.stopped
        programs.append(program)
    return programs
