"""Memory of a case: a mapped range with guard zones, over a background shared by all cases."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from rkcosim.spec.types import ATOM
from rkcosim.verify.conformance.choices import Chooser, Refused

PAGE = 4096
BASE = 0x0010_0000
UNMAPPED = 0x7000_0000
"""An address after everything that a case maps."""
SIZE = 1 << 20
COMMAND_OFFSET = SIZE + 0x1000
"""Offset of the command lists from the base of an arena."""

COMMANDS = BASE + COMMAND_OFFSET
COMMAND_BYTES = 1 << 16

Bytes = NDArray[np.uint8]


@lru_cache(maxsize=1)
def background() -> Bytes:
    """Return the initial bytes of the range: random, so that stray writes are detected."""
    return np.random.default_rng(0x3588).integers(0, 256, SIZE, np.uint8)


class Arena:
    """Allocates addresses in the range.

    Parameters
    ----------
    ch : source of the guard zones' sizes.
    base : first address, a multiple of 4 KiB.
    """

    def __init__(self, ch: Chooser, base: int = BASE) -> None:
        self._ch = ch
        self.base, self.commands = base, base + COMMAND_OFFSET
        self._next = base + 0x100
        self._cut = ch.integer("mapped.cut", 1, 255) if ch.chance("mapped.twice", 0.2) else 0
        self.placed: list[tuple[int, Bytes]] = []
        self.names: list[tuple[int, int, str]] = []
        """(address, size, name) of every allocation, for messages."""

    def alloc(self, size: int, name: str, align: int = ATOM) -> int:
        """Reserve bytes after a guard zone and return their address.

        Raises
        ------
        Refused
            if the range is full.
        """
        guard = 64 + ATOM * self._ch.integer("guard", 0, 15)
        address = -(-(self._next + guard) // align) * align
        # so that a border that no burst may cross follows soon
        if align <= ATOM and self._ch.chance("page", 0.25):
            address = -(-address // PAGE) * PAGE + PAGE - ATOM * self._ch.integer("page.before", 1, 40)
        if address + size + 512 > self.base + SIZE:
            raise Refused(f"{size} bytes for {name} do not fit")
        self._next = address + size
        self.names.append((address, size, name))
        return address

    def place(self, data: Bytes, name: str) -> int:
        """Reserve room for bytes, store them and return the address."""
        address = self.alloc(data.size, name)
        self.placed.append((address, data))
        return address

    @property
    def end(self) -> int:
        """First address after the last allocation and its guard zone."""
        return min(self._next + 512, self.base + SIZE)

    def image(self) -> Bytes:
        """Return all bytes of the range, uint8 [SIZE]."""
        out = background().copy()
        for address, data in self.placed:
            at = address - self.base
            out[at : at + data.size] = data
        return out

    def ranges(self) -> list[tuple[int, int]]:
        """Return the range as mapped in the golden model, (address, bytes).

        It is one piece or, in some cases, two pieces that meet within the allocated part.
        """
        at = (self.end - self.base) * self._cut // 256 // ATOM * ATOM
        return [(self.base, SIZE)] if at == 0 else [(self.base, at), (self.base + at, SIZE - at)]

    def find(self, address: int) -> str:
        """Describe what lies at an address."""
        for start, size, name in self.names:
            if start <= address < start + size:
                return f"{name} + {address - start:#x}"
        return "guard zone"
