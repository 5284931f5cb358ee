"""Random pooling settings (PPU and PPU_RDMA)."""

from __future__ import annotations

import numpy as np

from cosim.crosscheck.arena import ATOM, Arena, Refused
from cosim.crosscheck.program import Task

_METHODS = ("average", "max", "min")


def draw_pool(rng: np.random.Generator, arena: Arena) -> Task:
    """Draw one int8 pooling task.

    Raises
    ------
    Refused
        when the window never fits.
    """

    def integer(low: int, high: int) -> int:
        return int(rng.integers(low, high, endpoint=True))

    method = integer(0, 2)
    height, width, channels = integer(1, 24), integer(1, 24), integer(1, 80)
    kernel = [integer(1, 4), integer(1, 4)] if rng.random() < 0.7 else [integer(1, 8), integer(1, 8)]
    if rng.random() < 0.5:
        kernel[1] = kernel[0]
    if rng.random() < 0.1:
        kernel = [min(height, 16), min(width, 16)]
    stride = [integer(1, 3), integer(1, 3)] if rng.random() < 0.6 else list(kernel)
    pad = [integer(0, min(7, k - 1)) if rng.random() < 0.5 else 0 for k in kernel]
    out, after = [], []
    for size, k, s, p in zip((height, width), kernel, stride, pad, strict=True):
        trailing = integer(0, min(7, k - 1)) if rng.random() < 0.5 else 0
        if size + p + trailing < k:
            raise Refused("the pooling window does not fit")
        count = (size + p + trailing - k) // s + 1
        out.append(count)
        after.append(max(0, (count - 1) * s + k - p - size))
    task = Task(("PPU", "PPU_RDMA"))
    surfaces = -(-channels // ATOM)
    line = width + (integer(0, 3) if rng.random() < 0.4 else 0)
    surface = line * height + (integer(0, 5) if rng.random() < 0.4 else 0)
    source = arena.alloc(((surfaces - 1) * surface + line * height) * ATOM, "pool input")
    notch = integer(0, 3) if rng.random() < 0.3 else 0
    out_surface = (out[1] + notch) * out[0] + (integer(0, 5) if rng.random() < 0.4 else 0)
    target = arena.alloc(surfaces * out_surface * ATOM, "pool output")
    for axis, value in (("WIDTH", width), ("HEIGHT", height), ("CHANNEL", channels)):
        task.put("PPU", f"DATA_CUBE_IN_{axis}", value - 1)
        task.put("PPU_RDMA", f"CUBE_IN_{axis}", value - 1)
    for axis, value in (("WIDTH", out[1]), ("HEIGHT", out[0]), ("CHANNEL", channels)):
        task.put("PPU", f"DATA_CUBE_OUT_{axis}", value - 1)
    task.set("PPU", "OPERATION_MODE_CFG", FLYING_MODE=1, POOLING_METHOD=method, NOTCH_ADDR=notch)
    task.set(
        "PPU",
        "POOLING_KERNEL_CFG",
        KERNEL_HEIGHT=kernel[0] - 1,
        KERNEL_WIDTH=kernel[1] - 1,
        KERNEL_STRIDE_HEIGHT=stride[0] - 1,
        KERNEL_STRIDE_WIDTH=stride[1] - 1,
    )
    task.put("PPU", "RECIP_KERNEL_WIDTH", round(65536 / kernel[1]))
    task.put("PPU", "RECIP_KERNEL_HEIGHT", round(65536 / kernel[0]))
    task.set(
        "PPU", "POOLING_PADDING_CFG", PAD_TOP=pad[0], PAD_LEFT=pad[1], PAD_BOTTOM=after[0], PAD_RIGHT=after[1]
    )
    value = integer(-128, 127) if rng.random() < 0.6 else (0, -128, 127)[method]
    task.set("PPU", "PADDING_VALUE_1_CFG", PAD_VALUE_0=value % (1 << 19))
    task.address("PPU", "DST_BASE_ADDR", target)
    task.put("PPU", "DST_SURF_STRIDE", out_surface)
    task.set("PPU", "DATA_FORMAT", INDEX_ADD=out_surface)
    task.set("PPU", "MISC_CTRL", BURST_LEN=3)
    task.address("PPU_RDMA", "SRC_BASE_ADDR", source)
    task.put("PPU_RDMA", "SRC_LINE_STRIDE", line)
    task.put("PPU_RDMA", "SRC_SURF_STRIDE", surface)
    task.set("PPU_RDMA", "DATA_FORMAT", IN_PRECISION=1)
    task.description = (
        f"{_METHODS[method]} pool {channels}x{height}x{width} kernel {kernel} stride {stride} pad {pad}"
    )
    return task
