"""The DPU's table of a function of one byte (docs/hardware.md 4.12)."""

from __future__ import annotations

from dataclasses import dataclass

from sw.compiler.programs.task import Settings, Value


@dataclass(frozen=True)
class Table:
    """A live LUT: entries of table LO by x - first, one index each."""

    entries: list[int]
    first: int = -128


def lut_registers(settings: Settings, table: Table | None) -> None:
    """LUT registers and, where a table is live, its contents.

    LUT_ACCESS_* is left out otherwise: it has no second group, so writing it would stop the prefetch
    of the next task until the DPU is idle.
    """

    def dpu(register: str, **fields: Value) -> None:
        settings.set("DPU", register, **fields)

    if table is not None:
        dpu("LUT_ACCESS_CFG", LUT_ACCESS_TYPE=1, LUT_TABLE_ID=1)
        for entry in table.entries:
            dpu("LUT_ACCESS_DATA", LUT_ACCESS_DATA=entry % 2**16)
        # LO takes every byte; LE starts far above, so it never hits (docs/hardware.md 4.12).
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
