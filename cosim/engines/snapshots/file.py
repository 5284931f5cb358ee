"""The file of a snapshot: a header that says what it is, and blocks with lengths and checksums."""

from __future__ import annotations

import json
import os
import struct
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cosim.engines.errors import SnapshotError
from waves.whole_file import whole_file

MAGIC = b"RKCOSIM\x1a"
"""First bytes of every snapshot, of whatever version."""

VERSION = 1
"""Of the format.  A file of another version is refused."""

_HEAD = struct.Struct("<8sIII")  # magic, version, bytes of the header, checksum of the header
_LEVEL = 1  # of zlib: memory full of weights gains nothing from more


@dataclass
class SnapshotFile:
    """What a snapshot holds.

    Members
    -------
    header : names, numbers and texts (docs/snapshots.md lists them), as JSON has them.
    blocks : bytes by name.
    path : where it was read from, for messages.
    """

    header: dict[str, Any]
    blocks: dict[str, bytes] = field(default_factory=dict)
    path: Path = Path()

    def write(self, path: Path) -> int:
        """Write the file, whole or not at all; its size in bytes.

        Raises
        ------
        SnapshotError
            where it cannot be written.
        """
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
    def read(cls, path: Path, *, blocks: bool = True) -> SnapshotFile:
        """Read a file, or with `blocks` False its header alone.

        Raises
        ------
        SnapshotError
            for a file that is missing, no snapshot, of another version, cut off or changed; says which.
        """
        try:
            with path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                header = _header(path, file.read(_HEAD.size), file.read)
                found = cls(header, {}, path)
                table = header["blocks"]
                end = file.tell() + sum(entry["bytes"] for entry in table)
                if size != end:
                    raise SnapshotError(f"{path}: damaged snapshot: {size:,} bytes, it should be {end:,}")
                for entry in table if blocks else []:
                    found.blocks[entry["name"]] = _block(path, entry, file.read(entry["bytes"]))
        except OSError as error:
            raise SnapshotError(f"{path}: {error.strerror or error}") from error
        except (KeyError, TypeError) as error:
            raise SnapshotError(f"{path}: damaged snapshot: its header lacks {error}") from error
        return found


def _header(path: Path, head: bytes, read: Any) -> dict[str, Any]:
    if not head.startswith(MAGIC):
        raise SnapshotError(f"{path}: not a snapshot of rkcosim")
    if len(head) < _HEAD.size:
        raise SnapshotError(f"{path}: damaged snapshot: it ends after {len(head)} bytes")
    _, version, length, crc = _HEAD.unpack(head)
    if version != VERSION:
        raise SnapshotError(f"{path}: snapshot of format {version}, this version of rkcosim reads {VERSION}")
    text = read(length)
    if len(text) != length or zlib.crc32(text) != crc:
        raise SnapshotError(f"{path}: damaged snapshot: its header has another checksum")
    found: dict[str, Any] = json.loads(text)
    return found


def _block(path: Path, entry: dict[str, Any], data: bytes) -> bytes:
    if zlib.crc32(data) != entry["crc"]:
        raise SnapshotError(f"{path}: damaged snapshot: block '{entry['name']}' has another checksum")
    block = zlib.decompress(data)
    if len(block) != entry["size"]:
        raise SnapshotError(f"{path}: damaged snapshot: block '{entry['name']}' has another length")
    return block
