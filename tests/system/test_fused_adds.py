"""Additions in a convolution's task: tiles, kinds of operands, cases that are not fused, exactness."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

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
    Tensor,
    Window,
)
from rkcosim.compiler.steps import BinaryStep, ConvStep
from rkcosim.verify.crosscheck.model_check import GoldenDriver
from tests.system.golden_runs import checked_run

KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "kernels not whole groups": {"channels": 20, "kernels": 20},
    "one surface, groups of two": {"channels": 3, "kernels": 7},
    "relu behind": {"behind": Clamp(low=0.0)},
    "relu6 behind": {"behind": Clamp(0.0, 1.2)},
    "relu between": {"between": Clamp(low=0.0)},
    "limits between": {"between": Clamp(-0.4, 0.9), "behind": Clamp(low=0.0)},
    "positive limits between": {"between": Clamp(0.3, 0.9)},
    "depthwise": {"depthwise": True, "channels": 40, "kernels": 40},
    "the convolution's input": {"other": "x", "kernels": 32},
    "two convolutions": {"other": "conv"},
    "a constant": {"other": "constant", "kernels": 48},
    "one value a channel": {"other": "channel", "kernels": 48},
    "one value a channel, depthwise": {"other": "channel", "depthwise": True, "channels": 20, "kernels": 20},
    "coarse convolution": {"scales": (0.3, 0.02, 0.1)},
    "fine convolution": {"scales": (0.004, 0.5, 0.5)},
    "one pixel": {"size": (1, 1), "kernel": 1},
}
TILED: dict[str, tuple[dict[str, Any], int]] = {
    "rows": ({"size": (150, 120), "kernels": 40, "channels": 48, "kernel": 3}, 2),
    "kernels": ({"size": (6, 8), "kernels": 40, "channels": 1280, "kernel": 3}, 2),
    "rows of a depthwise one": ({"size": (150, 90), "channels": 64, "kernels": 64, "depthwise": True}, 2),
    "kernels, a value a channel": (
        {"size": (6, 8), "kernels": 40, "channels": 1280, "kernel": 3, "other": "channel"},
        2,
    ),
}


def residual(
    *,
    channels: int = 32,
    kernels: int = 24,
    size: tuple[int, int] = (5, 7),
    kernel: int = 3,
    depthwise: bool = False,
    other: str = "b",
    between: Clamp = Clamp(),  # noqa: B008
    behind: Clamp = Clamp(),  # noqa: B008
    scales: tuple[float, float, float] = (0.02, 0.03, 0.025),
    seed: int = 1,
) -> Graph:
    """Return y = conv(x) + b, with b a model input, a constant, x or another convolution of x."""
    rng = np.random.default_rng(seed)
    graph = Graph("residual")

    def tensor(name: str, cube: tuple[int, int, int], scale: float, zero: int) -> None:
        graph.tensors[name] = Tensor(name, (1, *cube), scale, zero, cube)

    def conv(name: str, out: str, side: int, scale: float, clamp: Clamp, dw: bool) -> None:
        depth = 1 if dw else channels
        weights = rng.integers(-127, 128, (kernels, depth, side, side), dtype=np.int8)
        weight_scales = (
            rng.uniform(0.3, 1.0, kernels) * 40 * scale / (0.05 * 75 * 75 * np.sqrt(depth * side**2))
        )
        bias = rng.integers(-3000, 3001, kernels).astype(np.int64)
        pads = (side // 2,) * 4
        window = Window((side, side), pads=pads)  # type: ignore[arg-type]
        groups = channels if dw else 1
        graph.ops.append(
            Conv(name, ("x",), out, weights, weight_scales, 0, bias, window, groups, clamp=clamp)
        )

    cube = (kernels, *size)
    tensor("x", (channels, *size), 0.05, -4)
    tensor("a", cube, scales[0], 7)
    tensor("y", cube, scales[2], -9)
    graph.inputs.append(GraphInput("x", "x", (1, channels, *size)))
    addend = "x" if other == "x" else "b"
    if other != "x":
        shape = (kernels, 1, 1) if other == "channel" else cube
        tensor("b", shape, scales[1], 13)
        if other == "b":
            graph.inputs.append(GraphInput("b", "b", (1, *cube)))
        elif other != "conv":
            graph.constants["b"] = rng.integers(-128, 128, shape, dtype=np.int8)
    conv("conv", "a", kernel, scales[0], between, depthwise)
    if other == "conv":
        conv("side", "b", 1, scales[1], Clamp(), False)
    graph.ops.append(Binary("add", ("a", addend), "y", clamp=behind))
    graph.outputs.append(GraphOutput("y", (1, *cube), "y", False))
    return graph


def run(model: CompiledModel, seed: int = 5) -> np.ndarray:
    """Run on random codes, checked at both levels; return the output's codes."""
    rng = np.random.default_rng(seed)
    values = [rng.integers(-128, 128, info.shape).astype(info.dtype) for info in model.inputs]
    return checked_run(model, values)


