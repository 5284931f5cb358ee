"""Checked access to the tables of an untrusted flatbuffer.

The library `flatbuffers` follows offsets without checks. `Table` checks each offset against the buffer first,
and `Budget` limits the total number of bytes that are read, since tables and vectors of a hostile file may
overlap.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import flatbuffers
import numpy as np
import numpy.typing as npt
from flatbuffers import number_types as types

from rkcosim.compiler.graph import ModelError


class RknnFileError(ModelError):
    """Raised for a `.rknn` file that cannot be read or run; the message names the problem and its place."""


VISITS = 4
"""Maximum average number of reads of a file's bytes; a well-formed flatbuffer refers to each byte once."""

_OFFSET = 4
_FLAGS = {1: types.Uint8Flags, 2: types.Uint16Flags, 4: types.Uint32Flags, 8: types.Uint64Flags}


@dataclass
class Budget:
    """Number of bytes that may still be read."""

    left: int

    def take(self, size: int, where: str) -> None:
        """Account for `size` bytes.

        Raises
        ------
        RknnFileError
            if more bytes are read than a well-formed file has.
        """
        self.left -= size
        if self.left < 0:
            raise RknnFileError(f"damaged .rknn file: {where}: its parts overlap or repeat without end")


class Table:
    """One table of a flatbuffer.

    Parameters
    ----------
    data
        The flatbuffer.
    at
        Offset of the table.
    where
        Name of the table in messages.
    budget
        Budget of the whole file.

    Raises
    ------
    RknnFileError
        if the table does not lie in the buffer.
    """

    def __init__(self, data: bytes, at: int, where: str, budget: Budget) -> None:
        self.data, self.where, self.budget = data, where, budget
        self._inside(at, _OFFSET, "the table")
        start = at - flatbuffers.encode.Get(types.SOffsetTFlags.packer_type, data, at)
        self._inside(start, 4, "the table's list of slots")
        size = self._get(types.Uint16Flags, start)
        self._length = self._get(types.Uint16Flags, start + 2)
        if size < 4 or size % 2 or self._length < 4:
            raise self.error(f"a list of slots of {size} bytes for a table of {self._length}")
        self._inside(start, size, "the table's list of slots")
        self._inside(at, self._length, "the table")
        budget.take(self._length + size, where)
        self._at, self._table = at, flatbuffers.table.Table(data, at)

    def error(self, text: str) -> RknnFileError:
        """Return an error that names this table."""
        return RknnFileError(f"damaged .rknn file: {self.where}: {text}")

    def _get(self, flags: Any, at: int) -> int:
        return int(flatbuffers.encode.Get(flags.packer_type, self.data, at))

    def _inside(self, at: int, size: int, what: str) -> None:
        if at < 0 or size < 0 or at + size > len(self.data):
            raise self.error(f"{what} lies past the file's flatbuffer ({at} + {size} of {len(self.data)})")

    def _slot(self, slot: int, size: int) -> int:
        """Return the offset of a slot's value in the buffer; 0 if the slot is absent."""
        offset = int(self._table.Offset(4 + 2 * slot))
        if not offset:
            return 0
        if offset < 4 or offset + size > self._length:
            raise self.error(f"slot {slot} lies past its table")
        return self._at + offset

    def has(self, slot: int) -> bool:
        """Return whether a slot is present."""
        return bool(self._slot(slot, 1))

    def number(self, slot: int, size: int = 4) -> int:
        """Return an unsigned number of 1, 2, 4 or 8 bytes; 0 if it is absent."""
        at = self._slot(slot, size)
        return self._get(_FLAGS[size], at) if at else 0

    def _target(self, slot: int) -> int:
        """Return the place to which the offset in a slot points; 0 if the slot is absent."""
        at = self._slot(slot, _OFFSET)
        return at + self._get(types.UOffsetTFlags, at) if at else 0

    def _vector(self, slot: int, size: int) -> tuple[int, int]:
        """Return first byte and length of a vector of elements of `size` bytes; (0, 0) if it is absent."""
        at = self._target(slot)
        if not at:
            return 0, 0
        self._inside(at, _OFFSET, f"slot {slot}")
        count = self._get(types.UOffsetTFlags, at)
        self._inside(at + _OFFSET, count * size, f"slot {slot}, a vector of {count} elements")
        self.budget.take(count * size, self.where)
        return at + _OFFSET, count

    def bytes(self, slot: int) -> bytes:
        """Return a vector of bytes; empty if it is absent."""
        at, count = self._vector(slot, 1)
        return self.data[at : at + count]

    def text(self, slot: int) -> str:
        """Return a text; empty if it is absent. Undecodable bytes are replaced."""
        return self.bytes(slot).decode("utf-8", "replace")

    def array(self, slot: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Return a vector of numbers or structures; empty if it is absent."""
        kind = np.dtype(dtype)
        at, count = self._vector(slot, kind.itemsize)
        return np.frombuffer(self.data, kind, count, at) if count else np.zeros(0, kind)

    def numbers(self, slot: int) -> tuple[int, ...]:
        """Return a vector of signed 32-bit numbers; empty if it is absent."""
        return tuple(int(n) for n in self.array(slot, "<i4"))

    def table(self, slot: int, where: str) -> Table | None:
        """A table, None where it is absent."""
        at = self._target(slot)
        return Table(self.data, at, where, self.budget) if at else None

    def tables(self, slot: int, where: str) -> Iterator[Table]:
        """A vector of tables, each named `where` and its number."""
        start, count = self._vector(slot, _OFFSET)
        for number in range(count):
            at = start + _OFFSET * number
            yield Table(self.data, at + self._get(types.UOffsetTFlags, at), f"{where} {number}", self.budget)


def root_table(data: bytes, where: str) -> Table:
    """The root table of a flatbuffer.

    Raises
    ------
    RknnFileError
        if it does not lie in the buffer.
    """
    if len(data) < 2 * _OFFSET:
        raise RknnFileError(f"damaged .rknn file: its flatbuffer has {len(data)} bytes")
    at = int(flatbuffers.encode.Get(types.UOffsetTFlags.packer_type, data, 0))
    return Table(data, at, where, Budget(VISITS * len(data) + 4096))
