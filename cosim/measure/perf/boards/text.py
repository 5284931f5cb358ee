"""Tables of `rkcosim validate`, for the terminal and for docs/results/performance.md."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rkcosim.measure.perf.attribution import CAUSES, Cause
from rkcosim.measure.perf.boards import known_errors
from rkcosim.measure.perf.boards.left_out import LEFT_OUT
from rkcosim.measure.perf.boards.runs import fitted_bandwidth
from rkcosim.measure.perf.boards.terms import STREAM, TERMS, fitted, stream, value
from rkcosim.measure.perf.boards.validate import (
    NAMED_RATIO,
    Errors,
    FamilyErrors,
    Result,
    Setting,
    errors_of,
)
from rkcosim.measure.perf.page import table
from rkcosim.spec.submit import SUBMIT_US

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
        f"{'row':24} {'family':13} {'how':9} {'board us':>9} {'ours us':>9} {'error':>7} "
        f"{'formula':>7} {'board':>5}  half"
    )


def line(result: Result) -> str:
    """One row: `formula` is the ratio to the formula, `board` whether it is below the measured time."""
    row = result.row
    if result.ran is None:
        return f"{row.id:24} {row.family:13} not run: {result.why}"
    below = {True: "below", False: "ABOVE", None: "-"}[result.below_board]
    return (
        f"{row.id:24} {row.family:13} {result.how:9} {row.measured_us:9.1f} {result.microseconds:9.1f} "
        f"{_percent(result.error):>7} {_number(result.ratio):>7} {below:>5}  {row.half}"
    )


ERROR_HEADS = ("rows", "median", "90th percentile", "bias")
"""Columns of `_error_cells`."""


def _error_cells(errors: Errors) -> tuple[str, ...]:
    return str(errors.rows), _share(errors.median), _share(errors.p90), _percent(errors.bias)


def family_lines(found: Iterable[FamilyErrors]) -> list[str]:
    """Return the table of families."""
    heads = f"{'rows':>5} {'median':>7} {'p90':>7} {'bias':>7}"
    lines = [f"{'':14} {'':>9}  {'all rows':^29}  {'held-back rows':^29}".rstrip()]
    lines.append(f"{'family':14} {'published':>9}  {heads}  {heads}")
    for entry in found:
        cells = [
            f"{n:>5} {median:>7} {p90:>7} {bias:>7}"
            for n, median, p90, bias in map(_error_cells, (entry.every, entry.held_back))
        ]
        lines.append(f"{entry.family:14} {entry.published:9}  {'  '.join(cells)}")
    lines.append("median and p90 are of the absolute error; constants are fitted to the other rows only")
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
    found: Sequence[FamilyErrors],
    setting: Setting,
    plain: Sequence[FamilyErrors],
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
            "directions together (`python -m tools.calibrate`, rows of the "
            "fitted half only). The time of DRAM does not change if a row has another clock."
        )
    alone = (f"{r.row.id} {_percent(r.error_without_terms)}" for r in results if r.row.operation == "model")
    noted = "; ".join(f"{result.row.id}: {result.note}" for result in results if result.note)
    text = [
        memory,
        "",
        *_families(found, plain),
        "",
        "All rows count. A hash of the row's id decides which half of the rows "
        "constants may be fitted to (`cosim/measure/perf/boards/table.py`); the rule was written before "
        "the first fit. Median and 90th percentile (nearest rank) are of the absolute error, the bias is the "
        "mean with its sign. "
        "The last columns have the held-back rows without any term beside the NPU's time, and with the 23.65 "
        "bytes per nanosecond of the vendor's formula as well.",
        "",
        "What a time includes beside the NPU's is in the table of terms [as RKNN plans](#as-rknn-plans).",
        "",
        *table(
            ("row", "type", "board, us", "ours, us", "error", "from", "formula", "times formula", "half"),
            map(_cells, results),
        ),
        "",
        f"Models: our time includes {SUBMIT_US} us of driver for each submit ([HW 12.5]: submit 2.5, "
        f"interrupt 2, threaded part 18). Without them the errors are {', '.join(alone)}. `formula` is "
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


def _families(found: Sequence[FamilyErrors], plain: Sequence[FamilyErrors] | None = None) -> list[str]:
    """Return the table of families; `plain` adds the columns without anything fitted."""
    heads = ["family", "published", *ERROR_HEADS, *(f"{head}, held back" for head in ERROR_HEADS)]
    lines = [
        [entry.family, str(entry.published), *_error_cells(entry.every), *_error_cells(entry.held_back)]
        for entry in found
    ]
    if plain is not None:
        heads += ["median without terms", "median, nothing fitted"]
        for cells, entry, other in zip(lines, found, plain, strict=True):
            cells += [_share(entry.plain.median), _share(other.plain.median)]
    return table(heads, lines)


def terms_table(results: Iterable[Result]) -> list[str]:
    """Return the table of the fitted terms, with the errors of the rows that they are judged by."""
    listed = list(results)
    lines = []
    for name, term in TERMS.items():
        judged = [result for result in listed if result.held_back and name in _names(result)]
        errors = _error_cells(errors_of(judged))
        rows = str(len(fitted()[name].rows)) if term.published is None else term.source
        lines.append((name, f"{value(name):g} {term.unit}", term.what, term.lumped, rows, *errors))
    heads = ("term", "value", "what", "not separated from it", "fitted rows")
    return table((*heads, *(f"{head}, held back" for head in ERROR_HEADS)), lines)


def _names(result: Result) -> set[str]:
    """Return the names of the terms that a row's time includes, with that of the memory."""
    return set(result.terms) | ({STREAM} if stream(result.row) is not None else set())


