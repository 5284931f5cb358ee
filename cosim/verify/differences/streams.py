"""Two runs of the same work: the first command that differs, the first byte that differs and its writer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np

from rkcosim.golden.task.rules import present
from rkcosim.golden.task.shapes import DpuCube, PoolShape
from rkcosim.regcmd import disassemble, format_command
from rkcosim.regcmd.lint.rule import Check
from rkcosim.regcmd.lint.traffic import Access, accesses
from rkcosim.regcmd.machine import starts_of
from rkcosim.regcmd.program import NO_ENABLE, ListedTask, link_of
from rkcosim.spec.regs import Register, registers
from rkcosim.spec.types import ATOM
from rkcosim.verify.crosscheck.kick import kick_writes
from rkcosim.verify.streams.contents import Expected, StreamContents
from rkcosim.verify.streams.programs import program_of_stream


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
        """Return (surface, row, column, channel in the whole cube) of a byte, or None."""
        for surface in range(self.surfaces):
            inside = address - self.base - ATOM * surface * self.surface_pitch
            row, rest = divmod(inside, ATOM * self.line_pitch) if self.line_pitch else (0, inside)
            if 0 <= inside and row < self.rows and rest < ATOM * self.columns:
                step = 8 * ATOM // self.bits
                return surface, row, rest // ATOM, surface * step + rest % ATOM * 8 // self.bits
        return None


@dataclass(frozen=True)
class Finding:
    """The first difference, as text and as data for JSON."""

    text: str
    data: dict[str, Any] = field(default_factory=dict)


def differing_fields(register: Register, ours: int, theirs: int) -> str:
    """Return the fields of a register that differ between two values, as "NAME 1 / 2, NAME 3 / 4"."""
    mine, other = register.decode(ours), register.decode(theirs)
    return ", ".join(f"{name} {mine[name]} / {other[name]}" for name in mine if mine[name] != other[name])


def _register(path: str) -> Register:
    block, _, name = path.partition(".")
    return registers()[block][name]


@dataclass(frozen=True)
class Break:
    """A point at which a chain of tasks cannot be followed any further.

    Members
    -------
    after : number of complete tasks before it.
    address : address of the first word of the task after the break, None if nothing links to one.
    reason : why, as text.
    link : address and amount code that lead there (of the last complete task, or of the kick), each None if
        no word has it.
    """

    after: int
    address: int | None
    reason: str
    link: tuple[int | None, int | None]

    @property
    def place(self) -> str:
        """Describe the point."""
        behind = f"after task {self.after - 1}" if self.after else "at its start"
        there = "" if self.address is None else f" (at 0x{self.address:X})"
        return f"the chain breaks {behind}{there}: {self.reason}"


def walked(stream: StreamContents) -> tuple[list[list[int]], Break | None, list[int]]:
    """Return a stream's tasks as the PC fetches them.

    Returns
    -------
    The words of each complete task, the break of the chain (None without one), and the words that are fetched
    there, which have no op-enable word.
    """
    program = program_of_stream(stream)
    words = [list(task.words) for task in program.tasks]
    if not program.stopped:
        return words, None, []
    whole = program.tasks if program.stopped != NO_ENABLE else program.tasks[:-1]
    links = [(stream.kick.base, stream.kick.amount), *(link_of(task) for task in whole)]
    address, amount = links[-1]
    reason, cut = program.stopped, words[len(whole) :]
    if cut:
        reason = f"no op-enable word among the {len(cut[0])} words that are fetched"
    elif address is None:
        reason = f"no link, but {stream.kick.tasks - len(whole)} of {stream.kick.tasks} tasks are left"
    return words[: len(whole)], Break(len(whole), address, reason, (address, amount)), cut[0] if cut else []


def settings_of(words: list[int]) -> dict[str, int]:
    """Return the last value of every register that a task writes, by path; op-enables as `OP_ENABLE`."""
    found = {}
    for command in disassemble(words):
        if command.register is not None and command.register.block != "PC":
            found[command.register.path] = command.register.encode(**command.fields)
        elif command.kind == "op_enable":
            found["OP_ENABLE"] = command.word
    return found


def writes_of(stream: StreamContents) -> Iterator[Write]:
    """Yield what each task before a break of the chain writes with the DPU or the PPU, from its registers."""
    program = program_of_stream(stream)
    del program.tasks[len(walked(stream)[0]) :]
    for number, begun in starts_of(program):
        for start in begun:
            check = Check(program, start)
            for access in accesses(check):
                if access.write and access.register == "DST_BASE_ADDR":
                    yield _write(number, check, access)


def _write(number: int, check: Check, access: Access) -> Write:
    """Return the cube of an output, all of whose pitches are in atoms."""
    shape: DpuCube | PoolShape
    if access.block == "DPU":
        shape = dpu = present(check.dpu)
        rows, columns, line = dpu.height, dpu.width, dpu.line
    else:
        shape = pool = present(check.pool)
        rows, columns = pool.out_height, pool.out_width
        line = columns + pool.view("OPERATION_MODE_CFG", "NOTCH_ADDR")
    pitch = shape.view.signed("DST_SURF_STRIDE")
    base = access.pieces[0][0]
    return Write(number, access.block, base, shape.surfaces, rows, columns, pitch, line, shape.bits)


def first_command(ours: StreamContents, theirs: StreamContents) -> Finding | None:
    """Return the first register that two streams set differently, or where a chain breaks.

    The host's writes come first, then the tasks in order.  None if the tasks are the same up to the end, or
    up to a break that both have.
    """
    if (finding := _first_kick(ours, theirs)) is not None:
        return finding
    (left, broken, cut), (right, other_broken, other_cut) = walked(ours), walked(theirs)
    for number, (a, b) in enumerate(zip(left, right, strict=False)):
        if (finding := _first_setting(number, a, b)) is not None:
            return finding
    if broken is not None and other_broken is not None:
        if broken.after == other_broken.after and broken.reason == other_broken.reason:
            return _first_setting(broken.after, cut, other_cut)
        if other_broken.after < broken.after:
            broken = None
    if broken is not None:
        beside = right[broken.after] if broken.after < len(right) else []
        link = _link(theirs, right, broken.after)
        return _first_setting(broken.after, cut, beside, True) or _chain(broken, link, True)
    if other_broken is not None:
        beside = left[other_broken.after] if other_broken.after < len(left) else []
        link = _link(ours, left, other_broken.after)
        return _first_setting(other_broken.after, beside, other_cut, True) or _chain(
            other_broken, link, False
        )
    if len(left) != len(right):
        text = f"{len(left)} tasks, against {len(right)}"
        return Finding(text, {"kind": "tasks", "ours": len(left), "theirs": len(right)})
    return None


_FROM_TASKS = {"PC.BASE_ADDRESS": ("PC_SEL",), "PC.REGISTER_AMOUNTS": (), "PC.TASK_CON": ("TASK_PP_EN",)}
"""Fields of the host's writes that are compared, where not all are: lists may lie at other addresses, and
their lengths and number are compared by following them."""


def _first_kick(ours: StreamContents, theirs: StreamContents) -> Finding | None:
    """Return the first register that the hosts write differently before the tasks."""
    return _first_different(None, _host_settings(ours), _host_settings(theirs))


def _host_settings(stream: StreamContents) -> dict[str, int]:
    """Return what the host writes before the tasks, by path, without what is compared otherwise."""
    found = {}
    for offset, value in chain(*kick_writes(stream.kick, stream.core, stream.writes)):
        register = registers().at(offset)
        if register is None:
            continue
        fields = register.decode(value)
        names = _FROM_TASKS.get(register.path, tuple(fields))
        if names and register.block != "GLOBAL":
            found[register.path] = register.encode(**{name: fields[name] for name in names})
    return found


def _first_setting(number: int, a: list[int], b: list[int], both: bool = False) -> Finding | None:
    """Return the first register that two tasks set differently; `both`: among those that both write."""
    if a == b:
        return None
    return _first_different(number, settings_of(a), settings_of(b), both)


def _first_different(
    number: int | None, mine: dict[str, int], other: dict[str, int], both: bool = False
) -> Finding | None:
    """Return the first register with two values, of a task or the host (None); `both`: that both write."""
    for path in [*mine, *(p for p in other if p not in mine)]:
        if mine.get(path) != other.get(path) and not (both and not (path in mine and path in other)):
            return _command(number, path, mine.get(path), other.get(path))
    return None


def _link(stream: StreamContents, tasks: list[list[int]], number: int) -> tuple[int | None, int | None]:
    """Return address and amount code that lead to a task."""
    if not number:
        return stream.kick.base, stream.kick.amount
    return link_of(ListedTask(tuple(tasks[number - 1]))) if number <= len(tasks) else (None, None)


def _chain(broken: Break, link: tuple[int | None, int | None], mine: bool) -> Finding:
    """Return a break that one side has; `link` is what the other side has in its place."""
    pair = (broken.link, link) if mine else (link, broken.link)
    names = "PC.BASE_ADDRESS", "PC.REGISTER_AMOUNTS"
    shown = ["not written" if value is None else f"0x{value:X}" for side in pair for value in side]
    differ = [
        f"{n} {shown[k]}, against {shown[k + 2]}" for k, n in enumerate(names) if shown[k] != shown[k + 2]
    ]
    text = broken.place if mine else f"on the other side {broken.place}"
    data: dict[str, Any] = {"kind": "chain", "side": "ours" if mine else "theirs", "reason": broken.reason}
    data |= {"tasks": broken.after, "address": broken.address}
    data |= {
        side: dict(zip(names, values, strict=True))
        for side, values in zip(("ours", "theirs"), pair, strict=True)
    }
    return Finding(text + (f" ({'; '.join(differ)})" if differ else ""), data)


def _command(task: int | None, path: str, ours: int | None, theirs: int | None) -> Finding:
    """Return a register that a task, or without one the host, sets differently."""
    kind, place = ("kick", "the host") if task is None else ("command", f"task {task}")
    data = {"kind": kind, "task": task or 0, "register": path, "ours": ours, "theirs": theirs}
    shown = _started if path == "OP_ENABLE" else "0x{:X}".format
    words = [shown(value) if value is not None else "not written" for value in (ours, theirs)]
    text = f"{place}, {path}: {words[0]}, against {words[1]}"
    if ours is not None and theirs is not None and path != "OP_ENABLE":
        text += f" ({differing_fields(_register(path), ours, theirs)})"
    return Finding(text, data)


def _started(word: int) -> str:
    """Return the blocks that an op-enable word starts, as the listing has them."""
    return format_command(disassemble([word])[0]).removeprefix("OP_ENABLE ")


def first_byte(
    stream: StreamContents, memory: Any, expected: Expected, who: str, against: str
) -> Finding | None:
    """Return the first byte of the expected outputs that a run did not produce: by task, then by address."""
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
                text += "at an address that no task writes"
            text += f" (0x{address:08X}): {who} {got[at]}, {against} {region.data[at]}"
            key = write.task if write is not None else len(writes)
            if best is None or (key, address) < best[:2]:
                best = key, address, Finding(text, data)
    return best[2] if best is not None else None


def _candidates(wrong: Any, base: int, writes: list[Write]) -> list[int]:
    """Return the first wrong byte of each task's writes, and the first of all."""
    found: dict[int, int] = {}
    for at in wrong[:4096].tolist():
        write, _ = _writer(writes, base + at)
        found.setdefault(write.task if write is not None else -1, at)
    return list(found.values())


def _writer(writes: list[Write], address: int) -> tuple[Write | None, tuple[int, int, int, int] | None]:
    """Return the last task that writes a byte."""
    for write in reversed(writes):
        place = write.place(address)
        if place is not None:
            return write, place
    return None, None


def first_register(device: Any, core: int, expected: Expected, who: str, against: str) -> Finding | None:
    """Return the first register whose value after the run is not the expected one."""
    for path, value in expected.registers.items():
        register = _register(path)
        got = device.read32(core, register.offset)
        if got != value:
            fields = differing_fields(register, got, value)
            text = f"{path}: {who} 0x{got:X}, {against} 0x{value:X} ({fields})"
            return Finding(text, {"kind": "register", "register": path, "ours": got, "theirs": value})
    return None
