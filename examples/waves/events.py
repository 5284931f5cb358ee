"""Analysis of a model's event log, as in a notebook: which layer stalls most, and for which reason.

    python examples/waves/events.py                     # runs the digits network first
    python examples/waves/events.py build/run.parquet   # any log of `rkcosim run --events`

The log is a plain table, so `pandas.read_parquet`, DuckDB or Polars open the same file.
"""

import sys
from pathlib import Path

from rkcosim.engines.event_files import EventFiles, writing
from rkcosim.measure.models.run import run_model
from rkcosim.waves import events
from rkcosim.waves.events import EventLog

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "examples" / "digits" / "digits_int8.onnx"

STALLS = ("stall_feature", "stall_weight", "only_acc", "only_dpu", "only_write")
"""Reasons that exclude one another: in each of these cycles the array is idle."""


def recorded(path: Path) -> EventLog:
    """Run the digits network once and load its event log."""
    with writing([EventFiles(events=path)]):
        run_model(MODEL, check=False)
    return events.load(path)


def main() -> None:
    """Print one line per layer, then the longest burst."""
    if len(sys.argv) > 1:
        log = events.load(sys.argv[1])
    else:
        log = recorded(ROOT / "build" / "digits.events.parquet")
    print(f"{'layer':<20}{'cycles':>9}{'array':>8}{'stalled':>9}  mostly on")
    worst = None
    for layer in log.layers():
        stalls = {reason: layer.stalls.get(reason, 0) for reason in STALLS}
        total, reason = sum(stalls.values()), max(stalls, key=lambda name: stalls[name])
        print(
            f"{layer.layer or '(no name)':<20}{layer.cycles:>9,}{layer.mac_busy / layer.cycles:>8.0%}"
            f"{total / layer.cycles:>9.0%}  {reason if total else '-'}"
        )
        if worst is None or total > worst[0]:
            worst = total, layer.layer, reason
    if worst is not None:
        print(f"'{worst[1]}' stalls most: {worst[0]:,} cycles, mostly {worst[2]}")
    bursts = log.where(kind="burst")
    if len(bursts):
        slowest = max(bursts, key=lambda e: e.end - e.cycle)
        print(
            f"the longest burst: {slowest.direction} of {slowest.client} at 0x{slowest.address:08X}, asked "
            f"for in cycle {slowest.cycle:,}, over after {slowest.end - slowest.cycle:,} cycles"
        )


if __name__ == "__main__":
    main()
