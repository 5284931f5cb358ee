"""Numbers that boards gave, held against the golden model and the RTL: campaigns over fields and shapes.

Operands are those of the sources, and expected values what the boards gave: the checks passed there. `board`
marks name the rules of docs/reference, the key of the source there, and the place in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tests.makers.board_bench import (
    ABS,
    ADD,
    CEIL,
    FILL,
    FLOOR,
    FP16,
    INT8,
    INT16,
    INT32,
    MAX,
    MIN,
    NEG,
    SUB,
    Board,
    Task,
    cube,
    element_wise,
    f16,
    f32,
    flying,
    open_board,
    operands,
    operation,
    pixels,
    stage,
)

KINDS: dict[int, np.dtype[Any]] = {
    INT8: np.dtype(np.int8),
    INT16: np.dtype(np.int16),
    INT32: np.dtype(np.int32),
}
CHANNELS = (3, 7, 8, 9, 15, 16, 17, 31, 32, 33)
RAMP = f16(-3, -2, -1, 0, 1, 2, 3, 4)


@pytest.fixture(scope="module", params=["golden", "verilator"])
def board(request: pytest.FixtureRequest) -> Iterator[Board]:
    with open_board(request.param) as opened:
        yield opened


def saturated(values: np.ndarray, kind: int) -> np.ndarray:
    limits = np.iinfo(KINDS[kind])
    return np.clip(values, limits.min, limits.max).astype(KINDS[kind])


OPERATIONS: dict[str, tuple[int | None, Callable[[np.ndarray, np.ndarray], np.ndarray]]] = {
    "max": (MAX, np.maximum),
    "min": (MIN, np.minimum),
    "add": (ADD, lambda a, b: a + b),
    "minus": (SUB, lambda a, b: a - b),
    "abs": (ABS, lambda a, b: np.abs(a)),
    "neg": (NEG, lambda a, b: -a),
    "mul": (None, lambda a, b: a * b),
}


def integers(board: Board, kind: int, name: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """An operation of int64 arrays [W, C] in a type; the cubes are as wide, each surface behind the other."""
    width, channels = a.shape
    task = element_wise(kind, OPERATIONS[name][0], channels=channels, width=width)
    board.run(task, cube(a.astype(KINDS[kind])), cube(b.astype(KINDS[kind])))
    lanes = 16 // KINDS[kind].itemsize
    return pixels(board.read(width * -(-channels // lanes) * lanes, KINDS[kind].str), width, channels)


# --- integers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [1, 2, 3])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.board(
    "7.8.9",
    "7.11.2",
    "8.2.2",
    "8.4.3",
    source="integer-campaign",
    place="run_integer_layout: 90 exact ADD streams",
)
def test_integer_sums_over_partial_and_whole_atoms(board: Board, kind: int, width: int) -> None:
    for channels in CHANNELS:
        lane = np.arange(width * channels, dtype=np.int64).reshape(width, channels)
        a, b = (lane * 17 + 3) % 101 - 50, (lane * 11 + 7) % 31 - 15
        np.testing.assert_array_equal(
            integers(board, kind, "add", a, b), saturated(a + b, kind), str(channels)
        )


PLAIN = {
    INT8: ([-100, -24, -7, -1, 0, 1, 24, 100], [20, -6, 2, -1, 1, 2, -3, 5]),
    INT16: ([-30000, -1200, -7, -1, 0, 1, 1200, 30000], [1000, -30, 2, -1, 1, 2, -30, 1000]),
    INT32: ([-1000, -2000, -7, -1, 0, 1, 2000, 1000], [50000, -50000, 2, -1, 1, 2, -50000, 50000]),
}


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.board("7.8.4", "7.8.5", "7.8.9", source="integer-campaign", place="DTYPES: a_values, b_values")
def test_integer_operations(board: Board, kind: int, name: str) -> None:
    a, b = (np.array(x, np.int64).reshape(-1, 4 if kind == INT32 else 8) for x in PLAIN[kind])
    other = b.astype(np.int16).astype(np.int64) if (kind, name) == (INT32, "mul") else b
    expected = saturated(OPERATIONS[name][1](a, other), kind)
    np.testing.assert_array_equal(integers(board, kind, name, a, b), expected)


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.board(
    "7.8.4", "7.8.5", source="integer-campaign", place="run_integer_layout: edge, captured limits"
)
def test_integer_operations_at_the_limits(board: Board, kind: int, name: str) -> None:
    low, high = np.iinfo(KINDS[kind]).min, np.iinfo(KINDS[kind]).max
    a = np.array([high, low, high, low, -1, 0, 1, high // 2], np.int64).reshape(2, 4)
    b = np.array([1, -1, high, low, low, high, -1, 3], np.int64).reshape(2, 4)
    other = b.astype(np.int16).astype(np.int64) if (kind, name) == (INT32, "mul") else b
    expected = saturated(OPERATIONS[name][1](a, other), kind)
    if kind == INT32 and name in ("abs", "neg"):
        expected[a == low] = low
    if kind == INT32 and name == "minus":
        expected[b == low] = low
    np.testing.assert_array_equal(integers(board, kind, name, a, b), expected)


@pytest.mark.board("7.8.9", source="ew-int-probe", place="fill: int32 past 2^24 with odd low bits, exact")
@pytest.mark.parametrize("name", ["add", "max", "min", "minus", "mul"])
def test_int32_operations_past_24_bits(board: Board, name: str) -> None:
    """An ALU that went through binary32 would lose the low bits."""
    rng = np.random.default_rng(5)
    a, b = (rng.integers(-(2**27), 2**27, (64, 4)) | 1 for _ in range(2))
    for x in (a, b):
        x[::4] = rng.integers(0x70000001, 0x7FFFFFFF, x[::4].shape) * rng.choice([-1, 1], x[::4].shape) | 1
    other = b.astype(np.int16).astype(np.int64) if name == "mul" else b
    expected = saturated(OPERATIONS[name][1](a, other), INT32)
    np.testing.assert_array_equal(integers(board, INT32, name, a, b), expected)


@pytest.mark.board("7.10.1", "7.2.1", "7.8.3", source="integer-campaign", place="run_int16_add_to_int32")
def test_int16_sum_to_int32(board: Board) -> None:
    a, b = (np.array(x, np.int16) for x in PLAIN[INT16])
    task = element_wise(INT16, ADD, INT32, channels=8, size_e=1, surface=1, group=2)
    task.set("DPU", "EW_CFG", EW_CVT_TYPE=1, EW_CVT_ROUND=1)
    board.run(task, a.tobytes(), b.tobytes())
    assert board.read(8, "<i4").tolist() == (a.astype(int) + b).tolist()


# --- operands of floats ---------------------------------------------------------------------------


def registers_add(task: Task, value: int) -> Task:
    """EW ADD of a register; the source leaves the converter of 16-bit elements live."""
    operation(task, ADD, bits=16, bypass=False, memory=False)
    for number in range(8):
        task.word("DPU", f"EW_OP_VALUE_{number}", value)
    return task


def fp16_result(board: Board, task: Task, main: bytes, element: bytes = b"", **more: bytes) -> bytes:
    board.run(task, main, element, **more)
    return board.read(8, "<u2").tobytes()


@pytest.mark.board("7.8.2", "7.8.3", source="integer-campaign", place="run_fp16_add_register_operand")
def test_register_operand_of_an_fp16_sum_is_binary32(board: Board) -> None:
    assert fp16_result(board, registers_add(flying(FP16), 0x40000000), RAMP) == f16(-1, 0, 1, 2, 3, 4, 5, 6)


@pytest.mark.board("7.5.5", "7.7.1", "7.8.2", source="integer-campaign", place="run_fp16_register_pipeline")
def test_sums_of_three_stages(board: Board) -> None:
    task = registers_add(flying(FP16), 0x40800000)
    stage(task, "BS", ALU_BYPASS=0, ALU_ALGO=2).word("DPU", "BS_ALU_CFG", 0x40000000)
    stage(task, "BN", ALU_BYPASS=0, ALU_ALGO=2).word("DPU", "BN_ALU_CFG", 0x40400000)
    assert fp16_result(board, task, RAMP) == f16(6, 7, 8, 9, 10, 11, 12, 13)


@pytest.mark.board(
    "7.5.5", "7.5.6", "7.7.1", "7.8.2", source="integer-campaign", place="run_fp16_five_scalar_ops"
)
def test_five_operations_with_registers(board: Board) -> None:
    task = registers_add(flying(FP16), 0x40800000)
    stage(task, "BS", ALU_BYPASS=0, MUL_BYPASS=0, ALU_ALGO=2).word("DPU", "BS_ALU_CFG", 0x40000000)
    stage(task, "BN", ALU_BYPASS=0, MUL_BYPASS=0, ALU_ALGO=2).word("DPU", "BN_ALU_CFG", 0x3F800000)
    task.word("DPU", "BS_MUL_CFG", 0x42000000).word("DPU", "BN_MUL_CFG", 0x40000000)
    assert fp16_result(board, task, RAMP) == f16(-1, 5, 11, 17, 23, 29, 35, 41)


@pytest.mark.parametrize("name", ["BS", "BN"])
@pytest.mark.board(
    "7.5.5", "7.7.1", source="integer-campaign", place="run_fp16_bs_bn_minus: main minus operand"
)
def test_difference_with_a_register(board: Board, name: str) -> None:
    task = flying(FP16)
    stage(task, name, ALU_BYPASS=0, ALU_ALGO=4).word("DPU", f"{name}_ALU_CFG", 0x40000000)
    assert fp16_result(board, task, RAMP) == f16(-5, -4, -3, -2, -1, 0, 1, 2)


@pytest.mark.parametrize("name", ["BS", "BN"])
@pytest.mark.board("7.5.5", "7.7.1", "7.5.2", source="integer-campaign", place="run_fp16_bs_bn_activations")
def test_relux_and_prelu(board: Board, name: str) -> None:
    task = flying(FP16)
    stage(task, name, RELU_BYPASS=0, RELUX_EN=1).word("DPU", f"{name}_RELUX_CMP_VALUE", 0x40000000)
    given = f16(-3, -1, -0.25, 0, 0.5, 1.5, 2, 4)
    assert fp16_result(board, task, given) == f16(0, 0, 0, 0, 0.5, 1.5, 2, 2)
    stage(task, name, MUL_BYPASS=0, MUL_PRELU=1).word("DPU", f"{name}_MUL_CFG", 0x34000000)
    given = f16(-4, -2, -1, -0.5, 0, 0.5, 2, 4)
    assert fp16_result(board, task, given) == f16(-1, -0.5, -0.25, -0.125, 0, 0.5, 2, 4)


@pytest.mark.parametrize("name", ["BS", "BN"])
@pytest.mark.board("8.3.1", "8.3.2", source="integer-campaign", place="run_fp16_bs_bn_external_mul")
def test_multipliers_from_memory(board: Board, name: str) -> None:
    task = flying(FP16)
    stage(task, name, MUL_BYPASS=0)
    operands(task, name, 4).set("DPU", f"{name}_MUL_CFG", **{f"{name}_MUL_SRC": 1})
    factors = f16(0.5, -1, 2, -2, 3, 0.25, -0.5, 1.5)
    got = fp16_result(board, task, f16(-4, -2, -1, -0.5, 0.5, 1, 2, 4), **{name.lower(): factors})
    assert got == f16(-2, 2, -2, 1, 1.5, 0.25, -1, 6)


@pytest.mark.board(
    "7.5.6", "8.3.1", "8.3.2", "8.4.2", source="integer-campaign", place="run_fp16_four_input_pipeline"
)
def test_sum_of_four_tensors(board: Board) -> None:
    task = operation(flying(FP16), ADD, bits=16, bypass=False)
    for name in ("BS", "BN"):
        stage(task, name, ALU_BYPASS=0, ALU_ALGO=2, ALU_SRC=1)
        operands(task, name, 1)
    bs, bn = f32(10, 20, 30, 40, 50, 60, 70, 80), f32(1, 2, 3, 4, 5, 6, 7, 8)
    got = fp16_result(board, task, RAMP, f16(0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4), bs=bs, bn=bn)
    assert got == f16(8.5, 21, 33.5, 46, 58.5, 71, 83.5, 96)


@pytest.mark.board("8.4.3", source="integer-campaign", place="run_fp16_per_channel_broadcast: mode 0")
def test_operand_for_each_channel(board: Board) -> None:
    task = operation(flying(FP16, channels=16, width=2), ADD, bits=16, bypass=False)
    task.set("DPU", "EW_CFG", EW_DATA_MODE=0)
    task.set("DPU_RDMA", "ERDMA_CFG", ERDMA_DATA_MODE=0).set("DPU_RDMA", "EW_SURF_STRIDE", EW_SURF_STRIDE=1)
    operand = np.arange(1, 17, dtype=np.float16)
    board.run(task, bytes(64), operand.tobytes())
    first, second = operand[:8].tolist(), operand[8:].tolist()
    assert board.read(32, "<f2").tolist() == first * 2 + second * 2


@pytest.mark.parametrize("mode", [2, 3])
@pytest.mark.board("8.4.3", source="register-campaign", place="EW/ERDMA data modes 2/3: second surface zero")
def test_other_modes_of_the_operand(board: Board, mode: int) -> None:
    """The broadcast above; mode 1 has both atoms in the first surface, and behind them the buffer is zero."""
    task = operation(flying(FP16, channels=16, width=2), ADD, bits=16, bypass=False)
    task.set("DPU", "EW_CFG", EW_DATA_MODE=mode)
    task.set("DPU_RDMA", "ERDMA_CFG", ERDMA_DATA_MODE=mode).set(
        "DPU_RDMA", "EW_SURF_STRIDE", EW_SURF_STRIDE=1
    )
    operand = np.arange(1, 17, dtype=np.float16)
    board.run(task, bytes(64), operand.tobytes() + bytes(32))
    assert board.read(32, "<f2")[16:].tolist() == [0] * 16


@pytest.mark.board(
    "7.10.3", "8.6.2", "7.5.5", "7.7.1", source="integer-campaign", place="run_fp16_compare_to_int16"
)
def test_comparison_of_halves_as_int16(board: Board) -> None:
    """((x - 2^-24) * 2) * infinity, clamped to 0 and 1; ERDMA delivers what EW does not take."""
    task = flying(FP16, INT16)
    stage(task, "BS", ALU_BYPASS=0, ALU_ALGO=4, MUL_BYPASS=0)
    task.word("DPU", "BS_ALU_CFG", 0x33800000).word("DPU", "BS_MUL_CFG", 0x40000000)
    stage(task, "BN", MUL_BYPASS=0, ALU_ALGO=4, RELU_BYPASS=0, RELUX_EN=1)
    task.word("DPU", "BN_MUL_CFG", 0x7C000000).word("DPU", "BN_RELUX_CMP_VALUE", 0x3F800000)
    operation(task, MAX, bits=16, bypass=False).set("DPU", "EW_CFG", EW_BYPASS=1)
    board.run(task, f16(-2, -0.5, -0.0, 0.0, 0.25, 0.5, 1, 2), f16(-2, -0.5, -0.0, 0.0, 0.25, 0.5, 1, 2))
    assert board.read(8, "<i2").tolist() == [0, 0, 0, 0, 1, 1, 1, 1]


# --- unary operations and layouts -----------------------------------------------------------------


def unary(algorithm: int, channels: int, width: int, height: int, operand: int = 0) -> Task:
    """An operation of a register (all eight the same), in a cube filled up to a multiple of 16 channels."""
    task = flying(FP16, channels=-(-channels // 16) * 16, original=channels, width=width, height=height)
    operation(task, algorithm, bits=16, bypass=False, memory=False)
    for number in range(8):
        task.word("DPU", f"EW_OP_VALUE_{number}", operand)
    return task


FUNCTIONS: dict[int, Callable[[np.ndarray], np.ndarray]] = {
    ABS: np.abs,
    NEG: np.negative,
    FLOOR: np.floor,
    CEIL: np.ceil,
}


@pytest.mark.parametrize("algorithm", FUNCTIONS)
@pytest.mark.parametrize("shape", [(4, 4, 16), (4, 4, 24), (7, 5, 32), (14, 14, 64)])
@pytest.mark.board("7.11.2", "8.2.2", source="iree-surfaces", place="ew_unary_multi_surface_cubes_are_exact")
def test_unary_operations_over_surfaces(board: Board, shape: tuple[int, int, int], algorithm: int) -> None:
    width, height, channels = shape
    surfaces, area = -(-channels // 16) * 2, width * height
    values = ((np.arange(surfaces * area * 8) % 512 - 256) * 0.5).astype(np.float16)
    board.run(unary(algorithm, channels, width, height), values.tobytes())
    got = pixels(board.read(values.size, "<f2"), area, channels)
    np.testing.assert_array_equal(got, FUNCTIONS[algorithm](pixels(values, area, channels)))


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.board("7.8.1", "8.4.3", source="iree-residual", place="multi_tile_conv_then_residual_add(_relu)")
def test_residual_sum_with_the_relu_of_ew(board: Board, relu: bool) -> None:
    """The sum of the source's two cubes, of which the first is computed here; some of the rows."""
    y, x, o = np.meshgrid(np.arange(0, 56, 4), np.arange(56), np.arange(0, 64), indexing="ij")
    c = np.arange(64)
    inputs = (y[:, :, :1] * 7 + x[:, :, :1] * 3 + c * 5) % 7 - 3
    weights = (c[:, None] * 3 + np.arange(64) * 5) % 5 - 2
    main = inputs @ weights + o % 5 - 2
    other = (y * 5 + x * 11 + o * 3) % 9 - 4
    assert np.abs(main).max() < 2048
    height, width = main.shape[:2]
    task = element_wise(FP16, ADD, channels=64, width=width, height=height)
    task.set("DPU", "EW_CFG", EW_RELU_BYPASS=int(not relu))
    flat = [part.reshape(-1, 64) for part in (main, other)]
    board.run(task, *(cube(part.astype(np.float16)) for part in flat))
    got = pixels(board.read(main.size, "<f2"), width * height, 64)
    total = flat[0] + flat[1]
    np.testing.assert_array_equal(got, np.maximum(total, 0) if relu else total)


