"""Task-level golden model against hand-derived numbers and brute-force loops in plain Python."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from cosim.crosscheck.program import Task, link
from cosim.golden.task import GoldenDevice, GoldenError, GoldenHang, Memory
from cosim.golden.task.arith import signed

ATOM = 16
FEATURES, WEIGHTS, OUT, OPERANDS, COMMANDS = 0x10000, 0x20000, 0x30000, 0x40000, 0x50000


def sat(value: int, bits: int) -> int:
    return max(-(1 << (bits - 1)), min((1 << (bits - 1)) - 1, value))


def half_even(value: int, shift: int) -> int:
    return round(Fraction(value, 1 << shift))


def device() -> GoldenDevice:
    memory = Memory()
    for base in (FEATURES, WEIGHTS, OUT, OPERANDS, COMMANDS):
        memory.map(base, 0x8000)
    return GoldenDevice(memory)


def run(dev: GoldenDevice, *tasks: Task, delta: bool = False, **kick: int) -> None:
    chain = link(tasks, COMMANDS, delta=delta)
    for address, words in chain.lists:
        dev.memory.write(address, np.array(words, "<u8"))
    dev.run_kick(chain.base, chain.amount, chain.tasks, **kick)


def write_cube(dev: GoldenDevice, base: int, cube: list, line: int, surface: int) -> None:
    """Store cube[c][y][x] (int8) as NC1HWC2, one byte at a time."""
    for c, plane in enumerate(cube):
        for y, row in enumerate(plane):
            for x, value in enumerate(row):
                at = base + ATOM * (c // 16 * surface + y * line + x) + c % 16
                dev.memory.write(at, bytes([value & 0xFF]))


def conv_task(
    shape: tuple[int, int, int],
    kernels: int,
    kernel: tuple[int, int],
    out: tuple[int, int],
    *,
    pad: tuple[int, int] = (0, 0),
    pad_value: int = 0,
    precision: int = 4,
) -> Task:
    """An int8 convolution with raw int32 output (or another precision), tight cubes."""
    channels, height, width = shape
    task = Task(("CNA", "CORE", "DPU"))
    padded = -(-channels // 16) * 16
    entries = padded // 64 * width + -(-(padded % 64 // 16) * width // 4)
    if padded % 64 == 48:
        entries = (padded // 64 + 1) * width
    size = kernels * padded * kernel[0] * kernel[1]
    task.set("CNA", "CONV_CON2", FEATURE_GRAINS=height)
    task.set("CNA", "CONV_CON3", CONV_Y_STRIDE=1, CONV_X_STRIDE=1)
    task.set("CNA", "DATA_SIZE0", DATAIN_WIDTH=width, DATAIN_HEIGHT=height)
    task.set("CNA", "DATA_SIZE1", DATAIN_CHANNEL=channels)
    task.set("CNA", "DATA_SIZE2", DATAOUT_WIDTH=out[1])
    task.set("CNA", "DATA_SIZE3", DATAOUT_ATOMICS=out[0] * out[1])
    task.set("CNA", "WEIGHT_SIZE0", WEIGHT_BYTES=size)
    task.set("CNA", "WEIGHT_SIZE2", WEIGHT_WIDTH=kernel[1], WEIGHT_HEIGHT=kernel[0])
    task.set("CNA", "WEIGHT_SIZE2", WEIGHT_KERNELS=kernels)
    task.set("CNA", "CBUF_CON0", DATA_BANK=4, WEIGHT_BANK=8)
    task.set("CNA", "CBUF_CON1", DATA_ENTRIES=entries)
    task.set("CNA", "CVT_CON0", CVT_BYPASS=1)
    task.set("CNA", "PAD_CON0", PAD_TOP=pad[0], PAD_LEFT=pad[1])
    task.set("CNA", "PAD_CON1", PAD_VALUE=(pad_value & 0xFF) * 0x01010101)
    task.address("CNA", "FEATURE_DATA_ADDR", FEATURES)
    task.address("CNA", "DCOMP_ADDR0", WEIGHTS)
    task.set("CNA", "DMA_CON1", LINE_STRIDE=4 * width)
    task.set("CNA", "DMA_CON2", SURF_STRIDE=width * (height - 4))
    task.set("CNA", "FC_DATA_SIZE0", DMA_WIDTH=width, DMA_HEIGHT=height)
    task.set("CNA", "FC_DATA_SIZE1", DMA_CHANNEL=channels)
    task.set("CORE", "MISC_CFG", QD_EN=1)
    dpu_cube(task, (kernels, *out), precision)
    return task


def dpu_cube(task: Task, cube: tuple[int, int, int], precision: int, *, flying: int = 0) -> None:
    """DPU registers that pass data through to OUT."""
    channels, height, width = cube
    task.set("DPU", "FEATURE_MODE_CFG", OUTPUT_MODE=2, FLYING_MODE=flying, BURST_LEN=15)
    task.set("DPU", "DATA_FORMAT", OUT_PRECISION=precision)
    task.address("DPU", "DST_BASE_ADDR", OUT)
    task.put("DPU", "DST_SURF_STRIDE", height * width)
    task.set("DPU", "DATA_CUBE_WIDTH", WIDTH=width - 1)
    task.set("DPU", "DATA_CUBE_HEIGHT", HEIGHT=height - 1)
    task.set("DPU", "DATA_CUBE_CHANNEL", CHANNEL=channels - 1, ORIG_CHANNEL=channels - 1)
    task.set("DPU", "WDMA_SIZE_0", CHANNEL_WDMA=channels - 1)
    task.set("DPU", "WDMA_SIZE_1", HEIGHT_WDMA=height - 1, WIDTH_WDMA=width - 1)
    task.set("DPU", "BS_CFG", BS_BYPASS=1)
    task.set("DPU", "BN_CFG", BN_BYPASS=1)
    task.set("DPU", "EW_CFG", EW_BYPASS=1, EW_LUT_BYPASS=1)
    size = 32 * (1, 2, 0, 0, 4)[precision] // 16
    size_e = min(size, 8) - 1
    task.set("DPU", "BS_OW_CFG", OD_BYPASS=1, SIZE_E_0=size_e, SIZE_E_1=size_e, SIZE_E_2=size_e)
    task.set("DPU", "SURFACE_ADD", SURF_ADD=size * height * width)
    task.set("DPU", "OUT_CVT_SCALE", OUT_CVT_SCALE=1)


def read_out(dev: GoldenDevice, cube: tuple[int, int, int], size: int) -> list:
    """Read OUT back as cube[c][y][x], one element at a time."""
    channels, height, width = cube
    per = 16 // size
    out = []
    for c in range(channels):
        plane = []
        for y in range(height):
            row = []
            for x in range(width):
                at = OUT + ATOM * (c // per * height * width + y * width + x) + c % per * size
                row.append(int.from_bytes(dev.memory.read(at, size), "little", signed=True))
            plane.append(row)
        out.append(plane)
    return out


def reference(x, w, kernel, out, pad, pad_value):  # type: ignore[no-untyped-def]
    """Accumulators and window sums by loops: x[c][y][x], w[k][c][kr][kc]."""
    lanes = len(w)
    acc = [[[0] * out[1] for _ in range(out[0])] for _ in range(lanes)]
    total = [[[0] * out[1] for _ in range(out[0])] for _ in range(lanes)]
    for k in range(lanes):
        for oy in range(out[0]):
            for ox in range(out[1]):
                for kr in range(kernel[0]):
                    for kc in range(kernel[1]):
                        iy = oy + kr - pad[0]
                        ix = ox + kc - pad[1]
                        inside = 0 <= iy < len(x[0]) and 0 <= ix < len(x[0][0])
                        for c in range(len(x)):
                            value = x[c][iy][ix] if inside else pad_value
                            acc[k][oy][ox] += value * w[k][c][kr][kc]
                            total[k][oy][ox] += value
    return acc, total


def weight_stream(w: list, channels: int, kernel: tuple[int, int]) -> bytes:
    """Direct weights in memory order by loops (H3.6)."""
    padded = -(-channels // 16) * 16
    out = bytearray()
    for g in range(0, len(w), 32):
        for cg in range(0, padded, 32):
            for kr in range(kernel[0]):
                for kc in range(kernel[1]):
                    for k in range(g, min(g + 32, len(w))):
                        for c in range(cg, min(cg + 32, padded)):
                            out.append(w[k][c][kr][kc] & 0xFF if c < channels else 0x55)
    return bytes(out)


def draw(rng: np.random.Generator, *shape: int) -> list:
    return rng.integers(-128, 128, shape).tolist()


def test_window_sum_and_cpend_and_bs_chain_match_exact_arithmetic() -> None:
    rng = np.random.default_rng(7)
    channels, kernels, kernel, out = 5, 10, (2, 2), (3, 3)
    x, w = draw(rng, channels, 3, 3), draw(rng, kernels, channels, *kernel)
    a = rng.integers(-50000, 50000, 16).tolist()
    b, c = rng.integers(-200, 200, 16).tolist(), rng.integers(-32768, 32768, 16).tolist()
    dev = device()
    write_cube(dev, FEATURES, x, 3, 9)
    dev.memory.write(WEIGHTS, weight_stream(w, channels, kernel))
    table = b""
    for block in (0, 8):
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


def flying_task(cube: tuple[int, int, int]) -> Task:
    """An int8 element-wise task: MRDMA from FEATURES, ERDMA from OPERANDS."""
    channels, height, width = cube
    task = Task(("DPU", "DPU_RDMA"))
    dpu_cube(task, cube, 0, flying=1)
    task.set("DPU", "EW_CFG", EW_BYPASS=0, EW_OP_SRC=1, EW_ALU_ALGO=2, EDATA_SIZE=1, EW_RELU_BYPASS=1)
    task.set("DPU", "EW_CFG", EW_DATA_MODE=1, EW_CVT_TYPE=1)
    task.set("DPU_RDMA", "DATA_CUBE_WIDTH", WIDTH=width - 1)
    task.set("DPU_RDMA", "DATA_CUBE_HEIGHT", HEIGHT=height - 1)
    task.set("DPU_RDMA", "DATA_CUBE_CHANNEL", CHANNEL=channels - 1)
    task.address("DPU_RDMA", "SRC_BASE_ADDR", FEATURES)
    task.address("DPU_RDMA", "EW_BASE_ADDR", OPERANDS)
    task.put("DPU_RDMA", "EW_SURF_STRIDE", height * width)
    task.set("DPU_RDMA", "ERDMA_CFG", ERDMA_DATA_MODE=1, ERDMA_DATA_SIZE=1)
    task.set("DPU_RDMA", "FEATURE_MODE_CFG", FLYING_MODE=1)
    return task


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


def pool_task(cube: tuple[int, int, int], kernel: tuple[int, int], out: tuple[int, int], method: int) -> Task:
    channels, height, width = cube
    task = Task(("PPU", "PPU_RDMA"))
    for axis, size in (("CHANNEL", channels), ("HEIGHT", height), ("WIDTH", width)):
        task.put("PPU", f"DATA_CUBE_IN_{axis}", size - 1)
        task.put("PPU_RDMA", f"CUBE_IN_{axis}", size - 1)
    for axis, size in (("CHANNEL", channels), ("HEIGHT", out[0]), ("WIDTH", out[1])):
        task.put("PPU", f"DATA_CUBE_OUT_{axis}", size - 1)
    task.set("PPU", "OPERATION_MODE_CFG", FLYING_MODE=1, POOLING_METHOD=method)
    task.set("PPU", "POOLING_KERNEL_CFG", KERNEL_HEIGHT=kernel[0] - 1, KERNEL_WIDTH=kernel[1] - 1)
    task.put("PPU", "RECIP_KERNEL_WIDTH", round(65536 / kernel[1]))
    task.put("PPU", "RECIP_KERNEL_HEIGHT", round(65536 / kernel[0]))
    task.address("PPU", "DST_BASE_ADDR", OUT)
    task.put("PPU", "DST_SURF_STRIDE", out[0] * out[1])
    task.address("PPU_RDMA", "SRC_BASE_ADDR", FEATURES)
    task.put("PPU_RDMA", "SRC_LINE_STRIDE", width)
    task.put("PPU_RDMA", "SRC_SURF_STRIDE", width * height)
    task.set("PPU_RDMA", "DATA_FORMAT", IN_PRECISION=1)
    return task


def average_by_rule(total: int, kernel: tuple[int, int]) -> int:
    """H6.1: half away from zero, but an even window's exact half goes towards zero (see the text)."""
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
                taps = []
                for ky in range(kernel[0]):
                    for kx in range(kernel[1]):
                        y, x0 = oy * stride[0] + ky - pad[0], ox * stride[1] + kx - pad[1]
                        taps.append(x[c][y][x0] if 0 <= y < 7 and 0 <= x0 < 8 else value)
                want = (average_by_rule(sum(taps), kernel), max(taps), min(taps))[method]
                assert got[c][oy][ox] == want