def plan_section(results: Sequence[Result], found: Sequence[FamilyErrors]) -> str:
    """Return the section `rknn`: the rows with the plans of the software that was measured."""
    heads_of_rows = ("row", "type", "board, us", "estimated, us", "error", "tasks", "half")
    text = [
        *_families(found),
        "",
        "Terms of time outside of the NPU. Fitted ones are fitted to the fitted half of their rows with this "
        "plan (`python -m tools.calibrate`), and judged here by the other rows that include them:",
        "",
        *terms_table(results),
        "",
        *table(heads_of_rows, map(_plan_cells, results)),
    ]
    return "\n".join(text)


def _plan_cells(result: Result) -> Sequence[str]:
    name, kind, board, ours, error, *_, half = _cells(result)
    return (name, kind, board, ours, error, str(result.ran.tasks if result.ran else "-"), half)


def _cells(result: Result) -> Sequence[str]:
    """Return the cells of a result in the table of rows."""
    row = result.row
    board = _number(row.low_us, 0)
    if row.high_us != row.low_us:
        board += f"-{_number(row.high_us, 0)}"
    if result.ran is None:
        return (row.id, row.type, board, f"not run: {result.why}", "", "", "", "", row.half)
    kind = row.type if row.activation == "none" else f"{row.type} {row.activation}"
    formula = _number(result.bounds.cycles / row.clock_mhz, 0) if result.bounds else "-"
    ours = _number(result.microseconds, 0), _percent(result.error), result.how
    return (row.id, kind, board, *ours, formula, _number(result.ratio), row.half)


def _bounds(results: Sequence[Result]) -> list[str]:
    broken = violations(results)
    ran = sum(result.ran is not None for result in results)
    above = ran - sum(r.above_formula is False for r in results)
    below = ran - sum(r.below_board is False for r in results)
    text = [
        f"Of {ran} rows, {above} take at least the formula's cycles, and the NPU's own time of {below} is at "
        "most the longest time measured."
    ]
    if broken:
        rows = ((entry["id"], entry["what"], _percent(entry["error"]), entry["reason"]) for entry in broken)
        text += ["", *table(("row", "breaks", "error", "reason"), rows)]
    return [*text, ""]


def _ratios(results: Iterable[Result]) -> list[str]:
    ran = [result for result in results if result.ran is not None and result.ran.spent]
    far = [result for result in ran if result.ratio and result.ratio > NAMED_RATIO]
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
