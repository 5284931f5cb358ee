"""Cost of an event log: the same layer without a log, with tasks only, and with every kind of event.

    python -m benchmarks.events [--rounds N] [--json FILE]

Each measurement is one run of a busy 3x3 layer (64 to 64 channels at 56 x 56) on the default engine; modes
alternate within each round.  A row has the processor time of the best round, which is disturbed least by
other work on the machine, and its ratio to the time without a log.
"""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import JSON, JobRun, timed, write
from rkcosim.compiler import CompiledModel, compile_conv_layer
from rkcosim.engines.soc import SocEngine
from rkcosim.measure.perf.bench.jobs import LAYER
from rkcosim.measure.perf.measure import fastest, options
from rkcosim.waves import events
from rkcosim.waves.timeline import write_timeline

MODES: dict[str, tuple[str, ...] | None] = {
    "none": None,
    "tasks": ("task",),
    "bursts": ("task", "burst"),
    "all": events.KINDS,
}


@dataclass(frozen=True)
class LogMode:
    """One mode; `ratio` is its time relative to that without a log, `events` the number of events."""

    mode: str
    seconds: float
    ratio: float
    events: int


def run(kinds: tuple[str, ...] | None, model: CompiledModel) -> JobRun:
    """Run one job; its result is the engine's last cycle and its log."""

    def record(engine: SocEngine) -> None:
        if kinds is not None:
            engine.record(kinds)

    def log(engine: SocEngine) -> tuple[int, Any]:
        return engine.cycle, engine.events() if kinds is not None else []

    return timed(model, record, result=log)


def main(given: list[str] | None = None) -> int:
    """Measure, print the table, write JSON."""
    chosen = options(__doc__, given, json=JSON, rounds={"type": int, "default": 15})
    model = compile_conv_layer(**LAYER)
    run(None, model)  # builds the model and fills the caches
    ways = {mode: partial(run, kinds, model) for mode, kinds in MODES.items()}
    best = fastest(ways, lambda rounds: rounds < chosen.rounds)
    rows = []
    print(f"{'mode':8} {'ms':>8} {'ratio':>7} {'events':>8}   ({best['none'].result[0]:,} cycles)")
    for mode, found in best.items():
        ratio = found.seconds / best["none"].seconds
        rows.append(LogMode(mode, round(found.seconds, 5), round(ratio, 3), len(found.result[1])))
        print(f"{mode:8} {rows[-1].seconds * 1e3:8.1f} {rows[-1].ratio:7.3f} {rows[-1].events:8,}")
    log = best["all"].result[1]
    with tempfile.TemporaryDirectory() as folder:
        write_timeline(log, Path(folder) / "log.pftrace")  # imports the modules that it needs
        begun = time.thread_time()
        events.save(log, Path(folder) / "log.parquet")
        saved = time.thread_time()
        write_timeline(log, Path(folder) / "log.pftrace")
        written = time.thread_time()
        size = (Path(folder) / "log.parquet").stat().st_size
    each = (written - saved) * 1e6 / len(log)
    print(f"saving it: {(saved - begun) * 1e3:.0f} ms, {size / len(log):.1f} bytes an event")
    print(f"its timeline: {each:.1f} us an event")
    write(chosen.json, rows, benchmark="events", layer=LAYER, timeline_us_per_event=round(each, 2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
