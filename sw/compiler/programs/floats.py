"""Changes that turn a register program for int8 into one for fp16 ([HW 7.5], [HW 7.8], [HW 14.7])."""

from __future__ import annotations

import numpy as np

from rkcosim.compiler.programs.task import Settings
from rkcosim.compiler.tiling import Tile

FP16 = 2
"""Precision code of fp16 in the formats of CNA, CORE, DPU, PPU_RDMA and PPU."""

STORAGE_16 = 2
"""Element size code of 16 bits (EDATA_SIZE, ERDMA_DATA_SIZE)."""

MINUS = 4
"""EW_ALU_ALGO of a difference."""


def single_bits(value: float) -> int:
    """Return the binary32 pattern of a number, as clamps in floating point need it."""
    return int(np.float32(value).view(np.int32))


def float_convolution(settings: Settings, tile: Tile) -> Settings:
    """Change a convolution to fp16: fp32 bias from BRDMA, no multiplier, no CPEND term."""
    settings.change("CNA", "CONV_CON1", IN_PRECISION=FP16, PROC_PRECISION=FP16)
    kernels = settings.last("CNA", "WEIGHT_SIZE2")["WEIGHT_KERNELS"]
    if kernels != 1:
        settings.change("CNA", "WEIGHT_SIZE2", WEIGHT_KERNELS=tile.kernels)
    settings.change("CORE", "MISC_CFG", PROC_PRECISION=FP16, QD_EN=0)
    settings.change("DPU", "BS_CFG", BS_MUL_BYPASS=1)
    settings.change("DPU", "BS_MUL_CFG", BS_MUL_SHIFT_VALUE=0, BS_MUL_SRC=0)
    settings.change("DPU", "BS_OW_CFG", OW_SRC=0)
    settings.change("DPU_RDMA", "BRDMA_CFG", BRDMA_DATA_USE=1)
    return float_dpu(settings)


def float_flying(settings: Settings, difference: bool = False) -> Settings:
    """Change an element-wise program to fp16: BS off, operands of 16 bits, no output converter."""
    settings.change("DPU", "BS_CFG", BS_BYPASS=1)
    settings.change("DPU", "BS_MUL_CFG", BS_MUL_OPERAND=0)
    settings.change("DPU", "BS_ALU_CFG", BS_ALU_OPERAND=0)
    if not settings.last("DPU", "EW_CFG").get("EW_BYPASS"):
        # The converter passes floats; a sum is wrong without it, a product never ends with it (4.7).
        product = settings.last("DPU", "EW_CFG").get("EW_OP_TYPE", 0)
        settings.change("DPU", "EW_CFG", EW_CVT_TYPE=0, EW_OP_CVT_BYPASS=product, EDATA_SIZE=STORAGE_16)
        settings.change("DPU", "EW_CVT_SCALE_VALUE", EW_OP_CVT_SCALE=1)
        if difference:
            settings.change("DPU", "EW_CFG", EW_ALU_ALGO=MINUS)
        settings.change("DPU_RDMA", "ERDMA_CFG", ERDMA_DATA_SIZE=STORAGE_16)
    settings.change("DPU_RDMA", "FEATURE_MODE_CFG", MRDMA_FP16TOFP32_EN=1)
    return float_dpu(settings)


def float_dpu(settings: Settings) -> Settings:
    """Let the DPU and its read side compute in binary32 on fp16 data."""
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
