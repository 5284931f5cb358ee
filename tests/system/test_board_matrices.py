"""Products of matrices of large language models as chains of tasks, by fields.

Programs that their author runs on boards (sources `attention`, `flatquant` and `compressed-products` of
docs/reference): attention whose exponentials the NPU itself makes and masks, the transformation of a matrix
from both sides with a transposition between, and int8 products with compressed weights. A fourth one
(`expert-rows`) takes rows of such products, scales them and looks up SiLU. What the results have to be
follows from mathematics alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest

from rkcosim.regcmd import TaskBuilder
from tests.makers.board_bench import (
    ADD,
    BASE,
    ELEMENT,
    FP32,
    INT8,
    INT16,
    INT32,
    MAIN,
    OUT,
    Board,
    Task,
    convolution,
    element_wise,
    flying,
    open_board,
    operation,
    stage,
)

A, B, C, D, E, F = (BASE + 0x4_0000 * place for place in range(6))

LINE = 0x200
"""LINE_STRIDE of all these programs, whatever the number of rows: a matrix is one line of the features."""


@pytest.fixture(scope="module", params=["golden", "verilator"])
def board(request: pytest.FixtureRequest) -> Iterator[Board]:
    with open_board(request.param) as opened:
        yield opened


def product(rows: int, depth: int, columns: int, a: int, b: int, out: int) -> Task:
    """A product of fp16 matrices that lie in surfaces, one pixel for each row."""
    task = convolution(1, rows, depth, columns)
    task.set("CNA", "DMA_CON1", LINE_STRIDE=LINE).set("CNA", "DMA_CON2", SURF_STRIDE=-3 * rows)
    task.word("CNA", "FEATURE_DATA_ADDR", a).word("CNA", "DCOMP_ADDR0", b)
    return task.word("DPU", "DST_BASE_ADDR", out)


def surfaces(matrix: np.ndarray) -> np.ndarray:
    """A matrix [rows, columns] in atoms of 16 bytes: surface by surface, in it row by row."""
    lanes = 16 // matrix.dtype.itemsize
    return np.ascontiguousarray(matrix.reshape(matrix.shape[0], -1, lanes).transpose(1, 0, 2))


def kernels(matrix: np.ndarray) -> np.ndarray:
    """A second factor [depth, columns] as weights: groups of kernels, in them 32 channels of each."""
    group = 32 // matrix.dtype.itemsize
    depth, columns = matrix.shape
    tiles = matrix.reshape(depth // 32, 32, columns // group, group)
    return np.ascontiguousarray(tiles.transpose(2, 0, 3, 1))


def result(board: Board, rows: int, columns: int, kind: str, at: int) -> np.ndarray:
    lanes = 16 // np.dtype(kind).itemsize
    raw = board.read(rows * columns, kind, at)
    return raw.reshape(-1, rows, lanes).transpose(1, 0, 2).reshape(rows, columns)


def ended(board: Board, tasks: list[Task], data: dict[int, np.ndarray]) -> None:
    """Run tasks that have to end and give no reason for a diagnostic."""
    board.load({address: array.tobytes() for address, array in data.items()})
    state = board.kick(tasks)
    assert not state, state
    assert not board.said()


@pytest.mark.parametrize("rows", [4, 20])
@pytest.mark.board("4.1.2", source="attention", place="DMA_CON1 0x200 and DMA_CON2 -3 M for M of 4 to 1022")
def test_surfaces_are_four_lines_apart_whatever_the_pitch_of_lines(board: Board, rows: int) -> None:
    rng = np.random.default_rng(rows)
    a = rng.integers(-8, 9, (rows, 64)).astype(np.float16)
    b = rng.integers(-8, 9, (64, 32)).astype(np.float16)
    ended(board, [product(rows, 64, 32, A, B, C)], {A: surfaces(a), B: kernels(b)})
    exact = a.astype(np.int64) @ b.astype(np.int64)
    np.testing.assert_array_equal(result(board, rows, 32, "<f2", C), exact)


# --- attention --------------------------------------------------------------------------------------

SHIFT, SLOPE, ONE = 4.0, 1477.0, 15300.6240234375
"""exp(s - SHIFT) is the fp16 number whose bits are SLOPE * s + ONE - SLOPE * SHIFT, within 4 percent; SLOPE
is 1024 / ln 2 in fp16."""


def exponentials(rows: int, keys: int, depth: int, mask: bool) -> Task:
    """A product whose scores become bits of exponentials as int16, times a mask of fp16 at E."""
    task = product(rows, depth, keys, A, B, C)
    task.set("DPU", "DATA_FORMAT", OUT_PRECISION=INT16)
    stage(task, "BS", MUL_BYPASS=0).set("DPU", "BS_MUL_CFG", BS_MUL_OPERAND=0x65C5)
    stage(task, "BN", ALU_BYPASS=0, ALU_ALGO=2, RELU_BYPASS=0)
    task.word("DPU", "BN_ALU_CFG", int(np.float32(ONE - SLOPE * SHIFT).view(np.uint32)))
    if not mask:
        return task
    task.blocks = (*task.blocks, "DPU_RDMA")
    reader = flying(INT16, channels=keys, width=rows)
    task.values |= {place: value for place, value in reader.values.items() if place[0] == "DPU_RDMA"}
    operation(task, None, bits=16, bypass=True)
    task.word("DPU_RDMA", "BRDMA_CFG", 0).word("DPU_RDMA", "NRDMA_CFG", 0)
    task.word("DPU_RDMA", "SRC_BASE_ADDR", E).word("DPU_RDMA", "EW_BASE_ADDR", E + 16 * rows)
    task.word("DPU_RDMA", "FEATURE_MODE_CFG", 0x17D40)  # fp16, COMB_USE 5: both readers in turn
    task.set("DPU_RDMA", "SURF_NOTCH", SURF_NOTCH_ADDR=rows)
    return task.set("DPU_RDMA", "EW_SURF_NOTCH", EW_SURF_NOTCH=rows)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.board(
    "4.1.2",
    "7.5.5",
    "7.7.1",
    "7.8.2",
    "7.10.3",
    "8.5.1",
    source="attention",
    place="Graph::Graph, mask_rdma, Graph::finish",
)
def test_attention(board: Board, causal: bool) -> None:
    """exp(q k) as bits of int16, masked, times values and a column of ones: softmax(q k) v."""
    rows, keys, depth, width = 16, 64, 128, 32
    rng = np.random.default_rng(4)
    q = (rng.standard_normal((rows, depth)) / np.sqrt(depth)).astype(np.float16)
    k = rng.standard_normal((keys, depth)).astype(np.float16)
    v = (rng.integers(-8, 9, (keys, width)) / 8).astype(np.float16)
    mask = np.tri(rows, keys, keys - rows, dtype=np.float16) if causal else np.ones((rows, keys), np.float16)
    values = np.zeros((keys, width + 32), np.float16)
    values[:, :width], values[:, width] = v, 1
    tasks = [exponentials(rows, keys, depth, causal), product(rows, keys, width + 32, C, D, F)]
    ended(board, tasks, {A: surfaces(q), B: kernels(k.T), D: kernels(values), E: surfaces(mask)})
    scores = q.astype(np.float64) @ k.T.astype(np.float64)
    bits = result(board, rows, keys, "<i2", C)
    seen = mask > 0
    assert np.abs(bits - (SLOPE * (scores - SHIFT) + ONE))[seen].max() < 0.51
    assert not bits[~seen].any()
    made = bits.view(np.float16).astype(np.float64)
    exact = np.exp(scores - SHIFT) * mask
    assert np.abs(made[seen] / exact[seen] - 1).max() < 0.04
    sums = result(board, rows, width + 32, "<f2", F).astype(np.float64)
    np.testing.assert_allclose(sums[:, width], made.sum(1), rtol=2**-10)
    np.testing.assert_allclose(sums[:, :width], made @ v.astype(np.float64), atol=made.sum(1).max() * 2**-10)
    attended = sums[:, :width] / sums[:, width : width + 1]
    wanted = exact / exact.sum(1, keepdims=True) @ v.astype(np.float64)
    assert np.abs(attended - wanted).max() < 0.05


# --- a transformation from both sides ---------------------------------------------------------------


def folded(task: Task, rows: int, columns: int) -> Task:
    """The product as packets: each of four rows and of eight channels and the eight behind them."""
    task.set("DPU", "BS_OW_CFG", TP_ORG_EN=1, SIZE_E_0=7, SIZE_E_1=7, SIZE_E_2=7)
    task.set("DPU", "DST_SURF_STRIDE", DST_SURF_STRIDE=1).set("DPU", "SURFACE_ADD", SURF_ADD=8)
    task.set("DPU", "DATA_CUBE_WIDTH", WIDTH=0).set("DPU", "DATA_CUBE_HEIGHT", HEIGHT=rows - 1)
    notch = columns // 2 - 1
    task.set("DPU", "DATA_CUBE_NOTCH_ADDR", NOTCH_ADDR_0=notch, NOTCH_ADDR_1=notch)
    task.set("DPU", "WDMA_SIZE_0", TP_PRECISION=1, SIZE_C_WDMA=columns // 16 - 1, CHANNEL_WDMA=notch)
    return task.set("DPU", "WDMA_SIZE_1", HEIGHT_WDMA=rows // 4 - 1, WIDTH_WDMA=0)


@pytest.mark.board(
    "7.12.1",
    "7.12.2",
    "7.12.3",
    "7.12.4",
    source="flatquant",
    place="flat_regs with fold, flat_pack_input, flat_quantize_native",
)
def test_transformation_from_both_sides(board: Board) -> None:
    """left^T x right of four matrices 16 x 32: the first product is written transposed for the second."""
    left_size, right_size, count = 16, 32, 4
    rng = np.random.default_rng(1)
    x = (rng.integers(-8, 9, (count, left_size, right_size)) / 4).astype(np.float16)
    left = (rng.integers(-4, 5, (left_size, left_size)) / 8).astype(np.float16)
    right = (rng.integers(-4, 5, (right_size, right_size)) / 4).astype(np.float16)
    doubled = np.kron(left, np.eye(2, dtype=np.float16))  # a channel of the fold is a pair of columns
    quads = x.reshape(count, left_size // 4, 4, right_size).transpose(1, 0, 2, 3).reshape(-1, right_size)
    rows, half = quads.shape[0], count * right_size // 2
    first = folded(product(rows, right_size, right_size, A, B, C), rows, right_size)
    second = product(half, 2 * left_size, 2 * left_size, C, D, E)
    ended(board, [first, second], {A: surfaces(quads), B: kernels(right), D: kernels(doubled)})
    once = x.astype(np.float64) @ right.astype(np.float64)
    twice = left.T.astype(np.float64) @ once
    for at, wanted, error in ((C, once, 0), (E, twice, 2**-10)):
        got = result(board, half, 2 * left_size, "<f2", at).astype(np.float64)
        # rows: matrix, columns in 16s, place in the eight; channels: row of the matrix, eight of the 16
        got = got.reshape(count, right_size // 16, 8, left_size, 2).transpose(0, 3, 1, 4, 2)
        np.testing.assert_allclose(got.reshape(twice.shape), wanted, rtol=error, atol=error)


# --- compressed weights -----------------------------------------------------------------------------

PREFIXES = ("00", "10", "111", "110", "011", "0101", "01001", "01000")


def compressed(weights: np.ndarray) -> tuple[np.ndarray, list[int]]:
    """Bytes of weights and DCOMP_AMOUNT0 to 15 as the source encodes them: four neighbours of each 64."""
    memory, amounts = b"", []
    for segment in weights.reshape(-1, 16, 4).transpose(1, 0, 2).reshape(16, -1):
        mode = Counter(segment.tolist()).most_common(1)[0][0]
        rest = [(int(value) - mode + 128) % 256 - 128 for value in segment]
        numbers = [value if value >= 0 else ~value for value in rest]
        widths = Counter(number.bit_length() for number in numbers)
        ranks = sorted(range(8), key=lambda width: (-widths[width], width))
        bits = ""
        for value, number in zip(rest, numbers, strict=True):
            width = number.bit_length()
            bits += PREFIXES[ranks.index(width)] + str(int(value < 0))
            bits += f"{number:b}"[:0:-1] if width > 1 else ""
        head = bytes(
            [0, mode % 256, 0, 0, *(a | b << 4 for a, b in zip(ranks[::2], ranks[1::2], strict=True))]
        )
        body = np.packbits([int(bit) for bit in bits], bitorder="little").tobytes()
        whole = head.ljust(16, b"\0") + body
        units = max(8, -(-len(whole) // 16))
        amounts.append(units - 1)
        memory += whole.ljust(-(-units // 4) * 64, b"\0")
    return np.frombuffer(memory, np.uint8), amounts


@pytest.mark.parametrize(("rows", "depth", "columns"), [(4, 32, 32), (33, 96, 160)])
@pytest.mark.board(
    "4.13.1",
    "4.13.2",
    "4.13.3",
    "4.13.4",
    source="compressed-products",
    place="dcomp_encode, patch_dcomp, make_gemm_regs; tests/test_compress.cpp: exact for eight shapes",
)
def test_products_with_compressed_weights(board: Board, rows: int, depth: int, columns: int) -> None:
    rng = np.random.default_rng(depth)
    a = rng.integers(-128, 128, (rows, depth), np.int8)
    b = rng.integers(-15, 16, (depth, columns)).astype(np.int8)
    b[:, columns // 2 :] = rng.integers(-128, 128, (depth, columns - columns // 2), np.int8)
    task = product(rows, depth, columns, A, B, C)
    for register in ("CNA CONV_CON1", "DPU DATA_FORMAT", "DPU OUT_CVT_SCALE", "DPU BS_OW_CFG"):
        task.word(*register.split(), 0)
    task.set("CNA", "WEIGHT_SIZE0", WEIGHT_BYTES=depth * columns)
    task.set("CNA", "WEIGHT_SIZE1", WEIGHT_BYTES_PER_KERNEL=depth)
    task.set("CNA", "CBUF_CON1", DATA_ENTRIES=-(-rows * depth // 64))
    task.set("CORE", "MISC_CFG", PROC_PRECISION=INT8, QD_EN=1)
    task.set("DPU", "DATA_FORMAT", OUT_PRECISION=INT32).set("DPU", "OUT_CVT_SCALE", OUT_CVT_SCALE=1)
    task.set("DPU", "BS_OW_CFG", SIZE_E_0=7, SIZE_E_1=7, SIZE_E_2=7)
    task.set("DPU", "SURFACE_ADD", SURF_ADD=8 * rows)
    memory, amounts = compressed(kernels(b).reshape(-1))
    task.set("CNA", "DCOMP_CTRL", DECOMP_CONTROL=1).word("CNA", "DCOMP_REGNUM", 0x5555_5555)
    for number, amount in enumerate(amounts):
        task.word("CNA", f"DCOMP_AMOUNT{number}", amount)
    ended(board, [task], {A: surfaces(a), B: memory})
    exact = a.astype(np.int64) @ b.astype(np.int64)
    np.testing.assert_array_equal(result(board, rows, columns, "<i4", C), exact)


# --- rows of products in fp32 -----------------------------------------------------------------------

UNIT = 4096
"""What the table of SiLU holds for 1, and what its index counts for 1."""


class SiluTask(Task):
    """A task that fills both tables first: entry n of 513 is SiLU of 64ths from -8 and from 0 on."""

    def builder(self) -> TaskBuilder:
        built = TaskBuilder().enable(*self.blocks)
        for table in range(2):
            built.set("DPU", "LUT_ACCESS_CFG", LUT_ACCESS_TYPE=1, LUT_TABLE_ID=table)
            x = (np.arange(513) - 512 * (1 - table)) / 64
            for code in np.rint(silu(x) * UNIT).astype(int):
                built.set_word("DPU", "LUT_ACCESS_DATA", int(code) & 0xFFFF_FFFF)
        for (block, register), value in self.values.items():
            built.set_word(block, register, value & 0xFFFF_FFFF)
        return built


def silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


def row_of(row: int, rows: int, channels: int, kind: type[Task] = Task) -> Task:
    """A task on one row of an fp32 matrix of `rows` rows at A: times the fp16 number 1/2, contiguous at C."""
    plain = flying(FP32, channels=channels)
    task = kind(*plain.blocks)
    task.values = plain.values
    task.word("DPU", "DST_BASE_ADDR", C).word("DPU_RDMA", "SRC_BASE_ADDR", A + 16 * row)
    task.set("DPU_RDMA", "SURF_NOTCH", SURF_NOTCH_ADDR=rows - 1)
    return stage(task, "BS", MUL_BYPASS=0).set("DPU", "BS_MUL_CFG", BS_MUL_OPERAND=0x3800)


def some_rows(seed: int, rows: int, channels: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = (rng.standard_normal((rows, channels)) * 600).astype(np.float32)
    return x, rng.uniform(0.005, 0.02, channels).astype(np.float16)


BOUNDARIES = np.array([2.0**-24, 2.0**-14, 1, 65504, 0.0137], np.float16)
"""Scales with which a board was compared: the least fp16 number, the least normal and the largest one."""


@pytest.mark.parametrize("scale", BOUNDARIES)
@pytest.mark.board(
    "7.5.5", "7.8.2", "8.4.2", source="split-products", place="tests/test_i8_dpu_chain.cpp --scale-boundaries"
)
def test_rows_of_products_times_scales(board: Board, scale: np.float16) -> None:
    """(x * row's scale) * channel's scale, rounded twice; the operand is the low half of 32-bit elements."""
    x, _ = some_rows(2, 4, 64)
    scales = np.resize(BOUNDARIES, 64)
    task = operation(row_of(2, 4, 64), None, bits=32, bypass=True).word("DPU_RDMA", "EW_BASE_ADDR", B)
    task.set("DPU", "BS_MUL_CFG", BS_MUL_OPERAND=int(scale.view(np.uint16)))
    ended(board, [task], {A: surfaces(x), B: scales.view(np.uint16).astype(np.uint32)})
    exact = x[2] * scale.astype(np.float32) * scales.astype(np.float32)
    np.testing.assert_array_equal(board.read(64, "<f4", C), exact)


@pytest.mark.board(
    "7.11.10", "8.3.1", source="expert-rows", place="middle_body with gate, middle_lut_load, Weights: g[]"
)
def test_silu_of_rows_of_products(board: Board) -> None:
    """Multipliers per channel are four fp16 numbers of each 16 bytes; the tables go on beyond 8 by slopes."""
    x, scales = some_rows(3, 4, 64)
    factors = np.zeros((16, 8), np.float16)
    factors[:, :4] = (scales.astype(np.float32) * UNIT).reshape(16, 4)
    task = row_of(1, 4, 64, SiluTask)
    stage(task, "BN", MUL_BYPASS=0).set("DPU", "BN_MUL_CFG", BN_MUL_SRC=1)
    task.word("DPU", "EW_CFG", 0).set("DPU", "EW_CFG", EW_OP_BYPASS=1, EW_OP_CVT_BYPASS=1, EW_RELU_BYPASS=1)
    task.word("DPU_RDMA", "NRDMA_CFG", 0).set("DPU_RDMA", "NRDMA_CFG", NRDMA_DATA_USE=4)
    task.word("DPU_RDMA", "BN_BASE_ADDR", B)
    task.word("DPU", "LUT_CFG", 0x68).word("DPU", "LUT_INFO", 0x60600)
    task.word("DPU", "LUT_LE_START", -32768).word("DPU", "LUT_LE_END", 0)
    task.word("DPU", "LUT_LO_START", 0).word("DPU", "LUT_LO_END", 32768)
    task.word("DPU", "LUT_LE_SLOPE_SCALE", 0).word("DPU", "LUT_LE_SLOPE_SHIFT", 0)
    task.word("DPU", "LUT_LO_SLOPE_SCALE", 8192 << 16).word("DPU", "LUT_LO_SLOPE_SHIFT", 13 << 5)
    ended(board, [task], {A: surfaces(x), B: factors})
    values = x[1].astype(np.float64) / 2 * factors[:, :4].reshape(-1).astype(np.float64) / UNIT
    assert values.max() > 8  # beyond the table
    got = board.read(64, "<f4", C) / UNIT
    assert np.abs(got - silu(values)).max() < 0.003  # SiLU(8) is 0.0027 less than 8


@pytest.mark.parametrize("out", [INT32, FP32])
@pytest.mark.board("7.8.4", "7.10.1", source="split-products", place="add_body, middle_body")
def test_sums_of_products_in_parts(board: Board, out: int) -> None:
    """int32 parts of products are added, the last ones to fp32, which rounds."""
    rng = np.random.default_rng(out)
    a, b = (rng.integers(-(2**30), 2**30, (8, 64)).astype(np.int32) for _ in range(2))
    task = element_wise(INT32, ADD, out, channels=64, width=8)
    ended(board, [task], {MAIN: surfaces(a), ELEMENT: surfaces(b)})
    exact = (a.astype(np.int64) + b).astype(np.float32 if out == FP32 else np.int64)
    np.testing.assert_array_equal(result(board, 8, 64, "<f4" if out == FP32 else "<i4", OUT), exact)


@pytest.mark.parametrize(("rows", "parts", "stored"), [(10, 3, 10), (8, 5, 24)])
@pytest.mark.board("4.1.1", "4.1.2", source="reduced-parts", place="reduction_regs, W4A8NpuReduce::prepare")
def test_parts_of_products_by_a_convolution(board: Board, rows: int, parts: int, stored: int) -> None:
    """16 x + y of pairs of int16 rows, summed over parts: kernels of two columns, of rows cut out of more."""
    rng = np.random.default_rng(rows)
    x = rng.integers(-30000, 30000, (parts, 2 * stored, 8)).astype(np.int16)
    weights = np.zeros((parts, 2, 8, 16), np.int16)  # part, column, kernel, channel
    weights[:, 0, range(8), range(8)], weights[:, 1, range(8), range(8)] = 16, 1
    task, pitch = convolution(parts, 2 * rows, 32, 16, (parts, 2), (1, rows)), -(-rows // 4) * 4
    whole = rows == stored
    task.set("CNA", "CONV_CON1", IN_PRECISION=INT16, PROC_PRECISION=INT16, GROUP_LINE_OFF=int(not whole))
    task.set("CNA", "CONV_CON3", CONV_X_STRIDE=2)
    task.set("CNA", "DATA_SIZE1", DATAIN_CHANNEL=16, DATAIN_CHANNEL_REAL=7)
    task.set("CNA", "WEIGHT_SIZE0", WEIGHT_BYTES=weights.nbytes)
    task.set("CNA", "WEIGHT_SIZE1", WEIGHT_BYTES_PER_KERNEL=weights.nbytes // 8)
    task.set("CNA", "WEIGHT_SIZE2", WEIGHT_KERNELS=8).set("CNA", "CBUF_CON1", DATA_ENTRIES=rows)
    task.set("CNA", "FC_DATA_SIZE1", DMA_CHANNEL=16).set("CNA", "CVT_CON5", PER_CHANNEL_CVT_EN=7)
    task.set("CNA", "DMA_CON1", LINE_STRIDE=(8 if whole else 2) * stored)
    task.set("CNA", "DMA_CON2", SURF_STRIDE=2 * stored * max(parts - 4, 0))
    first = 0 if whole else 4
    task.word("CNA", "FEATURE_DATA_ADDR", A + 32 * first).word("CNA", "DCOMP_ADDR0", B)
    task.set("CORE", "MISC_CFG", PROC_PRECISION=INT16, QD_EN=1)
    task.set("DPU", "DATA_FORMAT", OUT_PRECISION=INT32, IN_PRECISION=INT16, PROC_PRECISION=INT16)
    task.set("DPU", "DATA_CUBE_CHANNEL", ORIG_CHANNEL=7)
    task.set("DPU", "BS_OW_CFG", SIZE_E_0=3, SIZE_E_1=3, SIZE_E_2=3)
    task.word("DPU", "OUT_CVT_SCALE", 1).word("DPU", "DST_BASE_ADDR", C)
    task.set("DPU", "DST_SURF_STRIDE", DST_SURF_STRIDE=pitch).set("DPU", "SURFACE_ADD", SURF_ADD=2 * pitch)
    ended(board, [task], {A: x, B: weights})
    pairs = x[:, 2 * first :][:, : 2 * rows].reshape(parts, rows, 2, 8).astype(np.int64)
    got = board.read(8 * pitch, "<i4", C).reshape(2, pitch, 4)[:, :rows].transpose(1, 0, 2).reshape(rows, 8)
    np.testing.assert_array_equal(got, (16 * pairs[:, :, 0] + pairs[:, :, 1]).sum(0))
