"""Simulated cycles a second of the whole core in each engine, on a busy 3x3 layer.

    python -m benchmarks.engine [--engines NAME ...] [--seconds S] [--json FILE]

Every engine runs the same layer (3x3, 64 to 64 channels at 56 x 56) and is timed from the moment the
array has work, until it is done or `--seconds` have passed: processor time, which other programs disturb
less than they do the clock's.  Beside each: how many times Amaranth's
own simulator that is, and which part of the bound, a loop in C++ that does the multiply-accumulates
and nothing else (DESIGN 5).  The default engine is to reach 200 times Amaranth's simulator.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cosim.engines import SocEngine, open_engine, toolchain
from cosim.engines.errors import BuildError
from sw.compiler import compile_conv_layer
from sw.driver import Driver

SCHEMA_VERSION = 1
RATIO_TARGET = 200
LAYER: dict[str, Any] = dict(channels=64, kernels=64, height=56, width=56, kernel=3, pad=1)
VARIANTS = {
    "verilator": ("verilator", False),
    "verilator-exact": ("verilator", True),
    "cxxrtl": ("cxxrtl", False),
    "cxxrtl-exact": ("cxxrtl", True),
    "amaranth": ("amaranth", True),
}
"""Name on the command line to (engine, exact); Amaranth's simulator last, it is slow."""

_WARM_UP = 200_000  # cycles within which the array must have begun
_JOB_CYCLES = 10_000_000


@dataclass(frozen=True)
class Row:
    """One engine: `cycles` simulated in `seconds`, the array busy for the share `mac_busy` of them."""

    engine: str
    cell: str
    cycles: int
    seconds: float
    cycles_per_second: float
    mac_busy: float
    ratio_to_amaranth: float | None
    ratio_to_bound: float | None


class _EnoughError(Exception):
    """Ends the job once enough has been timed."""


class _Timed:
    """The engine as the driver sees it, timing it while the array works."""

    def __init__(self, engine: SocEngine, seconds: float) -> None:
        self._engine, self._seconds = engine, seconds
        self.cycles, self.seconds, self.slots = 0, 0.0, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def _slots(self) -> int:
        return self._engine.counters(0).events.get("mac_slots", 0)

    def run_until_irq(self, core_mask: int, max_cycles: int) -> int:
        engine = self._engine
        for _ in range(_WARM_UP // 100):
            if self._slots() or engine.irq & core_mask:
                break
            engine.run_until_irq(core_mask, 100)
        slots, step, begin = self._slots(), 32, engine.cycle
        start = time.thread_time()
        raised = 0
        while not raised and engine.cycle - begin < max_cycles:
            if time.thread_time() - start > self._seconds:
                break
            raised = engine.run_until_irq(core_mask, step)
            step = min(2 * step, 16384)
        self.seconds = time.thread_time() - start
        self.cycles = engine.cycle - begin
        self.slots = self._slots() - slots
        raise _EnoughError


def measure(variant: str, seconds: float) -> tuple[str, str, int, float, int]:
    """Engine, cell, cycles, seconds and cycles with the array busy, of one variant."""
    name, exact = VARIANTS[variant]
    model = compile_conv_layer(**LAYER)
    with open_engine(name, exact=exact, cores=1) as engine:
        timed = _Timed(engine, seconds)
        loaded = model.load(Driver(timed, _JOB_CYCLES))
        shape = model.inputs[0].shape
        loaded.set_input(0, np.random.default_rng(1).integers(-128, 128, shape).astype(np.int8))
        try:
            loaded.run()
        except _EnoughError:
            pass
        if not timed.cycles:
            raise RuntimeError(f"{variant}: the layer never kept the array busy")
        return engine.name, engine.cell, timed.cycles, timed.seconds, timed.slots


def bound() -> float | None:
    """Cycles a second of the multiply-accumulates alone on this machine; None without a compiler."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = Path(__file__).with_name("bound.cpp")
        try:
            tool = toolchain.compiler()
            tool.run(["-std=c++17", "-O3", "-march=native", str(source), "-o", "bound"], folder)
        except BuildError as error:
            print(f"no bound: {error}", file=sys.stderr)
            return None
        done = subprocess.run([folder / "bound"], capture_output=True, text=True, check=True)
        return float(done.stdout.split()[0])


def main(arguments: list[str] | None = None) -> int:
    """Measure, print the table, write JSON; 0 when the default engine reaches its target."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--engines", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--seconds", type=float, default=10, help="time for each engine")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    options = parser.parse_args(arguments)
    best = bound()
    measured = {variant: measure(variant, options.seconds) for variant in options.engines}
    rates = {variant: m[2] / m[3] for variant, m in measured.items()}
    slowest = rates.get("amaranth")
    rows = []
    print(f"{'engine':10} {'cell':4} {'cycles/s':>12} {'busy':>6} {'x Amaranth':>11} {'of bound':>9}")
    for variant, (engine, cell, cycles, seconds, slots) in measured.items():
        rate = rates[variant]
        row = Row(
            engine,
            cell,
            cycles,
            round(seconds, 3),
            round(rate, 1),
            round(slots / cycles, 4),
            round(rate / slowest, 1) if slowest else None,
            round(rate / best, 6) if best else None,
        )
        rows.append(row)
        times = f"{row.ratio_to_amaranth:.0f}" if slowest else "-"
        share = f"{row.ratio_to_bound:.4f}" if best else "-"
        print(f"{engine:10} {cell:4} {rate:12,.0f} {row.mac_busy:6.1%} {times:>11} {share:>9}")
    if best:
        print(f"bound: {best:,.0f} cycles/s")
    if options.json:
        document = {
            "schema_version": SCHEMA_VERSION,
            "benchmark": "engine",
            "layer": LAYER,
            "bound_cycles_per_second": best,
            "rows": [asdict(row) for row in rows],
        }
        options.json.write_text(json.dumps(document, indent=2) + "\n")
    if "verilator" in rates and slowest:
        return 0 if rates["verilator"] >= RATIO_TARGET * slowest else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