def test_average_ties_are_those_of_the_hardware() -> None:
    # 2x2, sums with remainder two: quotients 0.5, 1.5, 2.5 give 0, 2, 2 (exact reciprocals: half to even)
    for total, want in ((2, 0), (6, 2), (10, 2), (-6, -2), (-2, 0), (7, 2), (5, 1)):
        assert average_by_rule(total, (2, 2)) == want
        dev = device()
        write_cube(dev, FEATURES, [[[total, 0], [0, 0]]], 2, 4)
        run(dev, pool_task((1, 2, 2), (2, 2), (1, 1), 0))
        assert signed(dev.memory.read(OUT, 1)[0], 8) == want


# -- PC, pointers, reuse, errors -----------------------------------------------------------------


def small_conv(**how: int) -> tuple[Task, list, list]:
    rng = np.random.default_rng(10)
    x, w = draw(rng, 16, 4, 4), draw(rng, 4, 16, 1, 1)
    return conv_task((16, 4, 4), 4, (1, 1), (4, 4), **how), x, w


def loaded() -> tuple[GoldenDevice, Task, list]:
    dev = device()
    task, x, w = small_conv()
    write_cube(dev, FEATURES, x, 4, 16)
    dev.memory.write(WEIGHTS, weight_stream(w, 16, (1, 1)))
    acc, _ = reference(x, w, (1, 1), (4, 4), (0, 0), 0)
    return dev, task, acc


