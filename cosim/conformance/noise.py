"""Fields without effect on a task, which are set at random, and reserved ones, which raise a diagnostic."""

from __future__ import annotations

from cosim.conformance.choices import Chooser
from cosim.crosscheck.program import Task
from rtl.regs import registers

Name = tuple[str, str, str]

INERT: tuple[Name, ...] = (
    ("CNA", "CONV_CON2", "NN_MODE"),
    ("CNA", "CONV_CON2", "KERNEL_GROUP"),
    ("CNA", "CONV_CON2", "CMD_FIFO_SRST"),
    ("CNA", "CONV_CON3", "NN_MODE"),
    ("CNA", "DATA_SIZE1", "DATAIN_CHANNEL_REAL"),
    ("CNA", "WEIGHT_SIZE1", "WEIGHT_BYTES_PER_KERNEL"),
    ("CNA", "FC_CON0", "FC_SKIP_DATA"),
    ("CNA", "FC_CON1", "DATA_OFFSET"),
    ("CNA", "FC_CON2", "WEIGHT_OFFSET"),
    ("CNA", "DMA_CON0", "OV4K_BYPASS"),
    ("CNA", "DMA_CON0", "WEIGHT_BURST_LEN"),
    ("CNA", "DMA_CON0", "DATA_BURST_LEN"),
    ("CNA", "CLK_GATE", "CBUF_CS_DISABLE_CLKGATE"),
    ("CNA", "CLK_GATE", "CSC_DISABLE_CLKGATE"),
    ("CNA", "CLK_GATE", "CNA_WEIGHT_DISABLE_CLKGATE"),
    ("CNA", "CLK_GATE", "CNA_FEATURE_DISABLE_CLKGATE"),
    ("CNA", "DCOMP_CTRL", "WT_DEC_BYPASS"),
    ("CNA", "DCOMP_REGNUM", "DCOMP_REGNUM"),
    *(("CNA", f"DCOMP_AMOUNT{n}", f"DCOMP_AMOUNT{n}") for n in range(16)),
    ("CORE", "MISC_CFG", "SOFT_GATING"),
    ("CORE", "DATAOUT_SIZE_0", "DATAOUT_HEIGHT"),
    ("CORE", "DATAOUT_SIZE_0", "DATAOUT_WIDTH"),
    ("DPU", "FEATURE_MODE_CFG", "BURST_LEN"),
    ("DPU", "WDMA_SIZE_0", "SIZE_C_WDMA"),
    ("DPU", "EW_CFG", "EW_EQUAL_EN"),
    ("DPU", "EW_CFG", "EW_DATA_MODE"),
    ("DPU", "EW_CFG", "EDATA_SIZE"),
    ("DPU_RDMA", "FEATURE_MODE_CFG", "BURST_LEN"),
    ("DPU_RDMA", "ERDMA_CFG", "OV4K_BYPASS"),
    ("DPU_RDMA", "WEIGHT", "E_WEIGHT"),
    ("DPU_RDMA", "WEIGHT", "N_WEIGHT"),
    ("DPU_RDMA", "WEIGHT", "B_WEIGHT"),
    ("DPU_RDMA", "WEIGHT", "M_WEIGHT"),
    ("PPU", "OPERATION_MODE_CFG", "USE_CNT"),
    ("PPU", "POOLING_PADDING_CFG", "PAD_BOTTOM"),
    ("PPU", "POOLING_PADDING_CFG", "PAD_RIGHT"),
    ("PPU", "MISC_CTRL", "BURST_LEN"),
)
"""Fields that docs/hardware.md or H calls inert: any value, no diagnostic."""

