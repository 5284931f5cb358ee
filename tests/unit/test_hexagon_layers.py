"""Layers of the NPU for Hexagon NN: multipliers that are exact, compared with the definition at every sum."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("tflite", reason="needs the extra tflite")

from rkcosim.apis.hexagon.arithmetic import Range
from rkcosim.apis.hexagon.geometry import Padding, geometry
from rkcosim.apis.hexagon.host_sums import HostArithmetic
from rkcosim.apis.hexagon.layers import exact_scaling, layer_model, pool_model, stairs
from rkcosim.apis.hexagon.npu import Meter, NpuArithmetic, run_codes
from rkcosim.apis.hexagon.tensors import value
from rkcosim.apis.link.instruments import open_machine
from rkcosim.running.machine import Machine
from rkcosim.running.settings import Settings
from tests.makers.hexagon_networks import Form, random_layer

SHAPES = [(3, 8, 3, False), (16, 32, 1, False), (24, 24, 3, True)]
"""Depth, kernels, rows of a kernel, depthwise."""


@pytest.mark.parametrize("form", ["fused", "requantised"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_exact_at_every_sum(shape: tuple[int, int, int, bool], form: Form) -> None:
    found = 0
    for seed in range(8):
        one = random_layer(seed, shape, form)
        scaling = exact_scaling(one)
        if scaling is None:
            continue
        found += 1
        low, high = one.ends
        sums = np.arange(max(low, -400_000), min(high, 400_000) + 1)
        for up in (False, True):
            assert (scaling.codes(sums, up) == one.codes(sums)).all(), f"seed {seed}"
    assert found >= 6, f"{found} of 8 layers are exact"


def test_another_function_is_refused() -> None:
    """A staircase with one step in the wrong place has no multipliers."""
    one = random_layer(0, SHAPES[0], "fused")
    rises, reached = stairs(one.codes, *one.ends)
    place, code = int(rises[100]), int(reached[100])

    def wrong(sums: np.ndarray) -> np.ndarray:
        found = one.codes(sums)
        return np.where((np.asarray(sums) >= place) & (np.asarray(sums) < place + 40), code - 1, found)

    assert exact_scaling(one) is not None
    assert exact_scaling(replace(one, codes=wrong)) is None


def test_stairs() -> None:
    rises, reached = stairs(lambda s: np.clip(s // 10, 0, 255).astype(np.uint8), -50, 35)
    assert rises.tolist() == [10, 20, 30]
    assert reached.tolist() == [1, 2, 3]


@pytest.fixture(scope="module")
def machine() -> object:
    """The golden engine, with every layer compared with both golden models."""
    made = open_machine(Settings(engine="golden", check=True))
    yield made
    made.close()


@pytest.mark.parametrize("form", ["fused", "requantised"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_layers_on_the_golden_model(machine: Machine, shape: tuple[int, int, int, bool], form: Form) -> None:
    one = random_layer(1, shape, form)
    model = layer_model(one)
    assert model is not None
    assert len(model.plan.steps) == 1
    x = np.random.default_rng(5).integers(0, 256, (2, *one.shape), dtype=np.uint8)
    running = machine.load("layer", model)
    found = run_codes(running, x, Meter(machine))
    machine.unload(running)
    compute = HostArithmetic().depthwise if one.depthwise else HostArithmetic().convolve
    sums = compute(x, one.x_zero, one.weights, one.w_zero, one.window).astype(np.int64) + one.bias
    assert (found == one.codes(sums)).all()
    assert np.unique(found).size > 50


@pytest.mark.parametrize("zeros", [(0, 0), (3, 77), (255, 128)])
def test_sums_on_the_golden_model(machine: Machine, zeros: tuple[int, int]) -> None:
    """Matrix products of signed bytes give the sums of unsigned ones; `check` compares them as well."""
    rng = np.random.default_rng(7)
    x = rng.integers(0, 256, (2, 5, 6, 19), dtype=np.uint8)
    w = rng.integers(0, 256, (3, 3, 19, 37), dtype=np.uint8)
    window = geometry(value(x), (3, 3), (2, 1), Padding.SAME)
    meter = Meter(machine)
    found = NpuArithmetic(machine, meter).convolve(x, zeros[0], w, zeros[1], window)
    assert (found == HostArithmetic().convolve(x, zeros[0], w, zeros[1], window)).all()
    assert meter.take().jobs == 1
    assert meter.take().jobs == 0


@pytest.mark.parametrize("kernels", [1, 2])
def test_depthwise_sums_on_the_golden_model(machine: Machine, kernels: int) -> None:
    rng = np.random.default_rng(kernels)
    x = rng.integers(0, 256, (2, 5, 6, 45), dtype=np.uint8)
    w = rng.integers(0, 256, (3, 3, 45, kernels), dtype=np.uint8)
    window = geometry(value(x), (3, 3), (1, 2), Padding.SAME)
    meter = Meter(machine)
    found = NpuArithmetic(machine, meter).depthwise(x, 9, w, 131, window)
    assert (found == HostArithmetic().depthwise(x, 9, w, 131, window)).all()
    assert meter.take().jobs == 2  # 32 and 13 channels


def test_pooling_on_the_golden_model(machine: Machine) -> None:
    x = np.random.default_rng(3).integers(0, 256, (2, 9, 9, 20), dtype=np.uint8)
    for padding in (Padding.SAME, Padding.VALID):
        window = geometry(value(x), (3, 3), (2, 2), padding)
        assert pool_model("pool", (9, 9, 20), window) is not None
        found = NpuArithmetic(machine, Meter(machine)).max_pool(x, window)
        assert (found == HostArithmetic().max_pool(x, window)).all()


def test_averages_on_the_golden_model(machine: Machine) -> None:
    """Windows inside the input are a layer of the NPU; others are computed by the host."""
    x = np.random.default_rng(4).integers(0, 256, (1, 8, 8, 24), dtype=np.uint8)
    for rows, stride, padding, jobs in (
        (8, 1, Padding.VALID, 1),
        (3, 2, Padding.VALID, 1),
        (3, 1, Padding.SAME, 0),
    ):
        meter = Meter(machine)
        window = geometry(value(x), (rows, rows), (stride, stride), padding)
        found = NpuArithmetic(machine, meter).average_pool(x, window)
        assert (found == HostArithmetic().average_pool(x, window)).all()
        assert meter.take().jobs == jobs


def test_a_range_without_zero_point_is_none() -> None:
    assert Range(0.0, 0.0).zero == 0
