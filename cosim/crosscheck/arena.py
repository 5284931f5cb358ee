"""One mapped range of memory in which a random job places its data, with guard bytes between."""

from __future__ import annotations

import numpy as np

ATOM = 16


class Refused(Exception):
    """A draw that breaks a documented rule; the generator draws again and counts it."""


class Arena:
    """Hands out addresses inside one range whose bytes start random, so that stray writes show.

    Parameters
    ----------
    rng
        source of the background.
    base, size
        the range, multiples of 4 KiB.
    """

    def __init__(self, rng: np.random.Generator, base: int, size: int) -> None:
        self.rng, self.base = rng, base
        self.data = rng.integers(0, 256, size, np.uint8)
        self._next = base + 0x100
        self.names: list[tuple[int, int, str]] = []
        """(address, size, what) of every allocation, for messages."""

    def alloc(self, size: int, name: str, align: int = ATOM) -> int:
        """Reserve `size` bytes behind a guard zone of random length and return their address.

        Raises
        ------
        Refused
            when the range is full.
        """
        guard = 64 + ATOM * int(self.rng.integers(0, 16))
        address = -(-(self._next + guard) // align) * align
        if address + size + 256 > self.base + self.data.size:
            raise Refused(f"{size} bytes for {name} do not fit the arena")
        self._next = address + size
        self.names.append((address, size, name))
        return address

    def put(self, address: int, values: np.ndarray) -> None:
        """Store an array's bytes."""
        raw = np.ascontiguousarray(values).view(np.uint8).ravel()
        at = address - self.base
        self.data[at : at + raw.size] = raw

    def place(self, values: np.ndarray, name: str) -> int:
        """Allocate room for an array, store it and return the address."""
        address = self.alloc(values.nbytes, name)
        self.put(address, values)
        return address

    def find(self, address: int) -> str:
        """Say what lies at an address."""
        for start, size, name in self.names:
            if start <= address < start + size:
                return f"{name} + {address - start:#x}"
        return "guard zone"
