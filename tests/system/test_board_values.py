"""Numbers that boards gave, held against the golden model and the RTL: arithmetic of the DPU.

Every expected value is the source's own: a table, a log or a check that passed on a board. `board` marks name
the rules of docs/reference that a test witnesses, the key of the source there, and the place in it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from rkcosim.regcmd import TaskBuilder
from tests.makers.board_bench import (
    ABS,
    ADD,
    CEIL,
    DIV,
    ELEMENT,
    FLOOR,
    FP16,
    FP32,
    INT8,
    INT16,
    INT32,
    MAX,
    MIN,
    NEG,
    SUB,
    Board,
    Task,
    element_wise,
    f16,
    f32,
    flying,
    h16,
    i32,
    open_board,
    operands,
    operation,
    stage,
)

INF, NAN = float("inf"), float("nan")
ALL_HALVES = np.arange(65536, dtype=np.uint16)
FP16_NAN = 0x7C01


@pytest.fixture(scope="module", params=["golden", "verilator"])
def board(request: pytest.FixtureRequest) -> Iterator[Board]:
    with open_board(request.param) as opened:
        yield opened


def halves(board: Board, task: Task, main: bytes, element: bytes = b"", count: int = 8) -> list[int]:
    board.run(task, main, element)
    return [int(x) for x in board.read(count, "<u2")]


def words(board: Board, task: Task, main: bytes, element: bytes = b"", count: int = 8) -> list[int]:
    board.run(task, main, element)
    return [int(x) for x in board.read(count, "<u4")]


def is_nan(bits: np.ndarray) -> np.ndarray:
    half = bits.dtype.itemsize == 2
    return (bits & (0x7FFF if half else 0x7FFF_FFFF)) > (0x7C00 if half else 0x7F80_0000)


def same(actual: np.ndarray, expected: np.ndarray) -> None:
    """NaN where NaN is expected, elsewhere the same bits, as the sources compare."""
    bits = {2: np.uint16, 4: np.uint32}[expected.dtype.itemsize]
    left, right = actual.view(bits), expected.view(bits)
    nan = is_nan(right)
    np.testing.assert_array_equal(is_nan(left), nan)
    np.testing.assert_array_equal(left[~nan], right[~nan])


# --- comparisons of integers ----------------------------------------------------------------------


@pytest.mark.board("7.8.8", source="remaining-ops", place="MULACC: ilt, and fp16 signs by lt(32767, bits)")
def test_binary_minimum_of_int32_is_less_than(board: Board) -> None:
    task = element_wise(INT32, MIN, channels=8).set("DPU", "EW_CFG", EW_BINARY_EN=1)
    main, other = (1, 2, 5, -3, -3, 7, -(2**31), 2**31 - 1), (2, 2, 4, 0, -4, 8, -(2**31) + 1, 0)
    assert words(board, task, i32(*main), i32(*other)) == [1, 0, 0, 1, 0, 1, 1, 0]
    bits = np.array([0, 1, 32766, 32767, 32768, 32769, 65534, 65535] * 4, np.int32)
    task = element_wise(INT32, MIN, channels=4, width=8).set("DPU", "EW_CFG", EW_BINARY_EN=1)
    board.run(task, i32(*[32767] * 32), bits.tobytes())
    assert board.read(32, "<i4").tolist() == (bits > 32767).astype(int).tolist()


@pytest.mark.board("7.8.8", source="remaining-ops", place="MULACC: bits < INT_MIN + 1 matches only INT_MIN")
def test_binary_minimum_finds_negative_zero(board: Board) -> None:
    task = element_wise(INT32, MIN, channels=8).set("DPU", "EW_CFG", EW_BINARY_EN=1)
    numbers = (0x80000000, 0x80000001, 0, 1, 0xFFFFFFFF, 0x7FFFFFFF, 0xBF800000, 0xFF800000)
    assert words(board, task, i32(*numbers), i32(*[-(2**31) + 1] * 8)) == [1, 0, 0, 0, 0, 0, 0, 0]


@pytest.mark.board("7.8.4", source="remaining-ops", place="FP32 comparisons: SUB(-1082130432, INT32_MIN)")
def test_int32_difference_with_the_least_integer(board: Board) -> None:
    task = element_wise(INT32, SUB, channels=8)
    got = words(board, task, i32(-1082130432, 5, -7), i32(-(2**31), 3, -9), 3)
    assert got == [0x80000000, 2, 2]


@pytest.mark.board("7.8.5", source="remaining-ops", place="FDIV: 1 * 0x8000 = -32768; 16384 + 16384 = 32768")
def test_int32_multiplier_is_a_signed_16_bit_number(board: Board) -> None:
    task = element_wise(INT32, None, channels=8)
    got = words(board, task, i32(1, 1, 3, 0x10000), i32(0x8000, 0x4000, 0x18000, 0xFFFF), 4)
    assert got == [x & 0xFFFFFFFF for x in (-32768, 16384, -98304, -65536)]


@pytest.mark.board(
    "7.10.1", source="remaining-ops", place="MULACC: round_away((x - (x > 0)) / 2) = floor(x / 2)"
)
def test_halved_differences_round_away_from_zero(board: Board) -> None:
    x = np.array(
        [0, 1, 2, 3, -1, -2, -3, 0x7F7FFFFF, 0x00800001, -0x7FFFFFFF, -0x80000000, 0x3F800001], np.int64
    )
    task = element_wise(INT32, SUB, channels=4, width=3)
    task.set("DPU", "OUT_CVT_SHIFT", CVT_TYPE=1, CVT_ROUND=1, OUT_CVT_SHIFT=1)
    board.run(task, i32(*x.tolist()), i32(*(x > 0).astype(int).tolist()))
    assert board.read(12, "<i4").tolist() == (x // 2).tolist()


# --- fp32 -----------------------------------------------------------------------------------------


def float_pairs() -> tuple[np.ndarray, np.ndarray]:
    """The pairs of the source's own check: 1024 of raw words and all of nine special numbers."""
    rng = np.random.default_rng(42)
    a, b = (rng.integers(0, 2**32, 1024, dtype=np.uint32).view(np.float32) for _ in range(2))
    special = np.array([0.0, -0.0, 1.0, -1.0, INF, -INF, NAN, 2**-149, 2.0**100], np.float32)
    a, b = np.concatenate((a, np.repeat(special, 9))), np.concatenate((b, np.tile(special, 9)))
    return np.append(a, np.zeros(3, np.float32)), np.append(b, np.zeros(3, np.float32))


