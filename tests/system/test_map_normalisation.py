"""Normalisations over the pixels of maps in fp16: near onnxruntime's results, equal on RTL and golden."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

pytest.importorskip("onnxruntime", reason="needs the extra onnx")

from rkcosim.compiler import CompiledModel, LoadedModel, compile_model
from rkcosim.compiler.steps import CallStep, HostStep
from rkcosim.driver import Driver
from rkcosim.engines.engine import Engine, open_engine
from rkcosim.verify.crosscheck.model_check import ModelChecker
from tests.system.qdq_models import Net, quantise
from tests.system.test_compiler_golden import run

PLACES = 2.0**-11
"""Half of the last place of fp16, relative to a number."""


def model(
    nodes: list[onnx.NodeProto], constants: dict[str, np.ndarray], shape: tuple[int, ...], opset: int = 17
) -> bytes:
    """Return a model with the input x of a shape and the output y."""
    ends = [helper.make_tensor_value_info(name, 1, size) for name, size in (("x", shape), ("y", None))]
    tensors = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "norms", ends[:1], ends[1:], tensors)
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


def reference(data: bytes, x: np.ndarray) -> np.ndarray:
    """Return onnxruntime's result, computed in float32 without rewriting the graph."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return np.asarray(ort.InferenceSession(data, options, ["CPUExecutionProvider"]).run(None, {"x": x})[0])


def floats(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.normal(size=shape).astype(np.float32)


def group_nodes(form: str, shape: tuple[int, ...], groups: int, rng: np.random.Generator) -> bytes:
    """Return a GroupNormalization with a Relu as an opset or an exporter writes it."""
    channels, ones = shape[1], (1,) * (len(shape) - 2)
    if form == "written":
        constants = {
            "split": np.array([0, groups, -1]),
            "whole": np.array(shape),
            "one": np.ones(groups, np.float32),
            "zero": np.zeros(groups, np.float32),
            "scale": floats(rng, channels, *ones),
            "shift": floats(rng, channels, *ones),
        }
        nodes = [
            helper.make_node("Reshape", ["x", "split"], ["a"], "split"),
            helper.make_node("InstanceNormalization", ["a", "one", "zero"], ["b"], "norm"),
            helper.make_node("Reshape", ["b", "whole"], ["c"], "whole"),
            helper.make_node("Mul", ["c", "scale"], ["d"], "scale"),
            helper.make_node("Add", ["d", "shift"], ["e"], "shift"),
        ]
        opset = 11
    else:
        opset = int(form)
        count = groups if opset == 18 else channels
        constants = {"scale": floats(rng, count), "shift": floats(rng, count)}
        nodes = [helper.make_node("GroupNormalization", ["x", *constants], ["e"], "norm", num_groups=groups)]
    return model([*nodes, helper.make_node("Relu", ["e"], ["y"], "relu")], constants, shape, opset)


def instance(shape: tuple[int, ...], rng: np.random.Generator, epsilon: float = 1e-5) -> bytes:
    """Return an InstanceNormalization with random scale and shift."""
    constants = {"scale": floats(rng, shape[1]), "shift": floats(rng, shape[1])}
    node = helper.make_node("InstanceNormalization", ["x", *constants], ["y"], "norm", epsilon=epsilon)
    return model([node], constants, shape)


def shift_of(data: bytes, want: np.ndarray) -> np.ndarray:
    """Return the constant `shift` of a model in the shape of its channels, or 0 for each."""
    tensors = {
        item.name: numpy_helper.to_array(item) for item in onnx.load_from_string(data).graph.initializer
    }
    shift = np.resize(tensors["shift"].reshape(-1), want.shape[1])
    if tensors["shift"].size not in (1, want.shape[1]):
        shift = np.repeat(tensors["shift"].reshape(-1), want.shape[1] // tensors["shift"].size)
    return shift.reshape(1, -1, *[1] * (want.ndim - 2))


def near(data: bytes, x: np.ndarray, roundings: float = 1) -> CompiledModel:
    """Assert that the NPU computes everything, within some roundings of onnxruntime's result.

    The host may only bring a line to the NPU. `roundings` is above 1 if an operator is before it.
    """
    compiled = compile_model(data, reuse=False)
    hosted = {step.name for step in compiled.plan.steps if isinstance(step, HostStep)}
    assert hosted <= {"x@line"}
    x = x.astype(np.float16).astype(np.float32)
    got, _ = run(compiled, x)
    want = reference(data, x)
    shift = shift_of(data, want)
    terms = 4 * np.abs(want - shift) + np.abs(want) + 2 * np.abs(shift) + 0.5
    assert (np.abs(got - want) <= PLACES * roundings * terms).all()
    return compiled


@pytest.mark.parametrize(
    ("shape", "mean", "size"),
    [
        ((1, 16, 20, 20), 0.0, 1.0),
        ((1, 12, 50, 70), 20.0, 1.0),
        ((1, 12, 37, 33), 0.0, 1e-3),
        ((1, 9, 40, 33), 3.0, 4000.0),
        ((1, 8, 130, 9), 1.0, 1.0),
    ],
)
def test_instances(shape: tuple[int, ...], mean: float, size: float) -> None:
    """Maps of one and of several sums, channels that do not fill atoms, means and sizes of all magnitudes."""
    rng = np.random.default_rng(3)
    near(instance(shape, rng), rng.normal(size=shape) * size + mean)


def test_channels_of_different_sizes() -> None:
    """Each channel has its own factor, and small variances meet epsilon."""
    rng = np.random.default_rng(4)
    sizes = 10.0 ** np.arange(-4, 4).reshape(-1, 1, 1)
    near(instance((1, 8, 40, 40), rng), rng.normal(size=(1, 8, 40, 40)) * sizes)


@pytest.mark.parametrize(
    ("form", "channels", "groups"), [("written", 32, 8), ("18", 20, 4), ("21", 160, 32), ("21", 48, 1)]
)
def test_groups(form: str, channels: int, groups: int) -> None:
    """The forms of a GroupNormalization, with the Relu in its last task."""
    rng = np.random.default_rng(channels)
    shape = (1, channels, 16, 26)
    compiled = near(group_nodes(form, shape, groups, rng), rng.normal(size=shape) + 2)
    assert {step.kind for step in compiled.plan.steps} == {"GroupNormalization"}


def test_line() -> None:
    """The pixels of a Conv along a line stay where they are (the first layer of a speech encoder)."""
    rng = np.random.default_rng(6)
    constants = {"w": floats(rng, 16, 4, 5) / 4, "scale": floats(rng, 16), "shift": floats(rng, 16)}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], "conv", strides=[3]),
        helper.make_node("InstanceNormalization", ["a", "scale", "shift"], ["y"], "norm"),
    ]
    near(model(nodes, constants, (1, 4, 1400)), rng.normal(size=(1, 4, 1400)), 2)


