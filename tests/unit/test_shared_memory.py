"""Device memory that maps the pages of a file: engines and golden model give the same results."""

from __future__ import annotations

import gc
import mmap
import os
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from rkcosim.engines.memory import PAGE, SPACE, DeviceMemory
from rkcosim.engines.protocol import MemoryAccessError
from rkcosim.golden.task import Memory

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
    for start, size in ((0x0FFF, 2), (0x2FFF, 2), (0x8FFF, 1), (0xFFFF_FFFF, 1)):
        with pytest.raises(MemoryAccessError, match="not in one mapped range"):
            memory.view(start, size)
    with pytest.raises(ValueError, match="negative dimension"):
        memory.view(0x1000, -1)
    memory.unmap(0x5000)
    with pytest.raises(MemoryAccessError):
        memory.view(0x5000, 1)
    with pytest.raises(MemoryAccessError, match="no range starts"):
        memory.unmap(0x5000)
    assert memory.ranges == {0x1000: 0x2000, 0x3000: 0x2000, 0x9000: 0x2000}


def address_space() -> int:
    """Bytes of this process's address space."""
    (line,) = [
        text
        for text in Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
        if "VmSize" in text
    ]
    return int(line.split()[1]) << 10


@pytest.mark.skipif(sys.platform != "linux", reason="/proc/self/status")
def test_close_gives_the_address_space_back() -> None:
    gc.collect()
    gc.disable()  # the memory and its owner know each other
    try:
        before = address_space()
        for _ in range(30):
            owner: list[DeviceMemory] = []
            memory = DeviceMemory(lambda *_, owner=owner: None)
            owner.append(memory)
            assert address_space() >= before + SPACE
            memory.map(PAGE, 2 * PAGE)
            memory.write(PAGE + 5, b"abc")
            memory.close()
            assert address_space() < before + (1 << 28)
    finally:
        gc.enable()


def test_views_outlive_the_memory() -> None:
    memory = DeviceMemory(lambda *_: None)
    memory.map(PAGE, 2 * PAGE)
    memory.write(PAGE, b"abc")
    view = memory.view(PAGE, 3)
    part = view[1:]
    memory.close()
    memory.close()
    assert view.tobytes() == b"abc"
    del view
    gc.collect()
    part[0] = 7
    assert part.tolist() == [7, ord("c")]
    for use in (
        lambda: memory.view(PAGE, 3),
        lambda: memory.read(PAGE, 3),
        lambda: memory.write(PAGE, b"x"),
        lambda: memory.map(1 << 20, PAGE),
    ):
        with pytest.raises(MemoryAccessError, match="its engine is closed"):
            use()
    memory.unmap(PAGE)
    assert memory.ranges == {}


@pytest.mark.parametrize("kind", ["golden", "engine"])
def test_a_thread_never_sees_memory_of_another_range(kind: str) -> None:
    """While other programs of a server map and unmap memory, a thread copies to and from its own."""
    memory, own, end = make(kind), 0x10_0000, time.monotonic() + 0.5
    memory.map(own, PAGES)
    memory.view(own, PAGES)[:] = 7
    for number in range(50):
        memory.map(0x20_0000 + number * 2 * PAGES, PAGES)

    def others() -> None:
        while time.monotonic() < end:
            for place in range(PAGES, 20 * PAGES, PAGES):
                memory.map(place, PAGES)
                memory.unmap(place)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread = threading.Thread(target=others)
    try:
        thread.start()
        while thread.is_alive():
            assert memory.view(own, PAGES)[0] == 7
    finally:
        thread.join()
        sys.setswitchinterval(before)