def test_weight_and_data_reuse_read_what_cbuf_holds() -> None:
    dev, first, acc = loaded()
    second, _, _ = small_conv()
    second.set("CNA", "CBUF_CON0", WEIGHT_REUSE=1, DATA_REUSE=1)
    second.address("CNA", "FEATURE_DATA_ADDR", 0x7000000)  # not mapped: nothing may be fetched
    second.address("CNA", "DCOMP_ADDR0", 0x7000000)
    second.address("DPU", "DST_BASE_ADDR", OUT + 0x4000)
    run(dev, first, second)
    assert dev.memory.read(OUT, 256) == dev.memory.read(OUT + 0x4000, 256)
    assert read_out(dev, (4, 4, 4), 4) == acc
    assert [t.client for t in dev.reports[1].reads] == []


def test_delta_task_inherits_the_group_of_two_tasks_before() -> None:
    dev, first, acc = loaded()
    tasks = [first] + [small_conv()[0] for _ in range(3)]
    for i, task in enumerate(tasks):
        task.address("DPU", "DST_BASE_ADDR", OUT + 0x1000 * i)
    tasks[1].set("DPU", "OUT_CVT_OFFSET", OUT_CVT_OFFSET=1)
    tasks[3].set("DPU", "OUT_CVT_OFFSET", OUT_CVT_OFFSET=1)
    run(dev, *tasks, delta=True)
    lists = link(tasks, COMMANDS, delta=True).lists
    assert len(lists[2][1]) < 12 and len(lists[3][1]) < 12
    images = [np.frombuffer(dev.memory.read(OUT + 0x1000 * i, 256), "<i4") for i in range(4)]
    assert (images[2] == images[0]).all() and (images[3] == images[1]).all()
    assert (images[1] == images[0] + 1).all()
    assert [r.groups["CNA"] for r in dev.reports] == [0, 1, 0, 1]
    assert read_out(dev, (4, 4, 4), 4) == acc


