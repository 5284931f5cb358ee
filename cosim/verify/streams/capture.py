"""A capture of a real board as files with a manifest, converted to a stream (docs/capture.md)."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rkcosim.base import Error
from rkcosim.base.files import (
    UNKNOWN,
    GivenFileError,
    identify,
    json_of,
    open_regular,
    read_given,
    read_json,
    wrong,
)
from rkcosim.driver.core_port import Kick
from rkcosim.regcmd import amount_code
from rkcosim.regcmd.tasks import TAIL_WORDS
from rkcosim.spec.regs import registers
from rkcosim.verify.streams.contents import (
    MOST_BYTES,
    MOST_TASKS,
    Expected,
    Region,
    StreamError,
    expected_of,
)
from rkcosim.verify.streams.stream import Stream

SCHEMA_VERSION = 1
LAST = 1 << 32

MOST_MANIFEST = 1 << 24
"""Maximum number of bytes of a manifest."""


class CaptureError(Error, ValueError):
    """A capture cannot be used; the message names the manifest and the invalid member."""


def import_capture(path: Path) -> tuple[Stream, Expected]:
    """Read a manifest and its files.

    Raises
    ------
    CaptureError
        for a manifest that is damaged or incomplete, addresses that overlap, and a file that is missing, lies
        outside of the manifest's folder, is not a regular file or is too large.
    """
    manifest = _Manifest(path)
    memory = [manifest.region(item, f"memory[{n}]") for n, item in enumerate(manifest.list("memory"))]
    outputs = [manifest.region(item, f"outputs[{n}]") for n, item in enumerate(manifest.list("outputs", []))]
    _check_overlap(path, memory)
    for output in outputs:
        if not any(_inside(output, region) for region in memory):
            memory.append(Region(output.name, output.address, np.zeros_like(output.data)))
    _check_overlap(path, memory)
    kick = manifest.kick()
    if not any(region.address <= kick.base < region.address + region.data.size for region in memory):
        raise CaptureError(f"{path}: the first task's commands at 0x{kick.base:X} are in no memory file")
    values = {}
    for name, value in manifest.object("registers").items():
        block, _, register = name.partition(".")
        try:
            values[registers()[block][register].path] = manifest.number(value, f"registers.{name}")
        except KeyError as error:
            raise CaptureError(f"{path}: registers.{name}: no such register") from error
    stream = Stream(kick, memory, manifest.number(manifest.data.get("core", 0), "core"))
    if stream.core > 2:
        raise CaptureError(f"{path}: core must be 0, 1 or 2, not {stream.core}")
    stream.expected, stream.name = Expected(outputs, values), path.name
    return stream, stream.expected


def save(stream: Stream, expected: Expected, path: Path) -> None:
    """Write a stream file with its expected result, atomically.

    Raises
    ------
    StreamError
        for more memory than a stream may have.
    OSError
        if it cannot be written; an earlier file at `path` is unchanged then.
    """
    stream.save(path, expected=expected.as_json())


def load_expected(path: Path) -> Expected | None:
    """Return the expected result in a stream file, None if it has none.

    Raises
    ------
    StreamError
        if the member is damaged.
    """
    try:
        data = read_json(path, "a stream file")
    except ValueError as error:
        raise StreamError(f"{path}: member 'expected' is damaged: {error}") from error
    return expected_of(data, path)


class _Manifest:
    """A manifest's members, with a clear error for each."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._total = 0
        what = "a capture's manifest"
        try:
            text = read_given(path)
        except GivenFileError as error:
            raise CaptureError(str(error)) from error
        kind = identify(text)
        if kind not in ("capture's manifest", "JSON file of another kind", "text file", UNKNOWN):
            raise CaptureError(str(wrong(path, text, what)))
        if len(text) > MOST_MANIFEST:
            raise CaptureError(
                f"{path}: {what} has at most {MOST_MANIFEST:,} bytes, this one has {len(text):,}"
            )
        try:
            self.data = json_of(text, path, what)
        except GivenFileError as error:
            raise CaptureError(str(error)) from error
        if not isinstance(self.data, dict) or self.data.get("schema_version") != SCHEMA_VERSION:
            raise CaptureError(f"{path}: schema_version must be {SCHEMA_VERSION}")

    def list(self, name: str, default: Any = None) -> list[Any]:
        value = self.data.get(name, default)
        if not isinstance(value, list):
            raise CaptureError(f"{self.path}: member '{name}' must be a list")
        return value

    def object(self, name: str) -> Mapping[str, Any]:
        value = self.data.get(name, {})
        if not isinstance(value, dict):
            raise CaptureError(f"{self.path}: member '{name}' must be an object")
        return value

    def number(self, value: Any, name: str) -> int:
        try:
            result = int(value, 0) if isinstance(value, str) else value
        except ValueError:
            result = None
        if not isinstance(result, int) or isinstance(result, bool) or not 0 <= result < LAST:
            raise CaptureError(f"{self.path}: {name} must be a number of 32 bits, not {value!r}")
        return result

    def file(self, name: Any, where: str, offset: int = 0, size: int | None = None) -> bytes:
        """Return at most `size` bytes (None: all) of a file in the manifest's folder from `offset` on."""
        if not isinstance(name, str):
            raise CaptureError(f"{self.path}: {where}.file must be a file name")
        said = f"{self.path}: {where}.file '{_printable(name)}'"
        try:
            with open_regular(self._inside_folder(name, said)) as file:
                there = max(os.fstat(file.fileno()).st_size - offset, 0)
                wanted = there if size is None else min(size, there)
                if wanted > MOST_BYTES:
                    raise CaptureError(
                        f"{said}: {wanted:,} bytes are too many, at most {MOST_BYTES:,} are read"
                    )
                file.seek(offset)
                return file.read(wanted)
        except OSError as error:
            raise CaptureError(f"{said}: {error.strerror}") from error
        except GivenFileError as error:
            raise CaptureError(f"{said}: {str(error).partition(': ')[2]}") from error

    def _inside_folder(self, name: str, said: str) -> Path:
        """Return the path of a named file without symbolic links.

        Refused outside of the manifest's folder.
        """
        try:
            folder = Path(os.path.realpath(self.path.parent))
            found = Path(os.path.realpath(folder / name))
        except ValueError as error:  # a character that no file name can have
            raise CaptureError(f"{said}: not a file name: {error}") from error
        if Path(name).is_absolute() or not found.is_relative_to(folder):
            raise CaptureError(
                f"{said}: lies outside the manifest's folder; only files in that folder are read"
            )
        return found

    def region(self, item: Any, where: str) -> Region:
        if not isinstance(item, dict) or "address" not in item or not {"file", "size"} & set(item):
            raise CaptureError(f"{self.path}: {where} needs 'address' and 'file' or 'size'")
        address = self.number(item["address"], f"{where}.address")
        offset = self.number(item.get("offset", 0), f"{where}.offset")
        given = self.number(item["size"], f"{where}.size") if "size" in item else None
        self._count(given or 0, where)
        data = self.file(item["file"], where, offset, given) if "file" in item else b""
        size = len(data) if given is None else given
        if given is None:
            self._count(size, where)
        if not size or address + size > LAST:
            raise CaptureError(f"{self.path}: {where}: {size} bytes at 0x{address:X} do not fit 32 bits")
        full = np.zeros(size, np.uint8)
        full[: len(data)] = np.frombuffer(data, np.uint8)
        return Region(str(item.get("name", where)), address, full)

    def _count(self, size: int, where: str) -> None:
        """Bound the memory of all regions together before it is allocated."""
        self._total += size
        if self._total > MOST_BYTES:
            raise CaptureError(
                f"{self.path}: {where}: {size:,} bytes are too many, at most {MOST_BYTES:,} together"
            )

    def kick(self) -> Kick:
        tasks = self.data.get("tasks")
        base = self.number(self.data.get("dma_base", 0), "dma_base")
        pp_en = self.number(self.data.get("pingpong", 1), "pingpong")
        if isinstance(tasks, dict) and "file" in tasks:
            address, amount, count, mask = self._records(tasks)
        elif isinstance(tasks, dict):
            address = self.number(tasks.get("address"), "tasks.address")
            amount = self.number(tasks.get("amount"), "tasks.amount")
            count = self.number(tasks.get("count", 1), "tasks.count")
            mask = self.number(tasks.get("interrupt_mask", "0x300"), "tasks.interrupt_mask")
        else:
            raise CaptureError(f"{self.path}: member 'tasks' must be an object with 'file' or 'address'")
        if not 1 <= count <= MOST_TASKS:
            raise CaptureError(f"{self.path}: tasks.count must be 1 to {MOST_TASKS}, not {count}")
        try:
            code = amount_code(amount + TAIL_WORDS)
        except ValueError as error:
            raise CaptureError(f"{self.path}: tasks.amount: {error}") from error
        return Kick(address, code, count, mask, base, pp_en)

    def _records(self, tasks: Mapping[str, Any]) -> tuple[int, int, int, int]:
        """Return these values from the driver's records (`struct rknpu_task`)."""
        import ctypes as ct

        from rkcosim.driver.kernel.structs import RknpuTask

        data = self.file(tasks["file"], "tasks")
        first = self.number(tasks.get("first", 0), "tasks.first")
        size = ct.sizeof(RknpuTask)
        count = self.number(tasks.get("count", max(len(data) // size - first, 0)), "tasks.count")
        if not count or (first + count) * size > len(data):
            raise CaptureError(f"{self.path}: tasks {first}..{first + count} are not in the file")
        records = [RknpuTask.from_buffer_copy(data, n * size) for n in (first, first + count - 1)]
        return records[0].regcmd_addr, records[0].regcfg_amount, count, records[1].int_mask


def _printable(name: str) -> str:
    """Format a file name in one line, shortened."""
    shown = "".join(c if c.isprintable() else "?" for c in name)
    return shown if len(shown) < 200 else f"{shown[:200]}..."


def _inside(part: Region, whole: Region) -> bool:
    return whole.address <= part.address and part.address + part.data.size <= whole.address + whole.data.size


def _check_overlap(path: Path, memory: list[Region]) -> None:
    ordered = sorted(memory, key=lambda region: region.address)
    for left, right in itertools.pairwise(ordered):
        if left.address + left.data.size > right.address:
            raise CaptureError(f"{path}: '{left.name}' and '{right.name}' overlap at 0x{right.address:X}")
