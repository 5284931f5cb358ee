"""How a matrix product is divided into tasks: rows of A, columns of B, parts of K.

A task needs its rows of A in CBUF at the same time, so fewer rows fit if they are long, and B is read again
for every range of rows.  If K may be divided, the rows of a part are shorter and more of them fit; in return
the sums of the earlier parts are written and read back by ERDMA.  Chained tasks see the data that earlier
tasks have written [HW 1.6].
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from rkcosim.compiler.limits import MAX_NOTCH, MAX_SIZE
from rkcosim.compiler.matmul.shape import CHANNEL_STEP, MatmulError, ProductShape
from rkcosim.compiler.tiling import BANKS, ENTRY_BYTES, STRIPE, bank_bytes

MAX_KERNELS = 8192
"""Channels of one task: the DPU's field has 13 bits."""
MAX_PARTS = 16
"""Largest number of parts of K that is tried."""
CORE_BYTES = 12
"""Bytes that one core moves per cycle (fitted to boards: docs/board_times.md, 11.75 per nanosecond)."""
TASK_CYCLES = 1000
"""Cycles of a task in addition to its work (our estimate)."""
SUM_BYTES = 4
"""Bytes of the sum of a part: int32 or binary32."""


@dataclass(frozen=True)
class MatmulTile:
    """One task: rows of A, columns of B, a range of K and the division of CBUF.

    Members
    -------
    first, depth : the range of K.
    adds : whether the sums of the earlier parts of K are added.
    last : whether this is the last part of K; it writes C, the other parts write sums.
    reuse : whether the weights of the previous task are used again.
    data_reuse : whether the rows of A of the previous task are used again.
    sum_bytes : bytes of a sum of parts of K; 2 for sums of fp16 products that are rounded to fp16.
    """

    row: int
    rows: int
    column: int
    columns: int
    first: int
    depth: int
    data_banks: int
    weight_banks: int
    reuse: bool = False
    adds: bool = False
    last: bool = True
    data_reuse: bool = False
    sum_bytes: int = SUM_BYTES


@dataclass(frozen=True)
class _Cut:
    """A way to divide a product: tile sizes, banks for data, whether a tile's weights stay in CBUF."""

    depth: int
    rows: int
    columns: int
    data_banks: int
    resident: bool


@lru_cache(maxsize=256)
def plan_tiles(shape: ProductShape) -> tuple[MatmulTile, ...]:
    """Return the tasks of the fastest division; ties are broken by fewer bytes, then by fewer tasks.

    Raises
    ------
    MatmulError
        If a row of A does not fit CBUF.
    """
    cuts = list(_cuts(shape))
    if not cuts:
        raise MatmulError(f"a row of {shape.k} elements does not fit CBUF")
    return tuple(_tiles(shape, min(cuts, key=lambda cut: _cost(shape, cut))))


def parts_of_k(shape: ProductShape, depth: int) -> list[tuple[int, int]]:
    """First element and number of elements of each part of K."""
    return [(first, min(depth, shape.k - first)) for first in range(0, shape.k, depth)]


def _cuts(shape: ProductShape) -> Iterator[_Cut]:
    steps = shape.k // CHANNEL_STEP
    depths = {-(-steps // parts) * CHANNEL_STEP for parts in range(1, MAX_PARTS + 1)}
    for depth in sorted(depths, reverse=True) if shape.divisible else [shape.k]:
        group_bytes = shape.kind.group * depth * shape.kind.bits // 8
        for data_banks in range(1, BANKS):
            ring = (BANKS - data_banks) * bank_bytes()
            rows = min(
                shape.m, MAX_SIZE, data_banks * bank_bytes() // ENTRY_BYTES // _row_entries(shape, depth)
            )
            if group_bytes > ring:
                rows = min(rows, STRIPE)  # a group larger than its banks is streamed, only with one stripe
            if not shape.c_native and shape.line_atoms - 1 > MAX_NOTCH:
                rows = min(rows, 1)  # the pitch of C does not fit its field
            resident = ring // group_bytes * shape.kind.group
            most = min(shape.n, MAX_KERNELS)
            for count in {rows, rows // STRIPE * STRIPE} - {0}:
                for columns in {most, min(most, resident)} - {0}:
                    yield _Cut(depth, count, columns, data_banks, columns <= resident)


def _row_entries(shape: ProductShape, depth: int) -> int:
    """CBUF entries of a row of A: a slab of four atoms each [HW 4.5]."""
    return -(-depth * shape.kind.bits // 8 // ENTRY_BYTES)


def _cost(shape: ProductShape, cut: _Cut) -> tuple[float, int, int]:
    """Return cycles, bytes moved and number of tasks of a division.

    The array waits for a task's rows of A.  It also waits for the weights that do not fit their ring while
    it works on the previous group: the ring has free space beyond one group, and the last stripe frees
    space as it proceeds.  Weights, sums and results share the bandwidth to DRAM.
    """
    groups = shape.n // shape.kind.group
    row_tiles, column_tiles = -(-shape.m // cut.rows), -(-shape.n // cut.columns)
    parts = parts_of_k(shape, cut.depth)
    moved = shape.a_bytes * column_tiles
    cycles = moved / CORE_BYTES
    sums = shape.m * shape.n * SUM_BYTES
    for first, depth in parts:
        work = 0.0
        for rows, count in ((cut.rows, shape.m // cut.rows), (shape.m % cut.rows, 1)):
            work += count * groups * _group_cycles(shape, cut, -(-rows // STRIPE), depth)
        weights = shape.n * depth * shape.kind.bits // 8 * (1 if cut.resident else row_tiles)
        results = shape.c_bytes if first + depth == shape.k else sums
        rest = weights + results + (sums if first else 0)
        cycles += max(work, rest / CORE_BYTES)
        moved += rest
    tasks = row_tiles * column_tiles * len(parts)
    return cycles + tasks * TASK_CYCLES, moved, tasks


def _group_cycles(shape: ProductShape, cut: _Cut, stripes: int, depth: int) -> float:
    """Cycles of a kernel group of a task: those of the array or the writer, plus the wait for weights."""
    kind = shape.kind
    stripe = STRIPE * max(depth // CHANNEL_STEP, kind.group // kind.c_step)
    if cut.resident or not stripes:
        return stripes * stripe
    weights = kind.group * depth * kind.bits // 8
    spare = max((BANKS - cut.data_banks) * bank_bytes() - weights, 0)
    late = (weights - spare) / CORE_BYTES - stripe
    return max(stripes * stripe + max(late, 0.0), weights / CORE_BYTES)


def _tiles(shape: ProductShape, cut: _Cut) -> Iterator[MatmulTile]:
    """Yield the tiles with the parts of K outermost, so that writers and readers of sums are far apart."""
    for first, depth in parts_of_k(shape, cut.depth):
        for column in range(0, shape.n, cut.columns):
            for row in range(0, shape.m, cut.rows):
                yield MatmulTile(
                    row,
                    min(cut.rows, shape.m - row),
                    column,
                    min(cut.columns, shape.n - column),
                    first,
                    depth,
                    cut.data_banks,
                    BANKS - cut.data_banks,
                    reuse=cut.resident and row > 0,
                    adds=first > 0,
                    last=first + depth == shape.k,
                )
