"""Numbers that boards gave, held against the golden model and the RTL: convolutions and pools.

`board` marks name the rules of docs/reference, the key of the source there, and the place in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from tests.makers.board_bench import (
    BN,
    ELEMENT,
    MAIN,
    OUT,
    Board,
    Task,
    convolution,
    cube,
    open_board,
    pixels,
)

SOURCE = np.array([[1, 2], [3, 4]])
KERNEL = np.arange(1, 10).reshape(3, 3)
CHANNELS, KERNELS = 32, 16


@pytest.fixture(scope="module", params=["golden", "verilator"])
def board(request: pytest.FixtureRequest) -> Iterator[Board]:
    with open_board(request.param) as opened:
        yield opened


def transposed(
    board: Board,
    kernel: np.ndarray,
    stride: tuple[int, int],
    dilation: tuple[int, int],
    pads: tuple[int, int],
    height: int,
    width: int,
) -> np.ndarray:
    """Channel 0 of DECONV over SOURCE; the kernel is turned round in memory."""
    sides = (kernel.shape[0], kernel.shape[1])
    task = convolution(2, 2, CHANNELS, KERNELS, sides, (height, width))
    task.set("CNA", "CONV_CON1", DECONV=1).set("CNA", "PAD_CON0", PAD_TOP=pads[0], PAD_LEFT=pads[1])
    task.set("CNA", "CONV_CON3", DECONV_Y_STRIDE=stride[0] - 1, DECONV_X_STRIDE=stride[1] - 1)
    task.set("CNA", "CONV_CON3", ATROUS_Y_DILATION=dilation[0] - 1, ATROUS_X_DILATION=dilation[1] - 1)
    area = width * height
    features = np.zeros((4, CHANNELS), np.float16)
    features[:, 0] = SOURCE.ravel()
    weights = np.zeros((kernel.size, KERNELS, CHANNELS), np.float16)
    weights[:, 0, 0] = kernel[::-1, ::-1].ravel()
    board.load({MAIN: cube(features), BN: weights.tobytes()})
    state = board.kick([task])
    assert not state, state
    return pixels(board.read(KERNELS * area, "<f2"), area, KERNELS)[:, 0].reshape(height, width)


@pytest.mark.parametrize(
    ("kernel", "stride", "dilation"),
    [
        (np.ones((1, 1), int), (2, 2), (1, 1)),
        (KERNEL, (1, 1), (1, 1)),
        (KERNEL, (2, 1), (1, 1)),
        (KERNEL, (1, 2), (1, 1)),
        (KERNEL, (2, 2), (1, 1)),
        (KERNEL, (1, 1), (2, 2)),
    ],
)
@pytest.mark.board("5.6.1", "5.6.2", "5.6.4", source="deconv-probe", place="main: six combinations")
def test_transposed_convolutions(
    board: Board, kernel: np.ndarray, stride: tuple[int, int], dilation: tuple[int, int]
) -> None:
    far = [(side - 1) * step for side, step in zip(kernel.shape, dilation, strict=True)]
    height, width = stride[0] + far[0] + 1, stride[1] + far[1] + 1
    expected = np.zeros((height, width))
    for (y, x), value in np.ndenumerate(SOURCE):
        for (v, u), factor in np.ndenumerate(kernel):
            expected[y * stride[0] + v * dilation[0], x * stride[1] + u * dilation[1]] += value * factor
    got = transposed(board, kernel, stride, dilation, (far[0], far[1]), height, width)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.board("5.6.4", source="deconv-probe", place="main: 1 x 1, shifted by PAD_TOP 1 and PAD_LEFT 2")
def test_padding_shifts_a_transposed_convolution(board: Board) -> None:
    got = transposed(board, np.ones((1, 1), int), (1, 1), (1, 1), (1, 2), 3, 4)
    assert got.tolist() == [[0, 0, 0, 0], [0, 0, 1, 2], [0, 0, 3, 4]]


@pytest.mark.parametrize(
    ("height", "width", "window", "stride"),
    [
        (9, 17, (1, 8), (1, 1)),
        (256, 32, (1, 8), (1, 8)),
        (256, 4, (1, 4), (1, 4)),
        (9, 13, (2, 2), (1, 1)),
        (9, 13, (3, 3), (3, 3)),
    ],
)
@pytest.mark.board(
    "9.1.2", "9.1.4", source="sliding-probe", place="_CASES of 8 channels but those of 16 columns"
)
def test_maxima_of_eight_channels(
    board: Board, height: int, width: int, window: tuple[int, int], stride: tuple[int, int]
) -> None:
    values = np.random.default_rng(42).uniform(-8, 8, (height, width, 8)).astype(np.float16)
    slid = np.lib.stride_tricks.sliding_window_view(values, window, (0, 1))
    expected = slid[:: stride[0], :: stride[1]].max((-2, -1))
    rows, columns = expected.shape[:2]
    task = Task("PPU", "PPU_RDMA")
    for part, sides in (("IN", (height, width)), ("OUT", (rows, columns))):
        for axis, count in zip(("HEIGHT", "WIDTH", "CHANNEL"), (*sides, 8), strict=True):
            task.set("PPU", f"DATA_CUBE_{part}_{axis}", **{f"DATA_CUBE_{part}_{axis}": count - 1})
    task.set("PPU", "OPERATION_MODE_CFG", FLYING_MODE=1, POOLING_METHOD=1)
    task.set("PPU", "POOLING_KERNEL_CFG", KERNEL_HEIGHT=window[0] - 1, KERNEL_WIDTH=window[1] - 1)
    task.set(
        "PPU", "POOLING_KERNEL_CFG", KERNEL_STRIDE_HEIGHT=stride[0] - 1, KERNEL_STRIDE_WIDTH=stride[1] - 1
    )
    task.word("PPU", "DST_BASE_ADDR", OUT).set("PPU", "DST_SURF_STRIDE", DST_SURF_STRIDE=rows * columns)
    task.set("PPU", "DATA_FORMAT", PROC_PRECISION=2, INDEX_ADD=rows * columns)
    for axis, count in (("HEIGHT", height), ("WIDTH", width), ("CHANNEL", 8)):
        task.set("PPU_RDMA", f"CUBE_IN_{axis}", **{f"CUBE_IN_{axis}": count - 1})
    task.word("PPU_RDMA", "SRC_BASE_ADDR", ELEMENT).set("PPU_RDMA", "SRC_LINE_STRIDE", SRC_LINE_STRIDE=width)
    task.set("PPU_RDMA", "SRC_SURF_STRIDE", SRC_SURF_STRIDE=width * height)
    task.set("PPU_RDMA", "DATA_FORMAT", IN_PRECISION=2)
    board.load({ELEMENT: values.tobytes()})
    state = board.kick([task])
    assert not state, state
    got = board.read(expected.size, "<f2").reshape(expected.shape)
    np.testing.assert_array_equal(got, expected)


# The words of EW_CFG of the source, and what they compute.
OPERATIONS: dict[int, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    0x108202C0: np.add,
    0x108003C4: np.multiply,
    0x108002C0: np.maximum,
    0x108102C0: np.minimum,
}


@pytest.mark.parametrize("word", OPERATIONS)
@pytest.mark.board(
    "8.5.1",
    "8.5.3",
    "7.8.4",
    "7.8.5",
    source="rocket-operations",
    place="ew_mul_rocket.c, ew_minmax_rocket.c",
)
def test_operand_of_a_convolution_comes_from_both_readers(board: Board, word: int) -> None:
    """A product with the unit matrix, and its operand by COMB_USE 5: the source's operands and strides."""
    rows, channels = 16, 32
    index = np.arange(rows * channels)
    main = ((index * 7 % 13 - 6) * 0.25).astype(np.float16).reshape(rows, channels)
    other = ((index * 5 % 11 - 5) * 0.3).astype(np.float16).reshape(rows, channels)
    task = convolution(rows, 1, channels, channels)
    task.blocks = (*task.blocks, "DPU_RDMA")
    task.set("DPU_RDMA", "S_POINTER", POINTER_PP_MODE=1, EXECUTER_PP_EN=1, POINTER_PP_EN=1)
    task.word("DPU", "EW_CFG", word)
    task.set("DPU_RDMA", "DATA_CUBE_HEIGHT", HEIGHT=rows - 1)
    task.set("DPU_RDMA", "DATA_CUBE_CHANNEL", CHANNEL=channels - 1)
    task.word("DPU_RDMA", "SRC_BASE_ADDR", ELEMENT).word("DPU_RDMA", "EW_BASE_ADDR", ELEMENT + 16 * rows)
    task.word("DPU_RDMA", "ERDMA_CFG", 0x40000008).word("DPU_RDMA", "FEATURE_MODE_CFG", 0x17D40)
    for register in ("EW_SURF_STRIDE", "SURF_NOTCH", "EW_SURF_NOTCH"):
        task.word("DPU_RDMA", register, rows << 4)
    unit = np.zeros((2, 16, channels), np.float16)
    unit[np.arange(channels) // 16, np.arange(channels) % 16, np.arange(channels)] = 1
    board.load({MAIN: cube(main), ELEMENT: cube(other), BN: unit.tobytes()})
    state = board.kick([task])
    assert not state, state
    got = pixels(board.read(rows * channels, "<f2"), rows, channels)
    exact = OPERATIONS[word](main.astype(np.float32), other.astype(np.float32)).astype(np.float16)
    np.testing.assert_array_equal(got, exact)


@pytest.mark.board(
    "7.11.2", "4.1.2", source="ork-rows", place="orki_set_f16_out_fp16in: contiguous, 512 of 512"
)
def test_row_major_matrices(board: Board) -> None:
    """16 x 32 results as rows: NOTCH_ADDR N/8 - 1, SURF_ADD 2 atoms, BS_OW_CFG 0x126, operands in rows."""
    rows, depth, columns = 16, 32, 32
    rng = np.random.default_rng(512)
    left = rng.integers(-8, 9, (rows, depth)).astype(np.float16)
    right = rng.integers(-8, 9, (depth, columns)).astype(np.float16)
    task = convolution(rows, 1, depth, columns).set("CNA", "CONV_CON1", GROUP_LINE_OFF=1)
    task.word("CNA", "DMA_CON1", depth // 8).word("CNA", "DMA_CON2", 0)
    notch = columns // 8 - 1
    task.word("DPU", "DATA_CUBE_NOTCH_ADDR", notch << 16 | notch).word("DPU", "BS_OW_CFG", 0x126)
    task.set("DPU", "DST_SURF_STRIDE", DST_SURF_STRIDE=1).word("DPU", "SURFACE_ADD", 0x20)
    weights = np.ascontiguousarray(right.T.reshape(columns // 16, 16, depth))
    board.load({MAIN: left.tobytes(), BN: weights.tobytes()})
    state = board.kick([task])
    assert not state, state
    got = board.read(rows * columns, "<f2").reshape(rows, columns)
    np.testing.assert_array_equal(got, left.astype(np.float32) @ right.astype(np.float32))
