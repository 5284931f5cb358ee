"""Register programs of pooling layers ([HW 9], [HW 14.3.8])."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from rkcosim.compiler.graph import Window
from rkcosim.compiler.limits import PPU_OPEN_RESULTS
from rkcosim.compiler.programs.dpu import Place, pointers
from rkcosim.compiler.programs.floats import FP16, STORAGE_16
from rkcosim.compiler.programs.parts import LineRange, ranges
from rkcosim.compiler.programs.task import Settings
from rkcosim.compiler.steps import FoldStep, PoolStep
from rkcosim.spec.layouts import ATOM_BYTES, surfaces

POOL_BLOCKS = ("PPU", "PPU_RDMA")
ITEM = 2
"""Bytes of an fp16 number."""


def pool(step: PoolStep, x: Place, y: Place) -> list[Settings]:
    """Return the programs of a pooling layer on PPU and PPU_RDMA ([HW 9], [HW 14.3.8]).

    The PPU holds the results of open rows, which limits the columns of a task [HW 9.9]; the columns of a
    result of one row are divided among tasks.
    """
    most = PPU_OPEN_RESULTS // step.window.kernel[0]
    if y.cube[1] > 1 or y.cube[2] <= most:
        return [_pool(step, x, y)]
    return [_columns(step, x, y, part) for part in ranges((1, y.cube[2]), most, 0)]


def _columns(step: PoolStep, x: Place, y: Place, part: LineRange) -> Settings:
    """Return the program of some columns of a result of one row."""
    window, (top, left, bottom, _) = step.window, step.window.pads
    low = part.column * window.strides[1] - left
    high = low + (part.columns - 1) * window.strides[1] + window.kernel[1]
    first, end = max(low, 0), min(high, x.cube[2])
    source = replace(x, ref=x.ref + first * ATOM_BYTES, cube=(*x.cube[:2], end - first))
    target = replace(y, ref=y.ref + part.column * ATOM_BYTES, cube=(y.cube[0], 1, part.columns))
    pads = (top, first - low, bottom, high - end)
    settings = _pool(replace(step, window=replace(window, pads=pads)), source, target)
    settings.change("PPU_RDMA", "SRC_LINE_STRIDE", SRC_LINE_STRIDE=x.cube[2])
    settings.change("PPU_RDMA", "SRC_SURF_STRIDE", SRC_SURF_STRIDE=x.surface)
    settings.change("PPU", "DST_SURF_STRIDE", DST_SURF_STRIDE=y.surface)
    settings.change("PPU", "DATA_FORMAT", INDEX_ADD=y.surface)
    return settings


def _pool(step: PoolStep, x: Place, y: Place) -> Settings:
    settings = Settings()
    pointers(settings, POOL_BLOCKS)
    channels = x.aligned_channels

    ppu = partial(settings.set, "PPU")
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
    ppu("PADDING_VALUE_1_CFG", PAD_VALUE_0=step.pad_value % 2**19)  # 19 bits for int8 [HW 9.2]
    ppu("PADDING_VALUE_2_CFG")
    ppu("DST_BASE_ADDR", DST_BASE_ADDR=y.ref)
    ppu("DST_SURF_STRIDE", DST_SURF_STRIDE=y.surface)
    ppu("DATA_FORMAT", INDEX_ADD=y.surface)
    ppu("MISC_CTRL", BURST_LEN=3)

    rdma = partial(settings.set, "PPU_RDMA")
    rdma("CUBE_IN_WIDTH", CUBE_IN_WIDTH=x.cube[2] - 1)
    rdma("CUBE_IN_HEIGHT", CUBE_IN_HEIGHT=x.cube[1] - 1)
    rdma("CUBE_IN_CHANNEL", CUBE_IN_CHANNEL=channels - 1)
    rdma("SRC_BASE_ADDR", SRC_BASE_ADDR=x.ref)
    rdma("SRC_LINE_STRIDE", SRC_LINE_STRIDE=x.cube[2])
    rdma("SRC_SURF_STRIDE", SRC_SURF_STRIDE=x.surface)
    rdma("DATA_FORMAT", IN_PRECISION=1)
    return _float_pool(settings, kernel, average) if y.itemsize > 1 else settings


def fold(step: FoldStep, x: Place, y: Place) -> Iterator[Settings]:
    """Yield the programs of a `FoldStep`: the surfaces are the rows of the PPU's cube, pixels its columns."""
    surface = x.surface
    for number in range(surfaces(y.cube[0], ITEM)):
        first = number * step.size
        rows = min(step.size, step.surfaces - first)
        most = PPU_OPEN_RESULTS // rows
        for column in range(0, surface, most):
            width = min(most, surface - column)
            source = Place(
                x.ref + (first * surface + column) * ATOM_BYTES, (8, rows, width), 1, itemsize=ITEM
            )
            target = Place(y.ref + (number * surface + column) * ATOM_BYTES, (8, 1, width), 1, itemsize=ITEM)
            ends = step.name, step.kind, step.inputs, step.output
            settings = _pool(PoolStep(*ends, "max", Window((rows, 1)), 0), source, target)
            settings.change("PPU_RDMA", "SRC_LINE_STRIDE", SRC_LINE_STRIDE=surface)
            settings.change("PPU_RDMA", "SRC_SURF_STRIDE", SRC_SURF_STRIDE=rows * surface)
            yield settings


def _float_pool(settings: Settings, kernel: tuple[int, int], average: bool) -> Settings:
    """Change a pooling program to fp16: reciprocals as floats, -infinity as padding of a maximum."""
    settings.change("PPU", "DATA_FORMAT", PROC_PRECISION=FP16)
    settings.change("PPU_RDMA", "DATA_FORMAT", IN_PRECISION=STORAGE_16)
    if average:
        settings.change("PPU", "RECIP_KERNEL_WIDTH", RECIP_KERNEL_WIDTH=_reciprocal_bits(kernel[1]))
        settings.change("PPU", "RECIP_KERNEL_HEIGHT", RECIP_KERNEL_HEIGHT=_reciprocal_bits(kernel[0]))
    pad = 0 if average else 0xFC00
    settings.change("PPU", "PADDING_VALUE_1_CFG", PAD_VALUE_0=pad)
    return settings


def _reciprocal_bits(size: int) -> int:
    """1 / size as the PPU's 17-bit float: exponent bias 31, 10 fraction bits [HW 9.3]."""
    return int(np.float16(65536 / size).view(np.uint16)) if size > 1 else 0x7C00