OFF: tuple[tuple[Name, int, tuple[Name, ...]], ...] = (
    (
        ("CNA", "CVT_CON0", "CVT_BYPASS"),
        1,
        (
            *(("CNA", "CVT_CON0", n) for n in ("DATA_SIGN", "ROUND_TYPE", "CVT_TYPE")),
            *(("CNA", "CVT_CON0", f"CVT_TRUNCATE_{i}") for i in range(4)),
            *(("CNA", f"CVT_CON{i + 1}", f"CVT_SCALE{i}") for i in range(4)),
            *(("CNA", f"CVT_CON{i + 1}", f"CVT_OFFSET{i}") for i in range(4)),
            ("CNA", "CVT_CON5", "PER_CHANNEL_CVT_EN"),
        ),
    ),
    (
        ("CNA", "CONV_CON1", "DECONV"),
        0,
        (("CNA", "CONV_CON3", "DECONV_Y_STRIDE"), ("CNA", "CONV_CON3", "DECONV_X_STRIDE")),
    ),
    *(
        (
            ("DPU", f"{s}_CFG", f"{s}_BYPASS"),
            1,
            (
                *(("DPU", f"{s}_CFG", f"{s}_{n}") for n in ("RELUX_EN", "RELU_BYPASS", "MUL_PRELU")),
                *(("DPU", f"{s}_CFG", f"{s}_{n}") for n in ("MUL_BYPASS", "ALU_BYPASS")),
                ("DPU", f"{s}_ALU_CFG", f"{s}_ALU_OPERAND"),
                ("DPU", f"{s}_MUL_CFG", f"{s}_MUL_OPERAND"),
                ("DPU", f"{s}_MUL_CFG", f"{s}_MUL_SHIFT_VALUE"),
                ("DPU", "DATA_FORMAT", f"{s}_MUL_SHIFT_VALUE_NEG"),
                ("DPU", f"{s}_RELUX_CMP_VALUE", f"{s}_RELUX_CMP_DAT"),
            ),
        )
        for s in ("BS", "BN")
    ),
    (
        ("DPU", "EW_CFG", "EW_BYPASS"),
        1,
        (
            *(("DPU", "EW_CFG", n) for n in ("EW_CVT_TYPE", "EW_CVT_ROUND", "EW_RELUX_EN", "EW_RELU_BYPASS")),
            *(("DPU", "EW_CFG", n) for n in ("EW_MUL_PRELU", "EW_OP_TYPE")),
            ("DPU", "DATA_FORMAT", "EW_TRUNCATE_NEG"),
            ("DPU", "EW_CVT_OFFSET_VALUE", "EW_OP_CVT_OFFSET"),
            ("DPU", "EW_CVT_SCALE_VALUE", "EW_TRUNCATE"),
            ("DPU", "EW_CVT_SCALE_VALUE", "EW_OP_CVT_SHIFT"),
            ("DPU", "EW_CVT_SCALE_VALUE", "EW_OP_CVT_SCALE"),
            ("DPU", "EW_RELUX_CMP_VALUE", "EW_RELUX_CMP_DAT"),
            *(("DPU", f"EW_OP_VALUE_{n}", f"EW_OPERAND_{n}") for n in range(8)),
        ),
    ),
    (
        ("DPU", "EW_CFG", "EW_LUT_BYPASS"),
        1,
        (
            *(("DPU", "LUT_CFG", f"LUT_{n}_PRIORITY") for n in ("HYBRID", "OFLOW", "UFLOW")),
            *(("DPU", "LUT_CFG", f"LUT_{n}") for n in ("CAL_SEL", "LO_LE_MUX", "EXPAND_EN", "ROAD_SEL")),
            *(("DPU", "LUT_INFO", f"LUT_{t}_INDEX_SELECT") for t in ("LE", "LO")),
            *(("DPU", f"LUT_{t}_{n}", f"LUT_{t}_{n}") for t in ("LE", "LO") for n in ("START", "END")),
            *(
                ("DPU", f"LUT_{t}_SLOPE_SCALE", f"{n}_SCALE")
                for t in ("LE", "LO")
                for n in ("OFLOW", "UFLOW")
            ),
            *(
                ("DPU", f"LUT_{t}_SLOPE_SHIFT", f"{n}_SHIFT")
                for t in ("LE", "LO")
                for n in ("OFLOW", "UFLOW")
            ),
        ),
    ),
    (("PPU", "OPERATION_MODE_CFG", "INDEX_EN"), 0, (("PPU", "DATA_FORMAT", "INDEX_ADD"),)),
)
"""(switch, value at which it is off, fields without effect then)."""

