"""Vectors from the field [HW 14] as complete programs: listed fields exact, results bit-exact.

Every program runs on the golden model and on the RTL; both are compared with numbers computed here.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from rkcosim.regcmd import amount_code
from tests.makers.field_programs import BASE, Program, conv_common, run, vector_device

FEATURES, WEIGHTS, OUT, OPERANDS = (BASE + 0x100 + 0x8000 * i for i in range(4))
POOL_OUT = BASE + 0x20100


@pytest.fixture(params=["golden", "rtl"])
def npu(request: pytest.FixtureRequest) -> Iterator:
    device = vector_device(request.param)
    yield device
    device.close()


def v1_program() -> Program:
    """[HW 14.5], all written registers."""
    p = Program()
    conv_common(p)
    p.add("CNA", "CBUF_CON0", WEIGHT_BANK=11, DATA_BANK=1)
    p.add("CNA", "CONV_CON1", GROUP_LINE_OFF=1)
    p.add("CNA", "CONV_CON2", FEATURE_GRAINS=5)
    p.add("CNA", "CONV_CON3", CONV_Y_STRIDE=1, CONV_X_STRIDE=1)
    p.add("CNA", "DATA_SIZE0", DATAIN_WIDTH=1, DATAIN_HEIGHT=4)
    p.add("CNA", "DATA_SIZE1", DATAIN_CHANNEL_REAL=63, DATAIN_CHANNEL=64)
    p.add("CNA", "DATA_SIZE2", DATAOUT_WIDTH=1)
    p.add("CNA", "DATA_SIZE3", DATAOUT_ATOMICS=4)
    p.add("CNA", "WEIGHT_SIZE0", 0x800)
    p.add("CNA", "WEIGHT_SIZE1", 64)
    p.add("CNA", "WEIGHT_SIZE2", WEIGHT_WIDTH=1, WEIGHT_HEIGHT=1, WEIGHT_KERNELS=32)
    p.add("CNA", "CBUF_CON1", DATA_ENTRIES=1)
    p.add("CNA", "FEATURE_DATA_ADDR", FEATURES)
    p.add("CNA", "DCOMP_ADDR0", WEIGHTS)
    p.add("CNA", "DMA_CON1", 4)
    p.add("CNA", "DMA_CON2", 0)
    p.add("CNA", "FC_DATA_SIZE0", DMA_WIDTH=1, DMA_HEIGHT=4)
    p.add("CNA", "FC_DATA_SIZE1", DMA_CHANNEL=64)
    p.add("CORE", "MISC_CFG", QD_EN=1)
    p.add("CORE", "DATAOUT_SIZE_0", DATAOUT_HEIGHT=3, DATAOUT_WIDTH=0)
    p.add("CORE", "DATAOUT_SIZE_1", 31)
    p.add("DPU", "FEATURE_MODE_CFG", 0x1E4)
    p.add("DPU", "DATA_FORMAT", OUT_PRECISION=4)
    p.add("DPU", "DST_BASE_ADDR", OUT)
    p.add("DPU", "DST_SURF_STRIDE", DST_SURF_STRIDE=1)
    p.add("DPU", "DATA_CUBE_WIDTH", 0)
    p.add("DPU", "DATA_CUBE_HEIGHT", 3)
    p.add("DPU", "DATA_CUBE_NOTCH_ADDR", NOTCH_ADDR_1=7, NOTCH_ADDR_0=7)
    p.add("DPU", "DATA_CUBE_CHANNEL", ORIG_CHANNEL=31, CHANNEL=31)
    p.add("DPU", "BS_CFG", 0x53)
    p.add("DPU", "BS_MUL_CFG", 0)
    p.add("DPU", "BS_OW_CFG", SIZE_E_2=7, SIZE_E_1=7, SIZE_E_0=7, OD_BYPASS=0)
    p.add("DPU", "BS_OW_OP", 0)
    p.add("DPU", "WDMA_SIZE_0", 31)
    p.add("DPU", "WDMA_SIZE_1", HEIGHT_WDMA=3, WIDTH_WDMA=0)
    p.add("DPU", "OUT_CVT_OFFSET", 0)
    p.add("DPU", "OUT_CVT_SCALE", 1)
    p.add("DPU", "OUT_CVT_SHIFT", 0)
    p.add("DPU", "SURFACE_ADD", SURF_ADD=8)
    return p


def test_v1_listed_fields() -> None:
    value = v1_program().value
    listed = {
        "CNA.DATA_SIZE0": 0x0001_0004,
        "CNA.DATA_SIZE1": 0x003F_0040,
        "CNA.WEIGHT_SIZE0": 0x800,
        "CNA.WEIGHT_SIZE2": 0x0101_0020,
        "CNA.CONV_CON1": 0x2000_0000,
        "CNA.CBUF_CON0": 0xB1,
        "DPU.DATA_FORMAT": 0x8000_0000,
        "DPU.DATA_CUBE_NOTCH_ADDR": 0x0007_0007,
        "DPU.DATA_CUBE_CHANNEL": 0x001F_001F,
        "DPU.BS_OW_CFG": 0x7FC,
        "DPU.SURFACE_ADD": 0x80,
        "DPU.DST_SURF_STRIDE": 0x10,
    }
    assert {name: value[name] for name in listed} == listed


def test_v1_row_major_matmul(npu) -> None:  # type: ignore[no-untyped-def]
    rng = np.random.default_rng(31)
    a = rng.integers(-128, 128, (4, 64), dtype=np.int8)
    b = rng.integers(-128, 128, (64, 32), dtype=np.int8)
    npu.memory.write(FEATURES, a)  # row-major
    # [1 group][2 channel groups][32 kernels][32 channels]
    tiles = b.reshape(2, 32, 32).transpose(0, 2, 1)
    npu.memory.write(WEIGHTS, np.ascontiguousarray(tiles))
    run(npu, v1_program().finish(0x0D), 0x300)
    got = np.frombuffer(npu.memory.read(OUT, 4 * 32 * 4), "<i4").reshape(4, 32)  # row-major
    assert (got == a.astype(np.int64) @ b.astype(np.int64)).all()


def v5_program(pixels: int) -> Program:
    """Cin 2, Cout 2, 1x1 as RKNN writes int8 convolutions: BS 0x20140, BRDMA use 7, CPEND from BRDMA."""
    p = Program()
    conv_common(p)
    p.add("CNA", "CBUF_CON0", WEIGHT_BANK=11, DATA_BANK=1)
    p.zero("CNA", "CONV_CON1")
    p.add("CNA", "CONV_CON2", FEATURE_GRAINS=2)
    p.add("CNA", "CONV_CON3", CONV_Y_STRIDE=1, CONV_X_STRIDE=1)
    p.add("CNA", "DATA_SIZE0", DATAIN_WIDTH=pixels, DATAIN_HEIGHT=1)
    p.add("CNA", "DATA_SIZE1", DATAIN_CHANNEL_REAL=1, DATAIN_CHANNEL=16)
    p.add("CNA", "DATA_SIZE2", DATAOUT_WIDTH=pixels)
    p.add("CNA", "DATA_SIZE3", DATAOUT_ATOMICS=pixels)
    p.add("CNA", "WEIGHT_SIZE0", 32)
    p.add("CNA", "WEIGHT_SIZE1", 16)
    p.add("CNA", "WEIGHT_SIZE2", WEIGHT_WIDTH=1, WEIGHT_HEIGHT=1, WEIGHT_KERNELS=2)
    p.add("CNA", "CBUF_CON1", DATA_ENTRIES=-(-pixels // 4))
    p.add("CNA", "FEATURE_DATA_ADDR", FEATURES)
    p.add("CNA", "DCOMP_ADDR0", WEIGHTS)
    p.add("CNA", "DMA_CON1", 4 * pixels)
    p.add("CNA", "DMA_CON2", SURF_STRIDE=(-3 * pixels) % (1 << 28))  # W * (H - 4)
    p.add("CNA", "FC_DATA_SIZE0", DMA_WIDTH=pixels, DMA_HEIGHT=1)
    p.add("CNA", "FC_DATA_SIZE1", DMA_CHANNEL=16)
    p.add("CORE", "MISC_CFG", QD_EN=1)
    p.add("CORE", "DATAOUT_SIZE_0", DATAOUT_WIDTH=pixels - 1)
    p.add("CORE", "DATAOUT_SIZE_1", 31)
    p.add("DPU", "FEATURE_MODE_CFG", 0x1E4)
    p.add("DPU", "DATA_FORMAT", BS_MUL_SHIFT_VALUE_NEG=14)
    p.add("DPU", "DST_BASE_ADDR", OUT)
    p.add("DPU", "DST_SURF_STRIDE", DST_SURF_STRIDE=pixels)
    p.add("DPU", "DATA_CUBE_WIDTH", pixels - 1)
    p.add("DPU", "DATA_CUBE_HEIGHT", 0)
    p.add("DPU", "DATA_CUBE_NOTCH_ADDR", 0)
    p.add("DPU", "DATA_CUBE_CHANNEL", ORIG_CHANNEL=1, CHANNEL=31)
    p.add("DPU", "BS_CFG", 0x20140)
    p.add("DPU", "BS_MUL_CFG", 0xE01)
    p.add("DPU", "BS_OW_CFG", SIZE_E_2=1, SIZE_E_1=1, SIZE_E_0=1, OD_BYPASS=0, OW_SRC=1)
    p.add("DPU", "BS_OW_OP", 0)
    p.add("DPU", "WDMA_SIZE_0", 31)
    p.add("DPU", "WDMA_SIZE_1", WIDTH_WDMA=pixels - 1)
    p.add("DPU", "OUT_CVT_OFFSET", 0)
    p.add("DPU", "OUT_CVT_SCALE", OUT_CVT_SCALE=0x4000)
    p.add("DPU", "OUT_CVT_SHIFT", OUT_CVT_SHIFT=22)
    p.add("DPU", "SURFACE_ADD", SURF_ADD=2 * pixels)
    p.add("DPU_RDMA", "DATA_CUBE_WIDTH", pixels - 1)
    p.add("DPU_RDMA", "DATA_CUBE_HEIGHT", 0)
    p.add("DPU_RDMA", "DATA_CUBE_CHANNEL", 31)
    p.zero("DPU_RDMA", "SRC_BASE_ADDR", "NRDMA_CFG", "BN_BASE_ADDR", "EW_BASE_ADDR", "EW_SURF_STRIDE")
    p.add("DPU_RDMA", "BRDMA_CFG", 0xE)
    p.add("DPU_RDMA", "BS_BASE_ADDR", OPERANDS)
    p.add("DPU_RDMA", "ERDMA_CFG", ERDMA_DISABLE=1)
    p.add("DPU_RDMA", "FEATURE_MODE_CFG", BURST_LEN=15, MRDMA_DISABLE=1)
    p.add("DPU_RDMA", "WEIGHT", 0x01010101)
    p.zero("DPU_RDMA", "SRC_DMA_CFG", "SURF_NOTCH", "PAD_CFG", "EW_SURF_NOTCH")
    return p


def v5_operands(b: int) -> np.ndarray:
    """Four blocks of A (8 x int32), B, C (8 x int16 each); unused channels zero [HW 3.7]."""
    table = np.zeros((4, 64), np.uint8)
    table[0, 32:36] = np.array([b, b], "<i2").view(np.uint8)
    table[0, 48:52] = np.array([16384, 16384], "<i2").view(np.uint8)
    return table


@pytest.mark.parametrize(
    ("coefficients", "zero_point"),
    [([[-127, 127], [127, -127]], 0), ([[-128, 127], [127, -128]], 42)],
    ids=["symmetric", "asymmetric"],
)
def test_v5_cpend_and_per_channel_scale(npu, coefficients: list, zero_point: int) -> None:  # type: ignore[no-untyped-def]
    pixels = 37
    rng = np.random.default_rng(32)
    x = rng.integers(-128, 128, (pixels, 16), dtype=np.int8)
    if zero_point == 0:
        x[:, 2:] = 0
    # With a zero point the padding channels may hold anything: B = -w_zp cancels their weights w_zp.
    weights = np.full((2, 16), zero_point, np.int8)
    weights[:, :2] = coefficients
    npu.memory.write(FEATURES, x)
    npu.memory.write(WEIGHTS, weights)
    npu.memory.write(OPERANDS, v5_operands(-zero_point))
    run(npu, v5_program(pixels).finish(0x1D), 0x300)
    got = np.frombuffer(npu.memory.read(OUT, pixels * 16), np.int8).reshape(pixels, 16)
    effective = np.array(coefficients, np.int64) - zero_point
    if zero_point:
        assert effective[0].tolist() == [-170, 85]
    exact = x[:, :2].astype(np.int64) @ effective.T
    want = np.clip([[round(int(v) / 256) for v in row] for row in exact], -128, 127)  # round: ties to even
    assert (got[:, :2] == want).all()
    assert (got[:, 2:] == 0).all()  # OFFSET_PEND
    second = np.frombuffer(npu.memory.read(OUT + pixels * 16, pixels * 16), np.int8)
    assert (second == 0).all()


def v6_program() -> Program:
    """Pool 2x2 stride 2, int8, 64 columns, 48 rows, 16 channels."""
    p = Program()
    for block in ("PPU", "PPU_RDMA"):
        clear = {"EXECUTER_PP_CLEAR": 1, "POINTER_PP_CLEAR": 1}
        p.add(block, "S_POINTER", POINTER_PP_MODE=1, EXECUTER_PP_EN=1, POINTER_PP_EN=1, **clear)
    p.add("PPU", "DATA_CUBE_IN_WIDTH", 63)
    p.add("PPU", "DATA_CUBE_IN_HEIGHT", 47)
    p.add("PPU", "DATA_CUBE_IN_CHANNEL", 15)
    p.add("PPU", "DATA_CUBE_OUT_WIDTH", 31)
    p.add("PPU", "DATA_CUBE_OUT_HEIGHT", 23)
    p.add("PPU", "DATA_CUBE_OUT_CHANNEL", 15)
    p.add("PPU", "OPERATION_MODE_CFG", FLYING_MODE=1, POOLING_METHOD=0)
    kernel = {"KERNEL_HEIGHT": 1, "KERNEL_WIDTH": 1, "KERNEL_STRIDE_HEIGHT": 1, "KERNEL_STRIDE_WIDTH": 1}
    p.add("PPU", "POOLING_KERNEL_CFG", **kernel)
    p.add("PPU", "RECIP_KERNEL_WIDTH", 0x8000)
    p.add("PPU", "RECIP_KERNEL_HEIGHT", 0x8000)
    p.zero("PPU", "POOLING_PADDING_CFG", "PADDING_VALUE_1_CFG", "PADDING_VALUE_2_CFG")
    p.add("PPU", "DST_BASE_ADDR", POOL_OUT)
    p.add("PPU", "DST_SURF_STRIDE", 32 * 24 * 16)
    p.add("PPU", "DATA_FORMAT", INDEX_ADD=32 * 24)
    p.add("PPU", "MISC_CTRL", 3)
    p.add("PPU_RDMA", "CUBE_IN_WIDTH", 63)
    p.add("PPU_RDMA", "CUBE_IN_HEIGHT", 47)
    p.add("PPU_RDMA", "CUBE_IN_CHANNEL", 15)
    p.add("PPU_RDMA", "SRC_BASE_ADDR", FEATURES)
    p.add("PPU_RDMA", "SRC_LINE_STRIDE", 0x400)
    p.add("PPU_RDMA", "SRC_SURF_STRIDE", 0xC000)
    p.add("PPU_RDMA", "DATA_FORMAT", 1)
    return p


def test_v6_listed_fields() -> None:
    value = v6_program().value
    listed = {
        "PPU.POOLING_KERNEL_CFG": 0x0011_0101,
        "PPU.OPERATION_MODE_CFG": 0x10,
        "PPU.S_POINTER": 0x3E,
        "PPU_RDMA.S_POINTER": 0x3E,
    }
    assert {name: value[name] for name in listed} == listed


def test_v6_average_pool(npu) -> None:  # type: ignore[no-untyped-def]
    rng = np.random.default_rng(33)
    x = rng.integers(-128, 128, (48, 64, 16), dtype=np.int8)
    npu.memory.write(FEATURES, x)
    words = v6_program().finish(0x60, pad_to=32)
    assert len(words) == 32 and amount_code(len(words)) == 15
    run(npu, words, 0xC00, at=BASE + 0x30000)
    got = np.frombuffer(npu.memory.read(POOL_OUT, 32 * 24 * 16), np.int8).reshape(24, 32, 16)
    total = x.astype(np.int64).reshape(24, 2, 32, 2, 16).sum(axis=(1, 3))
    # [HW 9.3]: half away from zero, except that 2x2 windows with a remainder of 1/2 go to the even quotient.
    want = np.array(
        [
            round(t / 4) if t % 4 == 2 else int(abs(t) / 4 + 0.5) * (1 if t >= 0 else -1)
            for t in total.ravel().tolist()
        ]
    )
    assert (got.ravel() == want).all()
    assert (total % 4 == 2).sum() > 1000
