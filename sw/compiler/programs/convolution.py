"""Register programs of convolutions, in the form of the vendor and Mesa ([HW 14.4], [HW 14.6])."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from rkcosim.compiler.limits import MAX_NOTCH
from rkcosim.compiler.programs.dpu import (
    BURST_16,
    Before,
    Ew,
    Operand,
    Place,
    Table,
    dpu_cube,
    dpu_rest,
    pointers,
    prelu_of,
    rdma_registers,
)
from rkcosim.compiler.programs.floats import float_convolution
from rkcosim.compiler.programs.task import Ref, Settings, Value
from rkcosim.compiler.requant import SECOND_SHIFT
from rkcosim.compiler.steps import Addend, ConvStep, Slopes
from rkcosim.compiler.tiling import ConvShape, Tile
from rkcosim.spec.layouts import ATOM_BYTES

CONV_BLOCKS = ("CNA", "CORE", "DPU", "DPU_RDMA")


@dataclass(frozen=True)
class ConvOperands:
    """Addresses of one tile's weights and of the layer's bias table, from the tile's first kernel on.

    `correction` is an int32 cube that is added to v, from the tile's first kernel and row on.
    """

    weights: Ref
    weight_bytes: int
    table: Ref
    correction: Ref | None = None
    addend: Place | None = None
    """The whole tensor that is added."""
    slopes: Ref | None = None
    """Table of BN: slopes or second multipliers, from the tile's first kernel on."""


def written_group(depthwise: bool, itemsize: int) -> int:
    """Smallest number of channels that a convolution writes: a kernel group ([HW 3.6], [HW 14.6])."""
    return (64 if depthwise else 32) // itemsize


def convolution(
    step: ConvStep, shape: ConvShape, tile: Tile, x: Place, y: Place, operands: ConvOperands
) -> Settings:
    """Return the program of one convolution tile ([HW 14.4], depthwise [HW 14.6]).

    `shape` is that of the whole layer.
    """
    settings = Settings()
    _cbuf(settings, tile)
    settings.set("CNA", "DCOMP_REGNUM", value=0)
    settings.set("CNA", "DCOMP_CTRL")
    _conv_mode(settings, step, shape, tile)
    pointers(settings, CONV_BLOCKS)
    _cna(settings, step, shape, tile, x, operands)
    _core(settings, step, tile, y)
    _conv_dpu(settings, step, tile, y, operands)
    _conv_rdma(settings, step, tile, y, operands)
    if tile.rows == 1 and _notch(tile, y) > MAX_NOTCH:  # there is no line behind
        settings.change("DPU", "DATA_CUBE_NOTCH_ADDR", NOTCH_ADDR_1=0, NOTCH_ADDR_0=0)
        settings.change("DPU_RDMA", "DATA_CUBE_HEIGHT", EW_LINE_NOTCH_ADDR=0)
    return float_convolution(settings, tile) if y.itemsize > 1 else settings


def _cbuf(settings: Settings, tile: Tile) -> None:
    settings.set(
        "CNA",
        "CBUF_CON0",
        WEIGHT_REUSE=int(tile.weight_reuse),
        WEIGHT_BANK=tile.weight_banks,
        DATA_BANK=tile.data_banks,
    )


def _narrow(shape: ConvShape, tile: Tile) -> bool:
    """Whether a tile reads only some columns of a map: line by line, as the vendor's tiles do [HW 4.1.2]."""
    return not shape.argb and tile_shape(shape, tile).width != shape.width


def _conv_mode(settings: Settings, step: ConvStep, shape: ConvShape, tile: Tile) -> None:
    first = 1 if shape.argb else 0
    settings.set(
        "CNA",
        "CONV_CON1",
        NONALIGN_DMA=first,
        GROUP_LINE_OFF=int(first or _narrow(shape, tile)),
        DECONV=int(step.insert != (1, 1)),
        ARGB_IN=7 + shape.argb if first else 0,
        CONV_MODE=3 if step.depthwise else 0,
    )


