"""Depthwise kernels above 31 and strides with a prime factor above 7, beside onnxruntime."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

pytest.importorskip("onnxruntime", reason="needs the extra onnx")

from rkcosim.compiler import LoadedModel, compile_model
from rkcosim.compiler.steps import CallStep, HostStep
from rkcosim.driver import Driver
from rkcosim.engines.engine import Engine, open_engine
from rkcosim.verify.crosscheck.model_check import ModelChecker
from tests.system.qdq_models import Net, quantise
from tests.system.test_compiler_golden import run
from tests.system.test_resize_ratios import reference

Sizes = tuple[int, ...]


def network(shape: Sizes, kernel: Sizes, codes: bool, **attributes: object) -> tuple[bytes, np.ndarray]:
    """Return a model of a Conv with weights of a shape, then a Relu, and its input."""
    net = Net(shape, 3)
    weights = net.rng.normal(size=kernel) / np.sqrt(np.prod(kernel[1:]))
    y = net.add(
        "Conv", "x", net.constant(weights), net.constant(net.rng.normal(size=kernel[0])), **attributes
    )
    x = net.rng.normal(size=shape).astype(np.float16).astype(np.float32)
    model = net.model(net.add("Relu", y), opset=17)
    return (quantise(model, [x]) if codes else model.SerializeToString()), x


DEPTHWISE = {"group": 8, "pads": [17, 2, 17, 2]}


@pytest.mark.parametrize("codes", [False, True], ids=["fp16", "int8"])
@pytest.mark.parametrize(
    ("shape", "kernel", "more"),
    [
        ((1, 12, 3, 60), (12, 1, 1, 51), {"group": 12, "pads": [0, 25, 0, 25]}),
        ((1, 8, 36, 20), (8, 1, 35, 5), DEPTHWISE),
        ((1, 8, 36, 40), (8, 1, 33, 32), {"group": 8, "pads": [2, 3, 1, 0], "strides": [2, 1]}),
        ((1, 3, 44, 44), (16, 3, 11, 11), {"strides": [11, 11]}),
        ((1, 3, 40, 47), (16, 3, 3, 13), {"strides": [2, 13], "pads": [1, 0, 1, 0]}),
        ((1, 4, 60, 30), (8, 4, 15, 5), {"strides": [11, 3]}),
        ((1, 4, 60, 40), (8, 4, 11, 11), {"strides": [11, 11], "pads": [3, 3, 3, 3]}),
        ((1, 4, 40, 30), (8, 4, 3, 2), {"strides": [17, 13]}),
    ],
)
def test_wide(shape: Sizes, kernel: Sizes, more: dict[str, object], codes: bool) -> None:
    """The NPU computes them within some roundings of fp16, or one step of the codes."""
    data, x = network(shape, kernel, codes, **more)
    compiled = compile_model(data, reuse=False)
    assert not any(isinstance(step, HostStep) for step in compiled.plan.steps)
    got, _ = run(compiled, x)
    want = reference(data, x)
    unit = compiled.graph.tensors[compiled.graph.outputs[0].value].scale
    assert np.abs(got - want).max() <= (1.001 * unit if codes else 1e-3 * np.abs(want).max())


def test_many_channels_of_codes_stay_on_the_host() -> None:
    """A depthwise convolution of bytes has as many times the multiplications as it has channels."""
    net = Net((1, 160, 1, 60), 3)
    weights = net.constant(net.rng.normal(size=(160, 1, 1, 51)))
    y = net.add("Conv", net.add("Relu", "x"), weights, group=160, pads=[0, 25, 0, 25])
    x = net.rng.normal(size=net.shape).astype(np.float32)
    data = quantise(net.model(net.add("MaxPool", y, kernel_shape=[1, 2])), [x])
    steps = [step for step in compile_model(data).plan.steps if isinstance(step, CallStep)]
    said = [item.reason for step in steps for item in step.program.operators if item.kind == "Conv"]
    assert any("160 times the multiplications (required: " in reason for reason in said)


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    """The default engine, built on first use."""
    opened = open_engine(cores=1)
    yield opened
    opened.close()


@pytest.mark.parametrize(
    ("shape", "kernel", "codes", "more"),
    [
        ((1, 8, 36, 9), (8, 1, 35, 5), False, DEPTHWISE),
        ((1, 3, 24, 25), (8, 3, 11, 11), True, {"strides": [11, 11], "pads": [1, 1, 0, 0]}),
    ],
)
def test_on_rtl(engine: Engine, shape: Sizes, kernel: Sizes, codes: bool, more: dict[str, object]) -> None:
    """RTL = task golden = graph golden, bit for bit."""
    data, x = network(shape, kernel, codes, **more)
    with LoadedModel(compile_model(data, reuse=False), Driver(engine, 2_000_000)) as loaded:
        loaded.set_input(0, x)
        loaded.run()
        checker = ModelChecker(loaded, engine.name)
        found = checker.check([x])
        assert found.match, str(found.first)
        assert checker.check_memory() is None
        checker.close()
