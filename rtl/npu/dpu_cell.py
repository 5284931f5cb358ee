"""Boundary of the DPU's cell: the integer stages, the LUT and the output converter as a module of the engine.

`rkcosim.rtl.npu.dpu_pipe.DpuPipe` instantiates the module `npu_dpu_cell` instead of its stages if `external`
is set. The stages of the RTL are the reference: the module has their cycles and their values.
"""

from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Cat, ClockSignal, Instance, Module, ResetSignal, Value
from amaranth.lib import wiring

from rkcosim.rtl.npu.dpu_cvt import OutputConverter
from rkcosim.rtl.npu.dpu_ew import EwStage
from rkcosim.rtl.npu.dpu_frame import STAGES
from rkcosim.rtl.npu.dpu_lut import LutStage
from rkcosim.rtl.npu.dpu_scale import BnStages, BsStages

CELL_MODULE = "npu_dpu_cell"
"""Name of the module that an engine provides (cosim/engines/harness/cell)."""

_SCALED = (
    "{0}_CFG.{0}_BYPASS",
    "{0}_CFG.{0}_ALU_BYPASS",
    "{0}_CFG.{0}_ALU_ALGO",
    "{0}_CFG.{0}_ALU_SRC",
    "{0}_CFG.{0}_MUL_BYPASS",
    "{0}_CFG.{0}_MUL_PRELU",
    "{0}_CFG.{0}_RELU_BYPASS",
    "{0}_CFG.{0}_RELUX_EN",
    "{0}_MUL_CFG.{0}_MUL_SRC",
    "{0}_MUL_CFG.{0}_MUL_SHIFT_VALUE",
    "DATA_FORMAT.{0}_MUL_SHIFT_VALUE_NEG",
    "{0}_MUL_CFG.{0}_MUL_OPERAND",
    "{0}_ALU_CFG.{0}_ALU_OPERAND",
    "{0}_RELUX_CMP_VALUE.{0}_RELUX_CMP_DAT",
)

_TABLE = (
    "LUT_INFO.LUT_{0}_INDEX_SELECT",
    "LUT_{0}_START.LUT_{0}_START",
    "LUT_{0}_END.LUT_{0}_END",
    "LUT_{0}_SLOPE_SCALE.UFLOW_SCALE",
    "LUT_{0}_SLOPE_SCALE.OFLOW_SCALE",
    "LUT_{0}_SLOPE_SHIFT.UFLOW_SHIFT",
    "LUT_{0}_SLOPE_SHIFT.OFLOW_SHIFT",
)

SETTINGS = (
    "DATA_FORMAT.PROC_PRECISION",
    "DATA_FORMAT.OUT_PRECISION",
    "FEATURE_MODE_CFG.FLYING_MODE",
    "BS_OW_CFG.OD_BYPASS",
    "BS_OW_CFG.OW_SRC",
    "BS_OW_OP.OW_OP",
    *(field.format("BS") for field in _SCALED),
    *(field.format("BN") for field in _SCALED),
    "EW_CFG.EW_BYPASS",
    "EW_CFG.EW_OP_BYPASS",
    "EW_CFG.EW_OP_TYPE",
    "EW_CFG.EW_ALU_ALGO",
    "EW_CFG.EW_MUL_PRELU",
    "EW_CFG.EW_BINARY_EN",
    "EW_CFG.EW_LUT_BYPASS",
    "EW_CFG.EW_RELU_BYPASS",
    "EW_CFG.EW_RELUX_EN",
    "EW_CVT_SCALE_VALUE.EW_TRUNCATE",
    "DATA_FORMAT.EW_TRUNCATE_NEG",
    "EW_RELUX_CMP_VALUE.EW_RELUX_CMP_DAT",
    "LUT_CFG.LUT_UFLOW_PRIORITY",
    "LUT_CFG.LUT_OFLOW_PRIORITY",
    "LUT_CFG.LUT_HYBRID_PRIORITY",
    *(field.format("LE") for field in _TABLE),
    *(field.format("LO") for field in _TABLE),
    "OUT_CVT_SHIFT.CVT_TYPE",
    "OUT_CVT_SHIFT.CVT_ROUND",
    "OUT_CVT_SHIFT.OUT_CVT_SHIFT",
    "OUT_CVT_SHIFT.MINUS_EXP",
    "OUT_CVT_OFFSET.OUT_CVT_OFFSET",
    "OUT_CVT_SCALE.OUT_CVT_SCALE",
    "OUT_CVT_SCALE.FP32TOFP16_EN",
    "OFFSET_PEND.OFFSET_PEND",
)
"""Fields that the stages read, in the order of the port `settings`, lowest first."""


def settings_of(cfg: Any) -> Value:
    """The value of the port `settings` for the registers of the DPU."""
    fields = (name.split(".") for name in SETTINGS)
    return Cat(Value.cast(getattr(cfg, register)[field]) for register, field in fields)


@dataclass(frozen=True)
class Stages:
    """The stages of the pipe, as components or as interfaces with the same members."""

    bs: Any
    bn: Any
    lut: Any
    ew: Any
    output: Any


def stages(m: Module, *, floats: bool) -> Stages:
    """Add the stages of the RTL as submodules."""
    m.submodules.bs = bs = BsStages(floats=floats)
    m.submodules.bn = bn = BnStages()
    m.submodules.lut = lut = LutStage(floats=floats)
    m.submodules.ew = ew = EwStage()
    m.submodules.output = output = OutputConverter(floats=floats)
    return Stages(bs, bn, lut, ew, output)


def external_stages(m: Module) -> Stages:
    """Add an instance of the cell; values between the stages are inside the cell and are 0 here."""
    blocks = {"bs": BsStages, "bn": BnStages, "lut": LutStage, "ew": EwStage, "output": OutputConverter}
    signatures = {name: wiring.Signature(block.__annotations__) for name, block in blocks.items()}
    made = Stages(**{name: signature.create(path=(name,)) for name, signature in signatures.items()})
    bs, bn, lut, ew, output = made.bs, made.bn, made.lut, made.ew, made.output
    inputs = {
        "clk": ClockSignal(),
        "rst": ResetSignal(),
        "start": bs.flow.start,
        "advance": bs.flow.advance,
        "valid": Cat(bs.flow.valid[stage] for stage in range(STAGES)),
        "floats": bs.flow.floats,
        "late_floats": bs.flow.late_floats,
        "settings": settings_of(bs.cfg),
        "main": bs.given.main,
        "high": bs.given.high,
        "sum": bs.given.sum,
        "clip": bs.given.clip,
        "float_main": Cat(bs.floats),
        "bs_operands": bs.operands,
        "bn_operands": bn.operands,
        "ew_operand": Cat(ew.operand),
        "ew_ready": ew.operand_ready,
        "live": output.live,
        "late_offset": output.late_offset,
        **{f"lut_{name}": getattr(lut.lut, name) for name in ("write", "read", "table", "entry", "data")},
    }
    outputs = {
        "bs_wanted": bs.wanted,
        "bn_wanted": bn.wanted,
        "lut_may_advance": lut.may_advance,
        "lut_answer": lut.lut.answer,
        "ew_take": ew.take,
        "ew_may_advance": ew.may_advance,
        "value": Cat(output.value),
    }
    ports = {f"i_{name}": Value.cast(value) for name, value in inputs.items()}
    ports |= {f"o_{name}": Value.cast(value) for name, value in outputs.items()}
    m.submodules.cell = Instance(CELL_MODULE, **ports)
    return made