RESERVED: tuple[Name, ...] = (
    ("CNA", "CONV_CON2", "CSC_WO_EN"),
    ("CNA", "CONV_CON2", "CSC_DO_EN"),
    ("CNA", "DATA_SIZE3", "SURF_MODE"),
    ("CNA", "CBUF_CON0", "FC_DATA_BANK"),
    ("CNA", "FC_CON0", "FC_SKIP_EN"),
    ("CNA", "DCOMP_CTRL", "DECOMP_CONTROL"),
    ("CNA", "CONV_CON1", "NONALIGN_DMA"),
    ("DPU", "FEATURE_MODE_CFG", "TP_EN"),
    ("DPU", "FEATURE_MODE_CFG", "RGP_TYPE"),
    ("DPU", "FEATURE_MODE_CFG", "NONALIGN"),
    ("DPU", "FEATURE_MODE_CFG", "SURF_LEN"),
    ("DPU", "DATA_FORMAT", "MC_SURF_OUT"),
    ("DPU", "DATA_CUBE_HEIGHT", "MINMAX_CTL"),
    ("DPU", "BS_OW_CFG", "RGP_CNTER"),
    ("DPU", "BS_MUL_CFG", "BS_TRUNCATE_SRC"),
    ("DPU", "BN_MUL_CFG", "BN_TRUNCATE_SRC"),
    ("DPU", "EW_CFG", "EW_BINARY_EN"),
    ("DPU_RDMA", "ERDMA_CFG", "ERDMA_SURF_MODE"),
    ("DPU_RDMA", "ERDMA_CFG", "ERDMA_NONALIGN"),
    ("DPU_RDMA", "SRC_DMA_CFG", "POOLING_METHOD"),
    ("DPU_RDMA", "SRC_DMA_CFG", "UNPOOLING_EN"),
    ("DPU_RDMA", "SRC_DMA_CFG", "KERNEL_STRIDE_HEIGHT"),
    ("DPU_RDMA", "SRC_DMA_CFG", "KERNEL_STRIDE_WIDTH"),
    ("DPU_RDMA", "SRC_DMA_CFG", "KERNEL_HEIGHT"),
    ("DPU_RDMA", "SRC_DMA_CFG", "KERNEL_WIDTH"),
    ("DPU_RDMA", "PAD_CFG", "PAD_VALUE"),
    ("DPU_RDMA", "PAD_CFG", "PAD_TOP"),
    ("DPU_RDMA", "PAD_CFG", "PAD_LEFT"),
    ("PPU", "MISC_CTRL", "SURF_LEN"),
    ("PPU", "MISC_CTRL", "MC_SURF_OUT"),
    ("PPU", "MISC_CTRL", "NONALIGN"),
)
"""Fields of modes without a known behaviour: not 0 raises RESERVED_MODE and changes nothing."""

REPEATS: tuple[Name, ...] = (
    ("CNA", "FC_DATA_SIZE0", "DMA_WIDTH"),
    ("CNA", "FC_DATA_SIZE0", "DMA_HEIGHT"),
    ("CNA", "FC_DATA_SIZE1", "DMA_CHANNEL"),
    ("DPU", "DATA_CUBE_NOTCH_ADDR", "NOTCH_ADDR_1"),
    ("DPU", "WDMA_SIZE_0", "CHANNEL_WDMA"),
    ("DPU", "WDMA_SIZE_1", "HEIGHT_WDMA"),
    ("DPU", "WDMA_SIZE_1", "WIDTH_WDMA"),
    ("DPU", "BS_OW_CFG", "SIZE_E_0"),
    ("DPU", "BS_OW_CFG", "SIZE_E_2"),
)
"""Sizes that are given twice: a difference raises SIZE_MISMATCH and changes nothing."""


def add_noise(ch: Chooser, task: Task) -> None:
    """Set some inert fields of a task's blocks, and fields of stages that are off, to random values."""
    names = [name for name in INERT if name[0] in task.blocks]
    for switch, off, more in OFF:
        if switch[0] in task.blocks and task.fields.get(switch[:2], {}).get(switch[2], 0) == off:
            names += more
    count = ch.integer("noise.count", 0, 12) if ch.chance("noise", 0.5) else 0
    for n in range(count):
        block, register, name = names[ch.integer(f"noise.field{n}", 0, len(names) - 1)]
        width = registers()[block][register].fields[name].width
        task.set(block, register, **{name: ch.word(f"noise.value{n}", width)})


def add_reserved(ch: Chooser, task: Task, table: tuple[Name, ...], first: Name) -> str:
    """Set `first` and up to two more fields of a table to values that are not 0; return what was set."""
    names = [name for name in table if name[0] in task.blocks]
    said = []
    for n in range(ch.integer("reserved.count", 1, 3)):
        block, register, name = names[ch.integer(f"reserved.field{n}", 0, len(names) - 1)] if n else first
        width = registers()[block][register].fields[name].width
        value = ch.corner(f"reserved.value{n}", 1, (1 << width) - 1)
        task.set(block, register, **{name: value})
        said.append(f"{block}.{register}.{name} = {value:#x}")
    return ", ".join(said)
