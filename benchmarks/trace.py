"""Cost of a waveform: cycles per second of the default engine with none, some and all of its scopes.

    python -m benchmarks.trace [--repeat N] [--json FILE]

Every row runs the same job of two layers (3x3, 64 to 64 channels at 28 x 28, twice) from the first
access to the interrupt: without a waveform on the usual build, with the build that can trace but does not,
with the scope `tasks`, one block (core0.CNA, which contains the sequence controller), everything, and with
everything in the ring that keeps the cycles before an error.  Times are processor time; the rows alternate
`--repeat` times and the fastest run of each counts, so ratios are valid even if other programs run.
"""

from __future__ import annotations

import io
import sys
import tempfile
from contextlib import redirect_stderr
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import JSON, JobRun, timed, write
from rkcosim.compiler import CompiledModel, compile_conv_layer
from rkcosim.engines.soc import SocEngine
from rkcosim.measure.perf.measure import fastest, options
from rkcosim.waves.spec import TraceSpec, When

LAYER: dict[str, Any] = dict(channels=64, kernels=64, height=28, width=28, kernel=3, pad=1)
_BLOCK = "core0.CNA"


@dataclass(frozen=True)
class TraceMode:
    """One way to trace: `cycles` in `seconds`, the file's `bytes`, and the time relative to no waveform."""

    name: str
    cycles: int
    seconds: float
    cycles_per_second: float
    bytes: int
    bytes_per_cycle: float
    times_slower: float


def specs(folder: Path) -> dict[str, TraceSpec | None]:
    """Return name of each row -> what it traces; None for no waveform."""
    full = TraceSpec(folder / "full.vcd")
    found: dict[str, TraceSpec | None] = {
        "none": None,
        "off": None,
        "tasks": TraceSpec(folder / "tasks.vcd", scopes=("tasks",)),
        f"block {_BLOCK}": TraceSpec(folder / "block.vcd", scopes=(_BLOCK,)),
        "full": full,
        "ring of full": replace(full, path=folder / "ring.vcd", start=When.parse("error"), before=None),
    }
    try:
        from rkcosim.engines.traces.writing import fst_functions

        fst_functions()
        found["full, FST"] = TraceSpec(folder / "full.fst")
    except Exception as error:  # without the library this row is omitted
        print(f"no FST: {error}", file=sys.stderr)
    return found


def measure(model: CompiledModel, name: str, spec: TraceSpec | None) -> JobRun:
    """Run two jobs; the result is the number of bytes written."""

    def begin(engine: SocEngine) -> None:
        if spec is not None:
            engine.trace(spec)

    def size(engine: SocEngine) -> int:
        result = engine.trace_result()
        return result.bytes if result else 0

    with redirect_stderr(io.StringIO()):  # hides the messages about each file
        return timed(model, begin, lambda engine: engine.tracing.end(), size, jobs=2, traced=name != "none")


def main(given: list[str] | None = None) -> int:
    """Measure, print the table, write JSON."""
    repeat = {"type": int, "default": 3, "help": "runs of each row"}
    chosen = options(__doc__, given, repeat=repeat, json=JSON)
    model = compile_conv_layer(**LAYER)
    with tempfile.TemporaryDirectory() as folder:
        ways = {name: partial(measure, model, name, spec) for name, spec in specs(Path(folder)).items()}
        best = fastest(ways, lambda rounds: rounds < chosen.repeat)
    rows = []
    print(f"{'traced':18} {'cycles/s':>11} {'bytes/cycle':>12} {'times slower':>13}")
    for name, found in best.items():
        cycles, seconds, size = found.cycles, found.seconds, found.result
        rates = round(cycles / seconds, 1), size, round(size / cycles, 2)
        rows.append(
            TraceMode(name, cycles, round(seconds, 4), *rates, round(seconds / best["none"].seconds, 3))
        )
        print(f"{name:18} {cycles / seconds:11,.0f} {size / cycles:12,.1f} {rows[-1].times_slower:13.2f}")
    write(chosen.json, rows, benchmark="trace", layer=LAYER)
    return 0


if __name__ == "__main__":
    sys.exit(main())
