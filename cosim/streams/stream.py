"""A register-command stream with its memory image: one file that any engine can run."""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cosim.crosscheck.kick import Kick
from waves.whole_file import whole_file

SCHEMA_VERSION = 1
PAGE = 4096
PACKED_FROM = 1 << 13
"""Bytes of a region from which it is packed, if that halves it."""


class StreamError(ValueError):
    """A stream file cannot be used; the text names the file and the member that is wrong."""


@dataclass
class Region:
    """Bytes at an address of the device; `name` is for people."""

    name: str
    address: int
    data: npt.NDArray[np.uint8]


@dataclass
class Stream:
    """What a kick needs: memory as it is before, and what the host writes (H1.9)."""

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
        """Write the stream file as a whole; `more` are further members, as the format has them.

        Raises
        ------
        OSError
            if it cannot be written; what stood at `path` before is still there then.
        """
        data = {
            "schema_version": SCHEMA_VERSION,
            "core": self.core,
            "kick": self.kick.__dict__,
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
            if it is no stream file or a member is missing or out of range.
        FileNotFoundError
        """
        try:
            data = json.loads(path.read_text())
        except UnicodeDecodeError as error:
            raise StreamError(f"{path}: not a stream file (JSON): {error}") from error
        except json.JSONDecodeError as error:
            raise StreamError(f"{path}: not a stream file (JSON): {error}") from error
        if not isinstance(data, dict) or data.get("schema_version") != SCHEMA_VERSION:
            raise StreamError(f"{path}: schema_version must be {SCHEMA_VERSION}")
        try:
            kick = Kick(**{key: _number(value, f"kick.{key}") for key, value in data["kick"].items()})
            regions = [
                Region(
                    str(item.get("name", f"region {n}")),
                    _number(item["address"], f"regions[{n}].address"),
                    region_bytes(item),
                )
                for n, item in enumerate(data["regions"])
            ]
            core = _number(data.get("core", 0), "core")
            writes = [
                (_number(offset, f"writes[{n}]"), _number(value, f"writes[{n}]"))
                for n, (offset, value) in enumerate(data.get("writes", []))
            ]
        except KeyError as error:
            raise StreamError(f"{path}: member {error} is missing") from error
        except (TypeError, AttributeError, ValueError, binascii.Error) as error:
            raise StreamError(f"{path}: {error}") from error
        if not 0 <= core <= 2:
            raise StreamError(f"{path}: core must be 0, 1 or 2, not {core}")
        for region in regions:
            if not 0 <= region.address <= (1 << 32) - max(region.data.size, 1):
                raise StreamError(f"{path}: region '{region.name}' does not lie in 32 bits of address")
        return cls(kick, regions, core, writes)


def region_json(region: Region) -> dict[str, str]:
    """A region for JSON: `bytes` in base64, or for larger ones that pack well `zlib`, packed first."""
    data = region.data.tobytes()
    item = {"name": region.name, "address": f"0x{region.address:08X}"}
    if len(data) >= PACKED_FROM:
        packed = zlib.compress(data, 6)
        if 2 * len(packed) < len(data):
            return item | {"zlib": base64.b64encode(packed).decode(), "size": str(len(data))}
    return item | {"bytes": base64.b64encode(data).decode()}


def region_bytes(item: dict[str, Any]) -> npt.NDArray[np.uint8]:
    """Bytes of a region's JSON.

    Raises
    ------
    KeyError, ValueError
        for a member that is missing or damaged.
    """
    if "zlib" not in item:
        return np.frombuffer(base64.b64decode(item["bytes"], validate=True), np.uint8).copy()
    size = _number(item["size"], "size")
    if size > 1 << 32:
        raise ValueError(f"a region of {size} bytes is larger than the address space")
    unpack = zlib.decompressobj()
    try:
        data = unpack.decompress(base64.b64decode(item["zlib"], validate=True), size + 1)
    except zlib.error as error:
        raise ValueError(f"a region's packed bytes are damaged: {error}") from error
    if len(data) != size or not unpack.eof:
        raise ValueError(f"a region's packed bytes are not the {size} that it says")
    return np.frombuffer(data, np.uint8).copy()


def _number(value: Any, name: str) -> int:
    number = int(value, 0) if isinstance(value, str) else value
    if not isinstance(number, int) or number < 0:
        raise ValueError(f"{name} must be a number of at least 0, not {value!r}")
    return number


def _runs(pages: list[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for page in pages:
        if runs and sum(runs[-1]) == page:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((page, 1))
    return runs
