"""Two runs of the same work: the first command that differs, the first byte that differs and who wrote it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cosim.streams.capture import Expected
from cosim.streams.stream import Stream
from rtl.regs import registers
from sw.regcmd import RegcmdError, disassemble, walk_tasks, words_from_bytes
from sw.regcmd.word import WORD_BYTES

ATOM = 16
BITS = {0: 8, 1: 16, 2: 16, 3: 16, 4: 32, 5: 32, 6: 4}
"""OUT_PRECISION of the DPU to the bits of an element (docs/hardware.md 0)."""


@dataclass(frozen=True)
class Write:
    """Memory that a task writes: surfaces of rows of atoms, pitches in atoms."""

    task: int
    block: str
    base: int
    surfaces: int
    rows: int
    columns: int
    surface_pitch: int
    line_pitch: int
    bits: int

    def place(self, address: int) -> tuple[int, int, int, int] | None:
        """(surface, row, column, channel in the whole cube) of a byte, or None."""
        for surface in range(self.surfaces):
            inside = address - self.base - ATOM * surface * self.surface_pitch
            row, rest = divmod(inside, ATOM * self.line_pitch) if self.line_pitch else (0, inside)
            if 0 <= inside and row < self.rows and rest < ATOM * self.columns:
                step = 8 * ATOM // self.bits
                return surface, row, rest // ATOM, surface * step + rest % ATOM * 8 // self.bits
        return None


@dataclass(frozen=True)
class Finding:
    """The first difference: in words, and as data for JSON."""

    text: str
    data: dict[str, Any] = field(default_factory=dict)


def tasks_of(stream: Stream) -> list[list[int]]:
    """Words of each task of a stream, as the PC walks them.

    Raises
    ------
    RegcmdError
        for a chain that leaves the stream's memory or has no op-enable word.
    """

    def fetch(address: int, count: int) -> list[int]:
        size = count * WORD_BYTES
        for region in stream.regions:
            start = address - region.address
            if 0 <= start and start + size <= region.data.size:
                return words_from_bytes(region.data[start : start + size].tobytes())
        raise RegcmdError(f"{count} command words at 0x{address:X} are not in the stream's memory")

    kick = stream.kick
    return [words for _, words in walk_tasks(fetch, kick.base, kick.amount, kick.tasks)]


def settings_of(words: list[int]) -> dict[str, int]:
    """Last value of every register that a task writes, by path; op-enables as `OP_ENABLE`."""
    found = {}
    for command in disassemble(words):
        if command.register is not None and command.register.block != "PC":
            found[command.register.path] = command.register.encode(**command.fields)
        elif command.kind == "op_enable":
            found["OP_ENABLE"] = command.word
    return found


def writes_of(stream: Stream) -> Iterator[Write]:
    """What each task writes, as far as its registers say.

    Registers that a task leaves out keep the value of the last task but one: the two groups.
    """
    groups: list[dict[str, int]] = [{}, {}]
    base = stream.kick.dma_base
    for number, words in enumerate(tasks_of(stream)):
        values = groups[number % 2]
        values.update(settings_of(words))
        dpu = _Fields(values, "DPU")
        if "DPU.DST_BASE_ADDR" in values and dpu("FEATURE_MODE_CFG", "OUTPUT_MODE") & 2:
            bits = BITS.get(dpu("DATA_FORMAT", "OUT_PRECISION"), 8)
            columns, rows = dpu("DATA_CUBE_WIDTH", "WIDTH") + 1, dpu("DATA_CUBE_HEIGHT", "HEIGHT") + 1
            channels = dpu("DATA_CUBE_CHANNEL", "CHANNEL") + 1
            yield Write(
                number,
                "DPU",
                values["DPU.DST_BASE_ADDR"] + base,
                -(-channels * bits // (8 * ATOM)),
                rows,
                columns,
                dpu("DST_SURF_STRIDE", "DST_SURF_STRIDE"),
                columns + dpu("DATA_CUBE_NOTCH_ADDR", "NOTCH_ADDR_0"),
                bits,
            )
        ppu = _Fields(values, "PPU")
        if "PPU.DST_BASE_ADDR" in values:
            channels = ppu("DATA_CUBE_OUT_CHANNEL", "DATA_CUBE_OUT_CHANNEL") + 1
            bits = 8 if ppu("DATA_FORMAT", "PROC_PRECISION") == 0 else 16
            columns = ppu("DATA_CUBE_OUT_WIDTH", "DATA_CUBE_OUT_WIDTH") + 1
            yield Write(
                number,
                "PPU",
                values["PPU.DST_BASE_ADDR"] + base,
                -(-channels * bits // (8 * ATOM)),
                ppu("DATA_CUBE_OUT_HEIGHT", "DATA_CUBE_OUT_HEIGHT") + 1,
                columns,
                ppu("DST_SURF_STRIDE", "DST_SURF_STRIDE"),
                columns,
                bits,
            )


class _Fields:
    """Fields of a block's registers in a task; 0 where a register was not written."""

    def __init__(self, values: dict[str, int], block: str) -> None:
        self.values = values
        self.block = block

    def __call__(self, register: str, name: str) -> int:
        described = registers()[self.block][register]
        return described.decode(self.values.get(described.path, 0))[name]


