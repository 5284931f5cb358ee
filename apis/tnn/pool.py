"""Memory of blobs: blocks that blobs use one after the other, and their places in one allocation.

The rule is that of TNN (Tencent/TNN f0cb0812, source/tnn/core/blob_manager.cc and source/tnn/memory_manager):
a blob takes the free block of its type whose size differs least from its own, which grows if it is smaller.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rkcosim.apis.tnn.blob import BlobMemorySizeInfo
from rkcosim.apis.tnn.enums import DataType


@dataclass(eq=False)
class BlobMemory:
    """A block that one or several blobs use, one after the other."""

    data_type: DataType
    size: int
    use_count: int
    offset: int = 0


@dataclass
class BlobMemoryPool:
    """Blocks of memory, and those that are free at the moment, the last one given back first."""

    blocks: list[BlobMemory] = field(default_factory=list)
    free: list[BlobMemory] = field(default_factory=list)

    def CreateBlobMemory(self, use_count: int, info: BlobMemorySizeInfo) -> BlobMemory:
        """Return a new block."""
        made = BlobMemory(info.data_type, info.size, use_count)
        self.blocks.append(made)
        return made

    def BorrowBlobMemory(self, use_count: int, info: BlobMemorySizeInfo) -> BlobMemory:
        """Return the free block of the most similar size, or a new one if none is free."""
        fitting = [block for block in self.free if block.data_type == info.data_type]
        if not fitting:
            return self.CreateBlobMemory(use_count, info)
        found = min(fitting, key=lambda block: abs(info.size - block.size))
        self.free.remove(found)
        found.size, found.use_count = max(found.size, info.size), use_count
        return found

    def RefundBlobMemory(self, block: BlobMemory) -> None:
        """Give a block back."""
        self.free.insert(0, block)

    def assign(self, align: int = 1) -> int:
        """Give each block its offset in one allocation and return the allocation's bytes."""
        place = 0
        for block in self.blocks:
            block.offset = place
            place += -(-block.size // align) * align
        return place


def plan_blobs(
    inputs: Sequence[str],
    layers: Sequence[tuple[Sequence[str], Sequence[str]]],
    outputs: Sequence[str],
    sizes: Mapping[str, BlobMemorySizeInfo],
) -> tuple[BlobMemoryPool, dict[str, BlobMemory]]:
    """Return the blocks of a network and the block of each blob.

    Parameters
    ----------
    inputs
        Inputs of the network, which share their blocks with no other blob.
    layers
        Inputs and outputs of each layer, in order.
    outputs
        Outputs of the network, whose blocks stay taken.
    sizes
        Memory of each blob.
    """
    uses = Counter(name for taken, _ in layers for name in taken)
    uses.update(outputs)
    pool, blocks = BlobMemoryPool(), dict[str, BlobMemory]()
    for name in inputs:
        blocks[name] = pool.CreateBlobMemory(uses[name] + 1, sizes[name])
    for taken, made in layers:
        for name in made:
            blocks[name] = pool.BorrowBlobMemory(max(uses[name], 1), sizes[name])
        for name in taken:
            block = blocks[name]
            block.use_count -= 1
            if block.use_count == 0:
                pool.RefundBlobMemory(block)
        for name in made:
            if not uses[name]:
                pool.RefundBlobMemory(blocks[name])
    return pool, blocks
