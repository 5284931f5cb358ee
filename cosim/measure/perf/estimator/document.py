"""An estimate as a JSON document, and as the data of the report's charts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rkcosim.measure.perf.boards.expected import board_json
from rkcosim.measure.perf.estimator.estimate import Estimate
from rkcosim.measure.report.data import ReportedRun, from_json

if TYPE_CHECKING:
    from rkcosim.measure.perf.estimator.whatif import Variant

LAYER = (
    "name op target tasks cycles bound macs bytes_read bytes_written peak spent slots loaded itemsize".split()
)
"""Members of a layer's estimate that are copied into the JSON form."""

MEMORY = ("peak_bytes_per_cycle", "core_bytes_per_cycle", "read_latency", "write_latency")
"""Settings of the memory that are copied into the JSON form."""


def as_json(name: str, found: Estimate, clock: float, others: Sequence[Variant] = ()) -> dict[str, Any]:
    """Return the result as plain values for JSON."""
    total = sum(layer.cycles or 0 for layer in found.layers)
    layers = []
    for layer in found.layers:
        cycles = layer.cycles
        times = {
            "milliseconds": None if cycles is None else cycles / clock / 1000,
            "share": None if cycles is None else round(cycles / max(total, 1), 5),
        }
        layers.append({name: getattr(layer, name) for name in LAYER} | times)
    return {
        "model": name,
        "schema_version": 1,
        "engine": "estimate",
        "clock_mhz": clock,
        "cores": found.cores,
        "on_one_core": found.on_one_core,
        "dram": {name: getattr(found.dram, name) for name in MEMORY}
        | {"gigabytes_per_second": found.dram.bandwidth(found.cores) * clock / 1000},
        "cycles": found.cycles,
        "milliseconds": found.cycles / clock / 1000,
        "jobs": len(found.jobs),
        "samples": found.samples,
        "macs": sum(layer.macs for layer in found.layers),
        "layers": layers,
        "host_layers": [item.name for item in found.host.operators] if found.host else [],
        "host": _host(found),
        "board": board_json(found.cycles, len(found.jobs), clock),
        "what_if": [variant.__dict__ for variant in others],
    }


def _host(found: Estimate) -> dict[str, Any] | None:
    """Return how many operators of each kind the host computes, and their shares; None if there are none."""
    if found.host is None or not found.host.operators:
        return None
    return {
        "operators": dict(Counter(item.kind for item in found.host.operators).most_common()),
        "element_share": found.host.element_share,
        "mac_share": found.host.mac_share,
    }


def host_line(host: dict[str, Any]) -> str:
    """Return what the member `host` of a document says, in words."""
    kinds = ", ".join(
        kind if count == 1 else f"{kind} {count} times" for kind, count in host["operators"].items()
    )
    return (
        f"on the host, not included: {host['element_share']:.2%} of all elements and "
        f"{host['mac_share']:.2%} of all MACs ({kinds})"
    )


def as_run(result: dict[str, Any]) -> ReportedRun:
    """Return the data for the charts of the report."""
    run = from_json(result)
    for row in run.rows:
        row.cores = list(range(result["cores"])) if row.peak else []
    return run
