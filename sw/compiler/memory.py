"""Where activations lie: tensors that are never needed at the same time share memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Block:
    """One tensor's need of memory.

    `size` bytes are written in the steps up to `written` (whole kernel groups, beyond the tensor's own
    channels); only the first `kept` bytes are needed until step `last`.
    """

    name: str
    size: int
    kept: int
    first: int
    written: int
    last: int

    def parts(self, offset: int) -> list[tuple[int, int, int, int]]:
        """(start, end, first step, last step) of what is taken when the block lies at `offset`."""
        both = [
            (offset, offset + self.kept, self.first, self.last),
            (offset + self.kept, offset + self.size, self.first, self.written),
        ]
        return [part for part in both if part[1] > part[0]]


def assign(blocks: Sequence[Block], align: int, share: bool = True) -> tuple[dict[str, int], int]:
    """Give every block an offset.

    Large blocks are placed first, each at the lowest offset where nothing is in its way at any step.

    Parameters
    ----------
    blocks
        all tensors.
    align
        multiple that offsets and the size of the whole are rounded up to.
    share
        let blocks share memory; else one lies behind the other in the given order.

    Returns
    -------
    offsets by name, and the bytes of the whole.
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
    """A lower bound of the next offset worth trying, or None where all parts are free."""
    start = parts[0][0] if parts else 0
    for low, high, first, last in parts:
        for a, b, begin, end in taken:
            if low < b and a < high and first <= end and begin <= last:
                return start + b - low if low > start else b
    return None


def _up(size: int, align: int) -> int:
    return -(-size // align) * align