# --- tasks that never end -------------------------------------------------------------------------


@pytest.mark.board("8.5.2", source="ew-int-probe", place="head: COMB_USE 5 never completes, 0 and 4 do")
def test_combined_readers_of_flying_tasks(board: Board) -> None:
    """With 5 nothing is written."""
    task = element_wise(FP16, None, channels=8, width=4).set("DPU_RDMA", "FEATURE_MODE_CFG", COMB_USE=5)
    main, two = f16(*range(32)), f16(*[2] * 32)
    board.hangs(task, "DPU_RDMA.FEATURE_MODE_CFG.COMB_USE", main=main, element=two)
    assert set(board.read(64, "u1").tolist()) == {FILL}
    for value in (0, 4):
        task.set("DPU_RDMA", "FEATURE_MODE_CFG", COMB_USE=value)
        board.run(task, f16(*range(32)), f16(*[2] * 32))
        assert board.read(32, "<f2").tolist() == [2 * x for x in range(32)], value


@pytest.mark.board(
    "7.11.1", source="ew-int-probe", place="head: ORIG_CHANNEL 0, CHANNEL 7: lane 0 right, seven zero"
)
def test_lanes_past_the_real_channels_of_a_sole_atom(board: Board) -> None:
    task = element_wise(FP16, None, channels=8, original=1, width=4)
    board.run(task, f16(*range(32)), f16(*[2] * 32))
    assert board.read(32, "<f2").tolist() == [2 * x if x % 8 == 0 else 0 for x in range(32)]


