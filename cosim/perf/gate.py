"""The regression gate: cycles of fixed layers and networks beside a checked-in baseline.

    python -m cosim.perf.gate            # compare
    python -m cosim.perf.gate --update   # write the baseline anew; its diff belongs into the commit

Simulated cycles do not depend on the machine, so any difference, faster or slower, is a change of the
hardware model, of the compiler or of the memory model, and has to be meant.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from cosim.engines.engine import Engine, open_engine
from cosim.perf.stored import read_stored, write_stored
from cosim.perf.workloads import LAYERS
from sw.compiler import using_cores

SCHEMA_VERSION = 1
BASELINE = Path(__file__).with_name("baseline.json")
ROOT = Path(__file__).parents[2]

NETWORKS = {"digits": ROOT / "examples" / "digits" / "digits_int8.onnx"}
"""Model files of the repository; the cycles of one inference."""

SHARED = ("fp16 1x1 512->512 at 14x14", "fp16 3x3 64->64 at 64x64")
"""Layers that are also measured shared by three cores."""

COUNTED = ("tasks", "cycles", "mac_slots", "bytes_read", "bytes_written")
"""Members of `Measured` that are compared."""


def layers(engine: Engine) -> Iterator[tuple[str, dict[str, int]]]:
    """Measure every layer of `LAYERS` on an engine of one core."""
    for name, layer in LAYERS.items():
        found = layer.measure(engine)
        yield name, {member: getattr(found, member) for member in COUNTED}


def shared(engine: Engine) -> Iterator[tuple[str, dict[str, int]]]:
    """Measure the layers of `SHARED` on an engine of three cores."""
    with using_cores(3):
        for name in SHARED:
            found = LAYERS[name].measure(engine)
            yield f"{name}, three cores", {member: getattr(found, member) for member in COUNTED}


def networks() -> Iterator[tuple[str, dict[str, int]]]:
    """Run every network of `NETWORKS`: all cycles, and those of each layer."""
    from cosim.models.run import run_model

    for name, path in NETWORKS.items():
        run = run_model(path, check=False)
        yield name, {"cycles": run.cycles} | {row.name: row.cycles for row in run.layers if row.cycles}


def measure() -> dict[str, dict[str, int]]:
    """Everything the baseline holds, by name of the layer or network."""
    with open_engine(cores=1) as engine:
        found = dict(layers(engine))
    with open_engine(cores=3) as engine:
        found |= dict(shared(engine))
    return found | dict(networks())


def differences(
    before: dict[str, dict[str, int]], now: dict[str, dict[str, int]]
) -> list[tuple[str, str, int | None, int | None]]:
    """(name, what, before, now) of everything that is not the same; None: not there."""
    found = []
    for name in {**before, **now}:
        old, new = before.get(name, {}), now.get(name, {})
        for what in {**old, **new}:
            if old.get(what) != new.get(what):
                found.append((name, what, old.get(what), new.get(what)))
    return found


def read_baseline(path: Path = BASELINE) -> dict[str, dict[str, int]]:
    """The checked-in figures.

    Raises
    ------
    ValueError
        for a file that is damaged or of another version.
    """
    rows: dict[str, dict[str, int]] = read_stored(path, SCHEMA_VERSION, "make it anew with --update")["rows"]
    return rows


def write_baseline(rows: dict[str, dict[str, int]], path: Path = BASELINE) -> None:
    """Store figures as the baseline."""
    write_stored(path, SCHEMA_VERSION, {"rows": rows})


def report(found: list[tuple[str, str, int | None, int | None]]) -> str:
    """A line for each difference."""
    lines = []
    for name, what, old, new in found:
        change = f" ({(new - old) / old:+.2%})" if old and new is not None else ""
        lines.append(f"{name}: {what} {old} -> {new}{change}")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Compare or update; 0 when nothing changed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--update", action="store_true", help="write the baseline anew")
    given = parser.parse_args(arguments)
    now = measure()
    before = read_baseline() if BASELINE.exists() else {}
    found = differences(before, now)
    if given.update:
        write_baseline(now)
    print(report(found) or f"no change in {len(now)} rows")
    if given.update:
        return 0
    if found:
        print("if this is meant: python -m cosim.perf.gate --update")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
