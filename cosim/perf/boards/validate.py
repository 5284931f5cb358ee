"""Published measurements of boards beside the RTL: each row run or estimated, its time, and the error."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from cosim.engines.engine import open_engine
from cosim.engines.library import DramConfig
from cosim.perf.boards import calibrated
from cosim.perf.boards import runs as board_runs
from cosim.perf.boards.networks import NetworkError
from cosim.perf.boards.runs import Bounds, Ran
from cosim.perf.boards.table import FAMILIES, Row
from sw.compiler import ModelError
from sw.compiler.matmul import MatmulError

SCHEMA_VERSION = 2

DRIVER_US = 22.5
"""What the vendor's driver adds to each submit of a model: submit 2.5 us, interrupt handler 2 us, threaded
part 18 us (HARDWARE 9.5, "vendor driver path", ftrace).  Layer tables and device times of products are
taken inside of it."""

AUTO_CYCLES = 20_000_000
"""Rows that are estimated to take longer are not run unless the RTL is asked for."""

Choice = Literal["auto", "rtl", "estimate"]
Memory = Literal["fitted", "default"]

NAMED_RATIO = 1.3
"""Rows above this many times the formula are explained by what their cycles went on."""


@dataclass(frozen=True)
class Result:
    """A row and what came out; `ran` is None where nothing did, and `why` says so.

    Members
    -------
    bounds : the vendor's formula for the whole row; None where the row cannot be built.
    how : "RTL" or "estimator"; what `ran` comes from.
    note : how the row was run if not as it stands.
    """

    row: Row
    bounds: Bounds | None = None
    ran: Ran | None = None
    how: str = ""
    why: str = ""
    note: str = ""

    @property
    def cycles(self) -> int | None:
        """Cycles of the RTL, or estimated ones."""
        return None if self.ran is None else self.ran.cycles

    @property
    def driver_us(self) -> float:
        """Time outside the NPU that the published figure has in it and that is known."""
        models = self.row.operation == "model" and self.ran is not None
        return DRIVER_US * self.ran.submits if models and self.ran is not None else 0.0

    @property
    def npu_us(self) -> float | None:
        """The NPU's own time at the row's clock."""
        return None if self.cycles is None else self.cycles / self.row.clock_mhz

    @property
    def microseconds(self) -> float | None:
        """Time to compare with the board's."""
        return None if self.npu_us is None else self.npu_us + self.driver_us

    @property
    def error(self) -> float | None:
        """(ours - board) / board, of the middle of the published range."""
        return None if self.microseconds is None else self.microseconds / self.row.measured_us - 1

    @property
    def error_without_driver(self) -> float | None:
        """The same of the NPU's own time."""
        return None if self.npu_us is None else self.npu_us / self.row.measured_us - 1

    @property
    def ratio(self) -> float | None:
        """Cycles over the formula's."""
        known = self.cycles is not None and self.bounds is not None and self.bounds.cycles
        return self.cycles / self.bounds.cycles if known else None  # type: ignore[operator,union-attr]

    @property
    def above_formula(self) -> bool | None:
        """Whether it takes at least the formula's cycles."""
        return None if self.ratio is None else self.ratio >= 1

    @property
    def below_board(self) -> bool | None:
        """Whether it takes at most the longest time measured."""
        return None if self.microseconds is None else self.microseconds <= self.row.high_us

    @property
    def counts(self) -> bool:
        """Whether it is part of the error figures: by the rule, held back from fitting, and there."""
        return self.error is not None and not self.row.excluded and self.row.half == "held back"

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        row, bounds, ran = self.row, self.bounds, self.ran

        def rounded(value: float | None, places: int = 4) -> float | None:
            return None if value is None else round(value, places)

        return {
            "id": row.id,
            "section": row.section,
            "family": row.family,
            "type": row.type,
            "activation": row.activation,
            "measured_us": row.measured_us,
            "measured_us_low": row.low_us,
            "measured_us_high": row.high_us,
            "clock_mhz": row.clock_mhz,
            "how": self.how or None,
            "rtl_us": rounded(self.npu_us, 2),
            "driver_us": self.driver_us,
            "error": rounded(self.error),
            "error_without_driver": rounded(self.error_without_driver),
            "tasks": ran.tasks if ran else None,
            "cycles": self.cycles,
            "formula_npu": bounds.npu if bounds else None,
            "formula_ddr": bounds.ddr if bounds else None,
            "formula_cycles": bounds.cycles if bounds else None,
            "ratio": rounded(self.ratio),
            "spent": ran.spent if ran else {},
            "rtl_above_formula": self.above_formula,
            "rtl_below_board": self.below_board,
            "counts": not row.excluded,
            "half": row.half,
            "excluded": row.excluded,
            "not_run": self.why,
            "note": self.note,
            "source": row.source,
        }


