"""A matrix product of fixed shape as tasks."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from sw.compiler.matmul.packing import pack_b
from sw.compiler.matmul.shape import ProductShape
from sw.compiler.matmul.tasks import Places, Requant, task
from sw.compiler.matmul.tiling import SUM_BYTES, MatmulTile, plan_tiles
from sw.regcmd import TaskBuilder


@dataclass(frozen=True)
class Matmul(ProductShape):
    """A product of fixed shape and layouts; `builders` gives its tasks for given addresses.

    Raises
    ------
    MatmulError
        for sizes that are not positive multiples of what the type needs, or that CBUF does not hold.
    """

    tiles: tuple[MatmulTile, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "tiles", plan_tiles(self))

    @property
    def parts(self) -> list[tuple[int, int]]:
        """First element and number of elements of the parts of K, in the order of B's blocks."""
        return sorted({(tile.first, tile.depth) for tile in self.tiles})

    @property
    def sums_bytes(self) -> int:
        """Bytes that the sums of the parts of K need besides the matrices; 0 if K is whole."""
        return self.m * self.n * SUM_BYTES if len(self.parts) > 1 else 0

    def pack_b(self, matrix: npt.NDArray[np.generic]) -> npt.NDArray[np.uint8]:
        """B (K x N; int4 as int8 numbers) as the tasks read it: a native block for each part of K."""
        blocks = [pack_b(matrix[first : first + depth], self.kind) for first, depth in self.parts]
        return np.concatenate(blocks)

    def builders(
        self, a: int, b: int, c: int, requant: Requant | None = None, table: int = 0, sums: int = 0
    ) -> list[TaskBuilder]:
        """The tasks, unlinked, for matrices at these byte addresses (multiples of 16).

        `table` is where `requant.table()` lies, `sums` where `sums_bytes` are free.
        """
        places = Places(a, b, c, table, sums)
        return [task(self, tile, places, requant) for tile in self.tiles]
