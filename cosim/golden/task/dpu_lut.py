"""Tables of the DPU: the device's RAM with its access registers, and their use (docs/hardware.md 4.12)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from cosim.golden.task.arith import saturate, signed
from cosim.golden.task.context import Context
from cosim.golden.task.registers import View
from rtl.regs import registers

Ints = NDArray[np.int64]
ENTRIES = 513
MAX_STEP = 22
"""Largest log2 of an index step."""
_NAMES = ("LE", "LO")


class LutTables:
    """Both tables and the place of the next access; the tables outlive tasks, kicks and soft resets.

    Parameters
    ----------
    diagnose
        called as `diagnose(code, block, register, value, message)` for writes that are dropped.
    """

    def __init__(self, diagnose: Callable[[str, str, str, int, str], None]) -> None:
        block = registers()["DPU"]
        self._config, self._data = block["LUT_ACCESS_CFG"], block["LUT_ACCESS_DATA"]
        self._diagnose = diagnose
        self.entries = np.zeros((2, ENTRIES), np.int64)
        """Signed entries, int64 [table (LE, LO), 513]; zero after power-on."""
        self.reset()

    def reset(self) -> None:
        """Soft reset: the access registers return to 0, the tables stay."""
        self._table = self._place = self._writing = 0

    def holds(self, offset: int) -> bool:
        """Tell whether an offset in the core is one of the two access registers."""
        return offset in (self._config.offset, self._data.offset)

    def write(self, offset: int, value: int) -> None:
        """Write an access register."""
        if offset == self._config.offset:
            fields = self._config.decode(value)
            self._writing, self._table = fields["LUT_ACCESS_TYPE"], fields["LUT_TABLE_ID"]
            self._place = fields["LUT_ADDR"]
            return
        if not self._writing:
            if self._data.decode(value)["LUT_ACCESS_DATA"]:  # 0: a list that clears every register
                self._refuse(value, "LUT_ACCESS_TYPE is read")
            return
        place = self._next()
        if place >= ENTRIES:
            self._refuse(value, f"entry {place} is past the table")
            return
        self.entries[self._table, place] = signed(self._data.decode(value)["LUT_ACCESS_DATA"], 16)

    def read(self, offset: int) -> int:
        """Read an access register."""
        if offset == self._config.offset:
            return self._config.encode(
                LUT_ACCESS_TYPE=self._writing, LUT_TABLE_ID=self._table, LUT_ADDR=self._place
            )
        if self._writing:
            return 0
        place = self._next()
        entry = int(self.entries[self._table, place]) if place < ENTRIES else 0
        return self._data.encode(LUT_ACCESS_DATA=entry % (1 << 16))

    def _next(self) -> int:
        place = self._place
        self._place = (place + 1) % (1 << self._config.fields["LUT_ADDR"].width)
        return place

    def _refuse(self, value: int, message: str) -> None:
        self._diagnose("RESERVED_MODE", "DPU", "LUT_ACCESS_DATA", value, message)


def check_lut(ctx: Context, dpu: View) -> None:
    """Diagnose settings of a live LUT that have no effect."""
    for name, want in (("LUT_CAL_SEL", 0), ("LUT_LO_LE_MUX", 2), ("LUT_EXPAND_EN", 0), ("LUT_ROAD_SEL", 0)):
        ok = dpu.get("LUT_CFG", name) == want
        ctx.require(ok, "RESERVED_MODE", dpu, "LUT_CFG", name, f"must be {want}")
    for table in _NAMES:
        name = f"LUT_{table}_INDEX_SELECT"
        ok = dpu.get("LUT_INFO", name) <= MAX_STEP
        ctx.require(ok, "RESERVED_MODE", dpu, "LUT_INFO", name, f"counts as {MAX_STEP}")


def look_up(dpu: View, tables: LutTables, x: Ints) -> Ints:
    """Replace signed 32-bit inputs by values of the tables, int64 of the same shape."""
    (le, le_under, le_over), (lo, lo_under, lo_over) = (_table(dpu, tables, i, x) for i in (0, 1))
    le_hit, lo_hit = ~(le_under | le_over), ~(lo_under | lo_over)
    use_lo = np.full(x.shape, bool(dpu.get("LUT_CFG", "LUT_HYBRID_PRIORITY")))
    use_lo[le_hit & ~lo_hit] = False
    use_lo[lo_hit & ~le_hit] = True
    use_lo[le_under & lo_under] = bool(dpu.get("LUT_CFG", "LUT_UFLOW_PRIORITY"))
    use_lo[le_over & lo_over] = bool(dpu.get("LUT_CFG", "LUT_OFLOW_PRIORITY"))
    return np.where(use_lo, lo, le)


def _table(
    dpu: View, tables: LutTables, table: int, x: Ints
) -> tuple[Ints, NDArray[np.bool_], NDArray[np.bool_]]:
    """Value of one table with its underflow and overflow flags, each of x's shape."""
    name, entries = _NAMES[table], tables.entries[table]
    step = min(dpu.get("LUT_INFO", f"LUT_{name}_INDEX_SELECT"), MAX_STEP)
    start, end = dpu.signed(f"LUT_{name}_START"), dpu.signed(f"LUT_{name}_END")
    scale, shift = f"LUT_{name}_SLOPE_SCALE", f"LUT_{name}_SLOPE_SHIFT"
    distance = x - start
    under = distance < 0
    past_end = x > end
    over = ~under & (past_end | (distance > (ENTRIES - 1) << step))
    index = np.clip(distance >> step, 0, ENTRIES - 1)
    low, high = entries[index], entries[np.minimum(index + 1, ENTRIES - 1)]
    y = low + ((high - low) * (distance & ((1 << step) - 1)) >> step)
    below = distance * dpu.signed(scale, "UFLOW_SCALE") >> dpu.get(shift, "UFLOW_SHIFT")
    above = (x - end) * dpu.signed(scale, "OFLOW_SCALE") >> dpu.get(shift, "OFLOW_SHIFT")
    y = np.where(under, entries[0] + below, y)
    y = np.where(over, entries[-1] + np.where(past_end, above, 0), y)
    return saturate(y, 32), under, over