@pytest.mark.board(
    "3.4.1", "3.4.2", "7.8.4", source="remaining-ops", place="FP32 ADD, SUB and NEG: 1105 pairs, 1 mismatch"
)
def test_fp32_sums(board: Board) -> None:
    a, b = float_pairs()
    board.run(element_wise(FP32, ADD, channels=4, width=a.size // 4), a.tobytes(), b.tobytes())
    with np.errstate(all="ignore"):
        expected = a + b
    expected.view(np.uint32)[(a.view(np.uint32) == 0x80000000) & (b.view(np.uint32) == 0x80000000)] = 0
    same(board.read(a.size, "<f4"), expected)


@pytest.mark.board(
    "3.4.1", "7.8.4", source="remaining-ops", place="FP32 ADD, SUB and NEG: inf - inf = inf, opposite: NaN"
)
def test_fp32_differences(board: Board) -> None:
    a, b = float_pairs()
    board.run(element_wise(FP32, SUB, channels=4, width=a.size // 4), a.tobytes(), b.tobytes())
    with np.errstate(all="ignore"):
        expected = a - b
        both = np.isinf(a) & np.isinf(b)
    expected[both & (a == b)] = INF
    expected[both & (a != b)] = NAN
    same(board.read(a.size, "<f4"), expected)


@pytest.mark.parametrize("algorithm", [NEG, ABS])
@pytest.mark.board("7.8.4", source="remaining-ops", place="FP32 ADD, SUB and NEG: algorithms 6 and 5")
def test_fp32_sign_bits(board: Board, algorithm: int) -> None:
    a, _ = float_pairs()
    board.run(element_wise(FP32, algorithm, channels=4, width=a.size // 4), a.tobytes(), bytes(a.nbytes))
    bits = a.view(np.uint32)
    expected = bits ^ 0x80000000 if algorithm == NEG else bits & 0x7FFFFFFF
    same(board.read(a.size, "<f4"), expected.view(np.float32))


@pytest.mark.board(
    "7.8.4", "3.5.1", source="remaining-ops", place="CAST and EXP2: FP32 FLOOR, CEIL, MIN, MAX"
)
def test_fp32_truncation_of_halves(board: Board) -> None:
    """Numbers of fp16 through FLOOR, CEIL, MIN with 0 and MAX in fp32, as the casts that pass do it."""
    x = ALL_HALVES.view(np.float16).astype(np.float32)
    x = x[np.isfinite(x)][::5]
    x = x[: x.size // 4 * 4]
    shape = {"channels": 4, "width": 127, "height": x.size // 4 // 127}
    x = x[: 4 * 127 * shape["height"]]

    def run(algorithm: int, main: bytes, other: bytes) -> bytes:
        board.run(element_wise(FP32, algorithm, **shape), main, other)
        return board.read(x.size, "<f4").tobytes()

    zero = bytes(x.nbytes)
    floor, ceil = run(FLOOR, x.tobytes(), zero), run(CEIL, x.tobytes(), zero)
    got = np.frombuffer(run(MAX, floor, run(MIN, ceil, zero)), np.float32)
    np.testing.assert_array_equal(got, np.trunc(x))


@pytest.mark.board(
    "7.8.2", "8.4.2", source="remaining-ops", place="FP32 MUL: table of the converter, and SIN: lanes 0 and 2"
)
def test_fp32_product_by_memory_takes_sixteen_bits(board: Board) -> None:
    task = element_wise(FP32, None, channels=8)
    for kind in (0, 1):
        task.set("DPU", "EW_CFG", EW_CVT_TYPE=kind)
        got = words(board, task, f32(1, 1 + 2**-23, -2.5), f32(2, 1 + 2**-23, 4), 3)
        assert got == [0, 0x33800001, 0x80000000]


@pytest.mark.board("7.8.6", source="remaining-ops", place="FP32 MUL: EW_OP_CVT_BYPASS 0, errno 110")
def test_fp32_product_with_a_live_converter_never_ends(board: Board) -> None:
    task = element_wise(FP32, None, channels=8).set("DPU", "EW_CFG", EW_OP_CVT_BYPASS=0)
    board.hangs(task, "DPU.EW_CFG.EW_OP_CVT_BYPASS")


@pytest.mark.parametrize(("register", "expected"), [(0x40000000, 0.0), (0x4000, 2.0), (0x3F800001, 2.0**-24)])
@pytest.mark.board("7.8.2", source="remaining-ops", place="FP32 MUL: REG_DPU_EW_OP_VALUE_0, first lane")
def test_fp32_product_by_register(board: Board, register: int, expected: float) -> None:
    task = operation(flying(FP32, channels=8), None, bits=32, bypass=True, memory=False)
    task.word("DPU", "EW_OP_VALUE_0", register)
    board.run(task, f32(1))
    assert board.read(1, "<f4")[0] == expected


@pytest.mark.board(
    "7.8.4", "7.10.4", source="remaining-ops", place="FP32 MUL: 1 / 2 produced about 4.448422e-41"
)
def test_fp32_quotient_is_that_of_the_low_halves(board: Board) -> None:
    """4.448422e-41 is 0x00007C01, a NaN of fp16 (0x00007C00 would be 4.448282e-41): 0 / 0."""
    got = words(board, element_wise(FP32, DIV, channels=8), f32(1), f32(2), 1)
    assert f"{np.uint32(0x7C01).view(np.float32):.6e}" == "4.448422e-41"
    assert got == [0x7C01]


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize("rounding", [0, 1])
@pytest.mark.board(
    "7.10.3",
    "3.5.1",
    source="remaining-ops",
    place="CAST: FP32 to INT32 rounds to nearest whatever CVT_TYPE, CVT_ROUND",
)
def test_fp32_to_int32(board: Board, kind: int, rounding: int) -> None:
    task = flying(FP32, INT32, channels=8).set("DPU", "OUT_CVT_SHIFT", CVT_TYPE=kind, CVT_ROUND=rounding)
    board.run(task, f32(3.2, -3.2, 3.75, -3.75, 0.25, -0.75, 8388607.0, -25.0))
    assert board.read(8, "<i4").tolist() == [3, -3, 4, -4, 0, -1, 8388607, -25]


@pytest.mark.board("8.3.1", "7.5.5", source="remaining-ops", place="MULACC: FP16 BS MUL to exact FP32")
def test_fp16_multipliers_come_in_eights(board: Board) -> None:
    task = flying(FP16, FP32, channels=8, size_e=1)
    stage(task, "BS", MUL_BYPASS=0).set("DPU", "BS_MUL_CFG", BS_MUL_SRC=1)
    operands(task, "BS", 4)
    board.run(
        task,
        f16(11.8125, 1.0009765625, 65504, -0.0, 3, 1, 2**-14, -1),
        bs=f16(-2688, 1.0009765625, 2, 1, 7, 8, 2**-10, 9),
    )
    exact = [11.8125 * -2688, 1.0009765625**2, 131008.0, -0.0, 21.0, 8.0, 2.0**-24, -9.0]
    assert board.read(8, "<f4").tobytes() == np.array(exact, np.float32).tobytes()


# --- one task of BS MUL and EW ADD ----------------------------------------------------------------


@pytest.mark.board(
    "7.5.5", "7.8.4", "7.10.3", "8.4.2", source="remaining-ops", place="MULACC: table, one BS to EW task"
)
def test_product_and_sum_in_one_task(board: Board) -> None:
    task = operation(flying(FP16, channels=8), ADD, bits=16, bypass=False)
    stage(task, "BS", MUL_BYPASS=0).set("DPU", "BS_MUL_CFG", BS_MUL_SRC=1)
    operands(task, "BS", 4)
    a, b = f16(11.8125, 1.0009765625, 65504, -0.0), f16(-2688, 1.0009765625, 2, 1)
    c = f16(-0.00023484230041503906, -1.001953125, -65504, -0.0)
    board.run(task, a + bytes(8), c + bytes(8), bs=b + bytes(8))
    expected = np.array([-31744, 2.0**-20, 65504, 0.0], np.float16)
    assert board.read(4, "<u2").tolist() == expected.view(np.uint16).tolist()


# --- fp16 -----------------------------------------------------------------------------------------


@pytest.mark.board("7.8.4", source="tinygrad-backend", place="CMPEQ: table EW SUB output")
def test_fp16_differences_of_infinities(board: Board) -> None:
    got = halves(board, element_wise(FP16, SUB), f16(INF, INF, -INF, -INF), f16(INF, -INF, INF, -INF), 4)
    assert got == [0x7C00, 0x7C01, 0x7C01, 0x7C00]


@pytest.mark.board(
    "7.8.4", "3.4.1", source="tinygrad-backend", place="CMPEQ: table NPU ADD(a, NEG(b)) output"
)
def test_fp16_sums_with_negated_infinities(board: Board) -> None:
    negated = halves(
        board, operation(flying(FP16), NEG, bits=16, bypass=False, memory=False), f16(INF, -INF, INF, -INF)
    )
    assert negated[:4] == [0xFC00, 0x7C00, 0xFC00, 0x7C00]
    got = halves(board, element_wise(FP16, ADD), f16(INF, INF, -INF, -INF), h16(*negated), 4)
    assert got == [0x7C01, 0x7C00, 0xFC00, 0x7C01]


@pytest.mark.board("7.8.4", "3.5.1", source="tinygrad-backend", place="CMPLT: trace of inf < inf")
def test_fp16_maximum_orders_nan_by_its_sign(board: Board) -> None:
    """MAX(NaN, 0) is the NaN, NEG of it with -1 is -1, and NEG of that is 1."""
    first = halves(board, element_wise(FP16, MAX), h16(FP16_NAN), h16(0), 1)
    assert is_nan(np.array(first, np.uint16)).all() and not first[0] & 0x8000
    negated = halves(
        board, operation(flying(FP16), NEG, bits=16, bypass=False, memory=False), h16(*first), count=1
    )
    assert negated[0] & 0x8000
    assert halves(board, element_wise(FP16, MAX), h16(*negated), f16(-1), 1) == [0xBC00]


@pytest.mark.board("7.8.4", "3.5.1", source="remaining-ops", place="TRUNC: all 65,536 FP16 encodings")
def test_truncation_of_every_half(board: Board) -> None:
    """MAX(FLOOR(x), NEG(MAX(NEG(CEIL(x)), 0))) equals trunc(x) bit for bit, also of zeros."""
    chosen = ALL_HALVES
    shape = {"channels": 8, "width": 64, "height": 128}

    def unary(algorithm: int, x: np.ndarray) -> np.ndarray:
        board.run(
            operation(flying(FP16, **shape), algorithm, bits=16, bypass=False, memory=False), x.tobytes()
        )
        return board.read(x.size, "<u2")

    def maximum(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        board.run(element_wise(FP16, MAX, **shape), x.tobytes(), y.tobytes())
        return board.read(x.size, "<u2")

    upper = unary(NEG, maximum(unary(NEG, unary(CEIL, chosen)), np.zeros_like(chosen)))
    got = maximum(unary(FLOOR, chosen), upper)
    with np.errstate(invalid="ignore"):
        same(got.view(np.float16), np.trunc(chosen.view(np.float16)))


@pytest.mark.board("7.8.4", source="remaining-ops", place="TRUNC: table of stages")
def test_stages_of_truncation(board: Board) -> None:
    x = f16(-2.9, -0.9, 0.9, 2.9, -1.5, -0.0, 0.0, 1.5)
    floor = halves(board, operation(flying(FP16), FLOOR, bits=16, bypass=False, memory=False), x)
    assert h16(*floor) == f16(-3, -1, 0, 2, -2, -0.0, 0.0, 1)
    ceil = halves(board, operation(flying(FP16), CEIL, bits=16, bypass=False, memory=False), x)
    assert h16(*ceil) == f16(-2, -0.0, 1, 3, -1, -0.0, 0.0, 2)


NINE = np.array([0.0, -0.0, 1.0, -1.0, INF, -INF, NAN, 2**-24, 65504.0], np.float16)


@pytest.mark.board(
    "7.8.4", "7.10.4", "8.2.3", source="remaining-ops", place="FDIV: 81 pairs, the seven that are infinite"
)
def test_fp16_quotients_of_special_numbers(board: Board) -> None:
    """The source corrects signs afterwards, so that magnitudes and NaN are its evidence; +0 / +0 is a NaN."""
    a, b = np.repeat(NINE, 9), np.tile(NINE, 9)
    a, b = (np.append(x, np.ones(7, np.float16)) for x in (a, b))
    board.run(element_wise(FP16, DIV, channels=8, width=11), a.tobytes(), b.tobytes())
    got = board.read(88, "<u2")
    with np.errstate(all="ignore"):
        expected = (a.astype(np.float64) / b.astype(np.float64)).astype(np.float16)
    bits = [x.view(np.uint16) for x in (a, b)]
    zeros = (a == 0) & (b == 0) & ((bits[0] != 0) | (bits[1] != 0))
    expected[zeros | (np.isinf(a) & np.isinf(b))] = INF
    assert np.count_nonzero(zeros | (np.isinf(a) & np.isinf(b))) == 7
    same((got & np.where(is_nan(got), 0xFFFF, 0x7FFF).astype(np.uint16)).view(np.float16), np.abs(expected))


@pytest.mark.board("7.8.4", "7.10.4", "8.2.3", source="tinygrad-backend", place="FDIV and RECIPROCAL")
def test_signs_of_fp16_quotients(board: Board) -> None:
    """A zero or infinite operand leaves the dividend's sign."""
    a, b = f16(0.0, -0.0, 1, 1, 1, 1, -1, 3), f16(-2, -2, -0.0, -INF, 0.0, INF, 4, -2)
    got = halves(board, element_wise(FP16, DIV), a, b)
    assert h16(*got) == f16(0.0, -0.0, INF, 0.0, INF, 0.0, -0.25, -1.5)


@pytest.mark.board(
    "2.4.5",
    "7.10.4",
    source="tinygrad-rockchip",
    place="ops_rockchip.py @1bef07672: setting 0 makes other operations wrong; @72f4513a9: a division is "
    "right with 0 and 1, not without the write",
)
def test_output_scale_as_a_reset_leaves_it(board: Board) -> None:
    """Each task of a board begins after a reset, as those of the back end do."""
    scale, a, b = ("DPU", "OUT_CVT_SCALE"), f16(1.5, -2, 3), f16(0.25, 4, -0.5)
    for algorithm, expected in ((ADD, f16(1.75, 2, 2.5)), (SUB, f16(1.25, -6, 3.5))):
        task = element_wise(FP16, algorithm)
        del task.values[scale]
        assert h16(*halves(board, task, a, b, 3)) == expected
        for written in (0, 1):
            got = halves(board, task.word(*scale, written), a, b, 3)
            assert got == [0, 0, 0]  # the low halves of binary32 numbers with few digits
    divided = element_wise(FP16, DIV)
    for written in (0, 1):
        assert h16(*halves(board, divided.word(*scale, written), a, b, 3)) == f16(6, -0.5, -6)
    del divided.values[scale]
    assert h16(*halves(board, divided, a, b, 3)) != f16(6, -0.5, -6)


@pytest.mark.board(
    "2.5.6",
    source="tinygrad-rockchip",
    place="ops_rockchip.py @72f4513a9, submit; test_rockchip.py, test_div",
)
def test_division_with_the_reader_as_a_reset_leaves_it(board: Board) -> None:
    task = element_wise(FP16, DIV)
    del task.values["DPU_RDMA", "FEATURE_MODE_CFG"]
    a, b = f16(1.5, -2, 3, 7, 0.5, -9, 100, 1), f16(0.25, 4, -0.5, 2, 8, 3, -25, 64)
    assert h16(*halves(board, task, a, b)) == f16(6, -0.5, -6, 3.5, 0.0625, -3, -4, 1 / 64)


class _WithTable(Task):
    """A task that fills both tables of the LUT first: entry n is n + 100."""

    def builder(self) -> TaskBuilder:
        built = TaskBuilder().enable(*self.blocks)
        for table in range(2):
            built.set("DPU", "LUT_ACCESS_CFG", LUT_ACCESS_TYPE=1, LUT_TABLE_ID=table)
            for n in range(513):
                built.set_word("DPU", "LUT_ACCESS_DATA", n + 100)
        for (block, register), value in self.values.items():
            built.set_word(block, register, value)
        return built


@pytest.mark.board(
    "2.4.5",
    source="tinygrad-rockchip",
    place="ops_rockchip.py, boilerplate; test_rockchip.py: test_exp2, test_silu",
)
def test_lut_with_the_output_scale_as_a_reset_leaves_it(board: Board) -> None:
    """The list of the back end's activations without its index scale: the result is the entry, not 0."""
    task = _WithTable("DPU", "DPU_RDMA")
    task.values |= flying(FP16).values
    del task.values["DPU", "OUT_CVT_SCALE"]
    task.set("DPU", "EW_CFG", EW_BYPASS=0, EW_LUT_BYPASS=0)
    task.set("DPU", "LUT_CFG", LUT_HYBRID_PRIORITY=1, LUT_OFLOW_PRIORITY=1, LUT_LO_LE_MUX=2)
    task.set("DPU", "LUT_INFO", LUT_LO_INDEX_SELECT=5, LUT_LE_INDEX_SELECT=5)
    task.word("DPU", "LUT_LE_START", 0xFFFF_C000).word("DPU", "LUT_LO_END", 0x4000)
    assert h16(*halves(board, task, f16(32, 320, 16000, -16384), count=4)) == f16(101, 110, 600, 100)


@pytest.mark.board(
    "7.10.2",
    source="tinygrad-backend",
    place="TRUNC: table, MINUS_EXP 1 and 10; CMPNE: f(-inf), f(NaN), f(inf)",
)
def test_minus_exp_on_halves(board: Board) -> None:
    for minus, given, expected in (
        (1, f16(0.0, 4), f16(INF, 2)),
        (10, f16(0.0, 4096), f16(128, 4)),
        (16, h16(0xFC00, FP16_NAN, 0x7C00), h16(0xBC00, 0x3C01, 0x3C00)),
    ):
        task = flying(FP16).set("DPU", "OUT_CVT_SHIFT", MINUS_EXP=minus)
        stage(task, "BS", MUL_BYPASS=0).set("DPU", "BS_MUL_CFG", BS_MUL_OPERAND=0x3C00)
        got = halves(board, task, given, count=len(given) // 2)
        assert h16(*got) == expected, minus


@pytest.mark.board("7.8.2", "7.10.2", "3.4.1", source="tinygrad-backend", place="CMPNE: table of stages")
def test_stages_of_a_comparison(board: Board) -> None:
    delta = halves(board, element_wise(FP16, SUB), f16(1, 2, 3, 4, 5), f16(5, 4, 3, 2, 1), 5)
    assert h16(*delta) == f16(-4, -2, 0, 2, 4)
    product = halves(board, element_wise(FP16, None), h16(*delta), f16(*[INF] * 5), 5)
    assert product == [0xFC00, 0xFC00, 0x7C01, 0x7C00, 0x7C00]
    task = flying(FP16).set("DPU", "OUT_CVT_SHIFT", MINUS_EXP=16)
    stage(task, "BS", MUL_BYPASS=0).set("DPU", "BS_MUL_CFG", BS_MUL_OPERAND=0x3C00)
    number = halves(board, task, h16(*product), count=5)
    assert number == [0xBC00, 0xBC00, 0x3C01, 0x3C00, 0x3C00]
    less = halves(board, element_wise(FP16, SUB), h16(*number), f16(*[1] * 5), 5)
    assert h16(*less) == f16(-2, -2, 2**-10, 0, 0)
    more = halves(board, element_wise(FP16, None), h16(*less), f16(*[1024] * 5), 5)
    assert h16(*more) == f16(-2048, -2048, 1, 0, 0)
    mask = halves(board, element_wise(FP16, MAX), h16(*more), f16(*[0] * 5), 5)
    assert h16(*mask) == f16(0, 0, 1, 0, 0)
    assert h16(*halves(board, element_wise(FP16, SUB), f16(*[1] * 5), h16(*mask), 5)) == f16(1, 1, 0, 1, 1)


@pytest.mark.board(
    "7.7.1", "3.5.1", source="tinygrad-backend", place="CMPLT: hardware BN ReLU-X maps NaN to finite 1"
)
def test_relux_of_nan_is_the_limit(board: Board) -> None:
    task = flying(FP16)
    stage(task, "BS", MUL_BYPASS=0).set("DPU", "BS_MUL_CFG", BS_MUL_OPERAND=0x3C00)
    stage(task, "BN", RELU_BYPASS=0, RELUX_EN=1).word("DPU", "BN_RELUX_CMP_VALUE", 0x3F800000)
    got = halves(board, task, h16(FP16_NAN, 0x7C00, 0xFC00, 0x3800, 0xB800, 0x4000, 0x0000, 0x7E00))
    assert h16(*got) == f16(1, 1, 0, 0.5, 0, 1, 0, 1)


@pytest.mark.board(
    "7.8.5", "7.8.2", source="tinygrad-backend", place="EXP2: FLOAT_SELECT, PReLU of zeros and -1"
)
def test_prelu_of_zeros_by_their_sign(board: Board) -> None:
    task = element_wise(FP16, None).set("DPU", "EW_CFG", EW_MUL_PRELU=1)
    main = f16(0.0, 0.0, 0.0, -0.0, -0.0, -1, -1, -1)
    got = halves(board, task, main, h16(0x7C00, 0xFC00, 0x7E00, 0x7C00, 0x7E00, 0x4500, 0x7C00, 0xB800))
    assert got[:3] == [0, 0, 0] and is_nan(np.array(got[3:5], np.uint16)).all()
    assert h16(*got[5:]) == f16(-5, -INF, 0.5)


EIGHT = f16(-2.9, -1.5, -0.9, -0.0, 0.0, 0.9, 1.5, 2.9)


@pytest.mark.parametrize("shift", [1, 4, 10])
@pytest.mark.board(
    "7.8.5", source="tinygrad-backend", place="TRUNC: table, EW_TRUNCATE and EW_TRUNCATE_NEG, FP16"
)
def test_truncate_shifts_the_bits_of_floats(board: Board, shift: int) -> None:
    task = element_wise(FP16, None)
    task.set("DPU", "EW_CVT_SCALE_VALUE", EW_TRUNCATE=shift)
    got = halves(board, task, EIGHT, f16(*[1] * 8))
    assert h16(*got) == EIGHT[:8] + bytes(8)
    task.set("DPU", "EW_CVT_SCALE_VALUE", EW_TRUNCATE=0).set("DPU", "DATA_FORMAT", EW_TRUNCATE_NEG=shift)
    got = halves(board, task, EIGHT, f16(*[1] * 8))
    assert h16(*got[4:]) == EIGHT[8:]
    assert all(x & 0x7C00 == 0x7C00 for x in got[:3])  # infinities and NaN


@pytest.mark.parametrize(
    ("register", "fields"),
    [
        ("EW_CVT_SCALE_VALUE", {"EW_OP_CVT_SHIFT": 4}),
        ("EW_CFG", {"EW_CVT_ROUND": 1}),
        ("OUT_CVT_SHIFT", {"OUT_CVT_SHIFT": 4}),
        ("OUT_CVT_SHIFT", {"CVT_ROUND": 1}),
        ("OUT_CVT_SHIFT", {"CVT_TYPE": 1}),
    ],
)
@pytest.mark.board("7.10.3", "7.8.3", source="tinygrad-backend", place="TRUNC: table, rows Unchanged, FP16")
def test_settings_without_effect_on_halves(board: Board, register: str, fields: dict[str, int]) -> None:
    task = element_wise(FP16, None).set("DPU", register, **fields)
    assert h16(*halves(board, task, EIGHT, f16(*[1] * 8))) == EIGHT


@pytest.mark.parametrize("minus", [1, 4, 10])
@pytest.mark.board("7.10.2", source="tinygrad-backend", place="TRUNC: table, MINUS_EXP, INT16")
def test_minus_exp_does_nothing_to_integers(board: Board, minus: int) -> None:
    task = flying(INT16).set("DPU", "OUT_CVT_SHIFT", MINUS_EXP=minus)
    numbers = np.array([-32768, -3, -1, 0, 1, 2, 100, 32767], np.int16).tobytes()
    board.run(task, numbers)
    assert board.read(8, "<i2").tobytes() == numbers


# --- conversions ----------------------------------------------------------------------------------


@pytest.mark.board(
    "7.10.1", "7.2.1", source="tinygrad-backend", place="23.3: INT16 to INT32, -32768, -1, 32767"
)
def test_int16_to_int32(board: Board) -> None:
    numbers = np.array([-32768, -1, 32767, 0, 1, 2, 3, -7], np.int16)
    board.run(flying(INT16, INT32, channels=8, size_e=1), numbers.tobytes())
    assert board.read(8, "<i4").tolist() == numbers.tolist()


@pytest.mark.board(
    "7.10.3", "7.2.1", source="tinygrad-backend", place="23.3: FP16 to INT32, -3.75, -1.5, 1.5, 3.75"
)
def test_fp16_to_int32(board: Board) -> None:
    board.run(flying(FP16, INT32, channels=8, size_e=1), f16(-3.75, -1.5, 1.5, 3.75, 2048, -2047, 0, 1))
    assert board.read(8, "<i4").tolist() == [-4, -2, 2, 4, 2048, -2047, 0, 1]


@pytest.mark.board("7.10.1", source="tinygrad-backend", place="23.3: INT32 to INT16, 32768 and 65535 clamp")
def test_int32_to_int16_saturates(board: Board) -> None:
    board.run(flying(INT32, INT16, channels=8), i32(32768, 65535, -40000, 5))
    assert board.read(4, "<i2").tolist() == [32767, 32767, -32768, 5]


@pytest.mark.board("7.10.1", source="remaining-ops", place="LOG2: exponent converted to FP32")
def test_int32_to_fp32(board: Board) -> None:
    board.run(flying(INT32, FP32, channels=8), i32(1, -5, 0, 127, -126, 2**24, 15, -1))
    assert board.read(8, "<f4").tolist() == [1, -5, 0, 127, -126, 2**24, 15, -1]


@pytest.mark.board("7.8.5", source="tinygrad-backend", place="CAST: bool to FP16, mask times 0x3C00 in INT16")
def test_mask_times_the_bits_of_one(board: Board) -> None:
    mask = np.array([1, 0, 1, 1, 0, 0, 1, 0], np.int16)
    got = halves(board, element_wise(INT16, None), mask.tobytes(), h16(*[0x3C00] * 8))
    assert got == [0x3C00 * x for x in mask]


def mask_task() -> Task:
    """fp16 to int8, 16 lanes: MRDMA reads the first eight, ERDMA the second."""
    task = flying(FP16, INT8, channels=16)
    task.set("DPU", "FEATURE_MODE_CFG", COMB_USE=1)
    stage(task, "BS", MUL_BYPASS=0).set("DPU", "BS_MUL_CFG", BS_MUL_OPERAND=0x3C00)
    stage(task, "BN", ALU_BYPASS=0, ALU_ALGO=2)
    task.set("DPU_RDMA", "FEATURE_MODE_CFG", COMB_USE=3)
    task.word("DPU_RDMA", "BRDMA_CFG", 0).word("DPU_RDMA", "NRDMA_CFG", 0).word("DPU_RDMA", "ERDMA_CFG", 0)
    task.set("DPU_RDMA", "ERDMA_CFG", ERDMA_DATA_MODE=1, ERDMA_DATA_SIZE=2)
    task.set("DPU_RDMA", "EW_BASE_ADDR", EW_BASE_ADDR=ELEMENT)
    task.set("DPU_RDMA", "EW_SURF_STRIDE", EW_SURF_STRIDE=2)
    task.set("DPU_RDMA", "SURF_NOTCH", SURF_NOTCH_ADDR=1)
    return task.set("DPU_RDMA", "EW_SURF_NOTCH", EW_SURF_NOTCH=1)


@pytest.mark.board("8.5.2", "7.13", source="tinygrad-backend", place="MUL: CAST_HALF_BOOL, sizes 1 to 4096")
def test_mask_of_sixteen_lanes_to_bytes(board: Board) -> None:
    first, second = [1, 0, 1, 1, 0, 0, 1, 0], [0, 0, 1, 0, 1, 1, 1, 1]
    board.run(mask_task(), f16(*first), f16(*second))
    assert board.read(16, "u1").tolist() == first + second


# --- registers as operands ------------------------------------------------------------------------


@pytest.mark.board(
    "7.8.2", source="remaining-ops", place="TRUNC: NEG keeps its -1 multiplier in EW_OP_VALUE_0"
)
def test_one_register_serves_all_lanes_of_a_pixel(board: Board) -> None:
    task = operation(flying(FP16), None, bits=16, bypass=True, memory=False).word(
        "DPU", "EW_OP_VALUE_0", 0xBC00
    )
    got = halves(board, task, f16(1, 2, 3, 4, 5, 6, 7, 8))
    assert h16(*got) == f16(-1, -2, -3, -4, -5, -6, -7, -8)


@pytest.mark.board(
    "7.8.6", source="notes-ew", place="fp16 ADD with the converter bypassed: main passes on about half"
)
def test_unconverted_operands_of_an_fp16_sum(board: Board) -> None:
    """A positive half is a tiny binary32 number, and main passes; a negative one, extended, is NaN."""
    task = element_wise(FP16, ADD).set("DPU", "EW_CFG", EW_OP_CVT_BYPASS=1)
    got = halves(board, task, f16(1, 2, 3, 4), f16(10, -10, 0.125, -0.125), 4)
    assert got[0] == 0x3C00 and got[2] == 0x4200
    assert is_nan(np.array([got[1], got[3]], np.uint16)).all()


@pytest.mark.board(
    "8.4.3", "8.2.2", source="vendor-adds", place="additions cut by rows: EW_SURF_NOTCH as SURF_NOTCH"
)
def test_sum_of_a_part_of_the_rows(board: Board) -> None:
    """54 of 160 rows in the source, 3 of 8 here: notches lead to the next surface."""
    width, rows, whole, channels = 5, 3, 8, 24
    rng = np.random.default_rng(2)
    a, b = (rng.integers(-9, 10, (3, whole * width, 8)).astype(np.float16) for _ in range(2))
    task = operation(flying(FP16, channels=channels, width=width, height=rows), ADD, bits=16, bypass=False)
    task.set("DPU_RDMA", "EW_SURF_STRIDE", EW_SURF_STRIDE=whole * width)
    for register, field in (("SURF_NOTCH", "SURF_NOTCH_ADDR"), ("EW_SURF_NOTCH", "EW_SURF_NOTCH")):
        task.set("DPU_RDMA", register, **{field: (whole - rows) * width})
    board.run(task, a.tobytes(), b.tobytes())
    got = board.read(3 * rows * width * 8, "<f2").reshape(3, rows * width, 8)
    np.testing.assert_array_equal(got, (a + b)[:, : rows * width])


# --- atoms of the input ---------------------------------------------------------------------------


@pytest.mark.board(
    "7.2.1",
    "7.11.2",
    source="remaining-ops",
    place="MULACC: four half lanes at offset 0 and four at offset 16",
)
def test_fp32_to_fp16_makes_two_atoms_of_four(board: Board) -> None:
    got = halves(board, flying(FP32, FP16, channels=8), f32(1, 2, 3, 4, 5, 6, 7, 8), count=12)
    assert got[:4] == [0x3C00, 0x4000, 0x4200, 0x4400] and got[8:] == [0x4500, 0x4600, 0x4700, 0x4800]


@pytest.mark.board(
    "8.3.1",
    "7.2.1",
    source="remaining-ops",
    place="EXP2: four half multipliers at offset 0 and four at offset 16",
)
@pytest.mark.parametrize("name", ["BS", "BN"])
def test_fp32_multipliers_come_in_fours(board: Board, name: str) -> None:
    task = flying(FP32, channels=8)
    stage(task, name, MUL_BYPASS=0)
    task.set("DPU", f"{name}_MUL_CFG", **{f"{name}_MUL_SRC": 1})
    operands(task, name, 4)
    factors = f16(2, 3, 4, 5) + f16(*[99] * 4) + f16(6, 7, 8, 9) + f16(*[99] * 4)
    board.run(task, f32(*[1] * 8), **{name.lower(): factors})
    assert board.read(8, "<f4").tolist() == [2, 3, 4, 5, 6, 7, 8, 9]


@pytest.mark.board("7.10.1", "7.2.1", source="tinygrad-backend", place="23.3: INT32 to FP16, 32767 and 65536")
def test_int32_to_fp16(board: Board) -> None:
    got = halves(board, flying(INT32, FP16, channels=8), i32(32767, 65536, 1, -1, 2, 3, 4, 5), count=12)
    assert h16(*got[:4]) == f16(32768, INF, 1, -1) and h16(*got[8:]) == f16(2, 3, 4, 5)
