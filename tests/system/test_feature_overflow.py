"""Features that reach the weight banks: results before that point are right [HW 4.10]."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from rkcosim.engines import open_engine
from rkcosim.spec.layouts import pack_feature, pack_weights
from tests.makers.field_programs import BASE, SIZE, Program, run

MAIN, WEIGHTS, OUT = BASE, BASE + 0x8_0000, BASE + 0x10_0000
KERNELS = 32
# Of 7 rows of 988 entries 5 lie before the weights, as in a public program (docs/reference, source
# allbilly-overflow): channels, rows, columns, kernel, DATA_ENTRIES, WEIGHT_BANK and rows that are right.
CASES = [
    (416, 7, 76, 1, 988, 1, 5),
    (64, 7, 20, 1, 6144, 1, 1),
    (64, 20, 9, 3, 127, 11, 2),
    (32, 20, 9, 2, 32767, 6, 0),
    (8, 40, 30, 3, 41, 11, 11),
]


@pytest.fixture(scope="module")
def npu() -> Iterator[object]:
    with open_engine(cores=1, on_diagnostic="go on") as device:
        device.memory.map(BASE, SIZE)
        yield device


def layer(channels: int, rows: int, columns: int, side: int, pitch: int, weight_bank: int) -> Program:
    """Return an fp16 convolution without padding."""
    out_rows, out_columns = rows - side + 1, columns - side + 1
    pixels, size = out_rows * out_columns, KERNELS * side * side * channels * 2
    p = Program()
    p.add("DPU", "S_POINTER", 0x0E)
    p.add("CNA", "CONV_CON1", IN_PRECISION=2, PROC_PRECISION=2)
    p.add("CNA", "CBUF_CON0", WEIGHT_BANK=weight_bank, DATA_BANK=12 - weight_bank)
    p.add("CNA", "CONV_CON2", FEATURE_GRAINS=52)
    p.add("CNA", "CONV_CON3", CONV_Y_STRIDE=1, CONV_X_STRIDE=1)
    p.add("CNA", "DATA_SIZE0", DATAIN_WIDTH=columns, DATAIN_HEIGHT=rows)
    p.add("CNA", "DATA_SIZE1", DATAIN_CHANNEL_REAL=channels - 1, DATAIN_CHANNEL=channels)
    p.add("CNA", "DATA_SIZE2", DATAOUT_WIDTH=out_columns)
    p.add("CNA", "DATA_SIZE3", DATAOUT_ATOMICS=pixels)
    p.add("CNA", "WEIGHT_SIZE0", size)
    p.add("CNA", "WEIGHT_SIZE1", size // KERNELS)
    p.add("CNA", "WEIGHT_SIZE2", WEIGHT_WIDTH=side, WEIGHT_HEIGHT=side, WEIGHT_KERNELS=KERNELS)
    p.add("CNA", "CBUF_CON1", DATA_ENTRIES=pitch)
    p.add("CNA", "CVT_CON0", DATA_SIGN=1, CVT_TYPE=1, CVT_BYPASS=1)
    p.add("CNA", "FEATURE_DATA_ADDR", MAIN)
    p.add("CNA", "DCOMP_ADDR0", WEIGHTS)
    p.add("CNA", "DMA_CON0", WEIGHT_BURST_LEN=15, DATA_BURST_LEN=15)
    p.add("CNA", "DMA_CON1", 4 * columns)
    p.add("CNA", "DMA_CON2", SURF_STRIDE=rows * columns - 4 * columns)
    p.add("CNA", "FC_DATA_SIZE0", DMA_WIDTH=columns, DMA_HEIGHT=rows)
    p.add("CNA", "FC_DATA_SIZE1", DMA_CHANNEL=channels)
    p.add("CORE", "MISC_CFG", PROC_PRECISION=2)
    p.add("CORE", "DATAOUT_SIZE_0", DATAOUT_HEIGHT=out_rows - 1, DATAOUT_WIDTH=out_columns - 1)
    p.add("CORE", "DATAOUT_SIZE_1", KERNELS - 1)
    p.add("DPU", "FEATURE_MODE_CFG", BURST_LEN=15, OUTPUT_MODE=2)
    p.add("DPU", "DATA_FORMAT", OUT_PRECISION=2, IN_PRECISION=2, PROC_PRECISION=2)
    p.add("DPU", "DST_BASE_ADDR", OUT)
    p.add("DPU", "DST_SURF_STRIDE", DST_SURF_STRIDE=pixels)
    p.add("DPU", "DATA_CUBE_WIDTH", out_columns - 1)
    p.add("DPU", "DATA_CUBE_HEIGHT", out_rows - 1)
    p.add("DPU", "DATA_CUBE_CHANNEL", ORIG_CHANNEL=KERNELS - 1, CHANNEL=KERNELS - 1)
    p.add("DPU", "BS_CFG", 0x53)
    p.add("DPU", "BN_CFG", 0x53)
    p.add("DPU", "EW_CFG", 0x383)
    p.add("DPU", "BS_OW_CFG", SIZE_E_2=1, SIZE_E_1=1, SIZE_E_0=1, OD_BYPASS=1)
    p.add("DPU", "WDMA_SIZE_0", CHANNEL_WDMA=KERNELS - 1)
    p.add("DPU", "WDMA_SIZE_1", HEIGHT_WDMA=out_rows - 1, WIDTH_WDMA=out_columns - 1)
    p.add("DPU", "OUT_CVT_SCALE", OUT_CVT_SCALE=1, FP32TOFP16_EN=1)
    p.add("DPU", "SURFACE_ADD", SURF_ADD=pixels * 2)
    return p


def store(device: object, channels: int, rows: int, columns: int, side: int) -> np.ndarray:
    """Write random operands that are exact in fp16; return the output [K, OH, OW]."""
    rng = np.random.default_rng(channels + rows)
    x = rng.integers(-2, 3, (channels, rows, columns))
    w = rng.integers(-2, 3, (KERNELS, channels, side, side))
    windows = np.lib.stride_tricks.sliding_window_view(x, (side, side), axis=(1, 2))
    y = np.einsum("cyxij,kcij->kyx", windows, w)
    assert abs(y).max() < 2048
    device.memory.write(MAIN, pack_feature(x.astype(np.float16)))  # type: ignore[attr-defined]
    device.memory.write(WEIGHTS, pack_weights(w.astype(np.float16)))  # type: ignore[attr-defined]
    return y


def output(device: object, shape: tuple[int, ...]) -> np.ndarray:
    """Return the output [K, OH, OW] from memory."""
    count = int(np.prod(shape))
    cube = np.frombuffer(bytes(device.memory.read(OUT, 2 * count)), np.float16)  # type: ignore[attr-defined]
    return cube.reshape(-1, *shape[1:], 8).transpose(0, 3, 1, 2).reshape(shape)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_lies_before_the_weights_stays_right(npu, case: tuple[int, ...]) -> None:
    channels, rows, columns, side, pitch, weight_bank, right = case
    want = store(npu, channels, rows, columns, side)
    before = len(npu.diagnostics())
    run(npu, layer(channels, rows, columns, side, pitch, weight_bank).finish(0x0D), 0x300, strict=False)
    got = output(npu, want.shape)
    assert np.array_equal(got[:, :right], want[:, :right])
    assert not np.array_equal(got[:, right], want[:, right])
    found = {(d.code, d.register) for d in npu.diagnostics()[before:]}
    assert found == {("FEATURE_FOOTPRINT", "CNA.CBUF_CON0")}
