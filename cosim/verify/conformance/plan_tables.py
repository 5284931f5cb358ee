"""The tables of the vendor compiler's tile plans ([HW 1.9], [HW 4.4]), with one line per task; missing tasks.

`int8.csv` and `fp16.csv` are known. Plans list only some of the tasks of long one-core chains (the short
lists that follow are not among them); missing rows get tiles of the last listed size.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from rkcosim.spec.layouts import argb_pitch
from rkcosim.spec.layouts.weights import kernel_group
from rkcosim.spec.types import ATOM, BANKS

CORES = {0: 1, 1: 2, 4: 2, 2: 3, 5: 3}
"""Number of cores for each multi-core code [HW 1.9]."""


@dataclass(frozen=True)
class PlanRow:
    """One task of a plan: the columns of the table, all integers."""

    case: int
    cin: int
    cout: int
    in_height: int
    in_width: int
    kernel_h: int
    kernel_w: int
    pad_h: int
    pad_w: int
    stride: int
    plan: int
    task: int
    words: int
    data_banks: int
    weight_banks: int
    data_entries: int
    feature_grains: int
    channels_real: int
    first_row_offset: int
    rows: int
    width: int
    kernels: int
    out_atomics: int
    out_offset: int
    out_rows: int
    out_width: int
    pad_left: int
    pad_top: int


@dataclass(frozen=True)
class Plan:
    """The tasks of one layer for one number of cores.

    Members
    -------
    dtype : "int8" or "fp16".
    left_out : listed tasks that are not run, with the reason.
    """

    dtype: str
    rows: tuple[PlanRow, ...]
    left_out: tuple[str, ...] = ()

    @property
    def code(self) -> int:
        """Multi-core code [HW 1.9]."""
        return self.rows[0].plan

    @property
    def cores(self) -> int:
        """Number of cores."""
        return CORES[self.code]

    @property
    def name(self) -> str:
        """Short name: type, case and plan."""
        return f"{self.dtype} case {self.rows[0].case} plan {self.code}"

    @property
    def slots(self) -> int:
        """Slots of the array, 16 pixels and one tile at a time: the minimum cycles of all tasks together."""
        total = 0
        for row in self.rows:
            groups = -(-row.kernels // kernel_group(self.itemsize))
            tiles = row.kernel_h * row.kernel_w * -(-row.cin // 32)
            total += -(-row.out_atomics // 16) * 16 * groups * tiles
        return total

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return 1 if self.dtype == "int8" else 2


def read_plans(folder: Path) -> list[Plan]:
    """Read the plan tables of a folder.

    Raises
    ------
    ValueError
        if there is no table, or a line of one is incomplete; names file and line.
    """
    plans = []
    for dtype in ("int8", "fp16"):
        path = folder / f"{dtype}.csv"
        if not path.is_file():
            raise ValueError(f"{folder} has no {dtype}.csv")
        grouped: dict[tuple[int, int], list[PlanRow]] = defaultdict(list)
        with path.open(newline="") as file:
            for number, line in enumerate(csv.DictReader(file), 2):
                try:
                    row = PlanRow(**{name: int(value) for name, value in line.items()})
                except (TypeError, ValueError) as error:
                    raise ValueError(f"{path}, line {number}: {error}") from error
                grouped[row.case, row.plan].append(row)
        plans += [_plan(dtype, rows) for _, rows in sorted(grouped.items())]
    return plans


def _plan(dtype: str, rows: list[PlanRow]) -> Plan:
    listed, left_out = [], []
    for row in rows:
        if row.data_banks + row.weight_banks == BANKS:
            listed.append(row)
        else:
            left_out.append(
                f"{dtype} case {row.case} plan {row.plan} task {row.task}: "
                f"banks {row.data_banks}/{row.weight_banks}"
            )
    if rows[0].plan == 0 and not left_out:
        listed = list(_completed(listed, 1 if dtype == "int8" else 2))
    return Plan(dtype, tuple(listed), tuple(left_out))


def _completed(listed: list[PlanRow], itemsize: int) -> Iterator[PlanRow]:
    """Yield the tiles of a one-core plan in order; missing rows get the previous size."""
    first = listed[0]
    height = first.in_height + 2 * first.pad_h - first.kernel_h + 1
    row_bytes = ATOM * first.in_width
    if first.cin <= 4:
        row_bytes = argb_pitch(first.in_width, itemsize) * first.cin * itemsize
    at, before = 0, first
    for tile in [*sorted(listed, key=lambda row: row.out_offset), None]:
        until = height if tile is None else tile.out_offset // (ATOM * first.out_width)
        while at < until:
            start = at - first.pad_h
            if start < 0:
                raise ValueError(f"case {first.case}: the first tile is not listed")
            rows = min(before.rows, first.in_height - start)
            below = first.pad_h if start + rows == first.in_height else 0
            made = min(until - at, rows + below - first.kernel_h + 1)
            before = replace(
                before,
                rows=rows,
                first_row_offset=start * row_bytes,
                data_entries=before.data_entries // before.rows * rows
                if first.cin <= 4
                else before.data_entries,
                pad_top=0,
                out_offset=at * ATOM * first.out_width,
                out_rows=made,
                out_atomics=made * first.out_width,
            )
            at += made
            yield before
        if tile is not None:
            at += tile.out_rows
            before = tile
            yield tile
