"""One row per task: what it did, what it cost, what it could have cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from cosim.engines.library import DramConfig
from cosim.golden.task import TaskReport
from cosim.perf.formula import formula_cycles, formula_ddr, formula_npu

MACS_PER_CYCLE = 1024
"""int8 (HARDWARE 4.1)."""


@dataclass(frozen=True)
class TaskRow:
    """A task of a run; `cycles` is None where no engine measured it."""

    task: int
    kind: str
    cycles: int | None
    macs: int
    """Useful multiply-accumulates."""
    bytes_read: int
    bytes_written: int
    formula_npu: int
    formula_ddr: int
    formula_cycles: int

    @property
    def utilisation(self) -> float | None:
        """Useful share of the array's peak, 0..1."""
        return None if not self.cycles else self.macs / (MACS_PER_CYCLE * self.cycles)

    @property
    def ratio(self) -> float | None:
        """Cycles over `formula_cycles`."""
        return None if self.cycles is None or not self.formula_cycles else self.cycles / self.formula_cycles

    def as_json(self) -> dict[str, object]:
        """Plain values."""
        return {**asdict(self), "utilisation": self.utilisation, "ratio": self.ratio}


def task_rows(
    reports: Sequence[TaskReport], cycles: Sequence[int | None] = (), dram: DramConfig | None = None
) -> list[TaskRow]:
    """Join the golden model's task reports with measured cycles.

    Parameters
    ----------
    reports
        tasks in order.
    cycles
        measured cycles of the same tasks, empty when there are none.
    dram
        memory timing of the engine.

    Raises
    ------
    ValueError
        when the two lists have different lengths.
    """
    measured = list(cycles) or [None] * len(reports)
    if len(measured) != len(reports):
        raise ValueError(f"{len(measured)} measurements for {len(reports)} tasks")
    rows = []
    for report, spent in zip(reports, measured, strict=True):
        npu = formula_npu(report.registers)
        moved = report.bytes_read, report.bytes_written
        rows.append(
            TaskRow(
                report.index,
                report.kind,
                spent,
                report.macs,
                *moved,
                npu,
                formula_ddr(*moved, dram),
                formula_cycles(npu, *moved, dram),
            )
        )
    return rows
