"""The regression gate: compares the cycles of fixed layers and networks with a checked-in baseline.

    python -m rkcosim.measure.perf.gate            # compare
    python -m rkcosim.measure.perf.gate --update   # write a new baseline; commit its diff

Simulated cycles do not depend on the machine.  Any difference, faster or slower, is therefore a change of the
hardware model, the compiler or the memory model, and must be intended.
"""

from __future__ import annotations

import sys
from pathlib import Path

from rkcosim.base import PACKAGE
from rkcosim.compiler import using_cores
from rkcosim.engines.engine import open_engine
from rkcosim.measure.perf.measure import options
from rkcosim.measure.perf.page import read_stored, write_stored
from rkcosim.measure.perf.workloads import LAYERS, MEMORY

SCHEMA_VERSION = 1
BASELINE = Path(__file__).with_name("baseline.json")

NETWORKS = {"digits": PACKAGE / "examples" / "digits" / "digits_int8.onnx"}
"""Model files of the repository of which the cycles of one inference are compared."""

SHARED = ("fp16 1x1 512->512 at 14x14", "fp16 3x3 64->64 at 64x64")
"""Layers that are measured a second time, shared by three cores."""

COUNTED = ("tasks", "cycles", "mac_slots", "bytes_read", "bytes_written")
"""Members of `Measured` that are compared."""


def measure() -> dict[str, dict[str, int]]:
    """Return everything the baseline contains, by name of the layer or network.

    For networks these are the total cycles and those of each layer.
    """
    from rkcosim.measure.models.run import run_model

    found = {}
    for cores, names, suffix in ((1, LAYERS, ""), (3, SHARED, ", three cores")):
        with open_engine(cores=cores, dram=MEMORY) as engine, using_cores(cores):
            for name in names:
                measured = LAYERS[name].measure(engine)
                found[name + suffix] = {member: getattr(measured, member) for member in COUNTED}
    for name, path in NETWORKS.items():
        run = run_model(path, check=False, dram=MEMORY)
        found[name] = {"cycles": run.cycles} | {row.name: row.cycles for row in run.layers if row.cycles}
    return found


def differences(
    before: dict[str, dict[str, int]], now: dict[str, dict[str, int]]
) -> list[tuple[str, str, int | None, int | None]]:
    """Return (name, what, before, now) for each difference; None for a missing value."""
    places = {(name, what): None for rows in (before, now) for name, row in rows.items() for what in row}
    found = []
    for name, what in places:
        old, new = before.get(name, {}).get(what), now.get(name, {}).get(what)
        if old != new:
            found.append((name, what, old, new))
    return found


def read_baseline(path: Path = BASELINE) -> dict[str, dict[str, int]]:
    """Return the checked-in figures.

    Raises
    ------
    ValueError
        If the file is damaged or has another version.
    """
    rows: dict[str, dict[str, int]] = read_stored(path, SCHEMA_VERSION, "write one with --update")["rows"]
    return rows


def write_baseline(rows: dict[str, dict[str, int]], path: Path = BASELINE) -> None:
    """Store figures as the baseline."""
    write_stored(path, SCHEMA_VERSION, {"rows": rows})


def report(found: list[tuple[str, str, int | None, int | None]]) -> str:
    """Return one line for each difference."""
    lines = []
    for name, what, old, new in found:
        change = f" ({(new - old) / old:+.2%})" if old and new is not None else ""
        lines.append(f"{name}: {what} {old} -> {new}{change}")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Compare or update; return 0 if nothing changed."""
    given = options(__doc__, arguments, update="write a new baseline")
    now = measure()
    before = read_baseline() if BASELINE.exists() else {}
    found = differences(before, now)
    if given.update:
        write_baseline(now)
    print(report(found) or f"no change in {len(now)} rows")
    if given.update:
        return 0
    if found:
        print("if this change is intended: python -m rkcosim.measure.perf.gate --update")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
