"""Numbers that boards gave, held against the golden model and the RTL: how features are read.

`board` marks name the rules of docs/reference, the key of the source there, and the place in it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.makers.board_bench import BN, MAIN, Board, convolution, open_board, pixels


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
    task = convolution(rows, width, 32, 16).set("CNA", "CONV_CON1", GROUP_LINE_OFF=1)
    task.set("CNA", "DATA_SIZE1", DATAIN_CHANNEL=channels, DATAIN_CHANNEL_REAL=channels - 1)
    task.set("CNA", "FC_DATA_SIZE1", DMA_CHANNEL=channels)
    task.word("CNA", "FEATURE_DATA_ADDR", MAIN + 16 * first)
    task.set("CNA", "DMA_CON1", LINE_STRIDE=columns)
    task.set("CNA", "DMA_CON2", SURF_STRIDE=rows * columns - width)
    kernels = np.zeros((16, 32), np.float16)
    kernels[np.arange(16), np.arange(16) + 8] = 1  # the output is channels 8 to 23
    board.load({MAIN: atoms.tobytes(), BN: kernels.tobytes()})
    state = board.kick([task])
    assert not state, state
    got = pixels(board.read(16 * width * rows, "<f2"), width * rows, 16).reshape(rows, width, 16)
    np.testing.assert_array_equal(got, values[8:, :, first : first + width].transpose(1, 2, 0))