@pytest.mark.board("7.8.6", source="ew-int-probe", place="build: fp16 MUL with the converter live times out")
def test_fp16_product_with_a_live_converter_writes_nothing(board: Board) -> None:
    task = element_wise(FP16, None, width=32).set("DPU", "EW_CFG", EW_OP_CVT_BYPASS=0)
    board.hangs(task, "DPU.EW_CFG.EW_OP_CVT_BYPASS", main=f16(*range(256)), element=f16(*[2] * 256))
    assert set(board.read(512, "u1").tolist()) == {FILL}


@pytest.mark.parametrize("width", [1, 2, 3])
@pytest.mark.parametrize("name", ["BS", "BN"])
@pytest.mark.board(
    "8.3.1", "8.3.2", "7.5.6", source="integer-campaign", place="run_fp16_external_mul_layout: 60 streams"
)
def test_multipliers_over_partial_and_whole_atoms(board: Board, name: str, width: int) -> None:
    """A partial last block is right alone, and reads as zero behind a whole one."""
    for channels in CHANNELS:
        lane = np.arange(width * channels).reshape(width, channels)
        values = (lane % 17 - 8).astype(np.float16)
        factors = (np.arange(channels) * 3 % 9 - 4).astype(np.float16)
        task = flying(FP16, channels=channels, width=width)
        stage(task, name, MUL_BYPASS=0)
        operands(task, name, 4).set("DPU", f"{name}_MUL_CFG", **{f"{name}_MUL_SRC": 1})
        board.run(task, cube(values), **{name.lower(): cube(factors[None])})
        got = pixels(board.read(width * -(-channels // 8) * 8, "<f2"), width, channels)
        there = np.where(np.arange(channels) < channels // 8 * 8, factors, 0) if channels > 8 else factors
        np.testing.assert_array_equal(got, values * there.astype(np.float16), str(channels))


@pytest.mark.parametrize("algorithm", FUNCTIONS)
@pytest.mark.board("7.11.1", "7.8.4", source="iree-unary", place="ew_unary_*_matches_oracle")
def test_unary_operations_of_one_real_channel(board: Board, algorithm: int) -> None:
    """ORIG_CHANNEL 0, CHANNEL 15: the first two pixels of the first atom are computed in all eight lanes."""
    whole, parts = (-6, -4.5, -2, -0.5, 0, 0.5, 2, 4.5, 6), (-4.5, -3.25, -1.5, -0.5, 0, 0.5, 1.5, 3.25, 4.5)
    for x in whole if algorithm in (ABS, NEG) else parts:
        board.run(unary(algorithm, 1, 4, 4), f16(*[x] * 256))
        expected = FUNCTIONS[algorithm](np.array(x, np.float16))
        assert np.array_equal(board.read(16, "<f2"), np.full(16, expected)), x


@pytest.mark.board("7.8.2", "7.11.1", source="iree-ew", place="ew_round_add_const_matches_oracle")
def test_constant_sums_of_one_real_channel(board: Board) -> None:
    for x in (-6, -4.5, -2, -0.5, 0, 0.5, 2, 4.5, 6):
        board.run(unary(ADD, 1, 4, 4, 0x3F000000), f16(*[x] * 256))
        assert board.read(16, "<f2").tolist() == [x + 0.5] * 16, x


@pytest.mark.board(
    "7.8.2", source="iree-ew", place="head: only EW_OP_VALUE_0 written, halves 8 to 15 read a zero operand"
)
def test_next_register_for_the_next_pixel(board: Board) -> None:
    """The halves 8 to 15 of a cube are its second pixel (the source's own later correction)."""
    task = unary(ADD, 1, 4, 4)
    task.word("DPU", "EW_OP_VALUE_0", 0x3F000000)
    board.run(task, f16(*[2] * 256))
    assert board.read(16, "<f2").tolist() == [2.5] * 8 + [2.0] * 8


@pytest.mark.board("7.8.2", "7.8.4", source="iree-ew", place="ew_round_matches_oracle")
def test_rounding_by_two_tasks(board: Board) -> None:
    for x in (-4.75, -3.25, -1.75, -0.25, 0, 0.25, 1.75, 3.25, 4.75):
        board.run(unary(ADD, 1, 4, 4, 0x3F000000), f16(*[x] * 256))
        middle = board.read(256, "<u2").tobytes()
        board.run(unary(FLOOR, 1, 4, 4), middle)
        assert board.read(16, "<f2").tolist() == [np.floor(x + 0.5)] * 16, x


@pytest.mark.parametrize("out", [5, INT32])
@pytest.mark.board("7.11.4", "7.2.1", source="elementwise-sizes", place="SIZE_E 3 of 16 to 32 bits: time-out")
def test_flying_tasks_with_too_large_a_size_e_never_end(board: Board, out: int) -> None:
    board.hangs(flying(FP16, out, channels=8, size_e=3), "DPU.BS_OW_CFG.SIZE_E_1")


@pytest.mark.board(
    "7.2.1",
    "7.11.6",
    source="tinygrad-mask-probe",
    place="main: time-out, then an exact task after the recovery",
)
def test_sixteen_lanes_of_halves_to_bytes_without_comb_use(board: Board) -> None:
    values = f16(0, 1, 1, 0, 1, 0, 0, 1, 1, 1, 0, 0, 1, 0, 1, 0)
    task = flying(FP16, INT8, channels=16)
    board.hangs(task, "DPU", values)
    after = registers_add(flying(FP16, channels=8, width=4), 0x40400000)
    board.run(after, bytes(64))
    assert board.read(32, "<f2").tolist() == [3.0] * 32
