"""Softmax of fp16 tensors on the NPU: equal on RTL and both golden levels, near the exact result."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

pytest.importorskip("onnxruntime", reason="needs the extra onnx")

from rkcosim.compiler import CompiledModel, LoadedModel, compile_model
from rkcosim.compiler.steps import FoldStep, HostStep
from rkcosim.driver import Driver
from rkcosim.engines.engine import Engine, open_engine
from rkcosim.verify.crosscheck.model_check import GoldenDriver, ModelChecker
from tests.makers.attention import Attention
from tests.system.qdq_models import Net
from tests.system.test_compiler_golden import run
from tests.system.test_products import reference

ENTRY = 2.0**-15
"""Last place of the table of the exponential function."""


def scores(rows: int, channels: int, own: bool = False) -> bytes:
    """Return a model whose output is the Softmax of a product, multiplied by one.

    With `own` the product has two activations, otherwise a constant matrix.
    """
    net = Net((1, rows, 32), 3)
    if own:
        keys = net.add("MatMul", "x", net.constant(net.rng.normal(size=(32, 32)) / 4))
        keys = net.add("Slice", keys, *(net.constant([n], np.int64) for n in (0, channels, 1)))
        y = net.add("MatMul", "x", net.add("Transpose", keys, perm=[0, 2, 1]))
    else:
        y = net.add("MatMul", "x", net.constant(net.rng.normal(size=(32, channels))))
    y = net.add("Softmax", y, axis=-1)
    y = net.add("MatMul", y, net.constant(np.eye(channels)))
    return net.model(y).SerializeToString()


def on_npu(model: CompiledModel) -> bool:
    """Whether the NPU computes the Softmax."""
    steps = [step for step in model.plan.steps if step.kind == "Softmax"]
    return bool(steps) and not any(isinstance(step, HostStep) for step in steps)


SIZES = {
    "one surface": (600, 8, False),
    "whole atoms": (90, 64, False),
    "two folds": (40, 400, False),
    "lanes without a channel": (120, 50, True),
    "one atom": (1500, 5, True),
}


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("size", [0.1, 1.0, 30.0])
def test_near_the_exact_result(name: str, size: float) -> None:
    """Shares are within the table's last place for each channel, also of very different sizes."""
    rows, channels, own = SIZES[name]
    data = scores(rows, channels, own)
    model = compile_model(data, reuse=False)
    assert on_npu(model)
    x = (np.random.default_rng(1).normal(size=(1, rows, 32)) * size).astype(np.float16).astype(np.float32)
    with GoldenDriver() as driver, LoadedModel(model, driver) as loaded:
        loaded.set_input(0, x)
        loaded.run()
        checker = ModelChecker(loaded, "golden")
        found = checker.check([x])
        assert found.match, str(found.first)
        checker.close()
        got = loaded.get_output(0)
        before = loaded.tensor(next(s for s in model.plan.steps if s.kind == "Softmax").inputs[0].name)
    # The exact function of the numbers that the NPU has.
    values = before.astype(np.float64).reshape(channels, rows).T
    powers = np.exp(values - values.max(axis=1, keepdims=True))
    want = powers / powers.sum(axis=1, keepdims=True)
    # An entry of the table, the distance of two of its entries, and fp16 roundings of difference and factors.
    distance = np.abs(values - values.max(axis=1, keepdims=True))
    bound = 2 * ENTRY + want * (
        2.0**-9 + distance * 2.0**-11 + 2 * channels * ENTRY / powers.sum(1, keepdims=True)
    )
    assert (np.abs(got.reshape(rows, channels) - want) <= bound).all()


def test_masked_scores() -> None:
    """Scores of minus infinity (in fp16) get no share."""
    net = Net((1, 70, 64), 2)
    mask = np.where(np.arange(64) < 40, 0.0, -1e30).astype(np.float32)
    y = net.add("Add", net.add("MatMul", "x", net.constant(np.eye(64))), net.constant(mask))
    y = net.add("MatMul", net.add("Softmax", y, axis=-1), net.constant(np.eye(64)))
    data = net.model(y).SerializeToString()
    model = compile_model(data, reuse=False)
    assert on_npu(model)
    x = net.rng.normal(size=net.shape).astype(np.float32)
    got, _ = run(model, x)
    assert (got[..., 40:] == 0).all() and np.abs(got - reference(data, {"x": x})).max() < 1e-3


@pytest.mark.parametrize(("rows", "channels", "own"), [(20, 64, False), (100, 50, False)])
def test_stays_on_the_host(rows: int, channels: int, own: bool) -> None:
    """Small tensors, and channels that fill no atoms and may be infinite, stay on the host."""
    assert not on_npu(compile_model(scores(rows, channels, own), reuse=False))


def test_memory_is_shared() -> None:
    """Tensors that share memory, which is full of NaN before, give the same numbers."""
    data = scores(120, 50, True)
    x = np.random.default_rng(5).normal(size=(1, 120, 32)).astype(np.float32)
    apart, _ = run(compile_model(data, reuse=False), x)
    with GoldenDriver() as driver, LoadedModel(compile_model(data, reuse=True), driver) as loaded:
        region = loaded.buffers["activations"]
        region.view(0, loaded.model.plan.activation_bytes)[:] = 0xFF
        loaded.set_input(0, x)
        loaded.run()
        assert np.array_equal(loaded.get_output(0), apart)


def test_compiled_file() -> None:
    """A compiled model file keeps the steps."""
    model = compile_model(scores(90, 64), reuse=False)
    loaded = compile_model(model.save())
    x = np.random.default_rng(6).normal(size=(1, 90, 32)).astype(np.float32)
    assert any(isinstance(step, FoldStep) for step in loaded.plan.steps)
    assert np.array_equal(run(loaded, x)[0], run(model, x)[0])


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    """The default engine, built on first use."""
    opened = open_engine(cores=1)
    yield opened
    opened.close()


@pytest.mark.parametrize("block", [Attention(70, 64, 1), Attention(48, 64, 2)])
def test_attention_on_rtl(engine: Engine, block: Attention) -> None:
    """RTL = task golden = graph golden, bit for bit, for a whole attention on the NPU."""
    net = Net((1, block.tokens, block.width), 7)
    model = compile_model(net.model(block.add(net, "x")).SerializeToString(), reuse=False)
    assert on_npu(model)
    x = net.rng.normal(size=net.shape).astype(np.float32)
    with LoadedModel(model, Driver(engine, 2_000_000)) as loaded:
        loaded.set_input(0, x)
        loaded.run()
        checker = ModelChecker(loaded, engine.name)
        found = checker.check([x])
        assert found.match, str(found.first)
        assert checker.check_memory() is None
        checker.close()
