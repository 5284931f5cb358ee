"""What a waveform costs: cycles a second of the default engine with none, some and all of its scopes.

    python -m benchmarks.trace [--repeat N] [--json FILE]

Every row runs the same job of two layers (3x3, 64 to 64 channels at 28 x 28, then again) from the first
access to the interrupt: without a waveform on the usual build, with the build that can trace but does not,
with the scope `tasks`, one block (core0.CNA, which has the sequence controller in it), everything, and with
everything in the ring that keeps the cycles before an error.  Processor time; rows take turns `--repeat`
times and the fastest turn of each counts, so ratios hold even where other programs run.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import tempfile
import time
from contextlib import redirect_stderr
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from cosim.engines import open_engine
from sw.compiler import compile_conv_layer
from sw.driver import Driver
from waves.spec import TraceSpec, When

SCHEMA_VERSION = 1
LAYER: dict[str, Any] = dict(channels=64, kernels=64, height=28, width=28, kernel=3, pad=1)
_JOB_CYCLES = 10_000_000
_BLOCK = "core0.CNA"


@dataclass(frozen=True)
class Row:
    """One way to trace: `cycles` in `seconds`, the file's `bytes`, and the time relative to no waveform."""

    name: str
    cycles: int
    seconds: float
    cycles_per_second: float
    bytes: int
    bytes_per_cycle: float
    times_slower: float


def specs(folder: Path) -> dict[str, TraceSpec | None]:
    """Name of each row but the first to what it traces; None: nothing."""
    full = TraceSpec(folder / "full.vcd")
    found: dict[str, TraceSpec | None] = {
        "off": None,
        "tasks": TraceSpec(folder / "tasks.vcd", scopes=("tasks",)),
        f"block {_BLOCK}": TraceSpec(folder / "block.vcd", scopes=(_BLOCK,)),
        "full": full,
        "ring of full": replace(full, path=folder / "ring.vcd", start=When.parse("error"), before=None),
    }
    try:
        from cosim.engines.traces.writing import fst_functions

        fst_functions()
        found["full, FST"] = TraceSpec(folder / "full.fst")
    except Exception as error:  # without the library there is one row less
        print(f"no FST: {error}", file=sys.stderr)
    return found


def measure(spec: TraceSpec | None, traced: bool) -> tuple[int, float, int]:
    """Cycles and seconds of the job, and the bytes written."""
    model = compile_conv_layer(**LAYER)
    with open_engine(cores=1, traced=traced) as engine:
        if spec is not None:
            engine.trace(spec)
        loaded = model.load(Driver(engine, _JOB_CYCLES))
        shape = model.inputs[0].shape
        loaded.set_input(0, np.random.default_rng(1).integers(-128, 128, shape).astype(np.int8))
        first, begun = engine.cycle, time.thread_time()
        loaded.run()
        loaded.run()
        cycles = engine.cycle - first
        engine.tracing.end()
        seconds = time.thread_time() - begun
        result = engine.trace_result()
    return cycles, seconds, result.bytes if result else 0


def main(arguments: list[str] | None = None) -> int:
    """Measure, print the table, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--repeat", type=int, default=3, help="turns of each row")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    options = parser.parse_args(arguments)
    best: dict[str, tuple[int, float, int]] = {}
    with tempfile.TemporaryDirectory() as name:
        ways = {"none": None, **specs(Path(name))}
        for _ in range(options.repeat):
            for way, spec in ways.items():
                with redirect_stderr(io.StringIO()):  # what became of each file
                    found = measure(spec, way != "none")
                if way not in best or found[1] < best[way][1]:
                    best[way] = found
    assert len({cycles for cycles, *_ in best.values()}) == 1, "tracing changed the number of cycles"
    rows = []
    base = best["none"][1]
    print(f"{'traced':18} {'cycles/s':>11} {'bytes/cycle':>12} {'times slower':>13}")
    for way, (cycles, seconds, size) in best.items():
        row = Row(
            way,
            cycles,
            round(seconds, 4),
            round(cycles / seconds, 1),
            size,
            round(size / cycles, 2),
            round(seconds / base, 3),
        )
        rows.append(row)
        print(
            f"{way:18} {row.cycles_per_second:11,.0f} {row.bytes_per_cycle:12,.1f} {row.times_slower:13.2f}"
        )
    if options.json:
        document = {
            "schema_version": SCHEMA_VERSION,
            "benchmark": "trace",
            "layer": LAYER,
            "rows": [asdict(row) for row in rows],
        }
        options.json.write_text(json.dumps(document, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
