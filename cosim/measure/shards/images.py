"""Memory images: a base that is sent once, and the pages that differ from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

PAGE = 4096
"""Granularity of an image and of mappings, in bytes."""

Pages = dict[int, bytes]
"""Address of a page -> its `PAGE` bytes."""


@dataclass(frozen=True)
class Image:
    """A whole memory: mapped ranges (address -> size in bytes) and the pages that are not all zero."""

    ranges: Mapping[int, int]
    pages: Pages

    @property
    def size(self) -> int:
        """Number of bytes that are stored."""
        return PAGE * len(self.pages)


@dataclass(frozen=True)
class Wrong:
    """First byte in which two memories differ, and number of differing bytes."""

    address: int
    ours: int
    wanted: int
    count: int


class Tracker:
    """Finds the pages of a memory that change from one border to the next.

    Parameters
    ----------
    memory : memory with `ranges` and `view`; its mappings must not change later.

    Members
    -------
    base : the initial contents of the memory.
    """

    def __init__(self, memory: Any) -> None:
        self._memory = memory
        self._last = {start: memory.view(start, size).copy() for start, size in memory.ranges.items()}
        pages: Pages = {}
        for start, data in self._last.items():
            lines = data.reshape(-1, PAGE)
            _put(pages, start, lines, np.flatnonzero(lines.any(axis=1)))
        self.base = Image(dict(memory.ranges), pages)
        self._ever: set[int] = set()

    def take(self) -> Pages:
        """Return the pages that have changed since the last call, or since the beginning.

        Raises
        ------
        RuntimeError
            If mappings have changed.
        """
        if self._memory.ranges != self.base.ranges:
            raise RuntimeError("memory was mapped or unmapped while its changes were tracked")
        pages: Pages = {}
        for start, last in self._last.items():
            now = self._memory.view(start, last.size).reshape(-1, PAGE)
            before = last.reshape(-1, PAGE)
            # Compare eight bytes at a time: images are compared often and are mostly equal.
            changed = np.flatnonzero((now.view(np.uint64) != before.view(np.uint64)).any(axis=1))
            _put(pages, start, now, changed)
            before[changed] = now[changed]
        self._ever |= pages.keys()
        return pages

    def since_base(self) -> Pages:
        """Return all pages that have ever changed, with their contents at the last border."""
        pages: Pages = {}
        for start, data in self._last.items():
            numbers = [(page - start) // PAGE for page in self._ever if start <= page < start + data.size]
            _put(pages, start, data.reshape(-1, PAGE), np.array(sorted(numbers), np.int64))
        return pages


def _put(pages: Pages, start: int, lines: npt.NDArray[np.uint8], numbers: npt.NDArray[np.int64]) -> None:
    for number in numbers:
        pages[start + PAGE * int(number)] = lines[number].tobytes()


def merged(changes: Iterable[Pages]) -> Pages:
    """Return the pages after several changes, applied one after the other."""
    pages: Pages = {}
    for change in changes:
        pages.update(change)
    return pages


class Expected:
    """The expected contents of a memory: an image to which changes are applied.

    Parameters
    ----------
    image : the initial contents.
    """

    def __init__(self, image: Image) -> None:
        self._data = {start: np.zeros(size, np.uint8) for start, size in image.ranges.items()}
        self.apply(image.pages)

    def apply(self, pages: Pages) -> None:
        """Apply changed pages."""
        for address, data in pages.items():
            start, line = self._range(address)
            line[address - start : address - start + PAGE] = np.frombuffer(data, np.uint8)

    def map_into(self, memory: Any) -> None:
        """Map the ranges in a memory and fill them."""
        for start, data in self._data.items():
            memory.map(start, data.size)
        self.fill(memory)

    def fill(self, memory: Any) -> None:
        """Write all contents to a memory."""
        for start, data in self._data.items():
            memory.view(start, data.size)[:] = data

    def difference(self, memory: Any) -> Wrong | None:
        """Return the first byte in which a memory differs; all ranges are compared."""
        first: tuple[int, int, int] | None = None
        count = 0
        for start, data in sorted(self._data.items()):
            ours = memory.view(start, data.size)
            if np.array_equal(ours, data):
                continue
            places = np.flatnonzero(ours != data)
            count += places.size
            if first is None:
                at = int(places[0])
                first = start + at, int(ours[at]), int(data[at])
        return Wrong(*first, count) if first is not None else None

    def _range(self, address: int) -> tuple[int, npt.NDArray[np.uint8]]:
        for start, data in self._data.items():
            if start <= address < start + data.size:
                return start, data
        raise KeyError(f"page {address:#x} is in no range")
