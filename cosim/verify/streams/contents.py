"""The contents of a stream file: regions of memory, what the host writes, and the expected result."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.base import Error
from rkcosim.driver.core_port import Kick
from rkcosim.spec.regs import registers

PAGE = 4096
MOST_BYTES = 1 << 30
"""Maximum number of bytes of all regions of a stream together."""

MOST_TASKS = (1 << registers()["PC"]["TASK_CON"].fields["TASK_NUMBER"].width) - 1
"""Maximum number of tasks of a kick: the capacity of its register."""

PACKED_FROM = 1 << 13
"""Size in bytes from which a region is compressed, if that halves it."""


class StreamError(Error, ValueError):
    """A stream file cannot be used; the message names the file and the invalid member."""


@dataclass
class Region:
    """Bytes at an address of the device; `name` is for messages."""

    name: str
    address: int
    data: npt.NDArray[np.uint8]


@dataclass
class Expected:
    """What must be found after a run: bytes at addresses, and registers by `BLOCK.NAME`."""

    outputs: list[Region] = field(default_factory=list)
    registers: dict[str, int] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return the member `expected` of a stream file."""
        return {
            "outputs": [region_json(region) for region in self.outputs],
            "registers": {name: f"0x{value:08X}" for name, value in self.registers.items()},
        }


@dataclass
class StreamContents:
    """What a kick needs: the memory before it, and the host's writes [HW 10.3]."""

    kick: Kick
    regions: list[Region] = field(default_factory=list)
    core: int = 0
    writes: list[tuple[int, int]] = field(default_factory=list)
    """(offset, value) that the host writes before the start, or in slave mode instead of it."""

    def load_into(self, memory: Any) -> None:
        """Map and fill the regions in a device's memory (whole pages around each)."""
        pages: set[int] = set()
        for region in self.regions:
            first = region.address // PAGE
            last = (region.address + max(region.data.size, 1) - 1) // PAGE
            pages |= set(range(first, last + 1))
        for start, count in runs_of(sorted(pages)):
            memory.map(start * PAGE, count * PAGE)
        for region in self.regions:
            memory.write(region.address, region.data.tobytes())


def region_json(region: Region) -> dict[str, str]:
    """Return a region for JSON: `bytes` in base64, or `zlib` for larger ones that compress well."""
    data = region.data.tobytes()
    item = {"name": region.name, "address": f"0x{region.address:08X}"}
    if len(data) >= PACKED_FROM:
        packed = zlib.compress(data, 6)
        if 2 * len(packed) < len(data):
            return item | {"zlib": base64.b64encode(packed).decode(), "size": str(len(data))}
    return item | {"bytes": base64.b64encode(data).decode()}


def regions_of(items: Any, where: str) -> list[Region]:
    """Return regions from their JSON, at most `MOST_BYTES` together; `where` names the member for messages.

    Raises
    ------
    KeyError, TypeError, AttributeError, ValueError
        for a member that is missing, damaged or out of range.
    """
    regions: list[Region] = []
    left = MOST_BYTES
    for n, item in enumerate(items):
        address = number_of(item["address"], f"{where}[{n}].address")
        regions.append(Region(str(item.get("name", f"region {n}")), address, _region_bytes(item, left)))
        left -= regions[-1].data.size
    return regions


def _region_bytes(item: dict[str, Any], most: int) -> npt.NDArray[np.uint8]:
    """Return at most `most` bytes of a region's JSON; raises KeyError and ValueError."""
    packed = "zlib" in item
    size = number_of(item["size"], "size") if packed else len(item["bytes"]) // 4 * 3
    if size > most + (0 if packed else 2):
        raise ValueError(f"all regions together may have {MOST_BYTES:,} bytes; one more has {size:,}")
    if not packed:
        return np.frombuffer(base64.b64decode(item["bytes"], validate=True), np.uint8).copy()
    unpack = zlib.decompressobj()
    try:
        data = unpack.decompress(base64.b64decode(item["zlib"], validate=True), size + 1)
    except zlib.error as error:
        raise ValueError(f"a region's packed bytes are damaged: {error}") from error
    if len(data) != size or not unpack.eof:
        raise ValueError(f"a region's packed bytes are not the {size} that it declares")
    return np.frombuffer(data, np.uint8).copy()


def number_of(value: Any, name: str) -> int:
    number = int(value, 0) if isinstance(value, str) else value
    if not isinstance(number, int) or number < 0:
        raise ValueError(f"{name} must be a number of at least 0, not {value!r}")
    return number


def word_of(value: Any, name: str) -> int:
    number = number_of(value, name)
    if number >> 32:
        raise ValueError(f"{name} must fit 32 bits, not 0x{number:X}")
    return number


def contradictions(regions: list[Region]) -> Iterator[tuple[Region, Region]]:
    """Yield pairs of regions that have bytes in common, and not the same ones."""
    reaching: list[Region] = []
    for region in sorted(regions, key=lambda region: region.address):
        reaching = [one for one in reaching if one.address + one.data.size > region.address]
        for one in reaching:
            place = region.address - one.address
            common = one.data[place : place + region.data.size]
            if not np.array_equal(common, region.data[: common.size]):
                yield one, region
        reaching.append(region)


def runs_of(pages: list[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for page in pages:
        if runs and sum(runs[-1]) == page:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((page, 1))
    return runs


def expected_of(data: dict[str, Any], path: Path) -> Expected | None:
    """Return the expected result of a stream file's JSON, None if it has none; raises StreamError."""
    try:
        found = data.get("expected")
        if found is None:
            return None
        outputs = regions_of(found.get("outputs", []), "expected.outputs")
        return Expected(outputs, {str(k): int(v, 0) for k, v in found.get("registers", {}).items()})
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StreamError(f"{path}: member 'expected' is damaged: {error}") from error