@pytest.mark.parametrize("epsilon", [1e-5, 1e-12])
def test_equal_numbers(epsilon: float) -> None:
    """Of channels of equal numbers only the shift remains; a mean in float32 is less exact there."""
    rng = np.random.default_rng(7)
    data = instance((1, 8, 45, 70), rng, epsilon)
    x = np.zeros((1, 8, 45, 70), np.float32) + np.array([0, 1, -7.5, 1000.5, 0.1, 60000, -3, 2]).reshape(
        -1, 1, 1
    )
    got, _ = run(compile_model(data, reuse=False), x.astype(np.float32))
    shift = shift_of(data, got)
    assert np.allclose(got, np.broadcast_to(shift, got.shape), atol=2e-3)


def test_single_pixels() -> None:
    """One pixel that is far from all others neither overflows nor disappears."""
    rng = np.random.default_rng(8)
    x = np.zeros((1, 8, 64, 64), np.float32)
    x[0, :, 3, 5] = 10.0 ** np.arange(-3, 5)
    near(instance(x.shape, rng), np.minimum(x, 60000))


def test_stays_on_the_host() -> None:
    """Few elements, and codes; the reason says what the NPU would compute."""
    rng = np.random.default_rng(9)

    def reason(data: bytes) -> str:
        steps = compile_model(data).plan.steps
        found = [item for s in steps if isinstance(s, CallStep) for item in s.program.operators]
        return next(item.reason for item in found if item.kind == "InstanceNormalization")

    assert "more than 4096 elements" in reason(group_nodes("written", (1, 8, 6, 6), 4, rng))
    net = Net((1, 8, 24, 24), 4)
    ones = net.constant(np.ones(8))
    y = net.conv(net.add("InstanceNormalization", net.conv("x", 8, 8, 1), ones, ones), 8, 8, 1)
    data = quantise(net.model(y, opset=17), [floats(rng, *net.shape)])
    assert "in fp16" in reason(data)


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    """The default engine, built on first use."""
    opened = open_engine(cores=1)
    yield opened
    opened.close()


def test_on_rtl(engine: Engine) -> None:
    """RTL = task golden = graph golden, bit for bit."""
    rng = np.random.default_rng(10)
    shape = (1, 20, 33, 9)
    data = group_nodes("written", shape, 4, rng)
    x = floats(rng, *shape) * 3 + 1
    with LoadedModel(compile_model(data, reuse=False), Driver(engine, 2_000_000)) as loaded:
        loaded.set_input(0, x)
        loaded.run()
        checker = ModelChecker(loaded, engine.name)
        found = checker.check([x])
        assert found.match, str(found.first)
        assert checker.check_memory() is None
        checker.close()
