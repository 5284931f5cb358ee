"""Convolutions whose channels have very different scales, against exact arithmetic."""

from __future__ import annotations

import numpy as np
import pytest

from rkcosim.compiler import CompiledModel, LoadedModel
from rkcosim.compiler.graph import (
    Binary,
    Clamp,
    Conv,
    Graph,
    GraphInput,
    GraphOutput,
    Lookup,
    Tensor,
    Window,
)
from rkcosim.compiler.steps import ConvStep
from rkcosim.driver import Driver
from rkcosim.engines.engine import open_engine
from rkcosim.verify.crosscheck.model_check import ModelChecker
from tests.system.golden_runs import checked_run

CHANNELS, SIZE = 37, 6


class Layer:
    """A convolution with random weights, and its result in exact arithmetic."""

    def __init__(
        self,
        scales: np.ndarray,
        seed: int = 0,
        *,
        depthwise: bool = False,
        insert: tuple[int, int] = (1, 1),
        clamp: Clamp | None = None,
        behind: str = "",
        zero: int = -7,
    ) -> None:
        rng = np.random.default_rng(seed)
        kernels = len(scales)
        depth, kernel = (1, 3) if depthwise else (20, 3)
        self.clamp, self.scales, self.zero = clamp or Clamp(), scales, zero
        self.weights = rng.integers(-127, 128, (kernels, depth, kernel, kernel), dtype=np.int8)
        inputs = kernels if depthwise else depth
        self.real_bias = rng.uniform(-3, 3, kernels)
        self.x_scale, self.y_scale = 1 / 16, 0.05
        self.bias = np.rint(self.real_bias / (scales * self.x_scale)).astype(np.int64)
        self.bias = np.clip(self.bias, -(2**30), 2**30)
        window = Window((kernel, kernel), pads=(1, 1, 1, 1))
        out = SIZE if insert == (1, 1) else SIZE * insert[0] - 1
        self.graph = graph = Graph("scales")
        graph.tensors["x"] = Tensor("x", (1, inputs, SIZE, SIZE), self.x_scale, zero, (inputs, SIZE, SIZE))
        cube = (kernels, out, out)
        graph.tensors["y"] = Tensor("y", (1, *cube), self.y_scale, 3, cube)
        groups = kernels if depthwise else 1
        graph.ops.append(
            Conv(
                *("conv", ("x",), "y", self.weights, scales, 0, self.bias, window, groups),
                insert=insert,
                clamp=self.clamp,
            )
        )
        graph.inputs.append(GraphInput("x", "x", (1, inputs, SIZE, SIZE)))
        last = "y"
        if behind:
            last = "z"
            graph.tensors["z"] = Tensor("z", (1, *cube), self.y_scale, 3, cube)
        if behind == "table":
            graph.ops.append(Lookup("table", ("y",), "z", np.arange(-128, 128).astype(np.int8)[::-1], "Flip"))
        if behind == "add":
            graph.tensors["w"] = Tensor("w", (1, *cube), self.y_scale, 0, cube)
            graph.constants["w"] = np.zeros(cube, np.int8)
            graph.ops.append(Binary("add", ("y", "w"), "z", method="add"))
        graph.outputs.append(GraphOutput(last, (1, *cube), last, False))
        self.x = rng.integers(-128, 128, (1, inputs, SIZE, SIZE), dtype=np.int8)
        self.depthwise, self.insert = depthwise, insert

    def exact(self) -> np.ndarray:
        """Codes of y before they are rounded, (OC, H, W)."""
        image = self.x[0].astype(np.int64) - self.zero
        if self.insert != (1, 1):
            fy, fx = self.insert
            wide = np.zeros((len(image), (SIZE - 1) * fy + 1, (SIZE - 1) * fx + 1), np.int64)
            wide[:, ::fy, ::fx] = image
            image = wide
        padded = np.pad(image, ((0, 0), (1, 1), (1, 1)))
        taps = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))
        form = "chwij,cij->chw" if self.depthwise else "chwij,ocij->ohw"
        weights = self.weights[:, 0] if self.depthwise else self.weights
        sums = np.einsum(form, taps, weights.astype(np.int64)) + self.bias[:, None, None]
        real = sums * (self.scales * self.x_scale)[:, None, None]
        real = np.clip(real, self.clamp.low, self.clamp.high)
        return np.clip(real / self.y_scale + 3, -128, 127)


