"""One table for functions of one tensor, and tables in a convolution's task."""

from __future__ import annotations

from dataclasses import is_dataclass
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rkcosim.compiler import CompiledModel, compile_model, container, steps
from rkcosim.compiler.graph import (
    Binary,
    BinaryMethod,
    Clamp,
    Conv,
    Graph,
    GraphInput,
    GraphOutput,
    Op,
    Rescale,
    Slope,
    Tensor,
    Window,
)
from rkcosim.compiler.loaders.node import lookup
from rkcosim.compiler.steps import ConvStep, LookupStep
from tests.system.golden_runs import checked_run

KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "kernels not whole groups": {"channels": 20, "kernels": 20},
    "relu before": {"between": Clamp(low=0.0)},
    "limits before": {"between": Clamp(-0.4, 0.9)},
    "depthwise": {"depthwise": True, "channels": 40, "kernels": 40},
    "two tiles of rows": {"size": (150, 120), "kernels": 40, "channels": 48},
    "two tiles of kernels": {"size": (6, 8), "kernels": 40, "channels": 1280},
    "coarse": {"scale": 0.3},
    "one pixel": {"size": (1, 1), "side": 1},
}


def network(
    *,
    channels: int = 32,
    kernels: int = 24,
    size: tuple[int, int] = (5, 7),
    side: int = 3,
    depthwise: bool = False,
    between: Clamp = Clamp(),  # noqa: B008
    scale: float = 0.03,
) -> Graph:
    """y = a * sigmoid(a), a = conv(x)."""
    rng = np.random.default_rng(1)
    graph = Graph("swish")
    depth = 1 if depthwise else channels
    weights = rng.integers(-127, 128, (kernels, depth, side, side), dtype=np.int8)
    weight_scales = rng.uniform(0.3, 1.0, kernels) * 40 * scale / (0.05 * 75 * 75 * np.sqrt(depth * side**2))
    window = Window((side, side), pads=(side // 2,) * 4)  # type: ignore[arg-type]
    bias = rng.integers(-3000, 3001, kernels).astype(np.int64)
    groups = channels if depthwise else 1
    graph.inputs.append(GraphInput("x", "x", (1, channels, *size)))
    _tensor(graph, "x", (channels, *size), 0.05, -4)
    _tensor(graph, "a", (kernels, *size), scale, 7)
    conv = Conv("conv", ("x",), "a", weights, weight_scales, 0, bias, window, groups, clamp=between)
    graph.ops.append(conv)
    _swish(graph, "a", "y", (kernels, *size))
    return graph


def _tensor(graph: Graph, name: str, cube: tuple[int, int, int], scale: float, zero: int) -> Tensor:
    graph.tensors[name] = Tensor(name, (1, *cube), scale, zero, cube)
    return graph.tensors[name]


def _swish(graph: Graph, x: str, y: str, cube: tuple[int, int, int]) -> None:
    between = _tensor(graph, f"{x}.sigmoid", cube, 1 / 256, -128)
    _tensor(graph, y, cube, graph.tensors[x].scale * 0.6, -100)
    graph.ops.append(lookup("sigmoid", "Sigmoid", graph.tensors[x], between))
    graph.ops.append(Binary("mul", (x, between.name), y, method="mul"))
    graph.outputs.append(GraphOutput(y, (1, *cube), y, False))


def run(model: CompiledModel, values: np.ndarray | None = None) -> np.ndarray:
    """Run on codes, checked at both levels; return the codes of the first output."""
    rng = np.random.default_rng(5)
    info = model.inputs[0]
    codes = rng.integers(-128, 128, info.shape).astype(info.dtype) if values is None else values
    return checked_run(model, [codes])


@pytest.mark.parametrize("name", KINDS)
def test_in_the_convolutions_task(name: str) -> None:
    """One step for three operations; differs from three tasks by at most the effect of one code."""
    model = CompiledModel(network(**KINDS[name]))
    (step,) = model.plan.steps
    assert isinstance(step, ConvStep) and step.activation is not None and step.kind.endswith("+Silu")
    assert not model.plan.notes and step.activation.between.name not in model.plan.places
    apart = CompiledModel(network(**KINDS[name]), fuse=False)
    assert len(apart.plan.steps) == 3
    ours, theirs = run(model).astype(int), run(apart).astype(int)
    assert len(np.unique(ours)) > 3
    steepest = int(np.abs(np.diff(step.activation.table.astype(int))).max())
    far = np.abs(ours - theirs)
    print(f"{(far > 0).mean():.2%} of the codes differ, by {far.max()} at most")
    assert far.max() <= steepest and (far > 0).mean() < 0.03


def test_read_by_others() -> None:
    """A convolution's result that is read elsewhere stays in memory; the function is still one table."""
    graph = network()
    graph.outputs.append(GraphOutput("a", (1, *graph.tensors["a"].cube), "a", False))
    model = CompiledModel(graph)
    assert [step.kind for step in model.plan.steps] == ["Conv", "Silu"]
    (note,) = model.plan.notes
    assert "something else reads" in note
    run(model)


def test_sigmoid_read_by_others() -> None:
    """An intermediate tensor of a function must not vanish if it is an output."""
    graph = network()
    graph.outputs.append(GraphOutput("s", (1, *graph.tensors["a"].cube), "a.sigmoid", False))
    model = CompiledModel(graph)
    assert [step.kind for step in model.plan.steps] == ["Conv", "Sigmoid", "Mul"]
    run(model)


@settings(max_examples=25, deadline=None, print_blob=True)
@given(data=st.data())
def test_one_table_equals_its_operations(data: st.DataObject) -> None:
    """A chain of random operations on one tensor: the table gives the bytes that separate tasks give."""
    cube = (16, 4, 4)
    codes = np.arange(-128, 128).astype(np.int8).reshape(1, *cube)

    def build() -> Graph:
        graph = Graph("chain")
        graph.inputs.append(GraphInput("x", "x", (1, *cube)))
        _tensor(graph, "x", cube, scales[0], zeros[0])
        names = ["x"]
        for index, (kind, method, other) in enumerate(choices, 1):
            y = _tensor(graph, f"t{index}", cube, scales[index], zeros[index])
            last = graph.tensors[names[-1]]
            op: Op
            if kind == "table":
                op = lookup(f"op{index}", function, last, y)
            elif kind == "binary":
                op = Binary(f"op{index}", (last.name, names[other % len(names)]), y.name, method=method)
            elif kind == "slope":
                op = Slope(f"op{index}", (last.name,), y.name, slopes=np.array([0.1 * other]))
            else:
                op = Rescale(
                    f"op{index}", (last.name,), y.name, clamp=Clamp(-0.5 * other, 3.0), source="Clip"
                )
            graph.ops.append(op)
            names.append(y.name)
        graph.outputs.append(GraphOutput("y", (1, *cube), names[-1], False))
        return graph

    kinds = st.tuples(
        st.sampled_from(["binary", "slope", "clip"]),
        st.sampled_from([method for method in get_args(BinaryMethod) if method != "div"]),  # fp16 only
        st.integers(0, 3),
    )
    choices = [("table", "add", 0), *data.draw(st.lists(kinds, min_size=1, max_size=3))]
    function = data.draw(st.sampled_from(["HardSigmoid", "HardSwish", "Sigmoid", "Tanh"]))
    scales = data.draw(st.lists(st.floats(0.004, 0.1), min_size=5, max_size=5))
    zeros = data.draw(st.lists(st.integers(-128, 127), min_size=5, max_size=5))
    one, many = CompiledModel(build()), CompiledModel(build(), fuse=False)
    last = one.plan.steps[-1]
    # A tensor may be read again later, but only within the chain.
    assert len(one.plan.steps) == 1 and isinstance(last, LookupStep)
    assert np.array_equal(run(one, codes), run(many, codes))


def test_container() -> None:
    """The container of a compiled model keeps a table in a convolution's task."""
    model = CompiledModel(network())
    again = compile_model(model.save())
    assert np.array_equal(run(model), run(again))
    kinds = {k for k in vars(steps).values() if isinstance(k, type) and is_dataclass(k)}
    made_here = {k.__name__ for k in kinds if k.__module__ == steps.__name__} - {"Step"}
    assert made_here <= set(container._CLASSES)


@pytest.mark.parametrize("option", ["", "q1_zero_point_after_rounding"])
@pytest.mark.parametrize("zero", [0, 1, -3])
def test_ties_are_those_of_the_operations(monkeypatch: pytest.MonkeyPatch, option: str, zero: int) -> None:
    """For a sum exactly between two codes: the zero point is, or is not, part of the rounding."""
    monkeypatch.setenv("RKCOSIM_OPTIONS", option)
    cube, scales = (16, 4, 4), (0.03125, 0.0625, 0.04, 0.02)
    codes = np.arange(-128, 128).astype(np.int8).reshape(1, *cube)

    def build() -> Graph:
        graph = Graph("ties")
        graph.inputs.append(GraphInput("x", "x", (1, *cube)))
        tensors = [_tensor(graph, "x", cube, scales[0], 0)]
        tensors += [
            _tensor(graph, f"t{n}", cube, scale, zero if n == 3 else 0)
            for n, scale in enumerate(scales[1:], 1)
        ]
        graph.ops.append(lookup("op1", "HardSigmoid", tensors[0], tensors[1]))
        graph.ops.append(Binary("op2", ("t1", "x"), "t2", method="add"))
        graph.ops.append(Binary("op3", ("t2", "x"), "t3", method="add"))
        graph.outputs.append(GraphOutput("y", (1, *cube), "t3", False))
        return graph

    one, many = CompiledModel(build()), CompiledModel(build(), fuse=False)
    assert len(one.plan.steps) == 1 < len(many.plan.steps)
    assert np.array_equal(run(one, codes), run(many, codes))
