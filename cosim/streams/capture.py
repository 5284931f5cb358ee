"""A capture of a real board as files with a manifest, turned into a stream (docs/capture.md)."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cosim.crosscheck.kick import Kick
from cosim.streams.stream import Region, Stream, StreamError, region_bytes, region_json
from rtl.regs import registers
from sw.regcmd import amount_code
from sw.regcmd.tasks import TAIL_WORDS

SCHEMA_VERSION = 1
LAST = 1 << 32


class CaptureError(ValueError):
    """A capture cannot be used; the text names the manifest and the member that is wrong."""


@dataclass
class Expected:
    """What a capture found after the run: bytes at addresses, and registers by `BLOCK.NAME`."""

    outputs: list[Region] = field(default_factory=list)
    registers: dict[str, int] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Member `expected` of a stream file."""
        return {
            "outputs": [region_json(region) for region in self.outputs],
            "registers": {name: f"0x{value:08X}" for name, value in self.registers.items()},
        }


def import_capture(path: Path) -> tuple[Stream, Expected]:
    """Read a manifest and its files.

    Raises
    ------
    CaptureError
        for a manifest that is damaged or incomplete, a file that is missing, addresses that overlap.
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
    return stream, Expected(outputs, values)


def save(stream: Stream, expected: Expected, path: Path) -> None:
    """Write a stream file with what is expected of it, as a whole.

    Raises
    ------
    OSError
        if it cannot be written; what stood at `path` before is still there then.
    """
    stream.save(path, expected=expected.as_json())


def load_expected(path: Path) -> Expected | None:
    """What a stream file expects, None when it says nothing.

    Raises
    ------
    StreamError
        if the member is damaged.
    """
    try:
        data = json.loads(path.read_text()).get("expected")
        if data is None:
            return None
        outputs = [
            Region(
                str(item["name"]),
                int(item["address"], 0),
                region_bytes(item),
            )
            for item in data.get("outputs", [])
        ]
        return Expected(outputs, {str(k): int(v, 0) for k, v in data.get("registers", {}).items()})
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StreamError(f"{path}: member 'expected' is damaged: {error}") from error


class _Manifest:
    """A manifest's members, each with a clear error."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.data = json.loads(path.read_text())
        except (UnicodeDecodeError, json.JSONDecodeError) as error:
            raise CaptureError(f"{path}: not a capture's manifest (JSON): {error}") from error
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

    def file(self, name: Any, where: str) -> npt.NDArray[np.uint8]:
        if not isinstance(name, str):
            raise CaptureError(f"{self.path}: {where}.file must be a file name")
        try:
            return np.frombuffer((self.path.parent / name).read_bytes(), np.uint8).copy()
        except OSError as error:
            raise CaptureError(f"{self.path}: {where}.file '{name}': {error.strerror}") from error

    def region(self, item: Any, where: str) -> Region:
        if not isinstance(item, dict) or "address" not in item:
            raise CaptureError(f"{self.path}: {where} needs 'address' and 'file' or 'size'")
        address = self.number(item["address"], f"{where}.address")
        data = self.file(item["file"], where) if "file" in item else np.zeros(0, np.uint8)
        if "offset" in item:
            data = data[self.number(item["offset"], f"{where}.offset") :]
        size = self.number(item["size"], f"{where}.size") if "size" in item else data.size
        if size > 1 << 30:
            raise CaptureError(f"{self.path}: {where}: {size} bytes are too many")
        full = np.zeros(size, np.uint8)
        full[: min(size, data.size)] = data[:size]
        if not size or address + size > LAST:
            raise CaptureError(f"{self.path}: {where}: {size} bytes at 0x{address:X} do not fit 32 bits")
        return Region(str(item.get("name", where)), address, full)

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
        if not count:
            raise CaptureError(f"{self.path}: tasks.count must be at least 1")
        try:
            code = amount_code(amount + TAIL_WORDS)
        except ValueError as error:
            raise CaptureError(f"{self.path}: tasks.amount: {error}") from error
        return Kick(address, code, count, mask, base, pp_en)

    def _records(self, tasks: Mapping[str, Any]) -> tuple[int, int, int, int]:
        """From the driver's records (`struct rknpu_task`)."""
        import ctypes as ct

        from sw.driver.kernel.structs import RknpuTask

        data = self.file(tasks["file"], "tasks")
        first = self.number(tasks.get("first", 0), "tasks.first")
        size = ct.sizeof(RknpuTask)
        count = self.number(tasks.get("count", data.size // size - first), "tasks.count")
        if not count or (first + count) * size > data.size:
            raise CaptureError(f"{self.path}: tasks {first}..{first + count} are not in the file")
        records = [RknpuTask.from_buffer_copy(data.tobytes(), n * size) for n in (first, first + count - 1)]
        return records[0].regcmd_addr, records[0].regcfg_amount, count, records[1].int_mask


def _inside(part: Region, whole: Region) -> bool:
    return whole.address <= part.address and part.address + part.data.size <= whole.address + whole.data.size


def _check_overlap(path: Path, memory: list[Region]) -> None:
    ordered = sorted(memory, key=lambda region: region.address)
    for left, right in itertools.pairwise(ordered):
        if left.address + left.data.size > right.address:
            raise CaptureError(f"{path}: '{left.name}' and '{right.name}' overlap at 0x{right.address:X}")
