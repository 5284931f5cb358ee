"""How fast the engines "changes" and "fast" are: whole networks on them and on the default engine, in turn.

    python -m benchmarks.fast resnet50.onnx yolov8n.onnx --runs 3 --page docs/results/performance.md

Each run is a process of its own and simulates one inference with random inputs. Its seconds are wall-clock
time of `rknn_run`, with the golden model's work if there is any. *Timing model alone* is processor time of
the thread that simulates. The table has medians, and the cycles of all engines, which must be equal.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from rkcosim.engines.protocol import CHANGES, FAST
from rkcosim.measure.perf.bench.machine import machine, machine_line
from rkcosim.measure.perf.page import table, write_section

HEADS = ("network", "cycles", "default engine", "changes", "ratio", "fast", "ratio", "timing model alone")


def one(path: Path, engine: str) -> dict[str, Any]:
    """Run one inference in this process; returns cycles, seconds, and seconds of the simulating thread."""
    from rkcosim.engines.soc import SocEngine
    from rkcosim.measure.models.draw import random_inputs
    from rkcosim.running.session import Session

    inside = 0.0
    simulate = SocEngine._run_chunks

    def timed(self: SocEngine, cycles: int, mask: int) -> None:
        nonlocal inside
        begin = time.thread_time()
        try:
            simulate(self, cycles, mask)
        finally:
            inside += time.thread_time() - begin

    SocEngine._run_chunks = timed  # type: ignore[method-assign]  # only in this process
    with Session(path, engine=engine) as session:
        batch = random_inputs(session, 0)
        before = session.device.cycle
        session.infer(batch)
        cycles = session.device.cycle - before
        return {"cycles": cycles, "seconds": session.run_seconds, "thread": inside}


def rows(paths: Sequence[Path], runs: int) -> list[str]:
    """Measure models; returns the lines of a table."""
    found = []
    for path in paths:
        results: dict[str, list[dict[str, Any]]] = {"verilator": [], CHANGES: [], FAST: []}
        for _ in range(runs):
            for engine, kept in results.items():
                command = [sys.executable, "-m", "benchmarks.fast", str(path), "--one", engine]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                kept.append(json.loads(done.stdout.splitlines()[-1]))
        cycles = {result["cycles"] for kept in results.values() for result in kept}
        if len(cycles) != 1:
            raise SystemExit(f"{path.name}: the engines take different cycles: {sorted(cycles)}")
        count = cycles.pop()
        slow, changes, fast, alone = (
            count / median(result[what] for result in results[engine])
            for engine, what in (
                ("verilator", "seconds"),
                (CHANGES, "seconds"),
                (FAST, "seconds"),
                (FAST, "thread"),
            )
        )
        ratios = [f"{rate:,.0f}" for rate in (slow, changes, fast, alone)]
        ratios[3:3], ratios[2:2] = [f"{fast / slow:.2f}"], [f"{changes / slow:.2f}"]
        name = re.sub(r"-[0-9a-f]{16}$", "", path.stem)
        found.append((name, f"{count:,}", *ratios))
        print(" ".join(found[-1]), flush=True)
    return table(HEADS, found)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program and return its exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="+", type=Path, metavar="MODEL")
    parser.add_argument("--runs", type=int, default=3, help="runs of each engine and model (default: 3)")
    parser.add_argument("--page", type=Path, help="update the table of this page")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.one:
        print(json.dumps(one(given.models[0], given.one)))
        return 0
    lines = rows(given.models, given.runs)
    if given.page:
        how = f"median of {given.runs} runs" if given.runs > 1 else "one run each"
        text = f"Cycles a second, {how}, in turn, on {machine_line(machine())}."
        write_section("fast", "\n".join([*lines, "", text]), given.page)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
