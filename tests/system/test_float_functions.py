"""Functions, constant factors and limits of fp16 tensors on the NPU, against numpy in float64."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

pytest.importorskip("onnx", reason="needs the extra onnx")

import onnxruntime
from onnx import TensorProto, helper

from rkcosim.compiler import CompiledModel, LoadedModel, compile_model
from rkcosim.compiler.steps import CallStep, FloatStep, HostStep
from rkcosim.driver import Driver
from rkcosim.engines.engine import open_engine
from rkcosim.verify.crosscheck.model_check import ModelChecker
from tests.system.golden_runs import checked_run
from tests.system.qdq_models import Net
from tests.system.test_compiler_golden import run

SHAPE = (1, 13, 6, 9)
Build = Callable[[Net], str]


def constant(net: Net, op: str, values: object, first: bool = False) -> str:
    """One node with a constant operand."""
    name = net.constant(np.array(values))
    return net.add(op, *((name, "x") if first else ("x", name)))


def clip(net: Net, low: float | None, high: float | None, x: str = "x") -> str:
    ends = [net.constant(np.array(v)) if v is not None else "" for v in (low, high)]
    return net.add("Clip", x, *ends)


def written_swish(net: Net) -> str:
    """HardSwish as x * clip(x + 3, 0, 6) / 6."""
    gate = clip(net, 0.0, 6.0, constant(net, "Add", 3.0))
    return net.add("Div", net.add("Mul", "x", gate), net.constant(np.array(6.0)))


def chain(net: Net) -> str:
    """Factors and sums behind each other, per channel and common."""
    y = constant(net, "Mul", net.rng.normal(size=(13, 1, 1)))
    y = net.add("Add", y, net.constant(np.array(0.25)))
    return net.add("Relu", net.add("Sub", y, net.constant(net.rng.normal(size=(1, 13, 1, 1)))))


def folded(net: Net) -> str:
    """A convolution between constant factors and sums."""
    y = net.add("Add", constant(net, "Mul", 1.5), net.constant(np.array(0.5)))
    y = net.conv(y, 13, 20, 1)
    y = net.add("Mul", y, net.constant(net.rng.uniform(0.5, 2, (20, 1, 1))))
    return net.add("Relu", net.add("Add", y, net.constant(net.rng.normal(size=(20, 1, 1)))))


CASES: dict[str, tuple[Build, float, int]] = {
    "sigmoid": (lambda n: n.add("Sigmoid", "x"), 6e-4, 1),
    "tanh": (lambda n: n.add("Tanh", "x"), 6e-4, 2),
    "erf": (lambda n: n.add("Erf", "x"), 6e-4, 2),
    "hard sigmoid": (lambda n: n.add("HardSigmoid", "x", alpha=1 / 6), 8e-4, 1),
    "hard swish": (lambda n: n.add("HardSwish", "x"), 1e-2, 1),
    "gelu": (lambda n: n.add("Gelu", "x"), 1e-2, 2),
    "gelu tanh": (lambda n: n.add("Gelu", "x", approximate="tanh"), 1e-2, 2),
    "mish": (lambda n: n.add("Mish", "x"), 1e-2, 2),
    "silu": (lambda n: n.add("Mul", "x", n.add("Sigmoid", "x")), 1e-2, 2),
    "elu": (lambda n: n.add("Elu", "x"), 6e-4, 2),
    "elu above 1": (lambda n: n.add("Elu", "x", alpha=1.7), 1e-3, 3),
    "selu": (lambda n: n.add("Selu", "x"), 2e-2, 3),
    "celu": (lambda n: n.add("Celu", "x", alpha=0.4), 6e-4, 2),
    "softplus": (lambda n: n.add("Softplus", "x"), 5e-3, 3),
    "softsign": (lambda n: n.add("Softsign", "x"), 1e-3, 3),
    "abs": (lambda n: n.add("Abs", "x"), 0, 1),
    "neg": (lambda n: n.add("Neg", "x"), 0, 1),
    "floor": (lambda n: n.add("Floor", "x"), 0, 1),
    "ceil": (lambda n: n.add("Ceil", "x"), 0, 1),
    "reciprocal": (lambda n: n.add("Reciprocal", "x"), 1e-3, 1),
    "div": (lambda n: n.add("Div", "x", n.add("Add", n.add("Abs", "x"), n.constant(np.ones(1)))), 1e-3, 3),
    "clip": (lambda n: clip(n, -0.75, 1.5), 1e-3, 1),
    "clip above": (lambda n: clip(n, None, -0.3), 1e-3, 1),
    "clip below": (lambda n: clip(n, 0.7, None), 1e-3, 1),
    "mul": (lambda n: constant(n, "Mul", 0.3), 5e-3, 1),
    "mul channels": (lambda n: constant(n, "Mul", n.rng.normal(size=(13, 1, 1))), 1e-2, 1),
    "add": (lambda n: constant(n, "Add", -2.5), 5e-3, 1),
    "sub from": (lambda n: constant(n, "Sub", 1.5, first=True), 5e-3, 1),
    "div constant": (lambda n: constant(n, "Div", 6.0), 5e-3, 1),
    "written hard swish": (written_swish, 1e-2, 1),
    "chain": (chain, 2e-2, 1),
    "folded into a convolution": (folded, 2e-2, 1),
}


def made(name: str) -> tuple[CompiledModel, np.ndarray, np.ndarray]:
    """Model, input, and onnxruntime's result."""
    net = Net(SHAPE, len(name))
    data = net.model(CASES[name][0](net), opset=22).SerializeToString()
    x = (net.rng.normal(size=SHAPE) * 4).astype(np.float16).astype(np.float32)
    x[0, 0, 0] = [0.0, -0.0, 20.0, -20.0, 1e-4, -1e-4, 300.0, -300.0, 6.5]
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    return compile_model(data), x, session.run(None, {"x": x})[0]


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str) -> None:
    """On the NPU, in as few tasks as possible, and near the reference."""
    model, x, want = made(name)
    _, error, count = CASES[name]
    assert not [step for step in model.plan.steps if isinstance(step, HostStep | CallStep)]
    assert len(model.plan.steps) == count, [step.kind for step in model.plan.steps]
    got = checked_run(model, [x]).astype(np.float64).reshape(want.shape)
    real = want.astype(np.float16).astype(np.float64)
    if name == "reciprocal":  # the sign of the result is the dividend's
        real[x.reshape(want.shape) == 0] = np.inf
    finite = np.isfinite(real)
    assert (got[~finite] == real[~finite]).all()
    got, real = got[finite], real[finite]
    apart = np.abs(got - real) / np.maximum(1.0, np.abs(real) * 0.05)
    assert apart.max() <= error, f"{apart.max()}"


