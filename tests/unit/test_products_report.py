"""Rows about matrix products, and shares of several cores."""

from __future__ import annotations

import ctypes as ct
from collections.abc import Iterator
from dataclasses import replace

import pytest

import rkcosim.rknn_api as rk
from rkcosim.compiler.runtime import LayerReport, TaskMeasure
from rkcosim.golden.task import GoldenNpu
from rkcosim.measure.models.products import ProductRow, merged, product_lines, product_rows
from rkcosim.measure.models.rows import layer_row
from rkcosim.rknn_api.state import runtime

INT4 = ProductRow(
    kind="int4 x int4 -> int16",
    m=128,
    k=2048,
    n=2048,
    b_layout="NATIVE",
    ac_layout="NORM",
    core=0,
    runs=1,
    tasks=4,
    cycles=300_000,
    macs=128 * 2048 * 2048,
    utilisation=0.87,
    bytes_read=3_000_000,
    bytes_written=500_000,
    bound="array",
    conversions=1,
    converted_bytes=3_500_000,
)


@pytest.fixture(autouse=True)
def device() -> Iterator[GoldenNpu]:
    made = GoldenNpu(1)
    rk.use_device(made)
    yield made
    for handle in list(runtime.contexts):
        rk.rknn_matmul_destroy(handle)
    rk.use_device(None)


def test_rows_of_int4_are_converted_on_boards() -> None:
    """24.2 ms on a board (unimatrix099/rk-llama.cpp @0292a4e, native-layout-plan, 6) for this product."""
    assert INT4.rows_ms == pytest.approx(24.2, rel=0.02)
    for other in (
        replace(INT4, m=1),
        replace(INT4, ac_layout="NATIVE"),
        replace(INT4, kind="int8 x int8 -> int32"),
    ):
        assert other.rows_ms is None
    assert "at about 44 GOPS, 24.4 ms for 128 x 2048 x 2048; the native" in product_lines([INT4], 3)[-1]


def test_share_of_the_conversion() -> None:
    assert INT4.converted_share == 0.5
    assert replace(INT4, runs=3).converted_share == 0.25
    assert replace(INT4, bytes_read=None).converted_share is None
    assert replace(INT4, bytes_read=None).as_json()["converted_share"] is None


def test_equal_products_share_a_row() -> None:
    rows = merged([INT4, replace(INT4, core=1), replace(INT4, runs=2, cycles=500_000, conversions=0)])
    assert [(row.core, row.runs, row.cycles, row.conversions) for row in rows] == [
        (0, 3, 800_000, 1),
        (1, 1, 300_000, 1),
    ]
    assert INT4.runs == 1
    lines = product_lines(rows, 3)
    assert lines[0].startswith("4 runs of products: 1.100 ms of the NPU at 1 GHz")
    assert lines[0].endswith("MAC use 29.0% of 3 cores")
    assert "0.132 ms in all; a product that is divided among cores needs a run on each [" in lines[1]
    unmeasured = [replace(INT4, cycles=None, ac_layout="NATIVE")]
    assert product_lines(unmeasured, 1) == []


def test_rows_of_a_context(device: GoldenNpu) -> None:
    """Two runs after one conversion of B; the golden model has no time and measures no bytes."""
    m, k, n = 3, 64, 32
    info, ctx, io = rk.rknn_matmul_info(M=m, K=k, N=n, type=2), rk.rknn_matmul_ctx(), rk.rknn_matmul_io_attr()
    assert rk.rknn_matmul_create(ctx, info, io) == rk.RKNN_SUCC
    state = runtime.contexts[ctx.value]
    assert product_rows(state, device) == []
    for name in "ABC":
        attr = getattr(io, name)
        memory = rk.rknn_create_mem(ctx, attr.size)
        assert rk.rknn_matmul_set_io_mem(ctx, memory, ct.byref(attr)) == rk.RKNN_SUCC
    for _ in range(2):
        assert rk.rknn_matmul_run(ctx) == rk.RKNN_SUCC
    (row,) = product_rows(state, device)
    assert (row.kind, row.m, row.k, row.n, row.b_layout, row.runs) == (
        "int8 x int8 -> int32",
        m,
        k,
        n,
        "NORM",
        2,
    )
    assert (row.cycles, row.utilisation, row.bytes_read, row.bound) == (None, None, None, None)
    assert (row.conversions, row.converted_bytes) == (1, 2 * k * n)


def test_shares_of_a_layer_on_several_cores() -> None:
    """1.41 times the work of one array on three of them is 47 % of all (it was 141 %)."""
    measures = tuple(TaskMeasure(1000, 10, 10, mac_busy=500, core=core, start=0) for core in range(3))
    macs = round(1.41 * 1000 * 1024)
    layer = LayerReport("a", "Conv", "npu", 3, 1000, macs, 30, 30, 1500, (), (), 1500, measures=measures)
    row = layer_row(layer)
    assert row.utilisation == pytest.approx(0.47, abs=1e-3) and row.mac_busy == 0.5
    assert row.formula_npu == 500 and row.formula_cycles <= 1000  # a lower bound of the cycles
    alone = layer_row(replace(layer, measures=measures[:1], macs=macs // 2, mac_busy=500, formula_npu=500))
    assert alone.utilisation == pytest.approx(0.705, abs=1e-3) and alone.mac_busy == 0.5
