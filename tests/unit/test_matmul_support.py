"""Which products are taken: the table of docs/rknn_api.md, the checks, and what boards were seen to do."""

from __future__ import annotations

import ctypes as ct
import itertools
from collections.abc import Iterator

import pytest

import rkcosim.rknn_api as rk
from rkcosim.golden.task import GoldenNpu
from rkcosim.rknn_api.matmul_support import (
    CREATE,
    FIELDS,
    NAMES,
    ROWS,
    SET_IO_MEM,
    SOURCES,
    Board,
    line_of,
    row_of,
    rows_of,
)
from rkcosim.rknn_api.state import runtime

BAD = rk.RKNN_ERR_PARAM_INVALID
PER_CHANNEL_LINE = (
    "rknn_matmul_create, B_quant_type = RKNN_QUANT_TYPE_PER_CHANNEL_SYM, only supported matmul dtype : "
    "RKNN_INT8_MM_INT8_TO_INT8 and RKNN_INT8_MM_INT8_TO_INT32"
)
"""Printed by a board (airockchip/rknn-toolkit2#550, librknnrt 2.3.2)."""


@pytest.fixture(autouse=True)
def device() -> Iterator[None]:
    rk.use_device(GoldenNpu(1))
    yield
    for handle in list(runtime.contexts):
        assert rk.rknn_matmul_destroy(handle) == rk.RKNN_SUCC
    rk.use_device(None)


def create(info: rk.rknn_matmul_info) -> tuple[int, rk.rknn_matmul_ctx, rk.rknn_matmul_io_attr]:
    ctx, io = rk.rknn_matmul_ctx(), rk.rknn_matmul_io_attr()
    return rk.rknn_matmul_create(ctx, info, io), ctx, io


def info_of(kind: int, **members: int) -> rk.rknn_matmul_info:
    return rk.rknn_matmul_info(M=4, K=32, N=64, type=int(kind), **members)


def test_boards() -> None:
    """What boards returned, by type: oRKLLM/ork-driver @b4186fa (1-4, 10; 5-8, 11, 12, 15), opi5 (9)."""
    codes = {kind: create(info_of(kind))[0] for kind in range(16)}
    assert [kind for kind, code in codes.items() if code == rk.RKNN_SUCC] == [1, 2, 3, 4, 9, 10]
    assert {code for code in codes.values() if code} == {-5}
    per_channel = {kind: create(info_of(kind, B_quant_type=2))[0] for kind in (1, 2, 3, 4, 9, 10)}
    assert per_channel == {1: -5, 2: 0, 3: 0, 4: -5, 9: -5, 10: -5}


def test_lines_of_boards(caplog: pytest.LogCaptureFixture) -> None:
    assert create(info_of(rk.RKNN_INT8_MM_INT8_TO_FLOAT32, B_quant_type=2))[0] == BAD
    assert PER_CHANNEL_LINE in caplog.text
    assert create(info_of(rk.RKNN_INT8_MM_INT4_TO_INT32))[0] == BAD
    assert "unsupported matmul dtype: RKNN_INT8_MM_INT4_TO_INT32 in this platform" in caplog.text
    caplog.clear()
    assert create(info_of(rk.RKNN_INT8_MM_INT8_TO_INT32, B_quant_type=2))[0] == rk.RKNN_SUCC
    assert "librknnrt 2.3.2 writes zeros for B per channel" in caplog.text
    assert create(info_of(rk.RKNN_INT8_MM_INT8_TO_FLOAT32, B_quant_type=4, group_size=32))[0] == BAD
    assert "librknnrt 2.3.2 returns success and writes zeros for it" in caplog.text


def test_dims_of_boards() -> None:
    """Dimensions that boards returned (rknpu2-layout-dims-probe.c: unimatrix099/rk-llama.cpp @0292a4e)."""
    for kind, m, a_dims, c_dims in (
        (rk.RKNN_INT4_MM_INT4_TO_INT16, 5, [64, 5, 32], [256, 5, 8]),
        (rk.RKNN_INT4_MM_INT4_TO_INT16, 128, [64, 128, 32], [256, 128, 8]),
        (rk.RKNN_INT8_MM_INT8_TO_INT32, 32, [128, 32, 16], [512, 32, 4]),
    ):
        given = rk.rknn_matmul_info(M=m, K=2048, N=2048, type=int(kind), B_layout=1, AC_layout=1)
        code, _, io = create(given)
        assert code == rk.RKNN_SUCC
        assert list(io.A.dims[: io.A.n_dims]) == a_dims and list(io.C.dims[: io.C.n_dims]) == c_dims


def test_rows() -> None:
    """Every row has what its verdict needs, and each source is used."""
    for row in ROWS:
        assert row.board is Board.UNKNOWN or row.sources, row
        assert bool(row.code) == bool(row.line), row
        assert (row.code != 0) or row.board is not Board.REFUSES, row
        assert (row.code == 0) or row.board not in (Board.TAKES, Board.DOCUMENTED), row
    assert {key for row in ROWS for key in row.sources} == set(SOURCES)


def infos() -> Iterator[rk.rknn_matmul_info]:
    """Every combination of type, layouts and quantisation, with one value outside of each enumeration."""
    ranges = [range(-1, max(NAMES[field]) + 2) for field in FIELDS if field in NAMES]
    for values in itertools.product(*ranges):
        yield rk.rknn_matmul_info(M=1, K=32, N=64, **dict(zip(NAMES, values, strict=True)))


def test_calls_follow_the_table(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("CRITICAL", "rkcosim.rknn_api")
    used = set()
    for info in infos():
        judged = list[int]()
        for row in rows_of(info):
            used.add(row)
            judged.append(row.code if row.call == CREATE else 0)
            if judged[-1]:
                break
        code, ctx, io = create(info)
        assert code == judged[-1], [getattr(info, field) for field in FIELDS]
        if code:
            continue
        row = row_of("B_layout", info)
        memory = rk.rknn_create_mem(ctx, io.B.size)
        assert rk.rknn_matmul_set_io_mem(ctx, memory, ct.byref(io.B)) == row.code
        assert not row.code or (row.call == SET_IO_MEM and line_of(row, info) in str(rk.last_error(ctx)))
        assert rk.rknn_matmul_destroy(ctx) == rk.RKNN_SUCC
    used.add(row_of("iommu_domain_id", info_of(2, iommu_domain_id=16)))
    assert used == set(ROWS)


def test_domains_have_no_effect() -> None:
    assert {create(info_of(2, iommu_domain_id=domain))[0] for domain in (0, 1, 15, 16)} == {rk.RKNN_SUCC}
