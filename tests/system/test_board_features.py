"""Numbers that boards gave, held against the golden model and the RTL: how features are read.

`board` marks name the rules of docs/reference, the key of the source there, and the place in it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.models.board_bench import BN, FP16, MAIN, Board, Task, flying, open_board, pixels


@pytest.fixture(scope="module", params=["golden", "verilator"])
def board(request: pytest.FixtureRequest) -> Iterator[Board]:
    with open_board(request.param) as opened:
        yield opened


@pytest.mark.board(
    "4.1.1", "4.1.2", source="iree-columns", place="conv_2d_tile: width-partitioned tasks, 289 captures"
)
def test_columns_of_a_wider_map(board: Board) -> None:
    """GROUP_LINE_OFF 1, LINE_STRIDE the map's width, SURF_STRIDE its area less the tile's width."""
    channels, rows, columns, first, width = 24, 3, 12, 4, 5
    rng = np.random.default_rng(8)
    values = rng.integers(-9, 10, (channels, rows, columns)).astype(np.float16)
    atoms = values.reshape(channels // 8, 8, rows, columns).transpose(0, 2, 3, 1)
    task = Task("CNA", "CORE", "DPU")
    task.set("CNA", "CONV_CON1", IN_PRECISION=FP16, PROC_PRECISION=FP16, GROUP_LINE_OFF=1)
    task.set("CNA", "CONV_CON2", FEATURE_GRAINS=rows)
    task.set("CNA", "CONV_CON3", CONV_Y_STRIDE=1, CONV_X_STRIDE=1)
    task.set("CNA", "DATA_SIZE0", DATAIN_WIDTH=width, DATAIN_HEIGHT=rows)
    task.set("CNA", "DATA_SIZE1", DATAIN_CHANNEL=channels, DATAIN_CHANNEL_REAL=channels - 1)
    task.set("CNA", "DATA_SIZE2", DATAOUT_WIDTH=width).set("CNA", "DATA_SIZE3", DATAOUT_ATOMICS=width * rows)
    task.set("CNA", "WEIGHT_SIZE0", WEIGHT_BYTES=16 * 32 * 2).set(
        "CNA", "WEIGHT_SIZE1", WEIGHT_BYTES_PER_KERNEL=64
    )
    task.set("CNA", "WEIGHT_SIZE2", WEIGHT_WIDTH=1, WEIGHT_HEIGHT=1, WEIGHT_KERNELS=16)
    task.set("CNA", "CBUF_CON0", DATA_BANK=1, WEIGHT_BANK=11).set("CNA", "CBUF_CON1", DATA_ENTRIES=width)
    task.set("CNA", "CVT_CON0", DATA_SIGN=1, CVT_TYPE=1, CVT_BYPASS=1)
    task.set("CNA", "FC_DATA_SIZE0", DMA_WIDTH=width, DMA_HEIGHT=rows)
    task.set("CNA", "FC_DATA_SIZE1", DMA_CHANNEL=channels)
    task.word("CNA", "FEATURE_DATA_ADDR", MAIN + 16 * first).word("CNA", "DCOMP_ADDR0", BN)
    task.set("CNA", "DMA_CON0", WEIGHT_BURST_LEN=15, DATA_BURST_LEN=15)
    task.set("CNA", "DMA_CON1", LINE_STRIDE=columns)
    task.set("CNA", "DMA_CON2", SURF_STRIDE=rows * columns - width)
    task.set("CORE", "MISC_CFG", PROC_PRECISION=FP16)
    task.set("CORE", "DATAOUT_SIZE_0", DATAOUT_WIDTH=width - 1, DATAOUT_HEIGHT=rows - 1)
    task.set("CORE", "DATAOUT_SIZE_1", DATAOUT_CHANNEL=15)
    plain = flying(FP16, channels=16, width=width, height=rows, size_e=1, group=2 * width * rows)
    task.values |= {place: value for place, value in plain.values.items() if place[0] == "DPU"}
    task.set("DPU", "FEATURE_MODE_CFG", FLYING_MODE=0)
    kernels = np.zeros((16, 32), np.float16)
    kernels[np.arange(16), np.arange(16) + 8] = 1  # the output is channels 8 to 23
    board.load({MAIN: atoms.tobytes(), BN: kernels.tobytes()})
    state = board.kick([task])
    assert not state, state
    got = pixels(board.read(16 * width * rows, "<f2"), width * rows, 16).reshape(rows, width, 16)
    np.testing.assert_array_equal(got, values[8:, :, first : first + width].transpose(1, 2, 0))
