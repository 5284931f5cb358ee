"""Arithmetic of the task-level golden model against brute-force loops in plain Python."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from rkcosim.golden.task.arith import signed
from tests.makers.int8_tasks import (
    FEATURES,
    OPERANDS,
    OUT,
    WEIGHTS,
    conv_task,
    device,
    draw,
    flying_task,
    half_even,
    pool_task,
    read_out,
    reference,
    run,
    sat,
    weight_stream,
    write_cube,
)


def test_window_sum_and_cpend_and_bs_chain_match_exact_arithmetic() -> None:
    rng = np.random.default_rng(7)
    channels, kernels, kernel, out = 5, 32, (2, 2), (3, 3)
    x, w = draw(rng, channels, 3, 3), draw(rng, kernels, channels, *kernel)
    a = rng.integers(-50000, 50000, 32).tolist()
    b, c = rng.integers(-200, 200, 32).tolist(), rng.integers(-32768, 32768, 32).tolist()
    dev = device()
    write_cube(dev, FEATURES, x, 3, 9)
    dev.memory.write(WEIGHTS, weight_stream(w, channels, kernel))
    table = b""
    for block in range(0, 32, 8):
        table += np.array(a[block : block + 8], "<i4").tobytes()
        table += np.array(b[block : block + 8], "<i2").tobytes()
        table += np.array(c[block : block + 8], "<i2").tobytes()
    dev.memory.write(OPERANDS, table)
    task = conv_task((channels, 3, 3), kernels, kernel, out, pad=(1, 1), pad_value=4, precision=0)
    task.blocks = (*task.blocks, "DPU_RDMA")
    task.set("DPU", "BS_OW_CFG", OD_BYPASS=0, OW_SRC=1, SIZE_E_1=1)
    task.set("DPU", "BS_CFG", BS_BYPASS=0, BS_ALU_ALGO=2, BS_ALU_SRC=1, BS_RELU_BYPASS=1)
    task.set("DPU", "BS_MUL_CFG", BS_MUL_SRC=1, BS_MUL_SHIFT_VALUE=14)
    task.set("DPU", "DATA_FORMAT", BS_MUL_SHIFT_VALUE_NEG=15)
    task.set("DPU", "BN_CFG", BN_BYPASS=0, BN_ALU_BYPASS=1, BN_MUL_BYPASS=1, BN_RELUX_EN=1)
    task.set("DPU", "BN_RELUX_CMP_VALUE", BN_RELUX_CMP_DAT=60000)
    task.set("DPU", "OUT_CVT_SCALE", OUT_CVT_SCALE=0x4001)
    task.set("DPU", "OUT_CVT_SHIFT", OUT_CVT_SHIFT=23)
    task.set("DPU", "OUT_CVT_OFFSET", OUT_CVT_OFFSET=(-100) % (1 << 32))
    task.set("DPU_RDMA", "DATA_CUBE_WIDTH", WIDTH=2)
    task.set("DPU_RDMA", "DATA_CUBE_HEIGHT", HEIGHT=2)
    task.set("DPU_RDMA", "DATA_CUBE_CHANNEL", CHANNEL=kernels - 1)
    task.set("DPU_RDMA", "BRDMA_CFG", BRDMA_DATA_USE=7)
    task.address("DPU_RDMA", "BS_BASE_ADDR", OPERANDS)
    task.set("DPU_RDMA", "ERDMA_CFG", ERDMA_DISABLE=1)
    task.set("DPU_RDMA", "FEATURE_MODE_CFG", MRDMA_DISABLE=1)
    run(dev, task)
    acc, total = reference(x, w, kernel, out, (1, 1), 4)
    got, seen = read_out(dev, (kernels, *out), 1), set()
    for k in range(kernels):
        for y in range(3):
            for x0 in range(3):
                p = (acc[k][y][x0] + total[k][y][x0] * b[k] + a[k]) * c[k]
                v = sat(half_even(p, 14 if p >= 0 else 15), 32)
                v = min(max(v, 0), 60000)
                want = sat(half_even(v * 0x4001, 23) - 100, 8)
                seen.add(want)
                assert got[k][y][x0] == want, (k, y, x0)
    assert len(seen) > 20


def test_elementwise_add_with_zero_points() -> None:
    rng = np.random.default_rng(8)
    cube = (19, 2, 3)
    a, b = draw(rng, *cube), draw(rng, *cube)
    dev = device()
    write_cube(dev, FEATURES, a, 3, 6)
    write_cube(dev, OPERANDS, b, 3, 6)
    task = flying_task(cube)
    task.set("DPU", "BS_CFG", BS_BYPASS=0, BS_ALU_ALGO=4, BS_RELU_BYPASS=1)
    task.set("DPU", "BS_ALU_CFG", BS_ALU_OPERAND=11)
    task.set("DPU", "BS_MUL_CFG", BS_MUL_OPERAND=0x4000, BS_MUL_SHIFT_VALUE=6)
    task.set("DPU", "DATA_FORMAT", BS_MUL_SHIFT_VALUE_NEG=6)
    task.set("DPU", "EW_CVT_OFFSET_VALUE", EW_OP_CVT_OFFSET=5)
    task.set("DPU", "EW_CVT_SCALE_VALUE", EW_OP_CVT_SCALE=12345, EW_OP_CVT_SHIFT=7)
    task.set("DPU", "OUT_CVT_SCALE", OUT_CVT_SCALE=20000)
    task.set("DPU", "OUT_CVT_SHIFT", OUT_CVT_SHIFT=22)
    task.set("DPU", "OUT_CVT_OFFSET", OUT_CVT_OFFSET=3)
    run(dev, task)
    got = read_out(dev, cube, 1)
    for c in range(cube[0]):
        for y in range(2):
            for x in range(3):
                v = (a[c][y][x] - 11) * 256 + half_even((b[c][y][x] + 5) * 12345, 7)
                assert got[c][y][x] == sat(half_even(v * 20000, 22) + 3, 8)


def test_padding_channels_take_offset_pend() -> None:
    cube = (19, 1, 1)
    dev = device()
    task = flying_task(cube)
    task.set("DPU", "DATA_CUBE_CHANNEL", ORIG_CHANNEL=16)
    task.set("DPU", "OFFSET_PEND", OFFSET_PEND=0x0142)
    dev.memory.write(FEATURES, bytes([1] * 32))
    run(dev, task)
    assert dev.memory.read(OUT, 32) == bytes([1] * 17 + [0x42] * 15)


def average_by_rule(total: int, kernel: tuple[int, int]) -> int:
    """[HW 9.3]: half away from zero, but an even window's exact half goes towards zero (see the text)."""
    size = kernel[0] * kernel[1]
    exact = Fraction(abs(total), size)
    if size % 2 == 0 and exact.denominator == 2:
        low = exact.numerator // 2
        powers = all(k & (k - 1) == 0 for k in kernel)
        m = low + 1 if powers and low % 2 else low
    else:
        m = int(exact + Fraction(1, 2))
    return sat(m if total >= 0 else -m, 8)