@pytest.mark.parametrize("reuse", [False, True])
@pytest.mark.parametrize("name", KINDS)
def test_kinds(name: str, reuse: bool) -> None:
    """Both golden models agree; results differ from two tasks rarely, and by one convolution step at most."""
    model = CompiledModel(residual(**KINDS[name]), reuse=reuse)
    step = model.plan.steps[-1]
    assert isinstance(step, ConvStep) and step.addend is not None and not model.plan.notes
    assert step.addend.between.name not in model.plan.places
    apart = CompiledModel(residual(**KINDS[name]), reuse=reuse, fuse=False)
    assert isinstance(apart.plan.steps[-1], BinaryStep)
    ours, theirs = run(model).astype(int), run(apart).astype(int)
    assert len(np.unique(ours)) > 3
    far = np.abs(ours - theirs)
    own = step.addend.between.scale / step.output.scale
    assert far.max() <= 1 + int(own) and np.count_nonzero(far) <= 2 + 0.01 * far.size


@pytest.mark.parametrize("cores", [1, 2, 3])
@pytest.mark.parametrize("name", TILED)
def test_tiles(name: str, cores: int) -> None:
    sizes, least = TILED[name]
    model = CompiledModel(residual(**sizes), reuse=True, cores=cores)
    assert len(model.plan.tasks) >= least and len({t.layer for t in model.plan.tasks}) == 1
    tiles = model.plan.tiles[0]
    assert len({t.first_row for t in tiles}) > 1 or len({t.first_kernel for t in tiles}) > 1
    if cores == 1:
        run(model)
    else:
        np.testing.assert_array_equal(run(model), run(CompiledModel(residual(**sizes))))


def _even(value: Fraction) -> int:
    return round(value)  # Python rounds halves to even


def test_arithmetic() -> None:
    """One pixel of each kernel in exact fractions, only from the rules of `rkcosim.compiler.lowering`."""
    model = CompiledModel(residual(behind=Clamp(low=0.0), between=Clamp(-0.4, 0.9), size=(1, 1), kernel=1))
    (step,) = model.plan.steps
    assert isinstance(step, ConvStep) and step.addend is not None and step.limits == (0, None)
    rng = np.random.default_rng(5)
    x, b = (rng.integers(-128, 128, info.shape).astype(info.dtype).reshape(-1) for info in model.inputs)
    want, scales = [], model.graph.tensors
    for k in range(24):
        acc = sum((int(v) + 4) * int(w) for v, w in zip(x, step.weights[k].reshape(-1), strict=True))
        own = _even(Fraction((acc + int(step.bias[k])) * int(step.multipliers[k]), 2**step.shift))
        own = min(max(own, round(-0.4 / 0.02)), round(0.9 / 0.02))
        total = own * step.addend.own_scale + (int(b[k]) - 13) * step.addend.scale
        out = _even(Fraction(max(total, 0) * step.converter.scale, 2**step.converter.shift)) - 9
        want.append(min(max(out, -128), 127))
        real = max(own * 0.02 + (int(b[k]) - 13) * scales["b"].scale, 0) / scales["y"].scale - 9
        assert abs(want[-1] - min(max(real, -128), 127)) <= 0.51
    assert run(model).reshape(-1).tolist() == want


