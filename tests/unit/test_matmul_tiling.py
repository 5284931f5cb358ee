"""Tiling of matrix products: every product of a row, a column and a k once, in tasks that fit CBUF."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rkcosim.compiler.matmul import KINDS, SUM_BYTES, Matmul, MatmulError, MatmulKind, MatmulTile
from rkcosim.regcmd import TaskBuilder
from rkcosim.regcmd.disassembler import disassemble
from rkcosim.spec.types import BANK_BYTES, BANKS, ENTRY_BYTES, STRIPE

FLOAT = KINDS["float16 x float16 -> float32"]


@st.composite
def products(draw: st.DrawFn) -> Matmul:
    """Products of any type and layout, up to a few hundred thousand elements per matrix."""
    kind = draw(st.sampled_from(list(KINDS.values())))
    return Matmul(
        kind,
        draw(st.integers(1, 700)),
        32 * draw(st.integers(1, 300)),
        kind.group * draw(st.integers(1, 40)),
        draw(st.booleans()),
        draw(st.booleans()),
        draw(st.booleans()),
    )


def rows_fit(kind: MatmulKind, tile: MatmulTile) -> bool:
    entries = -(-tile.depth * kind.bits // 8 // ENTRY_BYTES)
    return tile.rows * entries * ENTRY_BYTES <= tile.data_banks * BANK_BYTES


def weights_fit(kind: MatmulKind, tile: MatmulTile) -> bool:
    column = tile.depth * kind.bits // 8
    ring = tile.weight_banks * BANK_BYTES
    if tile.reuse:
        return tile.columns * column <= ring
    return tile.rows <= STRIPE or kind.group * column <= ring


def values_of(builder: TaskBuilder) -> dict[str, int]:
    """Values by path, such as DPU.DST_BASE_ADDR."""
    commands = disassemble(builder.words())
    return {command.register.path: command.value for command in commands if command.register is not None}


@settings(max_examples=150, deadline=None)
@given(products())
def test_tiles_cover_the_product_and_fit(p: Matmul) -> None:
    work = 0
    seen: Counter[tuple[int, int]] = Counter()
    for tile in p.tiles:
        assert rows_fit(p.kind, tile) and weights_fit(p.kind, tile)
        assert tile.data_banks + tile.weight_banks == BANKS
        assert tile.adds == (tile.first > 0) and tile.last == (tile.first + tile.depth == p.k)
        assert (tile.first, tile.depth) in p.parts
        work += tile.rows * tile.columns * tile.depth
        seen[tile.row, tile.column] += 1
    assert work == p.m * p.n * p.k
    assert set(seen.values()) == {len(p.parts)}
    assert sum(depth for _, depth in p.parts) == p.k
    if p.whole_k or p.kind.bits == 4 or p.kind.out_bits == 8:
        assert p.parts == [(0, p.k)] and p.sums_bytes == 0


@settings(max_examples=60, deadline=None)
@given(products())
def test_sums_are_read_where_they_were_written(p: Matmul) -> None:
    """Sums of different tiles never overlap, each is within its space, a part reads the sums before it."""
    sums, places = 1 << 30, {}
    for tile, builder in zip(p.tiles, p.builders(1 << 20, 1 << 24, 1 << 28, sums=sums), strict=True):
        values = values_of(builder)
        key, size = (tile.row, tile.column), tile.rows * tile.columns * SUM_BYTES
        if not tile.last:
            start = values["DPU.DST_BASE_ADDR"]
            assert sums <= start and start + size <= sums + p.sums_bytes
            assert places.setdefault(key, (start, size)) == (start, size)
        if tile.adds:
            assert values["DPU_RDMA.EW_BASE_ADDR"] == places[key][0]
    ends = sorted(places.values())
    assert all(start + size <= after for (start, size), (after, _) in pairwise(ends))


@pytest.mark.parametrize(("m", "k", "n"), [(512, 3840, 4096), (1024, 3840, 4096), (512, 2048, 2048)])
def test_long_rows_are_cut_into_parts_of_k(m: int, k: int, n: int) -> None:
    """Published products [HW 12.3]: no matrix is read again for every few rows or columns of the other."""

    def moved(p: Matmul) -> int:
        read = sum(tile.depth * (tile.rows + tile.columns * (not tile.reuse)) * 2 for tile in p.tiles)
        return read + sum(tile.rows * tile.columns * SUM_BYTES * (1 + tile.adds) for tile in p.tiles)

    whole, parts = Matmul(FLOAT, m, k, n, whole_k=True), Matmul(FLOAT, m, k, n)
    assert len(parts.parts) > 1
    assert moved(parts) < 0.75 * moved(whole)
    assert all(tile.rows % STRIPE == 0 for tile in parts.tiles)


def test_short_rows_stay_whole() -> None:
    assert len(Matmul(FLOAT, 128, 1024, 8192).parts) == 1


def test_a_row_that_does_not_fit_is_refused() -> None:
    with pytest.raises(MatmulError, match="up to 65504"):
        Matmul(FLOAT, 1, 65536, 16)
