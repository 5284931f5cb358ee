"""Full register programs of the layers, shaped like those of the vendor and Mesa (HARDWARE 14).

S_POINTER of DPU, DPU_RDMA, PPU and PPU_RDMA is written as 0x0E; CNA and CORE pointers belong to the
host and are never written (HARDWARE 1.7).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from sw.compiler.float_programs import float_convolution
from sw.compiler.lut import Table, lut_registers
from sw.compiler.program import Ref, Settings, Value
from sw.compiler.steps import Addend, Converter, ConvStep, Limits, Slopes
from sw.compiler.tiling import ConvShape, Tile
from sw.layouts import ATOM_BYTES

BURST_16 = 15
"""Burst length field for 16 beats."""

CONV_BLOCKS = ("CNA", "CORE", "DPU", "DPU_RDMA")
FLYING_BLOCKS = ("DPU", "DPU_RDMA")


@dataclass(frozen=True)
class Place:
    """Where a tensor lies: NC1HWC2 of (C, H, W), or packed pixels with `pitch` when `argb` is set.

    `surface_count` surfaces are allocated; `unsigned_pixels` marks raw bytes that the input
    converter turns into signed ones.
    """

    ref: Ref
    cube: tuple[int, int, int]
    surface_count: int
    argb: int = 0
    pitch: int = 0
    unsigned_pixels: bool = False
    itemsize: int = 1

    @property
    def surface(self) -> int:
        """Atoms of one surface."""
        return self.cube[1] * self.cube[2]

    @property
    def size(self) -> int:
        """Bytes taken."""
        if self.argb:
            return self.cube[1] * self.pitch * self.argb
        return self.surface_count * self.surface * ATOM_BYTES

    @property
    def aligned_channels(self) -> int:
        """Channels in whole atoms."""
        return -(-self.cube[0] // self.c2) * self.c2

    @property
    def c2(self) -> int:
        """Channels of an atom."""
        return ATOM_BYTES // self.itemsize

    def row(self, row: int) -> Ref:
        """Address of the first pixel of a row."""
        pixel = self.argb if self.argb else ATOM_BYTES
        return self.ref + row * (self.pitch if self.argb else self.cube[2]) * pixel


@dataclass(frozen=True)
class ConvOperands:
    """Addresses of one tile's weights and of the layer's bias table from the tile's first kernel.

    `correction` is the int32 cube that is added to v, from the tile's first kernel and row on.
    """

    weights: Ref
    weight_bytes: int
    table: Ref
    correction: Ref | None = None
    addend: Place | None = None
    """The whole tensor that is added."""
    slopes: Ref | None = None
    """Table of slopes, from the tile's first kernel on."""


def written_group(depthwise: bool, itemsize: int) -> int:
    """Channels that a convolution writes at least: a kernel group (HARDWARE 3.6, 14.3)."""
    return (64 if depthwise else 32) // itemsize


def pointers(settings: Settings, blocks: tuple[str, ...]) -> None:
    """Write 0x0E (both groups toggle by themselves) to the pointers that programs own."""
    for block in blocks:
        if block not in ("CNA", "CORE"):
            settings.set(block, "S_POINTER", POINTER_PP_MODE=1, EXECUTER_PP_EN=1, POINTER_PP_EN=1)


def convolution(
    step: ConvStep, shape: ConvShape, tile: Tile, x: Place, y: Place, operands: ConvOperands
) -> Settings:
    """Program of one convolution tile (HARDWARE 14.1, depthwise 14.3)."""
    settings = Settings()
    _cbuf(settings, tile)
    settings.set("CNA", "DCOMP_REGNUM", value=0)
    settings.set("CNA", "DCOMP_CTRL")
    _conv_mode(settings, step, shape)
    pointers(settings, CONV_BLOCKS)
    _cna(settings, step, shape, tile, x, operands)
    _core(settings, step, tile, y)
    _conv_dpu(settings, step, tile, y, operands)
    _conv_rdma(settings, step, tile, y, operands)
    return float_convolution(settings, tile) if y.itemsize > 1 else settings