SPECIAL = [0.0, -0.0, 1.0, -1.0, 2.0**-24, 65504.0, np.inf, -np.inf, np.nan]


def silicon(op: str, a: np.float16, b: np.float16) -> np.float16:
    """The result of boards (remaining-ops, tinygrad-backend of docs/reference/15-sources.md)."""
    x, y = np.float32(a), np.float32(b)
    if op in ("Max", "Min"):  # the order of the bits
        bits = [int(v.view(np.uint16)) for v in (a, b)]
        place = [-(v & 0x7FFF) - 1 if v >> 15 else v for v in bits]
        return (a, b)[place[0] < place[1]] if op == "Max" else (a, b)[place[0] >= place[1]]
    if op == "Sub" and np.isinf(x) and np.isinf(y):
        return np.float16(np.inf if x == y else np.nan)
    if op == "Add" and x == y == 0 and np.signbit(x) and np.signbit(y):
        return np.float16(0)
    if op == "Div" and not np.isnan(x) and not np.isnan(y):
        if x == y == 0 and not np.signbit(x) and not np.signbit(y):
            return np.float16(np.nan)
        if np.isinf(x) or y == 0:
            return np.copysign(np.float16(np.inf), a)
        if np.isinf(y) or x == 0:
            return np.copysign(np.float16(0), a)
    with np.errstate(all="ignore"):
        return np.float16({"Add": x + y, "Sub": x - y, "Mul": x * y, "Div": np.divide(x, y)}[op])


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div", "Max", "Min"])
def test_special_values(op: str) -> None:
    """All pairs of special values give what boards give, not what IEEE 754 says."""
    size = len(SPECIAL)
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, 8, size, size)) for name in ("a", "b", "y")
    ]
    graph = helper.make_graph([helper.make_node(op, ["a", "b"], ["y"])], "pairs", ends[:2], ends[2:])
    opsets = [helper.make_opsetid("", 14)]
    model = compile_model(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())
    assert not [step for step in model.plan.steps if isinstance(step, HostStep | CallStep)]
    values = np.array(SPECIAL, np.float16)
    a, b = (np.broadcast_to(pair, (1, 8, size, size)) for pair in (values[:, None], values[None, :]))
    got = checked_run(model, [a.astype(np.float32), b.astype(np.float32)]).reshape(a.shape)
    want = np.array([silicon(op, x, y) for x, y in zip(a.flat, b.flat, strict=True)], np.float16)
    assert np.array_equal(got, want.reshape(a.shape), equal_nan=True)
    numbers = ~np.isnan(got)
    assert np.array_equal(np.signbit(got)[numbers], np.signbit(want.reshape(a.shape))[numbers])


