"""Registers of a task by name: `task["PPU.DATA_CUBE_IN_WIDTH"]`, `task["PPU.DATA_FORMAT.INDEX_ADD"] = 48`."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, SupportsIndex, TypeAlias

from rkcosim.regcmd.disassembler import decode_word
from rkcosim.regcmd.word import RegcmdError, register_word
from rkcosim.spec.regs import Field, Register, registers

Value: TypeAlias = SupportsIndex | str
"""A number, or the name of a code of the field (`"MAX"`)."""


def named(path: str) -> tuple[Register, Field | None]:
    """Return the register of `BLOCK.REGISTER`, and the field of `BLOCK.REGISTER.FIELD`.

    Raises
    ------
    RegcmdError
        If there is none; the message has similar names.
    """
    parts = path.split(".") if isinstance(path, str) else []
    if not 2 <= len(parts) <= 3:
        raise RegcmdError(
            f"{path!r} names no register: PPU.DATA_FORMAT is one, PPU.DATA_FORMAT.INDEX_ADD a field of it"
        )
    blocks = registers().blocks
    if parts[0] not in blocks:
        raise RegcmdError(f"{path}: no block has the name {parts[0]!r}{_near(parts[0], blocks)}")
    known = blocks[parts[0]].registers
    if parts[1] not in known:
        raise RegcmdError(f"{path}: {parts[0]} has no register {parts[1]!r}{_near(parts[1], known)}")
    register = known[parts[1]]
    if len(parts) == 2:
        return register, None
    if parts[2] not in register.fields:
        raise RegcmdError(
            f"{path}: {register.path} has no field {parts[2]!r}{_near(parts[2], register.fields)}"
        )
    return register, register.fields[parts[2]]


def _near(name: str, known: Mapping[str, object]) -> str:
    """Return what may be meant, as the end of a message."""
    names = list(known)
    near = get_close_matches(name.upper(), names, n=3) or (names if len(names) <= 12 else [])
    return (
        f"; there is {' or '.join(near)}"
        if len(near) in (1, 2)
        else f"; there are {', '.join(near)}"
        if near
        else ""
    )


def encoded(register: Register, field: Field | None, value: Value, before: int = 0) -> int:
    """Return the 32 bits of a register after a write by name.

    Parameters
    ----------
    field
        The field that is written; the other bits of `before` remain. None: the whole register is written.
    value
        A code's name or a number. For a whole register the 32 bits, so an address register takes the byte
        address; if its only field begins at bit 0, a value of that field.

    Raises
    ------
    RegcmdError
        For a value that does not fit; the message has BLOCK.REGISTER.FIELD and the limits.
    """
    try:
        number = value if isinstance(value, str) else operator.index(value)
    except TypeError:
        place = register.path if field is None else f"{register.path}.{field.name}"
        raise RegcmdError(f"{place}: {value!r} is neither a whole number nor a name") from None
    try:
        if field is not None:
            return register.update(before, **{field.name: number})
        only = next(iter(register.fields.values())) if len(register.fields) == 1 else None
        if only is not None and (only.lsb == 0 or isinstance(number, str)):
            return register.encode(**{only.name: number})
    except ValueError as error:
        raise RegcmdError(str(error)) from error
    if isinstance(number, str):
        raise RegcmdError(
            f"{register.path}: {number!r} is a value for one of its fields ({', '.join(register.fields)}); "
            f"write {register.path}.FIELD"
        )
    if not 0 <= number < 1 << 32:
        raise RegcmdError(f"{register.path}: {number} is outside 0..0xFFFFFFFF")
    if wrong := number & ~register.mask:
        raise RegcmdError(
            f"{register.path}: 0x{number:X} has bits 0x{wrong:X} that belong to no field (mask "
            f"0x{register.mask:08X})"
        )
    return number


class NamedRegisters(ABC):
    """The words of a task as a mapping from `BLOCK.REGISTER` or `BLOCK.REGISTER.FIELD` to values.

    Reading returns the value of the last word that writes the register. Assigning changes that word, so the
    number of words remains; if no word writes the register, one is added where the task can grow.
    """

    @abstractmethod
    def _current(self) -> Sequence[int]:
        """Return the words."""

    @abstractmethod
    def _put(self, index: int | None, word: int, moves: bool) -> None:
        """Replace a word, or append one (None).

        Parameters
        ----------
        moves
            Whether its value is an address that moves with the memory of the task.
        """

    def _meant(self, register: Register, field: Field | None, value: Any) -> tuple[Value, bool]:
        """Return a value that the user gave as number or code, and whether it is an address that may move."""
        return value, False

    def _last(self, register: Register) -> int | None:
        """Return the index of the last word that writes a register, None without one."""
        words = self._current()
        for index in range(len(words) - 1, -1, -1):
            if decode_word(words[index]).register is register:
                return index
        return None

    def __getitem__(self, path: str) -> int:
        """Return the value of a register (32 bits) or of a field.

        Raises
        ------
        RegcmdError
            For an unknown name.
        KeyError
            If no word of the task writes the register.
        """
        register, field = named(path)
        index = self._last(register)
        if index is None:
            raise KeyError(
                f"the task does not write {register.path}, so it keeps the value of an earlier task"
            )
        value = decode_word(self._current()[index]).value
        return value if field is None else field.get(value)

    def __setitem__(self, path: str, value: Value) -> None:
        """Write a register or a field, see `encoded`; raises RegcmdError."""
        register, field = named(path)
        index = self._last(register)
        before = 0 if index is None else decode_word(self._current()[index]).value
        number, moves = self._meant(register, field, value)
        self._put(index, register_word(register, encoded(register, field, number, before)), moves)

    def __contains__(self, path: object) -> bool:
        """Whether a word of the task writes the register."""
        if not isinstance(path, str):
            return False
        try:
            return self._last(named(path)[0]) is not None
        except RegcmdError:
            return False

    def __iter__(self) -> Iterator[str]:
        """Yield the paths of the registers that the task writes, in the order of their first words."""
        found = (decode_word(word).register for word in self._current())
        return iter(dict.fromkeys(one.path for one in found if one is not None))

    def __len__(self) -> int:
        """Number of words."""
        return len(self._current())