def _cbuf(settings: Settings, tile: Tile) -> None:
    settings.set(
        "CNA",
        "CBUF_CON0",
        WEIGHT_REUSE=int(tile.weight_reuse),
        WEIGHT_BANK=tile.weight_banks,
        DATA_BANK=tile.data_banks,
    )


def _conv_mode(settings: Settings, step: ConvStep, shape: ConvShape) -> None:
    first = 1 if shape.argb else 0
    settings.set(
        "CNA",
        "CONV_CON1",
        NONALIGN_DMA=first,
        GROUP_LINE_OFF=first,
        DECONV=int(step.insert != (1, 1)),
        ARGB_IN=7 + shape.argb if first else 0,
        CONV_MODE=3 if step.depthwise else 0,
    )


def _cna(
    settings: Settings, step: ConvStep, shape: ConvShape, tile: Tile, x: Place, operands: ConvOperands
) -> None:
    window = step.window
    stored = shape.stored_channels
    reach = (window.kernel[0] - 1) * window.dilations[0] + 1
    real = (shape.channels - 1) % 64 if shape.channels > 64 else shape.channels - 1
    kernels = 1 if step.depthwise else tile.kernels + tile.kernels % 2
    atomics = tile.rows * shape.out_width

    def cna(register: str, **fields: Value) -> None:
        settings.set("CNA", register, **fields)

    _conv_mode(settings, step, shape)
    cna("CONV_CON2", FEATURE_GRAINS=min(window.strides[0] + reach + 1, 1023))
    cna(
        "CONV_CON3",
        ATROUS_Y_DILATION=window.dilations[0] - 1,
        ATROUS_X_DILATION=window.dilations[1] - 1,
        DECONV_Y_STRIDE=step.insert[0] - 1,
        DECONV_X_STRIDE=step.insert[1] - 1,
        CONV_Y_STRIDE=window.strides[0],
        CONV_X_STRIDE=window.strides[1],
    )
    cna("DATA_SIZE0", DATAIN_WIDTH=shape.width, DATAIN_HEIGHT=tile.in_rows)
    cna("DATA_SIZE1", DATAIN_CHANNEL_REAL=real, DATAIN_CHANNEL=stored)
    cna("DATA_SIZE2", DATAOUT_WIDTH=shape.out_width)
    cna("DATA_SIZE3", DATAOUT_ATOMICS=atomics)
    cna("WEIGHT_SIZE0", WEIGHT_BYTES=operands.weight_bytes)
    cna("WEIGHT_SIZE1", WEIGHT_BYTES_PER_KERNEL=shape.taps * stored)
    cna(
        "WEIGHT_SIZE2",
        WEIGHT_WIDTH=window.kernel[1],
        WEIGHT_HEIGHT=window.kernel[0],
        WEIGHT_KERNELS=kernels,
    )
    _cbuf(settings, tile)
    cna("CBUF_CON1", DATA_ENTRIES=shape.pitch * tile.in_rows if shape.argb else shape.row_entries)
    convert = x.unsigned_pixels
    if convert:  # unsigned byte to signed: (x - 128) * 2^14 >> 14, as Mesa does (HARDWARE 3.3)
        cna("CVT_CON0", **{f"CVT_TRUNCATE_{i}": 14 for i in range(4)}, CVT_TYPE=1)
    else:
        cna("CVT_CON0", DATA_SIGN=1, CVT_TYPE=1, CVT_BYPASS=1)
    for channel in range(4):
        scale, offset = (2**14, -128) if convert else (1, 0)
        cna(f"CVT_CON{channel + 1}", **{f"CVT_SCALE{channel}": scale, f"CVT_OFFSET{channel}": offset})
    cna("FC_CON0")
    cna("FC_CON1")
    cna("PAD_CON0", PAD_LEFT=window.pads[1], PAD_TOP=tile.pad_top)
    cna("FEATURE_DATA_ADDR", FEATURE_BASE_ADDR=x.row(tile.in_first))
    cna("FC_CON2")
    cna("DMA_CON0", WEIGHT_BURST_LEN=BURST_16, DATA_BURST_LEN=BURST_16)
    if shape.argb:
        line, surface = shape.pitch, shape.pitch * (shape.height - 1)
    else:
        line, surface = 4 * shape.width, shape.width * (shape.height - 4)
    cna("DMA_CON1", LINE_STRIDE=line)
    cna("DMA_CON2", SURF_STRIDE=surface)
    cna("FC_DATA_SIZE0", DMA_WIDTH=shape.width, DMA_HEIGHT=tile.in_rows)
    cna("FC_DATA_SIZE1", DMA_CHANNEL=stored)
    cna("DCOMP_CTRL")
    cna("DCOMP_REGNUM")
    cna("DCOMP_ADDR0", DECOMPRESS_ADDR0=operands.weights)
    for stream in range(16):
        cna(f"DCOMP_AMOUNT{stream}")
    cna("CVT_CON5", PER_CHANNEL_CVT_EN=0xFFFF if convert else 0)
    pad = step.x_zero % 256
    cna("PAD_CON1", PAD_VALUE=int.from_bytes(bytes([pad] * 4), "little"))