@dataclass(frozen=True)
class Setting:
    """How rows are run.

    Members
    -------
    choice : RTL, estimates, or by size (`AUTO_CYCLES`).
    memory : "fitted" (`cosim.perf.boards.calibrate`) or "default" (`DramConfig()`).
    core_bytes_per_ns : in place of the fitted value, while one is looked for.
    engine : of `open_engine`; None: the fastest there is.
    """

    choice: Choice = "auto"
    memory: Memory = "fitted"
    core_bytes_per_ns: float | None = None
    engine: str | None = None

    def dram(self, row: Row) -> DramConfig:
        """Memory of a row's board."""
        bound = self.core_bytes_per_ns
        if bound is None and self.memory == "fitted":
            bound = calibrated.read().core_bytes_per_ns
        return calibrated.board_memory(row.clock_mhz, bound)


@dataclass
class Validation:
    """All results of a run of `validate`."""

    results: list[Result] = field(default_factory=list)
    setting: Setting = field(default_factory=Setting)


def measure(row: Row, setting: Setting | None = None) -> Result:
    """Run or estimate one row; problems of a row are part of its result."""
    setting = setting or Setting()
    dram = setting.dram(row)
    try:
        work = board_runs.work(row)
        bounds = work.bounds()
        if setting.choice != "rtl":
            ran, how = work.estimate(dram)
            if setting.choice == "estimate" or ran.cycles > AUTO_CYCLES:
                return Result(row, bounds, ran, how, note=work.note)
        with open_engine(setting.engine, cores=1, dram=dram) as engine:
            return Result(row, bounds, work.run(engine), "RTL", note=work.note)
    except (ModelError, MatmulError, NetworkError) as error:
        return Result(row, why=str(error))


def validate(
    rows: Iterable[Row],
    each: Callable[[Result], None] = lambda _: None,
    setting: Setting | None = None,
) -> list[Result]:
    """Run or estimate rows, each on a fresh engine of one core; `each` is called with every result."""
    results = []
    for row in rows:
        results.append(measure(row, setting))
        each(results[-1])
    return results


def families(results: Iterable[Result]) -> list[dict[str, Any]]:
    """Per family: rows, and the error over those that count and were held back from all fitting.

    `median_error` and `mean_error` are of the amount of the error, `bias` is the mean with its sign;
    `every_median_error` is of all rows that ran, whether they count or not.  None: no such row.
    """
    found = []
    listed = list(results)
    for family in FAMILIES:
        of = [result for result in listed if result.row.family == family]
        errors = [result.error for result in of if result.counts and result.error is not None]
        every = [abs(result.error) for result in of if result.error is not None]
        plain = [
            abs(result.error_without_driver)
            for result in of
            if result.counts and result.error_without_driver is not None
        ]
        found.append(
            {
                "family": family,
                "rows": len(of),
                "run": sum(result.ran is not None for result in of),
                "counted": len(errors),
                "median_error": _median([abs(error) for error in errors]),
                "mean_error": round(statistics.fmean(map(abs, errors)), 4) if errors else None,
                "bias": round(statistics.fmean(errors), 4) if errors else None,
                "median_error_without_driver": _median(plain),
                "every_median_error": _median(every),
            }
        )
    return found


def _median(values: list[float]) -> float | None:
    return round(statistics.median(values), 4) if values else None
