"""Device memory that shows the pages of a file: engines and golden model alike."""

from __future__ import annotations

import mmap
import os

import numpy as np
import pytest

from cosim.engines.errors import MemoryAccessError
from cosim.engines.memory import DeviceMemory
from cosim.golden.task import Memory

PAGES = 3 * 4096


def make(kind: str):
    return Memory() if kind == "golden" else DeviceMemory(lambda first, pages, mapped: None)


@pytest.fixture
def fd():
    opened = os.memfd_create("test")
    os.ftruncate(opened, PAGES)
    yield opened
    os.close(opened)


@pytest.mark.parametrize("kind", ["golden", "engine"])
def test_pages_are_the_same_for_both_sides(kind: str, fd: int) -> None:
    memory = make(kind)
    memory.map(0x10_0000, PAGES, fd)
    mine = np.frombuffer(mmap.mmap(fd, PAGES), np.uint8)
    mine[5000] = 42
    assert memory.read(0x10_0000 + 5000, 1) == b"\x2a"
    memory.write(0x10_0000 + 5001, b"\x07")
    assert mine[5001] == 7
    memory.unmap(0x10_0000)
    memory.map(0x10_0000, PAGES)
    assert not memory.view(0x10_0000, PAGES).any(), "fresh pages"
    memory.write(0x10_0000, b"\xff" * PAGES)
    assert (mine[[0, 5000, 5001]] == [0, 42, 7]).all()
    memory.unmap(0x10_0000)
    memory.map(0x20_0000, PAGES, fd)
    memory.map(0xFFFF_D000, PAGES, fd)
    memory.write(0x20_0000, b"\x01")
    assert memory.read(0xFFFF_D000, 1) == b"\x01", "twice the same file"


def test_a_short_file_is_refused(fd: int) -> None:
    with pytest.raises(MemoryAccessError, match="fewer than"):
        make("engine").map(0, PAGES + 4096, fd)
    with pytest.raises((ValueError, OSError)):
        make("golden").map(0, PAGES + 4096, fd)


def test_ranges_of_an_engine() -> None:
    memory = make("engine")
    for start in (0x5000, 0x1000, 0x9000):
        memory.map(start, 0x2000)
    for start, size in (
        (0x0000, 0x2000),
        (0x6000, 0x1000),
        (0x4000, 0x8000),
        (0x9000, 0x1000),
        (0xA000, 0x1000),
    ):
        with pytest.raises(MemoryAccessError, match="overlaps"):
            memory.map(start, size)
    memory.map(0x3000, 0x2000)
    assert memory.view(0x1000, 0x2000).size == 0x2000
    for start, size in ((0x0FFF, 2), (0x2FFF, 2), (0x8FFF, 1), (0xFFFF_FFFF, 1), (0x1000, -1)):
        with pytest.raises(MemoryAccessError, match="not in one mapped range"):
            memory.view(start, size)
    memory.unmap(0x5000)
    with pytest.raises(MemoryAccessError):
        memory.view(0x5000, 1)
    with pytest.raises(MemoryAccessError, match="no range starts"):
        memory.unmap(0x5000)
    assert memory.ranges == {0x1000: 0x2000, 0x3000: 0x2000, 0x9000: 0x2000}
