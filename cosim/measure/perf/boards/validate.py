"""Comparison of boards with the RTL: each published row is run or estimated, and its error is computed."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

from rkcosim.compiler import ModelError
from rkcosim.compiler.matmul import MatmulError
from rkcosim.engines.engine import open_engine
from rkcosim.engines.library import DramConfig
from rkcosim.measure.perf.boards import runs as board_runs
from rkcosim.measure.perf.boards.expected import SUBMIT_US, Plan
from rkcosim.measure.perf.boards.networks import NetworkError
from rkcosim.measure.perf.boards.runs import Bounds, Ran
from rkcosim.measure.perf.boards.table import FAMILIES, BoardRow

SCHEMA_VERSION = 2

AUTO_CYCLES = 20_000_000
"""With the choice "auto", rows with a longer estimate are not run."""

Choice = Literal["auto", "rtl", "estimate"]
Memory = Literal["fitted", "default"]

PUBLISHED = (
    "id",
    "section",
    "family",
    "type",
    "activation",
    "measured_us",
    "clock_mhz",
    "half",
    "excluded",
    "source",
)
"""Members of a row that its result has in JSON under the same names."""

NAMED_RATIO = 1.3
"""For rows above this many times the formula, the parts of their cycles are shown."""


@dataclass(frozen=True)
class Result:
    """A row and its result; `ran` is None if there is none, and `why` gives the reason.

    Members
    -------
    bounds : the vendor's formula for the whole row; None if the row cannot be built.
    how : source of `ran`, "RTL" or "estimator".
    note : how our run deviates from the published one.
    """

    row: BoardRow
    bounds: Bounds | None = None
    ran: Ran | None = None
    how: str = ""
    why: str = ""
    note: str = ""

    @property
    def cycles(self) -> int | None:
        """Cycles of the RTL, or of the estimator."""
        return None if self.ran is None else self.ran.cycles

    @property
    def driver_us(self) -> float:
        """Known time outside of the NPU that the published figure includes."""
        models = self.row.operation == "model" and self.ran is not None
        return SUBMIT_US * self.ran.submits if models and self.ran is not None else 0.0

    @property
    def npu_us(self) -> float | None:
        """The NPU's own time at the row's clock."""
        return None if self.cycles is None else self.cycles / self.row.clock_mhz

    @property
    def microseconds(self) -> float | None:
        """Time to be compared with the board's."""
        return None if self.npu_us is None else self.npu_us + self.driver_us

    @property
    def error(self) -> float | None:
        """(ours - board) / board, with the middle of the published range."""
        return None if self.microseconds is None else self.microseconds / self.row.measured_us - 1

    @property
    def error_without_driver(self) -> float | None:
        """The error without the driver's time."""
        return None if self.npu_us is None else self.npu_us / self.row.measured_us - 1

    @property
    def ratio(self) -> float | None:
        """Cycles divided by those of the formula."""
        known = self.cycles is not None and self.bounds is not None and self.bounds.cycles
        return self.cycles / self.bounds.cycles if known else None  # type: ignore[operator,union-attr]

    @property
    def above_formula(self) -> bool | None:
        """Whether it takes at least as many cycles as the formula."""
        return None if self.ratio is None else self.ratio >= 1

    @property
    def below_board(self) -> bool | None:
        """Whether it takes at most the longest measured time."""
        return None if self.microseconds is None else self.microseconds <= self.row.high_us

    @property
    def counts(self) -> bool:
        """Whether it is part of the error figures: selected by the rule, held back from fitting, and run."""
        return self.error is not None and not self.row.excluded and self.row.half == "held back"

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        row, ran = self.row, self.ran
        bounds = asdict(self.bounds) if self.bounds else dict.fromkeys(("npu", "ddr", "cycles"))
        rounded = {
            name: None if value is None else round(value, 4)
            for name in ("error", "error_without_driver", "ratio")
            for value in (getattr(self, name),)
        }
        return {
            **{name: getattr(row, name) for name in PUBLISHED},
            "measured_us_low": row.low_us,
            "measured_us_high": row.high_us,
            "how": self.how or None,
            "rtl_us": None if self.npu_us is None else round(self.npu_us, 2),
            "driver_us": self.driver_us,
            **rounded,
            "tasks": ran.tasks if ran else None,
            "cycles": self.cycles,
            **{f"formula_{name}": cycles for name, cycles in bounds.items()},
            "spent": ran.spent if ran else {},
            "rtl_above_formula": self.above_formula,
            "rtl_below_board": self.below_board,
            "counts": not row.excluded,
            "half": row.half,
            "excluded": row.excluded,
            "not_run": self.why,
            "note": self.note,
        }


