"""How many layers of Hexagon NN are exact as one layer of the NPU, and a TFLite file as such a graph.

    python -m benchmarks.hexagon                      # random layers of several shapes
    python -m benchmarks.hexagon --model FILE.tflite  # a file of unsigned bytes, on the default engine

The second form compares every layer with both golden models, and the result with that of the file.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from rkcosim.apis.hexagon.layers import exact_scaling
from rkcosim.apis.hexagon.npu import Npu
from rkcosim.apis.link.instruments import open_machine
from rkcosim.compiler import LoadedModel, compile_model
from rkcosim.driver import Driver
from rkcosim.engines.engine import open_engine
from rkcosim.running.settings import Settings
from tests.makers.hexagon_graphs import execute
from tests.makers.hexagon_networks import Form, graph_of_tflite, random_layer

SHAPES = [
    *((3, 16, 3, False), (16, 32, 1, False), (32, 32, 3, False)),
    *((256, 64, 1, False), (64, 64, 3, True), (128, 128, 3, False)),
]
"""Depth, kernels, rows of a kernel, depthwise."""

FORMS: tuple[Form, Form] = ("fused", "requantised")


def layers(count: int) -> None:
    """Print how many of `count` random layers of each shape are exact."""
    head = f"{'depth':>6} {'kernels':>8} {'rows':>5} {'depthwise':>10} {'sums a code':>12}"
    print(head + "".join(f"{form:>14}" for form in FORMS))
    for shape in SHAPES:
        drawn = {form: [random_layer(seed, shape, form) for seed in range(count)] for form in FORMS}
        sums = np.mean([one.limits.step / one.step for one in drawn["fused"]])
        found = [sum(exact_scaling(one) is not None for one in drawn[form]) for form in FORMS]
        depth, kernels, rows, depthwise = shape
        text = f"{depth:6} {kernels:8} {rows:5} {depthwise!s:>10} {sums:12.0f}"
        print(text + "".join(f"{f'{n} of {count}':>14}" for n in found))


def network(path: Path, engine: str | None) -> None:
    """Print the cycles of a file as a graph, and its differences from the file itself."""
    data = path.read_bytes()
    model = compile_model(data)
    shape = model.inputs[0].shape
    x = np.random.default_rng(1).integers(0, 256, shape, dtype=np.uint8)
    device = open_engine("golden")
    with LoadedModel(model, Driver(device)) as loaded:
        loaded.set_input(0, x)
        loaded.run()
        wanted = loaded.get_output(0, raw=True).reshape(-1).astype(int)
    device.close()
    for form in FORMS:
        machine = open_machine(Settings(engine=engine, check=True))
        graph, npu = graph_of_tflite(data, form), Npu(machine)
        graph.debug_level = 2
        outcome = execute(graph, [np.ascontiguousarray(x.transpose(0, 2, 3, 1))], npu)
        log = graph.take_log()
        if outcome.result:
            raise SystemExit(log.splitlines()[-1])
        difference = np.abs(outcome.outputs[0].codes.reshape(-1).astype(int) - wanted)
        convolutions = sum("onv" in node.name or "Supernode" in node.name for node in graph.nodes)
        inexact = log.count("no layer of the NPU")
        exact = f"{convolutions - inexact} of {convolutions} convolutions in one layer"
        print(f"{form}: {graph.last_cycles:,} cycles, {exact}")
        print(
            f"  {np.count_nonzero(difference)} of {difference.size} bytes differ, by up to {difference.max()}"
        )
        npu.forget(graph)
        machine.close()


def main() -> None:
    """Measure layers or a file."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hexagon", description=__doc__)
    parser.add_argument("--count", type=int, default=20, help="layers of each shape (default: 20)")
    parser.add_argument("--model", type=Path, help="TFLite file of unsigned bytes")
    parser.add_argument("--engine", help="engine for --model; default: the fastest RTL engine")
    asked = parser.parse_args()
    if asked.model is None:
        layers(asked.count)
    else:
        network(asked.model, asked.engine)


if __name__ == "__main__":
    main()
