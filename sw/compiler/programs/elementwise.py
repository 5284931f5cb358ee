"""Register programs of layers that use only DPU and DPU_RDMA [HW 14.7]."""

from __future__ import annotations

from dataclasses import replace

from rkcosim.compiler.programs.dpu import (
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
from rkcosim.compiler.programs.floats import float_flying
from rkcosim.compiler.programs.parts import MOST_PIXELS, LineRange, ranges
from rkcosim.compiler.programs.task import Ref, Settings, Value
from rkcosim.compiler.steps import (
    BinaryStep,
    Converter,
    CopyStep,
    Limits,
    LookupStep,
    RepeatStep,
    RescaleStep,
    SlopeStep,
)
from rkcosim.spec.layouts import ATOM_BYTES

FLYING_BLOCKS = ("DPU", "DPU_RDMA")
INT16 = 1
"""Precision code of int16 in the formats of DPU and DPU_RDMA."""
UNITS_PER_ATOM = 8
"""Elements of 16 bits in an atom."""

FlyingStep = BinaryStep | RescaleStep | SlopeStep | LookupStep
ALGORITHMS = {"max": 0, "min": 1, "add": 2, "sub": 2, "mul": 0}
"""EW_ALU_ALGO; a difference adds the operand with a negative scale, a product uses EW_OP_TYPE 1."""


def flying(step: FlyingStep, places: tuple[Place, ...], y: Place, operand: Ref | None = None) -> Settings:
    """Return the program of an element-wise layer; `operand` is the table of slopes of a PRelu."""
    settings = Settings()
    pointers(settings, FLYING_BLOCKS)
    rows, channels = y.cube[1], y.aligned_channels
    x = step.inputs[0]
    prelu, table, ew, second = None, None, None, None
    offset, scale = -x.zero_point, 1
    limits: Limits = None
    converter = Converter(1, 0, 0)
    if isinstance(step, SlopeStep):
        prelu = prelu_of(step.slopes)
        scale, converter = step.scale, step.converter
    elif isinstance(step, LookupStep):
        offset, table = 0, Table([int(v) for v in step.table])
    elif isinstance(step, BinaryStep):
        scale, limits, converter = step.scales[0], step.limits, step.converter
        fields: dict[str, Value] = {
            "EW_CVT_TYPE": 1,
            "EW_DATA_MODE": int(not step.per_channel),
            "EDATA_SIZE": 1,
            "EW_ALU_ALGO": ALGORITHMS[step.method],
            "EW_LUT_BYPASS": 1,
            "EW_OP_SRC": 1,
            "EW_OP_TYPE": int(step.method == "mul"),
        }
        ew = Ew(fields, -step.inputs[1].zero_point, step.scales[1])
        second = Operand(places[1].ref, places[1].surface, per_channel=step.per_channel)
    else:
        scale, limits, converter = step.scale, step.limits, step.converter
    dpu_cube(settings, y, rows, channels, y.ref, bn_shift_negative=prelu.shift if prelu else 0)
    _input_stage(settings, offset, scale)
    dpu_rest(settings, y, rows, channels, limits, converter, 1, ew, prelu, table)
    rdma_registers(settings, y, rows, channels, source=places[0].ref, operand=second, slopes=operand)
    if y.itemsize > 1:
        return float_flying(settings, isinstance(step, BinaryStep) and step.method == "sub")
    return settings


def copy(step: CopyStep, x: Place, y: Place) -> list[Settings]:
    """Return the programs that copy a part of a tensor, rescaled; channels must begin at atoms."""
    count, rows, width = step.size
    if width == x.cube[2] == y.cube[2] and max(rows, width) > MOST_PIXELS:  # whole lines are one long one
        x, y = (replace(place, cube=(place.cube[0], 1, place.surface)) for place in (x, y))
        first, to = (begin[1] * width for begin in (step.source, step.target))
        step = replace(
            step,
            source=(step.source[0], 0, first),
            target=(step.target[0], 0, to),
            size=(count, 1, rows * width),
        )
    notch = max(x.cube[2], y.cube[2]) - step.size[2]
    result = []
    for part in ranges((step.size[1], step.size[2]), MOST_PIXELS, notch):
        source, target = (
            (begin[0], begin[1] + part.row, begin[2] + part.column) for begin in (step.source, step.target)
        )
        size = (count, part.rows, part.columns)
        result.append(_copy(replace(step, source=source, target=target, size=size), x, y))
    return result


def _copy(step: CopyStep, x: Place, y: Place) -> Settings:
    settings = Settings()
    pointers(settings, FLYING_BLOCKS)
    count, rows, width = step.size
    channels = -(-count // y.c2) * y.c2
    lines = replace(y, cube=(y.cube[0], rows, width))
    notch, skip = (place.cube[2] - width if rows > 1 else 0 for place in (y, x))
    dpu_cube(settings, lines, rows, channels, _at(y, step.target))
    settings.change("DPU", "DST_SURF_STRIDE", DST_SURF_STRIDE=y.surface)
    settings.change("DPU", "DATA_CUBE_NOTCH_ADDR", NOTCH_ADDR_1=notch, NOTCH_ADDR_0=notch)
    _input_stage(settings, -step.inputs[0].zero_point, step.scale)
    dpu_rest(settings, lines, rows, channels, None, step.converter, 1)
    settings.change("DPU", "SURFACE_ADD", SURF_ADD=y.surface)
    rdma_registers(
        settings,
        lines,
        rows,
        channels,
        source=_at(x, step.source),
        notches=(skip, x.surface - (rows - 1) * (width + skip) - width),
    )
    return float_flying(settings) if y.itemsize > 1 else settings


def repeat(step: RepeatStep, x: Place, y: Place) -> list[Settings]:
    """Return the programs of a nearest resize: unpooling of whole atoms [HW 8.7].

    Each line of the output is written as a surface; the lines between are skipped as a notch.
    """
    rows, columns = step.factors
    notch = (rows - 1) * y.cube[2]
    return [
        _repeat(step, x, y, part)
        for part in ranges((x.cube[1], x.cube[2]), MOST_PIXELS // columns, notch, columns)
    ]


def _repeat(step: RepeatStep, x: Place, y: Place, part: LineRange) -> Settings:
    settings = Settings()
    pointers(settings, FLYING_BLOCKS)
    rows, columns = step.factors
    height, width = part.rows, part.columns * columns
    halves = -(-x.cube[0] // x.c2) * UNITS_PER_ATOM
    line = y.cube[2]
    lines = replace(y, cube=(y.cube[0], height, width))
    dpu_cube(settings, lines, height, halves, _at(y, (0, part.row * rows, part.column * columns)))
    settings.change("DPU", "DATA_FORMAT", OUT_PRECISION=INT16, IN_PRECISION=INT16, PROC_PRECISION=INT16)
    settings.change("DPU", "DST_SURF_STRIDE", DST_SURF_STRIDE=line)
    notch = rows * line - width if height > 1 else 0
    settings.change("DPU", "DATA_CUBE_NOTCH_ADDR", NOTCH_ADDR_1=notch, NOTCH_ADDR_0=notch)
    settings.set("DPU", "BS_CFG", BS_RELU_BYPASS=1, BS_MUL_BYPASS=1, BS_ALU_BYPASS=1, BS_BYPASS=1)
    settings.set("DPU", "BS_ALU_CFG")
    settings.set("DPU", "BS_MUL_CFG")
    settings.set("DPU", "BS_RELUX_CMP_VALUE")
    size = rows - 1
    settings.set("DPU", "BS_OW_CFG", SIZE_E_2=size, SIZE_E_1=size, SIZE_E_0=size, OD_BYPASS=1)
    dpu_rest(settings, lines, height, halves, None, Converter(1, 0, 0), 1)
    settings.change("DPU", "SURFACE_ADD", SURF_ADD=y.surface)
    skip = x.cube[2] - part.columns if height > 1 else 0
    behind = x.surface - (height - 1) * (part.columns + skip) - part.columns
    source = _at(x, (0, part.row, part.column))
    read = replace(x, cube=(x.cube[0], height, part.columns))
    rdma_registers(settings, read, height, halves, source=source, notches=(skip, behind))
    settings.change("DPU_RDMA", "FEATURE_MODE_CFG", IN_PRECISION=INT16, PROC_PRECISION=INT16)
    settings.change(
        "DPU_RDMA",
        "SRC_DMA_CFG",
        UNPOOLING_EN=1,
        KERNEL_HEIGHT=rows - 1,
        KERNEL_WIDTH=columns - 1,
        KERNEL_STRIDE_HEIGHT=rows - 1,
        KERNEL_STRIDE_WIDTH=columns - 1,
    )
    return settings


def _at(place: Place, begin: tuple[int, int, int]) -> Ref:
    atom = (begin[0] // place.c2 * place.cube[1] + begin[1]) * place.cube[2] + begin[2]
    return place.ref + atom * ATOM_BYTES


def _input_stage(settings: Settings, offset: int, scale: int) -> None:
    """Let BS subtract the zero point and multiply by `scale`."""
    settings.set("DPU", "BS_CFG", BS_ALU_ALGO=2, BS_RELU_BYPASS=1)
    settings.set("DPU", "BS_ALU_CFG", BS_ALU_OPERAND=offset)
    settings.set("DPU", "BS_MUL_CFG", BS_MUL_OPERAND=scale)
    settings.set("DPU", "BS_RELUX_CMP_VALUE")
    settings.set("DPU", "BS_OW_CFG", OD_BYPASS=1)
