"""Fit of the one constant that boards leave open and the fitted rows can tell: a core's bandwidth.

    python -m cosim.perf.boards.calibrate            # the sweep, beside the checked-in value
    python -m cosim.perf.boards.calibrate --update   # write it

What is fitted is what one core moves to and from DRAM at most.  The vendor's formula counts with 23.65
bytes a nanosecond, 70 % of what the memory chips do; its own per-layer times of layers that do nothing
but move data stay far below, while three cores together come near it (HARDWARE 9.6: add and concat on
one core and on three).  The procedure, fixed so that it cannot be bent towards a result:

1. Rows: those of the fitted half (`cosim.perf.boards.table`) without LUT activation, on a stated clock, that
   were measured with at least ten times the least profiling overhead, on one core, and whose bytes are
   known: our plan moves each tensor about once (`MOST_TRAFFIC`).  Where a plan has to read a tensor
   again and again, as for products whose rows do not fit CBUF, the board's plan may have moved half as
   much or twice as much, and nothing can be said of its bandwidth.
2. Each candidate of a fixed grid is run on the RTL over all these rows.
3. A candidate that makes any of the rows slower than its board is out: published times hold overheads
   on top of the hardware's own, so the RTL has to stay below.
4. Of the others the one with the least mean error over the rows is taken.  No row is weighted, and rows
   that count for nothing else (under 1 ms) take part in step 3 only.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cosim.perf.boards import calibrated
from cosim.perf.boards import runs as board_runs
from cosim.perf.boards.calibrated import Calibration
from cosim.perf.boards.table import LUT_ACTIVATIONS, Row, rows
from cosim.perf.boards.validate import Result, Setting, measure

GRID = (10.0, 11.0, 11.5, 11.75, 12.0, 13.0, 16.0, 23.65)
"""Candidates in bytes a nanosecond."""

LEAST_US = 300.0
"""Ten times the least overhead of the layer tables (30 us, HARDWARE 9.6)."""

MOST_TRAFFIC = 1.25
"""Bytes of a plan over those of its tensors."""


@dataclass(frozen=True)
class Candidate:
    """A value, its mean error over the counted rows, and the rows that it makes slower than the board."""

    value: float
    mean_error: float
    too_slow: tuple[str, ...]
    results: tuple[Result, ...]


def fitted_rows() -> list[Row]:
    """The rows that take part."""
    return [row for row in rows() if _takes_part(row)]


def _takes_part(row: Row) -> bool:
    if row.half != "fitted" or row.cores != 1 or not row.clock_stated:
        return False
    if row.measured_us < LEAST_US or row.activation in LUT_ACTIVATIONS:
        return False
    return board_runs.work(row).traffic() <= MOST_TRAFFIC


def sweep(chosen: Sequence[Row], grid: Sequence[float] = GRID) -> Iterator[Candidate]:
    """Run the rows with every candidate."""
    for value in grid:
        yield _candidate(value, chosen)


def _candidate(value: float, chosen: Sequence[Row]) -> Candidate:
    found = [measure(row, Setting("rtl", core_bytes_per_ns=value)) for row in chosen]
    errors = [abs(r.error) for r in found if r.error is not None and not r.row.excluded]
    slow = tuple(r.row.id for r in found if r.below_board is False)
    return Candidate(value, statistics.fmean(errors), slow, tuple(found))


def choose(candidates: Sequence[Candidate]) -> Candidate:
    """The candidate with the least error among those that make no row too slow.

    Raises
    ------
    ValueError
        when every one makes a row too slow.
    """
    possible = [candidate for candidate in candidates if not candidate.too_slow]
    if not possible:
        raise ValueError("every candidate makes a row slower than its board")
    return min(possible, key=lambda candidate: candidate.mean_error)


def calibration(candidate: Candidate) -> Calibration:
    """What is stored: the value, and the error of each row with it."""
    errors = {r.row.id: round(r.error, 3) for r in candidate.results if r.error is not None}
    return Calibration(candidate.value, errors)


def main(arguments: list[str] | None = None) -> int:
    """Sweep, print, store; 0 when the stored value is the chosen one."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--update", action="store_true", help="write the calibration")
    given = parser.parse_args(arguments)
    candidates: list[Candidate] = []
    for candidate in sweep(fitted_rows()):
        if not candidates:
            print("bytes/ns  mean error  " + "  ".join(result.row.id for result in candidate.results))
        candidates.append(candidate)
        cells = [f"{r.error:+{len(r.row.id)}.1%}" if r.error is not None else "-" for r in candidate.results]
        slow = f"  slower than the board: {', '.join(candidate.too_slow)}" if candidate.too_slow else ""
        print(f"{candidate.value:8}  {candidate.mean_error:10.2%}  " + "  ".join(cells) + slow, flush=True)
    chosen = choose(candidates)
    stored = calibrated.read().core_bytes_per_ns if calibrated.FILE.exists() else None
    print(f"chosen: {chosen.value} bytes/ns; stored: {stored}")
    if given.update:
        calibrated.write(calibration(chosen))
        return 0
    return 0 if stored == chosen.value else 1


if __name__ == "__main__":
    sys.exit(main())
