"""Rules about data that tasks pass on through memory: who writes what is read, and who overwrites it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator

from rkcosim.golden.task.packed_weights import amounts, decode_packed, is_packed
from rkcosim.golden.task.rules import ERROR, WARNING, present
from rkcosim.golden.task.rules_conv import unknown_compression
from rkcosim.golden.task.shapes import ceil
from rkcosim.regcmd.lint.rule import Check, rule
from rkcosim.regcmd.lint.traffic import SPACE, Access
from rkcosim.regcmd.machine import Start
from rkcosim.spec import weight_code as form
from rkcosim.spec.types import ATOM

PAGE_ATOMS = 256
MOST = 1 << 26
"""Size in bytes above which an access is ignored, because other rules report it."""

MOST_DECODED = 4
"""How many times the bytes of all known memory are decoded at most as compressed weights; tasks that use the
same weights count once."""


class Atoms:
    """A set of atoms of memory, as bits of pages."""

    def __init__(self) -> None:
        self.pages: dict[int, int] = {}

    def add(self, page: int, bits: int) -> None:
        self.pages[page] = self.pages.get(page, 0) | bits

    def drop(self, page: int, bits: int) -> None:
        left = self.pages.get(page, 0) & ~bits
        if left:
            self.pages[page] = left
        else:
            self.pages.pop(page, None)

    def common(self, page: int, bits: int) -> int:
        return self.pages.get(page, 0) & bits


def _bits(access: Access, real: bool = False) -> Iterator[tuple[int, int]]:
    """(page, bits) of all atoms that an access touches; with `real` without those of padding channels."""
    yield from _atoms(access.pieces[: access.real] if real else access.pieces)


def _atoms(pieces: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """(page, bits) of all atoms of pieces of memory."""
    for start, size in pieces:
        first, end = start % SPACE // ATOM, -(-(start % SPACE + size) // ATOM)
        while first < end:
            page, low = divmod(first, PAGE_ATOMS)
            high = min(PAGE_ATOMS, low + end - first)
            yield page, (1 << high) - (1 << low)
            first += high - low


def _sane(access: Access) -> bool:
    return sum(size for _, size in access.pieces) <= MOST


def _place(page: int, bits: int) -> int:
    """Address of the first atom."""
    return (page * PAGE_ATOMS + (bits & -bits).bit_length() - 1) * ATOM


def _by_start(check: Check) -> Iterable[tuple[Start, list[Access]]]:
    found: list[tuple[Start, list[Access]]] = check.cache.get("traffic", [])
    return found


def _say(check: Check, start: Start, access: Access, message: str, pitch: bool) -> None:
    """Report a finding at the base address, or at the pitch."""
    check.start = start
    register, name = access.stride if pitch and len(access.pieces) > 1 else (access.register, access.field)
    check.say(message, access.block, register, name)
    check.start = None


@rule("memory.half-written", WARNING, "[HW 4.1], [HW 7.11]", whole=True)
def _half_written(check: Check) -> None:
    """Every atom of a tensor that earlier tasks computed should be written before it is read; a gap shows
    that address, pitch or size of writer and reader differ."""
    written = Atoms()
    for page, bits in _atoms(check.program.held):
        written.add(page, bits)
    for start, items in _by_start(check):
        for access in items:
            if access.write or access.moved or not _sane(access):
                continue
            there = missing = 0
            hole: int | None = None
            for page, bits in _bits(access):
                common = written.common(page, bits)
                there += common.bit_count()
                if common != bits:
                    missing += (bits & ~common).bit_count()
                    hole = _place(page, bits & ~common) if hole is None else hole
            if there and hole is not None:
                message = (
                    f"{access.client}: {missing} of {there + missing} atoms were written by no task, "
                    f"the first at 0x{hole:X}"
                )
                _say(check, start, access, message, hole != access.pieces[0][0] % SPACE)
        for access in items:
            if access.write and _sane(access):
                for page, bits in _bits(access):
                    written.add(page, bits)


@rule("memory.overwritten", WARNING, "[HW 7.11]", whole=True)
def _overwritten(check: Check) -> None:
    """A task overwrites results that no task has read: two outputs share memory."""
    unread, held = Atoms(), Atoms()
    for page, bits in _atoms(check.program.held):
        held.add(page, bits)
    past: list[tuple[Start, Access]] = []
    for start, items in _by_start(check):
        for access in items:
            if not access.write and _sane(access):
                for page, bits in _bits(access):
                    unread.drop(page, bits)
        for access in items:
            if access.write and _sane(access):
                _check_write(check, start, access, unread, past)
                for page, bits in _bits(access, real=True):
                    unread.add(page, bits & ~held.common(page, bits))
                past.append((start, access))


def _check_write(
    check: Check, start: Start, access: Access, unread: Atoms, past: list[tuple[Start, Access]]
) -> None:
    lost, first = 0, None
    for page, bits in _bits(access):
        common = unread.common(page, bits)
        lost += common.bit_count()
        if common and first is None:
            first = _place(page, common)
    if first is None:
        return
    found = next((item for item in reversed(past) if _covers(item[1], first)), None)
    if found is None or found[1].pieces == access.pieces or not _untouched(unread, found[1]):
        return
    message = (
        f"{access.client}: overwrites {lost} atoms from 0x{first:X} on; no task has read that output of "
        f"task {found[0].task}"
    )
    _say(check, start, access, message, first != access.pieces[0][0] % SPACE)


def _untouched(unread: Atoms, access: Access) -> bool:
    """Whether nothing of an output has been read, as is normal for surfaces with only padding channels."""
    return all(unread.common(page, bits) == bits for page, bits in _bits(access))


def _covers(access: Access, address: int) -> bool:
    return any(at % SPACE <= address < at % SPACE + size for at, size in access.pieces)


@rule("conv.weight-code", ERROR, "[HW 4.13]", whole=True)
def _weight_code(check: Check) -> None:
    """Compressed weights with an unknown header or code, or whose segments end too early, never come. This is
    checked where the memory before the first task is known and no task writes there."""
    contents = check.program.contents
    left = MOST_DECODED * sum(len(data) for _, data in contents)
    traffic = list(_by_start(check)) if contents else []
    firsts, ends = _spans(access for _, items in traffic for access in items if access.write)
    seen = set()
    for start, items in traffic:
        if "CNA" not in start.blocks or not is_packed(start.views["CNA"]):
            continue
        conv = present(Check(check.program, start).conv)
        access = next((item for item in items if item.client == "weights"), None)
        if access is None or len(access.pieces) != form.SEGMENTS or any(unknown_compression(conv)):
            continue
        quads = ceil(conv.view("WEIGHT_SIZE0", "WEIGHT_BYTES"), ATOM) * ATOM // form.WHOLE
        if (key := (access.pieces, quads)) in seen:
            continue
        seen.add(key)
        parts = [_content(contents, at % SPACE, size) for at, size in access.pieces]
        segments = [part for part in parts if part is not None]
        if len(segments) < len(parts) or any(_meets(firsts, ends, *piece) for piece in access.pieces):
            continue
        left -= sum(map(len, segments))
        check.start = start
        if left < 0:
            message = f"segments overlap those of other tasks so often that more than {MOST_DECODED} times "
            message += "the bytes of the memory would be decoded: they are not checked"
            check.say(message, "CNA", *access.stride, severity=WARNING)
            check.start = None
            return
        fault = decode_packed([bytes(part) for part in segments], amounts(conv.view), quads)[1]
        if fault is not None:
            register = f"DCOMP_AMOUNT{fault.segment}"
            check.say(fault.message, "CNA", register, code=fault.code, value=fault.value)
        check.start = None


def _spans(accesses: Iterable[Access]) -> tuple[list[int], list[int]]:
    """First addresses and ends of all memory that is accessed, in order."""
    firsts: list[int] = []
    ends: list[int] = []
    for at, size in sorted((at % SPACE, size) for access in accesses for at, size in access.pieces):
        if ends and at <= ends[-1]:
            ends[-1] = max(ends[-1], at + size)
        else:
            firsts.append(at)
            ends.append(at + size)
    return firsts, ends


def _meets(firsts: list[int], ends: list[int], at: int, size: int) -> bool:
    """Whether a piece overlaps one of the spans."""
    before = bisect_left(firsts, at % SPACE + size)
    return before > 0 and ends[before - 1] > at % SPACE


def _content(contents: Iterable[tuple[int, memoryview]], address: int, size: int) -> memoryview | None:
    """Return bytes of the memory before the first task; None if they are not known."""
    for first, data in contents:
        if 0 <= address - first and address - first + size <= len(data):
            return data[address - first :][:size]
    return None
