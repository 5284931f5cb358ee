"""Numbers measured on boards for the DPU: activation tables, CLIP_TRUNCATE, additions after a reset.

The programs write the same values as the published ones; each number's source is in docs/reference,
section Sources.  The golden model and the RTL run all of them, and `run` compares their bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest

from rkcosim.spec.layouts import pack_feature, pack_weights
from tests.makers.field_programs import BASE, Program, run, vector_device

MAIN, ELEMENT, WEIGHTS, OUT = BASE, BASE + 0x4_0000, BASE + 0x8_0000, BASE + 0xC_0000
FLYING, RDMA_HALF = 0x1E5, 0x17849
HALF_TYPES, HALF_OUT = 0x48000002, 0x10001
Half = np.ndarray[Any, np.dtype[np.float16]]
Floats = np.ndarray[Any, np.dtype[np.float64]]


@pytest.fixture(params=["golden", "rtl"])
def npu(request: pytest.FixtureRequest) -> Iterator:
    """A device after its reset, whose memory is one mapped range of random bytes."""
    device = vector_device(request.param)
    yield device
    device.close()


# -- tables of activations (rocket-userspace: one program, other tables and scales) ------------------


def whole_range(function: Callable[[Floats], Floats], low: float, high: float) -> list[np.ndarray]:
    """One table over the whole range in LO, entries of at least 1; LE repeats its first entry."""
    entries = np.clip(np.rint(function(np.linspace(low, high, 513)) * 32768), 1, 32767)
    return [np.full(513, entries[0]), entries]


def two_halves(function: Callable[[Floats], Floats], scale: float) -> list[np.ndarray]:
    """Negative inputs in LE, others in LO, 32 indices per entry."""
    x = np.arange(-512, 513) * 32 / scale
    entries = np.clip(np.rint(function(x) * 32768), 0, 32767)
    return [entries[:513], entries[512:]]


def activation(npu, x: Half, tables: list[np.ndarray], how: dict[str, float]) -> Floats:
    """Run x through tables; `how` has `scale` and `bias` of the index, `offset` and `minus` of the output."""
    width = -(-x.size // 8)
    data = np.zeros(8 * width, np.float16)
    data[: x.size] = x
    npu.memory.write(MAIN, data.view(np.uint8))
    p = Program()
    for block in ("DPU", "DPU_RDMA"):
        p.add(block, "S_POINTER", 0x0E)
    for table, entries in enumerate(tables):
        p.add("DPU", "LUT_ACCESS_CFG", LUT_ACCESS_TYPE=1, LUT_TABLE_ID=table)
        for entry in entries:
            p.add("DPU", "LUT_ACCESS_DATA", int(entry))
    flying_cube(p, width, (7, 8 * width))
    p.add("DPU", "BS_CFG", 0x53)
    p.add("DPU", "BN_CFG", BN_ALU_ALGO=2, BN_RELU_BYPASS=1)
    p.add("DPU", "BN_ALU_CFG", int(np.float32(how.get("bias", -0.0)).view(np.uint32)))
    p.add("DPU", "BN_MUL_CFG", BN_MUL_OPERAND=int(np.float16(how["scale"]).view(np.uint16)))
    p.add("DPU", "EW_CFG", 0x300)
    p.add("DPU", "OUT_CVT_OFFSET", round(how["offset"]) % (1 << 32))
    p.add("DPU", "OUT_CVT_SHIFT", CVT_TYPE=1, MINUS_EXP=int(how["minus"]))
    p.add("DPU", "LUT_CFG", 0x68)
    p.add("DPU", "LUT_INFO", LUT_LO_INDEX_SELECT=5, LUT_LE_INDEX_SELECT=5)
    p.add("DPU", "LUT_LE_START", 0xFFFFC000)
    p.add("DPU", "LUT_LO_END", 0x4000)
    p.add("DPU", "LUT_LE_SLOPE_SCALE", int(how.get("slope", 0)))
    p.add("DPU", "LUT_LE_SLOPE_SHIFT", int(how.get("slope_shift", 0)))
    p.add("DPU_RDMA", "ERDMA_CFG", ERDMA_DISABLE=1)
    run(npu, p.finish(0x18), 0x300)
    return halves(npu, 8 * width).astype(np.float64)[: x.size]


def halves(npu, count: int) -> Half:
    """Return the contents of OUT as fp16."""
    return np.frombuffer(bytes(npu.memory.read(OUT, 2 * count)), np.float16)


def flying_cube(p: Program, width: int, pitches: tuple[int, int]) -> None:
    """Eight channels of fp16 in a row; the registers that every published element-wise program writes."""
    last, surface = pitches
    p.add("DPU", "FEATURE_MODE_CFG", FLYING)
    p.add("DPU", "DATA_FORMAT", HALF_TYPES)
    p.add("DPU", "DST_BASE_ADDR", OUT)
    p.add("DPU", "DST_SURF_STRIDE", DST_SURF_STRIDE=surface)
    p.add("DPU", "DATA_CUBE_WIDTH", width - 1)
    p.add("DPU", "DATA_CUBE_CHANNEL", ORIG_CHANNEL=last, CHANNEL=last)
    p.add("DPU", "BS_OW_CFG", OD_BYPASS=1)
    p.add("DPU", "WDMA_SIZE_0", CHANNEL_WDMA=last)
    p.add("DPU", "WDMA_SIZE_1", WIDTH_WDMA=width - 1)
    p.add("DPU", "OUT_CVT_SCALE", HALF_OUT)
    p.add("DPU", "SURFACE_ADD", SURF_ADD=surface)
    p.add("DPU_RDMA", "DATA_CUBE_WIDTH", width - 1)
    p.add("DPU_RDMA", "DATA_CUBE_CHANNEL", last)
    p.add("DPU_RDMA", "SRC_BASE_ADDR", MAIN)
    p.add("DPU_RDMA", "FEATURE_MODE_CFG", RDMA_HALF)


def straddling(
    npu,
    function: Callable[[Floats], Floats],
    x: Half,
    edge: float,
    lowest: float,
    power: int,
) -> Floats:
    """An activation by one table over -edge .. edge, results from `lowest` in a span of 2^power."""
    span = 2.0**power
    tables = whole_range(lambda v: (function(v) - lowest) / span, -edge, edge)
    scale = 16384 / (2 * edge)
    how = {"scale": scale, "bias": edge * scale, "offset": lowest * 32768 / span, "minus": 15 - power}
    return activation(npu, x, tables, how)


def softplus(x: Floats) -> Floats:
    return np.logaddexp(0.0, x)


def elu(x: Floats) -> Floats:
    return np.where(x >= 0, x, np.expm1(x))


AROUND_ZERO = np.linspace(-0.02, 0.02, 4001).astype(np.float16)


@pytest.mark.board("7.10.2", "7.9.5", source="glitch-probe", place="97 of 4001 elements of an ELU")
def test_elu_reads_64_where_the_sum_with_the_offset_is_zero(npu) -> None:
    """Like 97 of 4001 elements on a board; 2^(17 - MINUS_EXP) at MINUS_EXP 11."""
    x = AROUND_ZERO.astype(np.float64)
    got = straddling(npu, elu, AROUND_ZERO, 8.0, -1.0, 4)
    wrong = np.abs(got - elu(x)) > 0.02
    assert wrong.sum() == 97 and set(got[wrong]) == {64.0}


@pytest.mark.board("7.9.2", source="glitch-probe", place="largest error of ELU, 0.37 %")
def test_elu_away_from_zero(npu) -> None:
    """The largest relative error is 0.37 %, as on a board."""
    x = np.linspace(-6, 6, 2048).astype(np.float16)
    x = x[np.abs(x) > 8 / 1024]
    want = elu(x.astype(np.float64))
    error = np.abs(straddling(npu, elu, x, 8.0, -1.0, 4) - want) / np.maximum(np.abs(want), 0.1)
    assert error.max() < 0.0045


@pytest.mark.board("7.9.2", source="glitch-probe", place="largest error of abs, 0.000977")
def test_absolute_value_is_a_unit_too_low_between_entries(npu) -> None:
    """0.0009766, as on a board: the interpolation rounds down; rounded to nearest it would be 0.00195."""
    got = straddling(npu, np.abs, AROUND_ZERO, 16.0, 0.0, 5)
    assert np.abs(got - np.abs(AROUND_ZERO.astype(np.float64))).max() == pytest.approx(0.0009766, abs=1e-6)


@pytest.mark.board("7.9.2", "7.9.3", source="glitch-probe", place="largest error of Mish, 8e-6")
def test_mish_by_its_gate(npu) -> None:
    """8.09e-6, as on a board; the program computes the product with the gate."""
    x = AROUND_ZERO.astype(np.float64)
    tables = two_halves(lambda v: np.tanh(softplus(v)), 2596.0)
    how = {"scale": 2596.0, "offset": 1, "minus": 15, "slope": 23107, "slope_shift": 22}
    gate = activation(npu, AROUND_ZERO, tables, how)
    got = (AROUND_ZERO.astype(np.float32) * gate.astype(np.float32)).astype(np.float16)
    assert np.abs(got - x * np.tanh(softplus(x))).max() == pytest.approx(8.09e-6, abs=5e-9)


@pytest.mark.board("7.10.2", source="glitch-probe", place="128 at zero with MINUS_EXP 10")
def test_leaky_scan_has_one_spike(npu) -> None:
    """16385 inputs over -16 .. 16: 128 at zero, and no other result is wrong."""
    x = np.linspace(-16, 16, 16385).astype(np.float16)
    tables = two_halves(lambda v: (np.where(v >= 0, v, 0.1 * v) + 1.6) / 32, 1024.0)
    how = {"scale": 1024.0, "offset": -1.6 * 1024, "minus": 10}
    got = activation(npu, x, tables, how)
    assert list(got[np.abs(got) > 40]) == [128.0] and got[8192] == 128.0
    want = np.where(x >= 0, x, 0.1 * x.astype(np.float64))
    assert np.abs(got - want)[np.arange(16385) != 8192].max() < 0.01


# -- element-wise operations of a core that was just reset (allbilly/rk3588) -------------------------

SPECIAL = np.array([0, 1, -1, 3, -5, 2.5, 65504, -0.0, 6e-8, -6e-8, 0.1, -1000], np.float16)
EW = {"add": 0x108202C0, "sub": 0x108402C0, "max": 0x108002C0, "min": 0x108102C0, "mul": 0x108003C4}


def element_program(word: int, width: int, element: bool = True) -> Program:
    """As published: writes neither BS_CFG nor BN_CFG nor their operands."""
    p = Program()
    for block in ("DPU", "DPU_RDMA"):
        p.add(block, "S_POINTER", 0x0E)
    flying_cube(p, width, (7, width))
    p.add("DPU", "EW_CFG", word)
    p.add("DPU", "EW_CVT_SCALE_VALUE", 1)
    p.add("DPU_RDMA", "ERDMA_CFG", ERDMA_DATA_MODE=1, ERDMA_DATA_SIZE=2, ERDMA_DISABLE=int(not element))
    p.add("DPU_RDMA", "EW_BASE_ADDR", ELEMENT)
    p.add("DPU_RDMA", "EW_SURF_STRIDE", EW_SURF_STRIDE=width)
    return p


def operands(npu) -> tuple[Half, Half, int]:
    """Put all pairs of special values at the addresses that the program reads."""
    a, b = (np.array(side, np.float16) for side in zip(*product(SPECIAL, SPECIAL), strict=True))
    npu.memory.write(MAIN, a.view(np.uint8))
    npu.memory.write(ELEMENT, b.view(np.uint8))
    return a, b, a.size // 8


@pytest.mark.parametrize("name", EW)
@pytest.mark.board("7.5.3", source="stages-after-reset", place="six operations of six")
def test_element_wise_after_a_reset(npu, name: str) -> None:
    a, b, width = operands(npu)
    run(npu, element_program(EW[name], width).finish(0x18), 0x300)
    x, y = a.astype(np.float32), b.astype(np.float32)
    with np.errstate(over="ignore"):
        results = {"add": x + y, "sub": x - y, "max": np.maximum(x, y), "min": np.minimum(x, y), "mul": x * y}
        want = results[name].astype(np.float16)
    assert np.array_equal(halves(npu, a.size), want)


def test_additions_of_zeros_and_of_small_numbers(npu) -> None:
    """3 + 5 times the smallest number is 8 times the smallest number."""
    npu.memory.write(MAIN, np.full(8, 3, np.uint16).view(np.uint8))
    npu.memory.write(ELEMENT, np.full(8, 5, np.uint16).view(np.uint8))
    run(npu, element_program(EW["add"], 1).finish(0x18), 0x300)
    assert set(halves(npu, 8).view(np.uint16)) == {8}


@pytest.mark.parametrize("off", [0x1, 0x2])
@pytest.mark.board("8.6.2", source="where-compare", place="8 of 8")
def test_an_operand_that_nothing_takes_is_dropped(npu, off: int) -> None:
    """EW_OP_SRC 1 with EW_BYPASS or EW_OP_BYPASS, and ERDMA on: 8 of 8 tasks ended on a board."""
    a, _, width = operands(npu)
    run(npu, element_program(EW["add"] | off, width).finish(0x18), 0x300)
    assert np.array_equal(halves(npu, a.size), a)


# -- CLIP_TRUNCATE and the zero point (Mesa, librocketnpu) --------------------------------------------


def truncated_program(truncate: int, factor: tuple[int, int], correction: int, zero: int) -> Program:
    """A pointwise int8 convolution of 32 channels, 4 x 4, as these drivers write it."""
    p = Program()
    for block in ("CNA", "CORE", "DPU"):
        p.add(block, "S_POINTER", 0x0E)
    p.add("CNA", "CBUF_CON0", WEIGHT_BANK=6, DATA_BANK=6)
    p.add("CNA", "CONV_CON2", FEATURE_GRAINS=5)
    p.add("CNA", "CONV_CON3", CONV_Y_STRIDE=1, CONV_X_STRIDE=1)
    p.add("CNA", "DATA_SIZE0", DATAIN_WIDTH=4, DATAIN_HEIGHT=4)
    p.add("CNA", "DATA_SIZE1", DATAIN_CHANNEL_REAL=31, DATAIN_CHANNEL=32)
    p.add("CNA", "DATA_SIZE2", DATAOUT_WIDTH=4)
    p.add("CNA", "DATA_SIZE3", DATAOUT_ATOMICS=16)
    p.add("CNA", "WEIGHT_SIZE0", 1024)
    p.add("CNA", "WEIGHT_SIZE1", 32)
    p.add("CNA", "WEIGHT_SIZE2", WEIGHT_WIDTH=1, WEIGHT_HEIGHT=1, WEIGHT_KERNELS=32)
    p.add("CNA", "CBUF_CON1", DATA_ENTRIES=2)
    p.add("CNA", "CVT_CON0", DATA_SIGN=1, CVT_TYPE=1, CVT_BYPASS=1)
    p.add("CNA", "FEATURE_DATA_ADDR", MAIN)
    p.add("CNA", "DCOMP_ADDR0", WEIGHTS)
    p.add("CNA", "DMA_CON0", WEIGHT_BURST_LEN=15, DATA_BURST_LEN=15)
    p.add("CNA", "DMA_CON1", 16)
    p.add("CNA", "FC_DATA_SIZE0", DMA_WIDTH=4, DMA_HEIGHT=4)
    p.add("CNA", "FC_DATA_SIZE1", DMA_CHANNEL=32)
    p.add("CORE", "MISC_CFG", QD_EN=1)
    p.add("CORE", "DATAOUT_SIZE_0", DATAOUT_HEIGHT=3, DATAOUT_WIDTH=3)
    p.add("CORE", "DATAOUT_SIZE_1", 31)
    p.add("CORE", "CLIP_TRUNCATE", CLIP_TRUNCATE=truncate)
    p.add("DPU", "FEATURE_MODE_CFG", 0x1E4)
    p.add("DPU", "DST_BASE_ADDR", OUT)
    p.add("DPU", "DST_SURF_STRIDE", DST_SURF_STRIDE=16)
    p.add("DPU", "DATA_CUBE_WIDTH", 3)
    p.add("DPU", "DATA_CUBE_HEIGHT", 3)
    p.add("DPU", "DATA_CUBE_CHANNEL", ORIG_CHANNEL=31, CHANNEL=31)
    p.add("DPU", "BS_CFG", 0x53)
    p.add("DPU", "BN_CFG", 0x53)
    p.add("DPU", "EW_CFG", 0x383)
    p.add("DPU", "BS_OW_CFG", SIZE_E_2=1, SIZE_E_1=1, SIZE_E_0=1)
    p.add("DPU", "BS_OW_OP", correction)
    p.add("DPU", "WDMA_SIZE_0", CHANNEL_WDMA=31)
    p.add("DPU", "WDMA_SIZE_1", HEIGHT_WDMA=3, WIDTH_WDMA=3)
    p.add("DPU", "OUT_CVT_OFFSET", zero % (1 << 32))
    p.add("DPU", "OUT_CVT_SCALE", factor[0])
    p.add("DPU", "OUT_CVT_SHIFT", factor[1])
    p.add("DPU", "SURFACE_ADD", SURF_ADD=32)
    return p


def half_even(values: np.ndarray, shift: int) -> np.ndarray:
    """values / 2^shift to nearest, ties to even."""
    return np.rint(values / 2.0**shift).astype(np.int64)


@pytest.mark.parametrize("truncate", [0, 1])
def test_truncated_sums_hold_their_correction(npu, truncate: int) -> None:
    """OW_OP 0x18 with CLIP_TRUNCATE 1: the sum and its correction are rounded together, once."""
    rng = np.random.default_rng(41)
    x = rng.integers(-128, 128, (32, 4, 4)).astype(np.int8)
    w = rng.integers(-9, 10, (32, 32, 1, 1)).astype(np.int8)
    npu.memory.write(MAIN, pack_feature(x))
    npu.memory.write(WEIGHTS, pack_weights(w))
    scale, shift, zero = 21001, 21, -13
    run(npu, truncated_program(truncate, (scale, shift - truncate), 0x18, zero).finish(0x0D), 0x300)
    sums = np.einsum("chw,kc->khw", x.astype(np.int64), w[:, :, 0, 0].astype(np.int64))
    accumulated = half_even(sums + 0x18 * x.astype(np.int64).sum(0), truncate)
    want = np.clip(half_even(accumulated * scale, shift - truncate) + zero, -128, 127)
    got = np.frombuffer(bytes(npu.memory.read(OUT, 512)), np.int8).reshape(2, 16, 16).transpose(0, 2, 1)
    assert np.array_equal(got.reshape(32, 4, 4), want)
    if truncate:  # rounded apart, sums that are odd would differ
        apart = half_even(sums, 1) + half_even(0x18 * x.astype(np.int64).sum(0), 1)
        assert not np.array_equal(apart, accumulated) or (0x18 * x.astype(np.int64).sum(0) % 4 == 0).all()


@pytest.mark.parametrize(("zero", "want"), [(0, 128), (-1, 126), (-2, 126), (-3, 124)])
@pytest.mark.board("7.10.1", source="offset-before-rounding", place="127.5 with offset -1 gives 126")
def test_the_zero_point_enters_before_the_rounding(npu, zero: int, want: int) -> None:
    """127.5 - 1 gives 126 on RV1103: the even neighbour."""
    npu.memory.write(MAIN, np.full(512, 3, np.uint8))
    w = np.zeros((32, 32, 1, 1), np.int8)
    w[:, 0] = 85  # 3 x 85 = 255
    npu.memory.write(WEIGHTS, pack_weights(w))
    run(npu, truncated_program(0, (1, 1), 0, zero).finish(0x0D), 0x300)
    assert set(np.frombuffer(bytes(npu.memory.read(OUT, 512)), np.int8)) == {min(want, 127)}


def test_the_zero_point_after_the_rounding_as_an_option() -> None:
    """127.5 is rounded to 128 first, then a zero point of -1 gives 127."""
    option = "q1_zero_point_after_rounding"
    for kind in ("golden", "rtl"):
        device = vector_device(kind, options=[option])
        device.memory.write(MAIN, np.full(512, 3, np.uint8))
        w = np.zeros((32, 32, 1, 1), np.int8)
        w[:, 0] = 85
        device.memory.write(WEIGHTS, pack_weights(w))
        for up in (0, 1):
            p = truncated_program(0, (1, 1), 0, -1)
            p.add("DPU", "OUT_CVT_SHIFT", OUT_CVT_SHIFT=1, CVT_ROUND=up)
            run(device, p.finish(0x0D), 0x300, options=[option])
            assert set(np.frombuffer(bytes(device.memory.read(OUT, 512)), np.int8)) == {127}
        device.close()
