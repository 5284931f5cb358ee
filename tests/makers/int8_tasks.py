"""Small int8 tasks for the task-level golden device, and their results by loops in plain Python."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from rkcosim.golden.task import GoldenDevice, Memory
from rkcosim.verify.crosscheck.program import Task, link

ATOM = 16
FEATURES, WEIGHTS, OUT, OPERANDS, COMMANDS = 0x10000, 0x20000, 0x30000, 0x40000, 0x50000


def sat(value: int, bits: int) -> int:
    """Saturate to a signed integer."""
    return max(-(1 << (bits - 1)), min((1 << (bits - 1)) - 1, value))


def half_even(value: int, shift: int) -> int:
    """value / 2^shift, rounded half to even."""
    return round(Fraction(value, 1 << shift))


def device() -> GoldenDevice:
    """Return a device with memory at the addresses above."""
    memory = Memory()
    for base in (FEATURES, WEIGHTS, OUT, OPERANDS, COMMANDS):
        memory.map(base, 0x8000)
    return GoldenDevice(memory)


def run(dev: GoldenDevice, *tasks: Task, delta: bool = False, **kick: int) -> None:
    """Link tasks at COMMANDS and run them."""
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
    """Set DPU registers that pass data through to OUT."""
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
    size = (16 if flying else 32) * (1, 2, 0, 0, 4)[precision] // 16
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
    """Direct weights in memory order by loops [HW 3.6]."""
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
    """int8 values as nested lists."""
    return rng.integers(-128, 128, shape).tolist()


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


def pool_task(cube: tuple[int, int, int], kernel: tuple[int, int], out: tuple[int, int], method: int) -> Task:
    """A pooling task from FEATURES to OUT, stride 1, tight cubes."""
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


def small_conv(**how: int) -> tuple[Task, list, list]:
    """A 1 x 1 convolution of 16 channels into 4 kernels, its features and weights."""
    rng = np.random.default_rng(10)
    x, w = draw(rng, 16, 4, 4), draw(rng, 4, 16, 1, 1)
    return conv_task((16, 4, 4), 4, (1, 1), (4, 4), **how), x, w


def loaded() -> tuple[GoldenDevice, Task, list]:
    """A device with the data of `small_conv`, the task and its accumulators."""
    dev = device()
    task, x, w = small_conv()
    write_cube(dev, FEATURES, x, 4, 16)
    dev.memory.write(WEIGHTS, weight_stream(w, 16, (1, 1)))
    acc, _ = reference(x, w, (1, 1), (4, 4), (0, 0), 0)
    return dev, task, acc
