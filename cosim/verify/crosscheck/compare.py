"""Comparison of two memory images."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from rkcosim.golden.task import Memory


class Image(Protocol):
    """Bytes at addresses: an engine's memory or the golden model's."""

    @property
    def ranges(self) -> dict[int, int]:
        """Return the size of every mapped range by its first address."""
        ...

    def view(self, iova: int, size: int, /) -> NDArray[np.uint8]:
        """Return the bytes of a part of one mapped range, uint8 of shape (size,)."""
        ...


def copy_memory(memory: Image) -> Memory:
    """Copy everything that is mapped into a memory of the golden model."""
    copy = Memory()
    for address, size in memory.ranges.items():
        copy.map(address, size)[:] = memory.view(address, size)
    return copy


@dataclass(frozen=True)
class Difference:
    """Result of a comparison: the first difference and the number of differing bytes."""

    address: int
    rtl: int
    golden: int
    count: int


def compare_images(rtl: Image, golden: Image, ranges: Iterable[tuple[int, int]]) -> Difference | None:
    """Compare two images over (address, size) ranges.

    Returns
    -------
    None if they are equal, else the first difference in address order with the count of differing bytes.
    """
    first: tuple[int, int, int] | None = None
    count = 0
    for address, size in sorted(ranges):
        left, right = rtl.view(address, size), golden.view(address, size)
        where = np.flatnonzero(left != right)
        count += where.size
        if first is None and where.size:
            at = int(where[0])
            first = (address + at, int(left[at]), int(right[at]))
    return None if first is None else Difference(*first, count)
