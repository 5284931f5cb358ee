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
