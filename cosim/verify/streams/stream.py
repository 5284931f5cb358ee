"""A register-command stream with its memory image: one file that any engine can run."""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.base import Error
from rkcosim.base.files import UNKNOWN, GivenFileError, identify, json_of, kind_of_members, read_given, wrong
from rkcosim.driver.core_port import Kick
from rkcosim.spec.regs import registers
from rkcosim.waves.whole_file import whole_file

SCHEMA_VERSION = 1
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
class Stream:
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
        for start, count in _runs(sorted(pages)):
            memory.map(start * PAGE, count * PAGE)
        for region in self.regions:
            memory.write(region.address, region.data.tobytes())

    def save(self, path: Path, **more: Any) -> None:
        """Write the stream file atomically; `more` are further members of the format.

        Raises
        ------
        StreamError
            for more memory than `load` accepts.
        OSError
            if it cannot be written; an earlier file at `path` is unchanged then.
        """
        size = sum(region.data.size for region in self.regions)
        if size > MOST_BYTES:
            raise StreamError(f"{path}: {size:,} bytes of memory are too many, at most {MOST_BYTES:,}")
        data = {
            "schema_version": SCHEMA_VERSION,
            "core": self.core,
            "kick": self.kick.settings,
            "writes": [[f"0x{offset:04X}", f"0x{value:08X}"] for offset, value in self.writes],
            "regions": [region_json(region) for region in self.regions],
        }
        with whole_file(path) as part:
            part.write_text(json.dumps(data | more, indent=1) + "\n")

    @classmethod
    def load(cls, path: Path) -> Stream:
        """Read a stream file.

        Raises
        ------
        StreamError
            if it is not a stream file, or a member is missing or out of range.
        FileNotFoundError
            if it does not exist.
        """
        try:
            text = read_given(path)
        except GivenFileError as error:
            raise StreamError(str(error)) from error
        try:
            data = json_of(text, path, "a stream file")
        except GivenFileError as error:
            if identify(text) in ("text file", UNKNOWN):
                raise StreamError(str(error)) from error
            raise StreamError(str(wrong(path, text, "a stream file"))) from error
        if not isinstance(data, dict) or ("kick" not in data and kind_of_members(set(data)) != "stream file"):
            raise StreamError(str(wrong(path, text, "a stream file")))
        if data.get("schema_version") != SCHEMA_VERSION:
            raise StreamError(f"{path}: schema_version must be {SCHEMA_VERSION}")
        try:
            kick = Kick(**{key: _word(value, f"kick.{key}") for key, value in data["kick"].items()})
            regions = regions_of(data["regions"], "regions")
            core = _number(data.get("core", 0), "core")
            writes = [
                (_word(offset, f"writes[{n}]"), _word(value, f"writes[{n}]"))
                for n, (offset, value) in enumerate(data.get("writes", []))
            ]
        except KeyError as error:
            raise StreamError(f"{path}: member {error} is missing") from error
        except (TypeError, AttributeError, ValueError, binascii.Error) as error:
            raise StreamError(f"{path}: {error}") from error
        if kick.tasks > MOST_TASKS:
            raise StreamError(f"{path}: kick.tasks must be at most {MOST_TASKS}, not {kick.tasks}")
        if not 0 <= core <= 2:
            raise StreamError(f"{path}: core must be 0, 1 or 2, not {core}")
        for region in regions:
            if not 0 <= region.address <= (1 << 32) - max(region.data.size, 1):
                raise StreamError(f"{path}: region '{region.name}' exceeds 32-bit addresses")
        for one, other in _contradictions(regions):
            raise StreamError(
                f"{path}: regions '{one.name}' and '{other.name}' give address "
                f"0x{max(one.address, other.address):08X} and those after it different bytes"
            )
        return cls(kick, regions, core, writes)


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
        address = _number(item["address"], f"{where}[{n}].address")
        regions.append(Region(str(item.get("name", f"region {n}")), address, _region_bytes(item, left)))
        left -= regions[-1].data.size
    return regions


def _region_bytes(item: dict[str, Any], most: int) -> npt.NDArray[np.uint8]:
    """Return at most `most` bytes of a region's JSON; raises KeyError and ValueError."""
    packed = "zlib" in item
    size = _number(item["size"], "size") if packed else len(item["bytes"]) // 4 * 3
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


def _number(value: Any, name: str) -> int:
    number = int(value, 0) if isinstance(value, str) else value
    if not isinstance(number, int) or number < 0:
        raise ValueError(f"{name} must be a number of at least 0, not {value!r}")
    return number


def _word(value: Any, name: str) -> int:
    number = _number(value, name)
    if number >> 32:
        raise ValueError(f"{name} must fit 32 bits, not 0x{number:X}")
    return number


def _contradictions(regions: list[Region]) -> Iterator[tuple[Region, Region]]:
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


def _runs(pages: list[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for page in pages:
        if runs and sum(runs[-1]) == page:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((page, 1))
    return runs