def spread(low: float, seed: int = 0) -> np.ndarray:
    """Scales between 2^-13, whose outputs cover part of the range of int8, and 2^-13 / `low`."""
    rng = np.random.default_rng(seed)
    return 2.0**-13 * np.exp(rng.uniform(0, -np.log(low), CHANNELS))


CASES = {
    "even": (spread(0.3), {}),
    "hundreds": (spread(1 / 300), {}),
    "thousands": (spread(1e-4), {}),
    "millions": (spread(1e-6), {}),
    "one large": (np.where(np.arange(CHANNELS) == 5, 1.0, spread(0.3)), {}),
    "clamped": (spread(1e-3), {"clamp": Clamp(0.0, 3.0)}),
    "clamped below": (spread(1e-3), {"clamp": Clamp(-1.0, 3.0)}),
    "depthwise": (spread(1e-3), {"depthwise": True}),
    "transposed": (spread(1e-3), {"insert": (2, 2)}),
    "table": (spread(1e-3), {"behind": "table"}),
    "add": (spread(1e-3), {"behind": "add"}),
}


def made(name: str) -> Layer:
    scales, options = CASES[name]
    return Layer(scales, seed=sorted(CASES).index(name), **options)


def compare(name: str, layer: Layer, codes: np.ndarray) -> None:
    want = layer.exact()
    if layer.graph.outputs[0].value == "z" and name == "table":
        codes = -1 - codes.astype(np.int64)  # the table is its own inverse
    apart = np.abs(codes.reshape(want.shape) - want)
    assert apart.max() < 1.0, f"{name}: {apart.max():.3f} steps from the exact result"
    assert (apart > 0.7).mean() < 1e-3


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str) -> None:
    """Every channel is exact to a step, whatever its scale is in comparison with the others."""
    layer = made(name)
    model = CompiledModel(layer.graph)
    compare(name, layer, checked_run(model, [layer.x]))
    step = next(step for step in model.plan.steps if isinstance(step, ConvStep))
    assert (step.seconds is not None) == (name != "even")
    assert not [note for note in model.plan.notes if "too small" in note]


def test_dead_channels() -> None:
    """Channels without weights change no other channel's multiplier, whatever scale they have."""
    scales = spread(0.3)
    plain, dead = Layer(scales), Layer(np.where(np.arange(CHANNELS) % 9 == 4, 1.0, scales))
    for layer in (plain, dead):
        layer.weights[4::9] = 0
        layer.bias[4::9] = 0
    steps = [CompiledModel(layer.graph).plan.steps[0] for layer in (plain, dead)]
    first, second = (step.multipliers for step in steps if isinstance(step, ConvStep))
    keep = np.arange(CHANNELS) % 9 != 4
    assert (first[keep] == second[keep]).all() and second[keep].min() > 4000
    compare("dead", dead, checked_run(CompiledModel(dead.graph), [dead.x]))


def test_constant_channels() -> None:
    """A channel without weights keeps its bias, also if its scale is far above the others."""
    layer = Layer(np.where(np.arange(CHANNELS) == 4, 1.0, spread(0.3)))
    layer.weights[4], layer.bias[4] = 0, 48
    compare("constant", layer, checked_run(CompiledModel(layer.graph), [layer.x]))
    assert layer.exact()[4].min() == 48 / 16 / 0.05 + 3


def test_warning_names_the_channel(caplog: pytest.LogCaptureFixture) -> None:
    """A channel that even two multipliers cannot represent is named."""
    scales = spread(0.3)
    scales[7], scales[8] = 1e-7, 1.0
    layer = Layer(scales)
    layer.bias[7] = 2**30
    notes = CompiledModel(layer.graph).plan.notes
    assert len(notes) == 1 and "Conv 'conv': the multipliers of 1 channels" in notes[0]
    assert "channel 7 (multiplier " in notes[0] and notes[0] in caplog.text


@pytest.mark.heavy
def test_rtl() -> None:
    """The same layers on the RTL."""
    engine = open_engine(cores=1)
    for name in CASES:
        layer = made(name)
        with LoadedModel(CompiledModel(layer.graph), Driver(engine, 3_000_000)) as loaded:
            loaded.set_input(0, layer.x)
            loaded.run()
            checker = ModelChecker(loaded)
            verdict = checker.check([layer.x])
            assert verdict.match, f"{name}: {verdict.first}"
            assert checker.check_memory() is None, name
            checker.close()
    engine.close()
