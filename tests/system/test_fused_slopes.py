"""LeakyRelu and PRelu: in a convolution's task, and a separate task for floats."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rkcosim.compiler import CompiledModel, LoadedModel, compile_model
from rkcosim.compiler.graph import Clamp, Conv, Graph, GraphInput, GraphOutput, Slope, Tensor, Window
from rkcosim.compiler.steps import ConvStep, HostStep, SlopeStep
from rkcosim.driver import Driver
from rkcosim.engines.engine import open_engine
from rkcosim.verify.crosscheck.model_check import ModelChecker
from tests.system.golden_runs import checked_run

KINDS: dict[str, dict[str, Any]] = {
    "leaky": {},
    "kernels not whole groups": {"channels": 20, "kernels": 20},
    "depthwise": {"depthwise": True, "channels": 40, "kernels": 40},
    "two tiles of rows": {"size": (150, 120), "kernels": 40, "channels": 48},
    "two tiles of kernels": {"size": (6, 8), "kernels": 40, "channels": 1280},
    "steep": {"slopes": 2.5, "after": (0.03, 7)},
    "one pixel": {"size": (1, 1), "side": 1},
}
FLOATS: dict[str, dict[str, Any]] = {
    **KINDS,
    "one a channel": {"slopes": "many"},
    "one a channel, two tiles of kernels": {"slopes": "many", **KINDS["two tiles of kernels"]},
    "one a channel, depthwise": {"slopes": "many", "depthwise": True, "channels": 72, "kernels": 72},
}


def network(
    *,
    channels: int = 32,
    kernels: int = 24,
    size: tuple[int, int] = (5, 7),
    side: int = 3,
    depthwise: bool = False,
    slopes: float | str = 0.1,
    after: tuple[float, int] = (0.0157, -103),
    real: bool = False,
) -> Graph:
    """Return y = slope(conv(x)) of bytes or fp16; `after`: scale and zero point of y; 0.03 and 7 for a."""
    rng = np.random.default_rng(1)
    graph = Graph("leaky")
    depth = 1 if depthwise else channels
    given = rng.uniform(0.5, 1.2, kernels) if slopes == "many" else np.array([float(slopes)])
    for name, cube, scale, zero in (
        ("x", (channels, *size), 0.05, -4),
        ("a", (kernels, *size), 0.03, 7),
        ("y", (kernels, *size), *after),
    ):
        graph.tensors[name] = Tensor(name, (1, *cube), scale, zero, cube, real=real)
    weights: Any = rng.integers(-127, 128, (kernels, depth, side, side), dtype=np.int8)
    weight_scales = rng.uniform(0.3, 1.0, kernels) * 1.2 / (0.05 * 75 * 75 * np.sqrt(depth * side**2))
    bias: Any = rng.integers(-3000, 3001, kernels).astype(np.int64)
    if real:
        weights, weight_scales = rng.normal(size=weights.shape) / np.sqrt(depth * side**2), np.ones(kernels)
        bias = rng.normal(size=kernels)
    window = Window((side, side), pads=(side // 2,) * 4)  # type: ignore[arg-type]
    groups = channels if depthwise else 1
    graph.inputs.append(GraphInput("x", "x", (1, channels, *size)))
    graph.ops.append(Conv("conv", ("x",), "a", weights, weight_scales, 0, bias, window, groups))
    graph.ops.append(Slope("slope", ("a",), "y", given))
    graph.outputs.append(GraphOutput("y", (1, kernels, *size), "y", False))
    return graph


def values(model: CompiledModel) -> np.ndarray:
    rng, info = np.random.default_rng(5), model.inputs[0]
    if info.quantised:
        return rng.integers(-128, 128, info.shape).astype(np.int8)
    return rng.normal(size=info.shape).astype(info.dtype)


def run(model: CompiledModel) -> np.ndarray:
    """On the golden device, checked at both levels."""
    return checked_run(model, [values(model)])


@pytest.mark.parametrize("name", KINDS)
def test_in_the_convolutions_task(name: str) -> None:
    """The bytes of two tasks, except where the 15-bit multipliers give another code of the convolution."""
    model = CompiledModel(network(**KINDS[name]))
    (step,) = model.plan.steps
    assert isinstance(step, ConvStep) and step.slopes is not None and not model.plan.notes
    assert step.kind.endswith("Conv+LeakyRelu") and "a" not in model.plan.places
    apart = CompiledModel(network(**KINDS[name]), fuse=False)
    assert len(apart.plan.steps) == 2
    ours, theirs = run(model).astype(int), run(apart).astype(int)
    assert len(np.unique(ours)) > 3 and (ours < model.graph.tensors["y"].zero_point).any()
    far = np.abs(ours - theirs)
    print(f"{(far > 0).mean():.2%} of the codes differ, by {far.max()} at most")
    code = 0.03 / model.graph.tensors["y"].scale * max(1.0, KINDS[name].get("slopes", 0.1))
    assert far.max() <= 1 + code and (far > 0).mean() < 0.01


@pytest.mark.parametrize("name", FLOATS)
def test_of_floats(name: str) -> None:
    """One task gives the result of two: the slope multiplies values that are not yet rounded to fp16."""
    spec = {key: value for key, value in FLOATS[name].items() if key != "after"}
    model, apart = (
        CompiledModel(network(real=True, **spec)),
        CompiledModel(network(real=True, **spec), fuse=False),
    )
    (step,) = model.plan.steps
    assert isinstance(step, ConvStep) and step.slopes is not None
    assert [type(s) for s in apart.plan.steps] == [ConvStep, SlopeStep]
    ours, theirs = run(model).astype(np.float64), run(apart).astype(np.float64)
    assert (ours < 0).any() and (np.abs(ours - theirs) <= 2.0**-9 * np.abs(theirs) + 2.0**-23).all()


@pytest.mark.parametrize(
    ("name", "real"),
    [("leaky", False), ("depthwise", False), ("leaky", True), ("one a channel, depthwise", True)],
)
def test_on_the_rtl(name: str, real: bool) -> None:
    model = CompiledModel(network(real=real, **FLOATS[name]))
    given = values(model)
    engine = open_engine(cores=1)
    try:
        with LoadedModel(model, Driver(engine)) as loaded:
            loaded.set_input(0, given)
            loaded.run()
            verdict = ModelChecker(loaded).check([given])
            assert verdict.match, verdict.first
    finally:
        engine.close()


@pytest.mark.parametrize(
    ("change", "note"),
    [
        ({"after": (0.09, 7)}, "range exceeds"),
        ({"after": (0.03, 7)}, "range exceeds"),
        ({"slopes": -0.5, "after": (0.03, 7)}, "range exceeds"),
        ({"slopes": "many"}, "one slope for all channels"),
    ],
    ids=["above", "below", "turned", "channels"],
)
def test_apart(change: dict[str, Any], note: str) -> None:
    """Where the codes of the convolution would clip values that the output has, both tasks stay."""
    model = CompiledModel(network(**change))
    assert [step.kind for step in model.plan.steps] == [
        "Conv",
        "LeakyRelu" if "many" not in str(change) else "PRelu",
    ]
    assert note in model.plan.notes[0]
    run(model)


def test_a_relu_behind_a_slope_of_floats() -> None:
    graph = network(real=True)
    graph.ops[1] = Slope("slope", ("a",), "y", np.array([0.5]), clamp=Clamp(low=0.0))
    model = CompiledModel(graph)
    assert not any(isinstance(step, HostStep) for step in model.plan.steps)
    assert run(model).min() == 0.0


def test_container() -> None:
    """The container of a compiled model keeps slopes."""
    for real in (False, True):
        model = CompiledModel(network(real=real))
        assert np.array_equal(run(model), run(compile_model(model.save())))
