"""Effects of timing constants that are parameters: the same work run with other values of them.

python -m cosim.perf.constants.effects            # beside the stored figures
python -m cosim.perf.constants.effects --update   # store them
"""

from __future__ import annotations

import argparse
import json
import sys

from cosim.engines.library import DramConfig
from cosim.perf.constants.kinds import EFFECTS, SCHEMA_VERSION, effects
from cosim.perf.constants.registry import CONSTANTS


def measure_effects() -> dict[str, dict[str, dict[str, float]]]:
    """Run the 12 layers and MobileNetV1 with every change.

    `layers` is the change of the layers' sum, `worst` that of the layer which changes most.
    """
    before = _cycles(DramConfig())
    found: dict[str, dict[str, dict[str, float]]] = {}
    for constant in CONSTANTS:
        for change in constant.changes:
            now = _cycles(change.dram(DramConfig()))
            ratios = {name: now[name] / before[name] - 1 for name in before}
            network = ratios.pop(NETWORK, None)
            layers = sum(now[name] for name in ratios) / sum(before[name] for name in ratios) - 1
            effect = {"layers": layers, "worst": max(ratios.values(), key=abs)}
            if network is not None:
                effect[NETWORK] = network
            found.setdefault(constant.id, {})[change.words] = {k: round(v, 4) for k, v in effect.items()}
    return found


NETWORK = "mobilenet_v1"


def _cycles(dram: DramConfig) -> dict[str, int]:
    """Cycles of the 12 layers and of a network with a memory."""
    from cosim.engines.engine import open_engine
    from cosim.perf.boards.networks import NetworkError, network_file
    from cosim.perf.workloads import LAYERS, run_compiled
    from sw.compiler import compile_model

    found = {}
    for name, layer in LAYERS.items():
        with open_engine(cores=1, dram=dram) as engine:
            found[name] = layer.measure(engine).cycles
    try:
        model = compile_model(network_file(NETWORK).read_bytes())
    except NetworkError:
        return found
    with open_engine(cores=1, dram=dram) as engine:
        found[NETWORK] = run_compiled(engine, NETWORK, False, model).cycles
    return found


def main(arguments: list[str] | None = None) -> int:
    """Measure the effects, print and perhaps store them; 0 when they are as stored."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--update", action="store_true", help="store the effects")
    given = parser.parse_args(arguments)
    found = measure_effects()
    for id, changes in found.items():
        for words, effect in changes.items():
            print(f"{id:34} {words:>8}  " + "  ".join(f"{k} {v:+.2%}" for k, v in effect.items()))
    if given.update:
        data = {"schema_version": SCHEMA_VERSION, "effects": found}
        EFFECTS.write_text(json.dumps(data, indent=1) + "\n")
        return 0
    return 0 if found == effects() else 1


if __name__ == "__main__":
    sys.exit(main())
