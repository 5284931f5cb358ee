"""Cycles that the DPU takes for an octet, from the values of its registers [HW 7.15]."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from rkcosim.spec.regs import registers

OCTET = 8
"""Channels that the DPU processes together."""

LUT_CYCLES = 4
"""Cycles of an octet whose elements are looked up in a table: two elements a cycle (rtl/npu/dpu_lut.py)."""

DIVISION_CYCLES = 28
"""Cycles that a division in binary32 takes more than another operation (rtl/npu/dpu_float.py)."""

DIVISION = 3
"""Code of EW_ALU_ALGO."""

REGISTERS = ("EW_CFG", "DATA_FORMAT", "BS_CFG", "BN_CFG")
"""Registers of the DPU that decide."""

_FLOATS = (2, 3, 5)
"""Codes of the types that the DPU computes in binary32."""


Stage = Literal["lut", "floats", ""]
"""Stage of the DPU that takes more than a cycle for an octet; "" if none does."""


class OctetRate(NamedTuple):
    """Cycles of an octet, and the stage that takes them: "lut", "floats", or "" for one octet a cycle."""

    cycles: int = 1
    stage: Stage = ""


def octet_rate(values: Mapping[str, int]) -> OctetRate:
    """Return the rate of a task: tables take four cycles, binary32 one for each operation but a division.

    Parameters
    ----------
    values
        Values of the DPU's registers by name; missing ones count as 0.
    """
    fields = {name: registers()["DPU"][name].decode(values.get(name, 0)) for name in REGISTERS}
    element = fields["EW_CFG"]
    on = not element["EW_BYPASS"]
    lut = on and not element["EW_LUT_BYPASS"]
    steps = 0
    if fields["DATA_FORMAT"]["PROC_PRECISION"] in _FLOATS:
        for name in ("BS", "BN"):
            stage = fields[f"{name}_CFG"]
            if stage[f"{name}_BYPASS"]:
                continue
            add = not stage[f"{name}_ALU_BYPASS"]
            mul = not stage[f"{name}_MUL_BYPASS"]
            relu = not stage[f"{name}_RELU_BYPASS"] or stage[f"{name}_RELUX_EN"]
            steps += add + mul or bool(relu)
        if on and not lut:
            operates = not element["EW_OP_BYPASS"]
            steps += operates or not element["EW_RELU_BYPASS"] or bool(element["EW_RELUX_EN"])
            divides = operates and not element["EW_OP_TYPE"] and element["EW_ALU_ALGO"] == DIVISION
            steps += DIVISION_CYCLES if divides else 0
    if lut and steps <= LUT_CYCLES:
        return OctetRate(LUT_CYCLES, "lut")
    return OctetRate(steps, "floats") if steps > 1 else OctetRate()