def first_command(ours: Stream, theirs: Stream) -> Finding | None:
    """The first register that two streams set differently, task by task; None when there is none."""
    left, right = tasks_of(ours), tasks_of(theirs)
    for number, (a, b) in enumerate(zip(left, right, strict=False)):
        if a == b:
            continue
        mine, other = settings_of(a), settings_of(b)
        for path in [*mine, *(p for p in other if p not in mine)]:
            if mine.get(path) != other.get(path):
                return _command(number, path, mine.get(path), other.get(path))
    if len(left) != len(right):
        text = f"{len(left)} tasks, against {len(right)}"
        return Finding(text, {"kind": "tasks", "ours": len(left), "theirs": len(right)})
    return None


def _command(task: int, path: str, ours: int | None, theirs: int | None) -> Finding:
    data = {"kind": "command", "task": task, "register": path, "ours": ours, "theirs": theirs}
    words = [f"0x{value:X}" if value is not None else "not written" for value in (ours, theirs)]
    text = f"task {task}, {path}: {words[0]}, against {words[1]}"
    if ours is not None and theirs is not None and path != "OP_ENABLE":
        block, _, name = path.partition(".")
        register = registers()[block][name]
        mine, other = register.decode(ours), register.decode(theirs)
        fields = [f"{f} {mine[f]} / {other[f]}" for f in mine if mine[f] != other[f]]
        text += f" ({', '.join(fields)})"
    return Finding(text, data)


def first_byte(stream: Stream, memory: Any, expected: Expected, who: str, against: str) -> Finding | None:
    """The first byte of the expected outputs that a run did not give: by task, then by address."""
    writes = list(writes_of(stream))
    best: tuple[int, int, Finding] | None = None
    for region in expected.outputs:
        got = memory.view(region.address, region.data.size)
        wrong = np.flatnonzero(got != region.data)
        for at in _candidates(wrong, region.address, writes):
            address = region.address + at
            write, place = _writer(writes, address)
            text = f"output '{region.name}': {wrong.size} of {region.data.size} bytes differ, first "
            data: dict[str, Any] = {
                "kind": "byte",
                "output": region.name,
                "address": address,
                "differing": int(wrong.size),
                "ours": int(got[at]),
                "theirs": int(region.data[at]),
            }
            if write is not None and place is not None:
                names = ("surface", "row", "column", "channel")
                data |= {"task": write.task, "block": write.block, **dict(zip(names, place, strict=True))}
                text += f"task {write.task} ({write.block}), " + ", ".join(
                    f"{name} {number}" for name, number in zip(names, place, strict=True)
                )
            else:
                text += "in a place that no task writes"
            text += f" (0x{address:08X}): {who} {got[at]}, {against} {region.data[at]}"
            key = write.task if write is not None else len(writes)
            if best is None or (key, address) < best[:2]:
                best = key, address, Finding(text, data)
    return best[2] if best is not None else None


def _candidates(wrong: Any, base: int, writes: list[Write]) -> list[int]:
    """The first wrong byte of each task's writes, and the first of all."""
    found: dict[int, int] = {}
    for at in wrong[:4096].tolist():
        write, _ = _writer(writes, base + at)
        found.setdefault(write.task if write is not None else -1, at)
    return list(found.values())


def _writer(writes: list[Write], address: int) -> tuple[Write | None, tuple[int, int, int, int] | None]:
    """The last task that writes a byte."""
    for write in reversed(writes):
        place = write.place(address)
        if place is not None:
            return write, place
    return None, None


def first_register(device: Any, core: int, expected: Expected, who: str, against: str) -> Finding | None:
    """The first register whose value after the run is not the expected one."""
    for path, value in expected.registers.items():
        block, _, name = path.partition(".")
        register = registers()[block][name]
        got = device.read32(core, register.offset)
        if got != value:
            mine, other = register.decode(got), register.decode(value)
            fields = [f"{f} {mine[f]} / {other[f]}" for f in mine if mine[f] != other[f]]
            text = f"{path}: {who} 0x{got:X}, {against} 0x{value:X} ({', '.join(fields)})"
            return Finding(text, {"kind": "register", "register": path, "ours": got, "theirs": value})
    return None
