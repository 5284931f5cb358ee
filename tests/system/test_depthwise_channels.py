"""Depthwise layers whose last block of weights is incomplete, with the vendor's WEIGHT_BYTES, on the RTL."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from rkcosim.engines import open_engine
from rkcosim.spec.layouts import pack_feature, pack_weights_depthwise
from tests.makers.field_programs import BASE, Program, run, vector_device

MAIN, WEIGHTS, OUT = BASE, BASE + 0x8_0000, BASE + 0x10_0000
SIDE, TAPS = 5, 9
OUT_SIDE = SIDE - 2

# WEIGHT_BYTES of 3 x 3 layers [HW 3.6]: boydjohnson/iree-rocket 2362a1f,
# iree-rocket-hal/src/rocket/conv.rs; allbilly/rk3588 40fae7b, examples/conv_legacy.py (3 channels);
# Nyan-SouthKorea/insightface-orangepi-rknn 7f7ea52, det_500m_fp16.rknn (16, 40 and 152 channels).
# 24 and 56 channels of fp16 follow from these.
HALF = [(3, 0x90), (16, 288), (24, 576), (32, 576), (40, 720), (56, 1152), (152, 2880)]
BYTES = [(16, 0x90), (48, 576), (64, 576), (96, 864)]
CASES = [(np.float16, *case) for case in HALF] + [(np.int8, *case) for case in BYTES]
THREE_ATOMS = 432
"""WEIGHT_BYTES of 48 int8 channels by Mesa's formula, kh * kw * align16(C)."""


@pytest.fixture(scope="module")
def npu() -> Iterator[object]:
    device = vector_device("rtl")
    yield device
    device.close()