@pytest.mark.parametrize("method", [0, 1, 2])
@pytest.mark.parametrize("kernel", [(1, 1), (2, 2), (3, 3), (2, 3), (4, 4), (3, 6)])
def test_pooling_matches_loops(method: int, kernel: tuple[int, int]) -> None:
    rng = np.random.default_rng(9)
    cube, pad, value = (18, 7, 8), (kernel[0] // 2, kernel[1] // 2), -3
    x = draw(rng, *cube)
    stride = (2, 1)
    out = ((7 + 2 * pad[0] - kernel[0]) // 2 + 1, 8 + 2 * pad[1] - kernel[1] + 1)
    dev = device()
    write_cube(dev, FEATURES, x, 8, 56)
    task = pool_task(cube, kernel, out, method)
    task.set("PPU", "POOLING_KERNEL_CFG", KERNEL_STRIDE_HEIGHT=stride[0] - 1)
    task.set("PPU", "POOLING_PADDING_CFG", PAD_TOP=pad[0], PAD_LEFT=pad[1])
    task.put("PPU_RDMA", "SRC_LINE_STRIDE", 8)
    task.set("PPU", "PADDING_VALUE_1_CFG", PAD_VALUE_0=value % (1 << 19))
    run(dev, task)
    got = read_out(dev, (18, *out), 1)
    for c in range(18):
        for oy in range(out[0]):
            for ox in range(out[1]):
                real, padded = [], 0
                for ky in range(kernel[0]):
                    for kx in range(kernel[1]):
                        y, x0 = oy * stride[0] + ky - pad[0], ox * stride[1] + kx - pad[1]
                        if 0 <= y < 7 and 0 <= x0 < 8:
                            real.append(x[c][y][x0])
                        else:
                            padded += 1
                total = sum(real) + value * padded
                want = (average_by_rule(total, kernel), max(real), min(real))[method]
                assert got[c][oy][ox] == want


def test_average_ties_are_those_of_the_hardware() -> None:
    # 2x2, sums with remainder two: quotients 0.5, 1.5, 2.5 give 0, 2, 2 (exact reciprocals: half to even)
    for total, want in ((2, 0), (6, 2), (10, 2), (-6, -2), (-2, 0), (7, 2), (5, 1)):
        assert average_by_rule(total, (2, 2)) == want
        dev = device()
        write_cube(dev, FEATURES, [[[total, 0], [0, 0]]], 2, 4)
        run(dev, pool_task((1, 2, 2), (2, 2), (1, 1), 0))
        assert signed(dev.memory.read(OUT, 1)[0], 8) == want
