"""What is said to limit a layer does limit it: the RTL with a faster memory, and tasks without tables."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rkcosim.engines.library import DramConfig
from rkcosim.measure.models.run import run_model
from rkcosim.measure.perf.attribution import MEMORY
from rkcosim.measure.perf.estimator import estimate_model

pytest.importorskip("onnxruntime", reason="needs the extra onnx")

DRAM = DramConfig()
FASTER = replace(DRAM, core_bytes_per_cycle=2 * DRAM.core_bytes_per_cycle)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from rkcosim.examples.networks.make import Network, quantise

    network = Network("causes", (1, 32, 24, 24), 1)
    x = network.conv("image", 32, 32, 3)
    x = network.add("Mul", x, network.add("Sigmoid", x))
    x = network.add("Relu", network.conv(x, 32, 32, 3))
    x = network.add("Relu", network.conv(x, 32, 16, 1))
    x = network.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    made = network.model(x)
    path = tmp_path_factory.mktemp("causes") / "causes.onnx"
    path.write_bytes(quantise(made, [network.rng.normal(size=network.shape).astype(np.float32)]))
    return path


def test_a_faster_memory_helps_where_memory_is_the_cause(model: Path) -> None:
    """The cycles of memory are an estimate of what a memory without any delay would save."""
    slow, fast = (run_model(model, check=False, dram=dram).layers for dram in (DRAM, FASTER))
    bounds = [row.bound for row in slow]
    assert bounds[:2] == ["DPU (LUT, 2 elements a cycle)", "array"]
    for before, after in zip(slow, fast, strict=True):
        assert before.cycles and after.cycles and sum(before.spent.values()) == before.cycles
        gained = 1 - after.cycles / before.cycles
        memory = sum(before.spent[cause] for cause in MEMORY) / before.cycles
        assert gained <= memory + 0.01, (before.name, before.spent, after.spent)
        if memory > 0.6:
            assert gained > 0.2, (before.name, before.spent, after.spent)
    assert any(sum(row.spent[cause] for cause in MEMORY) > 0.6 * (row.cycles or 1) for row in slow)


def test_estimates_name_the_same_causes(model: Path) -> None:
    rows = run_model(model, check=False, dram=DRAM).layers
    layers = estimate_model(model, dram=DRAM).layers
    right = sum(
        min(count, layer.spent[cause])
        for row, layer in zip(rows, layers, strict=True)
        for cause, count in row.spent.items()
    )
    assert right > 0.95 * sum(sum(row.spent.values()) for row in rows)
    assert [row.bound for row in rows] == [layer.bound for layer in layers]
