"""Fit of the constants that published boards can determine.

    python -m tools.calibrate              # fit the terms of time and compare with the checked-in values
    python -m tools.calibrate --bandwidth  # run the sweep of the bandwidth of a core as well
    python -m tools.calibrate --update     # write the result

Only rows of the fitted half are used (`rkcosim.measure.perf.boards.table`).  The procedures are fixed, so
that they cannot be adjusted towards a wanted result.

**Terms** (`rkcosim.measure.perf.boards.terms`).  What profiling adds to each layer is one constant for each
profile: the one with the least mean of the relative errors, `|NPU's time + constant - board| / board`, over
all rows of the profile that can be estimated.  It is the median of the differences, each with the weight
1 / board.  The NPU's time is the estimate with RKNN's plan and the order in which boards load, which is what
was measured; the same constants are used for the times of the RTL with this compiler's plan.  A chain of
jobs, a call of a model of one operator, and the host's work on a sum of a prefill are found in the same way.
The time of a product on several cores and the rate at which they read are a line through times of products
that stream weights, by least squares of the relative errors; language models have no rows in that fit.

**The bandwidth of a core**: the largest rate of one core to and from DRAM.  The vendor's formula uses 23.65
bytes per nanosecond, 70 % of the rate of the memory chips; the vendor's per-layer times of layers that only
move data are far below this, while three cores together come near it ([HW 12.6]: add and concat on
one core and on three).

1. Rows: those of [HW 12.3], [HW 12.4] and [HW 12.6] without LUT activation, with a stated
   clock, measured with at least ten times the smallest profiling overhead, on one core, and whose
   bytes are known: our plan moves each tensor about once (`MOST_TRAFFIC`).  If a plan has to read a tensor
   several times, as for products whose rows do not fit CBUF, the board's plan may have moved half as
   much or twice as much, and its bandwidth cannot be derived.  The rows of [HW 12.9] were published to
   the project after this fit; they judge it.
2. Each candidate of a fixed grid is run on the RTL over all these rows, without any term.
3. A candidate that makes any of the rows slower than its board is rejected: published times include overheads
   in addition to the hardware's time, so the RTL must not be slower.
4. Of the remaining candidates the one with the smallest mean error is chosen.  All rows have equal weight;
   rows under 1 ms, of which profiling is a large part, are used only in step 3.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rkcosim.measure.perf.boards import runs as board_runs
from rkcosim.measure.perf.boards import terms
from rkcosim.measure.perf.boards.language import LanguageModel
from rkcosim.measure.perf.boards.table import LUT_ACTIVATIONS, BoardRow, rows
from rkcosim.measure.perf.boards.terms import Fitted
from rkcosim.measure.perf.boards.validate import Result, Setting, measure
from rkcosim.measure.perf.measure import options
from rkcosim.measure.perf.page import read_stored, write_stored

GRID = (10.0, 11.0, 11.5, 11.75, 12.0, 13.0, 16.0, 23.65)
"""Candidates in bytes per nanosecond."""

LEAST_US = 300.0
"""Ten times the smallest overhead of the layer tables (30 us, [HW 12.6])."""

WEIGHED_US = 1000.0
"""Shorter rows have no part in the mean error of a bandwidth."""

MOST_TRAFFIC = 1.25
"""Largest ratio of a plan's bytes to the size of its tensors."""

TOLERANCE = 0.02
"""A stored term agrees with a fitted one within this part: estimates change with the estimator's fit."""


@dataclass(frozen=True)
class Candidate:
    """A bandwidth, its mean error over the rows with weight, and those that become slower than the board."""

    value: float
    mean_error: float
    too_slow: tuple[str, ...]
    results: tuple[Result, ...]


def fitted_rows() -> list[BoardRow]:
    """Return the rows that the bandwidth is fitted to."""
    return [
        row
        for row in rows()
        if row.half == "fitted"
        and row.section in ("12.3", "12.4", "12.6")
        and row.cores == 1
        and row.clock_stated
        and row.measured_us >= LEAST_US
        and row.activation not in LUT_ACTIVATIONS
        and board_runs.work(row).traffic <= MOST_TRAFFIC
    ]


def sweep(chosen: Sequence[BoardRow]) -> Iterator[Candidate]:
    """Run the rows with every candidate."""
    for value in GRID:
        found = [measure(row, Setting("rtl", core_bytes_per_ns=value)) for row in chosen]
        errors = [
            abs(r.error_without_terms)
            for r in found
            if r.error_without_terms is not None and r.row.measured_us >= WEIGHED_US
        ]
        slow = tuple(r.row.id for r in found if r.npu_us is not None and r.npu_us > r.row.high_us)
        yield Candidate(value, statistics.fmean(errors), slow, tuple(found))


def choose(candidates: Sequence[Candidate]) -> Candidate:
    """Return the candidate with the smallest error among those that make no row too slow.

    Raises
    ------
    ValueError
        If every candidate makes a row too slow.
    """
    possible = [candidate for candidate in candidates if not candidate.too_slow]
    if not possible:
        raise ValueError("every candidate makes a row slower than its board")
    return min(possible, key=lambda candidate: candidate.mean_error)


