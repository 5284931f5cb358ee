"""Addresses of activations: tensors that are never needed at the same time share memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Block:
    """The memory that one tensor needs.

    `size` bytes are written in the steps up to `written` (whole kernel groups, more than the tensor's
    channels); only the first `kept` bytes are needed until step `last`.
    """

    name: str
    size: int
    kept: int
    first: int
    written: int
    last: int

    def parts(self, offset: int) -> list[tuple[int, int, int, int]]:
        """Return (start, end, first step, last step) of the memory in use if the block is at `offset`."""
        both = [
            (offset, offset + self.kept, self.first, self.last),
            (offset + self.kept, offset + self.size, self.first, self.written),
        ]
        return [part for part in both if part[1] > part[0]]


def assign(blocks: Sequence[Block], align: int, share: bool = True) -> tuple[dict[str, int], int]:
    """Assign an offset to every block.

    Large blocks are placed first, each at the lowest offset that is free during all of its steps.

    Parameters
    ----------
    blocks
        All tensors.
    align
        Offsets and the total size are rounded up to a multiple of this.
    share
        Whether blocks may share memory; otherwise they follow one another in the given order.

    Returns
    -------
    Offsets by name, and the total size in bytes.
    """
    offsets: dict[str, int] = {}
    if not share:
        end = 0
        for block in blocks:
            offsets[block.name] = end
            end = _up(end + block.size, align)
        return offsets, end
    taken: list[tuple[int, int, int, int]] = []
    for block in sorted(blocks, key=lambda b: (-b.size, b.first, b.name)):
        offset = 0
        while (hit := _in_the_way(block.parts(offset), taken)) is not None:
            offset = _up(max(hit, offset + 1), align)
        offsets[block.name] = offset
        taken += block.parts(offset)
    return offsets, _up(max((part[1] for part in taken), default=0), align)


def _in_the_way(parts: list[tuple[int, int, int, int]], taken: list[tuple[int, int, int, int]]) -> int | None:
    """Return a lower bound of the next offset to try, or None if all parts are free."""
    start = parts[0][0] if parts else 0
    for low, high, first, last in parts:
        for a, b, begin, end in taken:
            if low < b and a < high and first <= end and begin <= last:
                return start + b - low if low > start else b
    return None


def _up(size: int, align: int) -> int:
    return -(-size // align) * align