def test_report_says_what_was_done() -> None:
    dev, task, _ = loaded()
    run(dev, task)
    report = dev.reports[0]
    assert report.kind == "conv" and report.macs == 16 * 4 * 16
    assert {t.client: t.bytes for t in report.reads} == {"feature": 256, "weight": 64}
    assert report.bytes_written == 256


def test_interrupt_bits_follow_the_group() -> None:
    dev, task, _ = loaded()
    run(dev, task)
    assert dev.raw == 0b01_0101_0101
    run(dev, task)
    assert dev.raw == 0b11_1111_1111


def test_dma_base_is_added_to_data_but_not_to_commands() -> None:
    dev, task, acc = loaded()
    chain = link([task], COMMANDS, dma_base=0x100)
    dev.memory.write(COMMANDS, np.array(chain.lists[0][1], "<u8"))
    dev.run_kick(chain.base, chain.amount, 1, dma_base=0x100)
    assert read_out(dev, (4, 4, 4), 4) == acc


def test_wrong_core_index_hangs() -> None:
    dev, task, _ = loaded()
    with pytest.raises(GoldenHang, match=r"task 0: CNA.S_POINTER.CORE_INDEX = 0x1: .*WRONG_CORE"):
        run(dev, task, core_index=1)


def test_list_without_op_enable_hangs() -> None:
    dev = device()
    with pytest.raises(GoldenHang, match="no op-enable word"):
        dev.run_kick(COMMANDS, 3, 1)


