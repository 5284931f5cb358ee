"""Tables of `rkcosim validate`: for the terminal, and sections of docs/performance.md."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from cosim.perf.boards import calibrated, known_errors
from cosim.perf.boards.left_out import LEFT_OUT
from cosim.perf.boards.validate import DRIVER_US, NAMED_RATIO, Result, Setting

WASTE = ("feature", "weight", "accumulator", "dpu", "write", "output", "other", "between")
"""Parts of a row's cycles (`cosim.perf.spent`) in which the array does nothing, and the pauses between
tasks."""


def _percent(value: float | None, places: int = 1) -> str:
    return "-" if value is None else f"{value:+.{places}%}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _number(value: float | None, places: int = 2) -> str:
    return "-" if value is None else f"{value:,.{places}f}"


def heading() -> str:
    """Names of the columns of `line`."""
    return (
        f"{'row':24} {'family':9} {'how':9} {'board us':>9} {'ours us':>9} {'error':>7} "
        f"{'formula':>7} {'board':>5}  counts"
    )


def line(result: Result) -> str:
    """One row: `formula` is the ratio to it, `board` whether it stays below the time measured."""
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
    """The table of families."""
    lines = [f"{'family':10} {'rows':>4} {'run':>4} {'counted':>7} {'median':>7} {'mean':>7} {'bias':>7}"]
    for entry in found:
        median, mean = _share(entry["median_error"]), _share(entry["mean_error"])
        lines.append(
            f"{entry['family']:10} {entry['rows']:4} {entry['run']:4} {entry['counted']:7} "
            f"{median:>7} {mean:>7} {_percent(entry['bias']):>7}"
        )
    lines.append("errors are of rows that the rule picks and that were held back from fitting")
    return lines


def violations(results: Iterable[Result]) -> list[dict[str, Any]]:
    """Rows below the formula or above the board, with the reason that is known."""
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
    """Lines about rows that break a bound."""
    broken = violations(results)
    if not broken:
        return ["every row takes at least the formula's cycles and at most the time measured"]
    return [
        f"{entry['id']}: {entry['what']} ({_percent(entry['error'])}): {entry['reason']}" for entry in broken
    ]


def explained(result: Result) -> str:
    """What the cycles of a row that is far above the formula went on, largest part first."""
    if result.cycles is None or not result.ran or not result.ran.spent:
        return "estimated" if result.ran else ""
    parts = sorted(((result.ran.spent.get(part, 0), part) for part in WASTE), reverse=True)
    shown = [f"{part} {count / result.cycles:.0%}" for count, part in parts if count > 0.04 * result.cycles]
    return ", ".join(shown)


def section(
    results: Sequence[Result],
    found: Iterable[dict[str, Any]],
    setting: Setting,
    plain: Sequence[dict[str, Any]],
) -> str:
    """The section `validate`.

    Parameters
    ----------
    results, found, setting : rows, their families, and how they were run.
    plain : families estimated with the memory that nothing was fitted to.
    """
    text = [
        _memory_text(setting),
        "",
        "| family | rows | run or estimated | counted | median error | mean error | bias | median, nothing "
        "fitted |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for entry, other in zip(found, plain, strict=True):
        text.append(
            f"| {entry['family']} | {entry['rows']} | {entry['run']} | {entry['counted']} | "
            f"{_share(entry['median_error'])} | {_share(entry['mean_error'])} | {_percent(entry['bias'])} | "
            f"{_share(other['median_error'])} |"
        )
    text += [
        "",
        "Counted are rows that were measured with 1 ms or more, without an activation from the LUT, at a "
        "stated clock, and of these the half that a hash of the row's id holds back from all fitting "
        "(`cosim/perf/boards/table.py`, older than anything fitted). A family without such rows has no error "
        "figure. The last column: estimates with the 23.65 bytes a nanosecond of the vendor's formula.",
        "",
        "| row | type | board, us | ours, us | error | from | formula | times formula | counts |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    text += [_markdown(result) for result in results]
    text += [
        "",
        f"Models: {DRIVER_US} us of driver for each submit are part of our time (HARDWARE 9.5: submit 2.5, "
        "interrupt 2, threaded part 18). Without them the errors are "
        + ", ".join(
            f"{r.row.id} {_percent(r.error_without_driver)}" for r in results if r.row.operation == "model"
        )
        + ". `formula` is the vendor's, each tensor moved once (HARDWARE 9.6).",
        "",
        *_notes(results),
        *_bounds(results),
        *_ratios(results),
        "Published rows that are not in the table:",
        "",
        "| HARDWARE | row | reason |",
        "| --- | --- | --- |",
    ]
    text += [f"| {entry.section} | {entry.what} | {entry.why} |" for entry in LEFT_OUT]
    return "\n".join(text)


def _memory_text(setting: Setting) -> str:
    if setting.memory == "default":
        return "Memory: as `rkcosim run` has it."
    value = calibrated.read().core_bytes_per_ns
    return (
        f"Memory: one core moves at most {value} bytes a nanosecond, both directions together: the one "
        "constant that was fitted (`python -m cosim.perf.boards.calibrate`, rows of the fitted half only). "
        "DRAM keeps its own time when a row's clock is another one."
    )


def _markdown(result: Result) -> str:
    row = result.row
    board = _number(row.low_us, 0)
    if row.high_us != row.low_us:
        board += f"-{_number(row.high_us, 0)}"
    counts = row.excluded or row.half
    if result.ran is None:
        return f"| {row.id} | {row.type} | {board} | not run: {result.why} | | | | | {counts} |"
    kind = row.type if row.activation == "none" else f"{row.type} {row.activation}"
    formula = _number(result.bounds.cycles / row.clock_mhz, 0) if result.bounds else "-"
    return (
        f"| {row.id} | {kind} | {board} | {_number(result.microseconds, 0)} | {_percent(result.error)} | "
        f"{result.how} | {formula} | {_number(result.ratio)} | {counts} |"
    )


def _notes(results: Iterable[Result]) -> list[str]:
    noted = [f"{result.row.id}: {result.note}" for result in results if result.note]
    return ["Run otherwise than published: " + "; ".join(noted) + ".", ""] if noted else []


def _bounds(results: Sequence[Result]) -> list[str]:
    broken = violations(results)
    ran = sum(result.ran is not None for result in results)
    text = [
        f"Of {ran} rows, {ran - sum(r.above_formula is False for r in results)} take at least the formula's "
        f"cycles, and {ran - sum(r.below_board is False for r in results)} at most the longest time measured."
    ]
    if not broken:
        return [*text, ""]
    text += ["", "| row | breaks | error | reason |", "| --- | --- | --- | --- |"]
    text += [
        f"| {entry['id']} | {entry['what']} | {_percent(entry['error'])} | {entry['reason']} |"
        for entry in broken
    ]
    return [*text, ""]


def _ratios(results: Iterable[Result]) -> list[str]:
    far = [result for result in results if result.ratio and result.ratio > NAMED_RATIO and result.ran]
    if not far:
        return []
    text = [
        f"What rows above {NAMED_RATIO} times the formula spend their cycles on, beside work of the array "
        "(parts exclude each other; [docs/report.md](report.md) says what they are):",
        "",
        "| row | times formula | of its cycles |",
        "| --- | --- | --- |",
    ]
    text += [f"| {result.row.id} | {_number(result.ratio)} | {explained(result)} |" for result in far]
    return [*text, ""]


def errors_section(results: Sequence[Result]) -> str:
    """The section `errors`."""
    text = [
        "| where | direction | by how much | why |",
        "| --- | --- | --- | --- |",
    ]
    for known in known_errors.KNOWN:
        text.append(f"| {known.where} | {known.direction} | {_size(known, results)} | {known.why} |")
    text += ["", *known_errors.ANALYSIS]
    return "\n".join(text)


def _size(known: known_errors.Known, results: Iterable[Result]) -> str:
    errors = sorted(r.error for r in results if r.error is not None and known_errors.group(r.row) is known)
    if not errors:
        return known.size or "not measured"
    spread = _percent(errors[0], 0)
    if len(errors) > 1:
        spread += f" to {_percent(errors[-1], 0)}"
    return f"{spread} ({len(errors)} rows)" if len(errors) > 1 else f"{spread} (one row)"
