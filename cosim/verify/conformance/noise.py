"""Fields without effect on a task, which are set at random, and reserved ones, which raise a diagnostic."""

from __future__ import annotations

from rkcosim.spec.regs import registers
from rkcosim.verify.conformance.arena import UNMAPPED
from rkcosim.verify.conformance.choices import Chooser
from rkcosim.verify.crosscheck.program import Task, holder

Name = tuple[str, str, str]


def _fields(block: str, names: str) -> tuple[Name, ...]:
    """Return fields of a block by name, with "REGISTER." in front of a name in several registers."""
    parts = [name.rpartition(".") for name in names.split()]
    return tuple((block, register or holder(block, field), field) for register, _, field in parts)


def _off(switch: str, value: int, names: str) -> tuple[Name, int, tuple[Name, ...]]:
    block, _, field = switch.partition(".")
    return (block, holder(block, field), field), value, _fields(block, names)


INERT: tuple[Name, ...] = (
    *_fields(
        "CNA",
        "CONV_CON2.NN_MODE KERNEL_GROUP CMD_FIFO_SRST CONV_CON3.NN_MODE DATAIN_CHANNEL_REAL "
        "WEIGHT_BYTES_PER_KERNEL FC_SKIP_DATA DATA_OFFSET WEIGHT_OFFSET OV4K_BYPASS WEIGHT_BURST_LEN "
        "DATA_BURST_LEN CBUF_CS_DISABLE_CLKGATE CSC_DISABLE_CLKGATE CNA_WEIGHT_DISABLE_CLKGATE "
        "CNA_FEATURE_DISABLE_CLKGATE WT_DEC_BYPASS DCOMP_REGNUM "
        + " ".join(f"DCOMP_AMOUNT{n}" for n in range(16)),
    ),
    *_fields("CORE", "SOFT_GATING DATAOUT_HEIGHT DATAOUT_WIDTH"),
    *_fields("DPU", "BURST_LEN SIZE_C_WDMA EW_EQUAL_EN EW_DATA_MODE"),
    *_fields("DPU_RDMA", "BURST_LEN OV4K_BYPASS E_WEIGHT N_WEIGHT B_WEIGHT M_WEIGHT"),
    *_fields("PPU", "USE_CNT PAD_BOTTOM PAD_RIGHT BURST_LEN"),
)
"""Fields that docs/reference calls inert: any value, no diagnostic."""

_STAGE = (
    "RELUX_EN RELU_BYPASS MUL_PRELU MUL_BYPASS ALU_BYPASS ALU_OPERAND MUL_OPERAND MUL_SHIFT_VALUE "
    "MUL_SHIFT_VALUE_NEG RELUX_CMP_DAT"
)
OFF: tuple[tuple[Name, int, tuple[Name, ...]], ...] = (
    _off(
        "CNA.CVT_BYPASS",
        1,
        "DATA_SIGN ROUND_TYPE CVT_TYPE CVT_TRUNCATE_0 CVT_TRUNCATE_1 CVT_TRUNCATE_2 CVT_TRUNCATE_3 "
        "CVT_SCALE0 CVT_SCALE1 CVT_SCALE2 CVT_SCALE3 CVT_OFFSET0 CVT_OFFSET1 CVT_OFFSET2 CVT_OFFSET3 "
        "PER_CHANNEL_CVT_EN",
    ),
    _off("CNA.DECONV", 0, "DECONV_Y_STRIDE DECONV_X_STRIDE"),
    *(_off(f"DPU.{s}_BYPASS", 1, " ".join(f"{s}_{n}" for n in _STAGE.split())) for s in ("BS", "BN")),
    _off(
        "DPU.EW_BYPASS",
        1,
        "EW_CVT_TYPE EW_CVT_ROUND EW_RELUX_EN EW_RELU_BYPASS EW_MUL_PRELU EW_OP_TYPE EW_TRUNCATE_NEG "
        "EW_OP_CVT_OFFSET EW_TRUNCATE EW_OP_CVT_SHIFT EW_OP_CVT_SCALE EW_RELUX_CMP_DAT "
        + " ".join(f"EW_OPERAND_{n}" for n in range(8)),
    ),
    _off(
        "DPU.EW_LUT_BYPASS",
        1,
        "LUT_HYBRID_PRIORITY LUT_OFLOW_PRIORITY LUT_UFLOW_PRIORITY LUT_CAL_SEL LUT_LO_LE_MUX LUT_EXPAND_EN "
        "LUT_ROAD_SEL LUT_LE_INDEX_SELECT LUT_LO_INDEX_SELECT LUT_LE_START LUT_LE_END LUT_LO_START "
        "LUT_LO_END "
        + " ".join(
            f"LUT_{table}_SLOPE_{part}.{side}_{part}"
            for part in ("SCALE", "SHIFT")
            for table in ("LE", "LO")
            for side in ("OFLOW", "UFLOW")
        ),
    ),
    _off("PPU.INDEX_EN", 0, "INDEX_ADD"),
)
"""(switch, value at which it is off, fields without effect then)."""

