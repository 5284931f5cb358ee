"""The file of a snapshot: a header that describes it, and blocks with lengths and checksums."""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rkcosim.base.files import GivenFileError, identify, json_of, open_regular, read_given, said
from rkcosim.engines.protocol import SnapshotError
from rkcosim.waves.whole_file import whole_file

MAGIC = b"RKCOSIM\x1a"
"""First bytes of every snapshot, of any version."""

VERSION = 1
"""Version of the format. A file of another version is refused."""

MOST_HEADER = 1 << 26
"""Maximum number of bytes of a header."""

MOST_BYTES = 1 << 32
"""Maximum number of bytes of all unpacked blocks together: the size of the device's address space."""

_HEAD = struct.Struct("<8sIII")  # magic, version, bytes of the header, checksum of the header
_LEVEL = 1  # zlib level: memory full of weights does not shrink further at higher levels


@dataclass
class SnapshotFile:
    """The contents of a snapshot.

    Members
    -------
    header : names, numbers and texts (listed in docs/snapshots.md), as JSON values.
    blocks : bytes by name.
    path : the file that was read, for messages.
    """

    header: dict[str, Any]
    blocks: dict[str, bytes] = field(default_factory=dict)
    path: Path = Path()

    def write(self, path: Path) -> int:
        """Write the file atomically and return its size in bytes.

        Raises
        ------
        SnapshotError
            if it cannot be written, or is larger than `read` accepts.
        """
        total = sum(len(block) for block in self.blocks.values())
        if total > MOST_BYTES:
            raise SnapshotError(
                f"{path}: cannot be written: {total:,} bytes of state, at most {MOST_BYTES:,}"
            )
        packed = {name: zlib.compress(block, _LEVEL) for name, block in self.blocks.items()}
        table = [
            {"name": name, "size": len(self.blocks[name]), "bytes": len(data), "crc": zlib.crc32(data)}
            for name, data in packed.items()
        ]
        header = json.dumps({**self.header, "blocks": table}, separators=(",", ":")).encode()
        try:
            with whole_file(path) as part, part.open("wb") as file:
                file.write(_HEAD.pack(MAGIC, VERSION, len(header), zlib.crc32(header)))
                file.write(header)
                for data in packed.values():
                    file.write(data)
        except OSError as error:
            raise SnapshotError(f"{path}: cannot be written: {error.strerror or error}") from error
        return path.stat().st_size

    @classmethod
    def read(
        cls,
        path: Path,
        *,
        blocks: bool = True,
        check: Callable[[Path, dict[str, Any]], None] = lambda path, header: None,
    ) -> SnapshotFile:
        """Read a file, or with `blocks` False only its header.

        The contents of header and blocks are not checked; `contents.read_snapshot` does that.

        Parameters
        ----------
        check : called with path and header before any block is unpacked.

        Raises
        ------
        SnapshotError
            for a file that is missing, not a snapshot, of another version, truncated, changed or too large;
            the message says which.
        """
        try:
            with open_regular(path) as file:
                size = os.fstat(file.fileno()).st_size
                head = file.read(_HEAD.size)
                if not head.startswith(MAGIC):
                    raise _no_snapshot(path)
                header = _header(path, head, file.read)
                found = cls(header, {}, path)
                table = _table(path, header.get("blocks"))
                end = file.tell() + sum(entry["bytes"] for entry in table)
                if size != end:
                    raise SnapshotError(f"{path}: damaged snapshot: {size:,} bytes, it should be {end:,}")
                check(path, header)
                for entry in table if blocks else []:
                    found.blocks[entry["name"]] = _block(path, entry, file.read(entry["bytes"]))
        except OSError as error:
            raise SnapshotError(f"{path}: {error.strerror or error}") from error
        except GivenFileError as error:
            raise SnapshotError(str(error)) from error
        return found


def _no_snapshot(path: Path) -> SnapshotError:
    kind = said(path, identify(read_given(path)))
    return SnapshotError(f"{path}: not a snapshot of rkcosim, but {kind}")


def _header(path: Path, head: bytes, read: Any) -> dict[str, Any]:
    if len(head) < _HEAD.size:
        raise SnapshotError(f"{path}: damaged snapshot: it ends after {len(head)} bytes")
    _, version, length, crc = _HEAD.unpack(head)
    if version != VERSION:
        raise SnapshotError(f"{path}: snapshot of format {version}, this version of rkcosim reads {VERSION}")
    if length > MOST_HEADER:
        raise SnapshotError(f"{path}: damaged snapshot: a header of {length:,} bytes")
    text = read(length)
    if len(text) != length or zlib.crc32(text) != crc:
        raise SnapshotError(f"{path}: damaged snapshot: the checksum of its header is wrong")
    found = json_of(text, path, "a snapshot's header")
    if not isinstance(found, dict):
        raise SnapshotError(f"{path}: damaged snapshot: its header is not an object")
    return found


def _table(path: Path, table: Any) -> list[dict[str, Any]]:
    """Return the table of blocks: unique names, sizes in bytes, and a bounded total."""
    items: list[dict[str, Any]] = table if isinstance(table, list) else [{}]
    for entry in items:
        good = isinstance(entry, dict) and isinstance(entry.get("name"), str)
        if not good or any(type(entry.get(n)) is not int or entry[n] < 0 for n in ("size", "bytes", "crc")):
            raise SnapshotError(f"{path}: damaged snapshot: its header's 'blocks' is not a table of blocks")
    if len({entry["name"] for entry in items}) < len(items):
        raise SnapshotError(f"{path}: damaged snapshot: two of its blocks have the same name")
    total = sum(entry["size"] for entry in items)
    if total > MOST_BYTES:
        raise SnapshotError(
            f"{path}: damaged snapshot: its blocks unpack to {total:,} bytes, at most {MOST_BYTES:,}"
        )
    return items


def _block(path: Path, entry: dict[str, Any], data: bytes) -> bytes:
    if zlib.crc32(data) != entry["crc"]:
        raise SnapshotError(f"{path}: damaged snapshot: the checksum of block '{entry['name']}' is wrong")
    unpack = zlib.decompressobj()
    try:
        block = unpack.decompress(data, entry["size"] + 1)
    except zlib.error as error:
        raise SnapshotError(f"{path}: damaged snapshot: block '{entry['name']}': {error}") from error
    if len(block) != entry["size"] or not unpack.eof or unpack.unused_data:
        raise SnapshotError(f"{path}: damaged snapshot: block '{entry['name']}' has a wrong length")
    return block
