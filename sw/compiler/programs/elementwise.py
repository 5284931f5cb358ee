"""Register programs of layers on DPU and DPU_RDMA alone (HARDWARE 14.4)."""

from __future__ import annotations

from sw.compiler.programs.dpu import (
    Ew,
    Operand,
    Place,
    dpu_cube,
    dpu_rest,
    pointers,
    prelu_of,
    rdma_registers,
)
from sw.compiler.programs.floats import float_flying
from sw.compiler.programs.lut import Table
from sw.compiler.programs.task import Ref, Settings, Value
from sw.compiler.steps import (
    BinaryStep,
    Converter,
    CopyStep,
    Limits,
    LookupStep,
    RescaleStep,
    SlopeStep,
)
from sw.layouts import ATOM_BYTES

FLYING_BLOCKS = ("DPU", "DPU_RDMA")

FlyingStep = BinaryStep | RescaleStep | SlopeStep | LookupStep
ALGORITHMS = {"max": 0, "min": 1, "add": 2, "sub": 2, "mul": 0}
"""EW_ALU_ALGO; a difference adds the operand times a negative scale, a product is EW_OP_TYPE 1."""


def flying(step: FlyingStep, places: tuple[Place, ...], y: Place, operand: Ref | None = None) -> Settings:
    """Program of an element-wise layer; `operand` is the table of slopes of a PRelu."""
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
    dpu_cube(
        settings,
        conv_mode=0,
        flying=True,
        shift_negative=0,
        destination=y.ref,
        y=y,
        rows=rows,
        channels=channels,
        real=channels,
        bn_shift_negative=prelu.shift if prelu else 0,
    )
    _input_stage(settings, offset, scale)
    dpu_rest(settings, y, rows, channels, limits, converter, 2, ew, prelu, table)
    rdma_registers(settings, y, rows, channels, source=places[0].ref, operand=second, slopes=operand)
    if y.itemsize > 1:
        return float_flying(settings, isinstance(step, BinaryStep) and step.method == "sub")
    return settings


def copy(step: CopyStep, x: Place, y: Place) -> Settings:
    """Program that moves a part of a tensor, rescaled: rows and columns anywhere, channels at atoms."""
    settings = Settings()
    pointers(settings, FLYING_BLOCKS)
    count, rows, width = step.size
    channels = -(-count // y.c2) * y.c2
    notch = y.cube[2] - width
    dpu_cube(
        settings,
        conv_mode=0,
        flying=True,
        shift_negative=0,
        destination=_at(y, step.target),
        y=y,
        rows=rows,
        channels=channels,
        real=channels,
        notch=notch,
    )
    _input_stage(settings, -step.inputs[0].zero_point, step.scale)
    dpu_rest(settings, y, rows, channels, None, step.converter, 2, notch=notch)
    rdma_registers(
        settings,
        y,
        rows,
        channels,
        source=_at(x, step.source),
        width=width,
        notches=(x.cube[2] - width, x.cube[2] * (x.cube[1] - rows + 1) - width),
    )
    return float_flying(settings) if y.itemsize > 1 else settings


def _at(place: Place, begin: tuple[int, int, int]) -> Ref:
    atom = (begin[0] // place.c2 * place.cube[1] + begin[1]) * place.cube[2] + begin[2]
    return place.ref + atom * ATOM_BYTES


def _input_stage(settings: Settings, offset: int, scale: int) -> None:
    """BS takes the zero point off and multiplies by `scale`."""
    settings.set("DPU", "BS_CFG", BS_ALU_ALGO=2, BS_RELU_BYPASS=1)
    settings.set("DPU", "BS_ALU_CFG", BS_ALU_OPERAND=offset)
    settings.set("DPU", "BS_MUL_CFG", BS_MUL_OPERAND=scale)
    settings.set("DPU", "BS_RELUX_CMP_VALUE")
    settings.set("DPU", "BS_OW_CFG", SIZE_E_2=1, SIZE_E_1=1, SIZE_E_0=1, OD_BYPASS=1)
