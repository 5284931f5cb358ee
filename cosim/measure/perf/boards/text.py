"""Tables of `rkcosim validate`, for the terminal and for docs/results/performance.md."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rkcosim.measure.perf.attribution import CAUSES, Cause
from rkcosim.measure.perf.boards import known_errors
from rkcosim.measure.perf.boards.expected import SUBMIT_US
from rkcosim.measure.perf.boards.left_out import LEFT_OUT
from rkcosim.measure.perf.boards.runs import fitted_bandwidth
from rkcosim.measure.perf.boards.validate import NAMED_RATIO, Result, Setting
from rkcosim.measure.perf.page import table

WASTE = tuple(cause for cause in CAUSES if cause is not Cause.ARRAY)
"""Causes of cycles that the formula does not include."""


def _percent(value: float | None, places: int = 1) -> str:
    return "-" if value is None else f"{value:+.{places}%}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _number(value: float | None, places: int = 2) -> str:
    return "-" if value is None else f"{value:,.{places}f}"


def heading() -> str:
    """Return the names of the columns of `line`."""
    return (
        f"{'row':24} {'family':9} {'how':9} {'board us':>9} {'ours us':>9} {'error':>7} "
        f"{'formula':>7} {'board':>5}  counts"
    )


def line(result: Result) -> str:
    """One row: `formula` is the ratio to the formula, `board` whether it is below the measured time."""
    row = result.row
    if result.ran is None:
        return f"{row.id:24} {row.family:9} not run: {result.why}"
    below = {True: "below", False: "ABOVE", None: "-"}[result.below_board]
    counts = row.excluded or row.half
    return (
        f"{row.id:24} {row.family:9} {result.how:9} {row.measured_us:9.1f} {result.microseconds:9.1f} "
        f"{_percent(result.error):>7} {_number(result.ratio):>7} {below:>5}  {counts}"
    )


def family_lines(found: Iterable[dict[str, Any]]) -> list[str]:
    """Return the table of families."""
    lines = [f"{'family':10} {'rows':>4} {'run':>4} {'counted':>7} {'median':>7} {'mean':>7} {'bias':>7}"]
    for entry in found:
        median, mean = _share(entry["median_error"]), _share(entry["mean_error"])
        lines.append(
            f"{entry['family']:10} {entry['rows']:4} {entry['run']:4} {entry['counted']:7} "
            f"{median:>7} {mean:>7} {_percent(entry['bias']):>7}"
        )
    lines.append("errors are given for the rows that the rule selects and that were held back from fitting")
    return lines


def violations(results: Iterable[Result]) -> list[dict[str, Any]]:
    """Return the rows below the formula or above the board, with the known reason."""
    found = []
    for result in results:
        for what, holds in (
            ("below the formula", result.above_formula),
            ("above the board", result.below_board),
        ):
            if holds is False:
                reason = known_errors.reason(result.row)
                found.append({"id": result.row.id, "what": what, "error": result.error, "reason": reason})
    return found


def findings(results: Sequence[Result]) -> list[str]:
    """Return lines about rows that violate a bound."""
    broken = violations(results)
    if not broken:
        return ["every row takes at least the formula's cycles and at most the time measured"]
    return [
        f"{entry['id']}: {entry['what']} ({_percent(entry['error'])}): {entry['reason']}" for entry in broken
    ]


def explained(result: Result) -> str:
    """Return the parts of the cycles of a row that is far above the formula, largest part first."""
    if result.cycles is None or not result.ran or not result.ran.spent:
        return "estimated" if result.ran else ""
    every = sum(result.ran.spent.values())
    parts = sorted(((result.ran.spent.get(cause, 0), cause) for cause in WASTE), reverse=True)
    shown = [f"{c.label} {count / every:.0%}" for count, c in parts if count > 0.04 * every]
    return ", ".join(shown)


def section(
    results: Sequence[Result],
    found: Iterable[dict[str, Any]],
    setting: Setting,
    plain: Sequence[dict[str, Any]],
) -> str:
    """Return the section `validate`.

    Parameters
    ----------
    results, found, setting : rows, their families, and how they were run.
    plain : families, estimated with the memory that is not fitted to anything.
    """
    memory = "Memory: one core may use the full bandwidth of DRAM; nothing is fitted."
    if setting.memory == "fitted":
        memory = (
            f"Memory: one core moves at most {fitted_bandwidth()} bytes per nanosecond, both "
            "directions together: the only fitted constant (`python -m tools.calibrate`, rows of the "
            "fitted half only). The time of DRAM does not change if a row has another clock."
        )
    heads = ("family", "rows", "run or estimated", "counted", "median error", "mean error", "bias")
    undriven = (
        f"{r.row.id} {_percent(r.error_without_driver)}" for r in results if r.row.operation == "model"
    )
    noted = "; ".join(f"{result.row.id}: {result.note}" for result in results if result.note)
    text = [
        memory,
        "",
        *table(
            (*heads, "median, nothing fitted"),
            (
                (
                    *(entry[key] for key in ("family", "rows", "run", "counted")),
                    *(_share(entry[key]) for key in ("median_error", "mean_error")),
                    _percent(entry["bias"]),
                    _share(other["median_error"]),
                )
                for entry, other in zip(found, plain, strict=True)
            ),
        ),
        "",
        "A row counts if the board took 1 ms or more, its activation needs no lookup table, its clock is "
        "stated, and it was not used to fit anything. A hash of the row's id decides which half of the rows "
        "constants may be fitted to (`cosim/measure/perf/boards/table.py`); the rule was written before "
        "the first fit. "
        "A family without such rows has no error figure. "
        "The last column has estimates with the 23.65 bytes per nanosecond of the vendor's formula.",
        "",
        *table(
            ("row", "type", "board, us", "ours, us", "error", "from", "formula", "times formula", "counts"),
            map(_cells, results),
        ),
        "",
        f"Models: our time includes {SUBMIT_US} us of driver for each submit ([HW 12.5]: submit 2.5, "
        f"interrupt 2, threaded part 18). Without them the errors are {', '.join(undriven)}. `formula` is "
        "the vendor's, with each tensor moved once [HW 12.6].",
        "",
        *([f"Deviations of our runs from the published ones: {noted}.", ""] if noted else []),
        *_bounds(results),
        *_ratios(results),
        "Published rows that are not in the table:",
        "",
        *table(
            ("section", "row", "reason"),
            ((f"[HW {entry.section}]", entry.what, entry.why) for entry in LEFT_OUT),
        ),
    ]
    return "\n".join(text)


def plan_section(results: Sequence[Result], found: Iterable[dict[str, Any]]) -> str:
    """Return the section `rknn`: the rows with the plans of the software that was measured."""
    heads = ("family", "rows", "estimated", "counted", "median error", "mean error", "bias")
    keys = ("family", "rows", "run", "counted")
    shares = ("median_error", "mean_error")
    lines = (
        (*(entry[key] for key in keys), *(_share(entry[key]) for key in shares), _percent(entry["bias"]))
        for entry in found
    )
    heads_of_rows = ("row", "type", "board, us", "estimated, us", "error", "tasks", "counts")
    return "\n".join(
        [*table(heads, lines), "", *table(heads_of_rows, map(_plan_cells, results))],
    )


def _plan_cells(result: Result) -> Sequence[str]:
    name, kind, board, ours, error, *_, counts = _cells(result)
    return (name, kind, board, ours, error, str(result.ran.tasks if result.ran else "-"), counts)


def _cells(result: Result) -> Sequence[str]:
    """Return the cells of a result in the table of rows."""
    row = result.row
    board = _number(row.low_us, 0)
    if row.high_us != row.low_us:
        board += f"-{_number(row.high_us, 0)}"
    counts = row.excluded or row.half
    if result.ran is None:
        return (row.id, row.type, board, f"not run: {result.why}", "", "", "", "", counts)
    kind = row.type if row.activation == "none" else f"{row.type} {row.activation}"
    formula = _number(result.bounds.cycles / row.clock_mhz, 0) if result.bounds else "-"
    ours = _number(result.microseconds, 0), _percent(result.error), result.how
    return (row.id, kind, board, *ours, formula, _number(result.ratio), counts)


def _bounds(results: Sequence[Result]) -> list[str]:
    broken = violations(results)
    ran = sum(result.ran is not None for result in results)
    text = [
        f"Of {ran} rows, {ran - sum(r.above_formula is False for r in results)} take at least the formula's "
        f"cycles, and {ran - sum(r.below_board is False for r in results)} at most the longest time measured."
    ]
    if broken:
        rows = ((entry["id"], entry["what"], _percent(entry["error"]), entry["reason"]) for entry in broken)
        text += ["", *table(("row", "breaks", "error", "reason"), rows)]
    return [*text, ""]


def _ratios(results: Iterable[Result]) -> list[str]:
    far = [result for result in results if result.ratio and result.ratio > NAMED_RATIO and result.ran]
    if not far:
        return []
    return [
        f"Parts of the cycles of rows above {NAMED_RATIO} times the formula, other than work of the array "
        "(the parts exclude each other; [the report](../report.md#figures) explains them):",
        "",
        *table(
            ("row", "times formula", "of its cycles"),
            ((result.row.id, _number(result.ratio), explained(result)) for result in far),
        ),
        "",
    ]


def errors_section(results: Sequence[Result]) -> str:
    """Return the section `errors`."""
    rows = ((known.where, known.direction, _size(known, results), known.why) for known in known_errors.KNOWN)
    return "\n".join(table(("where", "direction", "by how much", "why"), rows))


def _size(known: known_errors.Known, results: Iterable[Result]) -> str:
    errors = sorted(r.error for r in results if r.error is not None and known_errors.group(r.row) is known)
    if not errors:
        return known.size or "not measured"
    if len(errors) == 1:
        return f"{_percent(errors[0], 0)} (one row)"
    return f"{_percent(errors[0], 0)} to {_percent(errors[-1], 0)} ({len(errors)} rows)"