def _cna(
    settings: Settings, step: ConvStep, shape: ConvShape, tile: Tile, x: Place, operands: ConvOperands
) -> None:
    part = tile_shape(shape, tile)
    window = part.window
    stored = part.stored_channels
    reach = (window.kernel[0] - 1) * window.dilations[0] + 1
    real = (part.channels - 1) % 64 if part.channels > 64 else part.channels - 1
    kernels = 1 if step.depthwise else tile.kernels + tile.kernels % 2
    atomics = tile.rows * part.out_width

    cna = partial(settings.set, "CNA")
    _conv_mode(settings, step, shape, tile)
    cna("CONV_CON2", FEATURE_GRAINS=tile.grains or min(window.strides[0] + reach + 1, 1023))
    cna(
        "CONV_CON3",
        ATROUS_Y_DILATION=window.dilations[0] - 1,
        ATROUS_X_DILATION=window.dilations[1] - 1,
        DECONV_Y_STRIDE=step.insert[0] - 1,
        DECONV_X_STRIDE=step.insert[1] - 1,
        CONV_Y_STRIDE=window.strides[0],
        CONV_X_STRIDE=window.strides[1],
    )
    cna("DATA_SIZE0", DATAIN_WIDTH=part.width, DATAIN_HEIGHT=tile.in_rows)
    cna("DATA_SIZE1", DATAIN_CHANNEL_REAL=real, DATAIN_CHANNEL=stored)
    cna("DATA_SIZE2", DATAOUT_WIDTH=part.out_width)
    cna("DATA_SIZE3", DATAOUT_ATOMICS=atomics)
    cna("WEIGHT_SIZE0", WEIGHT_BYTES=operands.weight_bytes)
    kernel_bytes = operands.weight_bytes if step.depthwise else shape.taps * stored
    cna("WEIGHT_SIZE1", WEIGHT_BYTES_PER_KERNEL=kernel_bytes)
    cna(
        "WEIGHT_SIZE2",
        WEIGHT_WIDTH=window.kernel[1],
        WEIGHT_HEIGHT=window.kernel[0],
        WEIGHT_KERNELS=kernels,
    )
    _cbuf(settings, tile)
    cna("CBUF_CON1", DATA_ENTRIES=shape.pitch * tile.in_rows if shape.argb else part.row_entries)
    convert = x.unsigned_pixels
    if convert:  # unsigned byte to signed: (x - 128) * 2^14 >> 14, as Mesa does [HW 3.3]
        cna("CVT_CON0", **{f"CVT_TRUNCATE_{i}": 14 for i in range(4)}, CVT_TYPE=1)
    else:
        cna("CVT_CON0", DATA_SIGN=1, CVT_TYPE=1, CVT_BYPASS=1)
    for channel in range(4):
        scale, offset = (2**14, -128) if convert else (1, 0)
        cna(f"CVT_CON{channel + 1}", **{f"CVT_SCALE{channel}": scale, f"CVT_OFFSET{channel}": offset})
    cna("FC_CON0")
    cna("FC_CON1")
    cna("PAD_CON0", PAD_LEFT=window.pads[1], PAD_TOP=tile.pad_top)
    cna("FEATURE_DATA_ADDR", FEATURE_BASE_ADDR=_first_pixel(shape, tile, x))
    cna("FC_CON2")
    cna("DMA_CON0", WEIGHT_BURST_LEN=BURST_16, DATA_BURST_LEN=BURST_16)
    if shape.argb:
        line, surface = shape.pitch, shape.pitch * (shape.height - 1)
    elif _narrow(shape, tile):
        line, surface = shape.width, shape.width * shape.height - part.width
    else:
        line, surface = 4 * shape.width, shape.width * (shape.height - 4)
    cna("DMA_CON1", LINE_STRIDE=line)
    cna("DMA_CON2", SURF_STRIDE=surface)
    cna("FC_DATA_SIZE0", DMA_WIDTH=part.width, DMA_HEIGHT=tile.in_rows)
    cna("FC_DATA_SIZE1", DMA_CHANNEL=stored)
    cna("DCOMP_CTRL")
    cna("DCOMP_REGNUM")
    cna("DCOMP_ADDR0", DECOMPRESS_ADDR0=operands.weights)
    for stream in range(16):
        cna(f"DCOMP_AMOUNT{stream}")
    cna("CVT_CON5", PER_CHANNEL_CVT_EN=0xFFFF if convert else 0)
    pad = step.x_zero % 256
    cna("PAD_CON1", PAD_VALUE=int.from_bytes(bytes([pad] * 4), "little"))


def tile_shape(shape: ConvShape, tile: Tile) -> ConvShape:
    """Return the convolution of a tile's columns and, if it is depthwise, of its channels."""
    columns = (tile.first_column, tile.columns or shape.out_width)
    kernels = (tile.first_kernel, tile.kernels) if shape.depthwise else (0, shape.kernels)
    return shape.part(columns, kernels)


def _first_pixel(shape: ConvShape, tile: Tile, x: Place) -> Ref:
    """Address of the first input pixel of a tile."""
    start = x.row(tile.in_first)
    if shape.depthwise:
        start += tile.first_kernel // x.c2 * x.surface * ATOM_BYTES
    if tile.columns:
        start += shape.columns_in(tile.first_column, tile.columns)[0] * ATOM_BYTES
    return start


