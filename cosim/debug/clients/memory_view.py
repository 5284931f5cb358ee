"""Memory as a client of the protocol sees it: bytes by name or address, and tensors in both layouts."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rkcosim.base import Error
from rkcosim.debug.base import BaseSession
from rkcosim.debug.layout import atom_addresses, held_atoms
from rkcosim.debug.tensors import TensorPlace
from rkcosim.golden.task.errors import MemoryFault

MOST_BYTES = 1 << 20
"""Maximum number of bytes of one reply."""

MOST_LINES = 1000
"""Maximum number of variables of one reply; a client asks for the next ones by their number."""

FIRST_REFERENCE = 1000
"""References from this number on belong to tensors."""


class MemoryViewError(Error, ValueError):
    """A client asked for something that is not in memory."""


@dataclass(frozen=True)
class Variable:
    """A line of a client's view of variables.

    Members
    -------
    name, value : the texts.
    children : reference of what it contains, 0 for nothing.
    count : number of its children, if a client may ask for some of them.
    memory : its address, if a client may show its bytes.
    """

    name: str
    value: str
    children: int = 0
    count: int = 0
    memory: int | None = None

    def as_json(self) -> dict[str, Any]:
        """Return it as the protocol has it."""
        found: dict[str, Any] = {
            "name": self.name,
            "value": self.value,
            "variablesReference": self.children,
        }
        if self.count:
            found["indexedVariables"] = self.count
        if self.memory is not None:
            found["memoryReference"] = f"0x{self.memory:X}"
        return found


class MemoryView:
    """Tensors and regions of a session as variables, and their bytes.

    A tensor has two children: its elements by channel and row, and the atoms of memory that hold them.
    """

    def __init__(self, session: BaseSession) -> None:
        self._session = session
        self._keys: list[tuple[str, str, int]] = []

    def _reference(self, kind: str, name: str, number: int = 0) -> int:
        key = kind, name, number
        if key not in self._keys:
            self._keys.append(key)
        return FIRST_REFERENCE + self._keys.index(key)

    def _tensor(self, name: str) -> TensorPlace:
        place = self._session.work.tensors.get(name)
        if place is None:
            raise MemoryViewError(f"no tensor {name}")
        return place

    def tensors(self) -> list[Variable]:
        """Return all tensors."""
        return [
            Variable(
                name,
                f"{'x'.join(map(str, place.cube))} {place.dtype} at 0x{place.span[0]:08X}",
                self._reference("tensor", name),
                memory=place.span[0],
            )
            for name, place in self._session.work.tensors.items()
        ]

    def regions(self) -> list[Variable]:
        """Return all regions of memory."""
        return [
            Variable(name, f"{region.data.size} bytes at 0x{region.address:08X}", memory=region.address)
            for name, region in self._session.work.regions.items()
        ]

    def variables(self, reference: int, first: int = 0, count: int = 0) -> list[Variable]:
        """Return children of a tensor, from the number `first` on; raises MemoryViewError."""
        if not 0 <= reference - FIRST_REFERENCE < len(self._keys):
            raise MemoryViewError(f"there is nothing with the reference {reference}")
        kind, name, number = self._keys[reference - FIRST_REFERENCE]
        if kind == "tensor":
            return self._parts(name)
        most = min(count or MOST_LINES, MOST_LINES)
        return list(getattr(self, f"_{kind}")(name, number, max(first, 0), most))

    def _parts(self, name: str) -> list[Variable]:
        place = self._tensor(name)
        channels, rows, columns = place.cube
        atoms = atom_addresses(place).size
        return [
            Variable(
                "elements",
                f"{channels} channels of {rows} rows and {columns} columns",
                self._reference("channels", name),
                channels,
            ),
            Variable(
                "atoms",
                f"{atoms} atoms of memory, by address",
                self._reference("atoms", name),
                atoms,
                place.span[0],
            ),
        ]

    def _channels(self, name: str, _: int, first: int, count: int) -> Iterator[Variable]:
        place = self._tensor(name)
        channels, rows, _columns = place.cube
        values = place.read(self._session.memory)
        for number in range(first, min(first + count, channels)):
            low, high = values[number].min(), values[number].max()
            text = f"{rows} rows, {low} to {high}"
            yield Variable(f"[{number}]", text, self._reference("rows", name, number), rows)

    def _rows(self, name: str, channel: int, first: int, count: int) -> Iterator[Variable]:
        place = self._tensor(name)
        values = place.read(self._session.memory)[channel]
        for number in range(first, min(first + count, place.cube[1])):
            yield Variable(f"[{number}]", " ".join(map(str, values[number].tolist())))

    def _atoms(self, name: str, _: int, first: int, count: int) -> Iterator[Variable]:
        for atom in held_atoms(self._tensor(name), self._session.memory, first, count):
            yield Variable(f"0x{atom.address:08X}", atom.text, memory=atom.address)

    def read(self, reference: str, offset: int, count: int) -> dict[str, Any]:
        """Return bytes as the reply to `readMemory` has them, as far as the memory goes.

        Parameters
        ----------
        reference : an address (0x...), or the name of a tensor or region.
        offset, count : distance from there in bytes, and how many bytes.

        Raises
        ------
        MemoryViewError
            for an unknown name, or a count that is negative or exceeds `MOST_BYTES`.
        """
        work = self._session.work
        if reference in work.tensors:
            start = work.tensors[reference].span[0]
        elif reference in work.regions:
            start = work.regions[reference].address
        else:
            try:
                start = int(reference, 0)
            except ValueError:
                known = ", ".join([*work.tensors, *work.regions]) or "none"
                raise MemoryViewError(f"no tensor or region {reference}; there are {known}") from None
        address = start + offset
        if not 0 <= count <= MOST_BYTES or address < 0:
            raise MemoryViewError(f"at most {MOST_BYTES} bytes from address 0 on are shown, not {count}")
        data = b""
        while len(data) < count and (there := self._mapped(address + len(data), count - len(data))):
            data += bytes(self._session.memory.view(address + len(data), there))
        found: dict[str, Any] = {"address": f"0x{address:X}"}
        if data:
            found["data"] = base64.b64encode(data).decode()
        if len(data) < count:
            found["unreadableBytes"] = count - len(data)
        return found

    def _mapped(self, address: int, count: int) -> int:
        """Return how many bytes from an address on are mapped, at most `count`."""
        low, high = 0, count
        while low < high:
            middle = (low + high + 1) // 2
            try:
                self._session.memory.view(address, middle)
                low = middle
            except (MemoryFault, Error):
                high = middle - 1
        return low
