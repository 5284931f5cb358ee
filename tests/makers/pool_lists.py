"""Task lists written as a user of the Python interface writes them: max pooling, 2 x 2 with stride 1."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim import TaskList

ATOM = 16


def cube(height: int, width: int, seed: int = 0) -> npt.NDArray[np.int8]:
    """Random int8 features [height, width, 16]."""
    return np.random.default_rng(seed).integers(-128, 128, (height, width, ATOM), np.int8)


def max_pool(features: npt.NDArray[np.int8]) -> npt.NDArray[np.int8]:
    """The definition: [H, W, C] -> [H - 1, W - 1, C]."""
    windows = np.lib.stride_tricks.sliding_window_view(features, (2, 2), axis=(0, 1))
    return np.asarray(windows.max(axis=(3, 4)))


def pool_registers(height: int, width: int, source: Any, target: Any) -> dict[str, Any]:
    """The registers of one max pooling task by name."""
    return {
        "PPU.DATA_CUBE_IN_WIDTH": width - 1,
        "PPU.DATA_CUBE_IN_HEIGHT": height - 1,
        "PPU.DATA_CUBE_IN_CHANNEL": ATOM - 1,
        "PPU.DATA_CUBE_OUT_WIDTH": width - 2,
        "PPU.DATA_CUBE_OUT_HEIGHT": height - 2,
        "PPU.DATA_CUBE_OUT_CHANNEL": ATOM - 1,
        "PPU.OPERATION_MODE_CFG.FLYING_MODE": "RDMA",
        "PPU.OPERATION_MODE_CFG.POOLING_METHOD": "MAX",
        "PPU.POOLING_KERNEL_CFG.KERNEL_HEIGHT": 1,
        "PPU.POOLING_KERNEL_CFG.KERNEL_WIDTH": 1,
        "PPU.RECIP_KERNEL_WIDTH": 1 << 15,
        "PPU.RECIP_KERNEL_HEIGHT": 1 << 15,
        "PPU.DST_BASE_ADDR": target,
        "PPU.DST_SURF_STRIDE.DST_SURF_STRIDE": (width - 1) * (height - 1),
        "PPU.DATA_FORMAT.INDEX_ADD": (width - 1) * (height - 1),
        "PPU.MISC_CTRL.BURST_LEN": 3,
        "PPU_RDMA.CUBE_IN_WIDTH": width - 1,
        "PPU_RDMA.CUBE_IN_HEIGHT": height - 1,
        "PPU_RDMA.CUBE_IN_CHANNEL": ATOM - 1,
        "PPU_RDMA.SRC_BASE_ADDR": source,
        "PPU_RDMA.SRC_LINE_STRIDE.SRC_LINE_STRIDE": width,
        "PPU_RDMA.SRC_SURF_STRIDE.SRC_SURF_STRIDE": width * height,
        "PPU_RDMA.DATA_FORMAT.IN_PRECISION": "BITS8",
    }


def pool_list(features: npt.NDArray[np.int8], times: int = 1, core: int = 0) -> TaskList:
    """A list that pools features `times` times; its buffers are "features", "pooled 1", "pooled 2", ..."""
    tasks = TaskList(core=core, name="pool")
    tasks.buffer("features", features)
    height, width, _ = features.shape
    source = "features"
    for number in range(1, times + 1):
        target = f"pooled {number}"
        tasks.buffer(target, (height - 1, width - 1, ATOM), np.int8)
        tasks.task("PPU", "PPU_RDMA", registers=pool_registers(height, width, source, target))
        source, height, width = target, height - 1, width - 1
    return tasks
