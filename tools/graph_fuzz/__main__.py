"""`python -m tools.graph_fuzz`: random graphs through every way into the simulation."""

from __future__ import annotations

import argparse
import itertools
import secrets
from collections.abc import Iterable
from pathlib import Path

from tools.graph_fuzz.doors import Doors
from tools.graph_fuzz.search import Search, Verdicts, one_sample


def main() -> int:
    """Search, print what was found, and return 1 if there are faults."""
    parser = argparse.ArgumentParser(prog="python -m tools.graph_fuzz", description=__doc__)
    parser.add_argument("--graphs", type=int, default=300, help="Number of graphs; 0: until interrupted.")
    parser.add_argument("--seed", type=int, help="Seed of the first graph; the next has the next number.")
    parser.add_argument("--engine", default="golden", help="Engine behind the doors (default: golden).")
    parser.add_argument("--door", action="append", choices=Doors.NAMES, help="Only this door; repeatable.")
    parser.add_argument("--no-cut", action="store_true", help="Do not cut down graphs that fail.")
    parser.add_argument(
        "--ones", action="store_true", help="Only graphs whose inputs have a first dimension of 1."
    )
    parser.add_argument("--keep", type=Path, help="Folder for graphs that fail, with their inputs.")
    parser.add_argument(
        "--verdicts",
        type=Path,
        help="File with a line for each graph that was run: the same command goes on where it was stopped.",
    )
    parser.add_argument(
        "--again", action="store_true", help="Run graphs whose verdict is a fault again (--verdicts)."
    )
    asked = parser.parse_args()
    if asked.verdicts and asked.seed is None:
        parser.error("--verdicts needs --seed: a file of verdicts belongs to the seeds of one search.")
    seed = secrets.randbelow(1 << 31) if asked.seed is None else asked.seed
    print(f"seed {seed}", flush=True)
    seeds: Iterable[int] = itertools.count(seed) if not asked.graphs else range(seed, seed + asked.graphs)
    search = Search(
        engine=asked.engine,
        names=asked.door or Doors.NAMES,
        folder=asked.keep,
        cut=not asked.no_cut,
        fits=one_sample if asked.ones else lambda graph: True,
        verdicts=Verdicts(asked.verdicts) if asked.verdicts else None,
        again=asked.again,
    )
    report = search.run(seeds)
    print(report.text())
    return 1 if report.faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