def constant(results: Iterable[Result], times: Callable[[Result], float] = lambda _: 1.0) -> Fitted | None:
    """Return the constant with the least mean relative error of these results; None without any.

    Parameters
    ----------
    results : rows with the time of the NPU.
    times : function that returns how often a row's time includes the constant.
    """
    used = sorted(
        ((r.row.measured_us - r.npu_us) / times(r), times(r) / r.row.measured_us, r.row.id)
        for r in results
        if r.npu_us is not None
    )
    half = sum(weight for _, weight, _ in used) / 2
    for quotient, weight, _ in used:
        half -= weight
        if half <= 0:
            return Fitted(max(0.0, float(f"{quotient:.4g}")), tuple(sorted(name for *_, name in used)))
    return None


def line(of: Sequence[BoardRow]) -> tuple[Fitted, Fitted]:
    """Return the microseconds of a product on several cores and the GB/s of its weights.

    A line through the times of products that stream weights, by least squares of the relative errors.
    """
    matrix, ones = [], np.ones(len(of))
    for row in of:
        (_, k), (_, n) = row.input, row.output
        weights = row.cores * k * n * board_runs.BITS[row.type] / 8
        matrix.append((1 / row.measured_us, weights / 1000 / row.measured_us))
    (call, slope), *_ = np.linalg.lstsq(np.array(matrix), ones, rcond=None)
    names = tuple(sorted(row.id for row in of))
    return Fitted(round(float(call), 1), names), Fitted(round(float(1 / slope), 2), names)


def fit_terms() -> dict[str, Fitted]:
    """Return the values of the fitted terms."""
    of: dict[str, list[BoardRow]] = {}
    for row in rows():
        if row.half == "fitted":
            of.setdefault(row.series, []).append(row)

    def estimates(series: str) -> Iterator[Result]:
        return (measure(row, Setting("estimate", plan="rknn")) for row in of[series])

    found: dict[str, Fitted | None] = {}
    found[terms.SEVERAL], found[terms.STREAM] = line(of[terms.RUN_SEVERAL])
    found[terms.CHAIN] = constant(estimates(terms.CHAINED))
    found[terms.OPERATOR_CALL] = constant(estimates(terms.OPERATOR))
    prefills = [result for result in estimates(terms.RKLLM) if result.row.operation == "prefill"]
    found[terms.SUMS] = constant(map(_without_calls, prefills), _thousand_sums)
    for name in terms.PROFILES:
        found[terms.profiling(name)] = constant(estimates(name))
    return {name: fit for name, fit in found.items() if fit is not None}


def _without_calls(result: Result) -> Result:
    """Return a prefill as if the calls of its products were time of the NPU."""
    calls = result.terms[terms.SEVERAL] * result.row.clock_mhz
    assert result.ran is not None
    return replace(result, ran=replace(result.ran, cycles=round(result.ran.cycles + calls)))


def _thousand_sums(result: Result) -> float:
    """Return the results of a prefill's products in thousands: a nanosecond each is a microsecond."""
    model = LanguageModel(*result.row.input)
    return model.sums(result.row.output[0]) / 1000


def main(arguments: list[str] | None = None) -> int:
    """Fit, print and store the constants; return 0 if the stored values are those that were found."""
    given = options(
        __doc__, arguments, update="write the calibration", bandwidth="sweep the bandwidth of a core as well"
    )
    stored = read_stored(terms.CALIBRATION, terms.CALIBRATION_VERSION)
    members = {name: stored[name] for name in ("core_bytes_per_ns", "rows")}
    same = True
    if given.bandwidth:
        chosen = _swept()
        same = chosen.value == stored["core_bytes_per_ns"]
        errors = {
            r.row.id: round(r.error_without_terms, 3)
            for r in chosen.results
            if r.error_without_terms is not None
        }
        members = {"core_bytes_per_ns": chosen.value, "rows": errors}
    found = fit_terms()
    for name, fit in found.items():
        before = stored["terms"].get(name, {"value": None})["value"]
        print(f"{name:34} {fit.value:8g}; stored: {before}; {len(fit.rows)} rows")
        same &= before is not None and abs(fit.value - before) <= TOLERANCE * fit.value
    if given.update:
        members["terms"] = {name: {"value": fit.value, "rows": list(fit.rows)} for name, fit in found.items()}
        write_stored(terms.CALIBRATION, terms.CALIBRATION_VERSION, members)
        return 0
    return 0 if same else 1


def _swept() -> Candidate:
    candidates: list[Candidate] = []
    for candidate in sweep(fitted_rows()):
        if not candidates:
            print("bytes/ns  mean error  " + "  ".join(result.row.id for result in candidate.results))
        candidates.append(candidate)
        cells = [
            f"{r.error_without_terms:+{len(r.row.id)}.1%}" if r.error_without_terms is not None else "-"
            for r in candidate.results
        ]
        slow = f"  slower than the board: {', '.join(candidate.too_slow)}" if candidate.too_slow else ""
        print(f"{candidate.value:8}  {candidate.mean_error:10.2%}  " + "  ".join(cells) + slow, flush=True)
    chosen = choose(candidates)
    print(f"chosen: {chosen.value} bytes/ns; stored: {board_runs.fitted_bandwidth()}")
    return chosen


if __name__ == "__main__":
    sys.exit(main())
