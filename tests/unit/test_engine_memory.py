"""Numpy arrays in device memory: the same calls, results and errors on the memories of all engines."""

from __future__ import annotations

import numpy as np
import pytest

from rkcosim.engines import DeviceMemory, MemoryAccessError
from rkcosim.engines.arrays import ArrayMemory
from rkcosim.engines.golden import GoldenMemory


@pytest.fixture(params=["device", "golden"])
def memory(request: pytest.FixtureRequest) -> ArrayMemory:
    """A memory of each kind: of the engines with cycles, and of the golden model."""
    return DeviceMemory(lambda page, pages, mapped: None) if request.param == "device" else GoldenMemory()


def test_a_view_has_shape_and_type_and_shares_the_bytes(memory):
    memory.map(0x10000, 100)
    assert memory.ranges == {0x10000: 0x1000}
    words = memory.view(0x10010, (2, 3), np.int16)
    words[...] = np.arange(6).reshape(2, 3)
    assert memory.read(0x10010, 12) == np.arange(6, dtype="<i2").tobytes()
    assert memory.view(0x10010, 12).shape == (12,)
    assert memory.view(0x10010, 3, "<u4").tolist() == [0x10000, 0x30002, 0x50004]
    assert memory.view(0x10012, (), np.int16) == 1
    assert memory.view(0x10000, np.int64(4)).shape == (4,)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (
            (0x10FF0, 17),
            MemoryAccessError,
            r"0x11 bytes at 0x10ff0 are not in one mapped range \(0x10000..0x11000",
        ),
        ((0x10FF0, (3, 3), np.int16), MemoryAccessError, "0x12 bytes at 0x10ff0"),
        ((0xFFF0, 1), MemoryAccessError, "0x1 bytes at 0xfff0"),
        ((0x10000, (-1, 2)), ValueError, "negative dimension"),
        ((0x10000, -1), ValueError, "negative dimension"),
        ((0x10000, 2, object), ValueError, "fixed size"),
    ],
)
def test_views_outside_are_refused(memory, arguments, error, message):
    memory.map(0x10000, 0x1000)
    memory.map(0x20000, 0x1000)
    with pytest.raises(error, match=message):
        memory.view(*arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0x10010, 16), "0x10010 is not a multiple of 0x1000"),
        ((0x11000, 0), "do not fit"),
        ((0x0F000, 0x2000), "overlaps the range 0x10000..0x11000"),
        ((0xFFFFF000, 0x2000), "do not fit"),
        ((-4096, 16), "is not a multiple"),
    ],
)
def test_wrong_mappings_are_refused(memory, arguments, message):
    memory.map(0x10000, 0x1000)
    with pytest.raises(MemoryAccessError, match=message):
        memory.map(*arguments)
    assert memory.ranges == {0x10000: 0x1000}


def test_allocations_are_apart_and_can_be_freed(memory):
    one, two = memory.alloc((2, 16), np.int8), memory.place(np.arange(5000, dtype=np.float32))
    assert two.address == one.address + 0x2000 and memory.ranges[two.address] == 0x5000
    assert (memory.view(two.address, 5000, np.float32) == np.arange(5000)).all()
    assert (np.asarray(two) == np.arange(5000)).all() and np.asarray(two, np.int64).dtype == np.int64
    one.array[1, 3] = -7
    assert memory.read(one.address + 19, 1) == b"\xf9"
    again = memory.alloc(16, at=0x10000)
    assert again.address == 0x10000
    with again:
        assert memory.view(0x10000, 16).tolist() == [0] * 16
    assert 0x10000 not in memory.ranges
    one.free()
    one.free()
    assert repr(one).endswith("freed>") and memory.alloc(4096).address == one.address
    with pytest.raises(ValueError, match="has no elements"):
        memory.alloc((4, 0))


def test_a_full_space_is_named(memory):
    memory.map(0x5000_0000, 0x1000)
    with pytest.raises(MemoryAccessError, match="no 0xb8000000 free bytes"):
        memory.free_address(0xB800_0000)


def test_unmapping_what_is_not_mapped_is_refused(memory):
    with pytest.raises(MemoryAccessError, match="no range starts at 0x10000"):
        memory.unmap(0x10000)
