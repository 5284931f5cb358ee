"""Small tasks, register by register, for tests of the whole core."""

from __future__ import annotations

from rkcosim.regcmd import TaskBuilder

ATOM = 16
POINTER = {"POINTER_PP_MODE": 1, "EXECUTER_PP_EN": 1, "POINTER_PP_EN": 1}


def pool_task(source: int, target: int, height: int, width: int, name: str = "pool") -> TaskBuilder:
    """Max pool, 2 x 2 with stride 1, of one int8 surface [height, width, 16]."""
    task = TaskBuilder(name).enable("PPU", "PPU_RDMA")
    for block in ("PPU", "PPU_RDMA"):
        task.set(block, "S_POINTER", **POINTER)
    task.set("PPU", "DATA_CUBE_IN_WIDTH", DATA_CUBE_IN_WIDTH=width - 1)
    task.set("PPU", "DATA_CUBE_IN_HEIGHT", DATA_CUBE_IN_HEIGHT=height - 1)
    task.set("PPU", "DATA_CUBE_IN_CHANNEL", DATA_CUBE_IN_CHANNEL=ATOM - 1)
    task.set("PPU", "DATA_CUBE_OUT_WIDTH", DATA_CUBE_OUT_WIDTH=width - 2)
    task.set("PPU", "DATA_CUBE_OUT_HEIGHT", DATA_CUBE_OUT_HEIGHT=height - 2)
    task.set("PPU", "DATA_CUBE_OUT_CHANNEL", DATA_CUBE_OUT_CHANNEL=ATOM - 1)
    task.set("PPU", "OPERATION_MODE_CFG", FLYING_MODE=1, POOLING_METHOD=1)
    task.set("PPU", "POOLING_KERNEL_CFG", KERNEL_HEIGHT=1, KERNEL_WIDTH=1)
    task.set("PPU", "RECIP_KERNEL_WIDTH", RECIP_KERNEL_WIDTH=1 << 15)
    task.set("PPU", "RECIP_KERNEL_HEIGHT", RECIP_KERNEL_HEIGHT=1 << 15)
    task.set("PPU", "DST_BASE_ADDR", DST_BASE_ADDR=target // ATOM)
    task.set("PPU", "DST_SURF_STRIDE", DST_SURF_STRIDE=(width - 1) * (height - 1))
    task.set("PPU", "DATA_FORMAT", INDEX_ADD=(width - 1) * (height - 1))
    task.set("PPU", "MISC_CTRL", BURST_LEN=3)
    task.set("PPU_RDMA", "CUBE_IN_WIDTH", CUBE_IN_WIDTH=width - 1)
    task.set("PPU_RDMA", "CUBE_IN_HEIGHT", CUBE_IN_HEIGHT=height - 1)
    task.set("PPU_RDMA", "CUBE_IN_CHANNEL", CUBE_IN_CHANNEL=ATOM - 1)
    task.set_word("PPU_RDMA", "SRC_BASE_ADDR", source)
    task.set("PPU_RDMA", "SRC_LINE_STRIDE", SRC_LINE_STRIDE=width)
    task.set("PPU_RDMA", "SRC_SURF_STRIDE", SRC_SURF_STRIDE=width * height)
    task.set("PPU_RDMA", "DATA_FORMAT", IN_PRECISION=1)
    return task


def _destination(
    task: TaskBuilder,
    target: int,
    height: int,
    width: int,
    channels: int,
    bypass: int | None = 1,
    *,
    series: int = 1,
) -> None:
    """Write the registers of the DPU's output cube: int8, surfaces one after the other.

    `series` are those of a kernel group, or of an input atom.
    """
    area = height * width
    task.set("DPU", "DATA_FORMAT")
    task.set("DPU", "DST_BASE_ADDR", DST_BASE_ADDR=target // ATOM)
    task.set("DPU", "DST_SURF_STRIDE", DST_SURF_STRIDE=area)
    task.set("DPU", "SURFACE_ADD", SURF_ADD=series * area)
    task.set("DPU", "DATA_CUBE_WIDTH", WIDTH=width - 1)
    task.set("DPU", "DATA_CUBE_HEIGHT", HEIGHT=height - 1)
    task.set("DPU", "DATA_CUBE_CHANNEL", CHANNEL=channels - 1, ORIG_CHANNEL=channels - 1)
    task.set("DPU", "WDMA_SIZE_0", CHANNEL_WDMA=channels - 1)
    task.set("DPU", "WDMA_SIZE_1", HEIGHT_WDMA=height - 1, WIDTH_WDMA=width - 1)
    more = series - 1
    task.set("DPU", "BS_OW_CFG", SIZE_E_0=more, SIZE_E_1=more, SIZE_E_2=more, OD_BYPASS=1)
    if bypass is not None:
        task.set("DPU", "BS_CFG", BS_BYPASS=bypass)
        task.set("DPU", "BN_CFG", BN_BYPASS=bypass)


def conv_task(
    source: int, weights: int, target: int, height: int, width: int, name: str = "conv", shift: int = 9
) -> TaskBuilder:
    """1x1 convolution of int8 [height, width, 32] with 32 kernels, scaled by 2**-shift."""
    area = height * width
    task = TaskBuilder(name).enable("CNA", "CORE", "DPU")
    task.set("CNA", "CONV_CON1")
    task.set("CNA", "CONV_CON2", FEATURE_GRAINS=height)
    task.set("CNA", "CONV_CON3", CONV_Y_STRIDE=1, CONV_X_STRIDE=1)
    task.set("CNA", "DATA_SIZE0", DATAIN_WIDTH=width, DATAIN_HEIGHT=height)
    task.set("CNA", "DATA_SIZE1", DATAIN_CHANNEL_REAL=31, DATAIN_CHANNEL=32)
    task.set("CNA", "DATA_SIZE2", DATAOUT_WIDTH=width)
    task.set("CNA", "DATA_SIZE3", DATAOUT_ATOMICS=area)
    task.set("CNA", "WEIGHT_SIZE0", WEIGHT_BYTES=1024)
    task.set("CNA", "WEIGHT_SIZE1", WEIGHT_BYTES_PER_KERNEL=32)
    task.set("CNA", "WEIGHT_SIZE2", WEIGHT_WIDTH=1, WEIGHT_HEIGHT=1, WEIGHT_KERNELS=32)
    task.set("CNA", "CBUF_CON0", DATA_BANK=1, WEIGHT_BANK=1)
    task.set("CNA", "CBUF_CON1", DATA_ENTRIES=-(-width // 2))
    task.set("CNA", "CVT_CON0", DATA_SIGN=1, CVT_TYPE=1, CVT_BYPASS=1)
    task.set("CNA", "FEATURE_DATA_ADDR", FEATURE_BASE_ADDR=source)
    task.set("CNA", "DCOMP_ADDR0", DECOMPRESS_ADDR0=weights // ATOM)
    task.set("CNA", "DMA_CON0", WEIGHT_BURST_LEN=15, DATA_BURST_LEN=15)
    task.set("CNA", "DMA_CON1", LINE_STRIDE=4 * width)
    task.set("CNA", "DMA_CON2", SURF_STRIDE=area - 4 * width)
    task.set("CNA", "FC_DATA_SIZE0", DMA_WIDTH=width, DMA_HEIGHT=height)
    task.set("CNA", "FC_DATA_SIZE1", DMA_CHANNEL=32)
    task.set("CORE", "MISC_CFG")
    task.set("CORE", "DATAOUT_SIZE_0", DATAOUT_HEIGHT=height - 1, DATAOUT_WIDTH=width - 1)
    task.set("CORE", "DATAOUT_SIZE_1", DATAOUT_CHANNEL=31)
    task.set("CORE", "CLIP_TRUNCATE")
    task.set("DPU", "S_POINTER", **POINTER)
    task.set("DPU", "FEATURE_MODE_CFG", BURST_LEN=15, OUTPUT_MODE=2)
    _destination(task, target, height, width, 32, series=2)
    task.set("DPU", "EW_CFG", EW_BYPASS=1, EW_LUT_BYPASS=1, EW_OP_CVT_BYPASS=1, EW_OP_BYPASS=1)
    task.set("DPU", "OUT_CVT_SCALE", OUT_CVT_SCALE=1)
    task.set("DPU", "OUT_CVT_SHIFT", OUT_CVT_SHIFT=shift)
    return task


def add_task(
    left: int,
    right: int,
    target: int,
    height: int,
    width: int,
    name: str = "add",
    *,
    use_right: bool = True,
    bypass: int | None = 1,
) -> TaskBuilder:
    """Return a saturating sum of two int8 cubes [height, width, 32]; without `use_right`, the left cube.

    `bypass` is that of BS and BN; None: neither is written.
    """
    area = height * width
    task = TaskBuilder(name).enable("DPU", "DPU_RDMA")
    for block in ("DPU", "DPU_RDMA"):
        task.set(block, "S_POINTER", **POINTER)
    task.set("DPU", "FEATURE_MODE_CFG", BURST_LEN=15, OUTPUT_MODE=2, FLYING_MODE=1)
    _destination(task, target, height, width, 32, bypass)
    if use_right:
        flags = {"EW_OP_SRC": 1, "EW_DATA_MODE": 1, "EDATA_SIZE": 1, "EW_ALU_ALGO": 2}
        task.set("DPU", "EW_CFG", EW_LUT_BYPASS=1, EW_OP_CVT_BYPASS=1, EW_RELU_BYPASS=1, **flags)
    else:
        task.set("DPU", "EW_CFG", EW_BYPASS=1, EW_LUT_BYPASS=1, EW_OP_CVT_BYPASS=1, EW_OP_BYPASS=1)
    task.set("DPU", "OUT_CVT_SCALE", OUT_CVT_SCALE=1)
    task.set("DPU", "OUT_CVT_SHIFT", OUT_CVT_SHIFT=0)
    task.set("DPU_RDMA", "DATA_CUBE_WIDTH", WIDTH=width - 1)
    task.set("DPU_RDMA", "DATA_CUBE_HEIGHT", HEIGHT=height - 1)
    task.set("DPU_RDMA", "DATA_CUBE_CHANNEL", CHANNEL=31)
    task.set("DPU_RDMA", "SRC_BASE_ADDR", SRC_BASE_ADDR=left)
    task.set("DPU_RDMA", "FEATURE_MODE_CFG", BURST_LEN=15, FLYING_MODE=1)
    task.set("DPU_RDMA", "ERDMA_CFG", ERDMA_DATA_MODE=1, ERDMA_DATA_SIZE=1, ERDMA_DISABLE=int(not use_right))
    task.set("DPU_RDMA", "EW_BASE_ADDR", EW_BASE_ADDR=right)
    task.set("DPU_RDMA", "EW_SURF_STRIDE", EW_SURF_STRIDE=area)
    return task
