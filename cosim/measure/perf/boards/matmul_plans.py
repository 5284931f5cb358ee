"""How the software of published matrix products divided them, from its open sources.

The products of the source `notes-device-split` were run by gregordinary/rocket-userspace, whose planner is
public (commit e067786, src/rocket_matmul.c: `rocket_matmul_plan`).  Its rules, restated: at most 256 rows
and 256 columns; the largest part of K, a multiple of 32, whose operands fit the twelve banks; if both N and
K have to be divided, 128 columns, with a new part of K.  The parts of K are outermost and each is a submit
of at most 64 tasks; within it the columns of the same rows follow each other and use the rows again
(DATA_REUSE).  Sums of earlier parts, fp16, are read and added by ERDMA.  The submits that it counts, 1 to
16, agree with that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rkcosim.compiler.matmul import KINDS, Matmul
from rkcosim.compiler.matmul.tiling import MatmulTile, parts_of_k
from rkcosim.spec.types import BANK_BYTES, BANKS

SIDE = 256
"""Largest number of rows and of columns of a task."""
HALF_BYTES = 2
"""Bytes of a sum, fp16."""
STEP = 32
"""Parts of K are multiples of this."""
BATCH = 64
"""Largest number of tasks of a submit."""


@dataclass(frozen=True)
class Cut:
    """Rows, columns and part of K of a task."""

    rows: int
    columns: int
    depth: int


def _banks(lines: int, depth: int) -> int:
    return -(-lines * depth * 2 // BANK_BYTES)


def _cut(product: Matmul) -> Cut:
    rows, columns = min(product.m, SIDE), min(product.n, SIDE)
    depth = _deepest(product.k, rows, columns)
    if columns < product.n and depth < product.k:
        columns = SIDE // 2
        depth = _deepest(product.k, rows, columns)
    return Cut(rows, columns, depth)


def _deepest(k: int, rows: int, columns: int) -> int:
    depth = k // STEP * STEP
    while depth > STEP and _banks(rows, depth) + _banks(columns, depth) > BANKS:
        depth -= STEP
    return depth


def resident(m: int, k: int, n: int) -> tuple[Matmul, int]:
    """Return an fp16 product M x K x N divided as that software divides it, and the number of its submits."""
    product = Matmul(KINDS["float16 x float16 -> float16"], m, k, n, c_native=True)
    cut = _cut(product)
    parts = parts_of_k(product, cut.depth)
    tasks = -(-product.m // cut.rows) * -(-product.n // cut.columns)
    return product.with_tiles(tiles_of(product, cut)), len(parts) * -(-tasks // BATCH)


def tiles_of(product: Matmul, cut: Cut) -> Iterator[MatmulTile]:
    """Yield the tasks of a product that is divided in this way."""
    for first, depth in parts_of_k(product, cut.depth):
        for row in range(0, product.m, cut.rows):
            rows = min(cut.rows, product.m - row)
            banks = _banks(rows, depth)
            for column in range(0, product.n, cut.columns):
                yield MatmulTile(
                    row,
                    rows,
                    column,
                    min(cut.columns, product.n - column),
                    first,
                    depth,
                    banks,
                    BANKS - banks,
                    adds=first > 0,
                    last=first + depth == product.k,
                    data_reuse=column > 0,
                    sum_bytes=HALF_BYTES,
                )
