"""Effects of timing constants that are parameters: the same work is run with other values of them.

python -m tools.effects            # compare with the stored figures
python -m tools.effects --update   # store them
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

from rkcosim.compiler import compile_model
from rkcosim.engines.engine import open_engine
from rkcosim.engines.library import DramConfig
from rkcosim.measure.perf.boards.networks import NetworkError, network_file
from rkcosim.measure.perf.constants import EFFECTS, SCHEMA_VERSION, effects
from rkcosim.measure.perf.measure import options
from rkcosim.measure.perf.page import write_stored
from rkcosim.measure.perf.workloads import LAYERS, run_work

NETWORK = "mobilenet_v1"

TRIED: dict[str, tuple[float, ...]] = {
    "peak_bytes_per_cycle": (11.825, 47.3),
    "core_bytes_per_cycle": (8.0, 23.65),
    "port_bytes_per_cycle": (16.0,),
    "read_latency": (60, 240),
    "write_latency": (30, 120),
    "jitter": (60,),
    "read_outstanding": (64,),
    "write_outstanding": (4,),
    "client_read_outstanding": (16,),
    "client_write_outstanding": (4,),
}
"""Field of `DramConfig` -> values that are tried."""


def measure_effects() -> dict[str, dict[str, dict[str, float]]]:
    """Run the 12 layers and MobileNetV1 with every change.

    `layers` is the change of the layers' sum, `worst` that of the layer with the largest change.
    """
    before = _cycles(DramConfig())
    found: dict[str, dict[str, dict[str, float]]] = {}
    for name, values in TRIED.items():
        for value in values:
            change: dict[str, Any] = {name: value}
            now = _cycles(replace(DramConfig(), **change))
            ratios = {work: now[work] / before[work] - 1 for work in before}
            network = ratios.pop(NETWORK, None)
            layers = sum(now[work] for work in ratios) / sum(before[work] for work in ratios) - 1
            effect = {"layers": layers, "worst": max(ratios.values(), key=abs)}
            if network is not None:
                effect[NETWORK] = network
            rounded = {work: round(by, 4) for work, by in effect.items()}
            found.setdefault(f"dram.{name}", {})[f"{value:g}"] = rounded
    return found


def _cycles(dram: DramConfig) -> dict[str, int]:
    """Return the cycles of the 12 layers and of a network with a memory."""
    found = {}
    for name, layer in LAYERS.items():
        with open_engine(cores=1, dram=dram) as engine:
            found[name] = layer.measure(engine).cycles
    try:
        model = compile_model(network_file(NETWORK).read_bytes())
    except NetworkError:
        return found
    with open_engine(cores=1, dram=dram) as engine:
        found[NETWORK] = run_work(engine, NETWORK, model).cycles
    return found


def main(arguments: list[str] | None = None) -> int:
    """Measure the effects, print and optionally store them; return 0 if they equal the stored ones."""
    given = options(__doc__, arguments, update="store the effects")
    found = measure_effects()
    for id, changes in found.items():
        for words, effect in changes.items():
            print(f"{id:34} {words:>8}  " + "  ".join(f"{k} {v:+.2%}" for k, v in effect.items()))
    if given.update:
        write_stored(EFFECTS, SCHEMA_VERSION, {"effects": found})
        return 0
    return 0 if found == effects() else 1


if __name__ == "__main__":
    sys.exit(main())
