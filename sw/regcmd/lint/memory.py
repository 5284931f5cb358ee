"""Rules about the memory that tasks read and write."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from rkcosim.golden.task.rules import ERROR, WARNING
from rkcosim.regcmd.lint.rule import Check, rule
from rkcosim.regcmd.lint.traffic import SPACE, Access, accesses
from rkcosim.regcmd.machine import BLOCKS
from rkcosim.regcmd.word import WORD_BYTES

PAGE = 4096


@rule("memory.unmapped", ERROR, "[HW 10.2], [HW 11]", blocks=BLOCKS)
def _unmapped(check: Check) -> None:
    """An access outside of all mapped memory causes a DMA error, and the task never ends."""
    ranges = check.program.ranges
    if ranges is None:
        return
    if "ranges" not in check.cache:
        check.cache["ranges"] = _pages(ranges)
    firsts, ends = check.cache["ranges"]
    for access in accesses(check):
        for number, (start, size) in enumerate(access.pieces):
            address = start % SPACE
            at = bisect_right(firsts, address) - 1
            if at >= 0 and address + size <= ends[at]:
                continue
            what = "writes" if access.write else "reads"
            message = f"{access.client}: {what} {size} bytes at 0x{address:X}, which is not mapped"
            place = (access.register, access.field)
            if number:  # the first piece is mapped: a pitch or a size is wrong
                message += f" (piece {number} of {len(access.pieces)}; the first is)"
                place = access.stride
            check.say(message, access.block, *place)
            break


def _pages(ranges: list[tuple[int, int]]) -> tuple[list[int], list[int]]:
    """First addresses and ends of consecutive whole mapped pages."""
    firsts: list[int] = []
    ends: list[int] = []
    for start, size in sorted(ranges):
        first, end = start // PAGE * PAGE, -(-(start + max(size, 1)) // PAGE) * PAGE
        if ends and first <= ends[-1]:
            ends[-1] = max(ends[-1], end)
        else:
            firsts.append(first)
            ends.append(end)
    return firsts, ends


@rule("memory.wrap", WARNING, "[HW 4.1.3]", blocks=BLOCKS)
def _wrap(check: Check) -> None:
    """Addresses count modulo 2^32: a cube that crosses the end continues at 0."""
    for access in accesses(check):
        first, last = access.span
        if first // SPACE != (last - 1) // SPACE:
            message = f"{access.client}: from 0x{first % SPACE:X} beyond the end of the address space"
            check.say(message, access.block, *access.stride)


@rule("memory.commands", ERROR, "[HW 1.6]", blocks=("DPU", "PPU"))
def _commands(check: Check) -> None:
    """A task that overwrites command lists destroys tasks that are still to run."""
    lists = [
        (task.address, task.address + len(task.words) * WORD_BYTES, number)
        for number, task in enumerate(check.program.tasks)
        if task.address is not None
    ]
    first_list, last_list = min((a for a, _, _ in lists), default=0), max((e for _, e, _ in lists), default=0)
    for access in accesses(check):
        low, high = access.span
        if not access.write or (high <= SPACE and (high <= first_list or low >= last_list)):
            continue
        for first, end, number in lists:
            hit = any(at % SPACE < end and first < at % SPACE + size for at, size in access.pieces)
            if hit:
                message = f"{access.client}: overwrites the commands of task {number} at 0x{first:X}"
                check.say(message, access.block, access.register, access.field)
                break


@rule("memory.own-input", WARNING, "[HW 7.11], [HW 8.2]", blocks=("DPU", "PPU"))
def _own_input(check: Check) -> None:
    """A task that writes where it reads may read its own results, depending on timing; only element-wise
    operations in place are safe."""
    items = accesses(check)
    for written in (item for item in items if item.write):
        for read in (item for item in items if not item.write):
            if _in_place(written, read) or _narrowed(check, items, written, read):
                continue
            if not _overlap(written, read):
                continue
            message = f"{written.client} at 0x{written.pieces[0][0] % SPACE:X} overlaps the {read.client}"
            check.say(message, written.block, written.register, written.field)


def _in_place(written: Access, read: Access) -> bool:
    """Whether each element is read before it is written: same addresses, and the DPU's readers."""
    return read.block == "DPU_RDMA" and written.pieces == read.pieces


def _narrowed(check: Check, items: Sequence[Access], written: Access, read: Access) -> bool:
    """Whether both readers deliver a cube of wider elements that the task narrows from its own first atom on,
    as vendor-compiled fp16 layers do: each surface is written behind those that were read."""
    if check.rdma is None or not check.rdma.alternate or read.block != "DPU_RDMA":
        return False
    starts = [item.pieces[0][0] for item in items if not item.write and item.block == "DPU_RDMA"]
    return written.pieces[0][0] == min(starts)


def _overlap(a: Access, b: Access) -> bool:
    first, end = a.span
    other, other_end = b.span
    if end <= other or other_end <= first:
        return False
    ours, theirs = sorted(a.pieces), sorted(b.pieces)
    i = j = 0
    while i < len(ours) and j < len(theirs):
        if ours[i][0] + ours[i][1] <= theirs[j][0]:
            i += 1
        elif theirs[j][0] + theirs[j][1] <= ours[i][0]:
            j += 1
        else:
            return True
    return False
