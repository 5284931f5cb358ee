"""Tensors in memory: their elements by channel, row and column beside the atoms that hold them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rkcosim.debug.tensors import TensorPlace
from rkcosim.spec.types import ATOM


@dataclass(frozen=True)
class HeldAtom:
    """An atom of memory with elements of a tensor.

    Members
    -------
    address : of its first byte.
    data : its 16 bytes.
    where : channels, rows and columns of its elements, as "channels 0 to 15, row 3, column 7".
    values : the elements, in the order of their addresses.
    """

    address: int
    data: bytes
    where: str
    values: NDArray[Any]

    @property
    def text(self) -> str:
        """Everything but the address."""
        form = "{:g}" if self.values.dtype.kind == "f" else "{}"
        numbers = " ".join(form.format(value) for value in self.values.tolist())
        return f"{self.data.hex(' ', 4)}  {self.where}: {numbers}"

    def __str__(self) -> str:
        return f"0x{self.address:08X}  {self.text}"


def atom_addresses(place: TensorPlace) -> NDArray[np.int64]:
    """Return the addresses of the atoms that hold a tensor, in order."""
    return np.unique(place.addresses // ATOM * ATOM)


def held_atoms(place: TensorPlace, memory: Any, first: int = 0, count: int | None = None) -> list[HeldAtom]:
    """Return atoms of a tensor, in the order of their addresses.

    Parameters
    ----------
    memory : the memory, with `view(address, size)`.
    first, count : number of the first atom, and how many; None: all others.

    Raises
    ------
    MemoryFault, MemoryAccessError
        if the memory is not mapped.
    """
    values = place.read(memory).reshape(-1)
    flat = place.addresses.reshape(-1)
    order = np.argsort(flat, kind="stable")
    atoms = flat[order] // ATOM
    starts = np.flatnonzero(np.diff(atoms, prepend=atoms[0] - 1))
    ends = np.append(starts[1:], atoms.size)
    chosen = slice(first, None if count is None else first + count)
    found = []
    for start, end in zip(starts[chosen], ends[chosen], strict=True):
        inside = order[start:end]
        address = int(atoms[start]) * ATOM
        where = ", ".join(
            _extent(name, axis)
            for name, axis in zip(
                ("channel", "row", "column"), np.unravel_index(inside, place.cube), strict=True
            )
        )
        found.append(HeldAtom(address, bytes(memory.view(address, ATOM)), where, values[inside]))
    return found


def _extent(name: str, numbers: NDArray[np.intp]) -> str:
    low, high = int(numbers.min()), int(numbers.max())
    return f"{name} {low}" if low == high else f"{name}s {low} to {high}"
