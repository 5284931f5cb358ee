"""The real core in every engine: same cycles, memory and logs, with the C++ cell and with its RTL."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rkcosim.compiler import LoadedModel, compile_conv_layer
from rkcosim.driver import Driver
from rkcosim.engines import DramConfig, open_engine

TINY = dict(channels=16, kernels=16, height=3, width=3, kernel=3, pad=1)
LAYERS: dict[str, dict[str, Any]] = {
    "tiny": TINY,
    "direct": dict(channels=48, kernels=40, height=7, width=9, kernel=3, pad=1, stride=2),
    "depthwise": dict(channels=80, kernels=80, height=6, width=5, kernel=3, pad=1, depthwise=True),
    "first layer": dict(channels=3, kernels=32, height=16, width=16, kernel=3, pad=1, stride=2),
}
JITTER = DramConfig(jitter=60, seed=3, peak_bytes_per_cycle=12)


def story(name: str, exact: bool, layer: str, dram: DramConfig | None = None) -> dict[str, Any]:
    """Run one layer on one core; return everything that can be observed."""
    model = compile_conv_layer(**LAYERS[layer])
    with open_engine(name, exact=exact, cores=1, dram=dram) as engine:
        loaded = LoadedModel(model, Driver(engine, 1_000_000))
        shape = model.inputs[0].shape
        loaded.set_input(0, np.random.default_rng(9).integers(-128, 128, shape).astype(np.int8))
        loaded.run()
        counters = engine.counters(0)
        return {
            "cycle": engine.cycle,
            "memory": [engine.memory.read(start, size) for start, size in engine.memory.ranges.items()],
            "tasks": engine.task_log(),
            "counters": (counters.events, counters.bytes_read, counters.bytes_written),
            "diagnostics": engine.diagnostics(),
            "faults": engine.faults(),
        }


def differing(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    return [key for key in one if one[key] != other[key]]


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize(
    ("name", "exact"), [("verilator", True), ("cxxrtl", False)], ids=["verilator-exact", "cxxrtl"]
)
def test_compiled_engines_agree(name: str, exact: bool, layer: str) -> None:
    for dram in (None, JITTER):
        default = story("verilator", False, layer, dram)
        assert default["tasks"] and default["counters"][0]["mac_slots"]
        assert differing(story(name, exact, layer, dram), default) == []


def test_amaranth_agrees() -> None:
    assert differing(story("amaranth", True, "tiny"), story("verilator", False, "tiny")) == []