def _notch(tile: Tile, y: Place) -> int:
    """Atoms of a line of the output that a tile does not write."""
    return y.cube[2] - tile.columns if tile.columns else 0


def _core(settings: Settings, step: ConvStep, tile: Tile, y: Place) -> None:
    width = y.cube[2] - _notch(tile, y)
    settings.set("CORE", "MISC_CFG", DW_EN=int(step.depthwise), QD_EN=1)
    settings.set("CORE", "DATAOUT_SIZE_0", DATAOUT_HEIGHT=tile.rows - 1, DATAOUT_WIDTH=width - 1)
    settings.set("CORE", "DATAOUT_SIZE_1", DATAOUT_CHANNEL=group_channels(step, tile, y) - 1)
    settings.set("CORE", "CLIP_TRUNCATE")
    settings.set("CORE", "UNDOC_3030")


def group_channels(step: ConvStep, tile: Tile, y: Place) -> int:
    """Output channels of a tile in whole kernel groups ([HW 3.6]: other numbers hang on silicon)."""
    group = written_group(step.depthwise, y.itemsize)
    return -(-tile.kernels // group) * group


def _conv_dpu(settings: Settings, step: ConvStep, tile: Tile, y: Place, operands: ConvOperands) -> None:
    channels = group_channels(step, tile, y)
    surfaces = 4 if step.depthwise else 2
    first = y.row(tile.first_row) + tile.first_kernel // y.c2 * y.surface * ATOM_BYTES
    first += tile.first_column * ATOM_BYTES
    dpu_cube(
        settings,
        y,
        tile.rows,
        channels,
        first,
        real=tile.kernels,
        conv_mode=3 if step.depthwise else 0,
        flying=False,
        shift_negative=step.shift,
        bn_shift_negative=0 if step.seconds is None else SECOND_SHIFT,
        ew_shift_negative=step.slopes.shift if step.slopes else 0,
        notch=_notch(tile, y),
    )
    settings.set("DPU", "BS_CFG", BS_ALU_ALGO=2, BS_ALU_SRC=1, BS_RELU_BYPASS=1)
    settings.set("DPU", "BS_ALU_CFG")
    settings.set("DPU", "BS_MUL_CFG", BS_MUL_SHIFT_VALUE=step.shift, BS_MUL_SRC=1)
    settings.set("DPU", "BS_RELUX_CMP_VALUE")
    size = surfaces - 1
    settings.set("DPU", "BS_OW_CFG", SIZE_E_2=size, SIZE_E_1=size, SIZE_E_0=size, OW_SRC=1)
    cube = (settings, y, tile.rows, channels, step.limits, step.converter, surfaces)
    rest = partial(dpu_rest, *cube, notch=_notch(tile, y))
    second = step.seconds is not None
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
    elif step.activation is not None:  # BN outputs v minus the lower limit
        rest(table=Table([int(entry) for entry in step.activation.table], first=0), second=second)
    else:
        rest(ew, second=second)


def _addition(step: ConvStep, addend: Addend) -> tuple[Before, Ew]:
    """Return the BN and EW settings of a convolution with an addition."""
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
    """EW settings of an int8 convolution with a slope: negative numbers are multiplied by a register."""
    fields: dict[str, Value] = {
        "EDATA_SIZE": 3,
        "EW_OP_TYPE": 1,
        "EW_MUL_PRELU": 1,
        "EW_OP_CVT_BYPASS": 1,
        "EW_LUT_BYPASS": 1,
    }
    return Ew(fields, 0, 1, int(slopes.words[0]), slopes.shift)


def _conv_rdma(settings: Settings, step: ConvStep, tile: Tile, y: Place, operands: ConvOperands) -> None:
    operand, addend = None, operands.addend
    if operands.correction is not None:
        operand = Operand(operands.correction, y.surface, size=3, notch=_notch(tile, y))
    elif addend is not None:
        row = addend.row(0 if step.added_per_channel else tile.first_row)
        row += 0 if step.added_per_channel else tile.first_column * ATOM_BYTES
        start = row + tile.first_kernel // addend.c2 * addend.surface * ATOM_BYTES
        notch = 0 if step.added_per_channel else _notch(tile, y)
        operand = Operand(start, addend.surface, per_channel=step.added_per_channel, notch=notch)
    rdma_registers(
        settings,
        y,
        tile.rows,
        group_channels(step, tile, y),
        conv_mode=3 if step.depthwise else 0,
        table=operands.table,
        width=y.cube[2] - _notch(tile, y),
        operand=operand,
        slopes=operands.slopes,
    )