@dataclass(frozen=True)
class Setting:
    """How rows are run.

    Members
    -------
    choice : "rtl", "estimate", or "auto", which decides by size (`AUTO_CYCLES`).
    memory : "fitted" (`tools.calibrate`) or "default" (`DramConfig().unshared`, which is not fitted
        to anything).
    core_bytes_per_ns : replaces the fitted value while a new one is searched.
    engine : name of the engine; None: the fastest available.
    plan : "ours", or "rknn", which is estimated unless `choice` is "rtl": the RTL does not wait for weights.
    """

    choice: Choice = "auto"
    memory: Memory = "fitted"
    core_bytes_per_ns: float | None = None
    engine: str | None = None
    plan: Plan = "ours"

    def dram(self, row: BoardRow) -> DramConfig:
        """Return the memory of a row's board."""
        bound = self.core_bytes_per_ns
        if bound is None and self.memory == "fitted":
            bound = board_runs.fitted_bandwidth()
        return board_runs.board_memory(row.clock_mhz, bound, self.plan == "rknn")


def measure(row: BoardRow, setting: Setting | None = None) -> Result:
    """Run or estimate one row; problems of a row become part of its result."""
    setting = setting or Setting()
    dram = setting.dram(row)
    try:
        work = board_runs.work(row, setting.plan)
        if setting.choice != "rtl":
            ran = work.estimate(dram)
            estimated = setting.choice == "estimate" or setting.plan != "ours"
            if estimated or ran.cycles > AUTO_CYCLES:
                return Result(row, work.bounds, ran, "estimator", note=work.note)
        with open_engine(setting.engine, cores=row.cores, dram=dram) as engine:
            return Result(row, work.bounds, work.run(engine), "RTL", note=work.note)
    except (ModelError, MatmulError, NetworkError) as error:
        return Result(row, why=str(error))


def validate(
    rows: Iterable[BoardRow],
    each: Callable[[Result], None] = lambda _: None,
    setting: Setting | None = None,
) -> list[Result]:
    """Run or estimate rows, each on a new engine; `each` is called with every result."""
    results = []
    for row in rows:
        results.append(measure(row, setting))
        each(results[-1])
    return results


def families(results: Iterable[Result]) -> list[dict[str, Any]]:
    """Return, per family, the rows and the error over those that count and were held back from fitting.

    `median_error` and `mean_error` are of the absolute error, `bias` is the mean with sign;
    `every_median_error` is over all rows that ran, whether they count or not.  None: no such row.
    """
    found = []
    listed = list(results)
    for family in FAMILIES:
        of = [result for result in listed if result.row.family == family]
        errors = [result.error for result in of if result.counts and result.error is not None]
        plain = [result.error_without_driver for result in of if result.counts]
        found.append(
            {
                "family": family,
                "rows": len(of),
                "run": sum(result.ran is not None for result in of),
                "counted": len(errors),
                "median_error": _median(errors),
                "mean_error": round(statistics.fmean(map(abs, errors)), 4) if errors else None,
                "bias": round(statistics.fmean(errors), 4) if errors else None,
                "median_error_without_driver": _median(plain),
                "every_median_error": _median(result.error for result in of),
            }
        )
    return found


def _median(errors: Iterable[float | None]) -> float | None:
    """Return the median absolute error of those that are not None."""
    amounts = [abs(error) for error in errors if error is not None]
    return round(statistics.median(amounts), 4) if amounts else None
