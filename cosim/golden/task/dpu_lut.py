"""Tables of the DPU: the RAM with its access registers, and the look-up [HW 7.9]."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rkcosim.golden.task.arith import saturate, signed
from rkcosim.golden.task.registers import View
from rkcosim.spec.regs import registers
from rkcosim.spec.types import LUT_ENTRIES, LUT_MAX_STEP

Ints = NDArray[np.int64]
_NAMES = ("LE", "LO")


class SavedTables(NamedTuple):
    """A copy of the tables and of the access registers."""

    entries: Ints
    access: tuple[int, int, int]

    @property
    def size(self) -> int:
        """Number of its bytes."""
        return self.entries.nbytes


class LutTables:
    """Both tables and the address of the next access; tasks, kicks and soft resets keep the tables.

    Parameters
    ----------
    diagnose
        Called as `diagnose(code, block, register, value, message)` for writes that are dropped.
    """

    def __init__(self, diagnose: Callable[[str, str, str, int, str], None]) -> None:
        block = registers()["DPU"]
        self._config, self._data = block["LUT_ACCESS_CFG"], block["LUT_ACCESS_DATA"]
        self._diagnose = diagnose
        self.entries = np.zeros((2, LUT_ENTRIES), np.int64)
        """Signed entries, int64 [table (LE, LO), 513]; zero after power-on."""
        self.reset()

    def reset(self) -> None:
        """Soft reset: the access registers return to 0, the tables are kept."""
        self._table = self._place = self._writing = 0

    def saved(self) -> SavedTables:
        """Return a copy of the tables and of the access registers, for `put_back`."""
        return SavedTables(self.entries.copy(), (self._table, self._place, self._writing))

    def put_back(self, saved: SavedTables) -> None:
        """Return to what `saved` copied."""
        self.entries[:] = saved.entries
        self._table, self._place, self._writing = saved.access

    def holds(self, offset: int) -> bool:
        """Whether an offset in the core is one of the two access registers."""
        return offset in (self._config.offset, self._data.offset)

    def write(self, offset: int, value: int) -> None:
        """Write an access register."""
        if offset == self._config.offset:
            fields = self._config.decode(value)
            self._writing, self._table = fields["LUT_ACCESS_TYPE"], fields["LUT_TABLE_ID"]
            self._place = fields["LUT_ADDR"]
            return
        if not self._writing:
            if self._data.decode(value)["LUT_ACCESS_DATA"]:  # 0: part of a list that clears every register
                self._refuse(value, "LUT_ACCESS_TYPE is read")
            return
        place = self._next()
        if place >= LUT_ENTRIES:
            self._refuse(value, f"entry {place} is beyond the end of the table")
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
        entry = int(self.entries[self._table, place]) if place < LUT_ENTRIES else 0
        return self._data.encode(LUT_ACCESS_DATA=entry % (1 << 16))

    def _next(self) -> int:
        place = self._place
        self._place = (place + 1) % (1 << self._config.fields["LUT_ADDR"].width)
        return place

    def _refuse(self, value: int, message: str) -> None:
        self._diagnose("RESERVED_MODE", "DPU", "LUT_ACCESS_DATA", value, message)


def look_up(dpu: View, tables: LutTables, x: Ints) -> Ints:
    """Replace signed 32-bit inputs by values of the tables, int64 of the same shape."""
    (le, le_under, le_over), (lo, lo_under, lo_over) = (_table(dpu, tables, i, x) for i in (0, 1))
    le_hit, lo_hit = ~(le_under | le_over), ~(lo_under | lo_over)
    use_lo = np.full(x.shape, bool(dpu("LUT_CFG", "LUT_HYBRID_PRIORITY")))
    use_lo[le_hit & ~lo_hit] = False
    use_lo[lo_hit & ~le_hit] = True
    use_lo[le_under & lo_under] = bool(dpu("LUT_CFG", "LUT_UFLOW_PRIORITY"))
    use_lo[le_over & lo_over] = bool(dpu("LUT_CFG", "LUT_OFLOW_PRIORITY"))
    return np.where(use_lo, lo, le)


def _table(
    dpu: View, tables: LutTables, table: int, x: Ints
) -> tuple[Ints, NDArray[np.bool_], NDArray[np.bool_]]:
    """Value of one table with its underflow and overflow flags, each of x's shape."""
    name, entries = _NAMES[table], tables.entries[table]
    step = min(dpu("LUT_INFO", f"LUT_{name}_INDEX_SELECT"), LUT_MAX_STEP)
    start, end = dpu.signed(f"LUT_{name}_START"), dpu.signed(f"LUT_{name}_END")
    scale, shift = f"LUT_{name}_SLOPE_SCALE", f"LUT_{name}_SLOPE_SHIFT"
    distance = x - start
    under = distance < 0
    past_end = x > end
    over = ~under & (past_end | (distance > (LUT_ENTRIES - 1) << step))
    index = np.clip(distance >> step, 0, LUT_ENTRIES - 1)
    low, high = entries[index], entries[np.minimum(index + 1, LUT_ENTRIES - 1)]
    y = low + ((high - low) * (distance & ((1 << step) - 1)) >> step)
    if under.any():
        below = distance[under] * dpu.signed(scale, "UFLOW_SCALE") >> dpu(shift, "UFLOW_SHIFT")
        y[under] = entries[0] + below
    if over.any():
        above = (x[over] - end) * dpu.signed(scale, "OFLOW_SCALE") >> dpu(shift, "OFLOW_SHIFT")
        y[over] = entries[-1] + np.where(past_end[over], above, 0)
    return saturate(y, 32), under, over
