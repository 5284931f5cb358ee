"""Cycles of single layers on the RTL beside the formula: how well the array is kept busy.

    python -m benchmarks.array [--engine NAME] [--json FILE]

Each layer is one job of one core; its cycles are those of its tasks, from the start of the first to
the end of the last.  The targets are those of DESIGN 4.5: at most 1.3 times the formula.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cosim.crosscheck.model_check import ModelChecker
from cosim.engines.engine import ENGINES, open_engine
from cosim.perf import formula
from cosim.perf.measure import meter
from sw.compiler import compile_conv_layer
from sw.driver import Driver

SCHEMA_VERSION = 1
RATIO_TARGET = 1.3
BUSY_TARGET = 0.8
MAX_CYCLES = 5_000_000

LAYERS: dict[str, dict[str, Any]] = {
    "1x1 512->512 at 14x14": dict(channels=512, kernels=512, height=14, width=14),
    "3x3 64->64 at 56x56": dict(channels=64, kernels=64, height=56, width=56, kernel=3, pad=1),
    "depthwise 3x3 256 at 28x28": dict(
        channels=256, kernels=256, height=28, width=28, kernel=3, pad=1, depthwise=True
    ),
    "first layer 3x3 3->32 from 224x224 stride 2": dict(
        channels=3, kernels=32, height=224, width=224, kernel=3, stride=2, pad=1
    ),
}
BUSY_LAYERS = ("1x1 512->512 at 14x14", "3x3 64->64 at 56x56")


@dataclass(frozen=True)
class Row:
    """One layer; `mac_busy` is the share of cycles in which the array works, empty slots included."""

    layer: str
    tasks: int
    cycles: int
    formula_npu: int
    formula_ddr: int
    formula_cycles: int
    ratio: float
    mac_busy: float
    match: bool | None

    @property
    def good(self) -> bool:
        """Whether the layer reaches its targets and its bytes are right."""
        busy = self.layer not in BUSY_LAYERS or self.mac_busy >= BUSY_TARGET
        return self.ratio <= RATIO_TARGET and busy and self.match is not False


def measure(name: str, engine_name: str | None = None, check: bool = False) -> Row:
    """Run one layer of `LAYERS` on a fresh engine; with `check` compare its bytes with both goldens."""
    model = compile_conv_layer(**LAYERS[name])
    engine = open_engine(engine_name, cores=1)
    try:
        loaded = model.load(Driver(engine, MAX_CYCLES), meter=meter(engine))
        info = model.inputs[0]
        x = np.random.default_rng(1).integers(-128, 128, info.shape).astype(np.int8)
        loaded.set_input(0, x)
        layer = loaded.run().layers[0]
        match = ModelChecker(loaded).check([x]).match if check else None
    finally:
        engine.close()
    if layer.cycles is None or layer.mac_busy is None:
        raise RuntimeError(f"{name}: the engine measured no tasks")
    tasks = model.plan.tasks
    reads, writes = sum(t.reads for t in tasks), sum(t.writes for t in tasks)
    bound = formula.cycles(layer.formula_npu, reads, writes)
    return Row(
        name,
        layer.tasks,
        layer.cycles,
        layer.formula_npu,
        formula.ddr(reads, writes),
        bound,
        round(layer.cycles / bound, 4),
        round(layer.mac_busy / layer.cycles, 4),
        match,
    )


def main(arguments: list[str] | None = None) -> int:
    """Measure all layers, print the table, write JSON; 0 when every target is met."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--engine", choices=ENGINES, help="default: the fastest one there is")
    parser.add_argument("--check", action="store_true", help="also compare every byte with the golden models")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    options = parser.parse_args(arguments)
    rows = []
    print(f"{'layer':44} {'tasks':>5} {'cycles':>8} {'formula':>8} {'ratio':>6} {'busy':>6}")
    for name in LAYERS:
        row = measure(name, options.engine, options.check)
        rows.append(row)
        verdict = "" if row.match is None else "  bytes equal" if row.match else "  BYTES DIFFER"
        print(
            f"{row.layer:44} {row.tasks:5} {row.cycles:8} {row.formula_cycles:8} {row.ratio:6.3f} "
            f"{row.mac_busy:6.1%}{verdict}{'' if row.good else '  target missed'}",
            flush=True,
        )
    if options.json:
        document = {"schema_version": SCHEMA_VERSION, "benchmark": "array", "rows": [asdict(r) for r in rows]}
        options.json.write_text(json.dumps(document, indent=2) + "\n")
    return 0 if all(row.good for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
