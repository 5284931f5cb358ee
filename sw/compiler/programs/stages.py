"""Register programs of fp16 layers that use several stages of the DPU ([HW 7.5] to [HW 7.9])."""

from __future__ import annotations

from functools import partial

import numpy as np
import numpy.typing as npt

from rkcosim.compiler.programs.dpu import Operand, Place, dpu_cube, pointers, rdma_registers
from rkcosim.compiler.programs.elementwise import FLYING_BLOCKS
from rkcosim.compiler.programs.floats import STORAGE_16, float_dpu, single_bits
from rkcosim.compiler.programs.task import Ref, Settings, Value
from rkcosim.compiler.steps import FloatStage, FloatStep, TableStep

ALGORITHMS = {"max": 0, "min": 1, "add": 2, "div": 3, "sub": 4, "abs": 5, "neg": 6, "floor": 7, "ceil": 8}
"""EW_ALU_ALGO of operations on floats; a product uses EW_OP_TYPE 1."""


def half_bits(value: float) -> int:
    """Return the fp16 pattern of a number as a signed integer, as BN_MUL_OPERAND takes it."""
    return int(np.float16(value).view(np.int16))


def stages(step: FloatStep, places: tuple[Place, ...], y: Place, operands: Ref | None) -> Settings:
    """Return the program of a `FloatStep`; `operands` is the table of BN if it differs between channels."""
    settings = _begin(y)
    first, stage = step.first, step.second
    if step.dividend is not None:  # BS makes +0 of every number, to which BN adds the bits of the dividend
        bits = np.array([half_bits(step.dividend) & 0xFFFF], np.uint32)
        first, stage = FloatStage(relu=True, high=0.0), FloatStage(add=bits.view(np.float32))
    _scaling(settings, "BS", first)
    settings.set("DPU", "BS_OW_CFG", OD_BYPASS=1)
    _sizes(settings, y)
    _scaling(settings, "BN", stage, operands)
    method, last, second = step.method, step.last, None
    fields: dict[str, Value] = {"EW_LUT_BYPASS": 1, "EW_RELU_BYPASS": int(not last.relu)}
    fields["EW_RELUX_EN"] = int(last.high is not None)
    active = method or not last.empty
    if len(places) > 1:
        raw = int(method in ("mul", "div"))
        fields |= {"EW_DATA_MODE": int(not step.per_channel), "EDATA_SIZE": STORAGE_16, "EW_OP_SRC": 1}
        # A sum needs the converter, a product never ends with it [HW 7.8].
        fields["EW_OP_CVT_BYPASS"] = raw
        second = Operand(places[1].ref, places[1].surface, STORAGE_16, step.per_channel)
    else:
        fields["EW_OP_CVT_BYPASS"] = 1
    fields |= {"EW_OP_TYPE": int(method == "mul"), "EW_ALU_ALGO": ALGORITHMS.get(method, 0)}
    fields |= {"EW_OP_BYPASS": int(not method), "EW_BYPASS": int(not active)}
    settings.set("DPU", "EW_CFG", **fields)
    settings.set("DPU", "EW_CVT_OFFSET_VALUE")
    settings.set("DPU", "EW_CVT_SCALE_VALUE", EW_OP_CVT_SCALE=1)
    high = 0 if last.high is None else single_bits(last.high)
    settings.set("DPU", "EW_RELUX_CMP_VALUE", EW_RELUX_CMP_DAT=high)
    operand = 0 if step.operand is None else single_bits(step.operand)
    _end(settings, y, operand)
    use = (1 if step.second.varies("add") else 0) | (4 if step.second.varies("mul") else 0)
    settings = _reading(settings, places[0], y, operand=second, slopes=operands, use=use)
    if method == "div":  # the divider takes and gives fp16 bits [HW 7.8.10]
        settings.change("DPU_RDMA", "FEATURE_MODE_CFG", MRDMA_FP16TOFP32_EN=int(step.dividend is not None))
        settings.change("DPU", "OUT_CVT_SCALE", FP32TOFP16_EN=0)
    return settings