RESERVED: tuple[Name, ...] = (
    *_fields("CNA", "CSC_WO_EN CSC_DO_EN SURF_MODE FC_DATA_BANK FC_SKIP_EN NONALIGN_DMA"),
    *_fields(
        "DPU",
        "TP_EN RGP_TYPE NONALIGN SURF_LEN MC_SURF_OUT MINMAX_CTL RGP_CNTER BS_TRUNCATE_SRC BN_TRUNCATE_SRC",
    ),
    *_fields(
        "DPU_RDMA",
        "ERDMA_SURF_MODE ERDMA_NONALIGN POOLING_METHOD UNPOOLING_EN KERNEL_STRIDE_HEIGHT KERNEL_STRIDE_WIDTH "
        "KERNEL_HEIGHT KERNEL_WIDTH PAD_VALUE PAD_TOP PAD_LEFT",
    ),
    *_fields("PPU", "SURF_LEN MC_SURF_OUT NONALIGN"),
)
"""Fields of modes with unknown behaviour: values other than 0 raise RESERVED_MODE and change nothing."""

REPEATS: tuple[Name, ...] = (
    *_fields("CNA", "DMA_WIDTH DMA_HEIGHT DMA_CHANNEL"),
    *_fields("DPU", "NOTCH_ADDR_1 CHANNEL_WDMA HEIGHT_WDMA WIDTH_WDMA SIZE_E_0 SIZE_E_2"),
)
"""Sizes that are given twice: a difference raises SIZE_MISMATCH and changes nothing."""


def add_noise(ch: Chooser, task: Task) -> None:
    """Set some inert fields of a task's blocks, and fields of disabled stages, to random values."""
    names = [name for name in INERT if name[0] in task.blocks]
    for switch, off, more in OFF:
        if switch[0] in task.blocks and task.get(switch[0], switch[2]) == off:
            names += more
    count = ch.integer("noise.count", 0, 12) if ch.chance("noise", 0.5) else 0
    for n in range(count):
        block, register, name = ch.pick(f"noise.field{n}", names)
        width = registers()[block][register].fields[name].width
        value = ch.word(f"noise.value{n}", width)
        task.set(block, register, **{name: value})
    if "DPU_RDMA" in task.blocks:
        for client, stage in (("BRDMA", "BS"), ("NRDMA", "BN")):
            _idle_reader(ch, task, client, stage)


def _idle_reader(ch: Chooser, task: Task, client: str, stage: str) -> None:
    """Give a reader that has nothing to read, or is off, an unmapped address."""
    base = ("DPU_RDMA", f"{stage}_BASE_ADDR")
    if base in task.addresses or ("DPU_RDMA", f"{client}_CFG") in task.fields:
        return
    if ch.chance(f"noise.{client}", 0.15):
        off = ch.integer(f"noise.{client}_off", 0, 1)
        use = ch.integer(f"noise.{client}_use", 1, 7) if off else 0
        task.set("DPU_RDMA", **{f"{client}_DATA_USE": use, f"{client}_DISABLE": off})
        task.address(*base, UNMAPPED)


def add_reserved(ch: Chooser, task: Task, table: tuple[Name, ...], first: Name) -> str:
    """Set `first` and up to two more fields of a table to non-zero values; return what was set."""
    names = [name for name in table if name[0] in task.blocks]
    said = []
    for n in range(ch.integer("reserved.count", 1, 3)):
        block, register, name = ch.pick(f"reserved.field{n}", names) if n else first
        width = registers()[block][register].fields[name].width
        value = ch.corner(f"reserved.value{n}", 1, (1 << width) - 1)
        now = task.get(block, name)
        if name == "CHANNEL_WDMA" and now and ch.chance("reserved.fewer", 0.7):
            value = ch.integer("reserved.channels", 0, now - 1)  # the rest is not written (4.10)
        task.set(block, register, **{name: value})
        said.append(f"{block}.{register}.{name} = {value:#x}")
    return ", ".join(said)