def _core(settings: Settings, step: ConvStep, tile: Tile, y: Place) -> None:
    settings.set("CORE", "MISC_CFG", DW_EN=int(step.depthwise), QD_EN=1)
    settings.set("CORE", "DATAOUT_SIZE_0", DATAOUT_HEIGHT=tile.rows - 1, DATAOUT_WIDTH=y.cube[2] - 1)
    settings.set("CORE", "DATAOUT_SIZE_1", DATAOUT_CHANNEL=group_channels(step, tile, y) - 1)
    settings.set("CORE", "CLIP_TRUNCATE")
    settings.set("CORE", "UNDOC_3030")


def group_channels(step: ConvStep, tile: Tile, y: Place) -> int:
    """Output channels of a tile in whole kernel groups (HARDWARE 3.6: others hang on silicon)."""
    group = written_group(step.depthwise, y.itemsize)
    return -(-tile.kernels // group) * group


def _conv_dpu(settings: Settings, step: ConvStep, tile: Tile, y: Place, operands: ConvOperands) -> None:
    channels = group_channels(step, tile, y)
    surfaces = 4 if step.depthwise else 2
    first = y.row(tile.first_row) + tile.first_kernel // y.c2 * y.surface * ATOM_BYTES
    dpu_cube(
        settings,
        conv_mode=3 if step.depthwise else 0,
        flying=False,
        shift_negative=step.shift,
        destination=first,
        y=y,
        rows=tile.rows,
        channels=channels,
        real=tile.kernels,
        ew_shift_negative=step.slopes.shift if step.slopes else 0,
    )
    settings.set("DPU", "BS_CFG", BS_ALU_ALGO=2, BS_ALU_SRC=1, BS_RELU_BYPASS=1)
    settings.set("DPU", "BS_ALU_CFG")
    settings.set("DPU", "BS_MUL_CFG", BS_MUL_SHIFT_VALUE=step.shift, BS_MUL_SRC=1)
    settings.set("DPU", "BS_RELUX_CMP_VALUE")
    size = surfaces - 1
    settings.set("DPU", "BS_OW_CFG", SIZE_E_2=size, SIZE_E_1=size, SIZE_E_0=size, OW_SRC=1)
    rest = partial(dpu_rest, settings, y, tile.rows, channels, step.limits, step.converter, surfaces)
    ew = None
    if operands.correction is not None:
        fields: dict[str, Value] = {
            "EW_DATA_MODE": 1,
            "EDATA_SIZE": 3,
            "EW_ALU_ALGO": 2,
            "EW_OP_CVT_BYPASS": 1,
            "EW_LUT_BYPASS": 1,
            "EW_OP_SRC": 1,
        }
        ew = Ew(fields, 0, 1)
    if step.addend is not None:
        before, ew = _addition(step, step.addend)
        rest(ew, before=before)
    elif step.slopes is not None and y.itemsize == 1:
        rest(_own_slope(step.slopes), before=Before(step.slopes.own_scale))
    elif step.slopes is not None:
        rest(prelu=prelu_of(step.slopes))
    elif step.activation is not None:  # BN leaves v less the lower limit
        rest(table=Table([int(entry) for entry in step.activation.table], first=0))
    else:
        rest(ew)


def _addition(step: ConvStep, addend: Addend) -> tuple[Before, Ew]:
    """BN and EW of a convolution with an addition."""
    low, high = (addend.own_scale * limit for limit in addend.own_limits)
    fields: dict[str, Value] = {
        "EW_DATA_MODE": int(not step.added_per_channel),
        "EDATA_SIZE": 1,
        "EW_ALU_ALGO": 2,
        "EW_LUT_BYPASS": 1,
        "EW_OP_SRC": 1,
    }
    offset = low - step.inputs[1].zero_point * addend.scale
    return Before(addend.own_scale, low, high), Ew(fields, offset, addend.scale)


def _own_slope(slopes: Slopes) -> Ew:
    """EW of a convolution of bytes with a slope: negative numbers times a register."""
    fields: dict[str, Value] = {
        "EDATA_SIZE": 3,
        "EW_OP_TYPE": 1,
        "EW_MUL_PRELU": 1,
        "EW_OP_CVT_BYPASS": 1,
        "EW_LUT_BYPASS": 1,
    }
    return Ew(fields, 0, 1, int(slopes.words[0]), slopes.shift)


def dpu_cube(
    settings: Settings,
    *,
    conv_mode: int,
    flying: bool,
    shift_negative: int,
    destination: Ref,
    y: Place,
    rows: int,
    channels: int,
    real: int,
    bn_shift_negative: int = 0,
    ew_shift_negative: int = 0,
    notch: int = 0,
) -> None:
    """DPU registers from the mode to the cube; `notch` atoms lie between the lines written."""

    def dpu(register: str, **fields: Value) -> None:
        settings.set("DPU", register, **fields)

    dpu(
        "FEATURE_MODE_CFG",
        BURST_LEN=BURST_16,
        CONV_MODE=conv_mode,
        OUTPUT_MODE=2,
        FLYING_MODE=int(flying),
    )
    dpu(
        "DATA_FORMAT",
        EW_TRUNCATE_NEG=ew_shift_negative,
        BN_MUL_SHIFT_VALUE_NEG=bn_shift_negative,
        BS_MUL_SHIFT_VALUE_NEG=shift_negative,
    )
    dpu("OFFSET_PEND")
    dpu("DST_BASE_ADDR", DST_BASE_ADDR=destination)
    dpu("DST_SURF_STRIDE", DST_SURF_STRIDE=y.surface)
    dpu("DATA_CUBE_WIDTH", WIDTH=y.cube[2] - notch - 1)
    dpu("DATA_CUBE_HEIGHT", HEIGHT=rows - 1)
    dpu("DATA_CUBE_NOTCH_ADDR", NOTCH_ADDR_1=notch, NOTCH_ADDR_0=notch)
    dpu("DATA_CUBE_CHANNEL", ORIG_CHANNEL=real - 1, CHANNEL=channels - 1)


@dataclass(frozen=True)
class Ew:
    """A live EW stage: fields of EW_CFG but those of the ReLU, and the operand's converter."""

    fields: dict[str, Value]
    offset: int
    scale: int
    value: int = 0
    """Operand from registers."""
    shift: int = 0
    """Right shift of products."""


@dataclass(frozen=True)
class Before:
    """What BN does before EW: v * scale, then (with a `high`) clamped to (low, high), less low."""

    scale: int
    low: int = 0
    high: int | None = None


@dataclass(frozen=True)
class Prelu:
    """A live PReLU in BN: multiplier (None: from NRDMA) and shift."""

    slope: int | None
    shift: int


def prelu_of(slopes: Slopes) -> Prelu:
    """BN's settings for slopes."""
    return Prelu(int(slopes.words[0]) if slopes.values.size == 1 else None, slopes.shift)


def dpu_rest(
    settings: Settings,
    y: Place,
    rows: int,
    channels: int,
    limits: Limits,
    converter: Converter,
    surfaces: int,
    ew: Ew | None = None,
    prelu: Prelu | None = None,
    table: Table | None = None,
    notch: int = 0,
    before: Before | None = None,
) -> None:
    """DPU registers from BS_OW_OP to the LUT's."""

    def dpu(register: str, **fields: Value) -> None:
        settings.set("DPU", register, **fields)

    low, high = limits if limits is not None else (0, None)
    dpu("BS_OW_OP")
    dpu("WDMA_SIZE_0", CHANNEL_WDMA=channels - 1)
    dpu("WDMA_SIZE_1", HEIGHT_WDMA=rows - 1, WIDTH_WDMA=y.cube[2] - notch - 1)
    if prelu is not None:
        dpu("BN_CFG", BN_RELU_BYPASS=1, BN_MUL_PRELU=1, BN_ALU_BYPASS=1)
    elif before is not None:
        clamped = int(before.high is not None)
        dpu("BN_CFG", BN_ALU_ALGO=4, BN_RELUX_EN=clamped, BN_RELU_BYPASS=1 - clamped)
    elif limits is None or ew is not None:
        dpu("BN_CFG", BN_RELU_BYPASS=1, BN_MUL_BYPASS=1, BN_ALU_BYPASS=1, BN_BYPASS=1)
    elif low == 0:
        dpu("BN_CFG", BN_RELUX_EN=int(high is not None), BN_MUL_BYPASS=1, BN_ALU_BYPASS=1)
    else:  # clamp v - low to [0, high - low] here, EW adds low again
        dpu("BN_CFG", BN_ALU_ALGO=4, BN_RELUX_EN=int(high is not None), BN_MUL_BYPASS=1)
    shifted = limits is not None and ew is None and low != 0
    dpu("BN_ALU_CFG", BN_ALU_OPERAND=before.low if before else low if shifted else 0)
    if prelu is not None:
        dpu(
            "BN_MUL_CFG",
            BN_MUL_OPERAND=prelu.slope or 0,
            BN_MUL_SHIFT_VALUE=prelu.shift,
            BN_MUL_SRC=int(prelu.slope is None),
        )
    else:
        dpu("BN_MUL_CFG", BN_MUL_OPERAND=before.scale if before else 0)
    first, last = (before.low, before.high) if before else (low, None if ew else high)
    dpu("BN_RELUX_CMP_VALUE", BN_RELUX_CMP_DAT=0 if last is None else last - first)
    if ew is not None:
        dpu(
            "EW_CFG",
            **ew.fields,
            EW_RELU_BYPASS=int(limits is None),
            EW_RELUX_EN=int(high is not None),
        )
        dpu("EW_CVT_OFFSET_VALUE", EW_OP_CVT_OFFSET=ew.offset)
        dpu("EW_CVT_SCALE_VALUE", EW_OP_CVT_SCALE=ew.scale, EW_TRUNCATE=ew.shift)
        dpu("EW_RELUX_CMP_VALUE", EW_RELUX_CMP_DAT=high if high is not None else 0)
    else:
        if table is not None:
            dpu("EW_CFG", EW_RELU_BYPASS=1, EW_OP_CVT_BYPASS=1, EW_OP_BYPASS=1)
        elif shifted:
            dpu("EW_CFG", EDATA_SIZE=3, EW_ALU_ALGO=2, EW_RELU_BYPASS=1, EW_OP_CVT_BYPASS=1, EW_LUT_BYPASS=1)
        else:
            dpu("EW_CFG", EW_RELU_BYPASS=1, EW_OP_CVT_BYPASS=1, EW_LUT_BYPASS=1, EW_OP_BYPASS=1, EW_BYPASS=1)
        dpu("EW_CVT_OFFSET_VALUE")
        dpu("EW_CVT_SCALE_VALUE", EW_OP_CVT_SCALE=1)
        dpu("EW_RELUX_CMP_VALUE")
    dpu("OUT_CVT_OFFSET", OUT_CVT_OFFSET=converter.zero)
    dpu("OUT_CVT_SCALE", OUT_CVT_SCALE=converter.scale)
    dpu("OUT_CVT_SHIFT", OUT_CVT_SHIFT=converter.shift)
    for lane in range(8):
        operand = ew.value if ew else low if shifted and table is None else 0
        dpu(f"EW_OP_VALUE_{lane}", **{f"EW_OPERAND_{lane}": operand})
    dpu("SURFACE_ADD", SURF_ADD=surfaces * y.surface)
    dpu("UNDOC_40C4")
    lut_registers(settings, table)


@dataclass(frozen=True)
class Operand:
    """What ERDMA reads: first byte, atoms between surfaces, element size code, per channel or pixel."""

    ref: Ref
    surface: int
    size: int = 1
    per_channel: bool = False


def rdma_registers(
    settings: Settings,
    y: Place,
    rows: int,
    channels: int,
    *,
    conv_mode: int = 0,
    table: Ref | None = None,
    source: Ref | None = None,
    operand: Operand | None = None,
    slopes: Ref | None = None,
    notches: tuple[int, int] = (0, 0),
    width: int | None = None,
) -> None:
    """All DPU_RDMA registers: `table` for BRDMA, `source` for MRDMA, `operand` for ERDMA, `slopes` for NRDMA.

    `notches` are the atoms behind each line and each surface of the source; `width` is that of the
    cube where it is not y's.
    """

    def rdma(register: str, **fields: Value) -> None:
        settings.set("DPU_RDMA", register, **fields)

    flying = source is not None
    rdma("DATA_CUBE_WIDTH", WIDTH=(y.cube[2] if width is None else width) - 1)
    rdma("DATA_CUBE_HEIGHT", HEIGHT=rows - 1)
    rdma("DATA_CUBE_CHANNEL", CHANNEL=channels - 1)
    rdma("SRC_BASE_ADDR", SRC_BASE_ADDR=source or 0)
    rdma("BRDMA_CFG", BRDMA_DATA_USE=7 if table else 0)
    rdma("BS_BASE_ADDR", BS_BASE_ADDR=table or 0)
    rdma("NRDMA_CFG", NRDMA_DATA_USE=4 if slopes else 0)
    rdma("BN_BASE_ADDR", BN_BASE_ADDR=slopes or 0)
    if operand is not None:
        rdma("ERDMA_CFG", ERDMA_DATA_MODE=int(not operand.per_channel), ERDMA_DATA_SIZE=operand.size)
    else:
        rdma("ERDMA_CFG", ERDMA_DISABLE=1)
    rdma("EW_BASE_ADDR", EW_BASE_ADDR=operand.ref if operand else 0)
    rdma("EW_SURF_STRIDE", EW_SURF_STRIDE=operand.surface if operand else 0)
    rdma(
        "FEATURE_MODE_CFG",
        BURST_LEN=BURST_16,
        MRDMA_DISABLE=int(not flying),
        CONV_MODE=conv_mode,
        FLYING_MODE=int(flying),
    )
    rdma("SRC_DMA_CFG", LINE_NOTCH_ADDR=notches[0])
    rdma("SURF_NOTCH", SURF_NOTCH_ADDR=notches[1])
    rdma("PAD_CFG")
    rdma("WEIGHT", E_WEIGHT=1, N_WEIGHT=1, B_WEIGHT=1, M_WEIGHT=1)
    rdma("EW_SURF_NOTCH")


def _conv_rdma(settings: Settings, step: ConvStep, tile: Tile, y: Place, operands: ConvOperands) -> None:
    operand, addend = None, operands.addend
    if operands.correction is not None:
        operand = Operand(operands.correction, y.surface, size=3)
    elif addend is not None:
        row = addend.row(0 if step.added_per_channel else tile.first_row)
        start = row + tile.first_kernel // addend.c2 * addend.surface * ATOM_BYTES
        operand = Operand(start, addend.surface, per_channel=step.added_per_channel)
    rdma_registers(
        settings,
        y,
        tile.rows,
        group_channels(step, tile, y),
        conv_mode=3 if step.depthwise else 0,
        table=operands.table,
        operand=operand,
        slopes=operands.slopes,
    )