def test_a_nan_keeps_its_sign() -> None:
    """Between two tasks the negated NaN stays the least of all numbers (tinygrad-backend)."""
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, 8, 2, 2)) for name in ("a", "b", "y")]
    nodes = [helper.make_node("Neg", ["a"], ["n"]), helper.make_node("Max", ["n", "b"], ["y"])]
    graph = helper.make_graph(nodes, "nan", ends[:2], ends[2:])
    opsets = [helper.make_opsetid("", 14)]
    model = compile_model(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())
    a, b = np.full((1, 8, 2, 2), np.nan, np.float32), np.full((1, 8, 2, 2), -1, np.float32)
    assert (checked_run(model, [a, b]) == -1).all()


def test_one_task_of_hard_swish() -> None:
    """The written-out HardSwish and the operator are the same step."""
    steps = [made(name)[0].plan.steps[0] for name in ("hard swish", "written hard swish")]
    assert all(isinstance(step, FloatStep) and step.method == "mul" for step in steps)


@pytest.mark.heavy
def test_rtl() -> None:
    """All cases on the RTL."""
    engine = open_engine(cores=1)
    for name in CASES:
        model, x, _ = made(name)
        with LoadedModel(model, Driver(engine, 3_000_000)) as loaded:
            loaded.set_input(0, x)
            loaded.run()
            checker = ModelChecker(loaded)
            verdict = checker.check([x])
            assert verdict.match, f"{name}: {verdict.first}"
            assert checker.check_memory() is None, name
            checker.close()
    engine.close()


@pytest.mark.parametrize("sizes", [(5, 11), (8, 3, 16), (1, 1, 1), (40, 7, 9)])
def test_concat_within_atoms(sizes: tuple[int, ...]) -> None:
    """Channels that begin within an atom are put together on the NPU, bit for bit."""
    net = Net((1, 4, 6, 5), 3)
    parts = [net.conv("x", 4, count, 1) for count in sizes]
    joined = net.add("Concat", *parts, axis=1)
    model = net.model(joined)
    apart = [compile_model(net.model(part).SerializeToString(), reuse=False) for part in parts]
    compiled = compile_model(model.SerializeToString(), reuse=False)
    assert not [step for step in compiled.plan.steps if isinstance(step, HostStep)]
    x = net.rng.normal(size=net.shape).astype(np.float32)
    got, *own = (run(each, x)[0] for each in (compiled, *apart))
    assert np.array_equal(got, np.concatenate(own, axis=1))