def table(step: TableStep, x: Place, y: Place) -> Settings:
    """Return the program of a `TableStep`: BN scales x to an index of the LUT's tables [HW 7.9]."""
    settings = _begin(y)
    _scaling(settings, "BS", FloatStage())
    settings.set("DPU", "BS_OW_CFG", OD_BYPASS=1)
    _sizes(settings, y)
    _scaling(settings, "BN", FloatStage(mul=np.array([step.scale], np.float16)))
    dpu = partial(settings.set, "DPU")
    dpu("EW_CFG", EW_RELU_BYPASS=1, EW_OP_CVT_BYPASS=1, EW_OP_BYPASS=1)
    dpu("EW_CVT_OFFSET_VALUE")
    dpu("EW_CVT_SCALE_VALUE", EW_OP_CVT_SCALE=1)
    dpu("EW_RELUX_CMP_VALUE")
    _end(settings, y, 0)
    if step.fraction:
        settings.change("DPU", "OUT_CVT_OFFSET", OUT_CVT_OFFSET=1)
        settings.change("DPU", "OUT_CVT_SHIFT", CVT_TYPE=1, MINUS_EXP=step.fraction)
    reach = (len(step.low) - 1) << step.select
    for number, entries in enumerate((step.low, step.high)):
        dpu("LUT_ACCESS_CFG", LUT_ACCESS_TYPE=1, LUT_TABLE_ID=number)
        for entry in entries:
            dpu("LUT_ACCESS_DATA", LUT_ACCESS_DATA=int(entry) % 2**16)
    # Below both tables the first entry of LE is used, above both the last one of LO.
    dpu("LUT_CFG", LUT_HYBRID_PRIORITY=1, LUT_OFLOW_PRIORITY=1, LUT_UFLOW_PRIORITY=0, LUT_LO_LE_MUX=2)
    dpu("LUT_INFO", LUT_LE_INDEX_SELECT=step.select, LUT_LO_INDEX_SELECT=step.select)
    dpu("LUT_LE_START", LUT_LE_START=-reach)
    dpu("LUT_LE_END", LUT_LE_END=0)
    dpu("LUT_LO_START", LUT_LO_START=0)
    dpu("LUT_LO_END", LUT_LO_END=reach)
    for name in ("LE_SLOPE_SCALE", "LE_SLOPE_SHIFT", "LO_SLOPE_SCALE", "LO_SLOPE_SHIFT"):
        dpu(f"LUT_{name}")
    return _reading(settings, x, y)


def channel_operands(stage: FloatStage, channels: int) -> npt.NDArray[np.uint8]:
    """Operands of BN for NRDMA: of each eight channels eight binary32, then eight fp16 numbers [HW 8.3]."""
    blocks = -(-channels // 32) * 4
    parts = []
    for name, kind in (("add", np.float32), ("mul", np.float16)):
        if stage.varies(name):
            whole = np.zeros(blocks * 8, kind)
            values = getattr(stage, name)
            whole[: values.size] = values
            parts.append(whole.view(np.uint8).reshape(blocks, -1))
    return np.concatenate(parts, axis=1).reshape(-1)


def _begin(y: Place) -> Settings:
    settings = Settings()
    pointers(settings, FLYING_BLOCKS)
    dpu_cube(settings, y, y.cube[1], y.aligned_channels, y.ref)
    return settings


def _sizes(settings: Settings, y: Place) -> None:
    settings.set("DPU", "BS_OW_OP")
    settings.set("DPU", "WDMA_SIZE_0", CHANNEL_WDMA=y.aligned_channels - 1)
    settings.set("DPU", "WDMA_SIZE_1", HEIGHT_WDMA=y.cube[1] - 1, WIDTH_WDMA=y.cube[2] - 1)


def _scaling(settings: Settings, name: str, stage: FloatStage, table: Ref | None = None) -> None:
    """Write the registers of BS or BN; numbers that differ between channels come from `table`."""
    fields: dict[str, Value] = {
        "ALU_ALGO": 2,
        "ALU_BYPASS": int(stage.add is None),
        "MUL_BYPASS": int(stage.mul is None),
        "RELU_BYPASS": int(not stage.relu),
        "RELUX_EN": int(stage.high is not None),
        "BYPASS": int(stage.empty),
    }
    sources = [int(table is not None and stage.varies(part)) for part in ("add", "mul")]
    adds, muls = (0 if item is None else float(item.reshape(-1)[0]) for item in (stage.add, stage.mul))
    fields["ALU_SRC"] = sources[0]
    settings.set("DPU", f"{name}_CFG", **{f"{name}_{field}": value for field, value in fields.items()})
    settings.set("DPU", f"{name}_ALU_CFG", **{f"{name}_ALU_OPERAND": 0 if sources[0] else single_bits(adds)})
    operand = 0 if sources[1] else half_bits(muls)
    settings.set("DPU", f"{name}_MUL_CFG", **{f"{name}_MUL_OPERAND": operand, f"{name}_MUL_SRC": sources[1]})
    high = 0 if stage.high is None else single_bits(stage.high)
    settings.set("DPU", f"{name}_RELUX_CMP_VALUE", **{f"{name}_RELUX_CMP_DAT": high})


def _end(settings: Settings, y: Place, operand: int) -> None:
    dpu = partial(settings.set, "DPU")
    dpu("OUT_CVT_OFFSET")
    dpu("OUT_CVT_SCALE", OUT_CVT_SCALE=1)
    dpu("OUT_CVT_SHIFT")
    for lane in range(8):
        dpu(f"EW_OP_VALUE_{lane}", **{f"EW_OPERAND_{lane}": operand})
    dpu("SURFACE_ADD", SURF_ADD=y.surface)
    dpu("UNDOC_40C4")


def _reading(
    settings: Settings,
    x: Place,
    y: Place,
    operand: Operand | None = None,
    slopes: Ref | None = None,
    use: int = 0,
) -> Settings:
    """Write the registers of DPU_RDMA, and the types of both blocks."""
    rdma_registers(settings, y, y.cube[1], y.aligned_channels, source=x.ref, operand=operand, slopes=slopes)
    if slopes is not None:
        settings.change("DPU_RDMA", "NRDMA_CFG", NRDMA_DATA_USE=use)
    settings.change("DPU_RDMA", "FEATURE_MODE_CFG", MRDMA_FP16TOFP32_EN=1)
    return float_dpu(settings)
