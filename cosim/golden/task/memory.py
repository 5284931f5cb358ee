"""Sparse memory of the task-level golden model: mapped ranges of bytes with strict address checks."""

from __future__ import annotations

import bisect
import mmap
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rkcosim.golden.task.errors import MemoryFault
from rkcosim.spec.types import ATOM

Bytes = NDArray[np.uint8]


class Memory:
    """Byte-addressed DRAM that consists of mapped ranges; every access between them faults.

    `map`, `read`, `write` and `view` are the protocol that engines share; the other methods serve
    the golden model, which moves thousands of 16-byte atoms at a time.
    """

    def __init__(self) -> None:
        # Both lists are replaced together, so that another thread never sees one of an earlier state.
        self._map: tuple[list[int], list[Bytes]] = ([], [])

    def map(self, base: int, size: int, fd: int | None = None) -> Bytes:
        """Map `size` zeroed bytes at `base` and return them.

        Parameters
        ----------
        fd
            A file whose first `size` bytes are used instead, shared with all other processes that map it.
            The descriptor may be closed afterwards, but the file must not shrink.

        Raises
        ------
        ValueError
            For an empty range, one that exceeds 40 bits, one that is not aligned to 16 bytes, or an overlap.
        OSError
            For a file that cannot be mapped.
        """
        if size <= 0 or base < 0 or base + size > 1 << 40:
            raise ValueError(f"cannot map {size} bytes at {base:#x}")
        if base % ATOM or size % ATOM:
            raise ValueError(f"range {base:#x} of {size:#x} bytes is not a multiple of {ATOM} bytes")
        bases, contents = self._map
        at = bisect.bisect_right(bases, base)
        if at and bases[at - 1] + contents[at - 1].size > base:
            raise ValueError(f"range at {base:#x} overlaps the one at {bases[at - 1]:#x}")
        if at < len(bases) and base + size > bases[at]:
            raise ValueError(f"range at {base:#x} overlaps the one at {bases[at]:#x}")
        data = np.zeros(size, np.uint8) if fd is None else np.frombuffer(mmap.mmap(fd, size), np.uint8)
        self._map = [*bases[:at], base, *bases[at:]], [*contents[:at], data, *contents[at:]]
        return data

    def share(self, base: int, data: Bytes) -> None:
        """Map bytes that belong to somebody else, uint8 [size]; they are read and written in place.

        Raises
        ------
        ValueError
            As `map`.
        """
        self.map(base, data.size)
        bases, contents = self._map
        at = bases.index(base)
        self._map = bases, [*contents[:at], data, *contents[at + 1 :]]

    def unmap(self, base: int) -> None:
        """Remove the range that starts at `base`.

        Raises
        ------
        KeyError
            If no range starts there.
        """
        bases, contents = self._map
        if base not in bases:
            raise KeyError(f"no mapped range starts at {base:#x}")
        at = bases.index(base)
        self._map = bases[:at] + bases[at + 1 :], contents[:at] + contents[at + 1 :]

    def regions(self) -> list[tuple[int, int]]:
        """Return (base, size) of every mapped range, in address order."""
        return [(base, data.size) for base, data in zip(*self._map, strict=True)]

    @property
    def ranges(self) -> dict[int, int]:
        """Mapped ranges, first address to size in bytes."""
        return dict(self.regions())

    def copy(self) -> Memory:
        """Return an independent copy with the same ranges and bytes."""
        twin = Memory()
        bases, contents = self._map
        twin._map = list(bases), [data.copy() for data in contents]
        return twin

    def view(self, address: int, size: int) -> Bytes:
        """Return the bytes in place, uint8 [size].

        Raises
        ------
        MemoryFault
            If a byte is not mapped or the range extends over several mappings.
        """
        bases, contents = self._map
        at = bisect.bisect_right(bases, address) - 1
        if at < 0 or address + size > bases[at] + contents[at].size:
            raise MemoryFault(address, size, "access")
        start = address - bases[at]
        return contents[at][start : start + size]

    def read(self, address: int, size: int) -> bytes:
        """Return a copy of `size` bytes (errors as `view`)."""
        return self.view(address, size).tobytes()

    def write(self, address: int, data: bytes | bytearray | memoryview | Bytes) -> None:
        """Write bytes (errors as `view`)."""
        raw = (
            np.frombuffer(data, np.uint8) if not isinstance(data, np.ndarray) else data.view(np.uint8).ravel()
        )
        self.view(address, raw.size)[:] = raw

    def gather(self, addresses: NDArray[np.int64]) -> Bytes:
        """Read one atom at each address: int64 [n] -> uint8 [n, 16].

        Raises
        ------
        MemoryFault
            If an address is not mapped; the error has the first such address.
        """
        out = np.empty((addresses.size, ATOM), np.uint8)
        for data, select, places in self._split(addresses, "read"):
            out[select] = data.reshape(-1, ATOM)[places]
        return out

    def scatter(self, addresses: NDArray[np.int64], atoms: Bytes) -> None:
        """Write one atom at each address: int64 [n], uint8 [n, 16] (errors as `gather`)."""
        for data, select, places in self._split(addresses, "write"):
            data.reshape(-1, ATOM)[places] = atoms[select]

    def _split(
        self, addresses: NDArray[np.int64], what: str
    ) -> Iterator[tuple[Bytes, Any, NDArray[np.int64]]]:
        """Group atoms by mapped range: (bytes of the range, mask of the atoms, their places in the range).

        The low four bits of an address are ignored.
        """
        addresses = addresses & ~np.int64(ATOM - 1)
        firsts, contents = self._map
        if addresses.size:
            low, high = int(addresses.min()), int(addresses.max())
            at = bisect.bisect_right(firsts, low) - 1
            if at >= 0 and high + ATOM <= firsts[at] + contents[at].size:  # usually all
                yield contents[at], slice(None), (addresses - firsts[at]) // ATOM
                return
        bases = np.asarray(firsts, np.int64)
        region = np.searchsorted(bases, addresses, side="right") - 1
        sizes = np.asarray([data.size for data in contents], np.int64)
        clipped = np.maximum(region, 0)
        bad = (region < 0) if bases.size else np.ones(addresses.shape, bool)
        if bases.size:
            bad |= addresses + ATOM > bases[clipped] + sizes[clipped]
        if bad.any():
            raise MemoryFault(int(addresses[np.argmax(bad)]), ATOM, what)
        for at in np.unique(region):
            select = np.flatnonzero(region == at)
            yield contents[at], select, (addresses[select] - bases[at]) // ATOM


def atom_ranges(addresses: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Join atom addresses into (first byte, number of bytes) ranges, in address order."""
    if not addresses.size:
        return []
    steps = np.diff(addresses)
    unique = addresses if (steps > 0).all() else np.unique(addresses)  # they are usually sorted already
    cuts = np.flatnonzero(np.diff(unique) != ATOM)
    starts = np.concatenate(([0], cuts + 1))
    ends = np.concatenate((cuts, [unique.size - 1]))
    return [(int(unique[a]), int(unique[b] - unique[a]) + ATOM) for a, b in zip(starts, ends, strict=True)]
