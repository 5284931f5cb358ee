"""What an event log costs: the same layer without one, with tasks only, and with every kind of event.

    python -m benchmarks.events [--rounds N] [--json FILE]

One run of a busy 3x3 layer (64 to 64 channels at 56 x 56) a time on the default engine, the modes in turn
within each round, in processor time; a row gives the best of the rounds, which other work on the machine
disturbs least, and its ratio to that without a log.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cosim.engines import open_engine
from sw.compiler import compile_conv_layer
from sw.driver import Driver
from waves import events
from waves.timeline import write_timeline

SCHEMA_VERSION = 1
LAYER: dict[str, Any] = dict(channels=64, kernels=64, height=56, width=56, kernel=3, pad=1)
MODES: dict[str, tuple[str, ...] | None] = {
    "none": None,
    "tasks": ("task",),
    "bursts": ("task", "burst"),
    "all": events.KINDS,
}


@dataclass(frozen=True)
class Row:
    """One mode; `ratio` is its time over that without a log, `events` how many were recorded."""

    mode: str
    seconds: float
    ratio: float
    events: int


def run(kinds: tuple[str, ...] | None, model: Any) -> tuple[float, int, events.EventLog | None]:
    """Processor time of one job, its cycles, and its log."""
    with open_engine(cores=1) as engine:
        if kinds is not None:
            engine.record(kinds)
        loaded = model.load(Driver(engine, 10_000_000))
        shape = model.inputs[0].shape
        loaded.set_input(0, np.random.default_rng(1).integers(-128, 128, shape).astype(np.int8))
        begun = time.thread_time()
        loaded.run()
        seconds = time.thread_time() - begun
        return seconds, engine.cycle, engine.events() if kinds is not None else None


def main(arguments: list[str] | None = None) -> int:
    """Measure, print the table, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    options = parser.parse_args(arguments)
    model = compile_conv_layer(**LAYER)
    run(None, model)  # builds the model, warms the caches
    times: dict[str, list[float]] = {mode: [] for mode in MODES}
    counts, cycles = dict.fromkeys(MODES, 0), set()
    log: events.EventLog | None = None
    for _ in range(options.rounds):
        for mode, kinds in MODES.items():
            seconds, end, found = run(kinds, model)
            times[mode].append(seconds)
            cycles.add(end)
            if found is not None:
                counts[mode], log = len(found), found
    if len(cycles) != 1:
        raise RuntimeError(f"recording changed the cycles of the run: {sorted(cycles)}")
    rows = []
    print(f"{'mode':8} {'ms':>8} {'ratio':>7} {'events':>8}   ({cycles.pop():,} cycles)")
    for mode, measured in times.items():
        best = min(measured)
        rows.append(Row(mode, round(best, 5), round(best / min(times["none"]), 3), counts[mode]))
        print(f"{mode:8} {rows[-1].seconds * 1e3:8.1f} {rows[-1].ratio:7.3f} {rows[-1].events:8,}")
    assert log is not None
    with tempfile.TemporaryDirectory() as folder:
        write_timeline(log, Path(folder) / "log.pftrace")  # loads what it needs
        begun = time.thread_time()
        events.save(log, Path(folder) / "log.parquet")
        saved = time.thread_time()
        write_timeline(log, Path(folder) / "log.pftrace")
        written = time.thread_time()
        size = (Path(folder) / "log.parquet").stat().st_size
    print(f"saving it: {(saved - begun) * 1e3:.0f} ms, {size / len(log):.1f} bytes an event")
    print(f"its timeline: {(written - saved) * 1e6 / len(log):.1f} us an event")
    if options.json:
        document = {
            "schema_version": SCHEMA_VERSION,
            "benchmark": "events",
            "layer": LAYER,
            "rows": [asdict(row) for row in rows],
            "timeline_us_per_event": round((written - saved) * 1e6 / len(log), 2),
        }
        options.json.write_text(json.dumps(document, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
