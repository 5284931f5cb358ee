"""Command lists in a piece of memory: where they start and end, how they are linked, where it lay."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from rtl.regs import registers
from sw.regcmd.disassembler import decode_word
from sw.regcmd.machine import is_start
from sw.regcmd.program import ListedTask, Program, fetch_from, link_of, program_of_chain, program_of_words
from sw.regcmd.tasks import FETCH_BYTES
from sw.regcmd.word import FETCH_WORDS, WORD_BYTES, words_from_bytes

LEAST_WRITES = 2
"""Register writes ahead of an op-enable word without which it counts as chance."""


MOSTLY = 0.9
"""Share of commands among the words of a file of nothing else; the rest may be invalid on purpose."""

SHORT = 4096
"""Words of a file that is shown as it is, if only zeros fill it up or nothing in it is a list."""


@dataclass(frozen=True)
class Found:
    """A list found in memory: number of its first word there, and its words."""

    first: int
    words: tuple[int, ...]

    @property
    def link(self) -> int | None:
        """Address of the next list, as its tail says."""
        return link_of(ListedTask(self.words))[0]


def find_lists(words: list[int]) -> list[Found]:
    """Lists in words of memory, each up to its op-enable word.

    A list is a run of canonical words that ends with an op-enable word of known blocks; bytes that are
    no commands end a run, and so does an op-enable word.
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
    """Whether words are a file of commands rather than a buffer in which some lie.

    Nearly everything must be commands, or nothing at all look like a list in what is short.
    """
    real = [word for word in words if word]
    if not found:
        return len(words) <= SHORT or (bool(real) and _share(real) >= MOSTLY)
    return (len(words) <= SHORT or 2 * len(real) >= len(words)) and _share(real) >= MOSTLY


def _share(words: list[int]) -> float:
    return sum(decode_word(word).canonical for word in words) / len(words)


def address_of(found: list[Found]) -> int | None:
    """Address of the memory's first word, from the links between lists: the one that fits most of them."""
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
    """The chains in a piece of memory.

    Parameters
    ----------
    data
        bytes, from a multiple of 8 on; a rest of less than a word is left out.
    address
        of its first byte, None: worked out from the links, where there are some.

    Raises
    ------
    RegcmdError
        never for what the bytes are; a buffer without lists gives no program.
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
