"""Memory of a case: one mapped range with guard zones, over a background that all cases share."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from cosim.conformance.choices import Chooser, Refused

ATOM = 16
PAGE = 4096
BASE = 0x0010_0000
SIZE = 1 << 20
COMMAND_OFFSET = SIZE + 0x1000
"""Where command lists start, behind the base of an arena."""

COMMANDS = BASE + COMMAND_OFFSET
COMMAND_BYTES = 1 << 16

Bytes = NDArray[np.uint8]


@lru_cache(maxsize=1)
def background() -> Bytes:
    """Bytes of the range before anything is placed in it: random, so that stray writes show."""
    return np.random.default_rng(0x3588).integers(0, 256, SIZE, np.uint8)


class Arena:
    """Hands out addresses in the range.

    Parameters
    ----------
    ch
        source of the guard zones' sizes.
    base
        first address, a multiple of 4 KiB.
    """

    def __init__(self, ch: Chooser, base: int = BASE) -> None:
        self._ch = ch
        self.base, self.commands = base, base + COMMAND_OFFSET
        self._next = base + 0x100
        self.placed: list[tuple[int, Bytes]] = []
        self.names: list[tuple[int, int, str]] = []
        """(address, size, what) of every allocation, for messages."""

    def alloc(self, size: int, name: str, align: int = ATOM) -> int:
        """Reserve bytes behind a guard zone and return their address.

        Raises
        ------
        Refused
            when the range is full.
        """
        guard = 64 + ATOM * self._ch.integer("guard", 0, 15)
        address = -(-(self._next + guard) // align) * align
        if align <= ATOM and self._ch.chance("page", 0.25):  # soon over a border that no burst may cross
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

    def put(self, address: int, data: Bytes) -> None:
        """Store bytes at an address of an allocation."""
        self.placed.append((address, data))

    @property
    def end(self) -> int:
        """First address behind the last allocation and its guard zone."""
        return min(self._next + 512, self.base + SIZE)

    def image(self) -> Bytes:
        """All bytes of the range, uint8 [SIZE]."""
        out = background().copy()
        for address, data in self.placed:
            at = address - self.base
            out[at : at + data.size] = data
        return out

    def find(self, address: int) -> str:
        """Say what lies at an address."""
        for start, size, name in self.names:
            if start <= address < start + size:
                return f"{name} + {address - start:#x}"
        return "guard zone"