def change(task: Task, block: str, register: str, **values: int) -> Task:
    task.set(block, register, **values)
    return task


@pytest.mark.parametrize(
    ("where", "error", "text"),
    [
        (("CNA", "CBUF_CON0", {"DATA_BANK": 5}), GoldenError, "CNA.CBUF_CON0.DATA_BANK = 0x5: .*BANK_SUM"),
        (("CNA", "CBUF_CON1", {"DATA_ENTRIES": 1000}), GoldenError, "do not fit 4 banks"),
        (("CNA", "WEIGHT_SIZE0", {"WEIGHT_BYTES": 32}), GoldenHang, "the kernels take 64 bytes"),
        (("CNA", "CONV_CON1", {"CONV_MODE": 1}), GoldenError, "RESERVED_MODE"),
        (("CNA", "CONV_CON1", {"IN_PRECISION": 2}), GoldenError, "CONV_CON1.PROC_PRECISION = 0x0"),
        (("DPU", "DATA_CUBE_WIDTH", {"WIDTH": 2}), GoldenError, "SIZE_MISMATCH"),
        (
            ("DPU", "BS_OW_CFG", {"OD_BYPASS": 0, "SIZE_E_0": 1, "SIZE_E_1": 1, "SIZE_E_2": 1}),
            GoldenHang,
            r"SIZE_E_1 \+ 1 must be 8",
        ),
        (("DPU", "FEATURE_MODE_CFG", {"OUTPUT_MODE": 3}), GoldenHang, "the PPU does not take"),
        (
            ("DPU", "BS_CFG", {"BS_BYPASS": 0, "BS_ALU_SRC": 1, "BS_ALU_ALGO": 2}),
            GoldenHang,
            "waits for BRDMA",
        ),
        (("DPU", "EW_CFG", {"EW_BYPASS": 0, "EW_OP_SRC": 1}), GoldenHang, "waits for ERDMA"),
        (("DPU", "EW_CFG", {"EW_BYPASS": 0, "EW_LUT_BYPASS": 0}), GoldenError, "LUT_LO_LE_MUX"),
        (("CNA", "DATA_SIZE0", {"DATAIN_HEIGHT": 0}), GoldenError, "EMPTY_SIZE"),
        (("CNA", "CONV_CON3", {"CONV_X_STRIDE": 0}), GoldenError, "stride 0 counts as 1"),
    ],
)
def test_bad_registers_are_named(where: tuple, error: type, text: str) -> None:
    dev, task, _ = loaded()
    block, register, values = where
    with pytest.raises(error, match=text):
        run(dev, change(task, block, register, **values))


def test_access_outside_memory_is_named() -> None:
    dev, task, _ = loaded()
    task.address("CNA", "FEATURE_DATA_ADDR", FEATURES + 0x8000 - 16)
    with pytest.raises(
        GoldenError, match=r"task 0: CNA.FEATURE_DATA_ADDR = 0x18000: feature read .*READ_ERROR"
    ):
        run(dev, task)


def test_go_on_instead_of_stop_collects_findings() -> None:
    dev, task, acc = loaded()
    dev.strict = False
    run(dev, change(task, "CNA", "CONV_CON3", CONV_X_STRIDE=0))
    assert [f.code for f in dev.findings] == ["RESERVED_MODE"]
    assert read_out(dev, (4, 4, 4), 4) == acc


def test_memory_refuses_overlaps_and_gaps() -> None:
    memory = Memory()
    memory.map(0x1000, 0x1000)
    with pytest.raises(ValueError, match="overlaps"):
        memory.map(0x1800, 0x1000)
    with pytest.raises(Exception, match="outside every mapped range"):
        memory.read(0x1FFF, 2)
