"""Fit of the one constant that published boards can determine: the bandwidth of a core.

    python -m tools.calibrate            # run the sweep and compare with the checked-in value
    python -m tools.calibrate --update   # write the result

The fitted constant is the largest rate of one core to and from DRAM.  The vendor's formula uses 23.65
bytes per nanosecond, 70 % of the rate of the memory chips; the vendor's per-layer times of layers that only
move data are far below this, while three cores together come near it ([HW 12.6]: add and concat on
one core and on three).  The procedure is fixed, so that it cannot be adjusted towards a wanted result:

1. Rows: those of the fitted half (`rkcosim.measure.perf.boards.table`) without LUT activation, with a stated
   clock, measured with at least ten times the smallest profiling overhead, on one core, and whose
   bytes are known: our plan moves each tensor about once (`MOST_TRAFFIC`).  If a plan has to read a tensor
   several times, as for products whose rows do not fit CBUF, the board's plan may have moved half as
   much or twice as much, and its bandwidth cannot be derived.
2. Each candidate of a fixed grid is run on the RTL over all these rows.
3. A candidate that makes any of the rows slower than its board is rejected: published times include overheads
   in addition to the hardware's time, so the RTL must not be slower.
4. Of the remaining candidates the one with the smallest mean error is chosen.  All rows have equal weight;
   rows that do not count (under 1 ms) are used only in step 3.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rkcosim.measure.perf.boards import runs as board_runs
from rkcosim.measure.perf.boards.table import LUT_ACTIVATIONS, BoardRow, rows
from rkcosim.measure.perf.boards.validate import Result, Setting, measure
from rkcosim.measure.perf.measure import options
from rkcosim.measure.perf.page import write_stored

GRID = (10.0, 11.0, 11.5, 11.75, 12.0, 13.0, 16.0, 23.65)
"""Candidates in bytes per nanosecond."""

LEAST_US = 300.0
"""Ten times the smallest overhead of the layer tables (30 us, [HW 12.6])."""

MOST_TRAFFIC = 1.25
"""Largest ratio of a plan's bytes to the size of its tensors."""


@dataclass(frozen=True)
class Candidate:
    """A value, its mean error over the counted rows, and the rows that become slower than the board."""

    value: float
    mean_error: float
    too_slow: tuple[str, ...]
    results: tuple[Result, ...]


def fitted_rows() -> list[BoardRow]:
    """Return the rows that are used."""
    return [
        row
        for row in rows()
        if row.half == "fitted"
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
        errors = [abs(r.error) for r in found if r.error is not None and not r.row.excluded]
        slow = tuple(r.row.id for r in found if r.below_board is False)
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


def main(arguments: list[str] | None = None) -> int:
    """Run the sweep, print it and store the result; return 0 if the stored value is the chosen one."""
    given = options(__doc__, arguments, update="write the calibration")
    candidates: list[Candidate] = []
    for candidate in sweep(fitted_rows()):
        if not candidates:
            print("bytes/ns  mean error  " + "  ".join(result.row.id for result in candidate.results))
        candidates.append(candidate)
        cells = [f"{r.error:+{len(r.row.id)}.1%}" if r.error is not None else "-" for r in candidate.results]
        slow = f"  slower than the board: {', '.join(candidate.too_slow)}" if candidate.too_slow else ""
        print(f"{candidate.value:8}  {candidate.mean_error:10.2%}  " + "  ".join(cells) + slow, flush=True)
    chosen, stored = choose(candidates), board_runs.fitted_bandwidth()
    print(f"chosen: {chosen.value} bytes/ns; stored: {stored}")
    if given.update:
        errors = {r.row.id: round(r.error, 3) for r in chosen.results if r.error is not None}
        members = {"core_bytes_per_ns": chosen.value, "rows": errors}
        write_stored(board_runs.CALIBRATION, board_runs.CALIBRATION_VERSION, members)
        return 0
    return 0 if stored == chosen.value else 1


if __name__ == "__main__":
    sys.exit(main())