def depthwise(kind: type, channels: int, weight_bytes: int) -> Program:
    """Return a 3 x 3 layer without padding; the result has the type of the input."""
    half = kind is np.float16
    code, per_atom, group = (2, 8, 32) if half else (0, 16, 64)
    atoms = -(-channels // per_atom)
    full, rest = divmod(atoms, 4)
    entries = full * SIDE + {0: 0, 1: -(-SIDE // 4), 2: -(-SIDE // 2), 3: SIDE}[rest]
    pixels, last = OUT_SIDE * OUT_SIDE, OUT_SIDE - 1
    p = Program()
    for block in ("DPU", "DPU_RDMA"):
        p.add(block, "S_POINTER", 0x0E)
    p.add("CNA", "CONV_CON1", CONV_MODE=3, IN_PRECISION=code, PROC_PRECISION=code)
    p.add("CNA", "CBUF_CON0", WEIGHT_BANK=6, DATA_BANK=6)
    p.add("CNA", "CONV_CON2", FEATURE_GRAINS=SIDE)
    p.add("CNA", "CONV_CON3", CONV_Y_STRIDE=1, CONV_X_STRIDE=1)
    p.add("CNA", "DATA_SIZE0", DATAIN_WIDTH=SIDE, DATAIN_HEIGHT=SIDE)
    p.add("CNA", "DATA_SIZE1", DATAIN_CHANNEL_REAL=channels - 1, DATAIN_CHANNEL=channels)
    p.add("CNA", "DATA_SIZE2", DATAOUT_WIDTH=OUT_SIDE)
    p.add("CNA", "DATA_SIZE3", DATAOUT_ATOMICS=pixels)
    p.add("CNA", "WEIGHT_SIZE0", weight_bytes)
    p.add("CNA", "WEIGHT_SIZE1", weight_bytes)
    p.add("CNA", "WEIGHT_SIZE2", WEIGHT_WIDTH=3, WEIGHT_HEIGHT=3, WEIGHT_KERNELS=1)
    p.add("CNA", "CBUF_CON1", DATA_ENTRIES=entries)
    p.add("CNA", "CVT_CON0", DATA_SIGN=1, CVT_TYPE=1, CVT_BYPASS=1)
    p.add("CNA", "FEATURE_DATA_ADDR", MAIN)
    p.add("CNA", "DCOMP_ADDR0", WEIGHTS)
    p.add("CNA", "DMA_CON0", WEIGHT_BURST_LEN=15, DATA_BURST_LEN=15)
    p.add("CNA", "DMA_CON1", 4 * SIDE)
    p.add("CNA", "DMA_CON2", SURF_STRIDE=SIDE * SIDE - 4 * SIDE)
    p.add("CNA", "FC_DATA_SIZE0", DMA_WIDTH=SIDE, DMA_HEIGHT=SIDE)
    p.add("CNA", "FC_DATA_SIZE1", DMA_CHANNEL=channels)
    p.add("CORE", "MISC_CFG", PROC_PRECISION=code, DW_EN=1)
    p.add("CORE", "DATAOUT_SIZE_0", DATAOUT_HEIGHT=last, DATAOUT_WIDTH=last)
    p.add("CORE", "DATAOUT_SIZE_1", channels - 1)
    p.add("DPU", "FEATURE_MODE_CFG", BURST_LEN=15, CONV_MODE=3, OUTPUT_MODE=2)
    p.add("DPU", "DATA_FORMAT", OUT_PRECISION=code, IN_PRECISION=code, PROC_PRECISION=code)
    p.add("DPU", "DST_BASE_ADDR", OUT)
    p.add("DPU", "DST_SURF_STRIDE", DST_SURF_STRIDE=pixels)
    p.add("DPU", "DATA_CUBE_WIDTH", last)
    p.add("DPU", "DATA_CUBE_HEIGHT", last)
    p.add("DPU", "DATA_CUBE_CHANNEL", ORIG_CHANNEL=channels - 1, CHANNEL=channels - 1)
    p.add("DPU", "BS_CFG", 0x53)
    p.add("DPU", "BN_CFG", 0x53)
    p.add("DPU", "EW_CFG", 0x383)
    p.add("DPU", "BS_OW_CFG", SIZE_E_2=3, SIZE_E_1=3, SIZE_E_0=3, OD_BYPASS=1)
    p.add("DPU", "WDMA_SIZE_0", CHANNEL_WDMA=channels - 1)
    p.add("DPU", "WDMA_SIZE_1", HEIGHT_WDMA=last, WIDTH_WDMA=last)
    p.add("DPU", "OUT_CVT_SCALE", OUT_CVT_SCALE=1, FP32TOFP16_EN=int(half))
    p.add("DPU", "SURFACE_ADD", SURF_ADD=pixels * group // per_atom)
    return p


def data(kind: type, channels: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return input [C, H, W], weights [C, 3, 3] and output [C, OH, OW], all exact in the type."""
    rng = np.random.default_rng(channels)
    x = rng.integers(-3, 4, (channels, SIDE, SIDE))
    w = rng.integers(-4, 5, (channels, 3, 3))
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(1, 2))
    y = np.einsum("cyxij,cij->cyx", windows, w)
    return x.astype(kind), w.astype(kind), y.astype(kind)


def output(device: object, kind: type, channels: int) -> np.ndarray:
    """Return the output [C, OH, OW] from memory."""
    per_atom = 16 // np.dtype(kind).itemsize
    surfaces = -(-channels // per_atom)
    raw = bytes(device.memory.read(OUT, 16 * surfaces * OUT_SIDE * OUT_SIDE))  # type: ignore[attr-defined]
    cube = np.frombuffer(raw, kind).reshape(surfaces, OUT_SIDE, OUT_SIDE, per_atom)
    return cube.transpose(0, 3, 1, 2).reshape(-1, OUT_SIDE, OUT_SIDE)[:channels]


@pytest.mark.parametrize(("kind", "channels", "weight_bytes"), CASES)
def test_last_blocks_of_every_size(npu, kind: type, channels: int, weight_bytes: int) -> None:
    x, w, want = data(kind, channels)
    packed = pack_weights_depthwise(w)
    assert packed.size == weight_bytes
    npu.memory.write(MAIN, pack_feature(x))
    npu.memory.write(WEIGHTS, packed)
    run(npu, depthwise(kind, channels, weight_bytes).finish(0x0D), 0x300)
    assert np.array_equal(output(npu, kind, channels), want)


def test_three_atoms_of_int8_stay_three_with_the_option(monkeypatch) -> None:
    options = ["d1_three_atoms_int8"]
    monkeypatch.setenv("RKCOSIM_OPTIONS", options[0])
    x, w, want = data(np.int8, 48)
    packed = pack_weights_depthwise(w)
    assert packed.size == THREE_ATOMS
    device = vector_device("rtl", options=options)
    device.memory.write(MAIN, pack_feature(x))
    device.memory.write(WEIGHTS, packed)
    run(device, depthwise(np.int8, 48, THREE_ATOMS).finish(0x0D), 0x300, options=options)
    assert np.array_equal(output(device, np.int8, 48), want)
    device.close()


def test_what_a_convolution_waits_for() -> None:
    """The same bytes are written earlier with j8_start_with_first_rows, but not with both options.

    FEATURE_GRAINS is all rows here, and the few weights come before the last of them.
    """
    x, w, want = data(np.int8, 96)
    first, whole = "j8_start_with_first_rows", "i5_rows_and_weights_first"
    cycles = []
    for options in ([], [first], [whole], [first, whole]):
        with open_engine(cores=1, options=options) as device:
            device.memory.map(BASE, 0x40_0000)
            device.memory.write(MAIN, pack_feature(x))
            device.memory.write(WEIGHTS, pack_weights_depthwise(w))
            run(device, depthwise(np.int8, 96, 864).finish(0x0D), 0x300, options=options)
            assert np.array_equal(output(device, np.int8, 96), want)
            cycles.append(device.task_log()[-1].cycles)
    assert cycles[1] < cycles[0] == cycles[2] == cycles[3]
