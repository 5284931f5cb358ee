"""Comparison of boards with the RTL: each published row is run or estimated, and its error is computed."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

from rkcosim.compiler import ModelError
from rkcosim.compiler.matmul import MatmulError
from rkcosim.engines.engine import open_engine
from rkcosim.engines.library import DramConfig
from rkcosim.measure.perf.boards import runs as board_runs
from rkcosim.measure.perf.boards.expected import Plan
from rkcosim.measure.perf.boards.networks import NetworkError
from rkcosim.measure.perf.boards.runs import Bounds, Ran
from rkcosim.measure.perf.boards.table import FAMILIES, LAYERS, BoardRow
from rkcosim.measure.perf.boards.terms import outside, stream

SCHEMA_VERSION = 3

AUTO_CYCLES = 3_000_000
"""With the choice "auto", rows with a longer estimate are not run."""

Choice = Literal["auto", "rtl", "estimate"]
Memory = Literal["fitted", "default"]

PUBLISHED = (
    "id",
    "section",
    "family",
    "series",
    "type",
    "activation",
    "measured_us",
    "clock_mhz",
    "half",
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
    def terms(self) -> dict[str, float]:
        """Microseconds outside of the NPU that the published figure includes, by name."""
        return outside(self.row, self.ran.submits) if self.ran is not None else {}

    @property
    def outside_us(self) -> float:
        """Sum of the terms."""
        return sum(self.terms.values())

    @property
    def npu_us(self) -> float | None:
        """The NPU's own time at the row's clock."""
        return None if self.cycles is None else self.cycles / self.row.clock_mhz

    @property
    def microseconds(self) -> float | None:
        """Time to be compared with the board's."""
        return None if self.npu_us is None else self.npu_us + self.outside_us

    @property
    def error(self) -> float | None:
        """(ours - board) / board, with the middle of the published range."""
        return None if self.microseconds is None else self.microseconds / self.row.measured_us - 1

    @property
    def error_without_terms(self) -> float | None:
        """The error of the NPU's own time."""
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
        """Whether the NPU's own time is at most the longest measured one."""
        return None if self.npu_us is None else self.npu_us <= self.row.high_us

    @property
    def held_back(self) -> bool:
        """Whether the row is of the half that no constant is fitted to."""
        return self.row.half == "held back"

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        row, ran = self.row, self.ran
        bounds = asdict(self.bounds) if self.bounds else dict.fromkeys(("npu", "ddr", "cycles"))
        rounded = {
            name: None if value is None else round(value, 4)
            for name in ("error", "error_without_terms", "ratio")
            for value in (getattr(self, name),)
        }
        return {
            **{name: getattr(row, name) for name in PUBLISHED},
            "measured_us_low": row.low_us,
            "measured_us_high": row.high_us,
            "how": self.how or None,
            "rtl_us": None if self.npu_us is None else round(self.npu_us, 2),
            "terms_us": {name: round(us, 2) for name, us in self.terms.items()},
            **rounded,
            "tasks": ran.tasks if ran else None,
            "cycles": self.cycles,
            **{f"formula_{name}": cycles for name, cycles in bounds.items()},
            "spent": ran.spent if ran else {},
            "rtl_above_formula": self.above_formula,
            "rtl_below_board": self.below_board,
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
        together = stream(row) if self.memory == "fitted" else None
        return board_runs.board_memory(row.clock_mhz, bound, self.plan == "rknn", together)


def measure(row: BoardRow, setting: Setting | None = None) -> Result:
    """Run or estimate one row; problems of a row become part of its result."""
    setting = setting or Setting()
    dram = setting.dram(row)
    try:
        work = board_runs.work(row, setting.plan)
        if setting.choice != "rtl":
            ran = work.estimate(dram)
            estimated = setting.choice == "estimate" or setting.plan != "ours" or work.only_estimated
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


@dataclass(frozen=True)
class Errors:
    """Errors of a set of rows.

    Members
    -------
    rows : number of rows with an error.
    median, p90 : median and 90th percentile (nearest rank) of the absolute error; None without rows.
    bias : mean of the error with its sign.
    """

    rows: int
    median: float | None
    p90: float | None
    bias: float | None


def errors_of(results: Iterable[Result], without_terms: bool = False) -> Errors:
    """Return the errors of those results that have one; `without_terms`: those of the NPU's own time."""
    each = (result.error_without_terms if without_terms else result.error for result in results)
    found = [error for error in each if error is not None]
    if not found:
        return Errors(0, None, None, None)
    sizes = sorted(map(abs, found))
    p90 = sizes[math.ceil(0.9 * len(sizes)) - 1]
    parts = statistics.median(sizes), p90, statistics.fmean(found)
    return Errors(len(found), *(round(part, 4) for part in parts))


@dataclass(frozen=True)
class FamilyErrors:
    """Errors of a family of rows.

    Members
    -------
    family : its name; "layers" for all families of single layers, "all" for all rows.
    published : number of rows, whether they could be run or not.
    every : errors of all rows that were run or estimated.
    held_back : errors of those that no constant is fitted to.
    plain : errors of the NPU's own time, over the held-back rows.
    """

    family: str
    published: int
    every: Errors
    held_back: Errors
    plain: Errors


def families(results: Iterable[Result]) -> list[FamilyErrors]:
    """Return the errors of each family, of all single layers, and of all rows."""
    listed = list(results)
    sets = {family: {family} for family in FAMILIES} | {"layers": set(LAYERS), "all": set(FAMILIES)}
    found = []
    for name, members in sets.items():
        of = [result for result in listed if result.row.family in members]
        held = [result for result in of if result.held_back]
        errors = errors_of(of), errors_of(held), errors_of(held, without_terms=True)
        found.append(FamilyErrors(name, len(of), *errors))
    return found