def test_saturates() -> None:
    """The convolution saturates at the limits of its own bytes, before the addition."""
    models = []
    for fuse in (True, False):
        graph = residual()
        graph.tensors["a"] = replace(graph.tensors["a"], scale=0.004)
        models.append(CompiledModel(graph, fuse=fuse))
    fused, apart = run(models[0]).astype(int), run(models[1]).astype(int)
    assert len(models[0].plan.steps) == 1
    with LoadedModel(models[1], GoldenDriver()) as loaded:
        for index, info in enumerate(models[1].inputs):
            codes = np.random.default_rng(index).integers(-128, 128, info.shape)
            loaded.set_input(index, codes.astype(info.dtype))
        loaded.run()
        own = loaded.tensor("a")
    assert np.mean((own == 127) | (own == -128)) > 0.2
    assert np.abs(fused - apart).max() <= 1 and np.mean(fused != apart) < 0.01


@pytest.mark.parametrize("why", ["reads", "output", "cube", "clamp", "transposed", "factor"])
def test_apart(why: str) -> None:
    """Operations that one task cannot do stay two tasks, and the plan has the reason."""
    graph, text = residual(), ""
    first, add = graph.ops
    assert isinstance(first, Conv)
    if why == "reads":
        graph.tensors["z"] = replace(graph.tensors["y"], name="z")
        graph.ops.append(Binary("mul", ("a", "b"), "z", method="mul"))
        text = "something else reads"
    elif why == "output":
        graph.outputs.append(GraphOutput("a", graph.tensors["a"].shape, "a", False))
        text = "something else reads"
    elif why == "cube":
        graph = residual(size=(1, 1), kernel=1, other="conv")
        first, _, add = graph.ops
        big = (24, 4, 4)
        graph.tensors["c"] = Tensor("c", (1, *big), 0.04, 0, big)
        graph.tensors["y"] = replace(graph.tensors["y"], shape=(1, *big), cube=big)
        graph.inputs.append(GraphInput("c", "c", (1, *big)))
        graph.outputs[0] = GraphOutput("y", (1, *big), "y", False)
        graph.ops = [first, replace(add, inputs=("c", "a"))]
        text = "the shapes differ"
    elif why == "clamp":
        graph.ops[1] = replace(add, clamp=Clamp(-0.5, 0.5))
        text = "EW can clamp only at 0"
    elif why == "transposed":
        window = Window((3, 3), pads=(2, 2, 2, 2))
        cube = (24, 9, 13)
        graph.ops[0] = replace(first, insert=(2, 2), window=window)
        for name in ("a", "b", "y"):
            graph.tensors[name] = replace(graph.tensors[name], shape=(1, *cube), cube=cube)
        graph.inputs[1] = GraphInput("b", "b", (1, *cube))
        graph.outputs[0] = GraphOutput("y", (1, *cube), "y", False)
        text = "transposed"
    else:
        graph.ops[0] = replace(first, weight_scales=first.weight_scales * 1e-13)
        text = "outside the range of the channel multipliers"
    if why == "factor":
        from rkcosim.compiler.fusion import fuse_adds

        assert text in fuse_adds(graph)[0]
        return
    model = CompiledModel(graph)
    assert not any("+" in step.kind for step in model.plan.steps)
    assert text in model.plan.notes[0] and text in str(model.plan)
    run(model)


def test_container() -> None:
    """A fused plan is the same after reading its container."""
    from rkcosim.compiler import compile_model

    model = CompiledModel(residual(behind=Clamp(low=0.0)))
    again = compile_model(model.save())
    assert str(again.plan) == str(model.plan)
    np.testing.assert_array_equal(run(again), run(model))


def test_placed_behind_both() -> None:
    """The later of two convolutions does the addition; the result of the other stays in memory."""
    model = CompiledModel(residual(other="conv"), reuse=True)
    assert [step.kind for step in model.plan.steps] == ["Conv", "Conv+Add"]
    assert model.plan.steps[0].name == "conv" and "b" not in model.plan.places
    places = model.plan.places
    a, y = places["a"], places["y"]
    assert a.ref.offset + a.size <= y.ref.offset or y.ref.offset + a.surface * 2 * 16 <= a.ref.offset
