"""Register programs of pooling layers (HARDWARE 6, 14.5)."""

from __future__ import annotations

from sw.compiler.programs.dpu import Place, pointers
from sw.compiler.programs.floats import float_pool
from sw.compiler.programs.task import Settings, Value
from sw.compiler.steps import PoolStep

POOL_BLOCKS = ("PPU", "PPU_RDMA")


def pool(step: PoolStep, x: Place, y: Place) -> Settings:
    """Program of a pooling layer on PPU and PPU_RDMA (HARDWARE 6, 14.5)."""
    settings = Settings()
    pointers(settings, POOL_BLOCKS)
    channels = x.aligned_channels

    def ppu(register: str, **fields: Value) -> None:
        settings.set("PPU", register, **fields)

    kernel, strides, pads = step.window.kernel, step.window.strides, step.window.pads
    ppu("DATA_CUBE_IN_WIDTH", DATA_CUBE_IN_WIDTH=x.cube[2] - 1)
    ppu("DATA_CUBE_IN_HEIGHT", DATA_CUBE_IN_HEIGHT=x.cube[1] - 1)
    ppu("DATA_CUBE_IN_CHANNEL", DATA_CUBE_IN_CHANNEL=channels - 1)
    ppu("DATA_CUBE_OUT_WIDTH", DATA_CUBE_OUT_WIDTH=y.cube[2] - 1)
    ppu("DATA_CUBE_OUT_HEIGHT", DATA_CUBE_OUT_HEIGHT=y.cube[1] - 1)
    ppu("DATA_CUBE_OUT_CHANNEL", DATA_CUBE_OUT_CHANNEL=channels - 1)
    ppu("OPERATION_MODE_CFG", FLYING_MODE=1, POOLING_METHOD=1 if step.method == "max" else 0)
    ppu(
        "POOLING_KERNEL_CFG",
        KERNEL_STRIDE_HEIGHT=min(strides[0], 16) - 1,
        KERNEL_STRIDE_WIDTH=min(strides[1], 16) - 1,
        KERNEL_HEIGHT=kernel[0] - 1,
        KERNEL_WIDTH=kernel[1] - 1,
    )
    average = step.method == "average"
    ppu("RECIP_KERNEL_WIDTH", RECIP_KERNEL_WIDTH=round(65536 / kernel[1]) if average else 0)
    ppu("RECIP_KERNEL_HEIGHT", RECIP_KERNEL_HEIGHT=round(65536 / kernel[0]) if average else 0)
    ppu("POOLING_PADDING_CFG", PAD_BOTTOM=pads[2], PAD_RIGHT=pads[3], PAD_TOP=pads[0], PAD_LEFT=pads[1])
    ppu("PADDING_VALUE_1_CFG", PAD_VALUE_0=step.pad_value % 2**19)  # 19 bits for int8 (HARDWARE 6.1)
    ppu("PADDING_VALUE_2_CFG")
    ppu("DST_BASE_ADDR", DST_BASE_ADDR=y.ref)
    ppu("DST_SURF_STRIDE", DST_SURF_STRIDE=y.surface)
    ppu("DATA_FORMAT", INDEX_ADD=y.surface)
    ppu("MISC_CTRL", BURST_LEN=3)

    def rdma(register: str, **fields: Value) -> None:
        settings.set("PPU_RDMA", register, **fields)

    rdma("CUBE_IN_WIDTH", CUBE_IN_WIDTH=x.cube[2] - 1)
    rdma("CUBE_IN_HEIGHT", CUBE_IN_HEIGHT=x.cube[1] - 1)
    rdma("CUBE_IN_CHANNEL", CUBE_IN_CHANNEL=channels - 1)
    rdma("SRC_BASE_ADDR", SRC_BASE_ADDR=x.ref)
    rdma("SRC_LINE_STRIDE", SRC_LINE_STRIDE=x.cube[2])
    rdma("SRC_SURF_STRIDE", SRC_SURF_STRIDE=x.surface)
    rdma("DATA_FORMAT", IN_PRECISION=1)
    return float_pool(settings, kernel, average) if y.itemsize > 1 else settings
