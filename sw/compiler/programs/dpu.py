"""Registers of DPU and DPU_RDMA that programs of all layers share, and the places of tensors.

S_POINTER of DPU, DPU_RDMA, PPU and PPU_RDMA is written as 0x0E.  The host owns the pointers of CNA and CORE;
programs never write them [HW 1.7].
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from rkcosim.compiler.programs.task import Ref, Settings, Value
from rkcosim.compiler.requant import SECOND_SHIFT
from rkcosim.compiler.steps import Converter, Limits, Slopes
from rkcosim.spec.layouts import ATOM_BYTES, pack_argb, pack_feature, unpack_argb, unpack_feature

BURST_16 = 15
"""Burst length field for 16 beats."""


@dataclass(frozen=True)
class Place:
    """Memory layout of a tensor: NC1HWC2 of (C, H, W), or packed pixels with `pitch` if `argb` is set.

    `surface_count` surfaces are allocated; `unsigned_pixels` means that the memory holds unsigned bytes
    and the input converter makes them signed.
    """

    ref: Ref
    cube: tuple[int, int, int]
    surface_count: int
    argb: int = 0
    pitch: int = 0
    unsigned_pixels: bool = False
    itemsize: int = 1

    @property
    def plain(self) -> bool:
        """Whether elements lie in the order of the model's shape instead."""
        return False

    @property
    def surface(self) -> int:
        """Atoms of one surface."""
        return self.cube[1] * self.cube[2]

    @property
    def size(self) -> int:
        """Size in bytes."""
        if self.argb:
            return self.cube[1] * self.pitch * self.argb
        return self.surface_count * self.surface * ATOM_BYTES

    @property
    def aligned_channels(self) -> int:
        """Number of channels, rounded up to whole atoms."""
        return -(-self.cube[0] // self.c2) * self.c2

    @property
    def c2(self) -> int:
        """Channels per atom."""
        return ATOM_BYTES // self.itemsize

    def row(self, row: int) -> Ref:
        """Address of the first pixel of a row."""
        pixel = self.argb if self.argb else ATOM_BYTES
        return self.ref + row * (self.pitch if self.argb else self.cube[2]) * pixel

    def pack(self, cube: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
        """Bytes of a cube (C, H, W), int8 or float16, as they lie from the first byte of the place on."""
        if self.argb:
            flipped = cube.view(np.uint8) ^ np.uint8(0x80) if self.unsigned_pixels else cube  # + 128
            return pack_argb(flipped)
        return pack_feature(cube, surface_count=self.surface_count)

    def unpack(self, memory: npt.NDArray[np.uint8], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """The cube (C, H, W) of elements of `dtype` that the bytes of the place hold."""
        if self.argb:
            pixels = unpack_argb(memory, self.cube, np.uint8 if self.unsigned_pixels else np.int8)
            return (pixels.astype(np.int16) - (128 if self.unsigned_pixels else 0)).astype(np.int8)
        return unpack_feature(memory, self.cube, dtype).astype(dtype, copy=False)

    def offset_of(self, channel: int, row: int, column: int) -> int:
        """Offset of an element's first byte from the first byte of the place."""
        atom = (channel // self.c2 * self.cube[1] + row) * self.cube[2] + column
        return atom * ATOM_BYTES + channel % self.c2 * self.itemsize


def pointers(settings: Settings, blocks: tuple[str, ...]) -> None:
    """Write 0x0E (both groups toggle automatically) to the pointers that programs own."""
    for block in blocks:
        if block not in ("CNA", "CORE"):
            settings.set(block, "S_POINTER", POINTER_PP_MODE=1, EXECUTER_PP_EN=1, POINTER_PP_EN=1)


def dpu_cube(
    settings: Settings,
    y: Place,
    rows: int,
    channels: int,
    destination: Ref,
    *,
    real: int | None = None,
    conv_mode: int = 0,
    flying: bool = True,
    shift_negative: int = 0,
    bn_shift_negative: int = 0,
    ew_shift_negative: int = 0,
    notch: int = 0,
) -> None:
    """Write the DPU registers from the mode to the cube.

    `real` channels are written (None: all); `notch` atoms are skipped between the written lines.
    """

    dpu = partial(settings.set, "DPU")
    dpu("FEATURE_MODE_CFG", BURST_LEN=BURST_16, CONV_MODE=conv_mode, OUTPUT_MODE=2, FLYING_MODE=int(flying))
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
    dpu("DATA_CUBE_CHANNEL", ORIG_CHANNEL=(real or channels) - 1, CHANNEL=channels - 1)


@dataclass(frozen=True)
class Table:
    """An active LUT [HW 7.9]: entries of table LO for x = first, first + 1, ..."""

    entries: list[int]
    first: int = -128


@dataclass(frozen=True)
class Ew:
    """An active EW stage: fields of EW_CFG except those of the ReLU, and the operand's converter."""

    fields: dict[str, Value]
    offset: int
    scale: int
    value: int = 0
    """Operand, if registers provide it."""
    shift: int = 0
    """Right shift of a product."""


@dataclass(frozen=True)
class Before:
    """Operation of BN before EW: v * scale, then (with `high`) clamped to (low, high), minus low."""

    scale: int
    low: int = 0
    high: int | None = None


@dataclass(frozen=True)
class Prelu:
    """An active PReLU in BN: multiplier (None: NRDMA reads it) and shift."""

    slope: int | None
    shift: int


def prelu_of(slopes: Slopes) -> Prelu:
    """Return BN's settings for slopes."""
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
    second: bool = False,
) -> None:
    """Write the DPU registers from BS_OW_OP to the LUT's.

    With `second` BN first multiplies each channel by a number that NRDMA reads.
    """

    dpu = partial(settings.set, "DPU")
    low, high = limits if limits is not None else (0, None)
    dpu("BS_OW_OP")
    dpu("WDMA_SIZE_0", CHANNEL_WDMA=channels - 1)
    dpu("WDMA_SIZE_1", HEIGHT_WDMA=rows - 1, WIDTH_WDMA=y.cube[2] - notch - 1)
    alone = int(not second)  # BN does not multiply
    if prelu is not None:
        dpu("BN_CFG", BN_RELU_BYPASS=1, BN_MUL_PRELU=1, BN_ALU_BYPASS=1)
    elif before is not None:
        clamped = int(before.high is not None)
        dpu("BN_CFG", BN_ALU_ALGO=4, BN_RELUX_EN=clamped, BN_RELU_BYPASS=1 - clamped)
    elif limits is None or ew is not None:
        dpu("BN_CFG", BN_RELU_BYPASS=1, BN_MUL_BYPASS=alone, BN_ALU_BYPASS=1, BN_BYPASS=alone)
    elif low == 0:
        dpu("BN_CFG", BN_RELUX_EN=int(high is not None), BN_MUL_BYPASS=alone, BN_ALU_BYPASS=1)
    elif second:  # BN's sum would be shifted: BN limits to high, EW or the table's start to low
        dpu("BN_CFG", BN_RELU_BYPASS=1, BN_RELUX_EN=int(high is not None), BN_ALU_BYPASS=1)
    else:  # BN clamps v - low to [0, high - low], EW adds low again
        dpu("BN_CFG", BN_ALU_ALGO=4, BN_RELUX_EN=int(high is not None), BN_MUL_BYPASS=1)
    shifted = limits is not None and ew is None and low != 0
    subtracted = low if shifted and not second else 0
    dpu("BN_ALU_CFG", BN_ALU_OPERAND=before.low if before else subtracted)
    if prelu is not None:
        dpu(
            "BN_MUL_CFG",
            BN_MUL_OPERAND=prelu.slope or 0,
            BN_MUL_SHIFT_VALUE=prelu.shift,
            BN_MUL_SRC=int(prelu.slope is None),
        )
    elif second:
        dpu("BN_MUL_CFG", BN_MUL_SHIFT_VALUE=SECOND_SHIFT, BN_MUL_SRC=1)
    else:
        dpu("BN_MUL_CFG", BN_MUL_OPERAND=before.scale if before else 0)
    first, last = (before.low, before.high) if before else (subtracted, None if ew else high)
    dpu("BN_RELUX_CMP_VALUE", BN_RELUX_CMP_DAT=0 if last is None else last - first)
    if ew is not None:
        dpu("EW_CFG", **ew.fields, EW_RELU_BYPASS=int(limits is None), EW_RELUX_EN=int(high is not None))
        dpu("EW_CVT_OFFSET_VALUE", EW_OP_CVT_OFFSET=ew.offset)
        dpu("EW_CVT_SCALE_VALUE", EW_OP_CVT_SCALE=ew.scale, EW_TRUNCATE=ew.shift)
        dpu("EW_RELUX_CMP_VALUE", EW_RELUX_CMP_DAT=high if high is not None else 0)
    else:
        if table is not None:
            dpu("EW_CFG", EW_RELU_BYPASS=1, EW_OP_CVT_BYPASS=1, EW_OP_BYPASS=1)
        elif shifted:
            algorithm = 0 if second else 2
            dpu(
                "EW_CFG",
                EDATA_SIZE=3,
                EW_ALU_ALGO=algorithm,
                EW_RELU_BYPASS=1,
                EW_OP_CVT_BYPASS=1,
                EW_LUT_BYPASS=1,
            )
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
    if table is not None and second and shifted:
        table = replace(table, first=low)
    _lut(settings, table)


def _lut(settings: Settings, table: Table | None) -> None:
    """Write the LUT registers and, for an active table, its contents.

    Without a table LUT_ACCESS_* is not written: it has no second register group, so the write would stop
    the prefetch of the next task until the DPU is idle.
    """

    dpu = partial(settings.set, "DPU")
    if table is not None:
        dpu("LUT_ACCESS_CFG", LUT_ACCESS_TYPE=1, LUT_TABLE_ID=1)
        for entry in table.entries:
            dpu("LUT_ACCESS_DATA", LUT_ACCESS_DATA=entry % 2**16)
        # LO covers every byte; LE starts far above, so it never hits [HW 7.9].
        dpu("LUT_CFG", LUT_HYBRID_PRIORITY=1, LUT_OFLOW_PRIORITY=1, LUT_UFLOW_PRIORITY=1, LUT_LO_LE_MUX=2)
    else:
        dpu("LUT_CFG")
    dpu("LUT_INFO")
    dpu("LUT_LE_START", LUT_LE_START=2**20 if table else 0)
    dpu("LUT_LE_END", LUT_LE_END=2**20 if table else 0)
    dpu("LUT_LO_START", LUT_LO_START=table.first if table else 0)
    dpu("LUT_LO_END", LUT_LO_END=table.first + len(table.entries) - 1 if table else 0)
    for name in ("LE_SLOPE_SCALE", "LE_SLOPE_SHIFT", "LO_SLOPE_SCALE", "LO_SLOPE_SHIFT"):
        dpu(f"LUT_{name}")


@dataclass(frozen=True)
class Operand:
    """Data that ERDMA reads: first byte, atoms between surfaces, element size code, per channel or pixel.

    `notch` atoms are skipped after each line.
    """

    ref: Ref
    surface: int
    size: int = 1
    per_channel: bool = False
    notch: int = 0


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
    """Write all DPU_RDMA registers.

    `table` is read by BRDMA, `source` by MRDMA, `operand` by ERDMA, `slopes` by NRDMA.  `notches` are the
    atoms skipped after each line of the source and after the last line of a surface; `width` is the width
    of the cube if it differs from that of y.
    """

    rdma = partial(settings.set, "DPU_RDMA")
    flying = source is not None
    columns = y.cube[2] if width is None else width
    rdma("DATA_CUBE_WIDTH", WIDTH=columns - 1)
    rdma("DATA_CUBE_HEIGHT", HEIGHT=rows - 1, EW_LINE_NOTCH_ADDR=operand.notch if operand else 0)
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
    # EW_SURF_STRIDE has an effect for each channel, EW_SURF_NOTCH for each pixel [HW 8.4].
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
    rest = 0  # from the end of a surface's last line to the next surface
    if operand is not None and not operand.per_channel:
        rest = operand.surface - (rows - 1) * (columns + operand.notch) - columns
    rdma("EW_SURF_NOTCH", EW_SURF_NOTCH=rest)
