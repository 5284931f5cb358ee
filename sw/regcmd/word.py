"""Register-command words: 64 bits of target, value and offset [HW 1.4]."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from functools import lru_cache

from rkcosim.base import Error
from rkcosim.spec.regs import Register, registers

WORD_BYTES = 8
"""Bytes of one word, little endian in memory."""

FETCH_WORDS = 2
"""Words of one 16-byte fetch of the PC [HW 1.6]."""


LOGGED = re.compile(r"\b0x([0-9a-fA-F]{12,16})\b[ \t]*\(?[ \t]*op\b")
"""A word in a line of a log, as patched kernel drivers print it: `0x02010000000e1004 ( op: ...)`."""


class RegcmdError(Error, ValueError):
    """A command stream or its text is wrong; the message has the place."""


def pack_word(target: int, value: int, offset: int) -> int:
    """Build a word from target, value and offset.

    Raises
    ------
    ValueError
        If a part does not fit its bits.
    """
    (t, targets), (v, values), (o, offsets) = _parts()
    if 0 <= target <= targets and 0 <= value <= values and 0 <= offset <= offsets:
        return int(target) << t | int(value) << v | int(offset) << o
    return registers().word.encode(TARGET=target, VALUE=value, OFFSET=offset)


def unpack_word(word: int) -> tuple[int, int, int]:
    """Split a word into (target, value, offset)."""
    (t, targets), (v, values), (o, offsets) = _parts()
    return word >> t & targets, word >> v & values, word >> o & offsets


@lru_cache(1)
def _parts() -> tuple[tuple[int, int], ...]:
    """Return the lowest bit and the largest value of target, value and offset, which have no signs."""
    fields = registers().word.fields
    return tuple((fields[n].lsb, (1 << fields[n].width) - 1) for n in ("TARGET", "VALUE", "OFFSET"))


def register_word(register: Register, value: int) -> int:
    """Return the word that writes `value` (32 bits) to a register.

    Raises
    ------
    RegcmdError
        If no word target reaches the register's block.
    """
    target = registers()[register.block].target
    if not target:
        raise RegcmdError(f"{register.path}: no register word reaches this block")
    return pack_word(target, value, register.offset)


@lru_cache(64)
def target_code(name: str) -> int:
    """Code of a word target by name: a block, NOP, CONFIG_END or OP_ENABLE."""
    codes = registers().word.fields["TARGET"].enum or {}
    return codes[name]


def op_enable_word(mask: int) -> int:
    """Return the word that starts the blocks of `mask`, as encoded by `op_enable_mask` [HW 1.5]."""
    return pack_word(target_code("OP_ENABLE"), mask, registers()["PC"]["OPERATION_ENABLE"].offset)


def op_enable_mask(blocks: Iterable[str]) -> int:
    """Block mask of an op-enable word from block names [HW 1.5].

    Raises
    ------
    ValueError
        For a name that is not one of the blocks that can be started.
    """
    return registers()["GLOBAL"]["OPERATION_ENABLE"].encode(**{f"{block}_OP_EN": 1 for block in blocks})


def blocks_of_mask(mask: int) -> list[str]:
    """Block names of an op-enable mask, from bit 0 up."""
    fields = registers()["GLOBAL"]["OPERATION_ENABLE"].decode(mask)
    return [name.removesuffix("_OP_EN") for name, on in reversed(fields.items()) if on]


def words_to_bytes(words: Iterable[int]) -> bytes:
    """Memory image of words, 8 bytes each."""
    items = list(words)
    return struct.pack(f"<{len(items)}Q", *items)


def words_from_bytes(data: bytes) -> list[int]:
    """Words of a memory image.

    Raises
    ------
    RegcmdError
        If the length is not a multiple of 8 bytes.
    """
    if len(data) % WORD_BYTES:
        raise RegcmdError(
            f"a command list consists of {WORD_BYTES}-byte words; {len(data)} bytes end inside a word"
        )
    return list(struct.unpack(f"<{len(data) // WORD_BYTES}Q", data))
