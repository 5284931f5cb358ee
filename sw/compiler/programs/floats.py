"""What turns a register program for int8 into one for fp16 (HARDWARE 5.3, 5.6, 14.4)."""

from __future__ import annotations

import numpy as np

from sw.compiler.programs.task import Settings
from sw.compiler.tiling import Tile

FP16 = 2
"""Precision code of fp16 in CNA, CORE, DPU and PPU_RDMA's and PPU's formats."""

STORAGE_16 = 2
"""Element size code of 16 bits (EDATA_SIZE, ERDMA_DATA_SIZE)."""

MINUS = 4
"""EW_ALU_ALGO of a difference."""


def single_bits(value: float) -> int:
    """A number as the binary32 pattern that float clamps take."""
    return int(np.float32(value).view(np.int32))


def reciprocal_bits(size: int) -> int:
    """1 / size as the PPU's 17-bit float: exponent bias 31, 10 fraction bits (HARDWARE 6.1)."""
    return int(np.float16(65536 / size).view(np.uint16)) if size > 1 else 0x7C00


def float_convolution(settings: Settings, tile: Tile) -> Settings:
    """Change a convolution: fp32 bias by BRDMA, no multiplier, no CPEND term."""
    settings.change("CNA", "CONV_CON1", IN_PRECISION=FP16, PROC_PRECISION=FP16)
    kernels = settings.last("CNA", "WEIGHT_SIZE2")["WEIGHT_KERNELS"]
    if kernels != 1:
        settings.change("CNA", "WEIGHT_SIZE2", WEIGHT_KERNELS=tile.kernels)
    settings.change("CORE", "MISC_CFG", PROC_PRECISION=FP16, QD_EN=0)
    settings.change("DPU", "BS_CFG", BS_MUL_BYPASS=1)
    settings.change("DPU", "BS_MUL_CFG", BS_MUL_SHIFT_VALUE=0, BS_MUL_SRC=0)
    settings.change("DPU", "BS_OW_CFG", OW_SRC=0)
    settings.change("DPU_RDMA", "BRDMA_CFG", BRDMA_DATA_USE=1)
    return _float_dpu(settings)


def float_flying(settings: Settings, difference: bool = False) -> Settings:
    """Change an element-wise program: BS off, operands of 16 bits, no converter."""
    settings.change("DPU", "BS_CFG", BS_BYPASS=1)
    settings.change("DPU", "BS_MUL_CFG", BS_MUL_OPERAND=0)
    settings.change("DPU", "BS_ALU_CFG", BS_ALU_OPERAND=0)
    if not settings.last("DPU", "EW_CFG").get("EW_BYPASS"):
        # The converter passes floats; a sum goes wrong without it, a product never ends with it (4.7).
        product = settings.last("DPU", "EW_CFG").get("EW_OP_TYPE", 0)
        settings.change("DPU", "EW_CFG", EW_CVT_TYPE=0, EW_OP_CVT_BYPASS=product, EDATA_SIZE=STORAGE_16)
        settings.change("DPU", "EW_CVT_SCALE_VALUE", EW_OP_CVT_SCALE=1)
        if difference:
            settings.change("DPU", "EW_CFG", EW_ALU_ALGO=MINUS)
        settings.change("DPU_RDMA", "ERDMA_CFG", ERDMA_DATA_SIZE=STORAGE_16)
    settings.change("DPU_RDMA", "FEATURE_MODE_CFG", MRDMA_FP16TOFP32_EN=1)
    return _float_dpu(settings)


def float_pool(settings: Settings, kernel: tuple[int, int], average: bool) -> Settings:
    """Change a pooling program: reciprocals as floats, -infinity for the padding of a maximum."""
    settings.change("PPU", "DATA_FORMAT", PROC_PRECISION=FP16)
    settings.change("PPU_RDMA", "DATA_FORMAT", IN_PRECISION=STORAGE_16)
    if average:
        settings.change("PPU", "RECIP_KERNEL_WIDTH", RECIP_KERNEL_WIDTH=reciprocal_bits(kernel[1]))
        settings.change("PPU", "RECIP_KERNEL_HEIGHT", RECIP_KERNEL_HEIGHT=reciprocal_bits(kernel[0]))
    pad = 0 if average else 0xFC00
    settings.change("PPU", "PADDING_VALUE_1_CFG", PAD_VALUE_0=pad)
    return settings


def _float_dpu(settings: Settings) -> Settings:
    settings.change(
        "DPU",
        "DATA_FORMAT",
        OUT_PRECISION=FP16,
        IN_PRECISION=FP16,
        PROC_PRECISION=FP16,
        BS_MUL_SHIFT_VALUE_NEG=0,
        BN_MUL_SHIFT_VALUE_NEG=0,
    )
    settings.change("DPU", "OUT_CVT_SCALE", FP32TOFP16_EN=1, OUT_CVT_SCALE=1)
    settings.change("DPU_RDMA", "FEATURE_MODE_CFG", IN_PRECISION=FP16, PROC_PRECISION=FP16)
    return settings
